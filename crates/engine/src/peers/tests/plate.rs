//! A plate: an engine with its rows and its journal, and the rest of it after a crash.

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_journal::{SegmentHeader, SegmentReader};
use chiton_model::PartRange;
use chiton_namespace::{Fault, Namespace, Need};
use chiton_types::{Attr, Epoch, Ino, Kind, Name, PlateId, Plates, Position, Refusal, Seq, SessionId, Time};

use crate::engine::Engine;
use crate::formatted::Formatted;
use crate::moment::Moment;
use crate::rows::OwnRows;
use crate::settings::Settings;
use crate::step::{Command, Progress};
use crate::wait_queue::Ticket;
use crate::{POSITION_KEY, position_value};

/// A frame of a journal.
pub(super) struct Written {
    pub(super) session: SessionId,
    pub(super) seq: Seq,
    pub(super) bytes: Vec<u8>,
    pub(super) last: Position,
}

/// A plate, and the rest of it after a crash.
pub(super) struct Node {
    pub(super) plate: PlateId,
    pub(super) engine: Engine,
    pub(super) rows: Formatted,
    pub(super) frames: Vec<Written>,
    pub(super) m: Moment,
    pub(super) boot: u64,
    pub(super) answers: BTreeMap<Ticket, (usize, usize)>,
}

pub(super) const SHARDS: u16 = 4;

/// Of a segment that begins at this position.
fn header(first: Position) -> SegmentHeader {
    SegmentHeader {
        is_claim: false,
        journal: 1,
        nonce: 1,
        epoch: Epoch(1),
        segment: 1,
        first,
        durable: Position(0),
    }
}

pub(super) fn start(
    plate: PlateId,
    plates: Plates,
    (rows, frames): (Formatted, Vec<Written>),
    boot: u64,
    mono: Duration,
) -> Node {
    let mut marks = vec![1; usize::from(SHARDS)];
    marks[0] = Ino::ROOT.counter() + 1;
    let mut own = OwnRows { marks, ..OwnRows::default() };
    own.take(POSITION_KEY, &position_value(Position(0))).expect("a row");
    for (key, value) in rows.rows() {
        own.take(key, value).expect("rows that an engine wrote");
    }
    let stored = own.position;
    let durable = frames.last().map_or(Position(0), |frame| frame.last);
    let m = Moment { mono, now: Time(1_000 + boot as i64), durable, ..Moment::default() };
    let ns = Namespace::open(&rows).expect("opens");
    let settings = Settings {
        session_ms: 30_000,
        grace_ms: 10_000,
        gone_ms: 10_000,
        lease_entries_max: 1000,
        lease_rest_ms: 0,
        sessions_max: 10,
        dirty_rows_max: 100_000,
        epoch: Epoch(1),
        root: Ino::ROOT,
        shard_weights: vec![100; usize::from(SHARDS)],
        plate,
        plates,
    };
    let engine = Engine::from_rows(settings, ns, own, &m);
    let mut node = Node { plate, engine, rows, frames, m, boot, answers: BTreeMap::new() };
    let header = header(Position(1));
    let mut segment = header.encode();
    let mut sealed: Vec<u8> = node.frames.iter().flat_map(|frame| frame.bytes.clone()).collect();
    chiton_journal::seal_frames(&mut sealed);
    segment.extend_from_slice(&sealed);
    for frame in SegmentReader::new(1, &segment).expect("a header") {
        let frame = frame.expect("whole frames");
        if frame.first <= stored {
            continue;
        }
        while let Err(fault) = node.engine.replay(&frame.header, frame.first, frame.payload, false, &m) {
            let crate::ReplayFault::Missing(needs) = fault else { panic!("plate {plate}: {fault:?}") };
            node.supply(&needs);
        }
    }
    node.engine.begin(m.mono, &m);
    node
}

impl Node {
    pub(super) fn supply(&mut self, needs: &[Need]) {
        self.rows.supply(&mut self.engine, needs);
    }

    /// Advances the engine's queues, and writes its frames to the journal.
    pub(super) fn settle(&mut self) -> Vec<Command> {
        loop {
            match self.engine.run(&self.m) {
                Progress::Idle => break,
                Progress::More => {}
                Progress::NeedRows(needs) => self.supply(&needs),
            }
        }
        let (bytes, events) = self.engine.frames();
        if events > 0 {
            let first = self.frames.last().map_or(Position(1), |frame| frame.last.next());
            let header = header(first);
            let mut at = 0;
            let mut segment = header.encode();
            let from = segment.len();
            segment.extend_from_slice(bytes);
            chiton_journal::seal_frames(&mut segment[from..]);
            let mut reader = SegmentReader::new(1, &segment).expect("a header");
            while let Some(frame) = reader.next() {
                let frame = frame.expect("whole frames");
                let end = reader.offset() as usize - from;
                let last = Position(frame.first.0 + u64::from(frame.header.event_count) - 1);
                let (session, seq) = (frame.header.session, frame.header.seq);
                self.frames.push(Written { session, seq, bytes: bytes[at..end].to_vec(), last });
                at = end;
            }
        }
        self.engine.frames_taken();
        self.engine.take_commands()
    }

    pub(super) fn attr(&mut self, ino: Ino) -> Result<Attr, Refusal> {
        loop {
            match self.engine.namespace().attr(ino) {
                Ok(attr) => return Ok(attr),
                Err(Fault::Missing(needs)) => self.supply(&needs),
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }

    /// The parts of a directory; none if it has none, or is gone.
    pub(super) fn parts(&mut self, dir: Ino) -> Vec<PartRange> {
        loop {
            match self.engine.namespace().parts(dir) {
                Ok(parts) => return parts,
                Err(Fault::Missing(needs)) => self.supply(&needs),
                Err(_) => return Vec::new(),
            }
        }
    }

    pub(super) fn entries(&mut self, dir: Ino) -> Vec<(Name, Ino, Kind)> {
        loop {
            match self.engine.namespace().readdir(dir, 0, 1000) {
                Ok(listing) => {
                    return listing
                        .entries
                        .into_iter()
                        .map(|(name, ino, kind, _)| (name, ino, kind))
                        .collect();
                }
                Err(Fault::Missing(needs)) => self.supply(&needs),
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }
}
