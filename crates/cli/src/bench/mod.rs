//! `chiton bench`: figures beside baselines in the same run. One file a group.
//!
//! Baseline and Chiton take turns in each round; ratios are made within a round and their median counts, because
//! machines are shared and noisy. Nothing here is asserted: a benchmark informs, it does not judge.

pub(crate) mod args;

mod batches;
mod durable;
mod engine;
mod huge;
mod loads;
mod metrics;
mod mount;
mod plates;
mod readers;
mod restart;
mod seqio;
mod socket;
mod subject;
mod subtrees;
mod tls;
mod tree_jobs;
mod trees;
mod workers;
mod write_behind;

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use chiton_bench::report::{Report, Row};
use chiton_bench::seqio::SeqioOptions;
use chiton_bench::summary::Summary;

use self::args::{Bench, BenchAll, BenchKind, Group, Seqio};
use crate::failure::{Failure, Outcome};

/// The amount of work.
pub(crate) struct Plan {
    /// An empty folder of our own.
    dir: PathBuf,
    rounds: usize,
    /// Divides all counts.
    divisor: u64,
}

pub(crate) fn run(args: &Bench) -> Outcome {
    match &args.what {
        BenchKind::All(all) => run_all(all),
        BenchKind::Mdtest(args) => loads::mdtest(args),
        BenchKind::Metarates(args) => loads::metarates(args),
        BenchKind::HpTrace(args) => loads::hp_trace(args),
        BenchKind::Seqio(args) => run_seqio(args),
    }
}

fn run_all(args: &BenchAll) -> Outcome {
    let dir = args.dir.join(format!("chiton-bench-{}", std::process::id()));
    // The directory is new: in a directory that others may write, another user could have planted a link.
    std::fs::create_dir_all(&args.dir)
        .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&dir))
        .map_err(|e| Failure::failed(format!("cannot make {}: {e}", dir.display())))?;
    let plan =
        Plan { dir: dir.clone(), rounds: usize::from(args.rounds), divisor: if args.quick { 10 } else { 1 } };
    type Measure = fn(&Plan) -> Outcome<Vec<Row>>;
    let groups: [(Group, &str, Measure); 16] = [
        (Group::Engine, "pure engine", engine::measure),
        (Group::Mount, "mounts", mount::measure),
        (Group::Socket, "library over a Unix socket", socket::measure),
        (Group::Batches, "batches over a Unix socket", batches::measure),
        (Group::Tls, "library over TCP with TLS", tls::measure),
        (Group::WriteBehind, "creates by write-behind", write_behind::measure),
        (Group::Durable, "durable creates", durable::measure),
        (Group::Seqio, "one large file", seqio::measure),
        (Group::Restart, "restart", restart::measure),
        (Group::Subtrees, "subtrees", subtrees::measure),
        (Group::Plates, "several plates", plates::measure),
        (Group::Huge, "huge directories", huge::measure),
        (Group::Metrics, "the cost of metrics", metrics::measure),
        (Group::Trees, "whole trees", trees::measure),
        (Group::Readers, "readers of a file during writes", readers::measure),
        (Group::Workers, "threads of a server", workers::measure),
    ];
    let mut report = Report { confidence: args.ci, ..Report::default() };
    let mut failed = Vec::new();
    for (group, name, measure) in groups {
        if !args.only.is_empty() && !args.only.contains(&group) {
            continue;
        }
        chiton_runtime::log_line!("measuring: {name}");
        match measure(&plan) {
            Ok(rows) => report.rows.extend(rows),
            Err(failure) => failed.push(format!("{name}: {failure}")),
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    report.print(args.json);
    if failed.is_empty() { Ok(()) } else { Err(Failure::failed(failed.join("\n"))) }
}

fn run_seqio(args: &Seqio) -> Outcome {
    if args.size == 0 || !args.size.is_multiple_of(seqio::CALL_BYTES) {
        return Err(Failure::failed("--size is a multiple of 4M, at least that"));
    }
    let options = SeqioOptions { file_bytes: args.size, ..SeqioOptions::standard(args.dir.clone()) };
    let mut summary = Summary::default();
    for _ in 0..args.runs.runs {
        let rate = chiton_bench::seqio::measure(&options)
            .map_err(|e| Failure::failed(format!("seqio in {}: {e}", args.dir.display())))?;
        summary.add("", "write, with fsync", "MiB/s", rate.write_mib_per_second);
        summary.add("", "read", "MiB/s", rate.read_mib_per_second);
    }
    summary.print(args.runs.ci, args.runs.json);
    Ok(())
}
