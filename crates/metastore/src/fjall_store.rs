//! Rows in fjall's LSM tree, in a local directory.
//!
//! ```text
//!   DIR/rows/   fjall: one keyspace "rows"; key 0xff "commit" = number of the last commit
//!   DIR/acked   the number of the last commit that was acknowledged
//! ```
//!
//! Invariants:
//! - `acked` is written after a commit is durable and before it is acknowledged. At open the number in the rows must
//!   have reached it: fjall cuts its journal at the first frame that it cannot read, torn tail or damaged middle
//!   alike, and would otherwise go back in time without a word.
//! - All reads go through one snapshot, taken anew after each commit. Neither fjall's plain reads nor a snapshot
//!   taken during a commit will do: a flush that ends meanwhile raises the number up to which fjall shows rows, past
//!   the batch that is half applied.
//! - A store that lacks a file by which fjall recognises it is not opened: fjall would take it for an unfinished
//!   one and delete its tables (see `markers.rs`).
//! - Commits are serial, and wait here, not in fjall, while too much is unflushed: fjall's own wait does not end if
//!   its worker has died.
//! - A panic of the library is caught and becomes [`StoreError::Corrupt`].

mod acked;
mod fault;
mod lists;
mod markers;
mod settling;
mod view;

use std::fs;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::RestartIntervalPolicy;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PartitioningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use parking_lot::{Mutex, RwLock};

use crate::store::is_empty_range;
use crate::{Batch, Metastore, Row, StoreError, StoreStats};
use acked::Acked;
use fault::{guarded, sort_error};
use settling::Settling;

/// Key of the number of the last commit (u64 LE).
const COMMIT_KEY: &[u8] = b"\xffcommit";
/// First key that is not a caller's.
const OWN_KEYS: &[u8] = &[0xff];
/// Frozen memtables that may wait for their flush before a commit waits. Below fjall's own limit of 4.
const SEALED_MEMTABLES_MAX: usize = 2;
/// Tables in level 0 before a commit waits for compaction. Below fjall's own limit of 30.
const LEVEL0_TABLES_MAX: usize = 24;

/// Settings of a [`FjallMetastore`]. Only `cache_bytes`, `workers`, `ingest_rows_min` and `unsettled_bytes` may
/// change between openings; the others hold from the store's creation on.
#[derive(Clone, Copy, Debug)]
pub struct FjallOptions {
    /// Bytes of blocks cached in memory.
    pub cache_bytes: u64,
    /// Bytes of a memtable; up to about four of them live in memory, plus one commit.
    pub memtable_bytes: u64,
    /// Bytes of fjall's own journals before it flushes early. At least 64 MiB.
    pub journal_bytes_max: u64,
    /// Threads that flush and compact, at least 1.
    pub workers: usize,
    /// A commit of at least this many rows becomes tables at once. That costs a quarter of the path through journal
    /// and memtable, but each such commit leaves a table for compaction.
    pub ingest_rows_min: usize,
    /// After this many committed bytes, memtables become tables, so that the library can drop its journal. A commit of as many
    /// bytes becomes tables at once.
    pub unsettled_bytes: usize,
    /// Bytes of a table, about. A step of compaction writes about ten of them before the old ones go: on a small disk they are small.
    pub table_bytes: u64,
}

impl Default for FjallOptions {
    fn default() -> FjallOptions {
        FjallOptions {
            cache_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            journal_bytes_max: 256 << 20,
            workers: 2,
            ingest_rows_min: 100_000,
            unsettled_bytes: 8 << 20,
            table_bytes: 64 << 20,
        }
    }
}

struct Open {
    /// The state after the last commit.
    view: RwLock<Snapshot>,
    rows: Keyspace,
    database: Database,
}

struct Writer {
    acked: Acked,
    commit: u64,
    settling: Settling,
    /// Whether the last commit became tables, whose compacted copies then exist beside them.
    ingested: bool,
}

/// A metadata store in a local directory.
pub struct FjallMetastore {
    path: PathBuf,
    options: FjallOptions,
    open: RwLock<Option<Open>>,
    /// Held during a commit.
    writer: Mutex<Option<Writer>>,
}

/// The value of a caller's key. The empty key and the store's own rows are hidden from callers.
fn value(view: &Snapshot, rows: &Keyspace, key: &[u8]) -> fjall::Result<Option<Vec<u8>>> {
    if key.is_empty() || key.starts_with(OWN_KEYS) {
        return Ok(None);
    }
    Ok(view.get(rows, key)?.map(|value| value.to_vec()))
}

fn rows(
    view: &Snapshot,
    rows: &Keyspace,
    start: Bound<&[u8]>,
    end: Option<&[u8]>,
    limit: usize,
) -> fjall::Result<Vec<Row>> {
    let end = end.unwrap_or(OWN_KEYS).min(OWN_KEYS);
    if is_empty_range(start, Some(end)) {
        return Ok(Vec::new());
    }
    let range = view.range::<&[u8], _>(rows, (start, Bound::Excluded(end)));
    let rows = range.take(limit).map(|row| row.into_inner().map(|(k, v)| (k.to_vec(), v.to_vec())));
    rows.collect()
}

fn row_options(options: &FjallOptions) -> KeyspaceCreateOptions {
    // Reasons and figures: docs/decisions/2026-11-21-metadata-store.md.
    KeyspaceCreateOptions::default()
        .max_memtable_size(options.memtable_bytes)
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(options.table_bytes)))
        .data_block_size_policy(BlockSizePolicy::all(4 << 10))
        .data_block_restart_interval_policy(RestartIntervalPolicy::all(16))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0))))
        // The filter and the index of a table in one block each are read as a whole for a key, unless they are cached.
        .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        .index_block_partitioning_policy(PartitioningPolicy::all(true))
        .with_kv_separation(None)
}

fn open_database(path: &Path, options: &FjallOptions) -> fjall::Result<Open> {
    let database = Database::builder(path.join("rows"))
        .cache_size(options.cache_bytes)
        .max_journaling_size(options.journal_bytes_max)
        .worker_threads(options.workers)
        .manual_journal_persist(true)
        .open()?;
    let rows = database.keyspace("rows", || row_options(options))?;
    Ok(Open { view: RwLock::new(database.snapshot()), rows, database })
}

impl FjallMetastore {
    /// Opens the store in directory `path`; makes it if there is none.
    ///
    /// `Busy` if another process has it, `Corrupt` if an acknowledged commit is missing or files are damaged.
    pub fn open(path: &Path, options: FjallOptions) -> Result<FjallMetastore, StoreError> {
        let path = path.to_owned();
        let (open, writer) = guarded(&path, || {
            let failed = |e| sort_error(&path, e);
            // Not those above it: a data directory that is gone is not begun anew.
            if !path.is_dir() {
                fs::create_dir(&path).map_err(|e| failed(e.into()))?;
            }
            markers::check(&path)?;
            // The library opens no store without its lock, which is an empty file.
            if path.join("rows/version").exists() && !path.join("rows/lock").exists() {
                fs::File::create(path.join("rows/lock")).map_err(|e| failed(e.into()))?;
            }
            let open = open_database(&path, &options).map_err(|e| match e {
                fjall::Error::JournalRecovery(_) => {
                    let cause = format!("the library's journal ({}) is damaged: {e}", journals(&path));
                    StoreError::Corrupt { path: path.clone(), cause }
                }
                e => failed(e),
            })?;
            let commit = last_commit(&path, &open)?;
            let acked = Acked::open(&path, commit > 0)?;
            if acked.last() > commit {
                let cause = format!(
                    "commit {} was acknowledged, but the rows end at {commit}: the library's journal ({}) is damaged or was cut",
                    acked.last(),
                    journals(&path)
                );
                return Err(StoreError::Corrupt { path: path.clone(), cause });
            }
            Ok((open, Writer { acked, commit, settling: Settling::default(), ingested: false }))
        })
        .map_err(with_remedy)?;
        // Without copies there is only no way back from a damaged list.
        let _ = lists::keep(&path);
        Ok(FjallMetastore { path, options, open: RwLock::new(Some(open)), writer: Mutex::new(Some(writer)) })
    }

    /// Rebuilds a store that does not open into one that does, from its undamaged parts. Lists of tables come from
    /// their copies. Where the library's journal is damaged, the rows go back to the state before the damage, or to
    /// the tables. Returns a description of each step. The original files stay in `rows.before-rebuild` until the
    /// next rebuild.
    ///
    /// # Errors
    /// If it cannot be opened then either: all is as it was before.
    pub fn rebuild(path: &Path, options: FjallOptions) -> Result<Vec<String>, StoreError> {
        let failed = |e: io::Error| sort_error(path, e.into());
        let (rows, before) = (path.join("rows"), path.join("rows.before-rebuild"));
        match fs::remove_dir_all(&before) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        lists::link_tree(&rows, &before).map_err(failed)?;
        let rebuilt = FjallMetastore::rebuild_in_place(path, options);
        if rebuilt.is_err() {
            fs::remove_dir_all(&rows).and_then(|()| fs::rename(&before, &rows)).map_err(failed)?;
        }
        rebuilt
    }

    fn rebuild_in_place(path: &Path, options: FjallOptions) -> Result<Vec<String>, StoreError> {
        let failed = |e: io::Error| sort_error(path, e.into());
        let mut done = lists::restore(path).map_err(failed)?;
        match FjallMetastore::open(path, options) {
            Ok(_) => return Ok(done),
            Err(StoreError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        // First with as much of the library's journal as it reads, then without.
        for without in [false, true] {
            if without {
                done.push(format!("left out {}", journals(path)));
                empty_journals(path).map_err(failed)?;
            }
            let acked = path.join("acked");
            let old = fs::read(&acked).map_err(failed)?;
            // The rows now decide which commit was the last one.
            fs::remove_file(&acked).map_err(failed)?;
            match FjallMetastore::open(path, options) {
                Ok(store) => {
                    let commit = store.writer.lock().as_mut().map_or(Ok(0), |writer| {
                        let commit = writer.commit;
                        writer.acked.set(commit).map(|()| commit)
                    })?;
                    done.push(format!("went back to commit {commit} of the rows"));
                    return Ok(done);
                }
                Err(error) => {
                    fs::write(&acked, old).map_err(failed)?;
                    if without || !matches!(error, StoreError::Corrupt { .. }) {
                        return Err(error);
                    }
                }
            }
        }
        unreachable!("the second time returns")
    }

    /// Begins the library's journal anew, which the library does automatically only at 64 MB. All rows must be in
    /// tables, and the caller holds the writer's lock.
    fn renew_journal(&self) -> Result<(), StoreError> {
        let failed = |e: io::Error| sort_error(&self.path, e.into());
        let mut open = self.open.write();
        guarded(&self.path, || {
            drop(open.take());
            empty_journals(&self.path).map_err(failed)?;
            // A reader of an older state keeps the store open: then it is reopened later, as after an error.
            *open = Some(open_database(&self.path, &self.options).map_err(|e| sort_error(&self.path, e))?);
            Ok(())
        })
    }

    /// Whether the library's journal is much longer than the commits that only it holds. The library renews it at 64 MB.
    fn has_long_journal(&self) -> Result<bool, StoreError> {
        let mut bytes = 0;
        for name in journal_names(&self.path) {
            let journal = fs::metadata(self.path.join("rows").join(name));
            bytes += journal.map_err(|e| sort_error(&self.path, e.into()))?.blocks() * 512;
        }
        Ok(bytes > 2 * self.options.unsettled_bytes as u64)
    }

    fn run<T>(&self, op: impl FnOnce(&Open) -> fjall::Result<T>) -> Result<T, StoreError> {
        let open = self.open.read();
        let Some(open) = &*open else { return Err(self.closed()) };
        guarded(&self.path, || op(open).map_err(|e| sort_error(&self.path, e)))
    }

    fn closed(&self) -> StoreError {
        StoreError::Closed { path: self.path.clone() }
    }

    /// Whether the remaining rows fit the free space: compaction writes all of them before the old tables go. A removed row counts
    /// twice: the old tables still hold it, beside its tombstone.
    fn fits_compacted(&self, free: u64, removed: u64) -> Result<bool, StoreError> {
        let StoreStats { disk_bytes, rows_approx } = self.stats()?;
        let left = rows_approx.saturating_sub(removed.saturating_mul(2));
        let left_bytes = (u128::from(disk_bytes) * u128::from(left)) / u128::from(rows_approx.max(1));
        Ok(disk_bytes <= free || left_bytes as u64 + self.options.unsettled_bytes as u64 <= free)
    }

    /// Writes everything in memory to tables and waits for compaction to come to rest: for tools and measurements.
    pub fn settle(&self) -> Result<(), StoreError> {
        let _no_commit_under_way = self.writer.lock();
        self.run(|open| {
            open.rows.rotate_memtable()?;
            wait(open, |open| open.rows.sealed_memtable_count() > 0)?;
            compact(open)
        })
    }
}

/// Deletes tables that compaction has replaced and no view shows: fjall does so only when a memtable with anything in it
/// ends, which after an ingestion may be long.
fn let_go(open: &Open) -> fjall::Result<()> {
    open.rows.rotate_memtable().map(drop)
}

/// Waits while `busy`, or until the store is found to be broken.
fn wait(open: &Open, busy: impl Fn(&Open) -> bool) -> fjall::Result<()> {
    while busy(open) {
        open.database.persist(PersistMode::Buffer)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the library works on threads of its own, in real time"
        )]
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Writes all rows that remain to new tables, and deletes the old ones.
fn compact(open: &Open) -> fjall::Result<()> {
    open.rows.major_compact()?;
    // The previous view keeps tables that the compaction has replaced, and so does a view that is not newer than it.
    if let Some(commit) = open.rows.get(COMMIT_KEY)? {
        open.rows.insert(COMMIT_KEY, commit)?;
    }
    let view = open.database.snapshot();
    *open.view.write() = view;
    let_go(open)?;
    wait(open, |open| open.rows.sealed_memtable_count() > 0)
}

/// Through fjall's journal and memtable.
fn insert(open: &Open, rows: &Batch, commit: u64) -> fjall::Result<()> {
    let mut batch = open.database.batch().durability(Some(PersistMode::SyncAll));
    for (key, value) in rows.rows() {
        match value {
            Some(value) => batch.insert(&open.rows, key, value),
            None => batch.remove(&open.rows, key),
        }
    }
    batch.insert(&open.rows, COMMIT_KEY, commit.to_le_bytes());
    batch.commit()
}

/// Writes the rows as new tables, past journal and memtable: the tables are synced, then one new version of the
/// tree has all of them. A failure or crash leaves files that no version names.
fn ingest(open: &Open, rows: &Batch, commit: u64) -> fjall::Result<()> {
    let mut tables = open.rows.start_ingestion()?;
    for (key, value) in rows.rows() {
        match value {
            Some(value) => tables.write(key, value)?,
            None => tables.write_tombstone(key)?,
        }
    }
    // Behind all others: keys of callers do not begin with 0xff.
    tables.write(COMMIT_KEY, commit.to_le_bytes())?;
    tables.finish()
}

/// The names of the library's journals.
fn journal_names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.join("rows")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".jnl"))
        .collect();
    names.sort();
    names
}

/// Leaves one journal of the library, without content. (Without any it would take the store for a new one, and show no rows.)
fn empty_journals(path: &Path) -> io::Result<()> {
    let mut names = journal_names(path);
    names.sort_by_key(|name| name.trim_end_matches(".jnl").parse::<u64>().unwrap_or(u64::MAX));
    let last = names.pop();
    for name in names {
        fs::remove_file(path.join("rows").join(name))?;
    }
    match last {
        Some(name) => fs::File::create(path.join("rows").join(name))?.sync_all(),
        None => Ok(()),
    }
}

/// A list of the journal files, for messages.
fn journals(path: &Path) -> String {
    let names: Vec<String> = journal_names(path).into_iter().map(|name| format!("rows/{name}")).collect();
    names.join(", ")
}

/// Adds advice about damage to an error of opening.
fn with_remedy(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { path, cause } if !cause.contains("--rebuild") => {
            // The lists were verified before the library read anything.
            let place = match cause.contains("rows/") {
                true => String::new(),
                false => format!(" (in its journal, {}, or a table below rows/keyspaces)", journals(&path)),
            };
            let cause = format!(
                "{cause}{place}; chiton fsck --rebuild goes back to what is whole, and the journal of the file system is replayed from \
                 there"
            );
            StoreError::Corrupt { path, cause }
        }
        error => error,
    }
}

fn last_commit(path: &Path, open: &Open) -> Result<u64, StoreError> {
    let value = open.rows.get(COMMIT_KEY).map_err(|e| sort_error(path, e))?;
    let Some(value) = value else { return Ok(0) };
    let number = value[..].try_into().map(u64::from_le_bytes);
    number.map_err(|_| StoreError::Corrupt {
        path: path.to_owned(),
        cause: "the commit number has no 8 bytes".into(),
    })
}

impl Metastore for FjallMetastore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.run(|open| value(&open.view.read(), &open.rows, key))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.run(|open| {
            // A copy, lest a commit wait for many reads with all other readers behind it.
            let view = open.view.read().clone();
            keys.iter().map(|key| value(&view, &open.rows, key)).collect()
        })
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.run(|open| {
            let view = open.view.read().clone();
            rows(&view, &open.rows, start, end, limit)
        })
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let Some(writer) = &mut *writer else { return Err(self.closed()) };
        let commit = writer.commit + 1;
        let bytes = batch.rows().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum::<usize>();
        let ingests =
            batch.len() >= self.options.ingest_rows_min.max(1) || bytes >= self.options.unsettled_bytes;
        let ingested = writer.ingested;
        self.run(|open| {
            wait(open, |open| {
                open.rows.sealed_memtable_count() > SEALED_MEMTABLES_MAX
                    || open.rows.l0_table_count() > LEVEL0_TABLES_MAX
            })?;
            if ingests {
                ingest(open, batch, commit)?
            } else {
                insert(open, batch, commit)?
            }
            let view = open.database.snapshot();
            *open.view.write() = view;
            if ingested && !ingests { let_go(open) } else { Ok(()) }
        })?;
        (writer.commit, writer.ingested) = (commit, ingests);
        writer.acked.set(commit)?;
        writer.settling.commits += 1;
        writer.settling.bytes += bytes;
        // An ingestion writes the memtables before it to tables first.
        if ingests && self.run(|open| Ok(open.rows.sealed_memtable_count() == 0))? {
            writer.settling.note_all();
        } else if writer.settling.bytes >= self.options.unsettled_bytes {
            self.run(|open| open.rows.rotate_memtable())?;
            writer.settling.bytes = 0;
            let commits = writer.settling.commits;
            writer.settling.frozen.push_back(commits);
        }
        let _ = lists::keep(&self.path);
        Ok(())
    }

    fn snapshot(&self) -> Result<Arc<dyn Metastore>, StoreError> {
        let (view, rows) = self.run(|open| Ok((open.view.read().clone(), open.rows.clone())))?;
        Ok(Arc::new(view::View::new(self.path.clone(), view, rows)))
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        let rows_approx = self.run(|open| Ok(open.rows.approximate_len() as u64))?;
        let disk_bytes = disk_bytes(&self.path).map_err(|e| sort_error(&self.path, e.into()))?;
        Ok(StoreStats { disk_bytes, rows_approx: rows_approx.saturating_sub(1) })
    }

    fn settled(&self) -> (u64, u64) {
        let mut writer = self.writer.lock();
        let Some(writer) = &mut *writer else { return (0, 0) };
        if let Ok(left) = self.run(|open| Ok(open.rows.sealed_memtable_count())) {
            writer.settling.note_frozen(left);
        }
        (writer.settling.commits, writer.settling.settled)
    }

    fn reclaim(&self, free: u64, removed: u64) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let Some(writer) = &mut *writer else { return Err(self.closed()) };
        let has_long_journal = self.has_long_journal()?;
        let fits = removed > 0 && self.fits_compacted(free, removed)?;
        if !has_long_journal && !fits {
            return Ok(removed == 0);
        }
        self.run(|open| {
            open.rows.rotate_memtable()?;
            wait(open, |open| open.rows.sealed_memtable_count() > 0)?;
            writer.settling.note_all();
            if !fits {
                return Ok(());
            }
            compact(open)
        })?;
        if self.has_long_journal()? {
            self.renew_journal()?;
        }
        Ok(fits || removed == 0)
    }

    fn close(&self) -> Result<(), StoreError> {
        // The writer first: a commit under way ends before the files go.
        let writer = self.writer.lock().take();
        let open = self.open.write().take();
        let was_open = open.is_some();
        guarded(&self.path, || {
            drop((open, writer));
            if was_open {
                // After the last compaction.
                let _ = lists::keep(&self.path);
            }
            Ok(())
        })
    }
}

impl Drop for FjallMetastore {
    fn drop(&mut self) {
        // Commits are on disk already, and no caller is left for an error.
        let _ = self.close();
    }
}

/// Allocated bytes below `dir`; files that vanish meanwhile count as nothing.
fn disk_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
            Ok(meta) => Ok(meta.blocks() * 512),
            Err(e) => Err(e),
        }
        .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(0) } else { Err(e) })?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
