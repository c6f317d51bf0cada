//! Keys and values of the metadata store's rows. Documented in `docs/formats.md`, "Rows".
//!
//! ```text
//!   shard u16 │ tag │ of an inode: its number within the shard, 6 bytes │ …      rows of an inode, in its shard
//!   0         │ tag │ …                                                          rows of the plate, in shard 0
//!   the highest bit of the shard is set in the keys of rows that are fetched when they are needed
//! ```
//!
//! Invariants:
//! - Integers in keys are big-endian, so that the rows of a directory or a file are neighbours in order.
//! - The rows of a shard are two ranges of keys, and so are those of a plate.
//! - Rows with a capital tag, or with tag 0, are in memory whole from the start. They stand before all others, so a start reads
//!   one range, however many shards there are ([`start_rows`]).

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{BlockId, Ino, Kind, Name, Position, SHARDS_MAX, ShardId};

/// Tags of the namespace's rows.
pub mod tag {
    /// A decoupling, and the number of the last one.
    pub const DECOUPLING: u8 = b'D';
    /// Nothing refers to the block.
    pub const GARBAGE: u8 = b'G';
    /// A change of a policy.
    pub const HISTORY: u8 = b'H';
    /// The directories of a file with several names.
    pub const LINKED: u8 = b'L';
    /// Number of inodes that the plate holds.
    pub const COUNT: u8 = b'N';
    /// The inode has no name.
    pub const ORPHAN: u8 = b'O';
    /// The policy that a directory carries.
    pub const POLICY: u8 = b'P';
    /// A row as a decoupled client saw it.
    pub const IMAGE: u8 = b'V';
    /// References of a shared block.
    pub const BLOCK: u8 = b'b';
    /// Inline content, or the target of a symbolic link.
    pub const CONTENT: u8 = b'c';
    /// An entry of a directory.
    pub const ENTRY: u8 = b'e';
    pub const INODE: u8 = b'i';
    /// Within an image: a chunk that no row is like any more, whose blocks stay.
    pub const KEPT_CHUNK: u8 = b'k';
    /// Extents of a chunk of a file.
    pub const CHUNK: u8 = b'm';
    /// Extended attributes of an inode, in one row.
    pub const XATTRS: u8 = b'x';
}

/// The shard in whose range the rows of the plate itself stand.
const PLATE: ShardId = ShardId(0);
/// The first tag of rows that are fetched when they are needed.
const FETCHED: u8 = b'a';
/// Set in the shard of their keys.
const FETCHED_BIT: u16 = 1 << 15;
const _: () = assert!(SHARDS_MAX <= FETCHED_BIT);

/// The first bytes of a row's key.
fn first_bytes(shard: u16, tag: u8) -> [u8; 2] {
    let bit = if tag < FETCHED { 0 } else { FETCHED_BIT };
    (shard | bit).to_be_bytes()
}

pub fn shard_of(key: &[u8]) -> Option<ShardId> {
    key.first_chunk::<2>().map(|bytes| ShardId(u16::from_be_bytes(*bytes) & !FETCHED_BIT))
}

/// Key of a row in the range of a shard.
pub fn row_key(shard: ShardId, tag: u8, rest: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(3 + rest.len());
    k.extend_from_slice(&first_bytes(shard.0, tag));
    k.push(tag);
    k.extend_from_slice(rest);
    k
}

/// Key of a row of the plate itself.
pub fn plate_row_key(tag: u8, rest: &[u8]) -> Vec<u8> {
    row_key(PLATE, tag, rest)
}

/// The bytes after the tag in the key of a row of the plate itself; `None` if the key is not of such a row.
pub fn rest_of_plate_row(key: &[u8], tag: u8) -> Option<&[u8]> {
    key.strip_prefix(&plate_row_key(tag, &[])[..])
}

/// Key of a row of an inode, and prefix of the rows with this tag of the inode.
pub fn inode_row(tag: u8, ino: Ino) -> Vec<u8> {
    let [_, _, counter @ ..] = ino.0.to_be_bytes();
    let mut k = Vec::with_capacity(INODE_KEY_BYTES);
    k.extend_from_slice(&first_bytes(ino.shard().0, tag));
    k.push(tag);
    k.extend_from_slice(&counter);
    k
}

pub fn tag_of(key: &[u8]) -> Option<u8> {
    key.get(2).copied()
}

/// The inode in the key of one of its rows.
pub fn ino_of(key: &[u8]) -> Option<Ino> {
    let [_, _, _, counter @ ..] = key.first_chunk::<INODE_KEY_BYTES>()?;
    let mut number = [0; 8];
    number[..2].copy_from_slice(&shard_of(key)?.0.to_be_bytes());
    number[2..].copy_from_slice(counter);
    Some(Ino(u64::from_be_bytes(number)))
}

/// The rows of a shard with this tag: from, to (exclusive).
pub fn rows_with_tag(shard: ShardId, tag: u8) -> (Vec<u8>, Vec<u8>) {
    let start = row_key(shard, tag, &[]);
    let end = after_prefix(&start);
    (start, end)
}

/// The rows that are in memory whole from the start, of all shards: from, to (exclusive).
pub fn start_rows() -> (Vec<u8>, Vec<u8>) {
    (row_key(ShardId(0), 0, &[]), row_key(ShardId(0), FETCHED, &[]))
}

/// Bytes of the key of a row of an inode that has nothing behind its number.
pub const INODE_KEY_BYTES: usize = 9;

pub(crate) fn inode_key(ino: Ino) -> Vec<u8> {
    inode_row(tag::INODE, ino)
}

/// … hash name → entry.
pub(crate) fn entry_key(dir: Ino, hash: u64, name: &[u8]) -> Vec<u8> {
    let mut k = entries_prefix(dir);
    k.reserve_exact(8 + name.len());
    k.extend_from_slice(&hash.to_be_bytes());
    k.extend_from_slice(name);
    k
}

/// Prefix of the entries of a directory.
pub(crate) fn entries_prefix(dir: Ino) -> Vec<u8> {
    inode_row(tag::ENTRY, dir)
}

/// Inline content or target.
pub(crate) fn content_key(ino: Ino) -> Vec<u8> {
    inode_row(tag::CONTENT, ino)
}

/// … chunk → extents.
pub(crate) fn chunk_key(ino: Ino, chunk: u32) -> Vec<u8> {
    let mut k = chunks_prefix(ino);
    k.extend_from_slice(&chunk.to_be_bytes());
    k
}

/// Prefix of the chunks of a file.
pub(crate) fn chunks_prefix(ino: Ino) -> Vec<u8> {
    inode_row(tag::CHUNK, ino)
}

pub(crate) fn xattrs_key(ino: Ino) -> Vec<u8> {
    inode_row(tag::XATTRS, ino)
}

/// The plate's: writer number → references of a shared block.
pub(crate) fn block_key(block: BlockId) -> Vec<u8> {
    of_block(tag::BLOCK, block)
}

/// The inode has no name.
pub(crate) fn orphan_key(ino: Ino) -> Vec<u8> {
    inode_row(tag::ORPHAN, ino)
}

/// The plate's: writer number → nothing: nothing refers to the block.
pub(crate) fn garbage_key(block: BlockId) -> Vec<u8> {
    of_block(tag::GARBAGE, block)
}

/// The policy that a directory carries.
pub(crate) fn policy_key(ino: Ino) -> Vec<u8> {
    inode_row(tag::POLICY, ino)
}

/// The plate's: version → a change of a policy.
pub(crate) fn history_key(version: u64) -> Vec<u8> {
    plate_row_key(tag::HISTORY, &version.to_be_bytes())
}

/// The directories of a file with several names.
pub(crate) fn linked_key(ino: Ino) -> Vec<u8> {
    inode_row(tag::LINKED, ino)
}

/// The plate's: number → a decoupling.
pub(crate) fn decoupling_key(id: u32) -> Vec<u8> {
    plate_row_key(tag::DECOUPLING, &id.to_be_bytes())
}

/// The plate's: number of the last decoupling.
pub(crate) fn decoupling_last_key() -> Vec<u8> {
    plate_row_key(tag::DECOUPLING, &[])
}

/// The plate's: number of inodes.
pub(crate) fn count_key() -> Vec<u8> {
    plate_row_key(tag::COUNT, &[])
}

fn of_block(tag: u8, block: BlockId) -> Vec<u8> {
    let mut k = Vec::with_capacity(19);
    k.extend_from_slice(&plate_row_key(tag, &[]));
    k.extend_from_slice(&block.writer.to_be_bytes());
    k.extend_from_slice(&block.number.to_be_bytes());
    k
}

/// The block in the key of its row.
pub(crate) fn block_of(key: &[u8]) -> Option<BlockId> {
    let (writer, number) = key.get(3..)?.split_first_chunk::<8>()?;
    Some(BlockId { writer: u64::from_be_bytes(*writer), number: u64::from_be_bytes(number.try_into().ok()?) })
}

/// The key after every key that begins with `prefix` (whose last byte is below 255 somewhere).
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xff; 24]
}

/// Value of an entry: inode, type, position.
pub(crate) fn encode_entry(ino: Ino, kind: Kind, position: Position) -> Vec<u8> {
    let mut v = Vec::with_capacity(17);
    v.put_u64(ino.0);
    v.put_u8(kind as u8);
    v.put_varint(position.0);
    v
}

/// The hash and the name in the key of an entry's row.
pub(crate) fn decode_entry_key(key: &[u8]) -> Result<(u64, Name), Malformed> {
    let bad = Malformed { expected: "an entry row" };
    let rest = key.get(INODE_KEY_BYTES..).ok_or(bad.clone())?;
    let (hash, name) = rest.split_first_chunk::<8>().ok_or(bad.clone())?;
    let (hash, name) = (u64::from_be_bytes(*hash), Name::new(name).map_err(|_| bad.clone())?);
    if hash != name.hash64() { Err(bad) } else { Ok((hash, name)) }
}

/// An entry's row: hash, name, inode, type, position.
pub(crate) fn decode_entry(key: &[u8], value: &[u8]) -> Result<(u64, Name, Ino, Kind, Position), Malformed> {
    let (hash, name) = decode_entry_key(key)?;
    let mut v = Take::new(value);
    // Nothing could be stored of an inode with a higher number.
    let ino = Some(Ino(v.u64()?)).filter(|ino| ino.shard().0 < SHARDS_MAX);
    let ino = ino.ok_or(Malformed { expected: "an inode number of a shard" })?;
    let kind = Kind::from_u8(v.u8()?).ok_or(Malformed { expected: "an entry row" })?;
    let position = Position(v.varint()?);
    v.finish()?;
    Ok((hash, name, ino, kind, position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_only_inodes_that_can_be_stored() {
        let name = Name::new(b"a").expect("a name");
        let key = entry_key(Ino::ROOT, name.hash64(), name.as_bytes());
        let check = |shard: u16, expect: bool| {
            let value = encode_entry(Ino::new(ShardId(shard), 7), Kind::File, Position(3));
            assert_eq!(decode_entry(&key, &value).is_ok(), expect, "shard {shard}");
        };
        check(0, true);
        check(SHARDS_MAX - 1, true);
        check(SHARDS_MAX, false);
        check(u16::MAX, false);
    }

    #[test]
    fn a_key_gives_back_its_shard_tag_and_inode() {
        for ino in [Ino::ROOT, Ino::new(ShardId(0x1234), (1 << 48) - 1)] {
            let key = chunk_key(ino, 5);
            assert_eq!((tag_of(&key), ino_of(&key)), (Some(tag::CHUNK), Some(ino)));
            let (from, to) = rows_with_tag(ino.shard(), tag::CHUNK);
            assert!((from..to).contains(&key));
        }
        assert_eq!(ino_of(b"\0\0i"), None);
    }
}
