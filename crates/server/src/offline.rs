//! A file system that nobody serves, for tools: its journal, its metadata store, and the journal applied to the store.
//!
//! ```text
//!   journal ── select ──▶ engine (replay, as at a start) ── every so many rows ──▶ metadata store + position
//! ```
//!
//! Invariants:
//! - It is held (see [`Ownership`]) as long as this lives.
//! - Rows, the server's own rows and the position change in one atomic batch, always at the end of a frame.
//! - Memory is bounded by the rows of one batch, the cache, and a segment of the journal.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use chiton_journal::{Frame, Identity, Place, Progress, ReplayError, replay};
use chiton_metastore::{Batch, Metastore, StoreError};
use chiton_model::{Event, FrameEvents};
use chiton_namespace::{Fetched, Namespace, Need, StoredRow, rows_with_tag, tag};
use chiton_runtime::SharedWorld;
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{PlateId, Position, ShardId};

use crate::address::DataAddress;
use crate::at_rest::AtRest;
use crate::error::StartError;
use crate::format::FilesystemInfo;
use crate::options::ServerOptions;
use crate::ownership::Ownership;
use crate::rows::install;
use crate::server::Server;
use crate::startup::{EPOCH, namespace_of, start_rows, store_error};
use crate::stores::{Source, Stores};
use chiton_engine::{Engine, Moment, OwedEffect, POSITION_KEY, ReplayFault, Settings, position_value};

/// Changed rows that are committed at a time.
const BATCH_ROWS: usize = 50_000;
/// Memory for clean rows.
const CACHE_BYTES: usize = 256 << 20;
const PAGE_ROWS: usize = 4096;

/// An opened file system that no server runs. It stays locked while this value lives.
pub struct Offline {
    info: FilesystemInfo,
    plate: PlateId,
    place: Arc<dyn Place>,
    meta: Arc<dyn Metastore>,
    world: SharedWorld,
    _ownership: Option<Ownership>,
}

/// Which events to apply.
pub struct Apply<'a> {
    /// Events up to here are taken for applied, beside those that the store's position names.
    pub after: Position,
    /// Frames that go past this are left.
    pub upto: Position,
    /// Events of which this is false are passed over, for good.
    pub select: &'a mut dyn FnMut(Position, &FrameHeader, &Event) -> bool,
    /// Events that do not fit the store, or need rows of it that are damaged, are passed over, too; else they end it.
    pub skip_misfits: bool,
}

/// The outcome of applying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Events that changed the store.
    pub applied: u64,
    /// Events that were not selected.
    pub passed_over: u64,
    /// Events that did not fit.
    pub misfits: u64,
    /// Position of the store afterwards.
    pub stored: Position,
}

impl Offline {
    /// Takes hold of a file system and opens the stores of one of its plates.
    ///
    /// # Errors
    /// As [`crate::Server::start`]: [`StartError::Held`] if it is served. [`StartError::NoPlate`].
    pub fn open(data: &DataAddress, plate: PlateId, world: SharedWorld) -> Result<Offline, StartError> {
        Offline::open_at_rest(data, plate, None, world)
    }

    /// The same, also of a cluster.
    ///
    /// # Errors
    /// The same, and those of [`AtRest::check`].
    pub fn open_at_rest(
        data: &DataAddress,
        plate: PlateId,
        at_rest: Option<&AtRest>,
        world: SharedWorld,
    ) -> Result<Offline, StartError> {
        // The lock that keeps two servers apart keeps a server and a tool apart, too.
        Server::probe(data, &*world)?;
        let info = Server::info_at_rest(data, at_rest)?;
        let at_rest = at_rest.filter(|_| info.monitor.is_some());
        if plate.0 >= info.plates {
            return Err(StartError::NoPlate { data: data.clone(), plate, plates: info.plates });
        }
        if let Some(dir) = data.dir() {
            crate::reserve::ease(dir);
        }
        let ownership = Ownership::take(data, false, &*world)?;
        let mut stores = Stores::open_at_rest(data, plate, at_rest)?;
        ownership.guard(&mut stores);
        Offline::of(&info, plate, &stores, world, Some(ownership))
    }

    /// The same on stores of a plate that are handed in.
    ///
    /// # Errors
    /// If the metadata store does not open.
    pub fn open_with(
        info: &FilesystemInfo,
        plate: PlateId,
        stores: &Stores,
        world: SharedWorld,
    ) -> Result<Offline, StartError> {
        Offline::of(info, plate, stores, world, None)
    }

    fn of(
        info: &FilesystemInfo,
        plate: PlateId,
        stores: &Stores,
        world: SharedWorld,
        ownership: Option<Ownership>,
    ) -> Result<Offline, StartError> {
        let meta = (stores.open_meta)().map_err(|e| store_error(&e))?;
        let (info, place) = (info.clone(), stores.place.clone());
        Ok(Offline { info, plate, place, meta, world, _ownership: ownership })
    }

    /// The description of the file system.
    pub fn info(&self) -> &FilesystemInfo {
        &self.info
    }

    /// The journal's segments.
    pub fn place(&self) -> Arc<dyn Place> {
        self.place.clone()
    }

    pub fn meta(&self) -> &dyn Metastore {
        &*self.meta
    }

    /// The identity under which a tool writes to the journal.
    pub fn identity(&self) -> Identity {
        Identity { journal: self.info.journal_of(self.plate), epoch: EPOCH, nonce: self.world.random() }
    }

    /// The events up to here are in the metadata store, it says.
    ///
    /// # Errors
    /// If it does not say, or cannot be read.
    pub fn stored(&self) -> Result<Position, StartError> {
        Ok(start_rows(&*self.meta, self.info.shards)?.0.position)
    }

    /// Has the metadata store say so of `position`.
    ///
    /// # Errors
    /// The store's.
    pub fn set_stored(&self, position: Position) -> Result<(), StartError> {
        let mut batch = Batch::new();
        batch.put(POSITION_KEY, position_value(position));
        self.meta.commit(&batch).map_err(|e| store_error(&e))
    }

    /// The highest position that a row carries: the events up to here are in the store, even if it claims less. Reads all
    /// inodes and entries; `progress` is called with how many rows it has seen.
    ///
    /// # Errors
    /// The store's, or a row that is not what the format says.
    pub fn newest_row(&self, progress: &mut dyn FnMut(u64)) -> Result<Position, StartError> {
        let (mut newest, mut seen) = (Position(0), 0);
        let ranges = (0..self.info.shards)
            .flat_map(|shard| [tag::ENTRY, tag::INODE].map(|tag| rows_with_tag(ShardId(shard), tag)));
        for (start, end) in ranges {
            let mut from = Bound::Included(start);
            loop {
                let start = from.as_ref().map(Vec::as_slice);
                let page = self.meta.scan(start, Some(&end), PAGE_ROWS).map_err(|e| store_error(&e))?;
                for (key, value) in &page {
                    let row =
                        StoredRow::decode(key, value).map_err(|e| StartError::Corrupt(e.to_string()))?;
                    let position = match row {
                        Some(StoredRow::Inode(inode)) => inode.position,
                        Some(StoredRow::Entry { position, .. }) => position,
                        _ => continue,
                    };
                    newest = newest.max(position);
                }
                seen += page.len() as u64;
                progress(seen);
                match page.into_iter().last() {
                    Some((last, _)) => from = Bound::Excluded(last),
                    None => break,
                }
            }
        }
        Ok(newest)
    }

    /// Applies the journal's events that the store lacks, as a start of the server does, and commits them.
    ///
    /// # Errors
    /// [`StartError::Corrupt`] where journal or store is damaged, or they do not fit; earlier commits stay
    /// and is not applied again the next time.
    pub fn apply(
        &self,
        mut what: Apply<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Applied, StartError> {
        let (mut applying, was) = self.applying(what.after)?;
        let start = applying.engine.position();
        let mut visit = |frame: &Frame<'_>| {
            if frame.last() > what.upto {
                return Err(Stop::Enough);
            }
            applying.frame(frame, &mut what).map_err(Stop::Failed)?;
            // The rest of the journal may be damaged, and is not read.
            if frame.last() == what.upto { Err(Stop::Enough) } else { Ok(()) }
        };
        match replay(&*self.place, start, &mut visit, progress) {
            Ok(_) | Err(ReplayError::Visitor(Stop::Enough)) => {}
            Err(ReplayError::Visitor(Stop::Failed(error))) => return Err(error),
            Err(ReplayError::Journal(error)) => return Err(StartError::Corrupt(error.to_string())),
        }
        if applying.engine.position() > was {
            applying.commit()?;
        }
        applying.done.stored = applying.engine.position();
        Ok(applying.done)
    }

    /// Carries out effects that other plates owe to this one, on a store that has all of its journal, and commits the rows. The journal
    /// must get the frames before the rows become durable.
    ///
    /// # Errors
    /// As [`Offline::apply`].
    pub fn carry_out(&self, effects: &[(PlateId, OwedEffect)]) -> Result<CarriedOut, StartError> {
        let (mut applying, was) = self.applying(Position(0))?;
        let mut done = CarriedOut::default();
        for (from, effect) in effects {
            let frame = loop {
                match applying.engine.effect_frame_at_rest(*from, effect) {
                    Ok(frame) => break frame,
                    Err(ReplayFault::Missing(needs)) => applying.fetch(&needs)?,
                    Err(ReplayFault::Malformed(_) | ReplayFault::Misfit(..)) => {
                        return Err(StartError::Corrupt(format!(
                            "effect {} that plate {from} owes to plate {} does not decode",
                            effect.number, self.plate
                        )));
                    }
                }
            };
            let Some((header, payload)) = frame else { continue };
            encode_frame(&mut done.frames, &header, &payload);
            done.events += u64::from(header.event_count);
            let first = applying.engine.position().next();
            let frame = Frame { first, header, payload: &payload, segment: 0, offset: 0 };
            let select = &mut |_: Position, _: &FrameHeader, _: &Event| true;
            let upto = Position(u64::MAX);
            applying.frame(&frame, &mut Apply { after: Position(0), upto, select, skip_misfits: false })?;
        }
        if applying.engine.position() > was {
            applying.commit()?;
        }
        Ok(done)
    }

    /// An engine over the rows of the store, and the position of these. The engine takes those up to `after` for applied.
    fn applying(&self, after: Position) -> Result<(Applying<'_>, Position), StartError> {
        let m = Moment { now: self.world.now(), mono: self.world.monotonic(), ..Moment::default() };
        let (ns, mut rows) = namespace_of(&self.meta, self.info.shards)?;
        let stored = rows.position;
        rows.position = rows.position.max(after);
        let options = ServerOptions::default();
        let settings = Settings {
            dirty_rows_max: usize::MAX,
            ..options.engine_settings((self.plate, self.info.plates()), chiton_types::Ino::ROOT)
        };
        let engine = Engine::from_rows(settings, ns, rows, &m);
        Ok((Applying { engine, meta: &*self.meta, m, done: Applied::default() }, stored))
    }
}

/// The frames that a journal gets for effects that are carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedOut {
    /// Encoded frames, to be appended.
    pub frames: Vec<u8>,
    /// Number of events in them.
    pub events: u64,
}

impl Drop for Offline {
    fn drop(&mut self) {
        // Commits are durable already, so an error of the close would change nothing.
        let _ = self.meta.close();
    }
}

enum Stop {
    Enough,
    Failed(StartError),
}

struct Applying<'a> {
    engine: Engine,
    meta: &'a dyn Metastore,
    m: Moment,
    done: Applied,
}

impl Applying<'_> {
    fn frame(&mut self, frame: &Frame<'_>, what: &mut Apply<'_>) -> Result<(), StartError> {
        let corrupt = |cause: &dyn std::fmt::Display| {
            StartError::Corrupt(format!("the journal's frame at position {}: {cause}", frame.first))
        };
        let events = decode(frame).map_err(|e| corrupt(&e))?;
        let mut skipped = BTreeSet::new();
        for (position, event) in &events {
            if !(what.select)(*position, &frame.header, event) {
                skipped.insert(*position);
            }
        }
        self.done.passed_over += skipped.len() as u64;
        let mut payload = encode(&events, &skipped);
        loop {
            match self.engine.replay(&frame.header, frame.first, &payload, false, &self.m) {
                Ok(()) => break,
                Err(ReplayFault::Malformed(cause)) => return Err(corrupt(&cause)),
                Err(ReplayFault::Misfit(position, _)) if what.skip_misfits => {
                    self.done.misfits += 1;
                    skipped.insert(position);
                    payload = encode(&events, &skipped);
                }
                Err(ReplayFault::Misfit(position, misfit)) => {
                    return Err(StartError::Corrupt(format!(
                        "the event at position {position} does not fit the metadata store: {misfit}; `recover` passes \
                         over what does not fit"
                    )));
                }
                Err(ReplayFault::Missing(needs)) => {
                    match self.rows(&needs) {
                        Ok((fetched, generation)) => {
                            install(&mut self.engine, fetched, generation).map_err(StartError::Corrupt)?;
                        }
                        // The next event rests on rows that cannot be read.
                        Err(StoreError::Corrupt { .. }) if what.skip_misfits => {
                            self.done.misfits += 1;
                            skipped.insert(self.engine.position().next());
                            payload = encode(&events, &skipped);
                        }
                        Err(error) => return Err(store_error(&error)),
                    }
                }
            }
        }
        self.done.applied += (events.len() - skipped.len()) as u64;
        if self.engine.namespace().dirty_rows() >= BATCH_ROWS {
            self.commit()?;
        }
        Ok(())
    }

    /// Reads rows, of a generation.
    fn rows(&mut self, needs: &[Need]) -> Result<(Vec<Fetched>, u64), StoreError> {
        let generation = self.engine.namespace().generation();
        let source = Source(self.meta);
        let fetched = needs.iter().map(|need| Namespace::fetch(&source, need));
        Ok((fetched.collect::<Result<_, _>>()?, generation))
    }

    fn fetch(&mut self, needs: &[Need]) -> Result<(), StartError> {
        let (fetched, generation) = self.rows(needs).map_err(|e| store_error(&e))?;
        install(&mut self.engine, fetched, generation).map_err(StartError::Corrupt)
    }

    fn commit(&mut self) -> Result<(), StartError> {
        self.engine.namespace().checkpoint_begin();
        let own = self.engine.own_rows_unserved();
        let mut rows = Vec::new();
        while !self.engine.namespace().checkpoint_take(BATCH_ROWS, &mut rows) {}
        self.meta.commit(&rows.into_iter().chain(own).collect()).map_err(|e| store_error(&e))?;
        self.engine.namespace().checkpoint_done();
        self.engine.namespace().evict(CACHE_BYTES);
        Ok(())
    }
}

fn decode(frame: &Frame<'_>) -> Result<Vec<(Position, Event)>, chiton_types::Malformed> {
    FrameEvents::new(frame.first, frame.header.event_count, frame.payload).collect()
}

/// The events' encoding, with nothing in the place of those that are passed over.
fn encode(events: &[(Position, Event)], passed_over: &BTreeSet<Position>) -> Vec<u8> {
    let mut payload = Vec::new();
    for (position, event) in events {
        let nothing = Event::Skipped { count: event.positions() };
        let event = if passed_over.contains(position) { &nothing } else { event };
        event.encode(&mut payload);
    }
    payload
}
