//! Temporary files, in the file system of the store so that they can be renamed into it.
//!
//! Invariants:
//! - Each open store has a directory `+tmp/N` and holds its lock (flock), so another process on the same store
//!   never takes its files for leftovers.
//! - Directories whose lock is free are leftovers, and are removed at open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock, fstat, stat};
use rustix::io::Errno;

/// Not a valid key.
const STAGING: &str = "+tmp";

pub(super) struct Staging {
    dir: PathBuf,
    next: AtomicU64,
    lock: File,
}

/// One of them; removed when dropped.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    pub(super) file: File,
    kept: bool,
}

impl Staging {
    pub(super) fn open(root: &Path) -> io::Result<Staging> {
        let all = root.join(STAGING);
        fs::create_dir_all(&all)?;
        for entry in fs::read_dir(&all)? {
            remove_if_left(&entry?.path())?;
        }
        for n in 0..u64::MAX {
            let dir = all.join(n.to_string());
            match fs::create_dir(&dir) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            }
            // Another process may take the new directory for a leftover before it is locked: then try the next.
            if let Some(lock) = try_lock(&dir)? {
                return Ok(Staging { dir, next: AtomicU64::new(0), lock });
            }
        }
        unreachable!("2^64 directories of temporary files")
    }

    /// Writes `bytes` to a new temporary file.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<Temporary> {
        let path = self.dir.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let mut temporary = Temporary { path, file, kept: false };
        temporary.file.write_all(bytes)?;
        Ok(temporary)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Files that cannot be removed are leftovers for the next open.
        let _ = fs::remove_dir_all(&self.dir);
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Temporary {
    /// Keeps the file, which has another name now.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The lock on a directory that is still there, or none if another has the lock or removed it.
fn try_lock(dir: &Path) -> io::Result<Option<File>> {
    let lock = match File::open(dir) {
        Ok(lock) => lock,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    match stat(dir) {
        Ok(there) if there.st_ino == fstat(&lock)?.st_ino => Ok(Some(lock)),
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn remove_if_left(dir: &Path) -> io::Result<()> {
    let Some(_lock) = try_lock(dir)? else { return Ok(()) };
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
