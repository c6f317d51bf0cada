//! Keys and values of the metadata store's rows. Documented in `docs/formats.md`, "Rows".
//!
//! Integers in keys are big-endian, so that the rows of a directory or a file are neighbours in order.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{BlockId, Ino, Kind, Name, Position};

/// `I` ino → inode.
pub(crate) fn inode_key(ino: Ino) -> Vec<u8> {
    key(b'I', ino.0, &[])
}

/// `E` dir hash name → entry.
pub(crate) fn entry_key(dir: Ino, hash: u64, name: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(17 + name.len());
    k.push(b'E');
    k.extend_from_slice(&dir.0.to_be_bytes());
    k.extend_from_slice(&hash.to_be_bytes());
    k.extend_from_slice(name);
    k
}

/// `C` ino → inline content or target.
pub(crate) fn content_key(ino: Ino) -> Vec<u8> {
    key(b'C', ino.0, &[])
}

/// `M` ino chunk → extents.
pub(crate) fn chunk_key(ino: Ino, chunk: u32) -> Vec<u8> {
    key(b'M', ino.0, &chunk.to_be_bytes())
}

/// `X` ino → extended attributes.
pub(crate) fn xattrs_key(ino: Ino) -> Vec<u8> {
    key(b'X', ino.0, &[])
}

/// `B` writer number → references of a shared block.
pub(crate) fn block_key(block: BlockId) -> Vec<u8> {
    key(b'B', block.writer, &block.number.to_be_bytes())
}

/// `O` ino → nothing: the inode has no name.
pub(crate) fn orphan_key(ino: Ino) -> Vec<u8> {
    key(b'O', ino.0, &[])
}

/// `G` writer number → nothing: nothing refers to the block.
pub(crate) fn garbage_key(block: BlockId) -> Vec<u8> {
    key(b'G', block.writer, &block.number.to_be_bytes())
}

/// `P` ino → the policy that a directory carries.
pub(crate) fn policy_key(ino: Ino) -> Vec<u8> {
    key(b'P', ino.0, &[])
}

/// `H` version → a change of a policy.
pub(crate) fn history_key(version: u64) -> Vec<u8> {
    key(b'H', version, &[])
}

/// `L` ino → the directories of a file with several names.
pub(crate) fn linked_key(ino: Ino) -> Vec<u8> {
    key(b'L', ino.0, &[])
}

/// `D` number → a decoupling.
pub(crate) fn decoupling_key(id: u32) -> Vec<u8> {
    let mut k = vec![b'D'];
    k.extend_from_slice(&id.to_be_bytes());
    k
}

/// `D` → number of the last decoupling.
pub(crate) const DECOUPLING_LAST_KEY: &[u8] = b"D";

/// `N` → number of inodes.
pub(crate) const COUNT_KEY: &[u8] = b"N";

fn key(tag: u8, id: u64, rest: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(9 + rest.len());
    k.push(tag);
    k.extend_from_slice(&id.to_be_bytes());
    k.extend_from_slice(rest);
    k
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

/// What the key of an entry's row says: hash, name.
pub(crate) fn decode_entry_key(key: &[u8]) -> Result<(u64, Name), Malformed> {
    let bad = Malformed { expected: "an entry row" };
    let rest = key.get(9..).ok_or(bad.clone())?;
    let (hash, name) = rest.split_first_chunk::<8>().ok_or(bad.clone())?;
    let (hash, name) = (u64::from_be_bytes(*hash), Name::new(name).map_err(|_| bad.clone())?);
    if hash != name.hash64() { Err(bad) } else { Ok((hash, name)) }
}

/// An entry's row: hash, name, inode, type, position.
pub(crate) fn decode_entry(key: &[u8], value: &[u8]) -> Result<(u64, Name, Ino, Kind, Position), Malformed> {
    let (hash, name) = decode_entry_key(key)?;
    let mut v = Take::new(value);
    let ino = Ino(v.u64()?);
    let kind = Kind::from_u8(v.u8()?).ok_or(Malformed { expected: "an entry row" })?;
    let position = Position(v.varint()?);
    v.finish()?;
    Ok((hash, name, ino, kind, position))
}
