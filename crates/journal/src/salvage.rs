//! Finds the whole frames in a segment's bytes, also behind damage, and their positions.
//!
//! ```text
//!   run 0        bad 0     run 1              bad 1    run 2          the next segment
//!   frames …  │  ?????  │  frames …        │  ?????  │  frames …   │  first
//!   ──▶ from the header     by bad headers              from the next segment ◀──
//! ```
//!
//! Invariants:
//! - No frame is given out whose checksum is wrong, and none whose position is not known.
//! - Behind damage, reading continues at the end that the bad frame states, if a whole frame or a mark is there,
//!   otherwise at the next mark. A payload may contain the bytes of a frame, but not a mark.

use chiton_types::Position;

use crate::damage::Damage;
use crate::frame;
use crate::reader::{Frame, SegmentReader};

/// Bytes that are no whole frame.
#[derive(Clone, Debug)]
pub(crate) struct DamagedBytes {
    pub(crate) damage: Damage,
    pub(crate) bytes: u64,
    /// The number of events in the bad frame's header.
    pub(crate) claimed: Option<u64>,
}

/// Frames side by side, whose positions count from 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run<'a> {
    pub(crate) frames: Vec<Frame<'a>>,
    events: u64,
    /// Position of the first event, once it is known.
    pub(crate) first: Option<Position>,
}

/// A segment taken apart: `runs[i]` lies before `bads[i]`.
#[derive(Clone, Debug)]
pub(crate) struct Salvage<'a> {
    pub(crate) runs: Vec<Run<'a>>,
    pub(crate) bads: Vec<DamagedBytes>,
    /// Positions behind damage are derived from the headers of bad frames, or from the assumption that the
    /// segment's end is complete.
    pub(crate) assumed: bool,
}

/// Separates whole frames from damage.
pub(crate) fn salvage<'a>(mut reader: SegmentReader<'a>, bytes: &'a [u8]) -> Salvage<'a> {
    let mut salvage = Salvage { runs: vec![Run::default()], bads: Vec::new(), assumed: false };
    while let Some(item) = reader.next() {
        let run = salvage.runs.last_mut().expect("there is one from the start");
        match item {
            Ok(frame) => {
                let events = u64::from(frame.header.event_count);
                run.frames.push(Frame { first: Position(run.events), ..frame });
                run.events = run.events.saturating_add(events);
            }
            Err(damage) => {
                let start = damage.offset as usize;
                let resume = resume_after(&reader, bytes, start);
                let end = resume.unwrap_or(bytes.len());
                let claimed = frame::hop(&bytes[start..])
                    .filter(|(hop, _)| resume == Some(start + hop))
                    .map(|(_, events)| events);
                salvage.bads.push(DamagedBytes { damage, bytes: (end - start) as u64, claimed });
                salvage.runs.push(Run::default());
                match resume {
                    Some(offset) => reader.resume_at(offset),
                    None => break,
                }
            }
        }
    }
    salvage
}

/// The offset at which whole frames continue behind damage at `start`.
fn resume_after(reader: &SegmentReader<'_>, bytes: &[u8], start: usize) -> Option<usize> {
    if let Some((hop, _)) = frame::hop(&bytes[start..])
        && reader.is_whole_at(start + hop)
    {
        return Some(start + hop);
    }
    reader.next_mark(start + 1)
}

impl Salvage<'_> {
    pub(crate) fn events(&self) -> u64 {
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.events))
    }

    /// Finds the positions of the runs in a segment that begins with `first` and, if that is known, ends before `end`.
    pub(crate) fn place(&mut self, first: Position, end: Option<Position>) {
        self.runs[0].first = Some(first);
        if self.bads.is_empty() {
            return;
        }
        let claims: Option<u64> = self.bads.iter().try_fold(0u64, |sum, bad| sum.checked_add(bad.claimed?));
        let total = claims.and_then(|claims| first.0.checked_add(claims)?.checked_add(self.events()));
        let trusted = match (total, end) {
            (Some(total), Some(end)) => total == end.0,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if trusted {
            self.assumed = end.is_none();
            let mut next = first.0;
            for (i, run) in self.runs.iter_mut().enumerate() {
                run.first = Some(Position(next));
                next += run.events + self.bads.get(i).and_then(|bad| bad.claimed).unwrap_or(0);
            }
            return;
        }
        let after_first = first.0.saturating_add(self.runs[0].events);
        let last = self.runs.last_mut().expect("there is one from the start");
        last.first =
            end.and_then(|end| end.0.checked_sub(last.events)).filter(|&n| n >= after_first).map(Position);
        self.assumed = last.first.is_some() && !last.frames.is_empty();
    }
}

impl<'a> Run<'a> {
    pub(crate) fn placed(&self) -> impl Iterator<Item = Frame<'a>> {
        let first = self.first;
        self.frames.iter().filter_map(move |frame| {
            let position = first?.0.checked_add(frame.first.0)?;
            position.checked_add(u64::from(frame.header.event_count))?;
            Some(Frame { first: Position(position), ..*frame })
        })
    }
}
