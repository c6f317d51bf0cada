//! Creates, stats and removes many files from several processes, and prints the rates.

use std::path::PathBuf;

use chiton_bench::mdtest::Mdtest;
use chiton_bench::tasks::{self, Load, Place};
use clap::Parser;

/// Metadata load: create, stat, remove.
#[derive(Parser)]
#[command(after_help = "Example:\n  mdtest --dir /mnt/floor --processes 4 --files 10000")]
struct Arguments {
    /// An existing directory to work in.
    #[arg(long)]
    dir: PathBuf,
    /// Number of concurrent processes.
    #[arg(long, default_value_t = 1)]
    processes: usize,
    /// Number of files of each process.
    #[arg(long, default_value_t = 10_000)]
    files: u64,
    /// All processes work in one directory.
    #[arg(long)]
    shared: bool,
    /// Bytes written to each when it is made
    #[arg(long, default_value_t = 0)]
    bytes: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> std::io::Result<()> {
    tasks::child_main_if_requested();
    let arguments = Arguments::parse();
    let load = Load::Mdtest(Mdtest {
        unique_dirs: !arguments.shared,
        write_bytes: arguments.bytes,
        ..Mdtest::files(arguments.files)
    });
    let phases = tasks::run(&load, Place::directory(&arguments.dir), arguments.processes.max(1))?;
    if arguments.json {
        println!("{}", serde_json::to_string(&phases)?);
        return Ok(());
    }
    for phase in phases {
        println!(
            "{:18} {:>10.0}/s  ({} in {:.3} s)",
            phase.name,
            phase.ops_per_second(),
            phase.ops,
            phase.seconds
        );
    }
    Ok(())
}
