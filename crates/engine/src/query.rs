//! Questions, and the leases that are given with their answers.
//!
//! Invariants:
//! - A question changes nothing but opens and leases.
//! - Attributes of a file that another session writes under an exclusive lease are answered as the server knows
//!   them, with lease `None`, unless the client that asks has it open; opening and mapping it asks the writer to write back
//!   first. Neither holds for a file that is open for writing where the policy's `data` is weaker than `linearizable`.

use chiton_model::encode_parts;
use chiton_namespace::{Fault, Listing, Mapped, Need};
use chiton_policy::Data;
use chiton_types::{Attr, Cred, Ino, Kind, Name, Refusal, access};
use chiton_wire::{Answer, Content, DirEntry, LeaseMode, Query, StatFs, is_policy_attribute};
use smallvec::{SmallVec, smallvec};

use crate::dispatch::clamp;
use crate::engine::Engine;
use crate::moment::Moment;
use crate::parts::{Clients, Shards};
use crate::peers::Peers;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::{Ticket, Wait};

/// Most entries in one answer.
const ENTRIES_MAX: u32 = 16_384;
/// Names after a page whose holders are asked to share, if others hold what the page lists.
const LOOK_AHEAD: usize = 2_048;

/// The state that a question may touch.
pub(crate) struct QueryHandler<'a> {
    pub(crate) shards: &'a mut Shards,
    pub(crate) clients: &'a mut Clients,
    pub(crate) peers: Option<&'a Peers>,
    pub(crate) cred: &'a Cred,
    pub(crate) slot: Slot,
    pub(crate) m: &'a Moment,
}

impl Engine {
    pub(crate) fn queries<'a>(&'a mut self, cred: &'a Cred, slot: Slot, m: &'a Moment) -> QueryHandler<'a> {
        let peers = self.peers.as_deref();
        QueryHandler { shards: &mut self.shards, clients: &mut self.clients, peers, cred, slot, m }
    }

    pub(crate) fn query(
        &mut self,
        query: &Query,
        cred: &Cred,
        slot: Slot,
        m: &Moment,
    ) -> Result<Answer, Stop> {
        match query {
            Query::GetXattr { ino, name } if is_policy_attribute(name) => {
                let root = self.is_realm().then_some(self.settings.root);
                let epoch = self.epoch();
                Ok(Answer::Bytes(self.shards.policy_attribute(*ino, name, root, epoch)?))
            }
            Query::StatFs => {
                let (bytes_total, bytes_free) = self.disk;
                let inodes_used = self.shards.ns.inode_count();
                Ok(Answer::StatFs(StatFs { bytes_total, bytes_free, inodes_used }))
            }
            _ => self.queries(cred, slot, m).answer(query),
        }
    }
}

impl QueryHandler<'_> {
    fn answer(&mut self, query: &Query) -> Result<Answer, Stop> {
        match query {
            Query::Lookup { parent, name } => self.lookup(*parent, name),
            Query::GetAttr { ino } => {
                let attr = self.shards.ns.attr(*ino)?;
                self.attr_answer(attr)
            }
            Query::Open { ino, want, content } => self.open(*ino, *want, *content),
            Query::Access { ino, want } => {
                self.shards.ns.access(self.cred, *ino, *want)?;
                Ok(Answer::Done)
            }
            Query::ReadDir { dir, cookie, entries_max, plus, part_end } => {
                if self.shards.ns.attr(*dir)?.is_parted() {
                    let (_, last) = self.shards.ns.hash_range(*dir)?;
                    if *part_end != Some(last) {
                        return Err(Refusal::OtherPart.into());
                    }
                }
                self.readdir(*dir, *cookie, *entries_max, *plus)
            }
            Query::Parts { dir } => {
                let parts = self.shards.ns.parts(*dir)?;
                Ok(Answer::Bytes(if parts.is_empty() { Vec::new() } else { encode_parts(&parts) }))
            }
            Query::NameOf { dir, ino } => {
                self.await_unguarded(*dir)?;
                self.shards.ns.access(self.cred, *dir, access::READ)?;
                self.clients.see_names(*dir, self.slot, self.m)?;
                Ok(Answer::Bytes(self.shards.ns.name_held(*dir, *ino)?))
            }
            Query::ReadLink { ino } => Ok(Answer::Bytes(self.shards.ns.readlink(*ino)?)),
            Query::GetXattr { ino, name } => Ok(Answer::Bytes(self.shards.ns.xattr(self.cred, *ino, name)?)),
            Query::ListXattr { ino } => Ok(Answer::Bytes(self.shards.ns.xattr_names(self.cred, *ino)?)),
            Query::Map { ino, offset, len } => self.map(*ino, *offset, *len),
            Query::Resolve { .. } | Query::StatEach { .. } | Query::StatFs => {
                unreachable!("the engine answers this")
            }
        }
    }

    /// Waits while an operation over plates is about to change this inode.
    pub(crate) fn await_unguarded(&self, ino: Ino) -> Result<(), Stop> {
        self.peers.map_or(Ok(()), |peers| peers.await_unguarded(&[ino]))
    }

    pub(crate) fn attr_answer(&mut self, attr: Attr) -> Result<Answer, Stop> {
        let (slot, m) = (self.slot, self.m);
        self.await_attr(&attr)?;
        let lease = self.clients.lease_looked_at(&attr, slot, m);
        self.clients.leases.limit(m.mono);
        Ok(Answer::Attr { attr, lease, parent_leased: false, parent_open: false })
    }

    /// Waits until the attributes of an inode may be answered.
    pub(crate) fn await_attr(&mut self, attr: &Attr) -> Result<(), Stop> {
        let (slot, m) = (self.slot, self.m);
        self.await_unguarded(attr.ino)?;
        if self.clients.opens.has(attr.ino, slot) {
            // Its reader takes the size for the end of the file.
            self.write_back(attr)?;
        }
        self.clients.see_names(attr.ino, slot, m)?;
        if attr.kind != Kind::Dir && attr.nlink == 1 {
            // Its only name may be gone.
            self.clients.see_names(attr.parent, slot, m)?;
        }
        Ok(())
    }

    /// The same, if it was found by a name in whose directory no other client has pending operations.
    pub(crate) fn await_named(&mut self, attr: &Attr) -> Result<(), Stop> {
        self.await_unguarded(attr.ino)?;
        if self.shards.is_hidden(attr.ino)? {
            return Err(Refusal::Busy.into());
        }
        self.clients.see_names(attr.ino, self.slot, self.m)?;
        if self.clients.opens.has(attr.ino, self.slot) {
            self.write_back(attr)?;
        }
        Ok(())
    }

    fn lookup(&mut self, parent: Ino, name: &Name) -> Result<Answer, Stop> {
        let (cred, slot, m) = (self.cred, self.slot, self.m);
        self.clients.see_names(parent, slot, m)?;
        let named = self.shards.ns.lookup(cred, parent, name)?;
        let found = match named {
            Some(ino) if self.shards.ns.owns(ino) => Some(self.shards.ns.attr(ino)?),
            _ => None,
        };
        let parent_open = self.shards.everybody_may_search(parent)?;
        let parent_leased = self.parent_leased(parent);
        if let (Some(ino), None) = (named, &found) {
            return Ok(Answer::Elsewhere { parent_leased, parent_open, ino });
        }
        let answer = match found {
            Some(attr) => {
                self.await_named(&attr)?;
                let lease = self.clients.lease_looked_at(&attr, slot, m);
                Answer::Attr { attr, lease, parent_leased, parent_open }
            }
            None => Answer::Absent { parent_leased, parent_open },
        };
        self.clients.leases.limit(m.mono);
        Ok(answer)
    }

    /// Whether the session has a lease on the names that a directory, or a part of one, has.
    fn parent_leased(&mut self, dir: Ino) -> bool {
        self.clients.parent_leased(dir, self.slot, self.m)
    }

    pub(crate) fn open(&mut self, ino: Ino, want: u8, content: bool) -> Result<Answer, Stop> {
        let attr = self.shards.ns.attr(ino)?;
        if attr.kind == Kind::Dir && want & access::WRITE != 0 {
            return Err(Refusal::IsDir.into());
        }
        if want != 0 {
            self.shards.ns.access(self.cred, ino, want)?;
        }
        self.write_back(&attr)?;
        let has_content = content && want & access::READ != 0 && attr.kind == Kind::File && attr.size > 0;
        let answer = if has_content {
            self.await_attr(&attr)?;
            self.mapped(attr, 0, 1)?
        } else {
            self.attr_answer(attr)?
        };
        self.clients.opens.add(ino, self.slot);
        Ok(answer)
    }

    /// Waits until nobody else holds an exclusive lease on a file, where the policy has readers see what a writer has
    /// not pushed yet.
    fn write_back(&mut self, attr: &Attr) -> Result<(), Stop> {
        match self.must_write_back(attr)? {
            true => Err(Stop::Wait(Wait::Leases(smallvec![attr.ino]))),
            false => Ok(()),
        }
    }

    fn must_write_back(&mut self, attr: &Attr) -> Result<bool, Stop> {
        let slot = self.slot;
        Ok(attr.kind == Kind::File
            && !self.clients.leases.is_alone(slot)
            && !self.is_read_behind_writer(attr.ino)?
            && self.clients.leases.conflict(attr.ino, slot, LeaseMode::Shared, self.m.mono))
    }

    /// Whether another session has this file open for writing, and readers are content with the content that it has pushed.
    fn is_read_behind_writer(&mut self, ino: Ino) -> Result<bool, Stop> {
        let is_being_written = self
            .clients
            .leases
            .other_writer(ino, self.slot)
            .is_some_and(|writer| self.clients.opens.has(ino, writer));
        Ok(is_being_written && self.shards.policy_of(ino)?.1.data != Data::Linearizable)
    }

    /// Reading a file that is not open asks for permission; at the open it was checked already.
    fn may_read(&self, ino: Ino) -> Result<(), Stop> {
        if !self.clients.opens.has(ino, self.slot) {
            self.shards.ns.access(self.cred, ino, access::READ)?;
        }
        Ok(())
    }

    fn readdir(&mut self, dir: Ino, cookie: u64, entries_max: u32, plus: bool) -> Result<Answer, Stop> {
        let (slot, m) = (self.slot, self.m);
        self.may_read(dir)?;
        self.clients.see_names(dir, slot, m)?;
        let Listing { entries: listed, end } =
            self.shards.ns.readdir(dir, cookie, entries_max.clamp(1, ENTRIES_MAX) as usize)?;
        let parent_open = self.shards.everybody_may_search(dir)?;
        let mut attrs = Vec::new();
        if plus {
            let mut needs: Vec<Need> = Vec::new();
            attrs.reserve(listed.len());
            for (_, ino, ..) in &listed {
                match self.shards.ns.attr(*ino) {
                    Ok(attr) => attrs.push(Some(attr)),
                    // The client asks its plate.
                    Err(Fault::Elsewhere(_)) => attrs.push(None),
                    Err(Fault::Missing(more)) => needs.extend(more),
                    Err(fault) => return Err(fault.into()),
                }
            }
            if !needs.is_empty() {
                return Err(Stop::Missing(needs));
            }
            let mut busy: SmallVec<[Ino; 4]> = SmallVec::new();
            for attr in attrs.iter().flatten() {
                let waits = self.clients.leases.names_conflict(attr.ino, slot, m.mono)
                    || (self.clients.opens.has(attr.ino, slot) && self.must_write_back(attr)?);
                if waits && !busy.contains(&attr.ino) {
                    busy.push(attr.ino);
                }
            }
            if !busy.is_empty() {
                return Err(Stop::Wait(Wait::Leases(busy)));
            }
        }
        let parent_leased = self.parent_leased(dir);
        let mut attrs = attrs.into_iter();
        let mut entries = Vec::with_capacity(listed.len());
        let mut is_held = false;
        for (name, ino, kind, cookie) in listed {
            // If that is not known, the answer has no more than the name.
            let is_hidden = self.shards.is_hidden(ino).unwrap_or(true);
            let is_hidden = is_hidden || self.await_unguarded(ino).is_err();
            let attr = attrs.next().flatten().filter(|_| !is_hidden).map(|attr| {
                let lease = self.clients.lease_looked_at(&attr, slot, m);
                is_held |= lease == LeaseMode::None && !attr.is_parted();
                (attr, lease)
            });
            entries.push(DirEntry { name, ino, kind, cookie, attr });
        }
        if let (true, false, Some(last)) = (is_held, end, entries.last()) {
            self.look_ahead(dir, last.cookie)?;
        }
        self.clients.leases.limit(m.mono);
        Ok(Answer::Entries { entries, end, parent_leased, parent_open })
    }

    /// Others hold what a page lists, and a client that scans a directory will ask for the next pages, too: the holders of the inodes there
    /// are asked to share it meanwhile, so that those pages come with leases. Nothing is fetched for it.
    fn look_ahead(&mut self, dir: Ino, after: u64) -> Result<(), Stop> {
        let (slot, m) = (self.slot, self.m);
        let Listing { entries, .. } = match self.shards.ns.readdir(dir, after, LOOK_AHEAD) {
            Err(Fault::Missing(_)) => return Ok(()),
            listing => listing?,
        };
        for (_, ino, kind, _) in entries {
            if kind != Kind::Dir && self.shards.ns.owns(ino) {
                self.clients.share_idle(ino, slot, m);
            }
        }
        Ok(())
    }

    fn map(&mut self, ino: Ino, offset: u64, len: u64) -> Result<Answer, Stop> {
        let attr = self.shards.ns.attr(ino)?;
        self.may_read(ino)?;
        self.write_back(&attr)?;
        self.mapped(attr, offset, len)
    }

    fn mapped(&mut self, attr: Attr, offset: u64, len: u64) -> Result<Answer, Stop> {
        let ino = attr.ino;
        let content = match self.shards.ns.map(ino, offset, len)? {
            Mapped::Inline(bytes) => Content::Inline(bytes),
            Mapped::Extents(start, end, extents) => Content::Extents { start, end, extents },
        };
        let lease = self.clients.lease_read(&attr, self.slot, self.m);
        self.clients.leases.limit(self.m.mono);
        Ok(Answer::Map { attr, lease, content })
    }

    /// A lease that a session asks for. `ticket`: of a request that has waited before.
    pub(crate) fn lease(
        &mut self,
        ino: Ino,
        mode: LeaseMode,
        ticket: Option<Ticket>,
    ) -> Result<Answer, Stop> {
        let (slot, m) = (self.slot, self.m);
        let attr = self.shards.ns.attr(ino)?;
        if mode == LeaseMode::Exclusive && attr.kind != Kind::File {
            return Err(Refusal::Invalid.into());
        }
        self.may_read(ino)?;
        if attr.is_parted() {
            return Ok(Answer::Lease { mode: LeaseMode::None, attr, is_watched: false });
        }
        // A lease that is being given up is not given again before that is done: the acknowledgement that is under way
        // would take it back from a client that believes to have it.
        if self.clients.leases.is_recalled(ino, slot) {
            return Err(Stop::Wait(Wait::Leases(smallvec![ino])));
        }
        if !self.clients.leases.is_alone(slot) && self.clients.leases.mode(ino, slot) < mode {
            // A new request waits behind those that wait already, unless it is from the session whose lease they all wait for.
            let behind = ticket.is_none()
                && self.clients.leases.is_wanted(ino)
                && !self.clients.leases.is_recalled(ino, slot);
            let keep = if mode == LeaseMode::Exclusive { LeaseMode::None } else { LeaseMode::Shared };
            if behind || self.clients.leases.conflict(ino, slot, keep, m.mono) {
                return Err(Stop::Wait(Wait::Leases(smallvec![ino])));
            }
        }
        let is_watched =
            mode == LeaseMode::Exclusive && self.shards.is_watched(ino, slot, &self.clients.opens)?;
        let mode = self.clients.leases.grant(ino, slot, mode, true, m.mono);
        self.clients.leases.limit(m.mono);
        Ok(Answer::Lease { mode: clamp(mode, &attr), attr, is_watched })
    }
}

impl Shards {
    fn everybody_may_search(&self, dir: Ino) -> Result<bool, Stop> {
        Ok(self.ns.attr(dir)?.is_open())
    }
}

impl Clients {
    /// Waits until no other client has pending operations in a directory.
    #[inline]
    pub(crate) fn see_names(&mut self, dir: Ino, slot: Slot, m: &Moment) -> Result<(), Stop> {
        match self.leases.names_conflict(dir, slot, m.mono) {
            true => Err(Stop::Wait(Wait::Leases(smallvec![dir]))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
