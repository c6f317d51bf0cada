//! Trees that were removed as a whole and that the server has not freed yet.

use chiton_metastore::Metastore;
use chiton_namespace::{StoredRow, inode_row, tag};
use chiton_types::Ino;

use super::GrowError;

/// How many names are still in such directories. Several plates cannot free what lies on more than one of them.
pub(super) fn names_left(rows: &dyn Metastore, orphans: &[Ino]) -> Result<u64, GrowError> {
    let mut names = 0;
    for ino in orphans {
        let key = inode_row(tag::INODE, *ino);
        let Some(value) = rows.get(&key)? else { continue };
        if let Some(StoredRow::Inode(inode)) = StoredRow::decode(&key, &value)? {
            names += inode.node.entries();
        }
    }
    Ok(names)
}
