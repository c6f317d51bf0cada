//! Rows come in (`open`, `fetch`, `install`) and go out (`evict`).
//!
//! Invariants:
//! - Fetching holds no lock on the namespace: a row that was read before a checkpoint was completed or rows were evicted is
//!   refused at [`Namespace::install`] (the generation), and a row in memory is never overwritten by a fetched one.
//! - Only clean rows leave, never while a checkpoint is under way; a directory or map that lost one is not complete.

use std::fmt;

use chiton_model::CHUNK_BYTES;
use chiton_types::codec::{Malformed, Take};
use chiton_types::{Ino, Kind, Position};

use crate::chunk::Chunk;
use crate::dirty::{REFERENCED, is_dirty};
use crate::fault::Need;
use crate::inode::{COMPLETE, Inode};
use crate::namespace::{DIR_WHOLE_ENTRIES_MAX, Namespace};
use crate::realm::Parents;
use crate::row::{self, INODE_KEY_BYTES, tag};
use crate::stored::StoredRow;
use crate::values::{
    BlockKey, ChunkKey, ContentKey, DecouplingKey, GarbageKey, HistoryKey, LinkedKey, OrphanKey, PolicyKey,
    Present, Xattrs, XattrsKey,
};

/// Rows as they are read: key, value.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The store from which rows are fetched.
pub trait RowSource {
    /// The error of a read.
    type Error;
    /// The value under a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;
    /// The values under keys, in their order.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Self::Error> {
        keys.iter().map(|key| self.get(key)).collect()
    }
    /// Rows from `start` (inclusive) to `end` (exclusive) in order, at most `limit`.
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, Self::Error>;
}

/// Rows fetched for one [`Need`].
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The need that was asked for.
    pub need: Need,
    /// Keys and values as the metadata store has them.
    pub rows: Rows,
    /// The scan reached the end of its range.
    pub exhausted: bool,
    /// The rows cannot be read.
    pub unreadable: bool,
}

impl Fetched {
    /// Says of a directory ([`Need::Dir`]) that the store cannot list it, since what it holds is damaged. Its entries are
    /// then asked for one by one. `None` where there is no such way around.
    pub fn unreadable(need: &Need) -> Option<Fetched> {
        matches!(need, Need::Dir(_)).then(|| Fetched {
            need: need.clone(),
            rows: Rows::new(),
            exhausted: false,
            unreadable: true,
        })
    }
}

#[derive(Debug)]
pub enum OpenError<E> {
    /// The store failed to read a row.
    Source(E),
    /// A row is not what the format says.
    Corrupt(CorruptRow),
}

/// A row that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptRow {
    pub key: Vec<u8>,
    /// The expected form.
    pub cause: Malformed,
}

impl fmt::Display for CorruptRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match row::tag_of(&self.key) {
            Some(tag::INODE) => "an inode",
            Some(tag::ENTRY) => "an entry of a directory",
            Some(tag::CONTENT) => "the content of a file",
            Some(tag::CHUNK) => "the map of a file",
            Some(tag::XATTRS) => "extended attributes",
            Some(tag::BLOCK) => "the references of a block",
            Some(tag::GARBAGE) => "a block to be deleted",
            Some(tag::ORPHAN) => "an inode to be removed",
            Some(tag::COUNT) => "the number of inodes",
            Some(tag::DECOUPLING) => "a decoupling",
            Some(tag::IMAGE) => "a row as a decoupled client saw it",
            _ => "an unknown kind",
        };
        let of = row::ino_of(&self.key);
        let of = of.map(|id| format!(", of {id}")).unwrap_or_default();
        write!(
            f,
            "corrupt row {} of the metadata store ({what}{of}): {}; chiton fsck lists the affected files",
            self.key.escape_ascii(),
            self.cause
        )
    }
}

impl std::error::Error for CorruptRow {}

const PAGE_ROWS: usize = 4096;
/// A smaller directory is fetched whole when a name is looked for in it.
const FILTERED_ENTRIES_MIN: u64 = DIR_WHOLE_ENTRIES_MAX;

impl Namespace {
    /// An empty cache over a formatted store; loads what is always in memory.
    ///
    /// # Errors
    /// If the store fails or a row is corrupt. A store without the row of the count is not formatted: corrupt.
    pub fn open<S: RowSource>(source: &S) -> Result<Namespace, OpenError<S::Error>> {
        let (start, end) = row::start_rows();
        let rows = scan_range(source, start, &end).map_err(OpenError::Source)?;
        Namespace::of_start_rows(rows).map_err(OpenError::Corrupt)
    }

    /// The same, with the rows that are always in memory: those of [`crate::start_rows`], in order. Rows that are not
    /// the namespace's are passed over.
    ///
    /// # Errors
    /// As [`Namespace::open`].
    pub fn of_start_rows(rows: Rows) -> Result<Namespace, CorruptRow> {
        let mut ns = Namespace::new();
        let mut is_counted = false;
        for (key, value) in rows {
            match StoredRow::decode(&key, &value)? {
                Some(StoredRow::InodeCount(count)) => {
                    ns.inode_count = count;
                    is_counted = true;
                }
                Some(StoredRow::Orphan(ino)) => ns.orphans.install(OrphanKey(ino), Some(Present)),
                Some(StoredRow::Garbage(block)) => ns.garbage.install(GarbageKey(block), Some(Present)),
                Some(StoredRow::Policy(ino, change)) => {
                    ns.policies.install(PolicyKey(ino), Some(change));
                    ns.policy_count += 1;
                }
                Some(StoredRow::PolicyChange(version, change)) => {
                    ns.policy_version = ns.policy_version.max(version);
                    ns.policy_history.install(HistoryKey(version), Some(change));
                }
                Some(StoredRow::Linked(ino, dirs)) => {
                    ns.linked.install(LinkedKey(ino), Some(Parents(dirs)));
                }
                Some(StoredRow::Image(id, row, value)) => ns.dirty.before_images.install(id, row, value),
                Some(StoredRow::DecouplingLast(last)) => ns.decoupling_last = last,
                Some(StoredRow::Decoupling(decoupling)) => {
                    let id = decoupling.id.0;
                    if id > ns.decoupling_last {
                        return Err(CorruptRow {
                            key,
                            cause: Malformed { expected: "the number of a decoupling" },
                        });
                    }
                    ns.decouplings.install(DecouplingKey(id), Some(*decoupling));
                    ns.decoupling_count += 1;
                }
                _ => {}
            }
        }
        if !is_counted {
            let cause = Malformed { expected: "the number of inodes in 8 bytes" };
            return Err(CorruptRow { key: row::count_key(), cause });
        }
        Ok(ns)
    }

    /// Changes when rows fetched before may be stale.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Reads all that is needed, single rows of it together; without any lock on the namespace.
    ///
    /// # Errors
    /// The source's: then nothing is known of any of them.
    pub fn fetch_all<S: RowSource>(source: &S, needs: &[Need]) -> Result<Vec<Fetched>, S::Error> {
        let keys: Vec<Option<Vec<u8>>> = needs.iter().map(single_key).collect();
        let asked: Vec<&[u8]> = keys.iter().flatten().map(Vec::as_slice).collect();
        if asked.len() < 2 {
            return needs.iter().map(|need| Namespace::fetch(source, need)).collect();
        }
        let mut values = source.get_many(&asked)?.into_iter();
        let fetch = |(need, key): (&Need, &Option<Vec<u8>>)| {
            let Some(key) = key else { return Namespace::fetch(source, need) };
            let row = values.next().flatten().map(|value| (key.clone(), value));
            let rows = row.into_iter().collect();
            Ok(Fetched { need: need.clone(), rows, exhausted: true, unreadable: false })
        };
        needs.iter().zip(&keys).map(fetch).collect()
    }

    /// Reads the rows that are needed; without any lock on the namespace.
    pub fn fetch<S: RowSource>(source: &S, need: &Need) -> Result<Fetched, S::Error> {
        let mut exhausted = true;
        let rows = match need {
            Need::Inode(_)
            | Need::Entry(..)
            | Need::Content(_)
            | Need::Chunk(..)
            | Need::Xattrs(_)
            | Need::Block(_) => {
                let key = single_key(need).expect("a single row");
                source.get(&key)?.map(|value| (key, value)).into_iter().collect()
            }
            Need::Dir(dir) => scan_prefix(source, row::entries_prefix(*dir))?,
            Need::Chunks(ino) => scan_prefix(source, row::chunks_prefix(*ino))?,
            Need::Slice { dir, after, rows } => {
                let start = row::entry_key(*dir, after + 1, b"");
                let end = row::after_prefix(&row::entries_prefix(*dir));
                let mut got = source.scan(&start, &end, *rows as usize)?;
                exhausted = got.len() < *rows as usize;
                // Entries of one hash are never parted.
                while let Some((last, _)) = got.last().filter(|_| !exhausted) {
                    let next = [last.as_slice(), &[0]].concat();
                    let Some(hash) = last.get(..17) else { break };
                    let stop = row::after_prefix(hash);
                    let more = source.scan(&next, &stop, PAGE_ROWS)?;
                    if more.is_empty() {
                        break;
                    }
                    got.extend(more);
                }
                got
            }
        };
        Ok(Fetched { need: need.clone(), rows, exhausted, unreadable: false })
    }

    /// Takes fetched rows in, unless `generation` (read before the fetch) is no longer current.
    ///
    /// An entry that cannot be decoded is no error: the others of its directory are served; see
    /// [`Namespace::take_torn_rows`].
    ///
    /// # Errors
    /// Any other row that cannot be decoded.
    pub fn install(&mut self, fetched: Fetched, generation: u64) -> Result<(), CorruptRow> {
        if generation != self.generation {
            return Ok(());
        }
        let Fetched { need, rows, exhausted, unreadable } = fetched;
        let first = rows.first();
        let corrupt = |key: &[u8], cause| CorruptRow { key: key.to_vec(), cause };
        match need {
            Need::Inode(ino) => self.install_inode(ino, first)?,
            Need::Entry(dir, name) if rows.is_empty() => {
                let hash = name.hash64();
                let held = self.dirs.entry(dir).or_default();
                if held.find(hash, name.as_bytes()).is_none() {
                    held.insert(hash, name.as_bytes(), 0);
                    self.entries += 1;
                    self.name_bytes += name.as_bytes().len();
                }
            }
            Need::Entry(dir, _) => self.install_entries(dir, &rows),
            Need::Dir(dir) if unreadable => {
                self.unlistable.insert(dir);
            }
            Need::Dir(dir) => {
                self.install_entries(dir, &rows);
                if let Some(inode) = self.inodes.get_mut(dir).filter(|i| i.kind() == Kind::Dir) {
                    inode.flags |= COMPLETE;
                }
            }
            Need::Slice { dir, after, .. } => {
                self.install_entries(dir, &rows);
                let last = rows.last().map_or(after, |(key, _)| hash_in(key));
                let last = if exhausted { u64::MAX } else { last };
                self.dirs.entry(dir).or_default().known.add(after, last);
            }
            Need::Content(ino) => {
                self.contents.install(ContentKey(ino), first.map(|(_, v)| v.as_slice().into()))
            }
            Need::Xattrs(ino) => {
                let value = first.map(|(k, v)| Xattrs::decode(v).map_err(|e| corrupt(k, e))).transpose()?;
                self.xattrs.install(XattrsKey(ino), value);
            }
            Need::Block(block) => {
                let count = |v: &[u8]| {
                    Take::new(v).varint().and_then(|n| {
                        u32::try_from(n).map_err(|_| Malformed { expected: "a count of references" })
                    })
                };
                let value = first.map(|(k, v)| count(v).map_err(|e| corrupt(k, e))).transpose()?;
                self.blocks.install(BlockKey(block), value);
            }
            Need::Chunk(ino, n) => {
                let chunk = first.map(|(k, v)| decode_chunk(v, n).map_err(|e| corrupt(k, e))).transpose()?;
                self.chunks.install(ChunkKey(ino, n), chunk);
            }
            Need::Chunks(ino) => {
                for (key, value) in &rows {
                    let n =
                        key.get(INODE_KEY_BYTES..).and_then(|k| k.try_into().ok()).map(u32::from_be_bytes);
                    let n = n.ok_or(corrupt(key, Malformed { expected: "the number of a chunk" }))?;
                    let chunk = decode_chunk(value, n).map_err(|e| corrupt(key, e))?;
                    self.chunks.install(ChunkKey(ino, n), Some(chunk));
                }
                if let Some(inode) = self.inodes.get_mut(ino).filter(|i| i.kind() == Kind::File) {
                    inode.flags |= COMPLETE;
                }
            }
        }
        Ok(())
    }

    fn install_inode(&mut self, ino: Ino, row: Option<&(Vec<u8>, Vec<u8>)>) -> Result<(), CorruptRow> {
        if self.inodes.get(ino).is_some() || self.inodes.dead.contains_key(&ino) {
            return Ok(());
        }
        match row {
            None => {
                self.inodes.note_dead(ino);
            }
            Some((key, value)) => {
                let mut inode =
                    Inode::decode(ino, value).map_err(|cause| CorruptRow { key: key.clone(), cause })?;
                inode.marks.set(REFERENCED);
                if let Some(root) = self.subtree {
                    if ino == root {
                        inode.parent = root;
                    }
                    inode.position = Position(0);
                    inode.note_attrs_changed(Position(0));
                }
                if inode.kind() == Kind::Dir && inode.entries() == 0 && !self.dirs.contains_key(&ino) {
                    inode.flags |= COMPLETE;
                }
                self.inodes.insert(inode);
            }
        }
        Ok(())
    }

    fn install_entries(&mut self, dir: Ino, rows: &Rows) {
        for (key, value) in rows {
            let (hash, name, target) = match row::decode_entry(key, value) {
                Ok((hash, name, ino, kind, position)) => (hash, name, Some((ino, kind, position))),
                Err(cause) => {
                    self.torn_dirs.insert(dir);
                    self.torn_rows.push(CorruptRow { key: key.clone(), cause });
                    let Ok((hash, name)) = row::decode_entry_key(key) else { continue };
                    (hash, name, None)
                }
            };
            let held = self.dirs.entry(dir).or_default();
            if held.find(hash, name.as_bytes()).is_none() {
                let slot = held.insert(hash, name.as_bytes(), 0);
                match target {
                    Some((ino, kind, position)) => {
                        let position = if self.subtree.is_some() { Position(0) } else { position };
                        slot.set(Some((ino, kind)), position);
                    }
                    None => slot.set_unreadable(),
                }
                self.entries += 1;
                self.name_bytes += name.as_bytes().len();
            }
        }
    }

    /// Rows of entries that could not be decoded since the last call: to be logged.
    pub fn take_torn_rows(&mut self) -> Vec<CorruptRow> {
        std::mem::take(&mut self.torn_rows)
    }

    /// Drops clean rows until about `target_bytes` are in use. Nothing while a checkpoint is under way.
    pub fn evict(&mut self, target_bytes: usize) {
        if self.dirty.active() || self.memory_bytes() <= target_bytes {
            return;
        }
        self.generation += 1;
        if self.name_filters.memory_bytes() > target_bytes / 4 {
            self.name_filters.clear();
        }
        self.inodes.dead.retain(|_, marks| is_dirty(marks));
        self.blocks.drop_clean(..);
        // Two rounds of the clock: the first takes what was not looked at since the last time.
        for _ in 0..self.inodes.slots() * 2 {
            if self.memory_bytes() <= target_bytes {
                return;
            }
            self.hand = (self.hand + 1) % self.inodes.slots();
            let Some(inode) = self.inodes.in_slot(self.hand) else { continue };
            if inode.marks.get() & REFERENCED != 0 {
                inode.marks.set(inode.marks.get() & !REFERENCED);
            } else {
                self.evict_inode(inode.ino);
            }
        }
    }

    /// Before entries of a large directory leave: its names can be asked for afterwards without the store.
    fn filter_names(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(ino).filter(|inode| inode.kind() == Kind::Dir) else { return };
        if !inode.has(COMPLETE) || inode.entries() < FILTERED_ENTRIES_MIN {
            return;
        }
        if let Some(dir) = self.dirs.get(&ino) {
            self.name_filters.begin(ino, dir.len() as u64, dir.hashes());
        }
    }

    /// Drops the clean rows of one inode and of its content and attributes.
    fn evict_inode(&mut self, ino: Ino) {
        let mut gone = self.contents.drop_clean(ContentKey(ino)..=ContentKey(ino));
        gone &= self.xattrs.drop_clean(XattrsKey(ino)..=XattrsKey(ino));
        gone &= self.chunks.drop_clean(ChunkKey(ino, 0)..=ChunkKey(ino, u32::MAX));
        self.filter_names(ino);
        if let Some(dir) = self.dirs.get_mut(&ino) {
            let (before, names_before) = (dir.len(), dir.name_bytes());
            dir.drop_clean();
            self.entries -= before - dir.len();
            self.name_bytes -= names_before - dir.name_bytes();
            if dir.len() == 0 {
                self.dirs.remove(&ino);
            } else {
                gone = false;
            }
        }
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        if inode.kind() != Kind::Dir || inode.entries() > 0 {
            inode.flags &= !COMPLETE;
        }
        if gone && !is_dirty(&inode.marks) {
            self.inodes.remove(ino);
        }
    }
}

pub(crate) fn decode_chunk(value: &[u8], n: u32) -> Result<Chunk, Malformed> {
    let mut v = Take::new(value);
    let chunk = Chunk::decode(&mut v)?;
    v.finish()?;
    match chunk.number() {
        Some(number) if number == u64::from(n) => Ok(chunk),
        _ => Err(Malformed { expected: "the extents of the chunk that the key names" }),
    }
}

/// The key of the one row that is needed; `None` if a range is.
fn single_key(need: &Need) -> Option<Vec<u8>> {
    Some(match need {
        Need::Inode(ino) => row::inode_key(*ino),
        Need::Entry(dir, name) => row::entry_key(*dir, name.hash64(), name.as_bytes()),
        Need::Content(ino) => row::content_key(*ino),
        Need::Chunk(ino, n) => row::chunk_key(*ino, *n),
        Need::Xattrs(ino) => row::xattrs_key(*ino),
        Need::Block(block) => row::block_key(*block),
        Need::Dir(_) | Need::Slice { .. } | Need::Chunks(_) => return None,
    })
}

/// The hash in the key of an entry's row. A key that is too short stands before all entries, by the bytes that it has of a hash.
fn hash_in(key: &[u8]) -> u64 {
    let mut hash = [0; 8];
    for (to, from) in hash.iter_mut().zip(key.iter().skip(INODE_KEY_BYTES)) {
        *to = *from;
    }
    u64::from_be_bytes(hash)
}

fn scan_prefix<S: RowSource>(source: &S, prefix: Vec<u8>) -> Result<Rows, S::Error> {
    let end = row::after_prefix(&prefix);
    scan_range(source, prefix, &end)
}

fn scan_range<S: RowSource>(source: &S, mut start: Vec<u8>, end: &[u8]) -> Result<Rows, S::Error> {
    let mut rows = Rows::new();
    loop {
        let page = source.scan(&start, end, PAGE_ROWS)?;
        let more = page.len() == PAGE_ROWS;
        rows.extend(page);
        match rows.last().filter(|_| more) {
            Some((last, _)) => start = [last.as_slice(), &[0]].concat(),
            None => return Ok(rows),
        }
    }
}

/// The chunk in which a byte of a file is.
pub(crate) fn chunk_of(offset: u64) -> u32 {
    u32::try_from(offset / CHUNK_BYTES).expect("offsets are within the largest file")
}
