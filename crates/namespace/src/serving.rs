//! Rows for another namespace, that of a decoupled client, from this one's memory.
//!
//! Invariant: the answer to a [`Need`] is the same that a fetch from the metadata store would give after a checkpoint
//! of this very state.

use chiton_types::Ino;

use crate::fault::{Fault, Need};
use crate::inode::{COMPLETE, Inode};
use crate::namespace::Namespace;
use crate::paging::{Fetched, Rows};
use crate::query::SLICE_ROWS;
use crate::row;
use crate::tables::{Table, TableKey, TableValue};
use crate::values::{BlockKey, ChunkKey, ContentKey, XattrsKey};

impl Namespace {
    /// The rows that `need` names.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn serve(&self, need: &Need) -> Result<Fetched, Fault> {
        let mut exhausted = true;
        let rows = match need {
            Need::Inode(ino) => {
                let inode = self.known_inode(*ino)?;
                inode.map(|inode| (row::inode_key(*ino), inode.encode())).into_iter().collect()
            }
            Need::Entry(dir, name) => {
                let (hash, bytes) = (name.hash64(), name.as_bytes());
                let held = self.dirs.get(dir).and_then(|held| held.find(hash, bytes));
                match held {
                    Some(slot) => slot
                        .kind()
                        .map(|kind| {
                            let value = row::encode_entry(slot.ino, kind, slot.position);
                            (row::entry_key(*dir, hash, bytes), value)
                        })
                        .into_iter()
                        .collect(),
                    None if self.known_inode(*dir)?.is_none_or(|dir| dir.has(COMPLETE)) => Rows::new(),
                    None => return Err(need.clone().into()),
                }
            }
            Need::Dir(dir) => match self.known_inode(*dir)? {
                None => Rows::new(),
                Some(inode) if inode.has(COMPLETE) => self.entry_rows(*dir, 0, u64::MAX, usize::MAX).0,
                Some(_) => return Err(need.clone().into()),
            },
            Need::Slice { dir, after, rows } => {
                let (found, all) = self.serve_slice(*dir, *after, *rows)?;
                exhausted = all;
                found
            }
            Need::Content(ino) => one(&self.contents, ContentKey(*ino), need)?,
            Need::Xattrs(ino) => one(&self.xattrs, XattrsKey(*ino), need)?,
            Need::Block(block) => one(&self.blocks, BlockKey(*block), need)?,
            Need::Chunk(ino, n) => match self.known_inode(*ino)? {
                Some(inode) if inode.has(COMPLETE) => {
                    rows_of(&self.chunks, ChunkKey(*ino, *n)..=ChunkKey(*ino, *n))
                }
                _ => one(&self.chunks, ChunkKey(*ino, *n), need)?,
            },
            Need::Chunks(ino) => match self.known_inode(*ino)? {
                None => Rows::new(),
                Some(inode) if inode.has(COMPLETE) => {
                    rows_of(&self.chunks, ChunkKey(*ino, 0)..=ChunkKey(*ino, u32::MAX))
                }
                Some(_) => return Err(need.clone().into()),
            },
        };
        Ok(Fetched { need: need.clone(), rows, exhausted, unreadable: false })
    }

    /// An inode; `None` if there is none.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn known_inode(&self, ino: Ino) -> Result<Option<&Inode>, Fault> {
        match self.inode(ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Fault::Refused(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// At least the next `rows` entries of a directory after a cookie, or fewer if no more are in memory for certain;
    /// and whether there are none behind them.
    fn serve_slice(&self, dir: Ino, after: u64, rows: u32) -> Result<(Rows, bool), Fault> {
        let Some(inode) = self.known_inode(dir)? else { return Ok((Rows::new(), true)) };
        let until = if inode.has(COMPLETE) {
            u64::MAX
        } else {
            match self.dirs.get(&dir).and_then(|held| held.known.until(after)) {
                Some(to) => to,
                None => return Err(Need::Slice { dir, after, rows: SLICE_ROWS }.into()),
            }
        };
        let (found, all) = self.entry_rows(dir, after, until, rows.clamp(1, SLICE_ROWS) as usize);
        let exhausted = all && until == u64::MAX;
        if found.is_empty() && !exhausted {
            // Everything in the known range is deleted: continue behind it.
            return Err(Need::Slice { dir, after: until, rows: SLICE_ROWS }.into());
        }
        Ok((found, exhausted))
    }

    /// Entries after a cookie, up to another: about `max`, those of one hash never parted; and whether these are all.
    fn entry_rows(&self, dir: Ino, after: u64, until: u64, max: usize) -> (Rows, bool) {
        let mut rows = Rows::new();
        let mut last = None;
        let held = self.dirs.get(&dir);
        for (name, slot) in held.into_iter().flat_map(|held| held.iter_after(after)) {
            if slot.hash > until {
                break;
            }
            let Some(kind) = slot.kind() else { continue };
            if rows.len() >= max && last != Some(slot.hash) {
                return (rows, false);
            }
            last = Some(slot.hash);
            let value = row::encode_entry(slot.ino, kind, slot.position);
            rows.push((row::entry_key(dir, slot.hash, name), value));
        }
        (rows, true)
    }
}

fn one<K: TableKey, V: TableValue>(side: &Table<K, V>, key: K, need: &Need) -> Result<Rows, Fault> {
    match side.get(key) {
        Some(value) => Ok(value.map(|value| (key.row(), value.encode())).into_iter().collect()),
        None => Err(need.clone().into()),
    }
}

fn rows_of<K: TableKey, V: TableValue>(side: &Table<K, V>, keys: std::ops::RangeInclusive<K>) -> Rows {
    side.range(keys).map(|(key, value)| (key.row(), value.encode())).collect()
}
