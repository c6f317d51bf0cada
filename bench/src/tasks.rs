//! Tasks that go through the phases of a load side by side, as MPI processes of the original benchmarks do.
//!
//! Tasks in a directory are processes, not threads: threads of one process share the kernel's descriptor table and (under
//! FUSE) look like one caller. The program runs itself again; a host calls [`child_main_if_requested`] first thing in its
//! `main`. Tasks that use the library are threads, each with a connection of its own.
//!
//! ```text
//!   parent   go ─┬──────────────▶ go ─┬───────────▶ …        one line down each task's pipe
//!   task 0       └ create … done ─────┘                      answers with the clock when it was done
//!   task 1       └ create ..... done ─┘
//!            │◀── seconds ──▶│  until the slowest was done
//! ```
//!
//! Invariants:
//! - No task begins a phase before all have ended the one before.
//! - A failed operation ends the run with its errno; a rate is of operations that succeeded.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use chiton_client::Client;
use serde::{Deserialize, Serialize};

use crate::hierarchy::Hierarchy;
use crate::library::Library;
use crate::mdtest::Mdtest;
use crate::metarates::Metarates;
use crate::stopwatch;
use crate::target::{Posix, Target};

const CHILD_ARGUMENT: &str = "__load-task";

/// A load, with its settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Load {
    Mdtest(Mdtest),
    Metarates(Metarates),
    Hierarchy(Hierarchy),
}

/// One of the tasks of a load.
pub(crate) trait Task {
    /// Carries out a phase; the number of operations.
    fn run(&mut self, phase: usize) -> io::Result<u64>;
}

impl Load {
    /// The names of the phases, in order.
    pub fn phases(&self) -> Vec<&'static str> {
        match self {
            Load::Mdtest(load) => load.phases(),
            Load::Metarates(load) => load.phases(),
            Load::Hierarchy(_) => Hierarchy::phases(),
        }
    }

    fn task<'a>(&'a self, target: &'a dyn Target, seat: Seat) -> Box<dyn Task + 'a> {
        match self {
            Load::Mdtest(load) => Box::new(load.task(target, seat)),
            Load::Metarates(load) => Box::new(load.task(target, seat)),
            Load::Hierarchy(load) => Box::new(load.task(target, seat)),
        }
    }
}

/// Which task this is, and of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) tasks: usize,
}

/// Makes the connection of a task.
pub type Connect<'a> = &'a (dyn Fn() -> io::Result<Client> + Sync);

/// Where the load works.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// In an existing directory. The program calls [`child_main_if_requested`].
    Directory { dir: &'a Path, program: &'a Path },
    /// In a directory of a server, by the library.
    Server { dir: &'a str, connect: Connect<'a> },
}

impl<'a> Place<'a> {
    /// A directory, by processes of this program.
    pub fn directory(dir: &'a Path) -> Place<'a> {
        Place::Directory { dir, program: Path::new("/proc/self/exe") }
    }
}

/// One phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    pub name: &'static str,
    /// Operations of all tasks together.
    pub ops: u64,
    /// From the common start until the slowest task was done.
    pub seconds: f64,
}

impl Phase {
    /// Operations per second of all tasks together.
    pub fn ops_per_second(&self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

/// Runs all phases of a load by so many tasks.
///
/// # Errors
/// A task could not be started, ended early, or an operation failed (the message names it and its path).
pub fn run(load: &Load, place: Place<'_>, tasks: usize) -> io::Result<Vec<Phase>> {
    run_observed(load, place, tasks, &mut |_| Ok(()))
}

/// Is called after each phase, while no task works.
pub type Observer<'a> = &'a mut dyn FnMut(&Phase) -> io::Result<()>;

/// [`run`], with an observer.
///
/// # Errors
/// As [`run`], and those of the observer.
pub fn run_observed(
    load: &Load,
    place: Place<'_>,
    tasks: usize,
    observer: Observer<'_>,
) -> io::Result<Vec<Phase>> {
    assert!(tasks >= 1, "a load needs a task");
    match place {
        Place::Directory { dir, program } => {
            let spawn = |rank| Worker::process(program, dir, load, Seat { rank, tasks });
            let mut workers = (0..tasks).map(spawn).collect::<io::Result<Vec<_>>>()?;
            let phases = coordinate(load, &mut workers, observer)?;
            workers.into_iter().try_for_each(Worker::finish)?;
            Ok(phases)
        }
        Place::Server { dir, connect } => std::thread::scope(|scope| {
            let spawn = |rank| {
                let (orders, go) = io::pipe()?;
                let (replies, mut answers) = io::pipe()?;
                scope.spawn(move || {
                    let mut orders = BufReader::new(orders);
                    let library = || Ok(Library::new(connect()?, dir));
                    let end = library().and_then(|target| {
                        work(load, &target, Seat { rank, tasks }, &mut orders, &mut answers)
                    });
                    report(end, &mut answers);
                });
                Ok(Worker { child: None, go: Box::new(go), answers: Box::new(BufReader::new(replies)) })
            };
            // The workers are gone before the scope waits for their threads, which end with their pipes.
            let mut workers = (0..tasks).map(spawn).collect::<io::Result<Vec<_>>>()?;
            coordinate(load, &mut workers, observer)
        }),
    }
}

/// Turns this process into a task of [`run`] if it was started as one; then it does not return.
pub fn child_main_if_requested() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != CHILD_ARGUMENT) {
        return;
    }
    let rest: Option<Vec<String>> = arguments.map(|a| a.into_string().ok()).collect();
    let outcome = rest.ok_or_else(|| io::Error::other("an argument is not text")).and_then(|a| child(&a));
    let is_good = outcome.is_ok();
    report(outcome, &mut io::stdout());
    std::process::exit(i32::from(!is_good));
}

fn child(arguments: &[String]) -> io::Result<()> {
    let [dir, rank, tasks, load] = arguments else {
        return Err(io::Error::other("want DIR RANK TASKS LOAD"));
    };
    let seat = Seat { rank: parse(rank)?, tasks: parse(tasks)? };
    let load: Load = serde_json::from_str(load)?;
    work(&load, &Posix::new(Path::new(dir))?, seat, &mut io::stdin().lock(), &mut io::stdout())
}

/// The life of a task: ready, then a phase for each line.
fn work(
    load: &Load,
    target: &dyn Target,
    seat: Seat,
    orders: &mut impl BufRead,
    answers: &mut impl Write,
) -> io::Result<()> {
    let mut task = load.task(target, seat);
    answer(answers, 0)?;
    let mut line = String::new();
    for (phase, name) in load.phases().into_iter().enumerate() {
        line.clear();
        if orders.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the parent is gone"));
        }
        let ops = task.run(phase).map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
        answer(answers, ops)?;
    }
    Ok(())
}

fn answer(answers: &mut impl Write, ops: u64) -> io::Result<()> {
    writeln!(answers, "done {} {ops}", stopwatch::now().as_nanos())?;
    answers.flush()
}

/// The parent may be gone, because another task failed: there is nobody to report to then.
fn report(end: io::Result<()>, answers: &mut impl Write) {
    if let Err(error) = end {
        let _ = writeln!(answers, "error {error}");
    }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> io::Result<T> {
    text.trim().parse().map_err(|error| io::Error::other(format!("cannot read {text:?}: {error}")))
}

fn coordinate(load: &Load, workers: &mut [Worker], observer: Observer<'_>) -> io::Result<Vec<Phase>> {
    for worker in &mut *workers {
        worker.reply()?;
    }
    let phase = |name| {
        let start = stopwatch::now();
        for worker in &mut *workers {
            worker.go.write_all(b"go\n")?;
        }
        let (mut end, mut ops) = (start, 0);
        for worker in &mut *workers {
            let (at, done) = worker.reply()?;
            end = end.max(at);
            ops += done;
        }
        let phase = Phase { name, ops, seconds: (end - start).as_secs_f64() };
        observer(&phase).map(|()| phase)
    };
    load.phases().into_iter().map(phase).collect()
}

/// The parent's view of one task.
struct Worker {
    /// Of a task that is a process.
    child: Option<Child>,
    go: Box<dyn Write>,
    answers: Box<dyn BufRead>,
}

impl Worker {
    fn process(program: &Path, dir: &Path, load: &Load, seat: Seat) -> io::Result<Worker> {
        let mut child = Command::new(program)
            .arg(CHILD_ARGUMENT)
            .arg(dir)
            .args([seat.rank.to_string(), seat.tasks.to_string(), serde_json::to_string(load)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let go = Box::new(child.stdin.take().expect("stdin was asked for"));
        let answers = Box::new(BufReader::new(child.stdout.take().expect("stdout was asked for")));
        Ok(Worker { child: Some(child), go, answers })
    }

    /// When the task was done, on the machine's monotonic clock, and with how many operations.
    fn reply(&mut self) -> io::Result<(Duration, u64)> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some(("done", rest)) => {
                let (at, ops) = rest.split_once(' ').unwrap_or((rest, ""));
                Ok((parse(at).map(Duration::from_nanos)?, parse(ops)?))
            }
            Some(("error", what)) => Err(io::Error::other(what.to_owned())),
            _ => Err(io::Error::other(
                "a task ended early: its program does not call child_main_if_requested, or it panicked",
            )),
        }
    }

    fn finish(mut self) -> io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("a task ended with {status}"))) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Already reaped after `finish`; otherwise the run failed, and the process is abandoned.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
