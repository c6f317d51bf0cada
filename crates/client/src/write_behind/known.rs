//! The rows that the client knows under its leases, as `plan` reads them.
//!
//! Invariant: an uncertain row is missing. A missing row or a refusal makes the client ask the server.

use chiton_namespace::{Fault, InodeFacts, Need, PlanState};
use chiton_types::{Ino, Name};

use crate::cache::Cache;

/// The names that the cache knows, and the inodes of one operation.
pub(super) struct Known<'a> {
    cache: &'a Cache,
    inodes: [Option<InodeFacts>; 2],
}

impl<'a> Known<'a> {
    /// One directory, or one file.
    pub(super) fn one(cache: &'a Cache, inode: InodeFacts) -> Known<'a> {
        Known { cache, inodes: [Some(inode), None] }
    }

    /// A directory and a file in it.
    pub(super) fn two(cache: &'a Cache, dir: InodeFacts, file: InodeFacts) -> Known<'a> {
        Known { cache, inodes: [Some(dir), Some(file)] }
    }
}

impl PlanState for Known<'_> {
    fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault> {
        let known = self.inodes.iter().flatten().find(|inode| inode.ino == ino);
        known.copied().ok_or(Need::Inode(ino).into())
    }

    fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault> {
        if self.cache.lacks(dir.ino, name) {
            return Ok(None);
        }
        // That a name was absent is not enough: an operation that adds it may be under way.
        match self.cache.named(dir.ino, name) {
            Some(ino) => Ok(Some(ino)),
            None => Err(Need::Entry(dir.ino, name.clone()).into()),
        }
    }
}
