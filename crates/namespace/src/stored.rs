//! Rows as values, for tools that look at a store without a namespace in memory: one decoder for all of them.
//!
//! Invariants:
//! - Every kind of row of the namespace decodes here or is refused with its key; nothing panics, whatever the bytes.
//! - `encode` gives back the key and the value that were decoded, if they were made by a namespace.

use std::cell::Cell;
use std::collections::BTreeMap;

use chiton_model::Decoupling;
use chiton_model::PolicyChange;
use chiton_types::codec::{Malformed, Take};
use chiton_types::{BlockId, Ino, Kind, Mode, Name, Position, Time};

use crate::before_images;
use crate::chunk::Chunk;
use crate::inode::{ACCESS_LIST, APPEND_ONLY, DEFAULT_LIST, IMMUTABLE, INLINE, Inode, MAPPED, XATTRS};
use crate::node::Node;
use crate::paging::{CorruptRow, decode_chunk};
use crate::realm::Parents;
use crate::row::{self, INODE_KEY_BYTES, tag};
use crate::tables::TableValue;
use crate::values::Xattrs;

/// An inode as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInode {
    pub ino: Ino,
    /// Its type, and the fields of that type only.
    pub node: Node,
    pub mode: Mode,
    /// The directory that holds its (latest) entry.
    pub parent: Ino,
    /// Position of its last change.
    pub position: Position,
    /// Names; directories: 2 and one for each directory within.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub btime: Time,
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    pub ctime: Time,
    /// There is a row of content.
    pub inline: bool,
    /// There may be rows of a map.
    pub mapped: bool,
    /// There is a row of extended attributes.
    pub xattrs: bool,
    /// With an access list among them.
    pub access_list: bool,
    /// With a default list among them.
    pub default_list: bool,
    pub immutable: bool,
    pub append_only: bool,
}

/// One row of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredRow {
    /// Row `i`: an inode.
    Inode(StoredInode),
    /// Row `e`: an entry of a directory.
    Entry {
        dir: Ino,
        name: Name,
        /// The inode with that name.
        ino: Ino,
        kind: Kind,
        /// Position of the last change.
        position: Position,
    },
    /// Row `c`: inline content, the target of a symbolic link, or a list of parts.
    Content(Ino, Vec<u8>),
    /// Row `m`: file, number of the chunk, chunk.
    Chunk(Ino, u32, Chunk),
    /// Row `x`: the extended attributes of an inode.
    Xattrs(Ino, BTreeMap<Vec<u8>, Vec<u8>>),
    /// Row `b`: references of a shared block.
    References(BlockId, u32),
    /// Row `G`: a block without references, which the server deletes.
    Garbage(BlockId),
    /// Row `O`: an inode without a name.
    Orphan(Ino),
    /// Row `P`: the policy of a directory.
    Policy(Ino, PolicyChange),
    /// Row `H`: a change of a policy, by its number.
    PolicyChange(u64, PolicyChange),
    /// Row `L`: the directories of a file with several names, one for each name.
    Linked(Ino, Vec<Ino>),
    /// Row `D`: a decoupling.
    Decoupling(Box<Decoupling>),
    /// Row `D` without a number: the number of the last decoupling.
    DecouplingLast(u32),
    /// Row `V`: of a decoupling, the key of a row and its value before others changed it.
    Image(u32, Vec<u8>, Option<Vec<u8>>),
    /// Row `N`: the number of inodes.
    InodeCount(u64),
}

impl StoredRow {
    /// Reads a row; `None` if it is not one of the namespace's.
    ///
    /// # Errors
    /// If it is, but not what the format says.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Option<StoredRow>, CorruptRow> {
        let corrupt = |cause| CorruptRow { key: key.to_vec(), cause };
        StoredRow::read(key, value).map_err(corrupt)
    }

    fn read(key: &[u8], value: &[u8]) -> Result<Option<StoredRow>, Malformed> {
        let bad = |expected| Malformed { expected };
        let empty = || if value.is_empty() { Ok(()) } else { Err(bad("an empty value")) };
        // Of a row of an inode with nothing behind its number.
        let ino = || {
            let whole = (key.len() == INODE_KEY_BYTES).then(|| row::ino_of(key)).flatten();
            whole.ok_or(bad("an inode number"))
        };
        let found = row::tag_of(key);
        let of_plate = |tag| if found == Some(tag) { row::rest_of_plate_row(key, tag) } else { None };
        let row = match found {
            Some(tag::INODE) => {
                let ino = ino()?;
                StoredRow::Inode(Inode::decode(ino, value)?.into())
            }
            Some(tag::ENTRY) => {
                let dir = row::ino_of(key).ok_or(bad("an inode number"))?;
                let (_, name, ino, kind, position) = row::decode_entry(key, value)?;
                StoredRow::Entry { dir, name, ino, kind, position }
            }
            Some(tag::CONTENT) => StoredRow::Content(ino()?, value.to_vec()),
            Some(tag::CHUNK) => {
                let ino = row::ino_of(key).ok_or(bad("an inode number"))?;
                let n = key[INODE_KEY_BYTES..].try_into().map(u32::from_be_bytes);
                let n = n.map_err(|_| bad("the number of a chunk"))?;
                StoredRow::Chunk(ino, n, decode_chunk(value, n)?)
            }
            Some(tag::XATTRS) => StoredRow::Xattrs(ino()?, Xattrs::decode(value)?.0),
            Some(tag::ORPHAN) => {
                empty()?;
                StoredRow::Orphan(ino()?)
            }
            Some(tag::POLICY) => StoredRow::Policy(ino()?, PolicyChange::decode(value)?),
            Some(tag::LINKED) => StoredRow::Linked(ino()?, Parents::decode(value)?.0),
            Some(tag::IMAGE) => {
                let (id, row, value) = before_images::decode(key, value)?;
                StoredRow::Image(id, row, value)
            }
            Some(tag::BLOCK) if of_plate(tag::BLOCK).is_some() => {
                let mut v = Take::new(value);
                let count = u32::try_from(v.varint()?).map_err(|_| bad("a count of references"))?;
                v.finish()?;
                StoredRow::References(row::block_of(key).ok_or(bad("a block's name"))?, count)
            }
            Some(tag::GARBAGE) if of_plate(tag::GARBAGE).is_some() => {
                empty()?;
                StoredRow::Garbage(row::block_of(key).ok_or(bad("a block's name"))?)
            }
            Some(tag::HISTORY) if let Some(version) = of_plate(tag::HISTORY) => {
                let version = version.try_into().map_err(|_| bad("the number of a change"))?;
                StoredRow::PolicyChange(u64::from_be_bytes(version), PolicyChange::decode(value)?)
            }
            Some(tag::DECOUPLING) if of_plate(tag::DECOUPLING) == Some(&[]) => {
                let last = value.try_into().map_err(|_| bad("the number of a decoupling"))?;
                StoredRow::DecouplingLast(u32::from_le_bytes(last))
            }
            Some(tag::DECOUPLING) if let Some(id) = of_plate(tag::DECOUPLING) => {
                let decoupling = Decoupling::decode(value)?;
                if id != decoupling.id.0.to_be_bytes() {
                    return Err(bad("the number of a decoupling"));
                }
                StoredRow::Decoupling(Box::new(decoupling))
            }
            Some(tag::COUNT) if of_plate(tag::COUNT) == Some(&[]) => {
                let count = value.try_into().map_err(|_| bad("the number of inodes in 8 bytes"))?;
                StoredRow::InodeCount(u64::from_le_bytes(count))
            }
            _ => return Ok(None),
        };
        Ok(Some(row))
    }

    pub fn key(&self) -> Vec<u8> {
        match self {
            StoredRow::Inode(inode) => row::inode_key(inode.ino),
            StoredRow::Entry { dir, name, .. } => row::entry_key(*dir, name.hash64(), name.as_bytes()),
            StoredRow::Content(ino, _) => row::content_key(*ino),
            StoredRow::Chunk(ino, n, _) => row::chunk_key(*ino, *n),
            StoredRow::Xattrs(ino, _) => row::xattrs_key(*ino),
            StoredRow::References(block, _) => row::block_key(*block),
            StoredRow::Garbage(block) => row::garbage_key(*block),
            StoredRow::Orphan(ino) => row::orphan_key(*ino),
            StoredRow::Policy(ino, _) => row::policy_key(*ino),
            StoredRow::PolicyChange(version, _) => row::history_key(*version),
            StoredRow::Linked(ino, _) => row::linked_key(*ino),
            StoredRow::Decoupling(decoupling) => row::decoupling_key(decoupling.id.0),
            StoredRow::DecouplingLast(_) => row::decoupling_last_key(),
            StoredRow::Image(id, row, _) => before_images::image_key(*id, row),
            StoredRow::InodeCount(_) => row::count_key(),
        }
    }

    pub fn value(&self) -> Vec<u8> {
        match self {
            StoredRow::Inode(inode) => Inode::from(inode).encode(),
            StoredRow::Entry { ino, kind, position, .. } => row::encode_entry(*ino, *kind, *position),
            StoredRow::Content(_, bytes) => bytes.clone(),
            StoredRow::Chunk(_, _, chunk) => TableValue::encode(chunk),
            StoredRow::Xattrs(_, all) => Xattrs(all.clone()).encode(),
            StoredRow::References(_, count) => count.encode(),
            StoredRow::Garbage(_) | StoredRow::Orphan(_) => Vec::new(),
            StoredRow::Policy(_, change) | StoredRow::PolicyChange(_, change) => change.encode(),
            StoredRow::Linked(_, dirs) => Parents(dirs.clone()).encode(),
            StoredRow::Decoupling(decoupling) => decoupling.encode(),
            StoredRow::DecouplingLast(last) => last.to_le_bytes().to_vec(),
            StoredRow::Image(_, _, value) => before_images::encode(value.as_deref()),
            StoredRow::InodeCount(count) => count.to_le_bytes().to_vec(),
        }
    }
}

pub fn entry_row_key(dir: Ino, name: &Name) -> Vec<u8> {
    row::entry_key(dir, name.hash64(), name.as_bytes())
}

/// The directory and the name in the key of an entry's row, whatever its value. `None` if it is no such key.
pub fn entry_of_key(key: &[u8]) -> Option<(Ino, Name)> {
    if row::tag_of(key) != Some(tag::ENTRY) {
        return None;
    }
    let (_, name) = row::decode_entry_key(key).ok()?;
    Some((row::ino_of(key)?, name))
}

impl From<Inode> for StoredInode {
    fn from(i: Inode) -> StoredInode {
        StoredInode {
            ino: i.ino,
            node: i.node,
            mode: i.mode,
            parent: i.parent,
            position: i.position,
            nlink: i.nlink,
            uid: i.uid,
            gid: i.gid,
            btime: i.btime,
            atime: i.atime,
            mtime: i.mtime,
            ctime: i.ctime,
            inline: i.has(INLINE),
            mapped: i.has(MAPPED),
            xattrs: i.has(XATTRS),
            access_list: i.has(ACCESS_LIST),
            default_list: i.has(DEFAULT_LIST),
            immutable: i.has(IMMUTABLE),
            append_only: i.has(APPEND_ONLY),
        }
    }
}

impl From<&StoredInode> for Inode {
    fn from(i: &StoredInode) -> Inode {
        let flag = |on, bit| if on { bit } else { 0 };
        Inode {
            ino: i.ino,
            parent: i.parent,
            position: i.position,
            node: i.node,
            atime: i.atime,
            mtime: i.mtime,
            ctime: i.ctime,
            btime: i.btime,
            uid: i.uid,
            gid: i.gid,
            nlink: i.nlink,
            mode: i.mode,
            flags: flag(i.inline, INLINE)
                | flag(i.mapped, MAPPED)
                | flag(i.xattrs, XATTRS)
                | flag(i.access_list, ACCESS_LIST)
                | flag(i.default_list, DEFAULT_LIST)
                | flag(i.immutable, IMMUTABLE)
                | flag(i.append_only, APPEND_ONLY),
            marks: Cell::new(0),
        }
    }
}
