//! The loads of other people's benchmarks, on any file system or through the library.

use std::io;
use std::path::Path;

use chiton_bench::mdtest::{self, Mdtest, Parts};
use chiton_bench::metarates::Metarates;
use chiton_bench::replay;
use chiton_bench::summary::Summary;
use chiton_bench::tasks::{self, Load, Phase, Place};
use chiton_bench::trace::Trace;
use chiton_client::{Client, ClientOptions};

use super::args;
use crate::failure::{Failure, Outcome};
use crate::{identity, reach};

/// Most bytes that mdtest writes to a file: it does so in one piece.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Items of a task, unless another number is given.
const ITEMS: u64 = 10_000;

pub(super) fn mdtest(args: &args::Mdtest) -> Outcome {
    let loads = mdtest_loads(args)?;
    let mut summary = Summary::default();
    for iteration in 0..usize::from(args.runs.runs) {
        for (name, load) in &loads {
            let load = Load::Mdtest(Mdtest { iteration, ..load.clone() });
            summary.add_phases(name, &run(&args.place, &load)?);
        }
    }
    if args.easy && args.hard {
        summary.add_ratios("hard", "easy");
    }
    summary.print(args.runs.ci, args.runs.json);
    Ok(())
}

/// The loads of each run, with their names.
fn mdtest_loads(args: &args::Mdtest) -> Outcome<Vec<(&'static str, Mdtest)>> {
    if args.write_bytes.max(args.read_bytes) > FILE_BYTES_MAX {
        return Err(Failure::usage("-w and -e are at most 64M: chiton bench seqio measures large files"));
    }
    let parts = Parts { create: args.create, stat: args.stat, read: args.read, remove: args.remove };
    let is_whole = !(args.create || args.stat || args.read || args.remove);
    let mut load = Mdtest {
        files: !args.directories_only,
        directories: !args.files_only,
        depth: args.depth,
        branch: args.branch,
        leaf_only: args.leaf_only,
        unique_dirs: args.unique_dirs,
        write_bytes: args.write_bytes as usize,
        read_bytes: args.read_bytes as usize,
        fsync: args.fsync,
        stride: usize::from(args.stride),
        batch: args.batch as usize,
        parts: if is_whole { Parts::ALL } else { parts },
        ..Mdtest::files(args.items.unwrap_or(ITEMS))
    };
    match load.nodes_checked() {
        Some(_) => {}
        None => return Err(Failure::usage("-z and -b make a tree of more than a million directories")),
    }
    if let Some(each) = args.items_per_dir {
        load.items = each * load.nodes_with_items();
    }
    let preset = |preset: Mdtest| Mdtest {
        fsync: load.fsync,
        batch: load.batch,
        parts: if is_whole { preset.parts } else { parts },
        ..preset
    };
    let mut loads = Vec::new();
    if args.easy {
        loads.push(("easy", preset(Mdtest::easy(load.items))));
    }
    if args.hard {
        loads.push(("hard", preset(Mdtest::hard(load.items))));
    }
    if loads.is_empty() {
        loads.push(("", load));
    }
    Ok(loads)
}

pub(super) fn metarates(args: &args::Metarates) -> Outcome {
    let load = Load::Metarates(Metarates {
        files: args.files,
        dirs: usize::from(args.dirs),
        stride: usize::from(args.stride),
        batch: args.batch as usize,
        utime: true,
    });
    let mut summary = Summary::default();
    for _ in 0..args.runs.runs {
        summary.add_phases("", &run(&args.place, &load)?);
    }
    summary.print(args.runs.ci, args.runs.json);
    Ok(())
}

pub(super) fn hp_trace(args: &args::HpTrace) -> Outcome {
    let trace = match &args.trace {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|e| e.to_string())
            .and_then(|text| Trace::parse(&text))
            .map_err(|e| Failure::failed(format!("cannot read the trace {}: {e}", file.display())))?,
        None => Trace::generate(args.operations, args.seed),
    };
    if args.print {
        trace.calls.iter().for_each(|call| println!("{call}"));
        return Ok(());
    }
    let mut summary = Summary::default();
    for _ in 0..args.runs.runs {
        let replay = |place: Place<'_>| replay::run(&trace, place, usize::from(args.place.tasks));
        summary.add_phases("", &at(&args.place, &replay)?);
    }
    summary.print(args.runs.ci, args.runs.json);
    Ok(())
}

/// Runs a load once.
fn run(place: &args::Tasks, load: &Load) -> Outcome<Vec<Phase>> {
    at(place, &|at| tasks::run(load, at, usize::from(place.tasks)))
}

/// Calls with the place that was named.
fn at(place: &args::Tasks, run: &dyn Fn(Place<'_>) -> io::Result<Vec<Phase>>) -> Outcome<Vec<Phase>> {
    let phases = if place.server.is_some() || place.monitor.is_some() {
        if let Some(address) = &place.server {
            reach::probe(address, &address.to_string())?;
        }
        let dir = place.dir.as_deref().unwrap_or(Path::new("/"));
        let dir = dir.to_str().ok_or_else(|| Failure::usage("--dir is not UTF-8"))?;
        let connect = || connect(place).map_err(|failure| io::Error::other(failure.to_string()));
        run(Place::Server { dir, connect: &connect })
    } else {
        let dir = place.dir.as_deref().ok_or_else(|| {
            Failure::usage("name a directory with --dir, or a server with --server or --monitor")
        })?;
        run(Place::directory(dir))
    };
    phases.map_err(|e| Failure::failed(e.to_string()))
}

fn connect(place: &args::Tasks) -> Outcome<Client> {
    let mut options = ClientOptions {
        identity: format!("chiton bench, process {}", std::process::id()),
        ..ClientOptions::default()
    };
    if !place.write_behind {
        options.write_behind_after = None;
    }
    match (&place.server, &place.monitor) {
        (_, Some(monitor)) => crate::commands::cluster::client(monitor, &options),
        (Some(address), None) => Client::connect(address, identity::with(options)?).map_err(Failure::absent),
        (None, None) => Err(Failure::usage("--server or --monitor is missing")),
    }
}

/// Empty or small files in one directory of a file system, by processes: create, stat, remove.
pub(super) fn files(dir: &Path, count: usize, items: u64, write_bytes: usize) -> Outcome<Vec<Phase>> {
    let load = Load::Mdtest(Mdtest { write_bytes, ..Mdtest::files(items) });
    tasks::run(&load, Place::directory(dir), count)
        .map_err(|e| Failure::failed(format!("mdtest in {}: {e}", dir.display())))
}

pub(super) fn creates(phases: &[Phase]) -> f64 {
    rate(phases, mdtest::FILE_CREATION)
}

pub(super) fn removes(phases: &[Phase]) -> f64 {
    rate(phases, mdtest::FILE_REMOVAL)
}

fn rate(phases: &[Phase], name: &str) -> f64 {
    phases.iter().find(|phase| phase.name == name).map_or(0.0, Phase::ops_per_second)
}
