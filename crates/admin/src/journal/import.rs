//! Putting an export back into a journal that was reset.
//!
//! Invariants:
//! - The file is read and checked whole before anything is written.
//! - Positions stay: an event comes back under the number that it had.
//! - No event is put behind a gap, unless the caller allows it.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use chiton_journal::{Identity, Journal, Options, Place, Progress, survey};
use chiton_model::Event;
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{Position, Seq, SessionId, ShardId};
use serde::Serialize;

use crate::journal::OnProgress;
use crate::journal::error::JournalToolError;
use crate::journal::export_file::{ExportHeader, ExportReader, Record};

/// Bytes that are appended at a time.
const BATCH_BYTES: usize = 1 << 20;
/// Most events of nothing in one frame.
const FILL_EVENTS: u64 = 1 << 30;

/// The treatment of gaps in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// A file with a gap is refused, and nothing is imported.
    Refuse,
    /// Nothing from the first one on is imported.
    StopAt,
    /// They are filled with events that do nothing.
    Fill,
}

/// Counts of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Events that are in the journal again.
    pub events: u64,
    /// Events without effect that replace lost ones.
    pub filled: u64,
    /// Events that were left out: the metadata store has them.
    pub stored: u64,
    /// Position of the journal's last event.
    pub last: u64,
}

/// The result of checking a file.
struct Shape {
    bytes: u64,
    first: Option<Position>,
    gap: Option<(Position, String)>,
}

/// Imports. `stored` is up to where the metadata store holds the events.
///
/// # Errors
/// [`JournalToolError::Refused`] if the file is another file system's, if the journal is not empty, or if the store is not
/// as it was at the export; [`JournalToolError::NotAnExport`]; the journal's.
pub fn import<R: Read + Seek>(
    place: Arc<dyn Place>,
    identity: Identity,
    stored: Position,
    mut from: R,
    gaps: Gaps,
    progress: OnProgress<'_>,
) -> Result<Imported, JournalToolError> {
    let header = *ExportReader::new(std::io::BufReader::new(&mut from))?.header();
    if header.journal != identity.journal {
        return Err(refused(format!(
            "the export is of the journal of file system {:016x}, this one is {:016x}: name the data that it was taken from",
            header.journal, identity.journal
        )));
    }
    let shape = check(&mut from, stored)?;
    fits(&header, &shape, stored, gaps)?;
    let target = survey::<JournalToolError>(&*place, &mut |_| Ok(()), &mut |_| {})?;
    if target.events > 0 || !target.is_whole() || target.last != stored {
        return Err(refused(format!(
            "the journal is not empty (it holds positions {} to {}): export it if it is needed, then reset it \
             (chiton journal reset)",
            target.first, target.last
        )));
    }
    from.seek(SeekFrom::Start(0))?;
    let (journal, _) = Journal::open(place, identity, Options::default())?;
    let filled = fill(
        &journal,
        ExportReader::new(std::io::BufReader::new(from))?,
        stored,
        gaps,
        shape.bytes,
        progress,
    );
    let closed = journal.close();
    let imported = filled?;
    closed?;
    Ok(imported)
}

/// Reads all records once.
fn check<R: Read + Seek>(from: &mut R, stored: Position) -> Result<Shape, JournalToolError> {
    from.seek(SeekFrom::Start(0))?;
    let mut reader = ExportReader::new(std::io::BufReader::new(&mut *from))?;
    let mut shape = Shape { bytes: 0, first: None, gap: None };
    let mut next: Option<Position> = None;
    while let Some(record) = reader.next_record()? {
        match record {
            Record::Lost { first, last, why } => {
                if last.is_none_or(|last| last > stored) && shape.gap.is_none() {
                    shape.gap = Some((first.max(stored.next()), why));
                }
                next = last.map(Position::next);
            }
            Record::Frame { first, header, bytes, .. } => {
                if next.is_some_and(|next| next != first) {
                    let next = next.unwrap_or_default();
                    let what = format!("position {next} should follow, there is {first}");
                    if shape.gap.is_none() && first > stored.next() {
                        shape.gap = Some((next.max(stored.next()), what));
                    }
                }
                shape.bytes += bytes.len() as u64;
                let last = Position(first.0 + u64::from(header.event_count) - 1);
                if last > stored && shape.first.is_none() {
                    shape.first = Some(first);
                }
                next = Some(last.next());
            }
        }
    }
    Ok(shape)
}

fn fits(header: &ExportHeader, shape: &Shape, stored: Position, gaps: Gaps) -> Result<(), JournalToolError> {
    if let Some(then) = header.stored.filter(|then| *then != stored) {
        return Err(refused(format!(
            "the metadata store holds the events up to position {stored}, at the export it was {then}: it has moved on, \
             and what the export holds would be applied a second time or to another state; export \
             the journal as it is now (chiton journal export)"
        )));
    }
    let Some(first) = shape.first else {
        return Err(refused(format!(
            "there is nothing to import: the metadata store holds all up to position {stored} already"
        )));
    };
    if let (Some((at, why)), Gaps::Refuse) = (&shape.gap, gaps) {
        return Err(refused(format!(
            "the export lacks events from position {at} on ({why}): --stop-at-gap imports what comes before, --fill-gaps \
             puts events that do nothing in their place"
        )));
    }
    if first > stored.next() && shape.gap.is_none() && gaps != Gaps::Fill {
        return Err(refused(format!(
            "the export begins with position {first}, the metadata store needs position {} first: take an export that holds \
             it, or import with --fill-gaps",
            stored.next()
        )));
    }
    if first <= stored {
        return Err(refused(format!(
            "the operation at position {first} is in the metadata store in part: is it the right one?"
        )));
    }
    Ok(())
}

fn fill<R: Read>(
    journal: &Journal,
    mut reader: ExportReader<R>,
    stored: Position,
    gaps: Gaps,
    bytes_total: u64,
    progress: OnProgress<'_>,
) -> Result<Imported, JournalToolError> {
    let mut done = Imported::default();
    let mut next = stored.next();
    let (mut batch, mut batch_events, mut bytes_done) = (Vec::new(), 0, 0);
    while let Some(record) = reader.next_record()? {
        // Lost events appear as a gap before the next frame.
        let Record::Frame { first, header, bytes, .. } = record else { continue };
        let events = u64::from(header.event_count);
        bytes_done += bytes.len() as u64;
        if first < next {
            done.stored += events;
            continue;
        }
        if first > next {
            if gaps != Gaps::Fill {
                break;
            }
            while next < first {
                let n = (first.0 - next.0).min(FILL_EVENTS);
                let mut payload = Vec::new();
                let count = u32::try_from(n).expect("a frame of bounded size");
                Event::Skipped { count }.encode(&mut payload);
                let header =
                    FrameHeader { event_count: count, shard: ShardId(0), session: SessionId(0), seq: Seq(0) };
                encode_frame(&mut batch, &header, &payload);
                (next, batch_events, done.filled) = (Position(next.0 + n), batch_events + n, done.filled + n);
                flush_if(journal, &mut batch, &mut batch_events, BATCH_BYTES)?;
            }
        }
        batch.extend_from_slice(&bytes);
        (next, batch_events, done.events) =
            (Position(next.0 + events), batch_events + events, done.events + events);
        flush_if(journal, &mut batch, &mut batch_events, BATCH_BYTES)?;
        progress(Progress { bytes_done, bytes_total });
    }
    flush_if(journal, &mut batch, &mut batch_events, 0)?;
    journal.wait_durable(journal.last())?;
    done.last = journal.last().0;
    Ok(done)
}

fn flush_if(
    journal: &Journal,
    batch: &mut Vec<u8>,
    events: &mut u64,
    above: usize,
) -> Result<(), JournalToolError> {
    if batch.len() > above {
        journal.append_vec(std::mem::take(batch), std::mem::take(events))?;
    }
    Ok(())
}

fn refused(why: String) -> JournalToolError {
    JournalToolError::Refused(why)
}
