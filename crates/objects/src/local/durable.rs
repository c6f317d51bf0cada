//! Tracks changes that are not yet durable, and makes them durable.
//!
//! Invariants:
//! - A name is durable once its directory is synced, and that one's name in turn, up to the root.
//! - Few changes are synced file by file, many by one syncfs(2), so the list of changes stays short.
//! - A caller of [`Durable::all_now`] waits for a running one, which may have taken the caller's changes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::sort_error;
use crate::ObjectError;

/// From this many changed objects on, one syncfs is cheaper than fsync of each (each is a commit of the disk's own
/// journal).
const SYNC_EACH_MAX: usize = 8;
/// The memory of directories known to be durable is emptied past this many.
const KNOWN_DIRS_MAX: usize = 10_000;

#[derive(Default)]
struct Pending {
    keys: BTreeSet<String>,
    /// Whether there are more than fit in `keys`.
    many: bool,
}

/// The durability of one store.
pub(super) struct Durable {
    root: PathBuf,
    root_file: File,
    pending: Mutex<Pending>,
    /// Held while syncing; the cause of the first failure.
    failed: Mutex<Option<ObjectError>>,
    /// Directories whose own names are durable.
    known_dirs: Mutex<BTreeSet<PathBuf>>,
}

impl Durable {
    pub(super) fn open(root: &Path) -> io::Result<Durable> {
        if let Some(parent) = root.parent() {
            // The root may be new. A process that may not open its parent did not create it.
            let _ = File::open(parent).and_then(|dir| dir.sync_all());
        }
        Ok(Durable {
            root: root.to_owned(),
            root_file: File::open(root)?,
            pending: Mutex::default(),
            failed: Mutex::default(),
            known_dirs: Mutex::default(),
        })
    }

    /// The object of this key was changed and may be synced later.
    pub(super) fn later(&self, key: &str) {
        let mut pending = self.pending.lock();
        if !pending.many {
            pending.keys.insert(key.to_owned());
            pending.many = pending.keys.len() > SYNC_EACH_MAX;
        }
        if pending.many {
            pending.keys.clear();
        }
    }

    /// Makes the name (not the content) of an object durable.
    pub(super) fn name_now(&self, key: &str) -> io::Result<()> {
        let path = self.root.join(key);
        let mut dir = path.parent().expect("a key lies below the root");
        File::open(dir)?.sync_all()?;
        let mut fresh = Vec::new();
        while dir != self.root && !self.known_dirs.lock().contains(dir) {
            fresh.push(dir.to_owned());
            dir = dir.parent().expect("below the root");
            File::open(dir)?.sync_all()?;
        }
        // Only now: a directory is known when the names of all above it are durable too.
        let mut known = self.known_dirs.lock();
        if known.len() > KNOWN_DIRS_MAX {
            known.clear();
        }
        known.extend(fresh);
        Ok(())
    }

    /// Makes every change so far durable.
    pub(super) fn all_now(&self) -> Result<(), ObjectError> {
        let mut failed = self.failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let pending = std::mem::take(&mut *self.pending.lock());
        let result = match pending.many {
            true => rustix::fs::syncfs(&self.root_file).map_err(|e| sort_error("", "syncfs", &e.into())),
            false => pending
                .keys
                .iter()
                .try_for_each(|key| self.object_now(key).map_err(|e| sort_error(key, "fsync", &e))),
        };
        if let Err(error) = &result {
            let cause = format!(
                "an earlier sync failed ({error}); restart the server: clients then send again the operations that were not durable"
            );
            *failed = Some(ObjectError::Io { key: error.key().to_owned(), cause });
        }
        result
    }

    fn object_now(&self, key: &str) -> io::Result<()> {
        match File::open(self.root.join(key)) {
            Ok(file) => file.sync_all()?,
            // Deleted: only the directory matters.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        self.name_now(key)
    }
}
