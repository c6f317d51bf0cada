//! Creates, stats and removes through an embedded mount, beside the trivial FUSE file system, in turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_bench::mdtest::{self, MdtestOptions};
use chiton_bench::report::{Report, Row};
use chiton_bench::trivial_mount::TrivialMount;
use chiton_client::{Client, ClientOptions};
use chiton_fuse::{Mount, MountOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use clap::Parser;

/// How much of what FUSE allows is left.
#[derive(Parser)]
#[command(after_help = "Example:\n  beside_floor --dir /var/tmp --rounds 5")]
struct Arguments {
    /// Where data and mount points are made.
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Files of each process.
    #[arg(long, default_value_t = 20_000)]
    files: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

type Failure = Box<dyn std::error::Error>;
type Rates = Vec<(String, f64)>;

/// The ratios that we want, with one process and with several.
const TARGET_ONE: f64 = 0.8;
const TARGET_SEVERAL: f64 = 0.7;

fn main() -> Result<(), Failure> {
    mdtest::child_main_if_requested();
    let arguments = Arguments::parse();
    let scratch = arguments.dir.join(format!("chiton-beside.{}", std::process::id()));
    std::fs::create_dir(&scratch)?;
    let (mut floor, mut ours): (Vec<Rates>, Vec<Rates>) = Default::default();
    for round in 0..arguments.rounds.max(1) {
        eprintln!("round {round} …");
        floor.push(on_floor(&scratch, arguments.files)?);
        ours.push(on_ours(&scratch, round, arguments.files)?);
    }
    let mut report = Report::default();
    for (at, (name, _)) in floor[0].iter().enumerate() {
        let of = |rounds: &[Rates]| rounds.iter().map(|rates| rates[at].1).collect::<Vec<f64>>();
        let target = if name.starts_with("1 ") { TARGET_ONE } else { TARGET_SEVERAL };
        report.rows.push(Row::new(name, "ops/s", &of(&floor), &of(&ours)).with_target(target));
    }
    report.print(arguments.json);
    std::fs::remove_dir_all(&scratch)?;
    Ok(())
}

fn on_floor(scratch: &Path, files: u64) -> Result<Rates, Failure> {
    let dir = scratch.join("floor");
    std::fs::create_dir_all(&dir)?;
    let mount = TrivialMount::spawn(&dir)?;
    let rates = rates(&dir, files);
    mount.unmount()?;
    rates
}

fn on_ours(scratch: &Path, round: usize, files: u64) -> Result<Rates, Failure> {
    let (dir, data) = (scratch.join("ours"), scratch.join(format!("data{round}")));
    std::fs::create_dir_all(&dir)?;
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(&data, &FormatOptions::default(), &world).map_err(|e| format!("{e:?}"))?;
    let server = Server::start(&data, ServerOptions::default(), world).map_err(|e| format!("{e:?}"))?;
    let client = Client::embedded(server.clone(), ClientOptions::default())?;
    let mount = Mount::start(Arc::new(client), &dir, MountOptions::default())?;
    let rates = rates(&dir, files);
    mount.unmount().map_err(|(error, _)| error)?;
    server.shutdown()?;
    std::fs::remove_dir_all(&data)?;
    rates
}

fn rates(dir: &Path, files: u64) -> Result<Rates, Failure> {
    let mut rates = Rates::new();
    for processes in [1, 4] {
        let options = MdtestOptions {
            dir: dir.into(),
            processes,
            files_per_process: files,
            unique_dirs: true,
            file_bytes: 0,
        };
        for phase in mdtest::run(&options)? {
            rates.push((format!("{processes} proc: {}", phase.name), phase.ops_per_second()));
        }
    }
    Ok(rates)
}
