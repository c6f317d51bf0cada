//! Workers of all mounts in one directory, which the servers split over plates while they work (`huge: threshold`).
//!
//! ```text
//!   mkdir crowd/huge ─▶ all mounts work in it ─▶ all rest: names, counts, contents ─┬▶ it is renamed, and must be there in the end
//!          ▲                                                                        └▶ rm -rf, while other mounts make files in it
//!          └───────────────────────────── the next round ◀──────────────────────────────┘
//! ```
//!
//! Invariants:
//! - No name is used twice in a round, and a worker changes only names that it has claimed.
//! - So a listing must have each name that is certain before and after it, once, and none whose removal was answered before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Tool;
use crate::load::{Made, content};

/// The directory with the policy.
const TOP: &str = "crowd";
/// The directory that is split, below.
const HUGE: &str = "huge";
/// A directory beside it, which stays whole.
const BESIDE: &str = "beside";
/// Names from which on the servers split a directory.
const THRESHOLD: u64 = 128;
/// The size that an entry adds to a directory.
const ENTRY_BYTES: u64 = 32;
/// Files that each worker makes first, without fsync.
const GROWTH: usize = 100;
/// Operations of each worker after that.
const OPERATIONS: usize = 144;
/// Files that another mount makes while the directory is removed.
const LATE: usize = 60;
/// So often a removal may find new files.
const REMOVALS_MAX: usize = 100;
/// So often a command may find no server, and the time between.
const COMMANDS_MAX: usize = 60;
const COMMAND_PAUSE: Duration = Duration::from_millis(500);

/// State that the workers of all mounts share.
pub(crate) struct Crowd<'a> {
    chiton: &'a Tool,
    is_over: &'a AtomicBool,
    barrier: Barrier,
    is_last: AtomicBool,
    names: Mutex<Names>,
}

/// The names in the directory.
#[derive(Default)]
struct Names {
    /// These are there, and nobody is about to change them. With the content; `None`: a directory.
    certain: BTreeMap<String, Option<String>>,
    /// These were removed or renamed.
    gone: BTreeSet<String>,
}

struct Worker<'a> {
    crowd: &'a Crowd<'a>,
    /// The mount point that it works in.
    root: &'a Path,
    number: usize,
    round: usize,
    made: Made,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(mounts: usize, chiton: &'a Tool, is_over: &'a AtomicBool) -> Crowd<'a> {
        Crowd {
            chiton,
            is_over,
            barrier: Barrier::new(mounts),
            is_last: AtomicBool::new(false),
            names: Mutex::default(),
        }
    }

    /// Makes the directories of the crowd.
    pub(crate) fn prepare(&self, mount: &Path, made: &mut Made) {
        let top = mount.join(TOP);
        made.call("mkdir", &top, || fs::create_dir_all(top.join(BESIDE)));
        made.call("chiton policy set", &top, || {
            let mut policy = tempfile::NamedTempFile::new()?;
            writeln!(policy, "huge: threshold\nhuge_threshold: {THRESHOLD}")?;
            let (dir, file) = (top.to_string_lossy(), policy.path().to_string_lossy());
            self.chiton.run(&["policy", "set", &dir, &file]).map_err(std::io::Error::other)
        });
    }

    /// Works on a mount until it is over.
    pub(crate) fn work(&self, mount: &Path, number: usize) -> Made {
        let mut worker = Worker { crowd: self, root: mount, number, round: 0, made: Made::default() };
        loop {
            worker.round();
            if self.barrier.wait().is_leader() {
                self.is_last.store(self.is_over.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            self.barrier.wait();
            if self.is_last.load(Ordering::SeqCst) {
                return worker.made;
            }
            worker.round += 1;
        }
    }

    /// Runs a command of chiton. Unlike a mount it reports a server or a monitor that is gone; then it is run again.
    fn run(&self, words: &[&str]) -> std::io::Result<String> {
        let mut tries = 0..COMMANDS_MAX;
        loop {
            match self.chiton.run(words) {
                Err(why) if is_away(&why) && tries.next().is_some() => std::thread::sleep(COMMAND_PAUSE),
                said => return said.map_err(std::io::Error::other),
            }
        }
    }

    fn with_names<T>(&self, act: impl FnOnce(&mut Names) -> T) -> T {
        act(&mut self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_away(why: &str) -> bool {
    ["no server answers", "the monitor does not answer"].iter().any(|words| why.contains(words))
}

impl Worker<'_> {
    fn dir(&self) -> PathBuf {
        self.root.join(TOP).join(HUGE)
    }

    fn beside(&self) -> PathBuf {
        self.root.join(TOP).join(BESIDE)
    }

    /// The first worker does what is done once.
    fn is_first(&self) -> bool {
        self.number == 0
    }

    fn rest(&self) {
        self.crowd.barrier.wait();
    }

    fn complain(&mut self, what: String) {
        self.made.complaints.push(format!("round {} at {}: {what}", self.round, self.dir().display()));
    }

    fn round(&mut self) {
        let dir = self.dir();
        if self.is_first() {
            self.crowd.with_names(|names| *names = Names::default());
            self.made.call("mkdir", &dir, || fs::create_dir(&dir));
        }
        self.rest();
        for n in 0..GROWTH + OPERATIONS {
            // On a slow machine, too, one directory becomes large.
            let must_grow = self.round == 0 && n < GROWTH;
            if self.crowd.is_over.load(Ordering::SeqCst) && !must_grow {
                break;
            }
            if n < GROWTH { self.create(n, false) } else { self.operate(n) }
        }
        self.made.call("fsync of a directory", &dir, || File::open(&dir)?.sync_all());
        self.rest();
        self.compare();
        self.rest();
        if self.round.is_multiple_of(2) { self.keep() } else { self.remove() }
    }

    // ---- the work -----------------------------------------------------------------------------------

    fn operate(&mut self, n: usize) {
        match n % 12 {
            0 | 1 => self.create(n, true),
            2 | 3 => self.create(n, false),
            4 => self.rename_within(n),
            5 => self.rename_out(n),
            6 => self.rename_in(n),
            7 => self.link(n),
            8 => self.remove_one(),
            9 => self.make_dir(n),
            10 => self.replace(),
            _ => self.list(),
        }
    }

    /// A name that was not used before.
    fn fresh(&self, n: usize, what: &str) -> String {
        format!("{}-{}-{what}-{n}", self.round, self.number)
    }

    /// Takes a file for this worker alone, whoever has made it.
    fn claim(&mut self) -> Option<(String, String)> {
        self.crowd.with_names(|names| {
            let at = names.certain.len() / 2;
            let files = names.certain.iter().filter(|(_, content)| content.is_some());
            let name = files.map(|(name, _)| name).nth(at)?.clone();
            let content = names.certain.remove(&name)??;
            Some((name, content))
        })
    }

    fn is_certain(&self, name: String, content: Option<String>) {
        self.crowd.with_names(|names| names.certain.insert(name, content));
    }

    fn is_gone(&self, name: String) {
        self.crowd.with_names(|names| names.gone.insert(name));
    }

    fn write(&mut self, path: &Path, bytes: &str, is_synced: bool) -> bool {
        let written = self.made.call("write", path, || {
            let mut file = File::create_new(path)?;
            file.write_all(bytes.as_bytes())?;
            if is_synced { file.sync_all() } else { Ok(()) }
        });
        written.is_some()
    }

    fn create(&mut self, n: usize, is_synced: bool) {
        let name = self.fresh(n, "file");
        let bytes = content(&name, n % 20);
        if self.write(&self.dir().join(&name), &bytes, is_synced) {
            self.is_certain(name, Some(bytes));
        }
    }

    fn rename_within(&mut self, n: usize) {
        let Some((name, bytes)) = self.claim() else { return };
        let to = self.fresh(n, "renamed");
        let (from_path, to_path) = (self.dir().join(&name), self.dir().join(&to));
        if self.made.call("rename", &from_path, || fs::rename(&from_path, &to_path)).is_some() {
            self.is_gone(name);
            self.is_certain(to, Some(bytes));
        }
    }

    fn rename_out(&mut self, n: usize) {
        let Some((name, bytes)) = self.claim() else { return };
        let to = self.fresh(n, "out");
        let (from_path, to_path) = (self.dir().join(&name), self.beside().join(&to));
        if self.made.call("rename out", &from_path, || fs::rename(&from_path, &to_path)).is_some() {
            self.is_gone(name);
            self.made.kept.insert(Path::new(TOP).join(BESIDE).join(to), Some(bytes));
        }
    }

    fn rename_in(&mut self, n: usize) {
        let name = self.fresh(n, "in");
        let bytes = content(&name, n % 20);
        let (from_path, to_path) = (self.beside().join(&name), self.dir().join(&name));
        if self.write(&from_path, &bytes, true)
            && self.made.call("rename in", &from_path, || fs::rename(&from_path, &to_path)).is_some()
        {
            self.made.gone.push(Path::new(TOP).join(BESIDE).join(&name));
            self.is_certain(name, Some(bytes));
        }
    }

    /// A second name, in the directory or beside it; there the file stays when the directory is removed.
    fn link(&mut self, n: usize) {
        let Some((name, bytes)) = self.claim() else { return };
        let to = self.fresh(n, "link");
        let is_outside = n.is_multiple_of(2);
        let to_path = if is_outside { self.beside() } else { self.dir() }.join(&to);
        let path = self.dir().join(&name);
        if self.made.call("link", &path, || fs::hard_link(&path, &to_path)).is_none() {
            return;
        }
        match is_outside {
            true => drop(self.made.kept.insert(Path::new(TOP).join(BESIDE).join(to), Some(bytes.clone()))),
            false => self.is_certain(to, Some(bytes.clone())),
        }
        self.is_certain(name, Some(bytes));
    }

    fn remove_one(&mut self) {
        let Some((name, _)) = self.claim() else { return };
        let path = self.dir().join(&name);
        if self.made.call("remove", &path, || fs::remove_file(&path)).is_some() {
            self.is_gone(name);
        }
    }

    fn make_dir(&mut self, n: usize) {
        let name = self.fresh(n, "dir");
        let path = self.dir().join(&name);
        if self.made.call("mkdir", &path, || fs::create_dir(&path)).is_none() {
            return;
        }
        let inside = path.join("inside");
        if !self.write(&inside, &name, false) {
            return;
        }
        if n.is_multiple_of(2) {
            self.is_certain(name, None);
        } else if self.made.call("remove", &inside, || fs::remove_file(&inside)).is_some()
            && self.made.call("rmdir", &path, || fs::remove_dir(&path)).is_some()
        {
            self.is_gone(name);
        }
    }

    /// Renames one file over another.
    fn replace(&mut self) {
        let Some((name, bytes)) = self.claim() else { return };
        let Some((over, replaced)) = self.claim() else { return self.is_certain(name, Some(bytes)) };
        if bytes == replaced {
            // Two names of one file: rename leaves both.
            self.is_certain(over, Some(replaced));
            return self.is_certain(name, Some(bytes));
        }
        let (from_path, to_path) = (self.dir().join(&name), self.dir().join(&over));
        if self.made.call("rename over", &from_path, || fs::rename(&from_path, &to_path)).is_some() {
            self.is_gone(name);
            self.is_certain(over, Some(bytes));
        }
    }

    fn listed(&mut self) -> Option<BTreeSet<String>> {
        let dir = self.dir();
        let listed: Vec<String> = self.made.call("list", &dir, || {
            let name = |entry: std::io::Result<fs::DirEntry>| {
                entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
            };
            fs::read_dir(&dir)?.map(name).collect()
        })?;
        let mut once = BTreeSet::new();
        for name in listed {
            if let Some(twice) = once.replace(name) {
                self.complain(format!("a listing has {twice} twice"));
            }
        }
        Some(once)
    }

    /// Lists while all work.
    fn list(&mut self) {
        let (before, gone) = self
            .crowd
            .with_names(|names| (names.certain.keys().cloned().collect::<Vec<_>>(), names.gone.clone()));
        let Some(listed) = self.listed() else { return };
        let missing: Vec<String> = self.crowd.with_names(|names| {
            let is_missing = |name: &String| names.certain.contains_key(name) && !listed.contains(name);
            before.into_iter().filter(is_missing).collect()
        });
        for name in missing {
            self.complain(format!("a listing misses {name}"));
        }
        for name in listed.intersection(&gone) {
            self.complain(format!("a listing has {name}, which was removed before"));
        }
    }

    // ---- the end of a round -------------------------------------------------------------------------

    /// While all rest: names, counts and contents.
    fn compare(&mut self) {
        let dir = self.dir();
        let certain = self.crowd.with_names(|names| names.certain.clone());
        let Some(listed) = self.listed() else { return };
        // A call that failed is a complaint already.
        let is_right = listed.iter().eq(certain.keys());
        if !is_right && self.made.complaints.is_empty() {
            let wrong: Vec<&String> =
                listed.iter().filter(|name| !certain.contains_key(*name)).take(3).collect();
            let missing: Vec<&String> =
                certain.keys().filter(|name| !listed.contains(*name)).take(3).collect();
            let counts = (listed.len(), certain.len());
            self.complain(format!("names {counts:?}: has also {wrong:?}, misses {missing:?}"));
        }
        if let Some(attr) = self.made.call("stat", &dir, || fs::metadata(&dir)) {
            let dirs = certain.values().filter(|content| content.is_none()).count() as u64;
            let expected = (2 + dirs, certain.len() as u64 * ENTRY_BYTES);
            if is_right && (attr.nlink(), attr.size()) != expected {
                let found = (attr.nlink(), attr.size());
                self.complain(format!("links and size are {found:?}, should be {expected:?}"));
            }
        }
        for (name, bytes) in certain.iter().skip(self.number).step_by(2) {
            let Some(bytes) = bytes else { continue };
            let path = dir.join(name);
            if self.made.call("read", &path, || fs::read_to_string(&path)).is_some_and(|read| read != *bytes)
            {
                self.complain(format!("{name} has other content"));
            }
        }
        if self.is_first() && self.has_parts() {
            self.made.split += 1;
        }
    }

    fn has_parts(&mut self) -> bool {
        let dir = self.dir();
        let shown = self.made.call("chiton huge status", &dir, || {
            let said = self.crowd.run(&["huge", "status", "--json", &dir.to_string_lossy()])?;
            serde_json::from_str::<serde_json::Value>(&said).map_err(std::io::Error::other)
        });
        let parts = shown.and_then(|shown| shown["directories"][0]["parts"].as_array().map(Vec::len));
        parts.is_some_and(|parts| parts > 1)
    }

    /// Renames the directory; all of it must be there in the end.
    fn keep(&mut self) {
        let (dir, name) = (self.dir(), format!("kept-{}", self.round));
        let to = self.root.join(TOP).join(&name);
        if self.is_first() && self.made.call("rename of all", &dir, || fs::rename(&dir, &to)).is_some() {
            let below = Path::new(TOP).join(&name);
            let (certain, gone) = self.crowd.with_names(|names| (names.certain.clone(), names.gone.clone()));
            self.made.kept.extend(certain.into_iter().map(|(name, bytes)| (below.join(name), bytes)));
            self.made.gone.extend(gone.into_iter().map(|name| below.join(name)));
        }
        self.rest();
        self.is_absent();
        self.made.call("stat", &to, || fs::metadata(&to));
    }

    fn is_absent(&mut self) {
        let dir = self.dir();
        match fs::symlink_metadata(&dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            found => {
                self.complain(format!("it is gone, but stat answers {:?}", found.map(|attr| attr.ino())))
            }
        }
    }

    /// The first worker removes the directory with everything in it, while the others make files there until it is gone.
    fn remove(&mut self) {
        match self.is_first() {
            true => self.remove_all(),
            false => self.come_late(),
        }
        self.rest();
        self.is_absent();
        self.made.gone.push(Path::new(TOP).join(HUGE));
    }

    fn remove_all(&mut self) {
        let dir = self.dir();
        let by_chiton = self.round % 4 == 3;
        let mut last = String::new();
        for _ in 0..REMOVALS_MAX {
            let removed = self.made.call("rm -rf", &dir, || match by_chiton {
                true => Ok(self
                    .crowd
                    .run(&["rm", "-r", &dir.to_string_lossy()])
                    .map(drop)
                    .map_err(|e| e.to_string())),
                false => {
                    let out = Command::new("rm").arg("-rf").arg(&dir).output()?;
                    Ok(match out.status.success() {
                        true => Ok(()),
                        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
                    })
                }
            });
            match removed {
                Some(Ok(())) => return,
                // Another worker has made a file meanwhile.
                Some(Err(why)) if why.contains("not empty") => last = why,
                Some(Err(why)) => return self.complain(format!("it cannot be removed: {why}")),
                None => return,
            }
        }
        self.complain(format!("it is not removed in {REMOVALS_MAX} attempts: {last}"));
    }

    fn come_late(&mut self) {
        let dir = self.dir();
        for n in 0..LATE {
            let path = dir.join(self.fresh(n, "late"));
            let made = self.made.call("write while all is removed", &path, || {
                let made = File::create_new(&path)
                    .and_then(|mut file| file.write_all(b"late").and_then(|()| file.sync_all()));
                match made {
                    Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
                    made => made.map(|()| true),
                }
            });
            if made != Some(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
