//! Rows in SlateDB's LSM tree, on an object store.
//!
//! ```text
//!   PREFIX/manifest/  PREFIX/wal/  PREFIX/compacted/  …     SlateDB's own objects
//!   commit: write batch ─▶ log (one object, put if absent) ─▶ snapshot for readers
//! ```
//!
//! Invariants:
//! - Opening fences the earlier writer: its next commit fails with [`StoreError::Fenced`].
//! - A commit is durable when the object of the log that holds its batch is; the batch is in one object.
//! - All reads use one snapshot, which each commit replaces: no reader sees rows that are not durable.
//! - Waiting happens on the caller's thread, never on one of the runtime.

mod cache;
mod view;

use std::future::Future;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chiton_async::block_on;
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use parking_lot::{Mutex, RwLock};
use slatedb::config::{CloseOptions, CompressionCodec, FlushOptions, FlushType, Settings};
use slatedb::{CloseReason, Db, DbSnapshot, ErrorKind, WriteBatch};

use crate::{Batch, Metastore, Row, StoreError, StoreStats};
use cache::BlockCache;
use view::View;

/// First key that is no caller's, as in other stores.
const OWN_KEYS: &[u8] = &[0xff];
/// Maximum time to open or close before the object store is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Estimated bytes of a row in the tables, for the estimate of their number.
const ROW_BYTES: u64 = 48;

/// Settings of a [`SlateMetastore`].
#[derive(Clone, Copy, Debug)]
pub struct SlateOptions {
    /// Bytes of blocks and indexes cached in memory.
    pub cache_bytes: usize,
    /// Bytes of rows in memory before they become a table.
    pub memtable_bytes: usize,
}

impl Default for SlateOptions {
    fn default() -> SlateOptions {
        SlateOptions { cache_bytes: 128 << 20, memtable_bytes: 64 << 20 }
    }
}

struct Open {
    db: Db,
    view: RwLock<Arc<DbSnapshot>>,
}

/// A metadata store on an object store.
pub struct SlateMetastore {
    name: PathBuf,
    prefix: Path,
    objects: Arc<dyn ObjectStore>,
    open: RwLock<Option<Arc<Open>>>,
    /// Held during a commit.
    writer: Mutex<()>,
}

fn settings(options: SlateOptions) -> Settings {
    // Reasons and figures: docs/decisions/2026-11-22-metadata-store-on-objects.md.
    Settings {
        flush_interval: None,
        manifest_poll_interval: Duration::from_secs(5),
        l0_sst_size_bytes: options.memtable_bytes,
        max_unflushed_bytes: options.memtable_bytes.saturating_mul(8),
        compression_codec: Some(CompressionCodec::Lz4),
        ..Settings::default()
    }
}

impl SlateMetastore {
    /// Opens the store below `prefix`; makes it if there is none. Takes it over from a writer that has it open.
    /// `name` stands in errors.
    ///
    /// `Io` if the object store cannot be used or does not answer for a minute.
    pub fn open(
        objects: Arc<dyn ObjectStore>,
        prefix: &str,
        name: &str,
        options: SlateOptions,
    ) -> Result<SlateMetastore, StoreError> {
        let prefix = Path::from(prefix);
        let builder = Db::builder(prefix.clone(), objects.clone())
            .with_settings(settings(options))
            .with_db_cache(Arc::new(BlockCache::new(options.cache_bytes)), 0);
        let store = SlateMetastore {
            name: name.into(),
            prefix,
            objects,
            open: RwLock::new(None),
            writer: Mutex::new(()),
        };
        let db = store.within_patience(builder.build())?;
        let view = RwLock::new(db.snapshot().map_err(|e| store.sort(&e))?);
        *store.open.write() = Some(Arc::new(Open { db, view }));
        Ok(store)
    }

    /// The same in a directory, which is made. Several processes may share it.
    ///
    /// # Errors
    /// As [`SlateMetastore::open`].
    pub fn open_in(
        dir: &std::path::Path,
        prefix: &str,
        options: SlateOptions,
    ) -> Result<SlateMetastore, StoreError> {
        let io = |cause: String| StoreError::Io { path: dir.to_owned(), cause };
        std::fs::create_dir_all(dir).map_err(|e| io(e.to_string()))?;
        // Commits survive a loss of power.
        let objects = LocalFileSystem::new_with_prefix(dir).map_err(|e| io(e.to_string()))?.with_fsync(true);
        let name = dir.join(prefix).display().to_string();
        SlateMetastore::open(Arc::new(objects), prefix, &name, options)
    }

    fn within_patience<T>(
        &self,
        op: impl Future<Output = Result<T, slatedb::Error>>,
    ) -> Result<T, StoreError> {
        block_on(async {
            match tokio::time::timeout(PATIENCE, op).await {
                Ok(result) => result.map_err(|e| self.sort(&e)),
                Err(_) => {
                    let cause = format!("the object store did not answer for {} s", PATIENCE.as_secs());
                    Err(StoreError::Away { path: self.name.clone(), cause })
                }
            }
        })
    }

    fn opened(&self) -> Result<Arc<Open>, StoreError> {
        self.open.read().clone().ok_or_else(|| StoreError::Closed { path: self.name.clone() })
    }

    /// The state after the last commit.
    fn view(&self) -> Result<View, StoreError> {
        let rows = self.opened()?.view.read().clone();
        Ok(View { name: self.name.clone(), rows, stats: StoreStats::default() })
    }

    fn sort(&self, error: &slatedb::Error) -> StoreError {
        sorted(&self.name, error)
    }
}

fn sorted(name: &std::path::Path, error: &slatedb::Error) -> StoreError {
    let path = name.to_owned();
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => StoreError::Fenced { path },
        // A part of the library that the service has failed closes the whole.
        ErrorKind::Unavailable | ErrorKind::Closed(_) => StoreError::Away { path, cause: words(error) },
        ErrorKind::Data => StoreError::Corrupt { path, cause: words(error) },
        _ => StoreError::Io { path, cause: words(error) },
    }
}

/// The whole chain of causes, in one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

impl Metastore for SlateMetastore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.view()?.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.view()?.get_many(keys)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.view()?.scan(start, end, limit)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let _one_at_a_time = self.writer.lock();
        let open = self.opened()?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut writes = WriteBatch::new();
        for (key, value) in batch.rows() {
            match value {
                Some(value) => writes.put(key, value),
                None => writes.delete(key),
            }
        }
        let committed = block_on(async {
            let handle = open.db.write(writes).await?;
            open.db.flush().await?;
            handle.await_durable().await?;
            open.db.snapshot()
        });
        *open.view.write() = committed.map_err(|e| self.sort(&e))?;
        Ok(())
    }

    fn snapshot(&self) -> Result<Arc<dyn Metastore>, StoreError> {
        Ok(Arc::new(View { stats: self.stats()?, ..self.view()? }))
    }

    fn shorten_log(&self) -> Result<(), StoreError> {
        let options = FlushOptions { flush_type: FlushType::MemTable };
        let open = self.opened()?;
        block_on(open.db.flush_with_options(options)).map_err(|e| self.sort(&e))
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        let open = self.opened()?;
        let failed =
            |e: object_store::Error| StoreError::Io { path: self.name.clone(), cause: e.to_string() };
        let all = self.objects.list(Some(&self.prefix));
        let disk_bytes =
            block_on(all.try_fold(0, async |sum, object| Ok(sum + object.size))).map_err(failed)?;
        let manifest = open.db.manifest();
        let tables: u64 = manifest.all_sst_views().map(|table| table.estimate_size()).sum();
        Ok(StoreStats { disk_bytes, rows_approx: tables / ROW_BYTES })
    }

    fn close(&self) -> Result<(), StoreError> {
        // A commit under way ends first.
        let _no_commit = self.writer.lock();
        let Some(open) = self.open.write().take() else { return Ok(()) };
        // Every commit is in the log already: nothing is written that the next opening needs.
        let options = CloseOptions { flush_type: Some(FlushType::Wal) };
        match self.within_patience(open.db.close_with_options(options)) {
            // Whose it is now does not matter any more.
            Err(StoreError::Fenced { .. }) => Ok(()),
            result => result,
        }
    }
}

impl Drop for SlateMetastore {
    fn drop(&mut self) {
        // Commits are durable already, and no caller is left for an error.
        let _ = self.close();
    }
}
