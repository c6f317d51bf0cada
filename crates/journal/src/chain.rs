//! Which segments make up the journal, and where it ends: the one rule for opening, replay and trim.
//!
//! ```text
//!   listed    1     2     3(void)  4        6
//!   epoch     1     1     0        2        2
//!   chain     1 ──▶ 2 ───────────▶ 4        6 begins past the end of 4: 5 never landed, 6 was never durable
//! ```
//!
//! Invariants:
//! - A segment of an older epoch after one of a newer epoch is void.
//! - A segment follows another if it begins at the position after it. If it has another writer, it also ends that
//!   segment: the rest of the older one is void, so a torn tail cannot come back.
//! - Where the next segment begins too late, the chain ends, unless some header witnesses that more was durable:
//!   then it is corruption.
//! - In a place of whole segments, claims are never removed, so tools that replace or drop segments leave them. A
//!   claim is ignored if a newer segment begins before it. A claim that says that nothing was durable before it was
//!   put by a tool: everything at or past its first position is void, and so is every claim that witnesses it.

use std::collections::{BTreeSet, VecDeque};

use chiton_types::{Epoch, Position};

use crate::damage::{Cause, Damage, DamageKind};
use crate::error::JournalError;
use crate::place::{Place, SegmentInfo, Shape};
use crate::reader::{Frame, SegmentReader, read_header};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// Whole segments that are read together, in number and in bytes; one that is longer is read alone.
const AHEAD_SEGMENTS_MAX: usize = 64;
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// The segments of a place, sorted out by their headers.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Those that may belong to the journal, ascending.
    pub(crate) links: Vec<Link>,
    /// Numbers of claims that are no links: their writers' segments are trimmed or were replaced by a tool.
    pub(crate) claims: Vec<u64>,
    /// Numbers of all claims: they stay to keep older writers out.
    pub(crate) all_claims: BTreeSet<u64>,
    /// Numbers of those that a newer epoch made void.
    pub(crate) voids: Vec<u64>,
    /// Those whose header is damaged, ascending.
    pub(crate) headless: Vec<Damage>,
    /// The highest epoch of all segments.
    pub(crate) epoch: Epoch,
    /// Highest position that a header witnesses to be durable.
    witnessed: Position,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: u64,
}

/// The end of the journal.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// Position of the last event.
    pub(crate) last: Position,
    /// Index of the last link that belongs to the journal.
    pub(crate) link: usize,
    /// The damage behind the last event.
    pub(crate) torn: Option<Damage>,
}

impl Chain {
    /// Reads all headers.
    ///
    /// # Errors
    /// The place's, or [`JournalError::Damaged`] if segments of several journals lie together.
    pub(crate) fn load(place: &dyn Place) -> Result<Chain, JournalError> {
        let mut chain = Chain {
            links: Vec::new(),
            claims: Vec::new(),
            all_claims: BTreeSet::new(),
            voids: Vec::new(),
            headless: Vec::new(),
            epoch: Epoch(0),
            witnessed: Position(0),
        };
        let segments = place.list()?;
        let heads = place.read_each(&segments, SEGMENT_HEADER_BYTES as u64);
        for (SegmentInfo { number, bytes }, head) in segments.into_iter().zip(heads) {
            match read_header(number, &head?) {
                Ok(header) => chain.push(Link { header, bytes }),
                Err(damage) => chain.headless.push(damage),
            }
        }
        if place.shape() == Shape::Whole {
            chain.part_with_claims();
        }
        if let Some(first) = chain.links.first() {
            let journal = first.header.journal;
            let foreign = chain.links.iter().find(|link| link.header.journal != journal);
            if let Some(link) = foreign {
                return Err(foreign_damage(journal, &link.header).into());
            }
        }
        Ok(chain)
    }

    /// Highest position that a header witnesses to be durable.
    pub(crate) fn witnessed(&self) -> Position {
        self.witnessed
    }

    /// Drops claims at the front that the rest of the journal does not follow. (A writer's first segment lands
    /// before its others are put, so only a trim leaves a claim without it.)
    fn part_with_claims(&mut self) {
        let claims = self.links.iter().take_while(|link| link.header.is_claim).count();
        let follows = |i: &usize| {
            let next = self.links.get(i + 1);
            next.is_some_and(|next| next.header.first > self.links[*i].header.first)
        };
        if let Some(last) = (0..claims).rev().find(follows) {
            self.claims.extend(self.links.drain(..=last).map(|link| link.header.segment));
        }
    }

    /// The highest segment number.
    pub(crate) fn highest(&self) -> u64 {
        let links = self.links.iter().map(|link| link.header.segment);
        let others = self.headless.iter().map(|damage| damage.segment).chain(self.voids.iter().copied());
        links.chain(others).chain(self.claims.iter().copied()).max().unwrap_or(0)
    }

    /// Refuses a segment of another journal than `journal`.
    pub(crate) fn check_journal(&self, journal: u64) -> Result<(), Damage> {
        match self.links.first() {
            Some(link) if link.header.journal != journal => Err(foreign_damage(journal, &link.header)),
            _ => Ok(()),
        }
    }

    /// Adds the next segment.
    pub(crate) fn push(&mut self, link: Link) {
        let header = link.header;
        let is_claim = link.header.is_claim;
        if is_claim {
            self.all_claims.insert(header.segment);
        }
        if header.epoch < self.epoch {
            self.voids.push(header.segment);
            return;
        }
        let throws_away = is_claim && header.durable == Position(0);
        if throws_away {
            self.witnessed = self.witnessed.min(Position(header.first.0 - 1));
        }
        while let Some(before) = self.links.last() {
            let is_claim = self.all_claims.contains(&before.header.segment);
            let replaced =
                is_claim && before.header.first > header.first && before.header.epoch < header.epoch;
            let thrown_away = throws_away && before.header.first >= header.first;
            if !(replaced || thrown_away) {
                break;
            }
            let list = if is_claim { &mut self.claims } else { &mut self.voids };
            list.push(before.header.segment);
            self.links.pop();
        }
        self.epoch = header.epoch;
        self.witnessed = self.witnessed.max(header.durable);
        self.links.push(link);
    }

    /// The link from which on the end must be looked for: all before it is witnessed.
    pub(crate) fn unsure(&self) -> usize {
        self.link_of(self.witnessed.next())
    }

    /// The last link that begins at or before `position`.
    pub(crate) fn link_of(&self, position: Position) -> usize {
        self.links.iter().rposition(|link| link.header.first <= position).unwrap_or(0)
    }

    /// Visits the frames from link `from` on, a segment at a time, and finds the end.
    /// `progress` is called after each segment with its bytes.
    ///
    /// # Errors
    /// The visitor's, the place's, and [`JournalError::Damaged`].
    ///
    /// # Panics
    /// If there is no such link.
    pub(crate) fn walk<E: From<JournalError>>(
        &self,
        place: &dyn Place,
        from: usize,
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<(), E>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<End, E> {
        let mut index = from;
        let mut ahead = VecDeque::new();
        loop {
            if ahead.is_empty() {
                ahead.extend(place.read_each(&self.next_segments(place.shape(), index), u64::MAX));
            }
            let link = &self.links[index];
            let successor = self.links.get(index + 1).map(|next| next.header);
            let number = link.header.segment;
            let bytes = ahead.pop_front().expect("at least one was read").map_err(JournalError::from)?;
            let mut reader = SegmentReader::new(number, &bytes).map_err(JournalError::from)?;
            let mut damage = None;
            let mut last = Position(link.header.first.0 - 1);
            for frame in reader.by_ref() {
                match frame {
                    Ok(frame) => {
                        if let Some(next) = &successor
                            && frame.last() >= next.first
                        {
                            if next.nonce == link.header.nonce || frame.first < next.first {
                                let damage = gap(number, frame.offset, frame.first, next).corrupt();
                                return Err(JournalError::from(damage).into());
                            }
                            break;
                        }
                        last = frame.last();
                        visit(&frame)?;
                    }
                    Err(found) => damage = Some(found),
                }
            }
            progress(bytes.len() as u64);
            if successor.is_some_and(|next| next.first == last.next()) {
                index += 1;
                continue;
            }
            let offset = reader.offset();
            let headless = self.headless_between(number, successor.map(|next| next.segment));
            // A header that no crash leaves so is worse than a torn tail before it.
            let (corrupt, absent) = match headless {
                Some(headless) if headless.kind == DamageKind::Corrupt => (Some(headless), None),
                headless => (None, headless),
            };
            let torn = corrupt
                .or(damage)
                .or(absent)
                .or_else(|| successor.map(|next| gap(number, offset, last.next(), &next)));
            let torn = match torn {
                Some(damage) if self.witnessed > last || damage.kind == DamageKind::Corrupt => {
                    return Err(JournalError::from(damage.corrupt()).into());
                }
                torn => torn,
            };
            return Ok(End { last, link: index, torn });
        }
    }

    /// The segments that are read together from link `index` on: at least one.
    fn next_segments(&self, shape: Shape, index: usize) -> Vec<SegmentInfo> {
        let count_max = match shape {
            // The next segment may still grow.
            Shape::Grows => 1,
            Shape::Whole => AHEAD_SEGMENTS_MAX,
        };
        let mut bytes = 0;
        let fits = |link: &&Link| {
            bytes += link.bytes;
            bytes == link.bytes || bytes <= AHEAD_BYTES_MAX
        };
        let links = self.links[index..].iter().take(count_max).take_while(fits);
        links.map(|link| SegmentInfo { number: link.header.segment, bytes: link.bytes }).collect()
    }

    fn headless_between(&self, number: u64, end: Option<u64>) -> Option<Damage> {
        let between = |d: &&Damage| d.segment > number && end.is_none_or(|end| d.segment < end);
        let found = || self.headless.iter().filter(between);
        found().find(|d| d.kind == DamageKind::Corrupt).or_else(|| found().next()).cloned()
    }
}

fn gap(segment: u64, offset: u64, expected: Position, next: &SegmentHeader) -> Damage {
    let cause = Cause::Positions { expected, found: next.first };
    Damage { segment, offset, kind: DamageKind::Torn, cause }
}

fn foreign_damage(expected: u64, header: &SegmentHeader) -> Damage {
    let cause = Cause::Misplaced { name: "journal", expected, found: header.journal };
    Damage { segment: header.segment, offset: 0, kind: DamageKind::Corrupt, cause }
}
