//! What a decoupling leaves on this machine: its journal, and what the next process needs to go on with it.
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
/// The file that says what was granted.
const RECORD: &str = "realm.json";
/// The file that says who has it; true as long as the lock is held.
const USER: &str = "user.json";

/// What `realm.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) filesystem: u64,
    pub(crate) realm: u32,
    pub(crate) root: u64,
    /// Name of the branch, if it is one: bytes as text, as well as they can be.
    pub(crate) branch: Option<String>,
    /// Of each shard the last inode number that was used when a merge began last.
    pub(crate) used: Vec<u64>,
    /// Its journal was begun: it is there from then on.
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
    /// Its number.
    pub realm: u32,
    /// Inode of its root.
    pub root: u64,
    /// The name, if it is a branch.
    pub branch: Option<String>,
    /// A process has it.
    pub in_use: bool,
    /// Which: what it has noted of itself.
    pub user: Option<User>,
    /// Where it is.
    pub dir: PathBuf,
    /// Bytes of its journal.
    pub journal_bytes: u64,
}

/// The process that works in a decoupling through a mount of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its number.
    pub pid: u32,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// The socket at which it is asked.
    pub control: PathBuf,
}

/// The directory of one decoupling.
pub(crate) struct StateDir {
    dir: PathBuf,
    record: Record,
    /// Unlocked when it is dropped.
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

    /// Makes a new one.
    pub(crate) fn create(state_dir: &Path, record: Record) -> Result<StateDir, RealmError> {
        let dir = StateDir::dir_of(state_dir, record.filesystem, RealmId(record.realm));
        // Journals hold what is in files that others may not read.
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

    /// What is there, without taking it.
    pub(crate) fn look(dir: &Path) -> Result<LocalRealm, RealmError> {
        let in_use = lock(dir)?.is_none();
        let Record { realm, root, branch, .. } = read(dir)?;
        let entries = fs::read_dir(dir.join("journal"));
        let sizes = entries.into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
        let journal_bytes = sizes.map(|meta| meta.len()).sum();
        let user = if in_use { StateDir::user(dir) } else { None };
        Ok(LocalRealm { realm, root, branch, in_use, user, dir: dir.to_owned(), journal_bytes })
    }

    /// What `realm.json` says, without a look at who has it.
    pub(crate) fn peek(dir: &Path) -> Result<Record, RealmError> {
        read(dir)
    }

    /// Who has noted that they have it.
    pub(crate) fn user(dir: &Path) -> Option<User> {
        serde_json::from_slice(&fs::read(dir.join(USER)).ok()?).ok()
    }

    /// Opens one that is there; `None` if another process has it.
    pub(crate) fn open(dir: &Path) -> Result<Option<StateDir>, RealmError> {
        let Some(lock) = lock(dir)? else { return Ok(None) };
        // Whoever had it is gone. There may have been nobody.
        let _ = fs::remove_file(dir.join(USER));
        Ok(Some(StateDir { dir: dir.to_owned(), record: read(dir)?, _lock: lock }))
    }

    /// All that are there, of this file system.
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

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Where the journal's segments are.
    pub(crate) fn place(&self, elsewhere: Option<&Journals>) -> Result<Arc<dyn Place>, RealmError> {
        if let Some(journals) = elsewhere {
            return journals(&self.dir).map_err(RealmError::journal);
        }
        Ok(Arc::new(FilePlace::open(&self.dir.join("journal")).map_err(RealmError::journal)?))
    }

    /// Refuses if the journal was begun and no segment of it is there: to begin it anew would be to lose it silently.
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
            "bring it back from a backup; `chiton recouple --force` gives the directory back without the unmerged changes",
        ))
    }

    /// Remembers that the journal is there, durably.
    pub(crate) fn note_begun(&mut self) -> Result<(), RealmError> {
        if self.record.begun {
            return Ok(());
        }
        self.record.begun = true;
        self.write()
    }

    /// Notes who has it, for those who look meanwhile.
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
        // First what makes it one.
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
