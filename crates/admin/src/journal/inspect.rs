//! Reports whether a journal is whole, and its content.

use std::collections::BTreeSet;
use std::fmt;

use chiton_journal::{Flaw, Found, Frame, Place, SegmentState, Survey, survey};
use chiton_types::Malformed;
use serde::Serialize;

use crate::journal::error::JournalToolError;
use crate::journal::{OnProgress, events_of};

/// Damage that is listed one by one; beyond it is only counted.
const LISTED_MAX: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    pub segment: u64,
    /// Offset in the segment, in bytes.
    pub offset: u64,
    /// Length of the damaged bytes.
    pub bytes: u64,
    /// The first lost position; none if nothing is lost.
    pub first: Option<u64>,
    /// The last lost position, if known.
    pub last: Option<u64>,
    /// Whole frames in the damage whose positions are unknown.
    pub unplaced_frames: u64,
    /// The expected and the found value.
    pub what: String,
}

impl Lost {
    pub(crate) fn of(flaw: &Flaw) -> Lost {
        Lost {
            segment: flaw.damage.segment,
            offset: flaw.damage.offset,
            bytes: flaw.bytes,
            first: flaw.lost.map(|(first, _)| first.0),
            last: flaw.lost.and_then(|(_, last)| last).map(|last| last.0),
            unplaced_frames: flaw.unplaced_frames,
            what: flaw.damage.cause.to_string(),
        }
    }

    /// A frame with a right checksum whose payload is not events.
    pub(crate) fn malformed(frame: &Frame<'_>, malformed: &Malformed) -> Lost {
        Lost {
            segment: frame.segment,
            offset: frame.offset,
            bytes: frame.payload.len() as u64,
            first: Some(frame.first.0),
            last: Some(frame.last().0),
            unplaced_frames: 0,
            what: malformed.to_string(),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {:016x}, offset {}: {}", self.segment, self.offset, self.what)?;
        match (self.first, self.last) {
            (None, _) => write!(f, "; no event is lost"),
            (Some(first), Some(last)) if first == last => write!(f, "; lost: position {first}"),
            (Some(first), Some(last)) => write!(f, "; lost: positions {first} to {last}"),
            (Some(first), None) => write!(f, "; lost: all from position {first} on"),
        }?;
        if self.unplaced_frames > 0 {
            write!(f, " (among it {} whole frames whose positions are unknown)", self.unplaced_frames)?;
        }
        Ok(())
    }
}

/// The state of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// `OK` or `DAMAGED`.
    pub integrity: &'static str,
    /// Identity, in hexadecimal: of its file system.
    pub journal: String,
    /// Number of its segments.
    pub segments: u64,
    /// Segments that do not: replaced by a newer writer, or never durable.
    pub void_segments: u64,
    /// Numbers missing between segments, as (first, last).
    pub missing_segments: Vec<(u64, u64)>,
    /// Bytes of all segments.
    pub bytes: u64,
    pub frames: u64,
    pub events: u64,
    /// Position of the first available event, or of the first that will be written.
    pub first: u64,
    /// Position of the last.
    pub last: u64,
    /// Up to where all is known to have been durable.
    pub durable: u64,
    pub epoch: u64,
    /// Number of writers of the available events.
    pub writers: usize,
    /// Sessions whose operations are in it.
    pub sessions: usize,
    pub corrupt: Vec<Lost>,
    /// Number of damages that are not listed.
    pub corrupt_unlisted: u64,
    /// Whether positions behind damage are inferred: from the headers of damaged frames, or from the beginning of
    /// the next segment.
    pub assumed: bool,
    /// An unfinished commit at the end, which is harmless.
    pub torn: Option<String>,
}

impl Inspection {
    /// True if nothing that was durable is damaged.
    pub fn is_whole(&self) -> bool {
        self.corrupt.is_empty()
    }
}

/// Reads all of a journal.
///
/// # Errors
/// The journal's, if it cannot be read at all.
pub fn inspect(place: &dyn Place, progress: OnProgress<'_>) -> Result<Inspection, JournalToolError> {
    let (mut corrupt, mut unlisted) = (Vec::new(), 0);
    let mut sessions = BTreeSet::new();
    let mut visit = |found: Found<'_>| -> Result<(), JournalToolError> {
        let lost = match found {
            Found::Frame(frame) => {
                sessions.insert(frame.header.session);
                match events_of(&frame) {
                    Ok(_) => return Ok(()),
                    Err(malformed) => Lost::malformed(&frame, &malformed),
                }
            }
            Found::Flaw(flaw) => Lost::of(flaw),
        };
        if corrupt.len() < LISTED_MAX {
            corrupt.push(lost)
        } else {
            unlisted += 1
        }
        Ok(())
    };
    let survey = survey(place, &mut visit, progress)?;
    let of = |state| survey.segments.iter().filter(move |note| note.state == state);
    let writers: BTreeSet<u64> =
        of(SegmentState::Live).filter_map(|note| note.header).map(|header| header.nonce).collect();
    sessions.remove(&chiton_types::SessionId(0));
    Ok(Inspection {
        integrity: if corrupt.is_empty() { "OK" } else { "DAMAGED" },
        journal: format!("{:016x}", survey.journal.unwrap_or(0)),
        segments: (of(SegmentState::Live).count() + of(SegmentState::Headless).count()) as u64,
        void_segments: of(SegmentState::Void).count() as u64,
        missing_segments: missing(&survey),
        bytes: survey.segments.iter().map(|note| note.bytes).sum(),
        frames: survey.frames,
        events: survey.events,
        first: survey.first.0,
        last: survey.last.0,
        durable: survey.witnessed.0,
        epoch: survey.epoch.0,
        writers: writers.len(),
        sessions: sessions.len(),
        corrupt,
        corrupt_unlisted: unlisted,
        assumed: survey.assumed,
        torn: survey.torn.map(|damage| damage.to_string()),
    })
}

/// Gaps in the numbers across which positions are lost. (A tool that replaced segments leaves gaps without loss.)
fn missing(survey: &Survey) -> Vec<(u64, u64)> {
    let lost_at: BTreeSet<u64> =
        survey.flaws.iter().filter(|flaw| flaw.lost.is_some()).map(|flaw| flaw.damage.segment).collect();
    let pairs = survey.segments.windows(2);
    let gaps = pairs.filter(|pair| pair[1].number > pair[0].number + 1 && lost_at.contains(&pair[1].number));
    gaps.map(|pair| (pair[0].number + 1, pair[1].number - 1)).collect()
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file system  {}", self.journal)?;
        writeln!(f, "segments     {} ({} void), {} bytes", self.segments, self.void_segments, self.bytes)?;
        writeln!(
            f,
            "events       {} in {} operations of {} sessions",
            self.events, self.frames, self.sessions
        )?;
        match self.events {
            0 => writeln!(f, "positions    none; the next is {}", self.last + 1)?,
            _ => writeln!(
                f,
                "positions    {} to {}, durable to {} at least",
                self.first, self.last, self.durable
            )?,
        }
        writeln!(f, "epoch        {}, written by {} writers", self.epoch, self.writers)?;
        if let Some(torn) = &self.torn {
            writeln!(f, "unfinished   {torn} (harmless: it was never acknowledged as durable)")?;
        }
        for (first, last) in &self.missing_segments {
            writeln!(f, "missing      segments {first:016x} to {last:016x}")?;
        }
        for lost in &self.corrupt {
            writeln!(f, "corrupt      {lost}")?;
        }
        if self.corrupt_unlisted > 0 {
            writeln!(f, "corrupt      {} more", self.corrupt_unlisted)?;
        }
        if self.assumed {
            writeln!(
                f,
                "note         positions behind the damage are inferred from damaged frames and later segments"
            )?;
        }
        write!(f, "Overall journal integrity: {}", self.integrity)
    }
}
