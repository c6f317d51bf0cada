//! Events become state. Never refuses: the rows that an event needs are in memory, or the caller has a bug (or replays a
//! journal onto a store that it does not belong to), which stops the process with a message.
//!
//! Invariants:
//! - Applying the same events to the same state gives the same state, on any machine.
//! - Only rows of own shards change: each plate carries out its part of the same event. It knows the types of the other inodes
//!   from the event.

mod content;
mod fit;
mod parts;

pub use fit::Misfit;

use std::cell::Cell;

use chiton_model::{Body, Event, InodeTouch, Over, Role};
use chiton_types::{Ino, Kind, Name, Position, Time};

use crate::dirty::{DirtyKey, FRESH, REFERENCED};
use crate::fault::{Fault, Need};
use crate::inode::{COMPLETE, INLINE, Inode, OF_XATTRS, XATTRS, xattr_flags};
use crate::namespace::{Namespace, RowChange};
use crate::node::Node;
use crate::realm::LinkedFile;
use crate::row;
use crate::values::{ContentKey, OrphanKey, Present, Xattrs, XattrsKey};

fn born(event: &Event, position: Position) -> Option<Inode> {
    let Event::Make { parent, ino, kind, mode, uid, gid, rdev, time, content, .. } = event else {
        return None;
    };
    Some(Inode {
        ino: *ino,
        parent: *parent,
        position,
        node: Node::new(*kind, content.len() as u64, *rdev),
        atime: *time,
        mtime: *time,
        ctime: *time,
        btime: *time,
        uid: *uid,
        gid: *gid,
        nlink: if *kind == Kind::Dir { 2 } else { 1 },
        mode: *mode,
        flags: COMPLETE,
        marks: Cell::new(FRESH | REFERENCED),
    })
}

impl Namespace {
    /// Carries out an event. Everything that [`Namespace::needs`] names must be in memory.
    ///
    /// # Panics
    /// If it is not, or if the event does not fit the state.
    pub fn apply(&mut self, event: &Event, position: Position) {
        self.begin_keeping(event);
        self.carry_out(event, position);
        self.end_keeping();
    }

    fn carry_out(&mut self, event: &Event, position: Position) {
        match event {
            Event::Make { parent, name, ino, kind, time, content, .. } => {
                let is_dir = *kind == Kind::Dir;
                if self.owns(*ino) {
                    let mut inode = born(event, position).expect("this event makes an inode");
                    if !content.is_empty() {
                        inode.flags |= INLINE;
                        let value: Box<[u8]> = content.as_slice().into();
                        self.contents.change(ContentKey(*ino), &mut self.dirty, true, |v| *v = Some(value));
                    }
                    self.dirty
                        .before_change(&inode.marks, DirtyKey::Inode(*ino), || (row::inode_key(*ino), None));
                    self.inodes.insert(inode);
                    self.inode_count += 1;
                }
                if self.owns(*parent) {
                    self.set_entry(*parent, name, Some((*ino, *kind)), position);
                    let dir = self.changing(*parent, position);
                    dir.change_entries(1);
                    dir.nlink += u32::from(is_dir);
                    touch_dir(dir, *time);
                }
            }
            Event::Link { parent, name, ino, kind, time } => {
                if self.owns(*ino) {
                    let inode = self.changing(*ino, position);
                    inode.nlink += 1;
                    inode.ctime = inode.ctime.max(*time);
                    let file = LinkedFile::from(&*inode);
                    self.linked_more(&file, *parent);
                }
                self.set_entry(*parent, name, Some((*ino, *kind)), position);
                if self.owns(*parent) {
                    let dir = self.changing(*parent, position);
                    dir.change_entries(1);
                    touch_dir(dir, *time);
                }
            }
            Event::Restore { parent, name, ino, time } => {
                let inode = self.changing(*ino, position);
                let is_dir = inode.kind() == Kind::Dir;
                inode.nlink = if is_dir { 2 } else { 1 };
                inode.parent = *parent;
                inode.ctime = inode.ctime.max(*time);
                let kind = inode.kind();
                self.orphans.change(OrphanKey(*ino), &mut self.dirty, false, |v| *v = None);
                self.set_entry(*parent, name, Some((*ino, kind)), position);
                let dir = self.changing(*parent, position);
                dir.change_entries(1);
                dir.nlink += u32::from(is_dir);
                touch_dir(dir, *time);
            }
            Event::Unlink { parent, name, ino, orphan, kind, time } => {
                if self.has_decouplings() {
                    self.note_contested(*ino, *parent, name, false);
                }
                self.lose_name((*ino, *parent), *orphan, *time, position);
                if self.owns(*parent) {
                    let was_dir = *kind == Kind::Dir;
                    self.set_entry(*parent, name, None, position);
                    let dir = self.changing(*parent, position);
                    dir.change_entries(-1);
                    dir.change_subdirs(-i32::from(was_dir));
                    touch_dir(dir, *time);
                }
            }
            Event::Rename { from, from_name, to, to_name, ino, kind, over, time } => {
                self.apply_rename((*from, from_name), (*to, to_name), (*ino, *kind), *over, *time, position);
            }
            Event::SetAttr { ino, .. } | Event::Flags { ino, .. } | Event::Reclaim { ino, .. }
                if !self.owns(*ino) => {}
            Event::SetAttr { ino, size, .. } => {
                if let Some(size) = size {
                    self.truncate(*ino, *size, position);
                }
                let inode = self.changing(*ino, position);
                event.set_fields(inode.fields());
                inode.note_attrs_changed(position);
            }
            Event::Write { ino, body, size, .. } => {
                self.write(*ino, body, *size, position);
                event.set_fields(self.changing(*ino, position).fields());
            }
            Event::Clone { from, from_offset, to, to_offset, len, time } => {
                self.clone_range((*from, *from_offset), (*to, *to_offset), *len, position);
                let inode = self.changing(*to, position);
                inode.mtime = *time;
                inode.ctime = inode.ctime.max(*time);
            }
            Event::Remap { ino, extents } => self.overlay(*ino, extents, position),
            Event::Revert { ino, to } => self.revert(*ino, to, position),
            Event::Xattr { ino, .. } if !self.owns(*ino) => {}
            Event::Xattr { ino, name, value, ctime } => {
                let inode = self.changing(*ino, position);
                inode.ctime = inode.ctime.max(*ctime);
                let had = inode.flags & XATTRS != 0;
                let left = self.xattrs.change(XattrsKey(*ino), &mut self.dirty, !had, |all| {
                    let xattrs = all.get_or_insert_with(Xattrs::default);
                    match value {
                        Some(value) => xattrs.0.insert(name.clone(), value.clone()),
                        None => xattrs.0.remove(name),
                    };
                    let left = xattr_flags(xattrs);
                    if left == 0 {
                        *all = None;
                    }
                    left
                });
                let inode = self.changing(*ino, position);
                inode.flags = inode.flags & !OF_XATTRS | left;
                inode.note_attrs_changed(position);
            }
            Event::Flags { ino, ctime, flags } => {
                let inode = self.changing(*ino, position);
                inode.ctime = inode.ctime.max(*ctime);
                inode.set_flags(*flags);
                inode.note_attrs_changed(position);
            }
            Event::Touch { ino, time } => touch_dir(self.changing(*ino, position), *time),
            Event::Parts { ino, parts } => self.apply_parts(*ino, parts, position),
            Event::Part { ino, .. } if !self.owns(*ino) => {}
            Event::Part { .. } => self.apply_part(event, position),
            Event::Moved { kind, from, to, ino, name } => {
                self.apply_moved((*from, *to), name, (*ino, *kind), position);
            }
            Event::Detached { ino, time } => self.apply_detached(*ino, *time, position),
            Event::Folded { ino, first } => self.apply_folded(*ino, *first, position),
            Event::Parent { ino, from, to } => self.apply_parent(*ino, (*from, *to), position),
            Event::Reclaim { ino, from_chunk } => self.reclaim(*ino, *from_chunk, position),
            Event::Swept { blocks } => {
                for &block in blocks {
                    self.garbage
                        .change(crate::values::GarbageKey(block), &mut self.dirty, false, |v| *v = None);
                }
            }
            Event::Policy(change) => self.apply_policy(change),
            Event::Decoupled(decoupling) => self.apply_decoupled(decoupling),
            Event::Attached(attached) => self.apply_attached(attached),
            Event::Granted { id, ranges } => self.apply_granted(*id, ranges),
            Event::Merged(merged) => self.apply_merged(merged),
            Event::DecouplingEnded { id } => self.apply_decoupling_ended(*id),
            Event::Reserve { .. }
            | Event::SessionOpened { .. }
            | Event::SessionClosed { .. }
            | Event::Skipped { .. }
            | Event::Owes { .. }
            | Event::CarriedOut { .. }
            | Event::Settled { .. }
            | Event::Guarded { .. }
            | Event::GuardEnded { .. }
            | Event::Lent { .. }
            | Event::PeerOpened { .. }
            | Event::Refused { .. } => {}
        }
    }

    /// The rows that must be fetched before `event` can be applied (for replay; none after `plan`).
    pub fn needs(&self, event: &Event) -> Vec<Need> {
        let mut needs = Vec::new();
        // Of one that is merged and alone nothing is kept.
        if self.decoupling_count > 1 || (self.decoupling_count == 1 && self.merging.is_none()) {
            self.needs_images(event, &mut needs);
        }
        let footprint = event.footprint();
        let is_here = |touch: &&InodeTouch| touch.role != Role::Newborn && self.owns(touch.ino);
        for touch in footprint.inodes().iter().filter(is_here) {
            needs.extend(missing(self.inode(touch.ino).map(drop)));
        }
        for change in footprint.names().filter(|_| !matches!(event, Event::Make { .. })) {
            needs.extend(missing(self.decoupled_root(change.dir).map(drop)));
            if let Some(ino) = change.before.filter(|ino| self.owns(*ino)) {
                needs.extend(missing(self.linked_as(ino, change.dir).map(drop)));
            }
        }
        if !needs.is_empty() {
            return needs;
        }
        // An absent inode needs nothing: the event does not fit.
        let inode = |ino: &Ino| self.inode(*ino).ok();
        if let Event::SetAttr { ino, size: Some(size), .. } = event
            && let Some(found) = inode(ino)
        {
            needs.extend(missing(self.truncatable(found, *size)));
        }
        if let Event::Write { ino, body: Body::Extents(extents), .. } | Event::Remap { ino, extents } = event
            && let Some(found) = inode(ino)
        {
            needs.extend(missing(self.replaceable(found, extents)));
        }
        if let Event::Revert { ino, to } = event
            && let Some(found) = inode(ino)
        {
            needs.extend(missing(self.revertible(found, to)));
        }
        if let Event::Clone { from, from_offset, to, to_offset, len, .. } = event
            && let (Some(source), Some(target)) = (inode(from), inode(to))
        {
            let source_range = (*from_offset, from_offset + len);
            let target_range = (*to_offset, to_offset + len);
            needs.extend(missing(self.clonable(source, source_range, target, target_range)));
        }
        if let Event::Xattr { ino, .. } = event
            && let Some(found) = inode(ino)
        {
            needs.extend(missing(self.xattrs_of(found).map(drop)));
        }
        if let Event::Reclaim { ino, .. } = event
            && let Some(found) = inode(ino)
        {
            needs.extend(missing(self.reclaim_from(found).map(drop)));
        }
        needs
    }

    /// The rows that must be fetched before these events can be applied, one after the other. An inode that one of them makes is nowhere yet, and the
    /// events behind it need nothing of it.
    pub fn needs_all(&self, events: &[Event]) -> Vec<Need> {
        let mut needs: Vec<Need> = events.iter().flat_map(|event| self.needs(event)).collect();
        if events.len() > 1 && !needs.is_empty() {
            let born: Vec<Ino> = events.iter().filter_map(|event| event.footprint().newborn()).collect();
            needs.retain(|need| !matches!(need, Need::Inode(ino) if born.contains(ino)));
        }
        needs
    }

    /// The rows that must be fetched to find out whether the names that `event` takes from inodes are there (for replay over a state
    /// that others may have changed meanwhile).
    pub fn needs_names(&self, event: &Event) -> Vec<Need> {
        let needs =
            |dir: Ino, name: &Name| missing(self.inode(dir).and_then(|dir| self.entry(dir, name)).map(drop));
        let footprint = event.footprint();
        let taken = footprint.names().filter(|change| change.before.is_some());
        taken.flat_map(|change| needs(change.dir, change.name)).collect()
    }

    /// The inode, about to be changed by the event at `position`.
    #[inline]
    pub(crate) fn changing(&mut self, ino: Ino, position: Position) -> &mut Inode {
        let inode = match self.inodes.get_mut(ino) {
            Some(inode) => inode,
            None => panic!("event at position {position} changes inode {ino}, which is not in memory"),
        };
        self.dirty.before_change(&inode.marks, DirtyKey::Inode(ino), || {
            (row::inode_key(ino), Some(inode.encode()))
        });
        inode.position = position;
        inode
    }

    /// Gives a name a target, or takes it away.
    #[inline]
    pub(super) fn set_entry(
        &mut self,
        dir: Ino,
        name: &Name,
        target: Option<(Ino, Kind)>,
        position: Position,
    ) {
        if !self.owns(dir) {
            return;
        }
        let (hash, bytes) = (name.hash64(), name.as_bytes());
        let complete = self.inodes.get(dir).is_some_and(|d| d.has(COMPLETE));
        let held = self.dirs.entry(dir).or_default();
        let (slot, new) = held.slot(hash, bytes, if complete { FRESH } else { 0 });
        if new {
            self.entries += 1;
            self.name_bytes += bytes.len();
        }
        self.dirty.before_change(&slot.marks, DirtyKey::Entry(dir, hash), || {
            let value = slot.kind().map(|kind| row::encode_entry(slot.ino, kind, slot.position));
            (row::entry_key(dir, hash, bytes), value)
        });
        match target {
            Some(_) => self.name_filters.add(dir, hash),
            None if slot.kind().is_some() => self.name_filters.remove(dir),
            None => {}
        }
        slot.set(target, position);
        if target.is_none() && self.dirty.is_traceless(&slot.marks) {
            held.remove(hash, bytes);
            self.entries -= 1;
            self.name_bytes -= bytes.len();
        }
    }

    /// An inode lost a name: the last one ends it or makes it an orphan.
    fn lose_name(&mut self, (ino, from): (Ino, Ino), orphan: bool, time: Time, position: Position) {
        if !self.owns(ino) {
            // Every plate has all policies, also of directories of others.
            self.end_policy(ino);
            return;
        }
        let inode = self.changing(ino, position);
        let is_dir = inode.kind() == Kind::Dir;
        inode.nlink = if is_dir { 0 } else { inode.nlink - 1 };
        inode.ctime = inode.ctime.max(time);
        if inode.nlink > 0 {
            let known = self.linked_as(ino, from).unwrap_or(from);
            if let Some(left) = self.linked_less(ino, known) {
                let inode = self.changing(ino, position);
                inode.parent = if inode.parent == known { left } else { inode.parent };
            }
            return;
        }
        if is_dir {
            self.end_policy(ino);
            self.forget_decoupled(ino);
        }
        if orphan {
            self.orphans.change(OrphanKey(ino), &mut self.dirty, false, |v| *v = Some(Present));
        } else {
            self.end_inode(ino);
        }
    }

    /// Removes an inode whose map is empty, with the rows that hang on it.
    fn end_inode(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.remove(ino) else { panic!("inode {ino} ends twice") };
        if inode.has(INLINE) {
            self.contents.change(ContentKey(ino), &mut self.dirty, false, |v| *v = None);
        }
        if inode.has(XATTRS) {
            self.xattrs.change(XattrsKey(ino), &mut self.dirty, false, |v| *v = None);
        }
        if inode.kind() == Kind::Dir {
            self.dead_dirs.push(ino);
        }
        self.dirty.before_change(&inode.marks, DirtyKey::Inode(ino), || -> RowChange {
            (row::inode_key(ino), Some(inode.encode()))
        });
        if !self.dirty.is_traceless(&inode.marks) {
            self.inodes.note_dead(ino).set(inode.marks.get() & !REFERENCED);
        }
        // In a subtree alone others may have removed inodes meanwhile that are counted here.
        self.inode_count = self.inode_count.saturating_sub(1);
    }

    fn apply_rename(
        &mut self,
        (from, from_name): (Ino, &Name),
        (to, to_name): (Ino, &Name),
        (ino, kind): (Ino, Kind),
        over: Over,
        time: Time,
        position: Position,
    ) {
        if self.has_decouplings() {
            self.note_contested(ino, from, from_name, true);
            match over {
                Over::Exchanged { ino: other, .. } => self.note_contested(other, to, to_name, true),
                Over::Replaced { ino: victim, .. } => self.note_contested(victim, to, to_name, false),
                Over::Nothing => {}
            }
        }
        self.move_to(ino, to, time, position);
        let dirs = |kind: Kind| u32::from(kind == Kind::Dir);
        if kind != Kind::Dir {
            self.linked_moved(ino, self.linked_as(ino, from).unwrap_or(from), to);
        }
        let mut gained = dirs(kind);
        let mut lost = dirs(kind);
        match over {
            Over::Exchanged { ino: other, kind: other_kind } => {
                self.move_to(other, from, time, position);
                if other_kind != Kind::Dir {
                    self.linked_moved(other, self.linked_as(other, to).unwrap_or(to), from);
                }
                gained = gained.wrapping_sub(dirs(other_kind));
                lost = lost.wrapping_sub(dirs(other_kind));
                self.set_entry(from, from_name, Some((other, other_kind)), position);
            }
            Over::Replaced { ino: victim, kind: victim_kind, orphan } => {
                self.set_entry(from, from_name, None, position);
                self.lose_name((victim, to), orphan, time, position);
                gained = gained.wrapping_sub(dirs(victim_kind));
            }
            Over::Nothing => self.set_entry(from, from_name, None, position),
        }
        self.set_entry(to, to_name, Some((ino, kind)), position);
        let exchanged = matches!(over, Over::Exchanged { .. });
        if self.owns(from) {
            let from_dir = self.changing(from, position);
            from_dir.change_subdirs(0i32.wrapping_sub_unsigned(lost));
            from_dir.change_entries(-i64::from(!exchanged));
            touch_dir(from_dir, time);
        }
        if self.owns(to) {
            let to_dir = self.changing(to, position);
            to_dir.change_subdirs(0i32.wrapping_add_unsigned(gained));
            to_dir.change_entries(i64::from(over == Over::Nothing));
            touch_dir(to_dir, time);
        }
    }

    /// An inode gets a name in another directory, or another name there.
    fn move_to(&mut self, ino: Ino, dir: Ino, time: Time, position: Position) {
        if !self.owns(ino) {
            return;
        }
        let inode = self.changing(ino, position);
        inode.ctime = inode.ctime.max(time);
        inode.parent = dir;
    }
}

/// The entries changed. An operation that was sent again may bring an older time than the last change: then the
/// later stays. (The mtime alone does not show it: callers may set it, also to the future.)
fn touch_dir(dir: &mut Inode, time: Time) {
    if time >= dir.ctime {
        (dir.mtime, dir.ctime) = (time, time);
    }
}

fn missing(result: Result<(), Fault>) -> Vec<Need> {
    match result {
        Err(Fault::Missing(needs)) => needs,
        _ => Vec::new(),
    }
}
