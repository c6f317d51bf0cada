//! Measures every baseline and prints the table.

use std::io;
use std::path::{Path, PathBuf};

use chiton_bench::echo::{self, EchoOptions, EchoRate, Transport};
use chiton_bench::group_commit::{self, GroupCommitOptions};
use chiton_bench::mdtest::{self, MdtestOptions};
use chiton_bench::report::{Report, Row};
use chiton_bench::seqio::{self, SeqioOptions};
use chiton_bench::trivial_mount::TrivialMount;
use clap::Parser;

/// The floors of this machine: what FUSE, wire and disk allow a program that does nothing else.
#[derive(Parser)]
#[command(after_help = "Example:\n  floors --dir /var/tmp --rounds 5\n  floors --quick --only echo --json")]
struct Arguments {
    /// Where files and the mount point are made: a directory on the disk to measure.
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A tenth of the load.
    #[arg(long)]
    quick: bool,
    /// Only groups whose name contains this: mdtest, echo, commit, seqio.
    #[arg(long, default_value = "")]
    only: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The rates of one round, by row.
type Rates = Vec<(String, &'static str, f64)>;
type Group<'a> = (&'a str, &'a str, Box<dyn Fn() -> io::Result<Rates> + 'a>);

fn main() -> io::Result<()> {
    mdtest::child_main_if_requested();
    let arguments = Arguments::parse();
    let scratch = arguments.dir.join(format!("chiton-floors.{}", std::process::id()));
    std::fs::create_dir(&scratch)?;
    let outcome = measure_all(&scratch, &arguments);
    std::fs::remove_dir(&scratch)?;
    outcome?.print(arguments.json);
    Ok(())
}

fn measure_all(scratch: &Path, arguments: &Arguments) -> io::Result<Report> {
    let share = if arguments.quick { 10 } else { 1 };
    let groups: [Group<'_>; 6] = [
        (
            "mdtest fuse",
            "FUSE round trips; stat: kernel cache",
            Box::new(|| on_mount(scratch, |dir| mdtest_rates(dir, "fuse", share))),
        ),
        ("mdtest disk", "local file system", Box::new(|| mdtest_rates(scratch, "disk", share))),
        ("echo", "system calls, wake-ups", Box::new(|| echo_rates(share))),
        ("commit", "fdatasync", Box::new(|| commit_rates(scratch, share))),
        ("seqio disk", "disk", Box::new(|| seqio_rates(scratch, "disk", share))),
        ("seqio fuse", "copies", Box::new(|| on_mount(scratch, |dir| seqio_rates(dir, "fuse", share)))),
    ];
    let mut report = Report::default();
    for (name, bound_by, measure) in groups.iter().filter(|g| g.0.contains(&arguments.only)) {
        eprintln!("measuring {name} …");
        let rounds = (0..arguments.rounds.max(1)).map(|_| measure()).collect::<io::Result<Vec<Rates>>>()?;
        for (at, (row, unit, _)) in rounds[0].iter().enumerate() {
            let values: Vec<f64> = rounds.iter().map(|rates| rates[at].2).collect();
            report.rows.push(Row::new(row, unit, &values, &[]).with_bound(bound_by));
        }
    }
    Ok(report)
}

fn on_mount(scratch: &Path, measure: impl Fn(&Path) -> io::Result<Rates>) -> io::Result<Rates> {
    let dir = scratch.join("mount");
    std::fs::create_dir(&dir)?;
    let mount = TrivialMount::spawn(&dir)?;
    let rates = measure(&dir);
    mount.unmount()?;
    std::fs::remove_dir(&dir)?;
    rates
}

fn mdtest_rates(dir: &Path, place: &str, share: u64) -> io::Result<Rates> {
    let mut rates = Rates::new();
    for (processes, unique_dirs) in [(1, true), (4, true), (4, false)] {
        let options = MdtestOptions {
            dir: dir.into(),
            processes,
            files_per_process: 20_000 / share,
            unique_dirs,
            file_bytes: 0,
        };
        let dirs = if unique_dirs { "own dir" } else { "one dir" };
        for phase in mdtest::run(&options)? {
            let name = format!("mdtest {place}, {processes} proc, {dirs}: {}", phase.name);
            rates.push((name, "ops/s", phase.ops_per_second()));
        }
    }
    Ok(rates)
}

fn echo_rates(share: u64) -> io::Result<Rates> {
    let mut rates = Rates::new();
    for (transport, wire) in [(Transport::Unix, "unix"), (Transport::Tcp, "tcp")] {
        let mut add = |name: &str, unit, options: EchoOptions, rate: fn(&EchoRate) -> f64| {
            let measured = echo::measure(&options)?;
            rates.push((format!("echo {wire}, {name}"), unit, rate(&measured)));
            io::Result::Ok(())
        };
        let trips = EchoRate::round_trips_per_second;
        add("one at a time", "trips/s", EchoOptions::one_at_a_time(transport, 100_000 / share), trips)?;
        add("64 in flight", "trips/s", EchoOptions::pipelined(transport, 1_000_000 / share), trips)?;
        add("64 connections", "trips/s", EchoOptions::many_connections(transport, 5_000 / share), trips)?;
        let batched = EchoOptions::batched(transport, 10_000 / share);
        add("1,000 a message", "records/s", batched, EchoRate::records_per_second)?;
    }
    Ok(rates)
}

fn commit_rates(dir: &Path, share: u64) -> io::Result<Rates> {
    let mut rates = Rates::new();
    for (waiters, records_per_waiter) in [(1, 5_000), (64, 5_000)] {
        let options = GroupCommitOptions {
            waiters,
            ..GroupCommitOptions::standard(dir.into(), records_per_waiter / share)
        };
        let rate = group_commit::measure(&options)?.records_per_second();
        rates.push((format!("group commit, {waiters} waiters"), "records/s", rate));
    }
    Ok(rates)
}

fn seqio_rates(dir: &Path, place: &str, share: u64) -> io::Result<Rates> {
    let standard = SeqioOptions::standard(dir.into());
    let calls = standard.file_bytes / standard.call_bytes as u64 / share;
    let rate = seqio::measure(&SeqioOptions { file_bytes: calls * standard.call_bytes as u64, ..standard })?;
    Ok(vec![
        (format!("seqio {place}: write + fsync"), "MiB/s", rate.write_mib_per_second),
        (format!("seqio {place}: read"), "MiB/s", rate.read_mib_per_second),
    ])
}
