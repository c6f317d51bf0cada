//! A copy that was begun before, and ended with its server.
//!
//! ```text
//!   name taken ─ older than the copy, or of another kind ─▶ refused, as in any copy
//!              ├─ directory ──────────────────────────────▶ closed to others, and its names copied
//!              ├─ has all attributes of the original ─────▶ whole: left as it is
//!              ├─ as a copy is made, without attributes ──▶ removed, and copied anew
//!              └─ else: a user has changed it ────────────▶ refused
//! ```
//!
//! Invariants:
//! - A file is whole if it has its attributes: one plate writes it, in this order, and keeps the beginning of the written content.
//! - Directories prove nothing: their names may be on plates that have lost more.

use chiton_client::Lookup;
use chiton_model::{AttrChange, Op, SetTime};
use chiton_types::{Attr, Ino, Kind, Mode, Name, Refusal};

use super::{Job, Tag, Work};

/// Prefix of the attributes that hold access lists.
const LISTS: &[u8] = b"system.posix_acl_";

impl Work<'_> {
    /// The name of a copy is taken.
    pub(super) fn is_taken(&mut self, job: Job) {
        let found = match self.of_this_copy(job.dir, &job.name) {
            Some(found) if found.kind == job.attr.kind && !job.is_anew => found,
            _ => return self.failed(job, Refusal::Exists),
        };
        if job.attr.kind == Kind::Dir {
            return match self.close(&job.attr, &found) {
                Ok(()) => self.made(job, found.ino),
                Err(refusal) => self.failed(job, refusal),
            };
        }
        if self.is_whole(&job.attr, &found) {
            return self.is_copied(&job, found.ino);
        }
        match self.remove(job.dir, &job.name, &found) {
            Ok(()) => self.ask(job.dir, job.name, job.attr, true),
            Err(refusal) => self.failed(job, refusal),
        }
    }

    /// Makes a directory as one that is new.
    fn close(&self, original: &Attr, found: &Attr) -> Result<(), Refusal> {
        let caller = self.client.caller();
        if found.uid != self.uid && found.uid != original.uid {
            return Err(Refusal::Exists);
        }
        let own = AttrChange { mode: Some(Mode(0o700)), ..AttrChange::default() };
        self.client.setattr(&caller, found.ino, own, None)?;
        // Its lists would hold for what is made in it; it gets them again at the end.
        if found.flags & (Attr::ACCESS_LIST | Attr::DEFAULT_LIST) != 0 {
            let names = self.client.listxattr(&caller, found.ino)?;
            for list in names.split(|&b| b == 0).filter(|name| name.starts_with(LISTS)) {
                self.client.removexattr(&caller, found.ino, list)?;
            }
        }
        Ok(())
    }

    /// The name of a further link to a copy is taken.
    pub(super) fn link_is_taken(&mut self, dir: usize, name: Name, copy: Ino) {
        let removed = match self.of_this_copy(dir, &name) {
            Some(found) if found.ino == copy => {
                self.done.files += 1;
                return self.over(dir);
            }
            Some(found) => self.remove(dir, &name, &found),
            None => Err(Refusal::Exists),
        };
        match removed {
            Ok(()) => {
                let op = Op::Link { ino: copy, parent: self.dir(dir).copy, name: name.clone() };
                self.pipeline.push(Tag::Link(dir, name, None), op);
            }
            Err(refusal) => {
                self.refuse(dir, Some(&name), "link the copy of", refusal);
                self.over(dir);
            }
        }
    }

    /// The inode that has a name in a copy, if it was made since the copy was begun.
    fn of_this_copy(&mut self, dir: usize, name: &Name) -> Option<Attr> {
        let (since, parent) = (self.since?, self.dir(dir).copy);
        match self.client.start_lookup(&self.client.caller(), parent, name.as_bytes()).wait() {
            Ok(Lookup::Found { attr, .. }) => Some(attr).filter(|attr| attr.btime >= since),
            Ok(Lookup::Absent { .. }) | Err(_) => None,
        }
    }

    fn is_whole(&self, original: &Attr, found: &Attr) -> bool {
        let wanted = self.attributes(original);
        let is_at = |wanted: Option<SetTime>, time| wanted == Some(SetTime::At(time));
        wanted.mode.is_none_or(|mode| mode == found.mode)
            && wanted.uid.is_none_or(|uid| uid == found.uid)
            && wanted.gid.is_none_or(|gid| gid == found.gid)
            && is_at(wanted.mtime, found.mtime)
            && found.size == original.size
    }

    /// Removes a copy that never got its attributes. Another file may be a user's work.
    fn remove(&mut self, dir: usize, name: &Name, found: &Attr) -> Result<(), Refusal> {
        let is_as_made = found.kind == Kind::Symlink || found.mode == Mode(0o600);
        // A copy that is finished has the time of the last access from its original.
        if !is_as_made || found.atime != found.btime || found.uid != self.uid {
            return Err(Refusal::Exists);
        }
        let parent = self.dir(dir).copy;
        self.client.unlink(&self.client.caller(), parent, name.as_bytes())
    }
}
