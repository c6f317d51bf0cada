//! Which plates name each block, and the copy of the blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chiton_metastore::Metastore;
use chiton_namespace::{StoredRow, rows_with_tag, tag};
use chiton_objects::{ObjectError, Objects, encode_block, read_block};
use chiton_runtime::parallel;
use chiton_types::{BlockId, PlateId, ShardId};

use crate::fsck::Progress;
use crate::fsck::cursor::Cursor;
use crate::fsck::sorter::{Sorter, packed, u64_at};
use crate::growth::{GrowError, Options, Parted, Plan, each_row};

/// Blocks that are copied at a time.
const THREADS: usize = 8;
/// Blocks that are handed to the threads at once.
const BATCH: usize = 64;
const PAGE: usize = 1_000;

/// Extents by block: writer, number, plate, whether the extent is shared.
pub(super) struct Census {
    extents: Sorter<19>,
}

/// The blocks of the target.
#[derive(Default)]
pub(super) struct Copied {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    pub(super) parted: Parted,
    /// References of shared blocks, by plate and block as the plate names it.
    pub(super) references: BTreeMap<(PlateId, BlockId), u32>,
    /// Writers of all blocks.
    pub(super) writers: BTreeSet<u64>,
}

/// A block to copy: from, to.
type Job = (BlockId, BlockId);

impl Census {
    pub(super) fn take(
        plan: &Plan,
        rows: &dyn Metastore,
        options: &Options,
        total: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Census, GrowError> {
        let mut extents = Sorter::new(options.memory_bytes / 4, &options.temp_dir);
        let mut done = 0;
        for shard in (0..plan.plates.shards()).map(ShardId) {
            let (start, end) = rows_with_tag(shard, tag::CHUNK);
            each_row(rows, (&start, Some(&end)), &mut |key, value| {
                let plate = plan.owner(key)?;
                let Some(StoredRow::Chunk(_, _, chunk)) = StoredRow::decode(key, value)? else {
                    return Ok(());
                };
                for extent in chunk.extents() {
                    let BlockId { writer, number } = extent.block;
                    extents.push(packed![writer, number, plate.0, u8::from(extent.shared)])?;
                }
                done += 1;
                progress(Progress { pass: "reading the maps", done, total });
                Ok(())
            })?;
        }
        Ok(Census { extents })
    }

    /// Copies the blocks that are not at the target yet, and removes those that nothing names.
    pub(super) fn copy(
        self,
        plan: &Plan,
        (from, to): (Arc<dyn Objects>, Arc<dyn Objects>),
        options: &Options,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Copied, GrowError> {
        let total = self.extents.len();
        let mut present = Cursor::new(list(&*to, options)?)?;
        let mut extents = Cursor::new(self.extents)?;
        let mut copied = Copied::default();
        let mut next: Vec<u64> = vec![0; plan.writers.len()];
        let (mut jobs, mut done): (Vec<Job>, u64) = (Vec::new(), 0);
        // First the blocks under their own names, then the further copies: an earlier attempt may have put others under those names.
        let mut further: Vec<Job> = Vec::new();
        while let Some(pair) = [extents.head_pair(), present.head_pair()].into_iter().flatten().min() {
            let block = BlockId { writer: pair.0, number: pair.1 };
            let mut by_plate: BTreeMap<PlateId, (u32, bool)> = BTreeMap::new();
            while let Some(record) = extents.take_pair(pair)? {
                let plate = PlateId(u16::from_be_bytes([record[16], record[17]]));
                let (count, is_shared) = by_plate.entry(plate).or_default();
                *count += 1;
                *is_shared |= record[18] != 0;
                done += 1;
            }
            let mut bytes_there = None;
            while let Some(record) = present.take_pair(pair)? {
                bytes_there = Some(u64_at(&record, 16));
            }
            if by_plate.is_empty() {
                to.delete(&block.key())?;
                continue;
            }
            for (at, (plate, (count, is_shared))) in by_plate.into_iter().enumerate() {
                let mut name = block;
                if at > 0 {
                    let slot = usize::from(plate.0);
                    name = BlockId { writer: plan.writers[slot], number: next[slot] };
                    next[slot] += 1;
                    copied.parted.insert((block, plate), name);
                    further.push((block, name));
                }
                copied.writers.insert(name.writer);
                if is_shared {
                    copied.references.insert((plate, name), count);
                }
            }
            if bytes_there.is_none_or(|bytes| from.size(&block.key()).ok() != Some(bytes)) {
                jobs.push((block, block));
            }
            if jobs.len() == BATCH {
                copied.put(&from, &to, std::mem::take(&mut jobs))?;
            }
            progress(Progress { pass: "copying blocks", done, total });
        }
        copied.put(&from, &to, jobs)?;
        for jobs in further.chunks(BATCH) {
            copied.put(&from, &to, jobs.to_vec())?;
        }
        to.sync()?;
        Ok(copied)
    }
}

impl Copied {
    /// Copies blocks, each verified by its checksums.
    fn put(
        &mut self,
        from: &Arc<dyn Objects>,
        to: &Arc<dyn Objects>,
        jobs: Vec<Job>,
    ) -> Result<(), GrowError> {
        let (from, to, count) = (from.clone(), to.clone(), jobs.len());
        let put = parallel::map("copy-blocks", THREADS, count, move |at| -> Result<u64, ObjectError> {
            let (source, target) = jobs[at];
            let payload = read_block(&*from, &source.key(), None)?;
            let object = encode_block(&[&payload]);
            to.put(&target.key(), &object)?;
            Ok(object.len() as u64)
        });
        for bytes in put {
            self.bytes += bytes?;
            self.blocks += 1;
        }
        Ok(())
    }
}

/// The blocks that are there: writer, number, bytes.
fn list(objects: &dyn Objects, options: &Options) -> Result<Sorter<24>, GrowError> {
    let mut sorter = Sorter::new(options.memory_bytes / 4, &options.temp_dir);
    let mut after: Option<String> = None;
    loop {
        let page = objects.list("blocks/", after.as_deref(), PAGE)?;
        let Some(last) = page.last() else { return Ok(sorter) };
        after = Some(last.key.clone());
        for object in page {
            if let Some(block) = BlockId::parse_key(&object.key) {
                sorter.push(packed![block.writer, block.number, object.bytes])?;
            }
        }
    }
}
