//! Trees that were removed as one operation: whether that may be, and how the server frees what was in them.
//!
//! ```text
//!   RemoveTree a ─▶ the name goes, a is an orphan with entries ─▶ a/file: Unlink ─────────────▶ … ─▶ a is empty ─▶ Reclaim
//!                                                                 a/dir:  RemoveTree, an orphan too, emptied after a
//! ```
//!
//! Invariants:
//! - The event is that of a directory that loses its name and stays as an orphan. After a restart the list of orphans says what is
//!   still to be freed, so the work continues wherever it was.
//! - Each step frees one name by an ordinary event: leases on it are recalled, files that are open live on.
//! - A tree leaves the namespace whole or not at all: nothing in it carries a policy, is decoupled, or lies on another plate, and
//!   the caller could have removed every name in it.
//! - Requests go first, and the changed rows of this work fill no more than half of the room for them.

use std::collections::{BTreeSet, VecDeque};

use chiton_model::Op;
use chiton_namespace::{Fault, Need};
use chiton_types::{Attr, Capabilities, Cred, Ino, Kind, Name, Refusal, access};
use chiton_wire::Failure;

use crate::engine::Engine;
use crate::execute::OpCall;
use crate::leases::Leases;
use crate::moment::Moment;
use crate::parts::Shards;
use crate::sessions::Slot;
use crate::step::{Command, Progress, Stop};
use crate::wait_queue::Wait;

/// Names that are read at a time.
const PAGE: usize = 256;
/// Most names that the check of a tree reads for a caller who is not root: it holds up other requests.
const CHECKED_MAX: usize = 1 << 16;
/// About how many rows the check has fetched at a time.
const NEEDS_MAX: usize = 4096;

/// The directory that is being emptied.
#[derive(Debug, Default)]
pub(crate) struct Emptying {
    dir: Ino,
    names: VecDeque<Named>,
    /// Where the next page begins.
    after: u64,
    /// Names of this page of which clients have leases.
    held: Vec<Named>,
    /// The inodes of those leases, on which none is granted meanwhile.
    asked: Vec<Ino>,
    /// Those of which the client has not acknowledged the recall.
    unanswered: BTreeSet<Ino>,
    /// It has waited for the rest, which has to wait for a later pass over the directory.
    has_waited: bool,
    /// The last recall was acknowledged.
    is_due: bool,
}

type Named = (Name, Ino, Kind);

impl Emptying {
    /// Where there is nothing to wait for any more.
    fn end_wait(&mut self, leases: &mut Leases) -> VecDeque<Named> {
        self.asked.drain(..).for_each(|ino| leases.wait_ended(ino));
        self.unanswered.clear();
        std::mem::take(&mut self.held).into()
    }

    fn wait(&mut self, name: Named, inos: &[Ino], leases: &mut Leases) {
        self.held.push(name);
        for ino in inos {
            if self.unanswered.insert(*ino) {
                leases.wait(*ino);
                self.asked.push(*ino);
            }
        }
    }

    /// A client has acknowledged a recall.
    pub(crate) fn acknowledged(&mut self, ino: Ino) {
        self.is_due |= self.unanswered.remove(&ino) && self.unanswered.is_empty();
    }
}

impl Engine {
    /// Refuses to remove a tree as a whole where the client has to remove it name by name.
    pub(crate) fn check_tree(&mut self, call: &OpCall<'_>) -> Result<(), Stop> {
        let Op::RemoveTree { parent, name, .. } = call.op else { return Ok(()) };
        if self.is_realm() {
            return Err(Refusal::Unsupported.into());
        }
        if self.peers.is_some() {
            return Err(Refusal::CrossDevice.into());
        }
        let top = match self.shards.ns.lookup(&Cred::ROOT, *parent, name) {
            Ok(Some(ino)) => ino,
            Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
            // The plan says why not.
            Ok(None) | Err(_) => return Ok(()),
        };
        let attr = self.shards.ns.attr(top)?;
        // A directory of a removed tree is on its way out already: the whole was checked.
        if attr.kind != Kind::Dir || call.slot == Slot::SERVER {
            return Ok(());
        }
        self.shards.is_plain(top)?;
        // Whoever has all of these could remove every name one by one.
        let wanted = [Capabilities::DAC_OVERRIDE, Capabilities::FOWNER, Capabilities::LINUX_IMMUTABLE];
        let mut is_root = true;
        for capability in wanted {
            is_root &= call.cred.everywhere(capability).ok_or(Stop::Fail(Failure::NeedGroups))?;
        }
        if is_root { Ok(()) } else { self.shards.owns_tree(&attr, call.cred) }
    }

    /// One step of emptying a directory that was removed with what is in it. `None` if there is nothing in it.
    pub(crate) fn empty_removed(&mut self, dir: Ino, m: &Moment) -> Option<Progress> {
        let left = match self.shards.ns.entries_of(dir) {
            Err(Fault::Missing(needs)) => return Some(Progress::NeedRows(needs)),
            Ok(0) | Err(_) => return None,
            Ok(left) => left,
        };
        if self.shards.ns.dirty_rows() > self.shards.dirty_rows_max / 2 {
            return Some(Progress::Idle);
        }
        if self.shards.emptying.dir != dir {
            self.shards.emptying.end_wait(&mut self.clients.leases);
            self.shards.emptying = Emptying { dir, ..Emptying::default() };
        }
        if self.shards.emptying.names.is_empty() {
            let emptying = &mut self.shards.emptying;
            if !emptying.unanswered.is_empty() && !std::mem::replace(&mut emptying.has_waited, true) {
                return Some(Progress::Idle);
            }
            let all_answered = emptying.unanswered.is_empty();
            let held = emptying.end_wait(&mut self.clients.leases);
            emptying.has_waited = false;
            if all_answered && !held.is_empty() {
                emptying.names = held;
            } else if let Some(progress) = self.turn_page(dir, left) {
                return Some(progress);
            }
        }
        let (name, ino, kind) = self.shards.emptying.names.pop_front()?;
        let again = (name.clone(), ino, kind);
        let op = match kind {
            Kind::Dir if self.shards.ns.entries_of(ino) == Ok(0) => Op::Rmdir { parent: dir, name },
            Kind::Dir => Op::RemoveTree { parent: dir, name, ino },
            _ => Op::Unlink { parent: dir, name },
        };
        Some(match self.operate_as_server(&op, m) {
            Ok(_) => Progress::More,
            Err(Stop::Missing(needs)) => {
                self.shards.emptying.names.push_front(again);
                Progress::NeedRows(needs)
            }
            Err(Stop::Wait(Wait::Leases(inos))) => {
                self.shards.emptying.wait(again, &inos, &mut self.clients.leases);
                Progress::More
            }
            Err(Stop::Wait(_) | Stop::Yield) => {
                self.shards.emptying.names.push_front(again);
                Progress::Idle
            }
            // Made immutable after the tree was removed.
            Err(Stop::Fail(Failure::Refused(Refusal::NotPermitted))) => self.make_mutable(again, dir, m),
            // A client took the name away meanwhile, or a later pass finds it again.
            Err(Stop::Fail(_)) => Progress::More,
        })
    }

    /// Reads the next names of the directory. If none can be freed now, returns the progress of the whole step.
    fn turn_page(&mut self, dir: Ino, left: u64) -> Option<Progress> {
        match self.shards.next_names() {
            Ok(true) => None,
            // All that is left waits for clients: other directories first.
            Ok(false) => {
                self.shards.emptying = Emptying::default();
                self.shards.reclaims.rotate_left(1);
                Some(Progress::Idle)
            }
            Err(Fault::Missing(needs)) => Some(Progress::NeedRows(needs)),
            Err(_) => {
                self.queue.commands.push(Command::Log(format!(
                    "cannot read inode {dir}, a removed directory with {left} names: its content stays until the next start; run \"chiton fsck\""
                )));
                self.shards.reclaims.pop_front();
                Some(Progress::More)
            }
        }
    }

    /// True, once, if there is new work, or clients have returned all leases that it waits for.
    #[inline]
    pub fn take_background_due(&mut self) -> bool {
        std::mem::take(&mut self.shards.emptying.is_due) | self.shards.splits.take_due()
    }

    /// The inode with this name, or the directory, is immutable or append-only: from now on it may change. The name is tried again by a
    /// later pass, or when the clients that are asked for their leases have answered.
    fn make_mutable(&mut self, name: Named, dir: Ino, m: &Moment) -> Progress {
        for ino in [name.1, dir] {
            if self.shards.ns.attr(ino).is_ok_and(|attr| attr.flags & Attr::SETTABLE == 0) {
                continue;
            }
            match self.operate_as_server(&Op::SetFlags { ino, flags: 0 }, m) {
                Err(Stop::Missing(needs)) => return Progress::NeedRows(needs),
                Err(Stop::Wait(Wait::Leases(inos))) => {
                    self.shards.emptying.wait(name, &inos, &mut self.clients.leases);
                    return Progress::More;
                }
                _ => {}
            }
        }
        Progress::More
    }
}

impl Shards {
    /// A directory lost its name with what is in it. Those that the server finds while it empties one come next, so that only the
    /// siblings on one path wait.
    pub(crate) fn tree_removed(&mut self, top: Ino, slot: Slot) {
        match slot == Slot::SERVER && !self.reclaims.is_empty() {
            true => self.reclaims.insert(1, top),
            false => self.reclaims.push_back(top),
        }
    }

    /// The next names of the directory that is being emptied, and their inodes in memory. False at its end.
    fn next_names(&mut self) -> Result<bool, Fault> {
        let Emptying { dir, after, .. } = self.emptying;
        let listing = self.ns.readdir(dir, after, PAGE)?;
        let mut needs: Vec<Need> = Vec::new();
        for (_, ino, ..) in &listing.entries {
            if let Err(Fault::Missing(more)) = self.ns.attr(*ino) {
                needs.extend(more);
            }
        }
        if !needs.is_empty() {
            return Err(Fault::Missing(needs));
        }
        let Some(last) = listing.entries.last() else { return Ok(false) };
        self.emptying.after = last.3;
        self.emptying.names =
            listing.entries.into_iter().map(|(name, ino, kind, _)| (name, ino, kind)).collect();
        Ok(true)
    }

    /// Refuses unless a tree is governed from outside of it only, and all changes in it are journalled.
    fn is_plain(&mut self, top: Ino) -> Result<(), Stop> {
        if self.ns.has_decouplings() && (self.root_of(top)?.is_some() || self.ns.is_above_decoupled(top)?) {
            return Err(Refusal::CrossDevice.into());
        }
        if self.is_volatile_inode(top)? || self.is_volatile_inode(Ino::ROOT)? {
            return Err(Refusal::CrossDevice.into());
        }
        for policy in self.ns.policies() {
            match self.ns.is_above(top, policy.ino) {
                Ok(true) => return Err(Refusal::CrossDevice.into()),
                Ok(false) | Err(Fault::Refused(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(())
    }

    /// Refuses unless the caller owns every directory of a tree and may change its names, and nothing in it is immutable.
    fn owns_tree(&self, top: &Attr, cred: &Cred) -> Result<(), Stop> {
        let (mut dirs, mut needs, mut read) = (vec![top.ino], Vec::new(), 0);
        while let Some(dir) = dirs.pop() {
            let attr = match self.ns.attr(dir) {
                Err(Fault::Missing(more)) => {
                    needs.extend(more);
                    continue;
                }
                attr => attr?,
            };
            if attr.uid != cred.uid || attr.flags & Attr::SETTABLE != 0 {
                return Err(Refusal::NotPermitted.into());
            }
            match self.ns.access(cred, dir, access::WRITE | access::EXEC) {
                Err(Fault::Missing(more)) => needs.extend(more),
                access => access?,
            }
            let mut after = 0;
            loop {
                let listing = match self.ns.readdir(dir, after, PAGE) {
                    Err(Fault::Missing(more)) => {
                        needs.extend(more);
                        break;
                    }
                    listing => listing?,
                };
                for (_, ino, kind, cookie) in &listing.entries {
                    after = *cookie;
                    match self.ns.attr(*ino) {
                        _ if *kind == Kind::Dir => dirs.push(*ino),
                        Ok(attr) if attr.flags & Attr::SETTABLE != 0 => {
                            return Err(Refusal::NotPermitted.into());
                        }
                        Err(Fault::Missing(more)) => needs.extend(more),
                        Err(fault) => return Err(fault.into()),
                        Ok(_) => {}
                    }
                }
                read += listing.entries.len();
                if read > CHECKED_MAX {
                    return Err(Refusal::ArgTooBig.into());
                }
                if needs.len() >= NEEDS_MAX {
                    return Err(Stop::Missing(needs));
                }
                if listing.end {
                    break;
                }
            }
        }
        if needs.is_empty() { Ok(()) } else { Err(Stop::Missing(needs)) }
    }
}
