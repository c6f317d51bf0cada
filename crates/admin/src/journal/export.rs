//! Exports a journal into a file: all whole frames, and notes about damage.

use std::io::Write;

use chiton_journal::{Found, Place, survey};
use chiton_types::Position;
use serde::Serialize;

use crate::journal::error::JournalToolError;
use crate::journal::export_file::{ExportHeader, ExportWriter};
use crate::journal::inspect::Lost;
use crate::journal::{OnProgress, events_of};

/// Counts of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    pub frames: u64,
    pub events: u64,
    pub first: u64,
    pub last: u64,
    pub lost: Vec<Lost>,
}

impl Exported {
    /// True if everything that was durable is in the export.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }
}

/// Writes all whole frames of a journal to `to`. `stored` is the position of the metadata store, if known.
///
/// # Errors
/// The writer's; the journal's, if it cannot be read at all.
pub fn export(
    place: &dyn Place,
    stored: Option<Position>,
    to: impl Write,
    progress: OnProgress<'_>,
) -> Result<Exported, JournalToolError> {
    // A first reading for the header, which keeps nothing.
    let shape = survey::<JournalToolError>(place, &mut |_| Ok(()), &mut |_| {})?;
    let header =
        ExportHeader { journal: shape.journal.unwrap_or(0), epoch: shape.epoch, stored, first: shape.first };
    let mut writer = ExportWriter::new(to, &header)?;
    let mut lost = Vec::new();
    let mut visit = |found: Found<'_>| -> Result<(), JournalToolError> {
        let note = match found {
            Found::Frame(frame) => match events_of(&frame) {
                Ok(_) => {
                    writer.frame(frame.first, &frame.header, frame.payload)?;
                    return Ok(());
                }
                Err(malformed) => Lost::malformed(&frame, &malformed),
            },
            Found::Flaw(flaw) => Lost::of(flaw),
        };
        if let Some(first) = note.first {
            writer.lost(Position(first), note.last.map(Position), &note.what)?;
        }
        lost.push(note);
        Ok(())
    };
    let end = survey(place, &mut visit, progress)?;
    writer.finish()?;
    Ok(Exported { frames: end.frames, events: end.events, first: end.first.0, last: end.last.0, lost })
}
