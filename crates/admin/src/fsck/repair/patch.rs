//! Changes of rows: collected over the stores of the plates, read back as if they were there, and committed together.

use std::collections::{BTreeMap, BTreeSet};

use chiton_engine::OwnRow;
use chiton_metastore::Batch;
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT};
use chiton_namespace::{StoredInode, StoredRow, inode_row, tag};
use chiton_types::{Ino, PlateId, Position, Time};

use super::Gives;
use crate::fsck::CheckError;
use crate::fsck::all_rows::AllRows;

/// Changes of rows that are not committed yet, over the stores of the plates.
pub(super) struct Patch<'a> {
    pub(super) all: &'a AllRows<'a>,
    /// By plate and key.
    pub(super) rows: BTreeMap<(PlateId, Vec<u8>), Option<Vec<u8>>>,
    pub(super) now: Time,
    pub(super) gives: Gives,
}

impl Patch<'_> {
    pub(super) fn commit(&mut self) -> Result<(), CheckError> {
        let mut batches: BTreeMap<PlateId, Batch> = BTreeMap::new();
        for ((plate, key), value) in std::mem::take(&mut self.rows) {
            batches.entry(plate).or_default().extend([(key, value)]);
        }
        // Of rows that each plate has a copy of, those of plate 0 are checked: it is the last.
        for (plate, rows) in batches.into_iter().rev() {
            self.all.store(plate).commit(&rows)?;
        }
        Ok(())
    }

    /// The plate where a row counts.
    pub(super) fn home(&self, key: &[u8]) -> PlateId {
        self.all.home(key).unwrap_or_default()
    }

    /// The value that a plate has under a key.
    pub(super) fn value_at(&self, plate: PlateId, key: &[u8]) -> Result<Option<Vec<u8>>, CheckError> {
        match self.rows.get(&(plate, key.to_vec())) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.all.store(plate).get(key)?),
        }
    }

    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CheckError> {
        self.value_at(self.home(key), key)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<StoredRow>, CheckError> {
        let value = self.value(key)?;
        Ok(value.and_then(|value| StoredRow::decode(key, &value).ok().flatten()))
    }

    /// The nearest directory above with a policy, or the root.
    pub(super) fn policy_around(&self, dir: Ino) -> Result<Ino, CheckError> {
        let mut passed = BTreeSet::new();
        let mut at = dir;
        while let Some(StoredRow::Inode(inode)) = self.get(&inode_row(tag::INODE, at))? {
            at = inode.parent;
            let is_root = at == Ino::ROOT || self.get(&inode_row(tag::POLICY, at))?.is_some();
            // Damaged directories may be in a circle.
            if is_root || !passed.insert(at) {
                return Ok(at);
            }
        }
        Ok(Ino::ROOT)
    }

    /// The existing extended attributes of an inode.
    pub(super) fn xattrs(&self, ino: Ino) -> Result<Attributes, CheckError> {
        let key = inode_row(tag::XATTRS, ino);
        let is_there = self.value(&key)?.is_some();
        let all = match self.get(&key)? {
            Some(StoredRow::Xattrs(_, all)) => all,
            _ => BTreeMap::new(),
        };
        let (access, default) = (all.contains_key(ACL_ACCESS), all.contains_key(ACL_DEFAULT));
        Ok(Attributes { is_there, access, default })
    }

    /// Writes a row where it counts.
    pub(super) fn put(&mut self, row: &StoredRow) {
        self.put_at(self.home(&row.key()), row);
    }

    pub(super) fn put_at(&mut self, plate: PlateId, row: &StoredRow) {
        self.rows.insert((plate, row.key()), Some(row.value()));
    }

    pub(super) fn delete(&mut self, key: Vec<u8>) {
        self.delete_at(self.home(&key), key);
    }

    pub(super) fn delete_at(&mut self, plate: PlateId, key: Vec<u8>) {
        self.rows.insert((plate, key), None);
    }

    /// Writes a row of which each plate has a copy, or deletes it.
    pub(super) fn set_everywhere(&mut self, key: &[u8], value: Option<&StoredRow>) {
        for (plate, _) in &self.all.parts {
            self.rows.insert((*plate, key.to_vec()), value.map(StoredRow::value));
        }
    }

    pub(super) fn put_own(&mut self, plate: PlateId, row: OwnRow) {
        self.rows.extend(row.encode().map(|(key, value)| ((plate, key), Some(value))));
    }

    /// Where a row stands in the journal that is made on the plate of `dir` from one that has this position on the plate of `ino`.
    pub(super) fn position_in(&self, dir: &StoredInode, ino: Ino, position: Position) -> Position {
        let plate = |ino| self.home(&inode_row(tag::INODE, ino));
        if plate(dir.ino) == plate(ino) { position } else { dir.position }
    }

    pub(super) fn inode(&self, ino: Ino) -> Result<Option<StoredInode>, CheckError> {
        Ok(match self.get(&inode_row(tag::INODE, ino))? {
            Some(StoredRow::Inode(inode)) => Some(inode),
            _ => None,
        })
    }

    /// Changes an inode; false if there is none.
    pub(super) fn edit(&mut self, ino: Ino, f: impl FnOnce(&mut StoredInode)) -> Result<bool, CheckError> {
        let Some(mut inode) = self.inode(ino)? else { return Ok(false) };
        f(&mut inode);
        self.put(&StoredRow::Inode(inode));
        Ok(true)
    }
}

/// An inode's flags about extended attributes.
pub(super) struct Attributes {
    pub(super) is_there: bool,
    pub(super) access: bool,
    pub(super) default: bool,
}

impl Attributes {
    pub(super) fn note(&self, inode: &mut StoredInode) {
        (inode.xattrs, inode.access_list, inode.default_list) = (self.is_there, self.access, self.default);
    }
}
