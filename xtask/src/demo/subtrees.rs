//! The same job side by side in subtrees with different policies, while a second client looks on, and `kill -9` of the mount that works.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{compare, content, say};
use crate::run::{Mounted, Result, captured};
use crate::serving::Serving;
use crate::stopwatch::Stopwatch;
use crate::tree;

const POLICIES: [&str; 3] = ["posix", "batchfs", "deltafs"];
/// Sources of the project that is built.
const SOURCES: u64 = 12;
/// Files that are written before the kill, of which the first half is promised by an fsync.
const WRITTEN: u64 = 200;
const PROMISED: u64 = 100;
/// The session time-out in seconds: shorter than usual, so that the demo is short.
const SESSION_SECONDS: &str = "10";

/// The outcome of the job in one subtree.
struct Outcome {
    policy: &'static str,
    /// Seconds of each step.
    unpack: f64,
    build: f64,
    remove: f64,
    /// Seconds; `None`: it is not merged, or needs not be.
    merge: Option<f64>,
    /// When the other client saw that it is done, in words.
    seen: String,
    /// The files after a kill, as text.
    left: String,
    /// Seconds from the kill until all of that was read.
    again: f64,
}

/// Runs this part of the demo; returns the table.
pub(super) fn show(programs: &Path, work: &Path, files: usize) -> Result<String> {
    fs::create_dir_all(work).map_err(|e| format!("cannot make {}: {e}", work.display()))?;
    say(
        "the same job in a posix, a batchfs and a deltafs subtree of one mount, while a second client looks on",
    );
    let (archive, sums) = tree::pack(work, files)?;
    let project = project(work)?;
    let server = Serving::start(programs, &["--session-time", SESSION_SECONDS], &work.join("data"))?;
    let mounted = |name: &str, state: &str| {
        Mounted::beside(programs, &server.socket, &work.join(state), &work.join(name))
    };
    let (near, far) = (mounted("near", "state")?, mounted("far", "far-state")?);
    let chiton = programs.join("chiton");
    let mut outcomes = Vec::new();
    for policy in POLICIES {
        let (here, there) = (near.dir().join(policy), far.dir().join(policy));
        fs::create_dir(&here).map_err(|e| format!("cannot make {}: {e}", here.display()))?;
        captured(Command::new(&chiton).args(["policy", "set"]).arg(&here).arg(policy))?;
        let job = Job { archive: &archive, project: &project, here: &here, there: &there, sums: &sums };
        outcomes.push(job.run(policy, &chiton)?);
    }
    for policy in POLICIES {
        write_numbered(&near.dir().join(policy).join("numbered"))?;
    }
    say("kill -9 of the mount that works, and mounting again");
    let clock = Stopwatch::start();
    near.kill()?;
    let near = mounted("near", "state")?;
    // The leases of a dead client in a strong subtree are free only when its session expires, so this one comes
    // last.
    for outcome in outcomes.iter_mut().rev() {
        let here = near.dir().join(outcome.policy);
        outcome.left = left(&here.join("numbered"))?;
        outcome.again = clock.seconds();
        if !here.join("DONE").exists() {
            return Err(format!("{}: the job that was done before the kill is not there", here.display()));
        }
    }
    // An invisible job's journal is merged on command.
    for policy in ["batchfs", "deltafs"] {
        captured(Command::new(&chiton).arg("merge").arg(near.dir().join(policy)))?;
        let done = far.dir().join(policy).join("DONE");
        if !done.exists() {
            return Err(format!("{} is not there after the merge", done.display()));
        }
    }
    near.unmount()?;
    far.unmount()?;
    Ok(table(&outcomes, sums.len()))
}

/// One job and where it runs.
struct Job<'a> {
    archive: &'a Path,
    project: &'a Path,
    /// The subtree in the mount that works, and in the one that looks on.
    here: &'a Path,
    there: &'a Path,
    sums: &'a BTreeMap<String, String>,
}

impl Job<'_> {
    fn run(&self, policy: &'static str, chiton: &Path) -> Result<Outcome> {
        let clock = Stopwatch::start();
        let is_over = AtomicBool::new(false);
        let (work, seen_at) = thread::scope(|scope| {
            let watcher = scope.spawn(|| self.watch(&clock, &is_over));
            let work = self.work(policy, chiton, &clock);
            is_over.store(true, Ordering::SeqCst);
            Ok::<_, String>((work?, watcher.join().map_err(|_| "the watcher panicked")?))
        })?;
        let (mut outcome, done_at) = work;
        outcome.seen = match seen_at {
            Some(at) if outcome.merge.is_some() => {
                format!("{:.2} s after its end, by the merge", at - done_at)
            }
            Some(at) => format!("{:.0} ms after its end", ((at - done_at) * 1000.0).max(0.0)),
            None => self.refused()?,
        };
        match (policy, seen_at) {
            ("deltafs", Some(_)) => return Err("others saw what is invisible".into()),
            ("deltafs", None) | (_, Some(_)) => {}
            (_, None) => return Err(format!("{}: DONE was never seen", self.there.display())),
        }
        // The others' view, or, if others see nothing, the job's own.
        let look = if seen_at.is_some() { self.there } else { self.here };
        compare(&look.join("tree"), &self.kept())?;
        Ok(outcome)
    }

    /// Unpacks, builds, removes, prints a line, and merges if the policy is weak. Returns also the time at which it
    /// was done.
    fn work(&self, policy: &'static str, chiton: &Path, clock: &Stopwatch) -> Result<(Outcome, f64)> {
        let (tree, project) = (self.here.join("tree"), self.here.join("project"));
        let begun = clock.seconds();
        for (archive, into) in [(self.archive, &tree), (self.project, &project)] {
            fs::create_dir(into).map_err(|e| format!("cannot make {}: {e}", into.display()))?;
            captured(Command::new("tar").arg("-C").arg(into).arg("-xf").arg(archive))?;
        }
        let unpacked = clock.seconds();
        captured(Command::new("make").args(["-s", "-j2", "-C"]).arg(&project))?;
        let said = captured(&mut Command::new(project.join("sum")))?;
        let expected = (0..SOURCES).sum::<u64>().to_string();
        if said.trim() != expected {
            return Err(format!("what was built says {said:?}, not {expected}"));
        }
        let built = clock.seconds();
        let removed = tree.join(removed(self.sums));
        fs::remove_dir_all(&removed).map_err(|e| format!("cannot remove {}: {e}", removed.display()))?;
        let done = self.here.join("DONE");
        File::create(&done).map_err(|e| format!("cannot make {}: {e}", done.display()))?;
        let done_at = clock.seconds();
        let mut merge = None;
        if policy == "batchfs" {
            captured(Command::new(chiton).arg("merge").arg(self.here))?;
            merge = Some(clock.seconds() - done_at);
        }
        let outcome = Outcome {
            policy,
            unpack: unpacked - begun,
            build: built - unpacked,
            remove: done_at - built,
            merge,
            seen: String::new(),
            left: String::new(),
            again: 0.0,
        };
        Ok((outcome, done_at))
    }

    /// When the other client sees DONE; none if it does not although the job is over and a second more has passed.
    fn watch(&self, clock: &Stopwatch, is_over: &AtomicBool) -> Option<f64> {
        let done = self.there.join("DONE");
        let mut over_at = None;
        loop {
            if done.exists() {
                return Some(clock.seconds());
            }
            if is_over.load(Ordering::SeqCst) {
                let over_at = *over_at.get_or_insert_with(|| clock.seconds());
                if clock.seconds() - over_at > 1.0 {
                    return None;
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// A text that says how other clients are refused.
    fn refused(&self) -> Result<String> {
        match fs::read_dir(self.there) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy => Ok("not (EBUSY) until a client merges".into()),
            Err(e) => Err(format!("{}: {e}, not EBUSY", self.there.display())),
            Ok(_) => Ok("not until a client merges".into()),
        }
    }

    /// The remaining tree.
    fn kept(&self) -> BTreeMap<String, String> {
        let gone = format!("{}/", removed(self.sums));
        self.sums
            .iter()
            .filter(|(path, _)| !path.starts_with(&gone))
            .map(|(p, s)| (p.clone(), s.clone()))
            .collect()
    }
}

/// The folder of the tree that is removed: its first.
fn removed(sums: &BTreeMap<String, String>) -> &str {
    sums.keys().next().and_then(|path| path.split('/').next()).unwrap_or_default()
}

/// A C program of many small sources, packed.
fn project(work: &Path) -> Result<PathBuf> {
    let dir = work.join("project");
    let write = |name: &str, text: &str| {
        fs::write(dir.join(name), text).map_err(|e| format!("cannot write {name}: {e}"))
    };
    fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    let (mut declared, mut called, mut objects) = (String::new(), String::new(), String::new());
    for n in 0..SOURCES {
        write(&format!("part{n}.c"), &format!("int part{n}(void) {{ return {n}; }}\n"))?;
        let _ = writeln!(declared, "int part{n}(void);");
        let _ = write!(called, " + part{n}()");
        let _ = write!(objects, " part{n}.o");
    }
    let main = format!(
        "#include <stdio.h>\n{declared}int main(void) {{ printf(\"%d\\n\", 0{called}); return 0; }}\n"
    );
    write("main.c", &main)?;
    write("Makefile", &format!("sum: main.o{objects}\n\tcc -o $@ $^\n%.o: %.c\n\tcc -c -o $@ $<\n"))?;
    let archive = work.join("project.tar");
    captured(Command::new("tar").arg("-C").arg(&dir).arg("-cf").arg(&archive).arg("."))?;
    Ok(archive)
}

/// Numbered files, the first half of them promised by an fsync of the last of these.
fn write_numbered(dir: &Path) -> Result<()> {
    let write = || {
        fs::create_dir(dir)?;
        for n in 0..WRITTEN {
            let mut file = File::create_new(dir.join(n.to_string()))?;
            file.write_all(&content(n))?;
            if n + 1 == PROMISED {
                file.sync_all()?;
                File::open(dir)?.sync_all()?;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    write().map_err(|e| format!("cannot write in {}: {e}", dir.display()))
}

/// The number of numbered files that exist and are whole, which must include the promised ones.
fn left(dir: &Path) -> Result<String> {
    let whole = |n: &u64| fs::read(dir.join(n.to_string())).is_ok_and(|found| found == content(*n));
    if let Some(lost) = (0..PROMISED).find(|n| !whole(n)) {
        return Err(format!("{}/{lost} was promised by an fsync and is lost", dir.display()));
    }
    let there = (0..WRITTEN).filter(whole).count();
    Ok(format!("{there} of {WRITTEN} files, {PROMISED} promised"))
}

fn table(outcomes: &[Outcome], files: usize) -> String {
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut row = |what: String, cell: fn(&Outcome) -> String| {
        rows.push([what, cell(&outcomes[0]), cell(&outcomes[1]), cell(&outcomes[2])]);
    };
    row(format!("one mount, {files} files"), |o| o.policy.to_string());
    row("unpack (tar xf)".into(), |o| format!("{:.2} s", o.unpack));
    row("build (make)".into(), |o| format!("{:.2} s", o.build));
    row("remove a part (rm -r)".into(), |o| format!("{:.3} s", o.remove));
    row("merge".into(), |o| o.merge.map_or("-".into(), |seconds| format!("{seconds:.3} s")));
    row("all".into(), |o| format!("{:.2} s", o.unpack + o.build + o.remove + o.merge.unwrap_or(0.0)));
    row("the other client sees it".into(), |o| o.seen.clone());
    row("kill -9 of the mount left".into(), |o| o.left.clone());
    row("which a new mount had after".into(), |o| format!("{:.1} s", o.again));
    let widths: Vec<usize> =
        (0..4).map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push('\n');
        text.push_str(cells.join("   ").trim_end());
    }
    text
}
