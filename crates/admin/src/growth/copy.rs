//! The rows of the source into the stores of the target's plates.

use std::sync::Arc;

use chiton_engine::{OwnRow, mark_key, swept_key};
use chiton_metastore::{Batch, Metastore, StoreError};
use chiton_namespace::StoredRow;
use chiton_runtime::World;
use chiton_server::GrowthTarget;
use chiton_types::{PlateId, Position, ShardId};

use crate::fsck::Progress;
use crate::growth::blocks::Copied;
use crate::growth::{GrowError, Plan, corrupt, each_row, renamed};

/// Rows that are committed at a time.
const BATCH_ROWS: usize = 20_000;
const SESSION_ID_PLATE_SHIFT: u32 = 48;

/// The metadata stores of the target.
pub(super) struct Stores(Vec<Arc<dyn Metastore>>);

impl Stores {
    pub(super) fn open(target: &GrowthTarget) -> Result<Stores, StoreError> {
        target
            .info()
            .plates()
            .all()
            .map(|plate| target.open_meta(plate))
            .collect::<Result<_, _>>()
            .map(Stores)
    }

    /// One of each plate.
    #[cfg(test)]
    pub(super) fn of_all(stores: Vec<Arc<dyn Metastore>>) -> Stores {
        Stores(stores)
    }

    pub(super) fn all(&self) -> Vec<Arc<dyn Metastore>> {
        self.0.clone()
    }

    pub(super) fn of(&self, plate: PlateId) -> &dyn Metastore {
        &*self.0[usize::from(plate.0)]
    }

    pub(super) fn close(self) -> Result<(), StoreError> {
        self.0.iter().try_for_each(|store| store.close())
    }
}

/// A row of the source, as the target has it.
pub(super) struct Placed {
    /// `None`: all of them.
    plate: Option<PlateId>,
    pub(super) value: Vec<u8>,
}

impl Placed {
    fn on(plate: PlateId, value: Vec<u8>) -> Option<Placed> {
        Some(Placed { plate: Some(plate), value })
    }

    fn on_all(value: Vec<u8>) -> Option<Placed> {
        Some(Placed { plate: None, value })
    }

    /// The plates that have it.
    pub(super) fn plates(&self, plan: &Plan) -> impl Iterator<Item = PlateId> + use<> {
        let of = self.plate;
        plan.plates.all().filter(move |plate| of.is_none_or(|of| of == *plate))
    }
}

/// Where a row goes; `None` for rows that are made anew.
pub(super) fn placed(
    plan: &Plan,
    parted: &super::Parted,
    key: &[u8],
    value: &[u8],
) -> Result<Option<Placed>, GrowError> {
    let Some(row) = StoredRow::decode(key, value)? else {
        return match OwnRow::decode(key, value).map_err(|_| corrupt(key, "a row of the server"))? {
            // The clients, the sessions and the messages of the old file system end with it.
            Some(OwnRow::Session(_) | OwnRow::Over(_) | OwnRow::Peer) => Ok(None),
            Some(OwnRow::Position(_) | OwnRow::SessionMark(_) | OwnRow::InodeMark(..) | OwnRow::Swept(_)) => {
                Ok(None)
            }
            None => Err(corrupt(key, "a row that this version knows").into()),
        };
    };
    match row {
        StoredRow::Inode(_)
        | StoredRow::Entry { .. }
        | StoredRow::Content(..)
        | StoredRow::Xattrs(..)
        | StoredRow::Orphan(_)
        | StoredRow::Linked(..) => Ok(Placed::on(plan.owner(key)?, value.to_vec())),
        StoredRow::Chunk(ino, number, chunk) => {
            let plate = plan.owner(key)?;
            let row = StoredRow::Chunk(ino, number, renamed(chunk, plate, parted));
            Ok(Placed::on(plate, row.value()))
        }
        StoredRow::Policy(ino, change) => {
            let row = StoredRow::Policy(ino, plan.policies.with_present_path(ino, change));
            Ok(Placed::on_all(row.value()))
        }
        StoredRow::PolicyChange(..) => Ok(Placed::on_all(value.to_vec())),
        // No plate gives a number again to a decoupling.
        StoredRow::DecouplingLast(_) => Ok(Placed::on_all(value.to_vec())),
        StoredRow::References(..) | StoredRow::InodeCount(_) => Ok(None),
        // Its block is not copied.
        StoredRow::Garbage(_) => Ok(None),
        StoredRow::Decoupling(_) | StoredRow::Image(..) => {
            Err(GrowError::Failed("a subtree is decoupled: merge or discard it first".to_owned()))
        }
    }
}

/// Copies the rows of the namespace.
pub(super) fn rows(
    plan: &Plan,
    source: &dyn Metastore,
    copied: &Copied,
    stores: &Stores,
    total: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), GrowError> {
    let mut plates: Vec<(Batch, u64)> = plan.plates.all().map(|_| (Batch::new(), 0)).collect();
    let mut done = 0;
    each_row(source, (&[], None), &mut |key, value| {
        done += 1;
        progress(Progress { pass: "copying rows", done, total });
        let Some(row) = placed(plan, &copied.parted, key, value)? else { return Ok(()) };
        for plate in row.plates(plan) {
            let (batch, inodes) = &mut plates[usize::from(plate.0)];
            *inodes += u64::from(chiton_namespace::tag_of(key) == Some(chiton_namespace::tag::INODE));
            batch.put(key, row.value.clone());
            if batch.len() >= BATCH_ROWS {
                stores.of(plate).commit(&std::mem::take(batch))?;
            }
        }
        Ok(())
    })?;
    for ((plate, block), count) in &copied.references {
        let row = StoredRow::References(*block, *count);
        plates[usize::from(plate.0)].0.put(row.key(), row.value());
    }
    for (plate, (mut batch, inodes)) in plan.plates.all().zip(plates) {
        let count = StoredRow::InodeCount(inodes);
        batch.put(count.key(), count.value());
        stores.of(plate).commit(&batch)?;
    }
    Ok(())
}

/// Makes the rows that belong to each server, and the journals.
pub(super) fn own_rows(
    plan: &Plan,
    source: &dyn Metastore,
    target: &GrowthTarget,
    copied: &Copied,
    stores: &Stores,
    world: &dyn World,
) -> Result<(), GrowError> {
    let (key, _) = OwnRow::Position(Position(0)).encode().expect("a row of the server");
    let own = |key: &[u8]| -> Result<OwnRow, GrowError> {
        let value = source.get(key)?.ok_or_else(|| corrupt(key, "a row that is there"))?;
        let row = OwnRow::decode(key, &value).map_err(|_| corrupt(key, "a row of the server"))?;
        Ok(row.ok_or_else(|| corrupt(key, "a row of the server"))?)
    };
    let OwnRow::Position(position) = own(&key)? else {
        return Err(corrupt(&key, "the position of the rows").into());
    };
    for plate in plan.plates.all() {
        let mut marks = Vec::new();
        for shard in (0..plan.plates.shards()).map(ShardId) {
            let key = mark_key(shard);
            let OwnRow::InodeMark(_, mark) = own(&key)? else {
                return Err(corrupt(&key, "the mark of a shard").into());
            };
            // Those of other plates' shards are there, too, and never change.
            marks.push(if plan.plates.of_shard(shard) == Some(plate) { mark } else { 1 });
        }
        let store = stores.of(plate);
        let mut swept = Batch::new();
        for writer in &copied.writers {
            if writer >> SESSION_ID_PLATE_SHIFT == u64::from(plate.0) {
                swept.put(swept_key(*writer), []);
            }
        }
        if !swept.is_empty() {
            store.commit(&swept)?;
        }
        let session_mark = plan.writers[usize::from(plate.0)] + 1;
        target
            .begin_plate(plate, store, (position, session_mark), &marks, world)
            .map_err(GrowError::Failed)?;
    }
    Ok(())
}
