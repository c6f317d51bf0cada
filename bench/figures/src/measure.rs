//! Loads by connections to servers, with the processor time that each phase took of them.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use chiton_bench::metarates::{self, Metarates};
use chiton_bench::replay;
use chiton_bench::tasks::{self, Load, Phase, Place};
use chiton_bench::trace::Trace;

use crate::gauge::{seconds, ticks_of_all};
use crate::servers::{Servers, processor_time_of};
use crate::{Result, Table};

/// The unit of rates by processor time.
const BY_CPU: &str = "ops/CPU s";
const RATE: &str = "ops/s";

/// A phase, and the processor time of each server meanwhile.
pub(crate) struct Measured {
    pub(crate) phase: Phase,
    pub(crate) servers: Vec<f64>,
    /// Of this process, in which all clients are.
    pub(crate) clients: f64,
    /// Of everything else on this machine.
    pub(crate) others: f64,
}

pub(crate) fn load(servers: &Servers, dir: &str, load: &Load, tasks: usize) -> Result<Vec<Measured>> {
    observed(servers, dir, || Ok(()), |place, observer| tasks::run_observed(load, place, tasks, observer))
}

pub(crate) fn trace(servers: &Servers, trace: &Trace, threads: usize) -> Result<Vec<Measured>> {
    observed(servers, "/", || Ok(()), |place, observer| replay::run_observed(trace, place, threads, observer))
}

/// Waits for `together` after each phase.
fn observed(
    servers: &Servers,
    dir: &str,
    together: impl Fn() -> io::Result<()>,
    run: impl FnOnce(Place<'_>, tasks::Observer<'_>) -> io::Result<Vec<Phase>>,
) -> Result<Vec<Measured>> {
    let failed = |e: crate::Failure| io::Error::other(e.to_string());
    let connect = || servers.connect().map_err(failed);
    let mut measured = Vec::new();
    let mut before = processor_times(servers)?;
    let mut observer = |phase: &Phase| {
        together()?;
        let now = processor_times(servers).map_err(failed)?;
        let mut used: Vec<f64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        let all = used.pop().unwrap_or_default();
        let clients = used.pop().unwrap_or_default();
        let others = (all - clients - used.iter().sum::<f64>()).max(0.0);
        before = now;
        measured.push(Measured { phase: phase.clone(), servers: used, clients, others });
        Ok(())
    };
    run(Place::Server { dir, connect: &connect }, &mut observer)?;
    Ok(measured)
}

/// Of each server, then of this process, then of all processes.
fn processor_times(servers: &Servers) -> Result<Vec<f64>> {
    let mut times = servers.processor_time()?;
    times.push(processor_time_of(std::process::id())?);
    times.push(seconds(ticks_of_all()?));
    Ok(times)
}

impl Measured {
    /// Adds its rate, its rate by processor time of the servers, and the share of the busiest server in it.
    pub(crate) fn add(&self, table: &mut Table, series: &str, x: impl ToString + Copy, run: usize) {
        self.add_rate(table, series, x, run);
        let (ops, used) = (self.phase.ops as f64, self.servers.iter().sum::<f64>());
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

    pub(crate) fn add_rate(&self, table: &mut Table, series: &str, x: impl ToString + Copy, run: usize) {
        table.add(series, x, run, self.phase.ops_per_second(), RATE);
    }

    /// With another phase at the same time: all operations, by the time of the slower one.
    pub(crate) fn with(&self, other: &Measured) -> Measured {
        let phase = Phase {
            name: self.phase.name,
            ops: self.phase.ops + other.phase.ops,
            seconds: self.phase.seconds.max(other.phase.seconds),
        };
        Measured { phase, servers: self.servers.clone(), ..*self }
    }
}

/// The operations of the thesis's chapters 5 and 6, with their phases.
pub(crate) const OPERATIONS: [(&str, &str); 3] =
    [("create", metarates::CREATE_CLOSE), ("stat", metarates::STAT), ("unlink", metarates::REMOVAL)];

/// Operations with their measured phases.
pub(crate) type Phases = Vec<(&'static str, Measured)>;

/// Waits until the other one calls it too. It fails if the other one has ended.
fn meet(to: &Sender<()>, from: &Receiver<()>) -> io::Result<()> {
    let ended = || io::Error::other("the load beside this one ended early");
    to.send(()).map_err(|_| ended())?;
    from.recv().map_err(|_| ended())
}

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
    pub(crate) fn measure(&self, servers: &Servers) -> Result<Phases> {
        self.measure_in(servers, "/")
    }

    /// The same below a directory of the servers.
    pub(crate) fn measure_in(&self, servers: &Servers, dir: &str) -> Result<Phases> {
        self.measure_together(servers, dir, || Ok(()))
    }

    /// Twice at the same time, below two directories: no phase begins at one before both have ended the one before. The
    /// processor time is that of both.
    pub(crate) fn measure_twice(&self, servers: &Servers, dirs: [&str; 2]) -> Result<[Phases; 2]> {
        let ((to_second, from_first), (to_first, from_second)) = (mpsc::channel(), mpsc::channel());
        let [first, second] = dirs;
        thread::scope(|scope| {
            let other =
                scope.spawn(move || self.measure_together(servers, second, || meet(&to_first, &from_first)));
            let first = self.measure_together(servers, first, move || meet(&to_second, &from_second));
            let second = other.join().map_err(|_| "a thread that measures panicked")?;
            Ok([first?, second?])
        })
    }

    fn measure_together(
        &self,
        servers: &Servers,
        dir: &str,
        together: impl Fn() -> io::Result<()>,
    ) -> Result<Phases> {
        let Files { files, dirs, batch, clients } = *self;
        let metarates =
            Load::Metarates(Metarates { files: files as u64, dirs, stride: 1, batch, utime: false });
        let mut all = observed(servers, dir, together, |place, observer| {
            tasks::run_observed(&metarates, place, clients, observer)
        })?;
        let find = |(operation, phase): (&'static str, &str)| {
            let at = all.iter().position(|measured| measured.phase.name == phase);
            at.map(|at| (operation, all.swap_remove(at))).ok_or_else(|| format!("no phase {phase}").into())
        };
        OPERATIONS.into_iter().map(find).collect()
    }
}
