//! Reading a store page by page, and finding names in it.

use std::ops::Bound;

use chiton_metastore::{Metastore, Row, StoreError};
use chiton_namespace::{StoredInode, StoredRow, inode_row_key};
use chiton_types::{Ino, Name};

/// Rows of a page; pages end earlier when their values are large.
const PAGE_ROWS: usize = 1024;
/// Entries of a directory that are looked through for a path.
const SEARCH_ROWS: usize = 100_000;
/// Directories above a file that a path shows.
const DEPTH_MAX: usize = 64;

/// Calls `f` for every row from `start` (inclusive) to `end` (exclusive; `None`: to the last).
pub(crate) fn each_row<E: From<StoreError>>(
    store: &dyn Metastore,
    start: &[u8],
    end: Option<&[u8]>,
    mut f: impl FnMut(Row) -> Result<bool, E>,
) -> Result<(), E> {
    let mut last: Option<Vec<u8>> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Included(start), Bound::Excluded);
        let page = store.scan(from, end, PAGE_ROWS)?;
        let Some((key, _)) = page.last() else { return Ok(()) };
        last = Some(key.clone());
        for row in page {
            if !f(row)? {
                return Ok(());
            }
        }
    }
}

/// The inode's row, if it is there and decodes.
pub(crate) fn inode(store: &dyn Metastore, ino: Ino) -> Result<Option<StoredInode>, StoreError> {
    let key = inode_row_key(ino);
    let value = store.get(&key)?;
    Ok(match value.map(|value| StoredRow::decode(&key, &value)) {
        Some(Ok(Some(StoredRow::Inode(inode)))) => Some(inode),
        _ => None,
    })
}

/// Prefix of the rows of a directory's entries, with this hash if it is given.
pub(crate) fn entries_prefix(dir: Ino, hash: Option<u64>) -> Vec<u8> {
    let mut prefix = vec![b'E'];
    prefix.extend_from_slice(&dir.0.to_be_bytes());
    prefix.extend(hash.into_iter().flat_map(u64::to_be_bytes));
    prefix
}

/// The names that `ino` has in `dir`, among those of this hash if it is given.
pub(crate) fn names_in(
    store: &dyn Metastore,
    dir: Ino,
    hash: Option<u64>,
    ino: Ino,
) -> Result<Vec<Name>, StoreError> {
    let prefix = entries_prefix(dir, hash);
    let end = chiton_metastore::prefix_end(&prefix);
    let (mut names, mut seen) = (Vec::new(), 0);
    each_row(store, &prefix, end.as_deref(), |(key, value)| {
        if let Ok(Some(StoredRow::Entry { name, ino: target, .. })) = StoredRow::decode(&key, &value)
            && target == ino
        {
            names.push(name);
        }
        seen += 1;
        // Of all entries, one is enough; of those of one hash, there are few.
        Ok::<_, StoreError>(hash.is_some() || (names.is_empty() && seen < SEARCH_ROWS))
    })?;
    Ok(names)
}

/// The path of an inode as far as it can be told: by its parents, as they stand in the rows.
pub(crate) fn path_of(store: &dyn Metastore, ino: Ino) -> Result<Option<String>, StoreError> {
    let mut parts: Vec<String> = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT {
        let Some(inode) = inode(store, at)? else { return Ok(None) };
        let names = names_in(store, inode.parent, None, at)?;
        let Some(name) = names.first().filter(|_| parts.len() < DEPTH_MAX) else { return Ok(None) };
        parts.push(shown(name.as_bytes()));
        at = inode.parent;
    }
    parts.reverse();
    Ok(Some(format!("/{}", parts.join("/"))))
}

/// A name for people: what is no text, and control characters, escaped.
pub(crate) fn shown(name: &[u8]) -> String {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' { out.extend(c.escape_default()) } else { out.push(c) }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}
