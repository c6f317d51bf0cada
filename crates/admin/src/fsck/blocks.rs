//! The last pass merges by block: references in maps, reference counts, blocks to delete, and objects in the store.

use std::collections::BTreeMap;

use chiton_objects::{ObjectError, block, read_block};
use chiton_types::{BlockId, Ino, PlateId};

use crate::fsck::census::ByBlock;
use crate::fsck::cursor::Cursor;
use crate::fsck::sorter::{Sorter, packed, u32_at, u64_at};
use crate::fsck::{CheckError, Problem, Run};

const PAGE: usize = 1_000;
/// Maximum number of extents of one block that should be marked as shared and are reported in one check.
const UNSHARED_MAX: usize = 1_000;

/// The references to a block, by one plate.
#[derive(Default)]
struct Named {
    plate: PlateId,
    extents: u32,
    /// The first extent's file and chunk.
    by: (u64, u32),
    /// How much of the block is needed.
    end: u32,
    /// Files and chunks of extents that are marked as the only reference.
    unshared: Vec<(u64, u32)>,
}

struct Cursors {
    extents: Cursor<35>,
    references: Cursor<22>,
    garbage: Cursor<18>,
    objects: Cursor<24>,
    sessions: Cursor<8>,
    swept: Cursor<8>,
}

pub(crate) fn check(run: &mut Run<'_>, sorted: ByBlock) -> Result<(), CheckError> {
    let ByBlock { extents, references, garbage, sessions, swept, session_marks, maps_whole } = sorted;
    let objects = list(run)?;
    let total = objects.len();
    let mut c = Cursors {
        extents: Cursor::new(extents)?,
        references: Cursor::new(references)?,
        garbage: Cursor::new(garbage)?,
        objects: Cursor::new(objects)?,
        sessions: Cursor::new(sessions)?,
        swept: Cursor::new(swept)?,
    };
    let mut done = 0;
    while let Some(pair) = c.lowest() {
        let block = BlockId { writer: pair.0, number: pair.1 };
        let named = c.named(pair)?;
        let mut counts: BTreeMap<PlateId, u32> = BTreeMap::new();
        while let Some(r) = c.references.take_pair(pair)? {
            counts.insert(plate_at(&r), u32_at(&r, 18));
        }
        let mut garbage: Vec<PlateId> = Vec::new();
        while let Some(r) = c.garbage.take_pair(pair)? {
            garbage.push(plate_at(&r));
        }
        let mut object = None;
        while let Some(r) = c.objects.take_pair(pair)? {
            object = Some(u64_at(&r, 16));
            done += 1;
            run.report_progress("blocks", done, total);
        }
        if maps_whole {
            for named in &named {
                check_references(run, block, named, counts.remove(&named.plate))?;
            }
            for (plate, count) in &counts {
                check_references(run, block, &Named { plate: *plate, ..Named::default() }, Some(*count))?;
            }
        }
        if let Some(first) = named.first() {
            let ino = Ino(first.by.0);
            for &plate in &garbage {
                run.report(Problem::GarbageInUse { plate, block, ino })?;
            }
            let end = named.iter().map(|named| named.end).max().unwrap_or_default();
            check_object(run, block, first.by, end, object)?;
        } else if let Some(bytes) = object.filter(|_| garbage.is_empty() && counts.is_empty() && maps_whole) {
            let held = c.sessions.seek(block.writer)?;
            let swept = c.swept.seek(block.writer)?;
            let plate = run.rows.of_session(block.writer);
            let mark = plate.map(|plate| session_marks.get(&plate).copied().unwrap_or(0));
            let unknown = mark.is_none_or(|mark| block.writer >= mark) && !run.options.live;
            if held {
                run.summary.blocks_of_sessions += 1;
            } else if swept || unknown {
                run.report(Problem::LeakedBlock { plate: plate.unwrap_or_default(), block, bytes })?;
            } else {
                run.summary.blocks_to_sweep += 1;
            }
        }
    }
    Ok(())
}

impl Cursors {
    fn lowest(&mut self) -> Option<(u64, u64)> {
        let heads = [
            self.extents.head_pair(),
            self.references.head_pair(),
            self.garbage.head_pair(),
            self.objects.head_pair(),
        ];
        heads.into_iter().flatten().min()
    }

    /// The references to a block by each plate that names it.
    fn named(&mut self, pair: (u64, u64)) -> Result<Vec<Named>, CheckError> {
        let mut all: Vec<Named> = Vec::new();
        while let Some(r) = self.extents.take_pair(pair)? {
            let (plate, by) = (plate_at(&r), (u64_at(&r, 18), u32_at(&r, 26)));
            if all.last().is_none_or(|named| named.plate != plate) {
                all.push(Named { plate, by, ..Named::default() });
            }
            let Some(named) = all.last_mut() else { continue };
            named.extents = named.extents.saturating_add(1);
            named.end = named.end.max(u32_at(&r, 31));
            if r[30] == 0 && named.unshared.len() < UNSHARED_MAX {
                named.unshared.push(by);
            }
        }
        Ok(all)
    }
}

/// The plate in a record about a block.
fn plate_at(record: &[u8]) -> PlateId {
    PlateId(u16::from_be_bytes([record[16], record[17]]))
}

/// All objects of blocks: writer, number, bytes.
fn list(run: &mut Run<'_>) -> Result<Sorter<24>, CheckError> {
    let mut sorter = run.sorter();
    let mut after: Option<String> = None;
    loop {
        let page = run.objects.list("blocks/", after.as_deref(), PAGE)?;
        let Some(last) = page.last() else { return Ok(sorter) };
        after = Some(last.key.clone());
        for object in page {
            // Other files there are none of ours.
            let Some(block) = BlockId::parse_key(&object.key) else { continue };
            run.summary.blocks += 1;
            run.summary.block_bytes += object.bytes;
            sorter.push(packed![block.writer, block.number, object.bytes])?;
            run.report_progress("objects", run.summary.blocks, 0);
        }
    }
}

fn check_references(
    run: &mut Run<'_>,
    block: BlockId,
    named: &Named,
    says: Option<u32>,
) -> Result<(), CheckError> {
    let alone = named.extents == 1 && named.unshared.len() == 1;
    if !alone {
        for &(ino, chunk) in &named.unshared {
            let (ino, references) = (Ino(ino), named.extents);
            run.report(Problem::UnsharedExtent { block, ino, chunk, references })?;
        }
    }
    let is = (named.extents > 0 && !alone).then_some(named.extents);
    if says != is {
        run.report(Problem::WrongReferenceCount { plate: named.plate, block, says, is })?;
    }
    Ok(())
}

fn check_object(
    run: &mut Run<'_>,
    block: BlockId,
    by: (u64, u32),
    end: u32,
    listed: Option<u64>,
) -> Result<(), CheckError> {
    let (ino, chunk) = (Ino(by.0), by.1);
    let key = block.key();
    // It may have been put after the list was read.
    let bytes = match listed.map_or_else(|| run.objects.size(&key), Ok) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => {
            return run.report(Problem::MissingBlock { block, ino, chunk });
        }
        Err(error) => return Err(error.into()),
    };
    let corrupt = |cause| Problem::CorruptBlock { block, ino, cause };
    match block::payload_bytes_of(bytes) {
        None => return run.report(corrupt(format!("{bytes} bytes are no length of a block"))),
        Some(payload) if payload < u64::from(end) => {
            let cause = format!("it has {payload} bytes, and {end} are needed");
            return run.report(corrupt(cause));
        }
        Some(_) => {}
    }
    if !run.options.content {
        return Ok(());
    }
    let read = read_block(run.objects, &key, None);
    run.read(bytes);
    match read {
        Ok(_) => Ok(()),
        Err(ObjectError::Corrupt { cause, .. } | ObjectError::Io { cause, .. }) => run.report(corrupt(cause)),
        Err(error) if error.is_not_found() => run.report(Problem::MissingBlock { block, ino, chunk }),
        Err(error) => Err(error.into()),
    }
}
