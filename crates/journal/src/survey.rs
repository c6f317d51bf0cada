//! Reads a journal for tools: all whole frames, also behind damage, and a description of the damage.
//!
//! A healthy journal reads as in [`crate::replay`]. In a damaged one, reading continues, and lost events are named
//! by their positions.
//!
//! Invariants:
//! - Frames come in the order of their positions, each position at most once.
//! - `flaws` is empty exactly if [`crate::replay`] from the first position succeeds.
//! - Memory is bounded by one segment, and a note for each.

use chiton_types::{Epoch, Position};

use crate::chain::{Chain, Link};
use crate::damage::{Cause, Damage, DamageKind};
use crate::error::JournalError;
use crate::place::{Place, PlaceError};
use crate::reader::{Frame, SegmentReader};
use crate::replay::Progress;
use crate::salvage::{DamagedBytes, salvage};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// The role of a segment in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Part of the journal.
    Live,
    /// No part of it: a newer writer made it void, or it was never durable.
    Void,
    /// Its header is damaged; its frames were read with the help of its neighbours.
    Headless,
    /// Gone between listing and reading: trimmed by its writer.
    Gone,
}

#[derive(Clone, Debug)]
pub struct SegmentNote {
    pub number: u64,
    /// Size of the segment in bytes.
    pub bytes: u64,
    pub state: SegmentState,
    /// Its header, if that can be read.
    pub header: Option<SegmentHeader>,
    /// Frames of the journal in it.
    pub frames: u64,
    /// Events of the journal in it.
    pub events: u64,
}

/// Something that was durable and is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The damage and its location.
    pub damage: Damage,
    /// Length of the damaged bytes.
    pub bytes: u64,
    /// The lost positions: first and, if known, last.
    pub lost: Option<(Position, Option<Position>)>,
    /// Whole frames among the lost bytes, whose positions are unknown.
    pub unplaced_frames: u64,
}

/// An item of a survey.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A whole frame of the journal.
    Frame(Frame<'a>),
    /// Damage before the next frame.
    Flaw(&'a Flaw),
}

/// The result of a survey.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The journal's identity, from the first header that can be read.
    pub journal: Option<u64>,
    /// All segments, ascending.
    pub segments: Vec<SegmentNote>,
    /// Position of the first available event, or of the first that will be written.
    pub first: Position,
    /// Position of the last event.
    pub last: Position,
    /// The last position that a header states to be durable.
    pub witnessed: Position,
    pub epoch: Epoch,
    /// Number of whole frames.
    pub frames: u64,
    /// Number of events in these frames.
    pub events: u64,
    /// The damage, in order.
    pub flaws: Vec<Flaw>,
    /// Whether positions behind damage are inferred: from the headers of bad frames, or from the beginning of the
    /// next segment, which is wrong if whole frames are missing before it.
    pub assumed: bool,
    /// An unfinished commit behind the last event: harmless.
    pub torn: Option<Damage>,
}

impl Survey {
    /// True if nothing that was durable is damaged.
    pub fn is_whole(&self) -> bool {
        self.flaws.is_empty()
    }
}

/// Reads a journal as far as possible. `progress` is called after each segment.
///
/// # Errors
/// The visitor's; [`JournalError::Absent`] if no segment has a readable header; [`JournalError::Damaged`] if segments of
/// several journals lie together; the place's.
pub fn survey<E: From<JournalError>>(
    place: &dyn Place,
    visit: &mut dyn FnMut(Found<'_>) -> Result<(), E>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Survey, E> {
    let chain = Chain::load(place).map_err(E::from)?;
    let Some(first_link) = chain.links.first() else { return Err(chain.absent().into()) };
    let sizes = place.list().map_err(JournalError::from)?;
    let size = |number: u64| sizes.iter().find(|info| info.number == number).map_or(0, |info| info.bytes);
    let mut walk = Walk {
        place,
        visit,
        found: Survey {
            journal: Some(first_link.header.journal),
            segments: Vec::new(),
            first: first_link.header.first,
            last: Position(first_link.header.first.0 - 1),
            witnessed: chain.witnessed(),
            epoch: chain.epoch,
            frames: 0,
            events: 0,
            flaws: Vec::new(),
            assumed: false,
            torn: None,
        },
        next: None,
        adjacent: true,
        numbered_on: false,
        corrupt_follows: false,
    };
    let pieces = pieces(&chain, &size);
    let mut done = Progress { bytes_done: 0, bytes_total: pieces.iter().map(|piece| piece.bytes).sum() };
    let mut ended = false;
    for (i, piece) in pieces.iter().enumerate() {
        let successor = pieces[i + 1..].iter().find_map(|later| later.header);
        walk.numbered_on = pieces.get(i + 1).is_some_and(|later| later.number == piece.number + 1);
        let headless = pieces[i + 1..].iter().map_while(|later| later.damage.as_ref());
        walk.corrupt_follows = { headless }.any(|damage| damage.kind == DamageKind::Corrupt);
        walk.adjacent = pieces.get(i + 1).is_none_or(|later| later.header.is_some());
        if ended {
            walk.note(piece, SegmentState::Void);
        } else {
            ended = walk.segment(piece, successor)?;
        }
        done.bytes_done += piece.bytes;
        progress(done);
    }
    let Walk { mut found, next, .. } = walk;
    for &number in &chain.voids {
        let note = SegmentNote {
            number,
            bytes: size(number),
            state: SegmentState::Void,
            header: None,
            frames: 0,
            events: 0,
        };
        found.segments.push(note);
    }
    found.segments.sort_by_key(|note| note.number);
    if let Some(next) = next {
        found.last = Position(next.0 - 1);
    }
    Ok(found)
}

/// A segment that may belong to the journal.
struct Piece {
    number: u64,
    bytes: u64,
    header: Option<SegmentHeader>,
    damage: Option<Damage>,
}

/// Links and headless segments, ascending. A headless one that holds nothing is left out: a claim, or the beginning of
/// one.
fn pieces(chain: &Chain, size: &dyn Fn(u64) -> u64) -> Vec<Piece> {
    let link = |Link { header, bytes }: &Link| Piece {
        number: header.segment,
        bytes: *bytes,
        header: Some(*header),
        damage: None,
    };
    let headless = |damage: &Damage| Piece {
        number: damage.segment,
        bytes: size(damage.segment),
        header: None,
        damage: Some(damage.clone()),
    };
    let mut pieces: Vec<Piece> =
        chain.links.iter().map(link).chain(chain.headless.iter().map(headless)).collect();
    pieces.sort_by_key(|piece| piece.number);
    pieces
}

struct Walk<'a, E> {
    place: &'a dyn Place,
    visit: &'a mut dyn FnMut(Found<'_>) -> Result<(), E>,
    found: Survey,
    /// The position that comes next; none before the first segment.
    next: Option<Position>,
    /// The segment after this one has a header: it begins where this one ends.
    adjacent: bool,
    /// There is a segment with the number after this one's: after a claim numbers are left out.
    numbered_on: bool,
    /// Before the next that has a header there is one whose header no crash leaves so.
    corrupt_follows: bool,
}

impl<E: From<JournalError>> Walk<'_, E> {
    fn note(&mut self, piece: &Piece, state: SegmentState) -> &mut SegmentNote {
        let note = SegmentNote {
            number: piece.number,
            bytes: piece.bytes,
            state,
            header: piece.header,
            frames: 0,
            events: 0,
        };
        self.found.segments.push(note);
        self.found.segments.last_mut().expect("just pushed")
    }

    fn flaw(&mut self, flaw: Flaw) -> Result<(), E> {
        (self.visit)(Found::Flaw(&flaw))?;
        self.found.flaws.push(flaw);
        Ok(())
    }

    /// Reads one segment; true if the journal ends with it.
    fn segment(&mut self, piece: &Piece, successor: Option<SegmentHeader>) -> Result<bool, E> {
        match piece.header {
            Some(header) => self.linked(piece, header, successor),
            None => self.headless(piece, successor),
        }
    }

    fn read(&mut self, piece: &Piece) -> Result<Option<Vec<u8>>, E> {
        match self.place.read(piece.number, u64::MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(PlaceError::Missing) => {
                self.note(piece, SegmentState::Gone);
                Ok(None)
            }
            Err(error) => Err(JournalError::from(error).into()),
        }
    }

    fn linked(
        &mut self,
        piece: &Piece,
        header: SegmentHeader,
        successor: Option<SegmentHeader>,
    ) -> Result<bool, E> {
        let Some(bytes) = self.read(piece)? else { return Ok(false) };
        let next = *self.next.get_or_insert(header.first);
        if self.found.segments.iter().all(|note| note.state == SegmentState::Gone) {
            (self.found.first, self.next) = (header.first, Some(header.first));
        } else if header.first > next {
            if self.found.witnessed < next {
                // This was written, but the segment before it never landed. Neither was reported as durable.
                let cause = Cause::Positions { expected: next, found: header.first };
                let damage = Damage { segment: piece.number, offset: 0, kind: DamageKind::Torn, cause };
                self.found.torn.get_or_insert(damage);
                self.note(piece, SegmentState::Void);
                return Ok(true);
            }
            let lost = Some((next, Some(Position(header.first.0 - 1))));
            // A flaw with an unknown end gets its exact end here; otherwise this is a new flaw.
            match self.found.flaws.last_mut().filter(|flaw| flaw.lost == Some((next, None))) {
                Some(flaw) => flaw.lost = lost,
                None => {
                    let cause = Cause::Positions { expected: next, found: header.first };
                    let damage =
                        Damage { segment: piece.number, offset: 0, kind: DamageKind::Corrupt, cause };
                    self.flaw(Flaw { damage, bytes: 0, lost, unplaced_frames: 0 })?;
                }
            }
            self.next = Some(header.first);
        } else if header.first < next {
            let cause = Cause::Positions { expected: next, found: header.first };
            let damage = Damage { segment: piece.number, offset: 0, kind: DamageKind::Corrupt, cause };
            self.flaw(Flaw { damage, bytes: 0, lost: None, unplaced_frames: 0 })?;
        }
        let reader = SegmentReader::new(piece.number, &bytes).map_err(JournalError::from)?;
        self.note(piece, SegmentState::Live);
        self.frames(piece, reader, &bytes, header, successor)?;
        Ok(false)
    }

    /// A segment with an unreadable header counts as the next one of its predecessor's writer, if its frames then
    /// fit its neighbours. True if the journal ends before it.
    fn headless(&mut self, piece: &Piece, successor: Option<SegmentHeader>) -> Result<bool, E> {
        let damage = piece.damage.clone().expect("a segment without a header has damage");
        let Some(bytes) = self.read(piece)? else { return Ok(false) };
        let start = self.next;
        let is_past = |next| self.found.witnessed < next && successor.is_some_and(|s| s.first > next);
        if damage.kind == DamageKind::Torn && !self.corrupt_follows && start.is_some_and(is_past) {
            // It never landed, so later frames were never reported as durable.
            self.found.torn.get_or_insert(damage);
            self.note(piece, SegmentState::Void);
            return Ok(true);
        }
        let joins = match (start, successor) {
            (Some(next), Some(successor)) => successor.first == next,
            // No segment begins after it, so nothing in it was reported as durable.
            (_, None) => damage.kind == DamageKind::Torn,
            // Before the first event there is nothing, and a claim holds nothing.
            (None, Some(successor)) => {
                let is_bare = bytes.len() == SEGMENT_HEADER_BYTES;
                let is_claim = is_bare && piece.number > 1 && !self.numbered_on;
                successor.first == Position(1) || is_claim
            }
        };
        if joins {
            // Nothing is missing without it.
            self.note(piece, SegmentState::Void);
            if successor.is_none() && damage.kind == DamageKind::Torn {
                self.found.torn.get_or_insert(damage);
            }
            return Ok(false);
        }
        self.note(piece, SegmentState::Headless);
        let template = SegmentHeader {
            is_claim: false,
            journal: self.found.journal.unwrap_or(0),
            nonce: 0,
            epoch: self.found.epoch,
            segment: piece.number,
            first: Position(1),
            durable: Position(0),
        };
        let reader = SegmentReader::headless(template, &bytes);
        let inside = salvage(reader.clone(), &bytes);
        let events = inside.events();
        let first = match (start, successor) {
            _ if !self.adjacent || !inside.bads.is_empty() => None,
            (Some(next), Some(successor)) => {
                (next.0.checked_add(events) == Some(successor.first.0)).then_some(next)
            }
            (None, Some(successor)) => successor.first.0.checked_sub(events).filter(|&n| n > 0).map(Position),
            (Some(next), None) => Some(next),
            (None, None) => None,
        };
        let lost = match first {
            Some(_) => None,
            None => start.map(|next| (next, successor.map(|s| Position(s.first.0 - 1)))),
        };
        let frames = inside.runs.iter().map(|run| run.frames.len() as u64).sum();
        let unplaced_frames = if first.is_some() { 0 } else { frames };
        self.flaw(Flaw { damage, bytes: SEGMENT_HEADER_BYTES as u64, lost, unplaced_frames })?;
        match first {
            Some(first) => {
                if start.is_none() {
                    (self.found.first, self.next) = (first, Some(first));
                }
                // With one neighbour only, whole frames may be missing from it without a trace; but none are before
                // the first position.
                self.found.assumed |= successor.is_none() || (start.is_none() && first != Position(1));
                let header = SegmentHeader { first, ..template };
                self.frames(piece, reader, &bytes, header, successor)?;
            }
            None => {
                if let Some(successor) = successor.filter(|_| start.is_some()) {
                    self.next = Some(successor.first);
                }
            }
        }
        Ok(false)
    }

    /// Gives out the frames of a segment that begins with `header.first`.
    fn frames(
        &mut self,
        piece: &Piece,
        reader: SegmentReader<'_>,
        bytes: &[u8],
        header: SegmentHeader,
        successor: Option<SegmentHeader>,
    ) -> Result<(), E> {
        let mut salvage = salvage(reader, bytes);
        let same_writer = successor.filter(|next| piece.header.is_none_or(|h| h.nonce == next.nonce));
        let end_known = same_writer.filter(|_| self.adjacent).map(|next| next.first);
        salvage.place(header.first, end_known);
        let end = successor.map(|next| next.first);
        let runs = salvage.runs.len();
        for (i, run) in salvage.runs.iter().enumerate() {
            for frame in run.placed() {
                let next = self.next.expect("set before the first frame");
                if end.is_some_and(|end| frame.last() >= end) {
                    let cut = successor.is_some_and(|s| piece.header.is_some_and(|h| h.nonce != s.nonce));
                    if !cut || end.is_some_and(|end| frame.first < end) {
                        let found = end.expect("just compared");
                        let cause = Cause::Positions { expected: frame.last().next(), found };
                        let damage = Damage {
                            segment: piece.number,
                            offset: frame.offset,
                            kind: DamageKind::Corrupt,
                            cause,
                        };
                        self.flaw(Flaw { damage, bytes: 0, lost: None, unplaced_frames: 1 })?;
                    }
                    return Ok(());
                }
                if frame.first < next {
                    continue;
                }
                (self.visit)(Found::Frame(frame))?;
                self.next = Some(frame.last().next());
                let events = u64::from(frame.header.event_count);
                self.found.frames += 1;
                self.found.events += events;
                let note = self.found.segments.last_mut().expect("noted before");
                note.frames += 1;
                note.events += events;
            }
            let Some(bad) = salvage.bads.get(i) else { break };
            let next = self.next.expect("set before the first frame");
            if end == Some(next) {
                // The next segment continues here: the rest of this one is void.
                return Ok(());
            }
            let rest = &salvage.runs[i + 1..];
            let is_last = i + 2 == runs && rest[0].frames.is_empty();
            let resumes = rest.iter().find_map(|run| run.first.filter(|_| !run.frames.is_empty()));
            if is_last && resumes.is_none() {
                return self.tail(bad, next, end);
            }
            let until = resumes.or(end);
            let lost = match until {
                Some(until) if until <= next => None,
                Some(until) => Some((next, Some(Position(until.0 - 1)))),
                None => Some((next, None)),
            };
            let unplaced = rest.iter().take_while(|run| run.first.is_none());
            let unplaced_frames = unplaced.map(|run| run.frames.len() as u64).sum();
            self.found.assumed |= salvage.assumed;
            let damage = bad.damage.clone().corrupt();
            self.flaw(Flaw { damage, bytes: bad.bytes, lost, unplaced_frames })?;
            if let Some(until) = until {
                self.next = Some(until.max(next));
            }
            if rest[0].first.is_none() && resumes.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Damage with nothing whole behind it in its segment.
    fn tail(&mut self, bad: &DamagedBytes, next: Position, end: Option<Position>) -> Result<(), E> {
        if end == Some(next) {
            // The next segment continues at the end of this one: the torn frames are void.
            return Ok(());
        }
        let witnessed = self.found.witnessed >= next;
        if bad.damage.kind == DamageKind::Torn && !witnessed {
            self.found.torn = Some(bad.damage.clone());
            return Ok(());
        }
        let end = end.filter(|_| witnessed);
        let claimed = bad.claimed.and_then(|events| next.0.checked_add(events)).map(Position);
        self.found.assumed |= end.is_none() && claimed.is_some();
        let until = end.or(claimed);
        let lost = Some((next, until.map(|until| Position(until.0 - 1))));
        self.flaw(Flaw { damage: bad.damage.clone().corrupt(), bytes: bad.bytes, lost, unplaced_frames: 0 })?;
        self.next = Some(until.unwrap_or(next));
        Ok(())
    }
}
