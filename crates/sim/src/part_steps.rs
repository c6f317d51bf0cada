//! Counts the steps by which directories are split and folded, and those that a death interrupts, as the plates' journals show them.
//!
//! ```text
//!   home:    [Parts, Part a', Moved …] ──── synced                                  a step begins with the home's frame
//!   a':                                         [Parts, Part a', Moved …] ─ synced  and ends when each plate has it durably
//!                     ✝ home           ✝ either                                    deaths that interrupt it
//! ```

use std::collections::BTreeSet;

use chiton_journal::{Frame, SegmentReader, decode_frame};
use chiton_model::{Event, FrameEvents};
use chiton_types::frame::PREFIX_BYTES;
use chiton_types::{Ino, PlateId, Plates, Position};

/// The first four bytes of a mark between frames.
const MARK: [u8; 4] = [0xff; 4];
const MARK_BYTES: usize = 8;

/// The events of each whole frame in bytes that are appended to a segment. Their positions are not known.
pub(crate) fn frames_in(mut bytes: &[u8]) -> impl Iterator<Item = FrameEvents<'_>> {
    let next = move || {
        let prefix = bytes.first_chunk::<PREFIX_BYTES>()?;
        let tag = [prefix[0], prefix[1], prefix[2], prefix[3]];
        let length = if tag == MARK { MARK_BYTES } else { PREFIX_BYTES + u32::from_le_bytes(tag) as usize };
        let (frame, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some(frame)
    };
    let frames = std::iter::from_fn(next).filter_map(|frame| decode_frame(frame).ok());
    frames.map(|(header, payload)| FrameEvents::new(Position(1), header.event_count, payload))
}

/// How many steps there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// Steps of splits that every plate has durably.
    pub splits: u64,
    /// The same of folds.
    pub folds: u64,
    /// Steps of splits during which a plate died that had to carry them out, or to decide them durably.
    pub splits_interrupted: u64,
    /// The same of folds.
    pub folds_interrupted: u64,
}

/// A step that some plate has not got durably.
#[derive(Debug)]
struct Step {
    is_fold: bool,
    home: PlateId,
    /// The parts that begin, or give their names back.
    parts: BTreeSet<Ino>,
    /// The plates whose journals must have it.
    plates: BTreeSet<PlateId>,
    written: BTreeSet<PlateId>,
    durable: BTreeSet<PlateId>,
    is_interrupted: bool,
}

/// The steps that are under way, and the number of those that are over.
#[derive(Debug, Default)]
pub(crate) struct PartSteps {
    plates: Option<Plates>,
    under_way: Vec<Step>,
    counts: StepCounts,
}

impl PartSteps {
    /// Looks at all frames from now on.
    pub(crate) fn watch(&mut self, plates: Plates) {
        self.plates = Some(plates);
    }

    pub(crate) fn counts(&self) -> StepCounts {
        self.counts
    }

    /// A plate has put a whole segment, durably.
    pub(crate) fn put(&mut self, plate: PlateId, number: u64, segment: &[u8]) {
        if self.plates.is_none() {
            return;
        }
        let Ok(frames) = SegmentReader::new(number, segment) else { return };
        for Frame { header, payload, first, .. } in frames.flatten() {
            self.frame(plate, FrameEvents::new(first, header.event_count, payload));
        }
        self.synced(plate);
    }

    /// A plate has appended frames.
    pub(crate) fn appended(&mut self, plate: PlateId, bytes: &[u8]) {
        if self.plates.is_some() {
            frames_in(bytes).for_each(|events| self.frame(plate, events));
        }
    }

    fn frame(&mut self, plate: PlateId, events: FrameEvents<'_>) {
        let Some(plates) = self.plates else { return };
        let (mut home, mut parts, mut is_fold) = (None, BTreeSet::new(), false);
        for (_, event) in events.flatten() {
            if let Event::Parts { ino, .. } = event {
                home = plates.of(ino);
            } else if let Event::Part { ino, .. } | Event::Folded { ino, .. } = event {
                is_fold |= matches!(event, Event::Folded { .. });
                parts.insert(ino);
            }
        }
        let Some(home) = home.filter(|_| !parts.is_empty()) else { return };
        let is_it = |step: &&mut Step| step.is_fold == is_fold && parts.is_subset(&step.parts);
        match self.under_way.iter_mut().find(is_it) {
            Some(step) => drop(step.written.insert(plate)),
            None if plate == home => {
                let of_parts = parts.iter().filter_map(|ino| plates.of(*ino));
                let all = of_parts.chain([home]).collect();
                let (written, durable) = (BTreeSet::from([plate]), BTreeSet::new());
                self.under_way.push(Step {
                    is_fold,
                    home,
                    parts,
                    plates: all,
                    written,
                    durable,
                    is_interrupted: false,
                });
            }
            // Carried out once more after a crash.
            None => {}
        }
    }

    /// All that a plate has written is durable.
    pub(crate) fn synced(&mut self, plate: PlateId) {
        let mut ended = Vec::new();
        self.under_way.retain_mut(|step| {
            if step.written.contains(&plate) {
                step.durable.insert(plate);
            }
            let is_over = step.durable == step.plates;
            ended.extend(is_over.then_some(step.is_fold));
            !is_over
        });
        for is_fold in ended {
            *if is_fold { &mut self.counts.folds } else { &mut self.counts.splits } += 1;
        }
    }

    /// Whether a step is under way that a plate decides or has to carry out.
    pub(crate) fn are_under_way_at(&self, plate: PlateId) -> bool {
        self.under_way.iter().any(|step| step.plates.contains(&plate))
    }

    /// A plate has died.
    pub(crate) fn died(&mut self, plate: PlateId) {
        for step in self.under_way.iter_mut().filter(|step| step.plates.contains(&plate)) {
            if !std::mem::replace(&mut step.is_interrupted, true) {
                let counts = &mut self.counts;
                *if step.is_fold { &mut counts.folds_interrupted } else { &mut counts.splits_interrupted } +=
                    1;
            }
            if !step.durable.contains(&plate) {
                step.written.remove(&plate);
            }
        }
        // If the home has it nevertheless, it sends it again: the step may be counted as interrupted only.
        self.under_way.retain(|step| step.home != plate || step.durable.contains(&plate));
    }
}

impl std::ops::AddAssign for StepCounts {
    fn add_assign(&mut self, other: StepCounts) {
        self.splits += other.splits;
        self.folds += other.folds;
        self.splits_interrupted += other.splits_interrupted;
        self.folds_interrupted += other.folds_interrupted;
    }
}

impl std::fmt::Display for StepCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StepCounts { splits, folds, splits_interrupted, folds_interrupted } = self;
        write!(
            f,
            "{splits} splits and {folds} folds ended, {splits_interrupted} and {folds_interrupted} were interrupted by a death"
        )
    }
}

#[cfg(test)]
mod tests {
    use chiton_model::PartRange;
    use chiton_types::frame::{FrameHeader, encode_frame};
    use chiton_types::{Mode, Seq, SessionId, ShardId, Time};

    use super::*;

    const HOME: Ino = Ino(1);

    fn plates() -> Plates {
        Plates::new(2, 2).expect("a shard for each")
    }

    fn frame(events: &[Event]) -> Vec<u8> {
        let mut payload = Vec::new();
        events.iter().for_each(|event| event.encode(&mut payload));
        let header = FrameHeader {
            event_count: events.len() as u32,
            shard: ShardId(0),
            session: SessionId(1),
            seq: Seq(1),
        };
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, &header, &payload);
        chiton_journal::seal_frames(&mut bytes);
        bytes
    }

    fn split(part: Ino) -> Vec<u8> {
        let parts = vec![PartRange { first: 0, ino: HOME }, PartRange { first: 9, ino: part }];
        let (mode, time) = (Mode(0o755), Time(1));
        frame(&[
            Event::Parts { ino: HOME, parts },
            Event::Part { home: HOME, ino: part, first: 9, last: 99, mode, uid: 0, gid: 0, time },
        ])
    }

    #[test]
    fn a_step_ends_when_both_plates_have_it_and_is_interrupted_once() {
        let part = Ino::new(ShardId(1), 7);
        assert_eq!((plates().of(HOME), plates().of(part)), (Some(PlateId(0)), Some(PlateId(1))));
        let (here, there) = (PlateId(0), PlateId(1));
        let check = |acts: &[(char, PlateId)], expect: (u64, u64)| {
            let mut steps = PartSteps::default();
            steps.watch(plates());
            for (act, plate) in acts {
                match act {
                    'w' => steps.appended(*plate, &split(part)),
                    's' => steps.synced(*plate),
                    _ => steps.died(*plate),
                }
            }
            let counts = steps.counts();
            assert_eq!((counts.splits, counts.splits_interrupted), expect, "{acts:?}");
        };
        check(&[('w', here), ('s', here), ('w', there), ('s', there)], (1, 0));
        check(&[('w', here), ('s', here), ('w', there)], (0, 0));
        check(&[('w', here), ('x', here), ('w', here), ('s', here), ('w', there), ('s', there)], (1, 1));
        check(&[('w', here), ('s', here), ('w', there), ('x', there), ('s', there)], (0, 1));
        check(&[('w', here), ('s', here), ('x', there), ('x', here), ('w', there), ('s', there)], (1, 1));
        check(&[('w', here), ('s', here), ('w', there), ('s', there), ('x', there)], (1, 0));
    }
}
