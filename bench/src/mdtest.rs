//! Many processes that create, stat and remove files, as `mdtest -F -n N -d DIR -u -w BYTES -C -T -r` does.
//!
//! Processes, not threads: threads of one process share the kernel's descriptor table and (under FUSE) look
//! like one caller. The generator runs the current program again; a host calls
//! [`child_main_if_requested`] first thing in its `main`.
//!
//! ```text
//!   parent   go ─┬──────────────▶ go ─┬───────────▶ …        one line down each child's stdin
//!   child 0      └ create … done ─────┘                      answers with the clock when it was done
//!   child 1      └ create ..... done ─┘
//!            │◀── seconds ──▶│  until the slowest was done
//! ```
//!
//! Invariants:
//! - No child begins a phase before all have ended the one before.
//! - A failed operation ends the run with its errno; a rate is of operations that succeeded.
//! - The directories it made are gone afterwards, if all phases passed.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::stopwatch;

const CHILD_ARGUMENT: &str = "__mdtest-child";
const PHASES: [(&str, Operation); 3] = [("create", create), ("stat", stat), ("remove", remove)];

/// An operation on a path; create also writes the bytes.
type Operation = fn(&str, &[u8]) -> rustix::io::Result<()>;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct MdtestOptions {
    /// An existing directory; everything happens in a new one below it.
    pub dir: PathBuf,
    /// Processes that run side by side, at least one.
    pub processes: usize,
    /// Files that each of them makes.
    pub files_per_process: u64,
    /// A directory for each process, instead of one that all share.
    pub unique_dirs: bool,
    /// Bytes that are written to each file, in one piece, when it is created; 0: files stay empty.
    pub file_bytes: usize,
}

/// One phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// `create`, `stat` or `remove`.
    pub name: &'static str,
    /// Operations of all processes together.
    pub ops: u64,
    /// From the common start until the slowest process was done.
    pub seconds: f64,
}

impl Phase {
    /// Operations per second of all processes together.
    pub fn ops_per_second(&self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

/// Runs the three phases, by running the current program again once per process.
///
/// # Errors
/// A process could not be started, ended early, or an operation failed (the message names it and its path).
pub fn run(options: &MdtestOptions) -> io::Result<Vec<Phase>> {
    run_with_program(Path::new("/proc/self/exe"), options)
}

/// [`run`] with another program that calls [`child_main_if_requested`].
///
/// # Errors
/// As [`run`].
pub fn run_with_program(program: &Path, options: &MdtestOptions) -> io::Result<Vec<Phase>> {
    assert!(options.processes >= 1, "mdtest needs a process");
    let top = options.dir.join(format!("mdtest.{}", std::process::id()));
    std::fs::create_dir(&top)?;
    let mut dirs = Vec::new();
    let mut workers = Vec::new();
    for rank in 0..options.processes {
        let dir = if options.unique_dirs { top.join(format!("rank.{rank}")) } else { top.join("shared") };
        if options.unique_dirs || rank == 0 {
            std::fs::create_dir(&dir)?;
            dirs.push(dir.clone());
        }
        workers.push(Worker::spawn(program, &dir, rank, options)?);
    }
    for worker in &mut workers {
        worker.reply()?;
    }
    let mut phases = Vec::new();
    for (name, _) in PHASES {
        let start = stopwatch::now();
        for worker in &mut workers {
            worker.go()?;
        }
        let mut end = start;
        for worker in &mut workers {
            end = end.max(worker.reply()?);
        }
        let ops = options.processes as u64 * options.files_per_process;
        phases.push(Phase { name, ops, seconds: (end - start).as_secs_f64() });
    }
    for worker in workers {
        worker.finish()?;
    }
    dirs.push(top);
    dirs.iter().try_for_each(std::fs::remove_dir)?;
    Ok(phases)
}

/// Turns this process into a child of [`run`] if it was started as one; then it does not return.
pub fn child_main_if_requested() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != CHILD_ARGUMENT) {
        return;
    }
    let rest: Option<Vec<String>> = arguments.map(|a| a.into_string().ok()).collect();
    let outcome = rest.ok_or_else(|| io::Error::other("an argument is not text")).and_then(|a| child(&a));
    if let Err(error) = outcome {
        println!("error {error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

fn child(arguments: &[String]) -> io::Result<()> {
    let [dir, rank, files, bytes] = arguments else {
        return Err(io::Error::other("want DIR RANK FILES BYTES"));
    };
    let (rank, files): (usize, u64) = (parse(rank)?, parse(files)?);
    let content = vec![0x5a; parse(bytes)?];
    let mut go = io::stdin().lock();
    let mut line = String::new();
    answer_done()?;
    for (name, operation) in PHASES {
        line.clear();
        if go.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the parent is gone"));
        }
        let mut path = format!("{dir}/file.{rank}.");
        let prefix = path.len();
        for i in 0..files {
            path.truncate(prefix);
            path.push_str(&i.to_string());
            operation(&path, &content)
                .map_err(|errno| io::Error::other(format!("{name} {path}: {errno}")))?;
        }
        answer_done()?;
    }
    Ok(())
}

fn answer_done() -> io::Result<()> {
    let now = stopwatch::now();
    let mut out = io::stdout().lock();
    writeln!(out, "done {}", now.as_nanos())?;
    out.flush()
}

fn create(path: &str, content: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
    let mut rest = content;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    Ok(())
}

fn stat(path: &str, _: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::stat(path).map(drop)
}

fn remove(path: &str, _: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::unlink(path)
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> io::Result<T> {
    text.trim().parse().map_err(|error| io::Error::other(format!("cannot read {text:?}: {error}")))
}

/// The parent's view of one child process.
struct Worker {
    child: Child,
    go: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn spawn(program: &Path, dir: &Path, rank: usize, options: &MdtestOptions) -> io::Result<Worker> {
        let mut child = Command::new(program)
            .arg(CHILD_ARGUMENT)
            .arg(dir)
            .args([rank.to_string(), options.files_per_process.to_string(), options.file_bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let go = child.stdin.take().expect("stdin was asked for");
        let answers = BufReader::new(child.stdout.take().expect("stdout was asked for"));
        Ok(Worker { child, go, answers })
    }

    fn go(&mut self) -> io::Result<()> {
        self.go.write_all(b"go\n")
    }

    /// When the child was done, on the machine's monotonic clock.
    fn reply(&mut self) -> io::Result<Duration> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some(("done", at)) => parse(at).map(Duration::from_nanos),
            Some(("error", what)) => Err(io::Error::other(format!("mdtest process: {what}"))),
            _ => Err(io::Error::other(
                "mdtest process ended early: its main does not call child_main_if_requested",
            )),
        }
    }

    fn finish(mut self) -> io::Result<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("mdtest process: {status}"))) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Already reaped after `finish`; otherwise the run failed, and the process is abandoned.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_writes_all_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let path = path.to_str().expect("text");
        for content in [&b""[..], &[7; 5_000]] {
            create(path, content).expect("created");
            assert_eq!(std::fs::read(path).expect("read"), content);
            assert_eq!(create(path, content), Err(rustix::io::Errno::EXIST));
            remove(path, content).expect("removed");
        }
    }
}
