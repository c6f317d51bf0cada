//! Trees that were removed as one operation: whether that may be, and how the server frees what was in them.
//!
//! ```text
//!   RemoveTree a ─▶ the name goes, a is an orphan with entries ─▶ a/file: Unlink ─────────────▶ … ─▶ a is empty ─▶ Reclaim
//!                                                                 a/dir:  RemoveTree, an orphan too, emptied after a
//! ```
//!
//! Over several plates each plate frees the directories that lie on it. An orphan's names may lead to inodes of other plates
//! ([`far`]). The parts of a directory become orphans of their own plates.
//!
//! Invariants:
//! - The event is that of a directory that loses its name and stays as an orphan. After a restart the list of orphans says what is
//!   still to be freed, so the work continues wherever it was.
//! - Each step frees one name by an ordinary event: leases on it are recalled, files that are open live on.
//! - A tree leaves the namespace whole or not at all: nothing in it carries a policy or is decoupled, and the caller could have removed
//!   every name in it.
//! - Requests go first, and the changed rows of this work fill no more than half of the room for them.

mod far;

use std::collections::{BTreeSet, VecDeque};

use chiton_model::Op;
use chiton_namespace::{Fault, Need};
use chiton_types::{Attr, Capabilities, Cred, Ino, Kind, Name, Refusal, access};
use chiton_wire::{Failure, LeaseMode};

use crate::engine::Engine;
use crate::execute::OpCall;
use crate::leases::Leases;
use crate::moment::Moment;
use crate::parts::Shards;
use crate::peers::is_key_of_server;
use crate::policies::{Unplanned, WayUp};
use crate::sessions::Slot;
use crate::step::{Command, Progress, Stop};
use crate::wait_queue::Wait;

pub(crate) use far::Far;

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
    /// Cookie at which the next page begins.
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
        // A directory of a removed tree is on its way out already: the whole was checked.
        if is_key_of_server(call.key()) {
            return Ok(());
        }
        let top = match self.shards.ns.lookup(&Cred::ROOT, *parent, name) {
            Ok(Some(ino)) => ino,
            Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
            // The plan says why not.
            Ok(None) | Err(_) => return Ok(()),
        };
        let is_over_plates = self.peers.is_some();
        if !is_over_plates {
            if self.shards.ns.attr(top)?.kind != Kind::Dir {
                return Ok(());
            }
            self.shards.is_plain(top)?;
        }
        // A caller with all of these could remove every name one by one.
        let wanted = [Capabilities::DAC_OVERRIDE, Capabilities::FOWNER, Capabilities::LINUX_IMMUTABLE];
        let mut is_root = true;
        for capability in wanted {
            is_root &= call.cred.everywhere(capability).ok_or(Stop::Fail(Failure::NeedGroups))?;
        }
        match self.shards.ns.attr(top) {
            _ if is_root => Ok(()),
            // This plate does not see who owns the directories of others.
            Err(Fault::Elsewhere(_)) => Err(Refusal::CrossDevice.into()),
            attr => self.shards.owns_tree(&attr?, call.cred),
        }
    }

    /// One step of emptying a directory that was removed with its content. `None` if there is nothing in it.
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
        if self.shards.far.has(dir, &name) {
            return Some(Progress::More);
        }
        let again = (name.clone(), ino, kind);
        if !self.shards.ns.owns(ino) || self.shards.ns.is_parted(ino) {
            if self.shards.far.is_full() {
                self.shards.emptying.names.push_front(again);
                return Some(Progress::Idle);
            }
            // With guards at hand it would not wait for clients.
            let leases = &mut self.clients.leases;
            let mut is_leased = |ino: &Ino| leases.conflict(*ino, Slot::SERVER, LeaseMode::None, m.mono);
            let leased: Vec<Ino> = [dir, ino].into_iter().filter(|ino| is_leased(ino)).collect();
            if !leased.is_empty() {
                self.shards.emptying.wait(again, &leased, &mut self.clients.leases);
                return Some(Progress::More);
            }
        }
        let is_whole = |dir: Ino| !self.shards.ns.is_parted(dir);
        let op = match kind {
            Kind::Dir if is_whole(ino) && self.shards.ns.entries_of(ino) == Ok(0) => {
                Op::Rmdir { parent: dir, name }
            }
            Kind::Dir => Op::RemoveTree { parent: dir, name, ino },
            _ => Op::Unlink { parent: dir, name },
        };
        let key = self.next_key_of_server();
        let done = self.operate_with_key(&op, key, m);
        if matches!(done, Err(Stop::Missing(_) | Stop::Wait(_) | Stop::Yield))
            && self.peers.as_ref().is_some_and(|peers| peers.is_crossing(key))
        {
            self.shards.far.begin(key, &op);
            return Some(match done {
                Err(Stop::Missing(needs)) => {
                    self.shards.far.wake(key);
                    Progress::NeedRows(needs)
                }
                _ => Progress::More,
            });
        }
        Some(match done {
            Ok(_) => {
                self.shards.turns = 0;
                Progress::More
            }
            Err(Stop::Missing(needs)) => {
                self.shards.emptying.names.push_front(again);
                Progress::NeedRows(needs)
            }
            Err(Stop::Wait(Wait::Leases(inos))) => {
                self.shards.emptying.wait(again, &inos, &mut self.clients.leases);
                Progress::More
            }
            // Another plate's operation has it. A later pass finds it again, if it is still there.
            Err(Stop::Wait(Wait::Guarded(_) | Wait::Birth(_))) => Progress::More,
            Err(Stop::Wait(_) | Stop::Yield) => {
                self.shards.emptying.names.push_front(again);
                Progress::Idle
            }
            // A client took the name away meanwhile, or a later pass finds it again.
            Err(Stop::Fail(_)) => Progress::More,
        })
    }

    /// Reads the next names of the directory. If none can be freed now, returns the progress of the whole step.
    fn turn_page(&mut self, dir: Ino, left: u64) -> Option<Progress> {
        match self.shards.next_names() {
            Ok(true) => None,
            // All that is left waits for clients, or for other plates: other directories first.
            Ok(false) => {
                self.shards.emptying = Emptying::default();
                self.shards.reclaims.rotate_left(1);
                self.shards.turns += 1;
                if self.shards.turns < self.shards.reclaims.len() {
                    return Some(Progress::More);
                }
                self.shards.turns = 0;
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
        let shards = &mut self.shards;
        std::mem::take(&mut shards.emptying.is_due) | shards.splits.take_due() | shards.far.take_due()
    }
}

impl Shards {
    /// A directory lost its name with its content. Those that the server finds while it empties one come next, so that only the
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

    /// The same over several plates, for an operation that holds the token and guards what is decoupled: no directory moves meanwhile, no
    /// policy changes, and no decoupling begins. Over several plates all changes are journalled.
    pub(crate) fn is_plain_over_plates(&self, top: Ino, way: &WayUp<'_>) -> Result<(), Unplanned> {
        let policies = self.ns.policies().map(|policy| policy.ino);
        let decoupled = self.ns.decouplings().map(|decoupling| decoupling.root());
        let elsewhere = way.crossing.into_iter().flat_map(|crossing| crossing.decoupled_elsewhere());
        for root in policies.chain(decoupled).chain(elsewhere) {
            let mut at = root;
            loop {
                if at == top {
                    return Err(Refusal::CrossDevice.into());
                }
                if at == Ino::ROOT {
                    break;
                }
                let attr = match way.attr(&self.ns, at) {
                    Ok(attr) => attr,
                    // It is gone, and was in another tree that is being freed.
                    Err(Unplanned::Stop(Stop::Fail(Failure::Refused(_)))) => break,
                    Err(unplanned) => return Err(unplanned),
                };
                if attr.nlink == 0 {
                    break;
                }
                at = attr.parent;
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
                // This plate does not see the rights on its content.
                Err(Fault::Elsewhere(_)) => return Err(Refusal::CrossDevice.into()),
                attr => attr?,
            };
            if attr.is_parted() {
                return Err(Refusal::CrossDevice.into());
            }
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
                        Err(Fault::Elsewhere(_)) => return Err(Refusal::CrossDevice.into()),
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
