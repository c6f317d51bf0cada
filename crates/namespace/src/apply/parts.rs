//! Directories with parts: the list in the home's content row, and the range in a part's.

use std::cell::Cell;

use chiton_model::{Event, PartRange, encode_parts};
use chiton_types::{Ino, Kind, Name, Position, Time};

use crate::dirty::{DirtyKey, FRESH, REFERENCED};
use crate::inode::{COMPLETE, INLINE, Inode};
use crate::namespace::Namespace;
use crate::node::{Node, Share};
use crate::row;
use crate::values::{ContentKey, OrphanKey, Present};

impl Namespace {
    /// A directory has these parts.
    pub(super) fn apply_parts(&mut self, ino: Ino, parts: &[PartRange], position: Position) {
        if !self.owns(ino) {
            return;
        }
        let inode = self.changing(ino, position);
        let had = inode.has(INLINE);
        if parts.is_empty() {
            inode.flags &= !INLINE;
            inode.node.set_share(Share::All);
            if had {
                self.contents.change(ContentKey(ino), &mut self.dirty, false, |v| *v = None);
            }
            return;
        }
        inode.flags |= INLINE;
        inode.node.set_share(Share::Home);
        self.set_content(ino, encode_parts(parts), !had);
    }

    /// A part begins to exist on this plate.
    pub(super) fn apply_part(&mut self, event: &Event, position: Position) {
        let Event::Part { home, ino, first, last, mode, uid, gid, time } = event else { return };
        let mut node = Node::new(Kind::Dir, 0, 0);
        node.set_share(Share::Part);
        let inode = Inode {
            ino: *ino,
            parent: *home,
            position,
            node,
            atime: *time,
            mtime: *time,
            ctime: *time,
            btime: *time,
            uid: *uid,
            gid: *gid,
            nlink: 2,
            mode: *mode,
            flags: COMPLETE | INLINE,
            marks: Cell::new(FRESH | REFERENCED),
        };
        self.dirty.before_change(&inode.marks, DirtyKey::Inode(*ino), || (row::inode_key(*ino), None));
        self.inodes.insert(inode);
        self.inode_count += 1;
        self.set_content(*ino, range_row(*first, *last), true);
    }

    /// A part has no names any more.
    pub(super) fn apply_folded(&mut self, ino: Ino, first: u64, position: Position) {
        if self.owns(ino) {
            self.changing(ino, position);
            self.set_content(ino, range_row(first, u64::MAX), false);
        }
    }

    /// The directory of a part was removed with its content.
    pub(super) fn apply_detached(&mut self, ino: Ino, time: Time, position: Position) {
        if self.owns(ino) {
            let part = self.changing(ino, position);
            part.nlink = 0;
            part.ctime = part.ctime.max(time);
            self.orphans.change(OrphanKey(ino), &mut self.dirty, false, |v| *v = Some(Present));
        }
    }

    /// A name goes to a part.
    pub(super) fn apply_moved(
        &mut self,
        (from, to): (Ino, Ino),
        name: &Name,
        (ino, kind): (Ino, Kind),
        position: Position,
    ) {
        for (dir, target, change) in [(from, None, -1), (to, Some((ino, kind)), 1)] {
            if self.owns(dir) {
                self.set_entry(dir, name, target, position);
                let dir = self.changing(dir, position);
                dir.change_entries(change.into());
                dir.change_subdirs(change * i32::from(kind == Kind::Dir));
            }
        }
    }

    /// An inode is in another inode of its directory.
    pub(super) fn apply_parent(&mut self, ino: Ino, (from, to): (Ino, Ino), position: Position) {
        // It may have ended since the plate of the directory named it.
        if !self.owns(ino) || self.inodes.get(ino).is_none() {
            return;
        }
        if self.inodes.get(ino).is_some_and(|inode| inode.parent == from) {
            self.changing(ino, position).parent = to;
        }
        self.linked_moved(ino, from, to);
    }

    fn set_content(&mut self, ino: Ino, bytes: Vec<u8>, is_new: bool) {
        let value: Box<[u8]> = bytes.into();
        self.contents.change(ContentKey(ino), &mut self.dirty, is_new, |v| *v = Some(value));
    }
}

/// The content row of a part.
fn range_row(first: u64, last: u64) -> Vec<u8> {
    [first.to_le_bytes(), last.to_le_bytes()].concat()
}
