//! Identities. An inode number says where the inode lives (docs/formats.md).

use std::fmt;

/// Number of shards that storage is formatted with unless asked otherwise.
pub const SHARDS_DEFAULT: u16 = 64;

/// Most shards. Keys of rows begin with the shard and a bit, and a metadata store keeps keys that begin with the byte 255 for itself.
pub const SHARDS_MAX: u16 = 1 << 14;

const SHARD_SHIFT: u32 = 48;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// Inode number: 16 bits of shard, 48 bits of counter. Never used twice.
    Ino(u64)
}
id! {
    /// Unit of placement, ownership, storage and hand-over.
    ShardId(u16)
}
id! {
    /// A range of shards with one engine, journal and metadata store: [`crate::Plates`].
    PlateId(u16)
}
id! {
    /// The extent of one policy, decoupling or branch. 0 is the global namespace.
    RealmId(u32)
}
id! {
    /// An event's place in its journal: 1 for the first event, then without gaps.
    /// 0 means "before everything".
    Position(u64)
}
id! {
    /// Version number of all maps; also the fence of a journal's writer.
    Epoch(u64)
}
id! {
    /// One client's session with the service. 0 is the server itself.
    SessionId(u64)
}
id! {
    /// Number of an operation within its session: 1, 2, 3 …, without gaps.
    Seq(u64)
}

impl Ino {
    /// The root directory of the global namespace.
    pub const ROOT: Ino = Ino(1);

    /// Composes the number of the `counter`-th inode of `shard`.
    ///
    /// # Panics
    /// If `counter` does not fit 48 bits: a shard that has used 2^48 numbers is a bug.
    pub fn new(shard: ShardId, counter: u64) -> Ino {
        assert!(counter < 1 << SHARD_SHIFT, "inode counter {counter} of shard {shard} exceeds 48 bits");
        Ino((u64::from(shard.0) << SHARD_SHIFT) | counter)
    }

    /// The shard where this inode lives.
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> SHARD_SHIFT) as u16)
    }

    /// Its number within the shard.
    pub fn counter(self) -> u64 {
        self.0 & ((1 << SHARD_SHIFT) - 1)
    }
}

impl PlateId {
    /// The first bits of a session's number say which plate gave it; so many follow.
    pub const SESSION_SHIFT: u32 = 48;
}

impl RealmId {
    /// The global namespace itself.
    pub const GLOBAL: RealmId = RealmId(0);
}

impl Position {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

/// Name of an immutable block. It begins with its writer (session or
/// decoupling), so that garbage collection can wait until the writer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockId {
    /// Session id of the writer.
    pub writer: u64,
    /// The writer's counter, from 1.
    pub number: u64,
}

impl BlockId {
    /// The absent block: an extent that names it is a hole.
    pub const HOLE: BlockId = BlockId { writer: 0, number: 0 };

    /// True for [`BlockId::HOLE`].
    pub fn is_hole(self) -> bool {
        self == BlockId::HOLE
    }

    /// Key of the block in the object store: `blocks/<writer>/<fan-out>/<number>`, all hexadecimal.
    ///
    /// The fan-out folder (the number's low byte) keeps folders of a local store small.
    pub fn key(self) -> String {
        format!("blocks/{:016x}/{:02x}/{:016x}", self.writer, self.number & 0xff, self.number)
    }

    /// Inverse of [`BlockId::key`]; `None` if `key` is not a block's.
    pub fn parse_key(key: &str) -> Option<BlockId> {
        let mut parts = key.strip_prefix("blocks/")?.split('/');
        let (writer, fan, number) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || writer.len() != 16 || fan.len() != 2 || number.len() != 16 {
            return None;
        }
        let id = BlockId {
            writer: u64::from_str_radix(writer, 16).ok()?,
            number: u64::from_str_radix(number, 16).ok()?,
        };
        (id.key() == key).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ino_carries_its_shard() {
        let ino = Ino::new(ShardId(63), 12345);
        assert_eq!((ino.shard(), ino.counter()), (ShardId(63), 12345));
        assert_eq!(Ino::ROOT, Ino::new(ShardId(0), 1));
    }

    #[test]
    fn block_keys_round_trip() {
        let id = BlockId { writer: 0xfeed, number: 0x1_0203 };
        assert_eq!(id.key(), "blocks/000000000000feed/03/0000000000010203");
        assert_eq!(BlockId::parse_key(&id.key()), Some(id));
        for bad in ["", "blocks/1/2/3", "blocks/000000000000feed/04/0000000000010203", "journal/x"] {
            assert_eq!(BlockId::parse_key(bad), None, "{bad}");
        }
    }
}
