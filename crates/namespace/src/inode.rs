//! An inode in memory (96 bytes) and as a row.

use std::cell::Cell;

use chiton_model::AttrFields;
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Attr, Ino, Kind, Mode, Position, Time};

use crate::dirty::Marks;
use crate::node::{Node, Share};
use crate::permission::{ACL_ACCESS, ACL_DEFAULT};
use crate::values::Xattrs;

/// The content is inline: there is a content row.
pub(crate) const INLINE: u8 = 1;
/// The content is in blocks: chunk rows map it.
pub(crate) const MAPPED: u8 = 2;
/// There is a row of extended attributes.
pub(crate) const XATTRS: u8 = 4;
/// One of these attributes is the access list.
pub(crate) const ACCESS_LIST: u8 = 8;
/// One of them is the default list of a directory.
pub(crate) const DEFAULT_LIST: u8 = 16;
/// The flags about the row of extended attributes.
pub(crate) const OF_XATTRS: u8 = XATTRS | ACCESS_LIST | DEFAULT_LIST;
/// The file is immutable (`chattr +i`).
pub(crate) const IMMUTABLE: u8 = 32;
/// The file is append-only (`chattr +a`).
pub(crate) const APPEND_ONLY: u8 = 64;
/// Those that `chattr` sets.
pub(crate) const SETTABLE: u8 = IMMUTABLE | APPEND_ONLY;
const STORED_FLAGS: u8 = INLINE | MAPPED | OF_XATTRS | SETTABLE;
/// In memory only: all entries of the directory, or all chunks of the file's map, are in memory.
pub(crate) const COMPLETE: u8 = 128;

/// An inode in memory.
#[derive(Clone, Debug)]
pub struct Inode {
    pub ino: Ino,
    /// The directory that it is in; of a file with several names, one of them.
    pub parent: Ino,
    /// Position of the last change.
    pub position: Position,
    /// Its type, and the fields of that type only.
    pub node: Node,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub(crate) btime: Time,
    pub uid: u32,
    pub gid: u32,
    /// Number of names; of a directory 2, and one for each directory in it.
    pub nlink: u32,
    pub mode: Mode,
    pub(crate) flags: u8,
    pub(crate) marks: Marks,
}

const _: () = assert!(size_of::<Inode>() <= 96);

impl Inode {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the content is inline: there is a content row.
    pub fn is_inline(&self) -> bool {
        self.has(INLINE)
    }

    /// Whether the content is in blocks: chunk rows map it.
    pub fn is_mapped(&self) -> bool {
        self.has(MAPPED)
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        self.node.kind()
    }

    /// Where a file ends, or a link's target; 0 for all else.
    #[inline]
    pub fn size(&self) -> u64 {
        self.node.size()
    }

    /// Number of entries of a directory; 0 for all else.
    #[inline]
    pub fn entries(&self) -> u64 {
        self.node.entries()
    }

    /// Bytes of content of a file or a link, inline or mapped; 0 for all else.
    pub fn content_bytes(&self) -> u64 {
        self.node.bytes()
    }

    /// A directory gets or loses entries.
    ///
    /// # Panics
    /// If it loses more than it has.
    pub(crate) fn change_entries(&mut self, by: i64) {
        let entries = self.entries().checked_add_signed(by);
        self.node.set_entries(entries.expect("a directory loses no more entries than it has"));
    }

    /// A directory gets or loses subdirectories. One of a removed tree has no links to count.
    pub(crate) fn change_subdirs(&mut self, by: i32) {
        if self.nlink > 0 {
            self.nlink = self.nlink.wrapping_add_signed(by);
        }
    }

    /// Position of the last change of the inode's own fields: for directories, entries do not count.
    pub fn attrs_changed(&self) -> Position {
        if let Node::Dir { attrs_changed, .. } = self.node { attrs_changed } else { self.position }
    }

    pub(crate) fn note_attrs_changed(&mut self, position: Position) {
        if let Node::Dir { attrs_changed, .. } = &mut self.node {
            *attrs_changed = position;
        }
    }

    pub(crate) fn attr(&self) -> Attr {
        Attr {
            ino: self.ino,
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.node.rdev(),
            size: if let Node::Dir { entries, .. } = self.node { entries * 32 } else { self.size() },
            allocated: self.content_bytes(),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            parent: self.parent,
            flags: self.attr_flags(),
            position: self.position,
        }
    }

    pub(crate) fn fields(&mut self) -> AttrFields<'_> {
        let Inode { mode, uid, gid, atime, mtime, ctime, .. } = self;
        AttrFields { mode, uid, gid, atime, mtime, ctime }
    }

    /// Bits of [`Attr::flags`].
    pub(crate) fn attr_flags(&self) -> u8 {
        let flag = |of_row: u8, of_attr: u8| if self.has(of_row) { of_attr } else { 0 };
        flag(ACCESS_LIST, Attr::ACCESS_LIST)
            | flag(DEFAULT_LIST, Attr::DEFAULT_LIST)
            | flag(XATTRS, Attr::XATTRS)
            | flag(IMMUTABLE, Attr::IMMUTABLE)
            | flag(APPEND_ONLY, Attr::APPEND_ONLY)
            | match self.node.share() {
                Share::All => 0,
                Share::Home => Attr::HAS_PARTS,
                Share::Part => Attr::PART,
            }
    }

    /// Becomes immutable or append-only, or no longer ([`Attr::SETTABLE`]).
    pub(crate) fn set_flags(&mut self, of_attr: u8) {
        let flag = |of: u8, of_row: u8| if of_attr & of != 0 { of_row } else { 0 };
        self.flags &= !SETTABLE;
        self.flags |= flag(Attr::IMMUTABLE, IMMUTABLE) | flag(Attr::APPEND_ONLY, APPEND_ONLY);
    }

    /// The row's value. Times are stored as their distance from the birth time.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(64);
        v.put_u8(self.kind() as u8);
        v.put_u8(self.flags & STORED_FLAGS);
        v.put_u16(self.mode.0);
        v.put_u64(self.parent.0);
        v.put_varint(self.position.0);
        v.put_varint(u64::from(self.nlink));
        v.put_varint(u64::from(self.uid));
        v.put_varint(u64::from(self.gid));
        self.node.encode(&mut v);
        v.put_i64(self.btime.0);
        for t in [self.atime, self.mtime, self.ctime] {
            v.put_varint(zigzag(t.0.wrapping_sub(self.btime.0)));
        }
        v
    }

    pub(crate) fn decode(ino: Ino, value: &[u8]) -> Result<Inode, Malformed> {
        let mut v = Take::new(value);
        let small = |n: u64| u32::try_from(n).map_err(|_| Malformed { expected: "a number of 32 bits" });
        let kind = Kind::from_u8(v.u8()?).ok_or(Malformed { expected: "a type of inode" })?;
        let flags = v.u8()? & STORED_FLAGS;
        let mode = Mode(v.u16()?);
        let parent = Ino(v.u64()?);
        let position = Position(v.varint()?);
        let nlink = small(v.varint()?)?;
        let uid = small(v.varint()?)?;
        let gid = small(v.varint()?)?;
        let node = Node::decode(kind, &mut v)?;
        let btime = Time(v.i64()?);
        let mut time = || Ok(Time(btime.0.wrapping_add(unzigzag(v.varint()?))));
        let (atime, mtime, ctime) = (time()?, time()?, time()?);
        v.finish()?;
        Ok(Inode {
            ino,
            parent,
            position,
            node,
            atime,
            mtime,
            ctime,
            btime,
            uid,
            gid,
            nlink,
            mode,
            flags,
            marks: Cell::new(0),
        })
    }
}

/// The flags of an inode about its row of extended attributes.
pub(crate) fn xattr_flags(xattrs: &Xattrs) -> u8 {
    let flag = |name: &[u8], flag| if xattrs.0.contains_key(name) { flag } else { 0 };
    let any = if xattrs.0.is_empty() { 0 } else { XATTRS };
    any | flag(ACL_ACCESS, ACCESS_LIST) | flag(ACL_DEFAULT, DEFAULT_LIST)
}

fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let inode = |node| Inode {
            ino: Ino(77),
            parent: Ino(1),
            position: Position(12),
            node,
            atime: Time(-3),
            mtime: Time(i64::MAX),
            ctime: Time(1_700_000_000_000_000_000),
            btime: Time(1_600_000_000_000_000_000),
            uid: 1000,
            gid: u32::MAX,
            nlink: 2,
            mode: Mode(0o6755),
            flags: INLINE | COMPLETE,
            marks: Cell::new(0),
        };
        let file = Node::File { size: 6, bytes: 5 };
        let dir = Node::Dir { entries: 3, attrs_changed: Position(1 << 40), share: Share::Home };
        let nodes = [file, dir, Node::Symlink { target_bytes: 9 }, Node::Char { rdev: 0 }];
        for node in nodes.into_iter().chain([Node::Block { rdev: u32::MAX }, Node::Fifo, Node::Socket]) {
            let inode = inode(node);
            let value = inode.encode();
            let back = Inode::decode(Ino(77), &value).unwrap();
            assert_eq!((back.attr(), back.node), (inode.attr(), node));
            assert_eq!(back.flags, INLINE);
            for n in 0..value.len() {
                assert!(Inode::decode(Ino(77), &value[..n]).is_err(), "{node:?}: {n}");
            }
        }
    }
}
