//! Keys and values of the side tables, with their encodings.

use std::collections::BTreeMap;

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{BlockId, Ino};

use crate::chunk::Chunk;
use crate::dirty::DirtyKey;
use crate::row;
use crate::tables::{TableKey, TableValue};

macro_rules! side_key {
    ($(#[$doc:meta])* $name:ident($($field:ty),+), $dirty:ident, $row:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name($(pub(crate) $field),+);
        side_key!(@impl $name, $dirty, $row; $($field),+);
    };
    (@impl $name:ident, $dirty:ident, $row:path; $a:ty) => {
        impl TableKey for $name {
            fn dirty(self) -> DirtyKey { DirtyKey::$dirty(self.0) }
            fn row(self) -> Vec<u8> { $row(self.0) }
        }
    };
    (@impl $name:ident, $dirty:ident, $row:path; $a:ty, $b:ty) => {
        impl TableKey for $name {
            fn dirty(self) -> DirtyKey { DirtyKey::$dirty(self.0, self.1) }
            fn row(self) -> Vec<u8> { $row(self.0, self.1) }
        }
    };
}

side_key! {
    /// Inline content.
    ContentKey(Ino), Content, row::content_key
}
side_key! {
    /// A chunk of a map.
    ChunkKey(Ino, u32), Chunk, row::chunk_key
}
side_key! {
    /// Extended attributes.
    XattrsKey(Ino), Xattrs, row::xattrs_key
}
side_key! {
    /// References of a shared block.
    BlockKey(BlockId), Block, row::block_key
}
side_key! {
    /// An inode without a name.
    OrphanKey(Ino), Orphan, row::orphan_key
}
side_key! {
    /// A block without references.
    GarbageKey(BlockId), Garbage, row::garbage_key
}

side_key! {
    /// The policy of a directory.
    PolicyKey(Ino), Policy, row::policy_key
}
side_key! {
    /// A change of a policy, by its number.
    HistoryKey(u64), History, row::history_key
}
side_key! {
    /// A file with several names.
    LinkedKey(Ino), Linked, row::linked_key
}

side_key! {
    /// A decoupling.
    DecouplingKey(u32), Decoupling, row::decoupling_key
}

/// The row itself says all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present;

impl TableValue for Present {
    fn encode(&self) -> Vec<u8> {
        Vec::new()
    }
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl TableValue for Box<[u8]> {
    fn encode(&self) -> Vec<u8> {
        self.to_vec()
    }
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

impl TableValue for u32 {
    fn encode(&self) -> Vec<u8> {
        let mut v = Vec::new();
        v.put_varint(u64::from(*self));
        v
    }
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl TableValue for Chunk {
    fn encode(&self) -> Vec<u8> {
        let mut v = Vec::new();
        Chunk::encode(self, &mut v);
        v
    }
    fn heap_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// Extended attributes of one inode.
#[derive(Clone, Debug, Default)]
pub struct Xattrs(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl Xattrs {
    /// Names and values together, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(k, v)| k.len() + v.len()).sum()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Xattrs, Malformed> {
        let mut v = Take::new(value);
        let mut all = BTreeMap::new();
        for _ in 0..v.count(2)? {
            let name = v.bytes()?.to_vec();
            all.insert(name, v.bytes()?.to_vec());
        }
        v.finish()?;
        Ok(Xattrs(all))
    }
}

impl TableValue for Xattrs {
    fn encode(&self) -> Vec<u8> {
        let mut v = Vec::new();
        v.put_varint(self.0.len() as u64);
        for (name, value) in &self.0 {
            v.put_bytes(name);
            v.put_bytes(value);
        }
        v
    }
    fn heap_bytes(&self) -> usize {
        self.bytes() + self.0.len() * 64
    }
}
