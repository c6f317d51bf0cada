//! The folder of a decoupling on this machine: its journal, and the records that the next process needs to resume
//! it.
//!
//! ```text
//!   STATE/<filesystem>-<realm>/
//!     realm.json     what was granted, and which numbers are used
//!     lock           held by the process that has it
//!     user.json      which that is, if it is a mount of a branch
//!     journal/       segments, as a server's
//! ```
//!
//! Invariants:
//! - `realm.json` is replaced whole, and durable before anything relies on it.
//! - One process at a time has it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_journal::{FilePlace, Place, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo};
use chiton_types::{Ino, RealmId, Refusal};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::RealmError;
use crate::options::Journals;

const VERSION: u32 = 1;
/// The file that records the grant.
const RECORD: &str = "realm.json";
/// The file that names the process that has the decoupling; valid while the lock is held.
const USER: &str = "user.json";

/// The content of `realm.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) filesystem: u64,
    pub(crate) realm: u32,
    pub(crate) root: u64,
    /// The branch's name, with invalid UTF-8 replaced; `None` for a decoupling that is no branch.
    pub(crate) branch: Option<String>,
    /// Of each shard the last inode number that was used when a merge began last.
    pub(crate) used: Vec<u64>,
    /// Whether the journal was begun. From then on it must exist.
    #[serde(default)]
    pub(crate) begun: bool,
}

impl Record {
    pub(crate) fn new(filesystem: u64, realm: RealmId, root: Ino, branch: Option<String>) -> Record {
        Record {
            version: VERSION,
            filesystem,
            realm: realm.0,
            root: root.0,
            branch,
            used: Vec::new(),
            begun: false,
        }
    }
}

/// A decoupling of which a process left something on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocalRealm {
    /// The decoupling's number.
    pub realm: u32,
    /// Inode of its root.
    pub root: u64,
    /// The name, if it is a branch.
    pub branch: Option<String>,
    /// Whether a process has it.
    pub in_use: bool,
    /// That process, if it recorded itself.
    pub user: Option<User>,
    /// The directory of the journal.
    pub dir: PathBuf,
    /// Bytes that the journal occupies.
    pub journal_bytes: u64,
}

/// The same, beside the server's knowledge of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftRealm {
    /// Its folder on this machine.
    #[serde(flatten)]
    pub local: LocalRealm,
    /// The branch that the server made of it, because an administrator ended it by force.
    pub ended_as: Option<String>,
    /// Whether the server still has it.
    pub exists: bool,
}

/// The process that has mounted a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The process's number.
    pub pid: u32,
    /// The directory at which the process has mounted the file system.
    pub mountpoint: PathBuf,
    /// The socket at which it is asked.
    pub control: PathBuf,
}

/// The folder of one decoupling in the state directory.
pub(crate) struct StateDir {
    dir: PathBuf,
    record: Record,
    /// The lock file; dropping it unlocks.
    _lock: File,
}

impl StateDir {
    /// Where the decoupling of this number has its directory.
    pub(crate) fn dir_of(state_dir: &Path, filesystem: u64, realm: RealmId) -> PathBuf {
        state_dir.join(format!("{filesystem:016x}-{realm}"))
    }

    /// Whether a decoupling has its directory here.
    pub(crate) fn is_at(dir: &Path) -> bool {
        dir.join(RECORD).exists()
    }

    /// Creates the folder and its record, and locks it.
    pub(crate) fn create(state_dir: &Path, record: Record) -> Result<StateDir, RealmError> {
        let dir = StateDir::dir_of(state_dir, record.filesystem, RealmId(record.realm));
        // Journals contain file content that other users may not be allowed to read.
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|e| failed(&dir, "cannot be made", &e))?;
        let lock = lock(&dir)?.ok_or_else(|| {
            RealmError::local(format!(
                "another process uses the journal in {}: end it, or ask its mount",
                dir.display()
            ))
        })?;
        let state_dir = StateDir { dir, record, _lock: lock };
        state_dir.write()?;
        Ok(state_dir)
    }

    /// Reads the state of a folder without keeping its lock.
    pub(crate) fn look(dir: &Path) -> Result<LocalRealm, RealmError> {
        let in_use = lock(dir)?.is_none();
        let Record { realm, root, branch, .. } = read(dir)?;
        let entries = fs::read_dir(dir.join("journal"));
        let sizes = entries.into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
        let journal_bytes = sizes.map(|meta| meta.len()).sum();
        let user = if in_use { StateDir::user(dir) } else { None };
        Ok(LocalRealm { realm, root, branch, in_use, user, dir: dir.to_owned(), journal_bytes })
    }

    /// Reads `realm.json` without a look at the lock.
    pub(crate) fn peek(dir: &Path) -> Result<Record, RealmError> {
        read(dir)
    }

    /// The process that recorded itself, if any.
    pub(crate) fn user(dir: &Path) -> Option<User> {
        serde_json::from_slice(&fs::read(dir.join(USER)).ok()?).ok()
    }

    /// Opens and locks an existing folder; `None` if another process has it.
    pub(crate) fn open(dir: &Path) -> Result<Option<StateDir>, RealmError> {
        let Some(lock) = lock(dir)? else { return Ok(None) };
        // The process that had it is dead, if there was one.
        let _ = fs::remove_file(dir.join(USER));
        Ok(Some(StateDir { dir: dir.to_owned(), record: read(dir)?, _lock: lock }))
    }

    /// The folders of this file system's decouplings, in the order of their numbers.
    pub(crate) fn all(state_dir: &Path, filesystem: u64) -> Result<Vec<PathBuf>, RealmError> {
        let prefix = format!("{filesystem:016x}-");
        let entries = match fs::read_dir(state_dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(state_dir, "cannot be listed", &e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| failed(state_dir, "cannot be listed", &e))?;
            let number =
                entry.file_name().to_str().and_then(|name| name.strip_prefix(&prefix)?.parse::<u32>().ok());
            // One without a record was never granted anything, or is gone but for its directory.
            if let Some(number) = number.filter(|_| StateDir::is_at(&entry.path())) {
                found.push((number, entry.path()));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// The place of the journal's segments.
    pub(crate) fn place(&self, elsewhere: Option<&Journals>) -> Result<Arc<dyn Place>, RealmError> {
        if let Some(journals) = elsewhere {
            return journals(&self.dir).map_err(RealmError::journal);
        }
        Ok(Arc::new(FilePlace::open(&self.dir.join("journal")).map_err(RealmError::journal)?))
    }

    /// Refuses if the journal was begun and none of its segments exists. Beginning it anew would silently lose its
    /// events.
    pub(crate) fn check_begun(&self, place: &dyn Place) -> Result<(), RealmError> {
        if !self.record.begun {
            return Ok(());
        }
        let has_header = |info: &SegmentInfo| {
            let head = place.read(info.number, SEGMENT_HEADER_BYTES as u64);
            head.is_ok_and(|head| SegmentHeader::decode(&head).is_ok())
        };
        if place.list().map_err(RealmError::journal)?.iter().any(has_header) {
            return Ok(());
        }
        Err(RealmError::new(
            Refusal::Io,
            format!(
                "the journal in {} is gone, or its beginning is damaged",
                self.dir.join("journal").display()
            ),
            "restore it from a backup; `chiton recouple --force` gives the directory back without the unmerged changes",
        ))
    }

    /// Records durably that the journal exists.
    pub(crate) fn note_begun(&mut self) -> Result<(), RealmError> {
        if self.record.begun {
            return Ok(());
        }
        self.record.begun = true;
        self.write()
    }

    /// Records the process that has the decoupling, for other processes.
    pub(crate) fn note_user(&self, user: &User) -> Result<(), RealmError> {
        let path = self.dir.join(USER);
        let new = self.dir.join("user.json.new");
        let written = serde_json::to_vec(user)
            .map_err(std::io::Error::from)
            .and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path));
        written.map_err(|e| failed(&path, "cannot be written", &e))
    }

    /// It is a branch of this name from now on.
    pub(crate) fn note_branch(&mut self, name: String) -> Result<(), RealmError> {
        self.record.branch = Some(name);
        self.write()
    }

    /// Remembers which numbers are used, durably.
    pub(crate) fn note_used(&mut self, used: &[Ino]) -> Result<(), RealmError> {
        self.record.used = used.iter().map(|ino| ino.0).collect();
        self.write()
    }

    fn write(&self) -> Result<(), RealmError> {
        let path = self.dir.join(RECORD);
        let write = || -> std::io::Result<()> {
            let new = self.dir.join("realm.json.new");
            let mut file = File::create(&new)?;
            file.write_all(serde_json::to_string_pretty(&self.record)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.dir)?.sync_all()?;
            if let Some(above) = self.dir.parent() {
                File::open(above)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|e| failed(&path, "cannot be written", &e))
    }

    /// The decoupling is over: nothing of it stays.
    pub(crate) fn remove(self) -> Result<(), RealmError> {
        // The record makes the folder a decoupling, so it goes first.
        let record = self.dir.join(RECORD);
        let removed = fs::remove_file(&record).and_then(|()| fs::remove_dir_all(&self.dir));
        removed.map_err(|e| failed(&self.dir, "cannot be removed", &e))
    }
}

fn read(dir: &Path) -> Result<Record, RealmError> {
    let path = dir.join(RECORD);
    let text = fs::read(&path).map_err(|e| failed(&path, "cannot be read", &e))?;
    let record: Record = serde_json::from_slice(&text).map_err(|e| {
        RealmError::local(format!(
            "{} is damaged: {e}; restore it from a backup, or end the decoupling (chiton recouple --force)",
            path.display()
        ))
    })?;
    if record.version != VERSION {
        let what =
            format!("{} has version {}, and this program knows {VERSION}", path.display(), record.version);
        return Err(RealmError::new(chiton_types::Refusal::Unsupported, what, "use a newer program"));
    }
    Ok(record)
}

fn lock(dir: &Path) -> Result<Option<File>, RealmError> {
    let path = dir.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| failed(&path, "cannot be opened", &e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(failed(&path, "cannot be locked", &e.into())),
    }
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> RealmError {
    RealmError::local(format!("{} {what}: {error}", path.display()))
}
