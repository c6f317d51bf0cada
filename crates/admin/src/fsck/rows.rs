//! Reading a store page by page, and finding names in it.

use std::ops::Bound;

use chiton_metastore::{Metastore, Row, StoreError};
use chiton_model::{PartRange, decode_parts};
use chiton_namespace::{StoredInode, StoredRow, inode_row, tag};
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

/// Rows that cannot be read: behind `after`, before `before` (empty: from the first, to the last).
pub(crate) struct Gap {
    pub(crate) after: Vec<u8>,
    pub(crate) before: Vec<u8>,
    pub(crate) cause: String,
}

/// Calls `f` for every row that can be read, and for every gap between them.
pub(crate) fn each_readable_row<E: From<StoreError>>(
    store: &dyn Metastore,
    mut f: impl FnMut(Result<Row, Gap>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut from, mut last) = (Bound::Included(Vec::new()), Vec::new());
    loop {
        let start = from.as_ref().map(Vec::as_slice);
        let (page, rows) = match store.scan(start, None, PAGE_ROWS) {
            Ok(page) => (page, PAGE_ROWS),
            // The rows before the damage, one after the other.
            Err(StoreError::Corrupt { .. }) => (readable(store, start)?, 1),
            Err(error) => return Err(error.into()),
        };
        if let Some((key, _)) = page.last() {
            last = key.clone();
            from = Bound::Included([&key[..], &[0]].concat());
            page.into_iter().try_for_each(|row| f(Ok(row)))?;
            continue;
        }
        if rows > 1 {
            return Ok(());
        }
        let Err(StoreError::Corrupt { cause, .. }) = store.scan(from.as_ref().map(Vec::as_slice), None, 1)
        else {
            return Ok(());
        };
        let behind = behind_damage(store, &last)?;
        let next = behind.as_ref().map(|key| store.scan(Bound::Included(key), None, 1)).transpose()?;
        let before = next.into_iter().flatten().next().map(|(key, _)| key);
        f(Err(Gap { after: last, before: before.clone().unwrap_or_default(), cause }))?;
        let Some(before) = before else { return Ok(()) };
        (from, last) = (Bound::Included(before.clone()), before);
    }
}

/// Rows from `start` on up to damage, which a page of the usual size meets.
fn readable(store: &dyn Metastore, start: Bound<&[u8]>) -> Result<Vec<Row>, StoreError> {
    let mut limit = PAGE_ROWS;
    while limit > 1 {
        limit /= 2;
        match store.scan(start, None, limit) {
            Err(StoreError::Corrupt { .. }) => {}
            result => return result,
        }
    }
    Ok(Vec::new())
}

/// A key behind `last` from which on rows can be read again: the distance is doubled until that is so, then halved.
fn behind_damage(store: &dyn Metastore, last: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let can_be_read = |key: &KeyPrefix| match store.scan(Bound::Included(key), None, 1) {
        Ok(_) => Ok(true),
        Err(StoreError::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    };
    let mut base = [0; PLACE_BYTES];
    for (to, from) in base.iter_mut().zip(last) {
        *to = *from;
    }
    let mut bad = base;
    for bit in 0..=8 * PLACE_BYTES {
        // Nothing stands behind all keys, and nothing is read there.
        let mut good = moved(&base, bit).unwrap_or([0xff; PLACE_BYTES]);
        if !can_be_read(&good)? {
            bad = good;
            continue;
        }
        for bit in (0..bit).rev() {
            let Some(middle) = moved(&bad, bit).filter(|middle| *middle < good) else { continue };
            if can_be_read(&middle)? { good = middle } else { bad = middle }
        }
        return Ok(Some(good.to_vec()));
    }
    Ok(None)
}

/// The beginning of a key as a number: enough to distinguish the entries of a directory.
type KeyPrefix = [u8; PLACE_BYTES];
const PLACE_BYTES: usize = 20;

/// The place so much further on; `None` behind the last.
fn moved(from: &KeyPrefix, bit: usize) -> Option<KeyPrefix> {
    let mut to = *from;
    let mut carry = 1u16 << (bit % 8);
    for byte in to[..PLACE_BYTES - bit / 8].iter_mut().rev() {
        carry += u16::from(*byte);
        *byte = carry as u8;
        carry >>= 8;
        if carry == 0 {
            return Some(to);
        }
    }
    None
}

/// An empty result, if the rows cannot be read.
fn if_readable<T: Default>(result: Result<T, StoreError>) -> Result<T, StoreError> {
    match result {
        Err(StoreError::Corrupt { .. }) => Ok(T::default()),
        result => result,
    }
}

/// The inode's row, if it exists and decodes.
pub(crate) fn inode(store: &dyn Metastore, ino: Ino) -> Result<Option<StoredInode>, StoreError> {
    let key = inode_row(tag::INODE, ino);
    let value = if_readable(store.get(&key))?;
    Ok(match value.map(|value| StoredRow::decode(&key, &value)) {
        Some(Ok(Some(StoredRow::Inode(inode)))) => Some(inode),
        _ => None,
    })
}

/// Prefix of the rows of a directory's entries, with this hash if it is given.
pub(crate) fn entries_prefix(dir: Ino, hash: Option<u64>) -> Vec<u8> {
    let mut prefix = inode_row(tag::ENTRY, dir);
    prefix.extend(hash.into_iter().flat_map(u64::to_be_bytes));
    prefix
}

/// The parts that a directory lists; none if the list cannot be read.
pub(crate) fn parts_in(store: &dyn Metastore, home: Ino) -> Result<Vec<PartRange>, StoreError> {
    let row = store.get(&StoredRow::Content(home, Vec::new()).key())?;
    Ok(row.and_then(|value| decode_parts(&value).ok()).unwrap_or_default())
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
    let all = each_row(store, &prefix, end.as_deref(), |(key, value)| {
        if let Ok(Some(StoredRow::Entry { name, ino: target, .. })) = StoredRow::decode(&key, &value)
            && target == ino
        {
            names.push(name);
        }
        seen += 1;
        // Of all entries, one is enough; of those of one hash, there are few.
        Ok::<_, StoreError>(hash.is_some() || (names.is_empty() && seen < SEARCH_ROWS))
    });
    if_readable(all)?;
    Ok(names)
}

/// The path of an inode as far as known: by its parents, as recorded in the rows.
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

/// A name for terminals: invalid UTF-8 and control characters are escaped.
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
