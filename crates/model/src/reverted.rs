//! A file as it was before others changed it. A merge restores that state, so that one side's file wins as a whole.
//!
//! ```text
//!   base ──▶ others write ──▶ Revert (attributes, content as at the base) ──▶ what the decoupled side wrote
//! ```
//!
//! Invariants:
//! - The blocks that it names are in a before-image, so nothing sweeps them before the event is applied.
//! - It says nothing of names: how many a file has, and where, is decided elsewhere.

use std::collections::BTreeMap;

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Attr, Mode, Time};

use crate::codec::{put_extents, take_extents};
use crate::extent::{CHUNK_BYTES, Extent};
use crate::op::FILE_BYTES_MAX;

/// The attributes and the content of the file at the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reverted {
    pub mode: Mode,
    /// Immutable and append-only, as in [`chiton_types::Attr::flags`].
    pub flags: u8,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// All extended attributes; none: they are as they were.
    pub xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub content: OldContent,
    /// It is so for a moment only, and then again as it is now (while something is copied from it).
    pub temporary: bool,
}

/// Content that a file had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OldContent {
    /// It is as it was.
    Same,
    /// All of it, inline.
    Inline(Vec<u8>),
    /// In blocks: these chunks are mapped like this, others as they are. Whether an extent is shared is found out anew.
    Chunks(Vec<(u32, Vec<Extent>)>),
}

impl Reverted {
    pub fn put(&self, out: &mut Vec<u8>) {
        let kind = match &self.content {
            OldContent::Same => 0,
            OldContent::Inline(_) => 1,
            OldContent::Chunks(_) => 2,
        };
        out.put_u8(kind | u8::from(self.xattrs.is_some()) << 2 | u8::from(self.temporary) << 3);
        out.put_u16(self.mode.0);
        out.put_u8(self.flags);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_varint(self.size);
        for time in [self.atime, self.mtime, self.ctime] {
            out.put_i64(time.0);
        }
        if let Some(xattrs) = &self.xattrs {
            out.put_varint(xattrs.len() as u64);
            for (name, value) in xattrs {
                out.put_bytes(name);
                out.put_bytes(value);
            }
        }
        match &self.content {
            OldContent::Same => {}
            OldContent::Inline(bytes) => out.put_bytes(bytes),
            OldContent::Chunks(chunks) => {
                out.put_varint(chunks.len() as u64);
                for (number, extents) in chunks {
                    out.put_u32(*number);
                    put_extents(out, extents);
                }
            }
        }
    }

    pub fn take(from: &mut Take<'_>) -> Result<Reverted, Malformed> {
        let bad = |expected| Malformed { expected };
        let flags = from.u8()?;
        if flags > 15 || flags & 3 == 3 {
            return Err(bad("what of a file is as it was"));
        }
        let (mode, settable) = (Mode(from.u16()?), from.u8()?);
        if settable & !Attr::SETTABLE != 0 {
            return Err(bad("flags that can be set"));
        }
        let (uid, gid, size) = (from.u32()?, from.u32()?, from.varint()?);
        if size > FILE_BYTES_MAX {
            return Err(bad("a size within the largest file"));
        }
        let (atime, mtime, ctime) = (Time(from.i64()?), Time(from.i64()?), Time(from.i64()?));
        let mut xattrs = None;
        if flags & 4 != 0 {
            let mut all = BTreeMap::new();
            for _ in 0..from.count(2)? {
                let name = from.bytes()?.to_vec();
                if all.last_key_value().is_some_and(|(last, _)| *last >= name) {
                    return Err(bad("extended attributes in order"));
                }
                all.insert(name, from.bytes()?.to_vec());
            }
            xattrs = Some(all);
        }
        let content = match flags & 3 {
            0 => OldContent::Same,
            1 => OldContent::Inline(from.bytes()?.to_vec()),
            _ => {
                let mut chunks: Vec<(u32, Vec<Extent>)> = Vec::new();
                for _ in 0..from.count(5)? {
                    let (number, extents) = (from.u32()?, take_extents(from)?);
                    let is_in =
                        |e: &Extent| !e.block.is_hole() && e.offset / CHUNK_BYTES == u64::from(number);
                    if chunks.last().is_some_and(|(last, _)| *last >= number) || !extents.iter().all(is_in) {
                        return Err(bad("chunks in order"));
                    }
                    chunks.push((number, extents));
                }
                OldContent::Chunks(chunks)
            }
        };
        let temporary = flags & 8 != 0;
        Ok(Reverted {
            mode,
            flags: settable,
            uid,
            gid,
            size,
            atime,
            mtime,
            ctime,
            xattrs,
            content,
            temporary,
        })
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::BlockId;

    use super::*;

    #[test]
    fn each_kind_round_trips_and_less_is_refused() {
        let block = BlockId { writer: 7, number: 9 };
        let extent = |offset| Extent { offset, len: 10, block, block_offset: 3, shared: true };
        let chunks = vec![(0, vec![extent(5), extent(90)]), (2, vec![extent(2 * CHUNK_BYTES)]), (3, vec![])];
        for content in
            [OldContent::Same, OldContent::Inline(b"was".to_vec()), OldContent::Chunks(chunks.clone())]
        {
            for xattrs in [None, Some(BTreeMap::from([(b"user.a".to_vec(), b"1".to_vec())]))] {
                let reverted = Reverted {
                    mode: Mode(0o640),
                    flags: Attr::APPEND_ONLY,
                    uid: 1,
                    gid: 2,
                    size: 3 * CHUNK_BYTES,
                    atime: Time(1),
                    mtime: Time(-2),
                    ctime: Time(3),
                    xattrs,
                    content: content.clone(),
                    temporary: true,
                };
                let mut bytes = Vec::new();
                reverted.put(&mut bytes);
                let mut take = Take::new(&bytes);
                assert_eq!(Reverted::take(&mut take), Ok(reverted));
                assert!(take.is_empty());
                for n in 0..bytes.len() {
                    assert!(Reverted::take(&mut Take::new(&bytes[..n])).is_err(), "{n}");
                }
            }
        }
        let mut bytes = Vec::new();
        put_extents(&mut bytes, &[extent(5)]);
        let wrong = [&[2u8][..], &[0; 11], &[0], &[0; 24], &[1], &1u32.to_le_bytes(), &bytes].concat();
        assert_eq!(Reverted::take(&mut Take::new(&wrong)), Err(Malformed { expected: "chunks in order" }));
    }
}
