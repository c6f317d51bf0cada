//! Directories that lead to a subtree which this mount has decoupled, while the server is away.
//!
//! ```text
//!   a request about such a directory ─▶ is the server away? ─no─▶ ask ─▶ its answer
//!                                              │ yes               │ the server goes away meanwhile
//!                                              └───────┬───────────┘
//!                                                      ▼
//!                              the directory as it was when the subtree was decoupled
//! ```
//!
//! No client renames or removes these directories (S59), so their names lead to the same inodes as before. Where such a
//! directory lies in another subtree of this mount, its attributes are those that it has there now.
//!
//! Invariant: once the client knows that the server is away, no request here waits for it, not even one that was sent before.

use std::time::Duration;

use chiton_client::{Caller, Entry, Lookup};
use chiton_types::{Attr, Ino, Refusal, access};

use super::Shell;
use crate::panic_guard::without_waiting;
use crate::router::PathStep;

impl Shell {
    /// The answer of the server or of the realm that has the inode; `None` if the server is away.
    fn unless_away<R>(&self, ask: impl FnOnce() -> Result<R, Refusal>) -> Option<Result<R, Refusal>> {
        let global = self.router.global();
        if global.is_away() {
            return None;
        }
        match without_waiting(ask) {
            Err(Refusal::Interrupted) => None,
            // A realm that lacks a row could not fetch it, or the client has given the server up.
            Err(Refusal::Io | Refusal::NotConnected) if global.is_away() => None,
            answer => Some(answer),
        }
    }

    /// [`Shell::look_up_asking`] for a name that leads on.
    pub(super) fn look_up_on_the_way(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        step: &PathStep,
    ) -> Result<Lookup, Refusal> {
        if let Some(found) = self.unless_away(|| self.look_up_asking(caller, parent, name)) {
            return found;
        }
        if !self.router.global().may(caller, &self.as_it_was(caller, &step.dir), access::EXEC) {
            return Err(Refusal::Access);
        }
        let attr = match &step.next {
            Some(next) => self.as_it_was(caller, next),
            None => self.attributes_of(caller, step.root)?.attr,
        };
        Ok(Lookup::Found { attr, ttl: Duration::ZERO, attr_ttl: Duration::ZERO })
    }

    /// The attributes of an inode, also of one on the way.
    pub(super) fn attributes_anywhere(&self, caller: &Caller<'_>, ino: Ino) -> Result<Entry, Refusal> {
        let ask = || self.attributes_of(caller, ino);
        let Some(dir) = self.router.dir_on_the_way(ino) else { return ask() };
        self.unless_away(ask).unwrap_or_else(|| {
            let attr = self.as_it_was(caller, &dir);
            Ok(Entry { attr, ttl: Duration::ZERO, attr_ttl: Duration::ZERO })
        })
    }

    /// Whether the caller may do `want` with an inode, also with one on the way.
    pub(super) fn may_anywhere(&self, caller: &Caller<'_>, ino: Ino, want: u8) -> Result<(), Refusal> {
        let ask = || self.router.on(caller, [ino], |route| route.access(caller, ino, want));
        let Some(dir) = self.router.dir_on_the_way(ino) else { return ask() };
        self.unless_away(ask).unwrap_or_else(|| {
            let may = self.router.global().may(caller, &self.as_it_was(caller, &dir), want);
            if may { Ok(()) } else { Err(Refusal::Access) }
        })
    }

    /// The attributes of a directory at which a realm begins or ends, for a listing; `None` if the server is away.
    pub(super) fn attributes_in_listing(&self, caller: &Caller<'_>, ino: Ino) -> Option<Entry> {
        let ask = || self.attributes_of(caller, ino);
        match self.router.slot_at(ino) {
            Some(_) => ask().ok(),
            None => self.unless_away(ask)?.ok(),
        }
    }

    /// A directory on the way as it was, or as it is in the realm that has it.
    fn as_it_was(&self, caller: &Caller<'_>, dir: &Attr) -> Attr {
        let is_here = self.router.slot_of(dir.ino).is_some_and(|slot| slot.realm().holds(dir.ino));
        let here = is_here.then(|| without_waiting(|| self.attributes_of(caller, dir.ino)));
        here.and_then(Result::ok).map_or_else(|| dir.clone(), |entry| entry.attr)
    }
}
