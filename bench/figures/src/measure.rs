//! Loads by connections to servers, with the processor time that each phase took of them.

use std::io;

use chiton_bench::metarates::{self, Metarates};
use chiton_bench::replay;
use chiton_bench::tasks::{self, Load, Phase, Place};
use chiton_bench::trace::Trace;

use crate::servers::Servers;
use crate::{Result, Table};

/// The unit of rates by processor time.
const BY_CPU: &str = "ops/CPU s";
const RATE: &str = "ops/s";

/// A phase, and the processor time of each server meanwhile.
pub(crate) struct Measured {
    pub(crate) phase: Phase,
    pub(crate) servers: Vec<f64>,
}

pub(crate) fn load(servers: &Servers, load: &Load, tasks: usize) -> Result<Vec<Measured>> {
    observed(servers, |place, observer| tasks::run_observed(load, place, tasks, observer))
}

pub(crate) fn trace(servers: &Servers, trace: &Trace, threads: usize) -> Result<Vec<Measured>> {
    observed(servers, |place, observer| replay::run_observed(trace, place, threads, observer))
}

fn observed(
    servers: &Servers,
    run: impl FnOnce(Place<'_>, tasks::Observer<'_>) -> io::Result<Vec<Phase>>,
) -> Result<Vec<Measured>> {
    let failed = |e: crate::Failure| io::Error::other(e.to_string());
    let connect = || servers.connect().map_err(failed);
    let mut measured = Vec::new();
    let mut before = servers.processor_time()?;
    let mut observer = |phase: &Phase| {
        let now = servers.processor_time().map_err(failed)?;
        let servers = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        before = now;
        measured.push(Measured { phase: phase.clone(), servers });
        Ok(())
    };
    run(Place::Server { dir: "/", connect: &connect }, &mut observer)?;
    Ok(measured)
}

impl Measured {
    /// Adds its rate, its rate by processor time of the servers, and the share of the busiest server in it.
    pub(crate) fn add(&self, table: &mut Table, series: &str, x: impl ToString + Copy, run: usize) {
        let (ops, used) = (self.phase.ops as f64, self.servers.iter().sum::<f64>());
        table.add(series, x, run, self.phase.ops_per_second(), RATE);
        // A short phase can end between two ticks of the clock by which the kernel counts.
        if used > 0.0 {
            table.add(&format!("{series}: by CPU"), x, run, ops / used, BY_CPU);
            let most = self.servers.iter().copied().fold(0.0, f64::max);
            table.add(
                &format!("{series}: busiest server"),
                x,
                run,
                100.0 * most / self.phase.seconds,
                "% CPU",
            );
        }
    }
}

/// The operations of the thesis's chapters 5 and 6, with their phases.
pub(crate) const OPERATIONS: [(&str, &str); 3] =
    [("create", metarates::CREATE_CLOSE), ("stat", metarates::STAT), ("unlink", metarates::REMOVAL)];

/// Creates, stats and unlinks of empty files. A client stats what the next one made, which it has not cached.
pub(crate) struct Files {
    /// In all.
    pub(crate) files: usize,
    /// So many directories, or one for each client (0).
    pub(crate) dirs: usize,
    pub(crate) batch: usize,
    pub(crate) clients: usize,
}

impl Files {
    /// The three phases, in the order of [`OPERATIONS`].
    pub(crate) fn measure(&self, servers: &Servers) -> Result<Vec<(&'static str, Measured)>> {
        let Files { files, dirs, batch, clients } = *self;
        let metarates = Metarates { files: files as u64, dirs, stride: 1, batch, utime: false };
        let mut all = load(servers, &Load::Metarates(metarates), clients)?;
        let find = |(operation, phase): (&'static str, &str)| {
            let at = all.iter().position(|measured| measured.phase.name == phase);
            at.map(|at| (operation, all.swap_remove(at))).ok_or_else(|| format!("no phase {phase}").into())
        };
        OPERATIONS.into_iter().map(find).collect()
    }
}
