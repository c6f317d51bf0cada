//! Objects as files of one directory, on a disk or on a file system that several machines share.
//!
//! ```text
//!   root/a/b/c            the object "a/b/c"
//!   root/+tmp/0/17        a temporary file of the process that holds the lock on +tmp/0  ('+' is in no key)
//!
//!   put            write temporary, rename over                    durable after sync
//!   put_if_absent  write temporary, fsync, link, fsync directory   durable on return
//! ```
//!
//! Invariants:
//! - A file outside `+tmp` is complete: it got its name by rename or link.
//! - A failed [`LocalObjects::sync`] stays failed: the kernel has forgotten which pages it lost, so a second try
//!   would succeed without having written them.

mod durable;
mod staging;
mod walk;

use std::fs::{self, File};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread};

use crate::key::{check_key, check_prefix};
use crate::{ObjectError, ObjectInfo, Objects};
use durable::Durable;
use staging::Staging;

/// Linux's default read-ahead in bytes.
const READ_AHEAD_BYTES: u64 = 128 << 10;

pub struct LocalObjects {
    root: PathBuf,
    staging: Staging,
    durable: Durable,
}

/// Sorts a system error by the caller's next step.
fn sort_error(key: &str, doing: &str, e: &io::Error) -> ObjectError {
    let (key, cause) = (key.to_owned(), format!("{doing}: {e}"));
    match Errno::from_io_error(e) {
        Some(Errno::NOENT) => ObjectError::NotFound { key },
        Some(Errno::NOSPC | Errno::DQUOT) => ObjectError::NoSpace { key },
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ObjectError::Denied { key, cause },
        Some(Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY) => ObjectError::BadKey {
            key,
            cause: "it, or a part of it, names both an object and a directory".to_owned(),
        },
        Some(
            Errno::INTR
            | Errno::AGAIN
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::STALE
            | Errno::TIMEDOUT,
        ) => ObjectError::Transient { key, cause },
        _ => ObjectError::Io { key, cause },
    }
}

/// For reading: a key that is a directory, or lies below an object, is simply not there.
fn sort_read_error(key: &str, doing: &str, e: &io::Error) -> ObjectError {
    match Errno::from_io_error(e) {
        Some(Errno::NOTDIR | Errno::ISDIR) => ObjectError::not_found(key),
        _ => sort_error(key, doing, e),
    }
}

impl LocalObjects {
    /// Opens the store in directory `root`, which is made if it is not there. Removes temporary files that dead
    /// processes have left.
    pub fn open(root: &Path) -> Result<LocalObjects, ObjectError> {
        let failed = |e: io::Error| sort_error("", &format!("open the object store {}", root.display()), &e);
        fs::create_dir_all(root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        let staging = Staging::open(&root).map_err(failed)?;
        let durable = Durable::open(&root).map_err(failed)?;
        Ok(LocalObjects { root, staging, durable })
    }

    fn path(&self, key: &str) -> Result<PathBuf, ObjectError> {
        check_key(key)?;
        Ok(self.root.join(key))
    }

    /// The open file of an object and its length.
    fn open_object(&self, key: &str) -> Result<(File, u64), ObjectError> {
        let failed = |e: io::Error| sort_read_error(key, "open", &e);
        let file = File::open(self.path(key)?).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.is_file() { Ok((file, meta.len())) } else { Err(ObjectError::not_found(key)) }
    }

    /// Runs `op` on the object's path; if its directory is missing, makes it and runs it once more.
    fn with_directory(&self, path: &Path, op: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        match op(path) {
            // A store that is gone is not begun anew.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.root.is_dir() => {
                fs::create_dir_all(path.parent().expect("a key lies below the root"))?;
                op(path)
            }
            result => result,
        }
    }
}

/// `bytes` from `offset` on, into memory that is not zeroed first.
fn read_part(key: &str, file: &File, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
    let failed = |e: io::Error| sort_read_error(key, "read", &e);
    let bytes = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut into = Vec::new();
    into.try_reserve_exact(bytes).map_err(|e| failed(io::Error::new(io::ErrorKind::OutOfMemory, e)))?;
    while into.len() < bytes {
        let at = range.start + into.len() as u64;
        // The capacity may exceed the requested length; the truncate below removes the surplus.
        match pread(file, spare_capacity(&mut into), at) {
            Ok(0) => return Err(ObjectError::corrupt(key, format!("ends at byte {at}"))),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(failed(e.into())),
        }
    }
    into.truncate(bytes);
    Ok(into)
}

impl Objects for LocalObjects {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        let (file, bytes) = self.open_object(key)?;
        let range = range.unwrap_or(0..bytes);
        if range.start > range.end || range.end > bytes {
            return Err(ObjectError::out_of_range(key, &range, bytes));
        }
        read_part(key, &file, range)
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        let (file, bytes) = self.open_object(key)?;
        let range = offset..offset.saturating_add(into.len() as u64);
        if range.end > bytes {
            return Err(ObjectError::out_of_range(key, &range, bytes));
        }
        file.read_exact_at(into, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => ObjectError::corrupt(key, "was cut while it was read"),
            _ => sort_read_error(key, "read", &e),
        })
    }

    fn will_need(&self, key: &str) -> bool {
        if let Ok((file, bytes)) = self.open_object(key) {
            // The kernel never reads ahead more than its default at a time, hence the steps. This is only a hint:
            // the read reports errors.
            let steps = (0..bytes).step_by(READ_AHEAD_BYTES as usize);
            let _ = steps
                .map(|at| fadvise(&file, at, NonZeroU64::new(READ_AHEAD_BYTES), Advice::WillNeed))
                .all(|r| r.is_ok());
        }
        true
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        let meta = fs::metadata(self.path(key)?).map_err(|e| sort_read_error(key, "stat", &e))?;
        if meta.is_file() { Ok(meta.len()) } else { Err(ObjectError::not_found(key)) }
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        let path = self.path(key)?;
        let temporary = self.staging.write(bytes).map_err(|e| sort_error(key, "write", &e))?;
        self.with_directory(&path, |path| fs::rename(&temporary.path, path))
            .map_err(|e| sort_error(key, "rename", &e))?;
        temporary.keep();
        self.durable.later(key);
        Ok(())
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let path = self.path(key)?;
        let temporary = self.staging.write(bytes).map_err(|e| sort_error(key, "write", &e))?;
        temporary.file.sync_all().map_err(|e| sort_error(key, "fsync", &e))?;
        let won = match self.with_directory(&path, |path| fs::hard_link(&temporary.path, path)) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // A caller that gets "exists" must be able to rely on the object, which may have been put lazily.
                match self.open_object(key) {
                    Ok((file, _)) => file.sync_all().map_err(|e| sort_error(key, "fsync", &e))?,
                    Err(ObjectError::NotFound { .. }) if path.is_dir() => {
                        return Err(sort_error(key, "link", &Errno::ISDIR.into()));
                    }
                    // Deleted since; it existed, and that is the answer.
                    Err(ObjectError::NotFound { .. }) => {}
                    Err(e) => return Err(e),
                }
                false
            }
            Err(e) => return Err(sort_error(key, "link", &e)),
        };
        self.durable.name_now(key).map_err(|e| sort_error(key, "fsync of the directory", &e))?;
        Ok(won)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        match fs::remove_file(self.path(key)?) {
            Ok(()) => self.durable.later(key),
            Err(e) => match sort_read_error(key, "unlink", &e) {
                ObjectError::NotFound { .. } => {}
                error => return Err(error),
            },
        }
        Ok(())
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        check_prefix(prefix)?;
        walk::list(&self.root, prefix, after.unwrap_or(""), max)
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.durable.all_now()
    }
}

#[cfg(test)]
mod tests;
