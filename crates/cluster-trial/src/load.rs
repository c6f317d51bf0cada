//! Programs that use the mounts, and a record of the files that must be there in the end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::faults::Fault;

/// Workers on each mount that make files.
const WORKERS: usize = 2;
/// Directories of a worker.
const DIRS: usize = 40;
/// Files of a tree that tar unpacks.
const TAR_FILES: usize = 200;

/// The record of a worker: its files, its calls, and the calls that failed.
#[derive(Default)]
pub(crate) struct Made {
    /// The path below a mount, and the content; `None`: a directory.
    pub(crate) kept: BTreeMap<PathBuf, Option<Vec<u8>>>,
    /// Paths that were removed or renamed, and must be absent.
    gone: Vec<PathBuf>,
    /// Calls that failed, in words. None may fail.
    pub(crate) complaints: Vec<String>,
    pub(crate) calls: Vec<Call>,
}

/// A call of a program.
pub(crate) struct Call {
    pub(crate) what: &'static str,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
}

impl Made {
    fn add(&mut self, other: Made) {
        self.kept.extend(other.kept);
        self.gone.extend(other.gone);
        self.complaints.extend(other.complaints);
        self.calls.extend(other.calls);
    }

    /// Makes a call, and takes its time. None if it failed, which is a complaint: servers that die make programs wait, no more.
    fn call<T>(
        &mut self,
        what: &'static str,
        path: &Path,
        call: impl FnOnce() -> std::io::Result<T>,
    ) -> Option<T> {
        let began = Instant::now();
        let result = call();
        self.calls.push(Call { what, began, took: began.elapsed() });
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
                    Ok(found) if found == *content => {}
                    Ok(found) => wrong.push(format!("{} has {} other bytes", full.display(), found.len())),
                    Err(e) => wrong.push(format!("{}: {e}", full.display())),
                },
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

/// Works on all mounts until it is over.
pub(crate) fn run(mounts: &[PathBuf], is_over: &AtomicBool) -> Made {
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, mount) in mounts.iter().enumerate() {
            for worker in 0..WORKERS {
                let name = format!("worker-{number}-{worker}");
                workers.push(scope.spawn(move || files(mount, &name, is_over)));
            }
        }
        if let Some(mount) = mounts.first() {
            workers.push(scope.spawn(move || archives(mount, is_over)));
        }
        let mut made = Made::default();
        for worker in workers {
            match worker.join() {
                Ok(one) => made.add(one),
                Err(_) => made.complaints.push("a worker panicked".to_owned()),
            }
        }
        made
    })
}

fn content(name: &str, n: usize) -> Vec<u8> {
    format!("{name} {n}\n").repeat(1 + n % 300).into_bytes()
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
            file.write_all(&bytes)?;
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
