//! A cluster of real processes on this machine: an etcd, servers, mounts. To look at until it is interrupted, or to be checked: load
//! while servers are killed, paused and relieved of plates, and a comparison of everything that was made durable.
//!
//! ```text
//!   etcd (1 or 3) ◀── servers 1 to n, standbys ──▶ a shared directory
//!                         ▲
//!                      mounts ◀── workers: directories, files, fsync, renames, removes; tar; decoupled jobs and their merges;
//!                                 a file that stays open; a number raised under a lock by all mounts;
//!                                 a directory that is split while all mounts work in it
//!                         faults: kill -9, SIGSTOP, rebalance, an etcd member less
//!                         chiton fsck, again and again
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes and real mounts: nothing here runs in a simulation"
)]

mod cluster;
mod crowd;
mod faults;
mod fsck;
mod load;
mod measure;
mod network;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chiton_runtime::{RealWorld, World};
use clap::Parser;
use comfy_table::{Table, presets};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use cluster::{Cluster, Shape, Tool};
use fsck::Checks;
use load::Load;

/// Calls that are shown one by one.
const LONGEST: usize = 10;

/// A failure, in words.
type Result<T, E = String> = std::result::Result<T, E>;

#[derive(Debug, Parser)]
#[command(
    about,
    after_help = "Examples:\n  ./x cluster                                 3 servers and a standby; ends at Ctrl-C\n  ./x cluster --servers 4 --standby 1 --check  faults under load, and a comparison\n  ./x cluster --check --seconds 600 --etcd 3 --networks   servers are cut off, too\n  ./x cluster --measure --entries 1000000     take-overs and hand-overs, beside their goals"
)]
struct Arguments {
    /// The program to run.
    #[arg(long)]
    chiton: PathBuf,
    /// Servers, without the standbys.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    servers: u16,
    /// Servers that have no plates until they replace a dead one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=4))]
    standby: u16,
    /// Members of etcd.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=5))]
    etcd: u16,
    /// Plates of the file system.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    plates: u16,
    /// Mounts.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8))]
    mounts: u16,
    /// Keep the data in a bucket of an S3 service for tests, in place of a shared directory.
    #[arg(long)]
    s3: bool,
    /// Give each server a network of its own, in which faults of --check can cut it off.
    #[arg(long)]
    networks: bool,
    /// Be the load on these mounts, until standard input ends: a trial starts itself so.
    #[arg(long, hide = true, value_name = "MOUNT")]
    load_of: Vec<PathBuf>,
    /// Put load on the mounts, let servers die, and compare; ends with 0 only if nothing is missing.
    #[arg(long)]
    check: bool,
    /// Measure take-overs, hand-overs, and the changes of the map, and compare them with the goals.
    #[arg(long, conflicts_with = "check")]
    measure: bool,
    /// Servers that --measure kills, one after the other.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(0..=1000))]
    kills: u16,
    /// Entries of the plate that --measure hands over.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    entries: u32,
    /// Hand-overs that --measure times.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
    moves: u16,
    /// Servers that follow the map whose changes --measure times.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=300))]
    followers: u16,
    /// Operations during which --measure counts the messages to the etcd.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    operations: u32,
    /// Print the result of --measure as JSON.
    #[arg(long, requires = "measure")]
    json: bool,
    /// How long the load and the faults of --check last.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// Most faults of --check; 0: load only.
    #[arg(long)]
    faults: Option<usize>,
    /// Decides the faults of --check (default: drawn and printed).
    #[arg(long)]
    seed: Option<u64>,
    /// Keep everything here instead of in a directory that is removed.
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cluster: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Arguments) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err("run this as root: it mounts".to_owned());
    }
    if !args.load_of.is_empty() {
        // Ctrl-C is the trial's to hear.
        let _signals = Signals::new([SIGINT, SIGTERM]).map_err(|e| format!("signals: {e}"))?;
        return load::work(&args.load_of, &Tool::here(args.chiton.clone()));
    }
    let scratch = tempfile::tempdir().map_err(|e| format!("a directory: {e}"))?;
    let dir = args.dir.clone().unwrap_or_else(|| scratch.path().to_owned());
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let shape = Shape {
        servers: args.servers.into(),
        standbys: args.standby.into(),
        etcd: args.etcd.into(),
        plates: args.plates,
        mounts: args.mounts.into(),
        is_on_s3: args.s3,
        has_networks: args.networks,
    };
    // Listened for from the start, so that an interrupted trial leaves no process and no mount behind.
    let signals = Signals::new([SIGINT, SIGTERM]).map_err(|e| format!("signals: {e}"))?;
    let cluster = Cluster::start(&args.chiton, &dir, &shape)?;
    if args.check {
        return check(args, cluster, signals);
    }
    if args.measure {
        let size = measure::Size {
            kills: args.kills,
            entries: args.entries,
            moves: args.moves,
            followers: args.followers,
            operations: args.operations,
        };
        let figures = measure::run(cluster, &size)?;
        match args.json {
            true => println!("{}", measure::json(&figures)?),
            false => println!("{}", measure::table(&figures)),
        }
        return Ok(());
    }
    show(&cluster, signals);
    cluster.end()
}

/// Shows the state again and again, until interrupted.
fn show(cluster: &Cluster, mut signals: Signals) {
    println!("mounted on {}", cluster.mounts_as_text());
    println!(
        "try: kill -9 a server ({}), and look at what happens; Ctrl-C ends the cluster",
        cluster.pids_as_text()
    );
    let mut last = String::new();
    while signals.pending().next().is_none() {
        // While a plate has no server the command fails; its output is shown all the same.
        let now = cluster.status();
        if now != last {
            println!("\n{now}");
            last = now;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn check(args: &Arguments, mut cluster: Cluster, mut signals: Signals) -> Result<()> {
    let seed = args.seed.unwrap_or_else(|| RealWorld.random() >> 32);
    println!("faults by --seed {seed}");
    let began = Instant::now();
    let mounts = cluster.mounts();
    let load = Load::start(&cluster.tool(), &mounts)?;
    let plan = faults::Plan {
        time: Duration::from_secs(args.seconds),
        most: args.faults.unwrap_or(usize::MAX),
        seed,
        load_began: began,
    };
    let checks = Checks::start(cluster.tool(), cluster.monitor());
    let faults = faults::run(&mut cluster, &plan, || signals.pending().next().is_some());
    let load = load.end()?;
    let checks = checks.end()?;
    let faults = faults?;
    cluster.await_health()?;
    let mut missing = load.complaints.clone();
    if load.split == 0 && args.plates > 1 {
        missing
            .push("no directory was split while the load ran: give it more time with --seconds".to_owned());
    }
    missing.extend(checks.wrong);
    if let Err(why) = cluster.chiton(&["fsck", "--content", cluster.monitor()]) {
        missing.push(why);
    }
    for mount in &mounts {
        missing.extend(load.compare(mount));
    }
    let fresh = cluster.mount_another()?;
    missing.extend(load.compare(&fresh));
    print_longest(&load);
    println!("{}", report(&faults, &load));
    println!("{} directories were split over plates under load", load.split);
    println!(
        "chiton fsck found nothing in {} checks under load; {} had no result",
        checks.clean,
        checks.cut_off.len()
    );
    if let Some(why) = checks.cut_off.last() {
        println!("the last of these: {why}");
    }
    let logs = cluster.suspicious_logs();
    missing.extend(logs);
    if let Err(why) = cluster.end() {
        missing.push(why);
    }
    if missing.is_empty() {
        println!(
            "{} files and directories were compared on {} mounts: nothing is missing",
            load.kept.len(),
            mounts.len() + 1
        );
        return Ok(());
    }
    missing.iter().take(20).for_each(|line| println!("WRONG: {line}"));
    Err(format!("{} things are wrong (--seed {seed} decides the faults)", missing.len()))
}

/// The calls that waited the longest, in the order of their times.
fn print_longest(load: &load::Made) {
    let mut calls: Vec<_> = load.calls.iter().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.took));
    calls.truncate(LONGEST);
    calls.sort_by_key(|call| call.began);
    println!("the longest calls:");
    for call in calls {
        println!("{:7.2} s: {:.2} s for {}", call.began.as_secs_f64(), call.took.as_secs_f64(), call.what);
    }
}

/// How long callers waited, by kind of fault.
fn report(faults: &[faults::Fault], load: &load::Made) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["fault", "times", "longest wait of a call: median", "worst"]);
    for kind in faults::Kind::ALL {
        let mut waits: Vec<Duration> =
            faults.iter().filter(|fault| fault.kind == kind).map(|fault| load.longest_wait(fault)).collect();
        if waits.is_empty() {
            continue;
        }
        waits.sort();
        let of = |at: usize| format!("{:.2} s", waits[at].as_secs_f64());
        table.add_row([
            kind.name().to_owned(),
            waits.len().to_string(),
            of(waits.len() / 2),
            of(waits.len() - 1),
        ]);
    }
    table.add_row([format!("calls: {}", load.calls.len()), String::new(), String::new(), String::new()]);
    table
}
