//! Serves the readable part of a damaged file system, read-only.
//!
//! ```text
//!   metadata store ─ unreadable rows that a start needs are replaced ─▶ overlay in memory ─▶ server, read-only
//!   journal ─ up to its damage, without unfit events      ────────────▲       journal of the server: in memory
//! ```
//!
//! Invariants:
//! - Nothing of the file system is changed: the background writes of the server stay in memory, or are refused.
//! - A read of a damaged part gets EIO, and the log says why. A name is never silently absent, except for changes
//!   that the log counts as not shown.

use std::ops::{Bound, Range};
use std::sync::Arc;

use chiton_engine::{MARK, OwnRow, SESSION, SESSION_OVER};
use chiton_journal::{Frame, Identity, MemoryPlace, Place, ReplayError, Shape, replay, reset};
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_namespace::{StoredRow, row_key, rows_with_tag, start_rows, tag, tag_of};
use chiton_objects::{ObjectError, ObjectInfo, Objects};
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::Mutex;
use chiton_server::{
    Apply, DataAddress, FilesystemInfo, Ownership, Role, Server, ServerOptions, StartError, Stores,
};
use chiton_types::{Epoch, PlateId, Position, ShardId};

use crate::Overlay;

/// In place of numbers that cannot be read: above all that were given out, and far from their ends.
const HIGH_POSITION: Position = Position(1 << 48);
const HIGH_SESSION: u64 = 1 << 47;
const HIGH_COUNTER: u64 = 1 << 47;

type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Starts a server for the readable part, which refuses changes. Its log names the parts that cannot be shown.
///
/// # Errors
/// As a server's start, where nothing can be read: the metadata store does not open.
pub fn serve(
    data: &DataAddress,
    options: ServerOptions,
    world: SharedWorld,
) -> Result<Arc<Server>, StartError> {
    let info = Server::info(data)?;
    info.check_one_plate(data, "--salvage")?;
    chiton_server::make_room_for_tools(data);
    let ownership = Ownership::take(data, options.take_over, &*world)?;
    let mut stores = Stores::open(data, PlateId(0))?;
    ownership.guard(&mut stores);
    let Stores { objects, open_meta, place, .. } = stores;
    let store = open_meta().map_err(|e| match e {
        StoreError::Corrupt { .. } => StartError::Corrupt(format!(
            "{e}. Without a metadata store that opens nothing can be served: chiton fsck --rebuild --yes first"
        )),
        _ => StartError::Failed(e.to_string()),
    })?;
    let salvage = Salvage::new(info, store, objects, options.log.clone());
    salvage.replay(&place, &world)?;
    let stores = salvage.stores(world.random())?;
    let options = ServerOptions { read_only: true, grace_ms: 0, ..options };
    let role = Role::Serving {
        info: salvage.info.clone(),
        plates: vec![(PlateId(0), stores)],
        ownership: Some(ownership),
    };
    let server = Server::start_as(role, options, world)?;
    (salvage.log)(
        "this file system is served read-only, with all files that can be read; nothing of it is changed",
    );
    Ok(server)
}

struct Salvage {
    info: FilesystemInfo,
    rows: Arc<Overlay>,
    objects: Arc<dyn Objects>,
    log: Log,
    /// Whether it is known from where on to replay the journal.
    knows_position: bool,
}

impl Salvage {
    /// With rows in the place of those without which no server starts.
    fn new(info: FilesystemInfo, store: Arc<dyn Metastore>, objects: Arc<dyn Objects>, log: Log) -> Salvage {
        let readable = Readable { store, shards: info.shards, log: log.clone(), reported: Mutex::default() };
        let rows = Arc::new(Overlay::new(Arc::new(readable)));
        let mut batch = Batch::new();
        let mut is_whole = |row: OwnRow, accept: &dyn Fn(&OwnRow) -> bool| {
            let (key, value) = row.encode().expect("a row that tools write");
            let found = rows.get(&key).ok().flatten();
            let is_good =
                |value: &Vec<u8>| OwnRow::decode(&key, value).ok().flatten().is_some_and(|row| accept(&row));
            let whole = found.filter(is_good);
            let is_whole = whole.is_some();
            // A range that holds it may be unreadable.
            batch.put(key, whole.unwrap_or(value));
            is_whole
        };
        let knows_position = is_whole(OwnRow::Position(HIGH_POSITION), &|_| true);
        is_whole(OwnRow::SessionMark(HIGH_SESSION), &|row| {
            matches!(row, OwnRow::SessionMark(1..=HIGH_SESSION))
        });
        for shard in 0..info.shards {
            is_whole(OwnRow::InodeMark(ShardId(shard), HIGH_COUNTER), &|row| {
                matches!(row, OwnRow::InodeMark(_, 1..))
            });
        }
        let count = StoredRow::InodeCount(1);
        let found = rows.get(&count.key()).ok().flatten();
        let found = found.filter(|value| matches!(StoredRow::decode(&count.key(), value), Ok(Some(_))));
        batch.put(count.key(), found.unwrap_or_else(|| count.value()));
        rows.commit(&batch).expect("memory takes everything");
        if !knows_position {
            log(
                "how far the metadata store holds the journal cannot be read: what was done after the last checkpoint is not \
                 shown",
            );
        }
        Salvage { info, rows, objects, log, knows_position }
    }

    /// Brings the rows in memory as far as the journal can be read and fits.
    fn replay(&self, place: &Arc<dyn Place>, world: &SharedWorld) -> Result<(), StartError> {
        if !self.knows_position {
            return Ok(());
        }
        let stored = self.position();
        let mut last = stored;
        let mut visit = |frame: &Frame<'_>| {
            last = frame.last();
            Ok::<(), std::convert::Infallible>(())
        };
        if let Err(ReplayError::Journal(error)) = replay(&**place, stored, &mut visit, &mut |_| {}) {
            (self.log)(&format!("the journal: {error}. Changes after position {last} are not shown"));
        }
        let rows = self.rows.clone();
        let stores = Stores {
            objects: self.objects.clone(),
            open_meta: Box::new(move || Ok(rows.clone())),
            place: place.clone(),
            objects_address: String::new(),
        };
        let offline = chiton_server::Offline::open_with(&self.info, PlateId(0), &stores, world.clone())?;
        let select = &mut |_: Position, _: &_, _: &_| true;
        let all = Apply { after: Position(0), upto: last, select, skip_misfits: true };
        match offline.apply(all, &mut |_| {}) {
            Ok(applied) if applied.misfits > 0 => (self.log)(&format!(
                "{} of the journal's last {} changes are not shown, since they rest on metadata that cannot be read",
                applied.misfits,
                applied.misfits + applied.applied
            )),
            Ok(_) => {}
            Err(error) => {
                (self.log)(&format!("changes after position {} are not shown: {error}", self.position()))
            }
        }
        Ok(())
    }

    /// Up to where the rows hold the events.
    fn position(&self) -> Position {
        let (key, _) = OwnRow::Position(Position(0)).encode().expect("a row that tools write");
        let value = self.rows.get(&key).ok().flatten();
        match value.map(|value| OwnRow::decode(&key, &value)) {
            Some(Ok(Some(OwnRow::Position(position)))) => position,
            _ => HIGH_POSITION,
        }
    }

    /// The stores of the server: its journal begins where the rows end, in memory.
    fn stores(&self, nonce: u64) -> Result<Stores, StartError> {
        let place = Arc::new(MemoryPlace::new(Shape::Grows));
        let identity = Identity { journal: self.info.filesystem, epoch: Epoch(1), nonce };
        reset(&*place, identity, self.position().next()).map_err(|e| StartError::Failed(e.to_string()))?;
        let rows = self.rows.clone();
        Ok(Stores {
            objects: Arc::new(Unchanged(self.objects.clone())),
            open_meta: Box::new(move || Ok(rows.clone())),
            place,
            // Clients read through the server, and put nothing past it.
            objects_address: String::new(),
        })
    }
}

/// Rows, without those that only a start needs and that cannot be read.
struct Readable {
    store: Arc<dyn Metastore>,
    shards: u16,
    log: Log,
    /// Tags of the rows whose absence was logged.
    reported: Mutex<Vec<u8>>,
}

impl Readable {
    /// Whether the server continues without this row or its prefix.
    fn is_left_out(&self, key: &[u8], error: &StoreError) -> bool {
        let kind = tag_of(key).unwrap_or_default();
        if !is_start_row(key) || !matches!(error, StoreError::Corrupt { .. }) {
            return false;
        }
        let mut reported = self.reported.lock();
        if !reported.contains(&kind) {
            reported.push(kind);
            (self.log)(&format!("rows of kind {:?} are left out: {error}", char::from(kind)));
        }
        true
    }
}

/// Tags of the rows that a start reads, in order.
const START_TAGS: [u8; 12] = [
    0,
    tag::DECOUPLING,
    SESSION_OVER,
    tag::GARBAGE,
    tag::HISTORY,
    tag::LINKED,
    tag::COUNT,
    tag::ORPHAN,
    tag::POLICY,
    MARK,
    SESSION,
    tag::IMAGE,
];

/// Whether a start reads all rows like this. Without them names and content are as they are.
fn is_start_row(key: &[u8]) -> bool {
    let (start, end) = start_rows();
    (&start[..]..&end[..]).contains(&key)
}

impl Readable {
    /// Rows that a start reads: those of each kind, of each shard, that can be read.
    fn scan_by_kinds(
        &self,
        start: Bound<&[u8]>,
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let (Bound::Included(first) | Bound::Excluded(first)) = start else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        for (shard, kind) in (0..self.shards).flat_map(|shard| START_TAGS.map(|kind| (ShardId(shard), kind)))
        {
            let (from, to) = rows_with_tag(shard, kind);
            if &to[..] <= first || rows.len() >= limit {
                continue;
            }
            if end.is_some_and(|end| &from[..] >= end) {
                break;
            }
            let from = if &from[..] <= first { start } else { Bound::Included(&from[..]) };
            let to = end.map_or(&to[..], |end| end.min(&to));
            match self.store.scan(from, Some(to), limit - rows.len()) {
                Ok(more) => rows.extend(more),
                Err(error) if self.is_left_out(&row_key(shard, kind, &[]), &error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(rows)
    }
}

impl Metastore for Readable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.store.get(key) {
            Err(error) if self.is_left_out(key, &error) => Ok(None),
            result => result,
        }
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        match (start, self.store.scan(start, end, limit)) {
            (Bound::Included(first) | Bound::Excluded(first), Err(StoreError::Corrupt { .. }))
                if is_start_row(first) =>
            {
                self.scan_by_kinds(start, end, limit)
            }
            (_, result) => result,
        }
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        unreachable!("changes stay in the overlay")
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.store.stats()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.store.close()
    }
}

/// Objects that are read only. A deletion is acknowledged, since the row that it belongs to changes only in memory.
struct Unchanged(Arc<dyn Objects>);

fn refused(key: &str) -> ObjectError {
    ObjectError::Io { key: key.to_owned(), cause: "the file system is served read-only".to_owned() }
}

/// A request that waited for a store which denies access would wait for ever.
fn unread(error: ObjectError) -> ObjectError {
    match error {
        ObjectError::Denied { key, cause } => ObjectError::Io { key, cause },
        error => error,
    }
}

impl Objects for Unchanged {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        self.0.get(key, range).map_err(unread)
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        self.0.read_into(key, offset, into).map_err(unread)
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        self.0.size(key).map_err(unread)
    }

    fn put(&self, key: &str, _: &[u8]) -> Result<(), ObjectError> {
        Err(refused(key))
    }

    fn put_if_absent(&self, key: &str, _: &[u8]) -> Result<bool, ObjectError> {
        Err(refused(key))
    }

    fn delete(&self, _: &str) -> Result<(), ObjectError> {
        Ok(())
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        self.0.list(prefix, after, max).map_err(unread)
    }

    fn sync(&self) -> Result<(), ObjectError> {
        Ok(())
    }
}
