//! Programs that use the mounts, and a record of the files that must be there in the end.
//!
//! They run in a process of their own: a process that has files of the mounts open flushes them whenever it starts another program, and so
//! could not start an etcd again while the mounts wait for that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::cluster::Tool;
use crate::crowd::Crowd;
use crate::faults::Fault;

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Workers on each mount that make files.
const WORKERS: usize = 2;
/// Directories of a worker.
const DIRS: usize = 40;
/// Files of a tree that tar unpacks.
const TAR_FILES: usize = 200;
/// Files that a decoupled job makes.
const JOB_FILES: usize = 60;
/// The file whose number the workers of all mounts raise under a lock.
const COUNTER: &str = "counter";

/// The record of a worker: its files, its calls, and the calls that failed.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Made {
    /// The path below a mount, and the content; `None`: a directory.
    pub(crate) kept: BTreeMap<PathBuf, Option<String>>,
    /// Paths that were removed or renamed, and must be absent.
    pub(crate) gone: Vec<PathBuf>,
    /// Calls that failed, in words. None may fail.
    pub(crate) complaints: Vec<String>,
    pub(crate) calls: Vec<Call>,
    /// How often the number in [`COUNTER`] was raised.
    raised: u64,
    /// Directories of the crowd that were split.
    pub(crate) split: usize,
}

/// A call of a program.
#[derive(Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) what: String,
    /// Time since the load began.
    pub(crate) began: Duration,
    pub(crate) took: Duration,
}

impl Made {
    fn add(&mut self, other: Made) {
        self.kept.extend(other.kept);
        self.gone.extend(other.gone);
        self.complaints.extend(other.complaints);
        self.calls.extend(other.calls);
        self.raised += other.raised;
        self.split += other.split;
    }

    /// Makes a call, and takes its time. None if it failed, which is a complaint: servers that die make programs wait, no more.
    pub(crate) fn call<T>(
        &mut self,
        what: &'static str,
        path: &Path,
        call: impl FnOnce() -> std::io::Result<T>,
    ) -> Option<T> {
        let began = Instant::now();
        let result = call();
        let took = began.elapsed();
        self.calls.push(Call { what: what.to_owned(), began: began.duration_since(*BEGAN), took });
        result.map_err(|e| self.complaints.push(format!("{what} {}: {e}", path.display()))).ok()
    }

    /// The longest wait of a call that was under way during the fault.
    pub(crate) fn longest_wait(&self, fault: &Fault) -> Duration {
        let during = |call: &&Call| call.began <= fault.ended && call.began + call.took >= fault.began;
        self.calls.iter().filter(during).map(|call| call.took).max().unwrap_or_default()
    }

    /// The differences between the record and a mount, in words.
    pub(crate) fn compare(&self, mount: &Path) -> Vec<String> {
        let mut wrong = Vec::new();
        for (path, content) in &self.kept {
            let full = mount.join(path);
            match content {
                None if full.is_dir() => {}
                None => wrong.push(format!("{} is no directory", full.display())),
                Some(content) => match fs::read(&full) {
                    Ok(found) if found == content.as_bytes() => {}
                    Ok(found) => wrong.push(format!("{} has {} other bytes", full.display(), found.len())),
                    Err(e) => wrong.push(format!("{}: {e}", full.display())),
                },
            }
        }
        match number_in(&mount.join(COUNTER)) {
            Ok(found) if found == self.raised => {}
            found => {
                wrong.push(format!("{COUNTER} was raised {} times under a lock: {found:?}", self.raised))
            }
        }
        for path in &self.gone {
            if mount.join(path).exists() {
                wrong.push(format!("{} was removed and is there", mount.join(path).display()));
            }
        }
        wrong
    }
}

/// The load in a process of its own.
pub(crate) struct Load(Child);

impl Load {
    pub(crate) fn start(chiton: &Tool, mounts: &[PathBuf]) -> Result<Load> {
        let program = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
        let mut command = chiton.command_of(&program);
        command.arg("--chiton").arg(chiton.program());
        for mount in mounts {
            command.arg("--load-of").arg(mount);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        child.map(Load).map_err(|e| format!("the load cannot start: {e}"))
    }

    /// Ends it; its record.
    pub(crate) fn end(mut self) -> Result<Made> {
        drop(self.0.stdin.take());
        let out = self.0.wait_with_output().map_err(|e| format!("the load: {e}"))?;
        serde_json::from_slice(&out.stdout).map_err(|e| format!("the load ended with {}: {e}", out.status))
    }
}

/// In the process of the load: works on all mounts until standard input ends, and prints the record.
pub(crate) fn work(mounts: &[PathBuf], chiton: &Tool) -> Result<()> {
    LazyLock::force(&BEGAN);
    let is_over = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let made = scope.spawn(|| run(mounts, chiton, &is_over));
        // Closed, or unreadable: the trial ends.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        is_over.store(true, Ordering::SeqCst);
        made.join()
    });
    let made = made.map_err(|_| "a worker panicked".to_owned())?;
    serde_json::to_writer(std::io::stdout(), &made).map_err(|e| format!("the record: {e}"))
}

/// Works on all mounts until it is over.
fn run(mounts: &[PathBuf], chiton: &Tool, is_over: &AtomicBool) -> Made {
    let mut made = Made::default();
    if let Some(mount) = mounts.first() {
        let path = mount.join(COUNTER);
        made.call("write", &path, || fs::write(&path, "0"));
    }
    let crowd = &Crowd::new(mounts.len(), chiton, is_over);
    if let Some(mount) = mounts.first() {
        crowd.prepare(mount, &mut made);
    }
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, mount) in mounts.iter().enumerate() {
            for worker in 0..WORKERS {
                let name = format!("worker-{number}-{worker}");
                workers.push(scope.spawn(move || files(mount, &name, is_over)));
            }
            workers.push(scope.spawn(move || jobs(mount, &format!("jobs-{number}"), chiton, is_over)));
            workers.push(scope.spawn(move || appends(mount, &format!("log-{number}"), is_over)));
            workers.push(scope.spawn(move || raises(mount, is_over)));
            workers.push(scope.spawn(move || crowd.work(mount, number)));
        }
        if let Some(mount) = mounts.first() {
            workers.push(scope.spawn(move || archives(mount, is_over)));
        }
        for worker in workers {
            match worker.join() {
                Ok(one) => made.add(one),
                Err(_) => made.complaints.push("a worker panicked".to_owned()),
            }
        }
        made
    })
}

pub(crate) fn content(name: &str, n: usize) -> String {
    format!("{name} {n}\n").repeat(1 + n % 300)
}

/// Makes, renames, replaces and removes files in directories of all plates; each with fsync.
fn files(mount: &Path, name: &str, is_over: &AtomicBool) -> Made {
    let mut made = Made::default();
    for n in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let dir = PathBuf::from(name).join((n % DIRS).to_string());
        if n < DIRS {
            let full = mount.join(&dir);
            if made.call("mkdir", &full, || fs::create_dir_all(&full)).is_none() {
                continue;
            }
            made.kept.insert(dir.clone(), None);
        }
        let path = dir.join(format!("file-{n}"));
        let full = mount.join(&path);
        let bytes = content(name, n);
        let written = made.call("write", &full, || {
            let mut file = File::create(&full)?;
            file.write_all(bytes.as_bytes())?;
            file.sync_all()
        });
        if written.is_none() {
            continue;
        }
        match n % 5 {
            0 => {
                let to = dir.join(format!("renamed-{n}"));
                let full_to = mount.join(&to);
                if made.call("rename", &full, || fs::rename(&full, &full_to)).is_some() {
                    made.gone.push(path);
                    made.kept.insert(to, Some(bytes));
                }
            }
            1 => {
                if made.call("remove", &full, || fs::remove_file(&full)).is_some() {
                    made.gone.push(path);
                }
            }
            _ => drop(made.kept.insert(path, Some(bytes))),
        }
        if n % 7 == 0 {
            // A directory that another plate may have, made and removed.
            let below = mount.join(&dir).join("below");
            made.call("mkdir", &below, || fs::create_dir(&below));
            made.call("rmdir", &below, || fs::remove_dir(&below));
        }
    }
    // Names that were changed since the last fsync become durable here.
    let full = mount.join(name);
    for n in 0..DIRS {
        let dir = full.join(n.to_string());
        if dir.exists() {
            made.call("fsync", &dir, || File::open(&dir)?.sync_all());
        }
    }
    made
}

/// Unpacks archives with tar, and compares.
fn archives(mount: &Path, is_over: &AtomicBool) -> Made {
    let mut made = Made::default();
    let source = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(e) => {
            made.complaints.push(format!("a directory: {e}"));
            return made;
        }
    };
    let tree = source.path().join("tree");
    for n in 0..TAR_FILES {
        let dir = tree.join((n % 20).to_string()).join("below");
        let write = || {
            fs::create_dir_all(&dir)?;
            fs::write(dir.join(n.to_string()), content("tar", n))
        };
        made.call("write", &dir, write);
    }
    let archive = source.path().join("tree.tar");
    match Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".").output() {
        Ok(out) if out.status.success() => {}
        other => {
            made.complaints.push(format!("tar -c: {other:?}"));
            return made;
        }
    }
    for n in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let dir = PathBuf::from(format!("tar-{n}"));
        let full = mount.join(&dir);
        made.call("mkdir", &full, || fs::create_dir(&full));
        match Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&full).output() {
            Ok(out) if out.status.success() => {}
            other => made.complaints.push(format!("tar -x in {}: {other:?}", full.display())),
        }
        for n in 0..TAR_FILES {
            let path = dir.join((n % 20).to_string()).join("below").join(n.to_string());
            made.kept.insert(path, Some(content("tar", n)));
        }
    }
    made
}

/// Runs jobs in decoupled directories, one after the other; each is merged when it ends.
fn jobs(mount: &Path, name: &str, chiton: &Tool, is_over: &AtomicBool) -> Made {
    let mut made = Made::default();
    for n in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let dir = PathBuf::from(format!("{name}-{n}"));
        let full = mount.join(&dir);
        if made.call("mkdir", &full, || fs::create_dir(&full)).is_none() {
            continue;
        }
        let script = format!(
            "set -e; cd '{}'; mkdir sub; for i in $(seq {JOB_FILES}); do echo \"{name} $i\" > sub/$i; done; mv sub/1 first; rm sub/2",
            full.display()
        );
        let path = full.to_string_lossy();
        let ran = made.call("chiton run", &full, || {
            let words = ["run", "--policy", "batchfs", "--path", &path, "--", "sh", "-c", &script];
            chiton.run(&words).map_err(std::io::Error::other)
        });
        if ran.is_none() {
            continue;
        }
        made.kept.insert(dir.join("sub"), None);
        made.gone.extend([dir.join("sub/1"), dir.join("sub/2")]);
        for i in 1..=JOB_FILES {
            let path = match i {
                1 => dir.join("first"),
                2 => continue,
                _ => dir.join("sub").join(i.to_string()),
            };
            made.kept.insert(path, Some(format!("{name} {i}\n")));
        }
    }
    made
}

/// Appends to one file, which stays open the whole time.
fn appends(mount: &Path, name: &str, is_over: &AtomicBool) -> Made {
    let mut made = Made::default();
    let path = mount.join(name);
    let opened = made.call("open", &path, || File::options().create(true).append(true).open(&path));
    let Some(mut file) = opened else { return made };
    let mut written = String::new();
    for n in 0.. {
        let is_last = is_over.load(Ordering::SeqCst);
        let line = format!("line {n}\n");
        if made.call("append", &path, || file.write_all(line.as_bytes())).is_some() {
            written.push_str(&line);
        }
        if is_last || n % 10 == 0 {
            made.call("fsync", &path, || file.sync_all());
        }
        if is_last {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    made.kept.insert(PathBuf::from(name), Some(written));
    made
}

fn number_in(path: &Path) -> std::io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(std::io::Error::other)
}

/// Raises the number in the file that all mounts share, under a lock.
fn raises(mount: &Path, is_over: &AtomicBool) -> Made {
    let mut made = Made::default();
    let path = mount.join(COUNTER);
    while !is_over.load(Ordering::SeqCst) {
        let raised = made.call("raise under a lock", &path, || {
            let mut file = File::options().read(true).write(true).open(&path)?;
            file.lock()?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let number: u64 = text.trim().parse().map_err(std::io::Error::other)?;
            file.rewind()?;
            file.write_all((number + 1).to_string().as_bytes())?;
            file.sync_all()?;
            file.unlock()
        });
        made.raised += u64::from(raised.is_some());
        std::thread::sleep(Duration::from_millis(20));
    }
    made
}
