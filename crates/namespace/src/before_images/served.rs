//! The rows of a subtree as a decoupled client knows them: at its base, with what it merged since.
//!
//! ```text
//!   of each key:  the image if there is one (unless a merge found that others did the same since), else the row, unless others made it
//! ```

use std::collections::BTreeMap;

use chiton_model::merge::MergeMap;
use chiton_types::codec::{Put, Take};
use chiton_types::{BlockId, Ino, Kind, Position, RealmId};

use super::{encode, image_key, ino_of};
use crate::fault::{Fault, Need};
use crate::inode::{Inode, OF_XATTRS};
use crate::namespace::{DIR_WHOLE_ENTRIES_MAX, Known, Namespace};
use crate::paging::{Fetched, Rows};
use crate::row::{self, INODE_KEY_BYTES, tag};
use crate::stored::StoredRow;

/// More extents than images name of one block.
const REFERENCES_UNSEEN: u64 = 1 << 30;

impl Namespace {
    /// The rows that `need` names as a decoupled client knows them: at its base, with what it merged since, and by its own
    /// numbers.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn serve_at_base(&self, need: &Need, id: RealmId) -> Result<Fetched, Fault> {
        let Some(map) = self.decoupling(id).map(|d| &d.map) else { return self.serve(need) };
        let mut found = self.found_at_base(&need.translated(|ino| map.translate(ino)), id, map)?;
        if map.has_bound() {
            found.rows = found.rows.into_iter().map(|row| by_its_numbers(row, map)).collect();
        }
        found.need = need.clone();
        Ok(found)
    }

    fn found_at_base(&self, need: &Need, id: RealmId, map: &MergeMap) -> Result<Fetched, Fault> {
        let mut found = self.serve(need)?;
        match need {
            Need::Slice { dir, after, rows } => {
                let mut after = *after;
                loop {
                    let last = found.rows.last().map(|(key, _)| hash_of(key));
                    let last = if found.exhausted { u64::MAX } else { last.unwrap_or(u64::MAX) };
                    let prefix = &row::entries_prefix(*dir);
                    found.rows = self.at_base(found.rows, prefix, id.0, map);
                    found.rows.retain(|(key, _)| hash_of(key) > after && hash_of(key) <= last);
                    if found.exhausted || !found.rows.is_empty() {
                        return Ok(found);
                    }
                    // All of these are of others: those behind them are needed.
                    after = last;
                    found = self.serve(&Need::Slice { dir: *dir, after, rows: *rows })?;
                }
            }
            Need::Dir(dir) => {
                found.rows = self.at_base(found.rows, &row::entries_prefix(*dir), id.0, map);
            }
            Need::Chunks(ino) => {
                found.rows = self.at_base(found.rows, &row::chunks_prefix(*ino), id.0, map);
            }
            Need::Inode(ino) => found.rows = self.one_at_base(found.rows, row::inode_key(*ino), id.0, map)?,
            Need::Entry(dir, name) => {
                let key = row::entry_key(*dir, name.hash64(), name.as_bytes());
                found.rows = self.one_at_base(found.rows, key, id.0, map)?;
            }
            Need::Content(ino) => {
                found.rows = self.one_at_base(found.rows, row::content_key(*ino), id.0, map)?
            }
            Need::Chunk(ino, n) => {
                found.rows = self.one_at_base(found.rows, row::chunk_key(*ino, *n), id.0, map)?;
            }
            Need::Xattrs(ino) => {
                found.rows = self.one_at_base(found.rows, row::xattrs_key(*ino), id.0, map)?
            }
            Need::Block(block) => found.rows = self.counted_for(*block, found.rows, id.0),
        }
        Ok(found)
    }

    /// Rows that merges of a decoupling need beside those of the subtree: the decoupling, the policies of `borders`, the images after
    /// the key `after` (at most about `bytes_max` of them); and whether there are no more.
    pub fn remembered(&self, id: RealmId, borders: &[Ino], after: &[u8], bytes_max: usize) -> (Rows, bool) {
        let mut rows = Rows::new();
        if after.is_empty() {
            let decoupling = self.decoupling(id).cloned();
            let of_borders = borders.iter().filter_map(|ino| self.policy(*ino).cloned());
            let stored = [StoredRow::InodeCount(self.inode_count()), StoredRow::DecouplingLast(id.0)]
                .into_iter()
                .chain(decoupling.map(|decoupling| StoredRow::Decoupling(Box::new(decoupling))))
                .chain(of_borders.map(|policy| StoredRow::Policy(policy.ino, policy)));
            rows.extend(stored.map(|row| (row.key(), row.value())));
        }
        let mut bytes = 0;
        for (key, value) in self.dirty.before_images.after(id.0, after) {
            if bytes >= bytes_max {
                return (rows, false);
            }
            bytes += key.len() + value.map_or(0, <[u8]>::len) + 8;
            rows.push((image_key(id.0, key), encode(value)));
        }
        (rows, true)
    }

    /// References of a block, for a client that may know extents which are in images only: never fewer than it knows. A surplus
    /// keeps a block from being garbage there, where nothing is swept.
    fn counted_for(&self, block: BlockId, rows: Rows, id: u32) -> Rows {
        let images = &self.dirty.before_images;
        let knows_more = [tag::CHUNK, tag::KEPT_CHUNK].iter().any(|kind| images.has_any(id, Some(*kind)));
        if !knows_more {
            return rows;
        }
        let count = rows.first().and_then(|(_, value)| Take::new(value).varint().ok()).unwrap_or_default();
        let mut value = Vec::new();
        value.put_varint(count + REFERENCES_UNSEEN);
        vec![(row::block_key(block), value)]
    }

    fn one_at_base(&self, rows: Rows, key: Vec<u8>, id: u32, map: &MergeMap) -> Result<Rows, Fault> {
        let row = rows.into_iter().next().map(|(_, value)| value);
        let Some(mut value) = self.as_known(&key, row, id, map) else { return Ok(Rows::new()) };
        if row::tag_of(&key) == Some(tag::INODE) {
            value = self.counted_at_base(&key, value, id, map)?;
            value = self.named_at_base(&key, value, id, map)?;
        }
        Ok(vec![(key, value)])
    }

    fn at_base(&self, rows: Rows, prefix: &[u8], id: u32, map: &MergeMap) -> Rows {
        let mut all: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            rows.into_iter().map(|(key, value)| (key, Some(value))).collect();
        for (key, _) in self.dirty.before_images.of(id, prefix) {
            all.entry(key.to_vec()).or_default();
        }
        let known = all.into_iter().filter_map(|(key, row)| {
            let value = self.as_known(&key, row, id, map)?;
            Some((key, value))
        });
        known.collect()
    }

    /// A row as a decoupled client knows it, which is `row` for everybody.
    fn as_known(&self, key: &[u8], row: Option<Vec<u8>>, id: u32, map: &MergeMap) -> Option<Vec<u8>> {
        let dir = ino_of(key);
        let is_name = row::tag_of(key) == Some(tag::ENTRY) && map.has_names_apart();
        let name = if is_name { row::decode_entry_key(key).ok().map(|(_, name)| name) } else { None };
        if name.as_ref().is_some_and(|name| map.is_gone(dir, name)) {
            return None;
        }
        let is_shared = |value: &Vec<u8>| match &name {
            Some(name) => Take::new(value).u64().is_ok_and(|ino| map.has_at(Ino(ino), dir, name)),
            None => row::tag_of(key) == Some(tag::INODE) && map.is_bound(dir),
        };
        // Others gave the name to the same inode as ours: since a merge found that, ours knows it so.
        let is_agreed = |image: &[u8], row: &Option<Vec<u8>>| {
            let (Some(name), Some(row)) = (&name, row) else { return false };
            image.get(..8) != row.get(..8)
                && Take::new(row).u64().is_ok_and(|ino| map.has_at(Ino(ino), dir, name))
        };
        let row = match self.dirty.before_images.get(id, key) {
            Some(Some(image)) if is_agreed(image, &row) => row,
            Some(Some(image)) => Some(image.to_vec()),
            Some(None) => row.filter(is_shared),
            None => row,
        };
        let is_known =
            |value: &Vec<u8>| !is_of_others(key, value, map) && !self.names_unknown(key, value, id, map);
        row.filter(|value| is_known(value) || is_shared(value))
    }

    /// The row of an inode, with as many entries as its client sees if others changed its entries, too.
    fn counted_at_base(&self, key: &[u8], value: Vec<u8>, id: u32, map: &MergeMap) -> Result<Vec<u8>, Fault> {
        let dir = ino_of(key);
        let (Some(_), Ok(mut inode)) = (self.dirty.before_images.get(id, key), Inode::decode(dir, &value))
        else {
            return Ok(value);
        };
        let now = self.known_inode(dir)?;
        if inode.kind() != Kind::Dir || now.is_some_and(|now| now.entries() > DIR_WHOLE_ENTRIES_MAX) {
            return Ok(value);
        }
        let rows = self.serve(&Need::Dir(dir))?.rows;
        let rows = self.at_base(rows, &row::entries_prefix(dir), id, map);
        let is_dir = |(_, value): &&(Vec<u8>, Vec<u8>)| value.get(8) == Some(&(Kind::Dir as u8));
        inode.node.set_entries(rows.len() as u64);
        inode.nlink = 2 + rows.iter().filter(is_dir).count() as u32;
        if matches!(self.dirty.before_images.get(id, &row::xattrs_key(dir)), Some(None)) {
            inode.flags &= !OF_XATTRS;
        }
        Ok(inode.encode())
    }

    /// The row of a file that a merge made its client's own: with the names that its client has and others took.
    fn named_at_base(&self, key: &[u8], value: Vec<u8>, id: u32, map: &MergeMap) -> Result<Vec<u8>, Fault> {
        let ino = ino_of(key);
        if map.contested.of(ino).is_empty() || self.dirty.before_images.get(id, key).is_some() {
            return Ok(value);
        }
        let Some(mut inode) = Inode::decode(ino, &value).ok().filter(|inode| inode.kind() != Kind::Dir)
        else {
            return Ok(value);
        };
        for (dir, name) in map.contested.of(ino) {
            let Some(dir) = self.known_inode(*dir)?.filter(|dir| dir.kind() == Kind::Dir) else {
                inode.nlink += 1;
                continue;
            };
            let is_there = match self.entry(dir, name) {
                Ok(Known::Present(slot)) => slot.ino == ino,
                Err(Fault::Missing(needs)) => return Err(Fault::Missing(needs)),
                Ok(Known::Absent) | Err(_) => false,
            };
            inode.nlink += u32::from(!is_there);
        }
        Ok(inode.encode())
    }

    /// Whether a name stands for an inode that others made: a merge put it aside, which made the name the decoupling's own.
    fn names_unknown(&self, key: &[u8], value: &[u8], id: u32, map: &MergeMap) -> bool {
        let is_unknown = |ino: Ino| {
            !map.is_bound(ino) && matches!(self.dirty.before_images.get(id, &row::inode_key(ino)), Some(None))
        };
        row::tag_of(key) == Some(tag::ENTRY) && Take::new(value).u64().is_ok_and(|ino| is_unknown(Ino(ino)))
    }
}

/// A row of the server with the numbers that ours has for directories that became one with its own.
fn by_its_numbers((mut key, mut value): (Vec<u8>, Vec<u8>), map: &MergeMap) -> (Vec<u8>, Vec<u8>) {
    let ino = ino_of(&key);
    match row::tag_of(&key) {
        Some(tag::ENTRY) => {
            if let Ok(target) = Take::new(&value).u64() {
                value[..8].copy_from_slice(&map.ours(Ino(target)).0.to_le_bytes());
            }
        }
        Some(tag::INODE) => {
            if let Ok(mut inode) = Inode::decode(ino, &value) {
                inode.parent = map.ours(inode.parent);
                value = inode.encode();
            }
        }
        _ => {}
    }
    if let (Some(kind), Some(rest)) = (row::tag_of(&key), key.get(INODE_KEY_BYTES..)) {
        key = [&row::inode_row(kind, map.ours(ino)), rest].concat();
    }
    (key, value)
}

/// A row that others made after the base.
fn is_of_others(key: &[u8], value: &[u8], map: &MergeMap) -> bool {
    position_of(key, value).is_some_and(|position| map.is_foreign(position))
}

/// The position of the last change, of rows that say it.
fn position_of(key: &[u8], value: &[u8]) -> Option<Position> {
    let fields = match row::tag_of(key)? {
        tag::INODE => 12,
        tag::ENTRY => 9,
        _ => return None,
    };
    Take::new(value.get(fields..)?).varint().ok().map(Position)
}

fn hash_of(key: &[u8]) -> u64 {
    key.get(9..17).and_then(|hash| hash.try_into().ok()).map_or(0, u64::from_be_bytes)
}
