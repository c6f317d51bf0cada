//! A plate without a disk: an engine, the rows that it was made from, and how far its journal is durable.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use chiton_engine::{
    Command, Engine, Moment, OwnRows, POSITION_KEY, Progress, Settings, Ticket, position_value,
};
use chiton_namespace::{Fault, Namespace, Need, RowSource, Rows};
use chiton_types::{Attr, Epoch, Ino, Kind, Name, PlateId, Plates, Position, Refusal, Time};

/// Number of shards of the file system, over all plates.
pub(super) const SHARDS: u16 = 6;

/// The rows of an empty file system.
struct EmptyRows(BTreeMap<Vec<u8>, Vec<u8>>);

impl RowSource for EmptyRows {
    type Error = Infallible;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, Infallible> {
        let range = self.0.range(start.to_vec()..end.to_vec()).take(limit);
        Ok(range.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

pub(super) struct Plate {
    pub(super) engine: Engine,
    rows: EmptyRows,
    pub(super) m: Moment,
    /// Position of the last event in the journal.
    written: Position,
    /// Requests that wait for their answers, with the calls that they are of.
    pub(super) waiting: BTreeMap<Ticket, usize>,
}

impl Plate {
    pub(super) fn new(plate: PlateId, plates: Plates) -> Plate {
        let rows = Namespace::format_rows(Time(1), 0, 0);
        let rows = rows.into_iter().map(|(key, value)| (key, value.expect("a row"))).collect();
        let rows = EmptyRows(rows);
        let mut marks = vec![1; usize::from(SHARDS)];
        marks[0] = Ino::ROOT.counter() + 1;
        let mut own = OwnRows::of_shards(SHARDS);
        own.marks = marks;
        own.take(POSITION_KEY, &position_value(Position(0))).expect("a position");
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
        let m = Moment { mono: Duration::from_secs(100), now: Time(1000), ..Moment::default() };
        let ns = Namespace::open(&rows).expect("rows of an empty file system");
        let mut engine = Engine::from_rows(settings, ns, own, &m);
        engine.begin(m.mono, &m);
        Plate { engine, rows, m, written: Position(0), waiting: BTreeMap::new() }
    }

    pub(super) fn supply(&mut self, needs: &[Need]) {
        let generation = self.engine.namespace().generation();
        for need in needs {
            let fetched = Namespace::fetch(&self.rows, need).expect("memory does not fail");
            self.engine.namespace().install(fetched, generation).expect("rows of an engine");
        }
    }

    /// Lets the engine continue until it waits, and writes its frames.
    pub(super) fn settle(&mut self) -> Vec<Command> {
        loop {
            match self.engine.run(&self.m) {
                Progress::Idle => break,
                Progress::More => {}
                Progress::NeedRows(needs) => self.supply(&needs),
            }
        }
        let (_, events) = self.engine.frames();
        self.written.0 += events;
        self.engine.frames_taken();
        self.engine.take_commands()
    }

    pub(super) fn is_durable(&self) -> bool {
        self.m.durable == self.written
    }

    /// All that is written is durable.
    pub(super) fn commit(&mut self) {
        self.m.durable = self.written;
        self.engine.durable_advanced(&self.m);
    }

    pub(super) fn attr(&mut self, ino: Ino) -> Result<Attr, Refusal> {
        self.read(|ns| ns.attr(ino))
    }

    pub(super) fn entries(&mut self, dir: Ino) -> Result<Vec<(Name, Ino, Kind)>, Refusal> {
        let listing = self.read(|ns| ns.readdir(dir, 0, 1000))?;
        Ok(listing.entries.into_iter().map(|(name, ino, kind, _)| (name, ino, kind)).collect())
    }

    fn read<T>(&mut self, read: impl Fn(&Namespace) -> Result<T, Fault>) -> Result<T, Refusal> {
        loop {
            match read(self.engine.namespace()) {
                Ok(value) => return Ok(value),
                Err(Fault::Missing(needs)) => self.supply(&needs),
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(_) => return Err(Refusal::Io),
            }
        }
    }
}
