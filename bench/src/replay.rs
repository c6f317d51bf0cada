//! Replays a trace by several threads, as far as the dependencies between its operations allow.
//!
//! ```text
//!   mkdir a ──▶ create a/f ─┬─▶ stat a/f ──┬─▶ unlink a/f ──▶ rmdir a
//!                           └─▶ open a/f ──┘                    ▲
//!               create a/g ──▶ unlink a/g ──────────────────────┘
//! ```
//!
//! An operation uses paths (its own, and the directories above) and changes paths. It begins when these have ended, all earlier in the
//! trace: the last change of every path that it uses, and the last change and all later uses of every path that it changes.
//! So a change of a directory waits for all that went on below it, and lookups of one file go side by side.
//!
//! Invariants:
//! - Every thread has a target of its own: a connection, with the library.
//! - A thread forgets where directories are when a directory was removed or renamed.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};

use crate::library::Library;
use crate::stopwatch;
use crate::target::{Posix, Target};
use crate::tasks::{Observer, Phase, Place};
use crate::trace::{Call, Kind, Trace, Tree, split};

/// The tree is made.
pub const HIERARCHY: &str = "Hierarchy";
/// All operations of the trace.
pub const REPLAY: &str = "Replay";
const REMOVAL: &str = "Removal";

/// Makes the tree of the trace, replays it by so many threads, and removes all that is left.
///
/// # Errors
/// An operation failed: the message has it and its errno.
pub fn run(trace: &Trace, place: Place<'_>, threads: usize) -> io::Result<Vec<Phase>> {
    run_observed(trace, place, threads, &mut |_| Ok(()))
}

/// [`run`], with an observer, which is called after each phase.
///
/// # Errors
/// As [`run`], and those of the observer.
pub fn run_observed(
    trace: &Trace,
    place: Place<'_>,
    threads: usize,
    observer: Observer<'_>,
) -> io::Result<Vec<Phase>> {
    assert!(threads >= 1, "a replay needs a thread");
    let mut tree = trace.tree_before();
    let target = target(place)?;
    let mut phases = Vec::new();
    let mut ended = |name, ops, begun: Duration| {
        let phase = Phase { name, ops, seconds: (stopwatch::now() - begun).as_secs_f64() };
        observer(&phase)?;
        phases.push(phase);
        Ok::<_, io::Error>(())
    };
    let begun = stopwatch::now();
    make(&*target, &tree)?;
    ended(HIERARCHY, tree.len() as u64, begun)?;
    let order = Order::of(trace);
    let begun = stopwatch::now();
    replay(trace, &order, place, threads)?;
    ended(REPLAY, trace.calls.len() as u64, begun)?;
    trace.calls.iter().for_each(|call| tree.apply(call));
    target.forget_dirs();
    let begun = stopwatch::now();
    remove(&*target, &tree)?;
    ended(REMOVAL, tree.len() as u64, begun)?;
    Ok(phases)
}

fn replay(trace: &Trace, order: &Order, place: Place<'_>, threads: usize) -> io::Result<()> {
    let schedule = &Schedule::new(order);
    std::thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(move || {
                let done = target(place).and_then(|target| work(trace, order, schedule, &*target));
                // The others must not wait for operations that this thread had begun.
                done.inspect_err(|_| schedule.stop())
            })
        };
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the replay panicked")))
        };
        threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
    })
}

fn target(place: Place<'_>) -> io::Result<Box<dyn Target>> {
    match place {
        Place::Directory { dir, .. } => Ok(Box::new(Posix::new(dir)?)),
        Place::Server { dir, connect } => Ok(Box::new(Library::new(connect()?, dir))),
    }
}

fn make(target: &dyn Target, tree: &Tree) -> io::Result<()> {
    let at = |path: &str, made: io::Result<()>| made.map_err(|e| failed(&e, path));
    // A parent sorts before its entries.
    for path in &tree.dirs {
        let (dir, name) = split(path);
        at(path, target.mkdir(dir, name))?;
    }
    let mut by_dir: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (dir, name) in tree.files.iter().map(|path| split(path)) {
        by_dir.entry(dir).or_default().push(name.to_owned());
    }
    by_dir.iter().try_for_each(|(dir, names)| at(dir, target.create_each(dir, names)))
}

fn remove(target: &dyn Target, tree: &Tree) -> io::Result<()> {
    for path in &tree.files {
        let (dir, name) = split(path);
        target.unlink(dir, name).map_err(|e| failed(&e, path))?;
    }
    tree.dirs.iter().rev().try_for_each(|path| {
        let (dir, name) = split(path);
        target.rmdir(dir, name).map_err(|e| failed(&e, path))
    })
}

fn failed(error: &io::Error, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Which operation waits for which.
struct Order {
    /// How many operations each waits for.
    waits: Vec<u32>,
    /// Which ones wait for each.
    followers: Vec<Vec<u32>>,
}

/// The state of a path at this point of the trace.
#[derive(Default)]
struct Touched {
    change: Option<u32>,
    uses: Vec<u32>,
}

impl Order {
    fn of(trace: &Trace) -> Order {
        let count = trace.calls.len();
        let mut order = Order { waits: vec![0; count], followers: vec![Vec::new(); count] };
        let mut touched: HashMap<&str, Touched> = HashMap::new();
        let mut before = Vec::new();
        for (number, call) in trace.calls.iter().enumerate() {
            let number = number as u32;
            before.clear();
            for (path, is_changed) in paths(call) {
                let touched = touched.entry(path).or_default();
                before.extend(touched.change);
                if is_changed {
                    before.append(&mut touched.uses);
                    touched.change = Some(number);
                } else {
                    touched.uses.push(number);
                }
            }
            before.sort_unstable();
            before.dedup();
            before.retain(|other| *other != number);
            order.waits[number as usize] = before.len() as u32;
            before.iter().for_each(|other| order.followers[*other as usize].push(number));
        }
        order
    }
}

/// The paths that an operation uses (false) and changes (true).
fn paths(call: &Call) -> impl Iterator<Item = (&str, bool)> {
    let is_change = !matches!(call.kind, Kind::Lookup | Kind::Stat | Kind::Open);
    let each = [&call.path, &call.to].into_iter().filter(|path| !path.is_empty());
    each.flat_map(move |path| {
        let above = path.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| (&path[..at], false));
        above.chain([(path.as_str(), is_change)])
    })
}

/// Operations that may begin, and those that wait.
struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
    /// Directories that were removed or renamed.
    moves: AtomicU64,
}

struct State {
    ready: std::collections::VecDeque<u32>,
    waits: Vec<u32>,
    left: usize,
}

impl Schedule {
    fn new(order: &Order) -> Schedule {
        let ready = (0..order.waits.len() as u32).filter(|number| order.waits[*number as usize] == 0);
        let state = State { ready: ready.collect(), waits: order.waits.clone(), left: order.waits.len() };
        Schedule { state: Mutex::new(state), changed: Condvar::new(), moves: AtomicU64::new(0) }
    }

    /// Marks an operation as ended, and waits for another one; `None` at the end.
    fn next(&self, ended: Option<u32>, order: &Order) -> Option<u32> {
        let mut state = self.state.lock();
        if let Some(ended) = ended {
            state.left = state.left.saturating_sub(1);
            let before = state.ready.len();
            for follower in &order.followers[ended as usize] {
                state.waits[*follower as usize] -= 1;
                if state.waits[*follower as usize] == 0 {
                    state.ready.push_back(*follower);
                }
            }
            // This thread takes one itself.
            if state.left == 0 || state.ready.len() > before + 1 {
                self.changed.notify_all();
            }
        }
        loop {
            if state.left == 0 {
                return None;
            }
            if let Some(next) = state.ready.pop_front() {
                return Some(next);
            }
            self.changed.wait(&mut state);
        }
    }

    fn stop(&self) {
        self.state.lock().left = 0;
        self.changed.notify_all();
    }
}

fn work(trace: &Trace, order: &Order, schedule: &Schedule, target: &dyn Target) -> io::Result<()> {
    let (mut ended, mut seen) = (None, 0);
    while let Some(number) = schedule.next(ended, order) {
        let call = &trace.calls[number as usize];
        let moves = schedule.moves.load(Ordering::Acquire);
        if moves != seen {
            target.forget_dirs();
            seen = moves;
        }
        perform(call, target).map_err(|e| failed(&e, call))?;
        if matches!(call.kind, Kind::Rmdir | Kind::RenameDir) {
            schedule.moves.fetch_add(1, Ordering::Release);
        }
        ended = Some(number);
    }
    Ok(())
}

fn perform(call: &Call, target: &dyn Target) -> io::Result<()> {
    let ((dir, name), (to_dir, to_name)) = (split(&call.path), split(&call.to));
    match call.kind {
        Kind::Lookup | Kind::Stat => target.stat(dir, name),
        Kind::Open => target.read(dir, name, 0),
        Kind::Unlink => target.unlink(dir, name),
        Kind::Create => target.create(dir, name, &[], false),
        Kind::Rename | Kind::RenameDir => target.rename(dir, name, to_dir, to_name),
        Kind::Mkdir => target.mkdir(dir, name),
        Kind::Rmdir => target.rmdir(dir, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(text: &str) -> Vec<u32> {
        Order::of(&Trace::parse(text).expect("a trace")).waits
    }

    #[test]
    fn calls_wait_for_what_they_depend_on() {
        for (text, expect) in [
            ("stat\ta\nstat\ta\nstat\tb\n", vec![0, 0, 0]),
            ("create\ta\nstat\ta\nopen\ta\nunlink\ta\n", vec![0, 1, 1, 3]),
            ("mkdir\td\ncreate\td/f\nunlink\td/f\nrmdir\td\n", vec![0, 1, 2, 3]),
            ("rename\ta\tb\nstat\tb\ncreate\ta\n", vec![0, 1, 1]),
            ("renamedir\td\te\nstat\te/x\nstat\ty/x\n", vec![0, 1, 0]),
        ] {
            assert_eq!(waits(text), expect, "{text}");
        }
    }

    #[test]
    fn threads_replay_a_trace_and_leave_nothing() {
        let scratch = tempfile::tempdir().expect("a directory");
        let trace = Trace::generate(3_000, 5);
        for threads in [1, 4] {
            let phases = run(&trace, Place::directory(scratch.path()), threads).expect("replayed");
            assert_eq!((phases[1].name, phases[1].ops), (REPLAY, 3_000));
            assert!(std::fs::read_dir(scratch.path()).expect("a directory").next().is_none());
        }
    }

    #[test]
    fn a_call_that_fails_ends_the_replay() {
        let scratch = tempfile::tempdir().expect("a directory");
        let trace = Trace::parse("create\ta\ncreate\ta\nstat\tb\n").expect("a trace");
        let error = run(&trace, Place::directory(scratch.path()), 3).expect_err("it exists").to_string();
        assert!(error.starts_with("create\ta: "), "{error}");
    }
}
