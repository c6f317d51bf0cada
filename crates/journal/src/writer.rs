//! The group-commit writer.
//!
//! Invariants:
//! - `append` never waits for the place, only for room.
//! - A reopened journal continues in a new segment, under a new highest epoch. The new segment voids everything in
//!   its predecessor behind the last valid frame.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_types::frame::{PREFIX_BYTES, parse_body};
use chiton_types::{Epoch, Position};

use crate::chain::{Chain, Link};
use crate::committer::Committer;
use crate::dispatcher::{Dispatcher, Rest};
use crate::error::JournalError;
use crate::frame;
use crate::opening::{Opening, Recovered, claim};
use crate::options::{Identity, Options};
use crate::place::{Place, PlaceError, Shape};
use crate::segment::{FENCE_NUMBERS, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::tail::Tail;
use crate::trim::Catalog;

/// One writer's journal. Dropping it closes it.
pub struct Journal {
    tail: Arc<Tail>,
    place: Arc<dyn Place>,
    catalog: Arc<Catalog>,
    epoch: Epoch,
    thread: Mutex<Option<JoinHandle>>,
}

impl Journal {
    /// Makes a new journal in an empty place.
    ///
    /// # Errors
    /// [`JournalError::Present`] if there is one; the place's.
    pub fn create(
        place: Arc<dyn Place>,
        identity: Identity,
        options: Options,
    ) -> Result<Journal, JournalError> {
        options.check();
        let chain = Chain::load(&*place)?;
        match chain.absent() {
            JournalError::Absent if chain.links.is_empty() => {}
            JournalError::Damaged(damage) if chain.links.is_empty() => return Err(damage.into()),
            _ => return Err(JournalError::Present),
        }
        // Leftovers of an interrupted creation.
        for damage in &chain.headless {
            place.remove(damage.segment)?;
        }
        let header = SegmentHeader {
            is_claim: place.shape() == Shape::Whole,
            journal: identity.journal,
            nonce: identity.nonce,
            epoch: identity.epoch,
            segment: 1,
            first: Position(1),
            durable: Position(0),
        };
        if !claim(&*place, &header)? {
            return Err(JournalError::Present);
        }
        let mut links = chain;
        links.headless.clear();
        links.push(Link { header, bytes: SEGMENT_HEADER_BYTES as u64 });
        let catalog = Catalog::new(&links, 0);
        Ok(Journal::start(place, header, catalog, options))
    }

    /// Opens a journal, reads its end and continues after it.
    ///
    /// # Errors
    /// [`JournalError::Absent`]; [`JournalError::Damaged`] if the journal is corrupt, or another one; or an error
    /// of the place.
    pub fn open(
        place: Arc<dyn Place>,
        identity: Identity,
        options: Options,
    ) -> Result<(Journal, Recovered), JournalError> {
        options.check();
        let Opening { header, catalog, recovered } = Opening::take(&*place, identity)?;
        Ok((Journal::start(place, header, catalog, options), recovered))
    }

    fn start(place: Arc<dyn Place>, header: SegmentHeader, catalog: Catalog, options: Options) -> Journal {
        let tail = Arc::new(Tail::new(options, header.durable));
        let catalog = Arc::new(catalog);
        let run: Box<dyn FnOnce() + Send> = match place.shape() {
            Shape::Grows => {
                let (tail, place, catalog) = (tail.clone(), place.clone(), catalog.clone());
                let committer = Committer {
                    tail,
                    place,
                    catalog,
                    header,
                    is_fresh: false,
                    offset: SEGMENT_HEADER_BYTES as u64,
                    joined: Vec::new(),
                };
                Box::new(|| committer.run())
            }
            Shape::Whole => {
                let (tail, place, catalog) = (tail.clone(), place.clone(), catalog.clone());
                let dispatched = header.durable;
                let segment = header.segment.checked_add(FENCE_NUMBERS).expect("numbers below 2^64");
                let header = SegmentHeader { segment, is_claim: false, ..header };
                let dispatcher =
                    Dispatcher { tail, place, catalog, header, dispatched, rest: Rest::default() };
                Box::new(|| dispatcher.run())
            }
        };
        let watched = tail.clone();
        let body = move || {
            // A panic of a hook must not leave everyone waiting.
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                watched.report(JournalError::Failed("the committer panicked".to_owned()));
            }
        };
        let thread = thread::spawn("journal", body).expect("a thread can be started");
        Journal { tail, place, catalog, epoch: header.epoch, thread: Mutex::new(Some(thread)) }
    }

    /// Appends whole frames that take `event_count` positions together; returns the position of the last event.
    /// Waits while `pending_bytes_max` are not durable. The frames need no checksums: these are filled in when they are written.
    /// If `frames` is not whole frames, or `event_count` not their sum, the journal fails for good then.
    ///
    /// # Errors
    /// [`JournalError::Failed`] or [`JournalError::Fenced`] once it has failed; [`JournalError::Closed`]; while there
    /// is no room, why commits do not get on.
    pub fn append(&self, frames: &[u8], event_count: u64) -> Result<Position, JournalError> {
        let last = self.tail.append(event_count, |pending| pending.extend_from_slice(frames))?;
        if tracing::enabled!(tracing::Level::DEBUG) {
            log_frames(frames, last, event_count);
        }
        Ok(last)
    }

    /// The same, handing over the bytes: nothing is copied if nothing is pending.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn append_vec(&self, frames: Vec<u8>, event_count: u64) -> Result<Position, JournalError> {
        self.tail.append(event_count, |pending| {
            if pending.is_empty() {
                *pending = frames;
            } else {
                pending.extend_from_slice(&frames);
            }
        })
    }

    /// Waits until everything up to `position` is durable; starts a commit for it.
    ///
    /// # Errors
    /// The reason: see [`JournalError`]. [`JournalError::may_heal`] says whether waiting again makes sense.
    pub fn wait_durable(&self, position: Position) -> Result<(), JournalError> {
        self.tail.wait_durable(position)
    }

    /// The same, and continues to wait while the place is away, as long as `waits_on` returns true for its error.
    /// It is called repeatedly.
    ///
    /// # Errors
    /// As [`Journal::wait_durable`].
    pub fn wait_through(
        &self,
        position: Position,
        waits_on: &dyn Fn(&JournalError) -> bool,
    ) -> Result<(), JournalError> {
        self.tail.wait_through(position, waits_on)
    }

    /// The error that delays commits at present.
    pub fn trouble(&self) -> Option<JournalError> {
        self.tail.trouble()
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Position {
        self.tail.durable()
    }

    /// Position of the last event appended.
    pub fn last(&self) -> Position {
        self.tail.last()
    }

    /// Bytes that were appended and are not durable.
    pub fn pending_bytes(&self) -> usize {
        self.tail.pending_bytes()
    }

    /// The epoch that this writer's segments carry.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Position of the first available event, or of the first that will be written.
    pub fn first(&self) -> Position {
        self.catalog.first()
    }

    /// Starts a commit of everything appended so far, without waiting.
    pub fn request_commit(&self) {
        self.tail.request();
    }

    /// Asks for a commit of the events that were appended up to a position, if none was asked for that goes so far.
    pub fn request_commit_upto(&self, position: Position) {
        self.tail.request_upto(position);
    }

    /// Registers a function that is called with the durable position after each commit, on the committer's thread.
    /// It must not close the journal or register hooks.
    pub fn on_durable(&self, listener: Box<dyn Fn(Position) + Send>) {
        self.tail.hooks.add_listener(listener);
    }

    /// Has `witness` record the durable position of each commit before the commit is acknowledged, on the committer's
    /// thread. If it fails, the commit has failed: where segments grow it is tried again after a lack of space, any other
    /// error fails the journal for good. It must not close the journal or register hooks.
    pub fn witness_durable(&self, witness: Box<dyn Fn(Position) -> Result<(), PlaceError> + Send>) {
        self.tail.hooks.set_witness(witness);
    }

    /// Registers a function that is called before frames up to a position are written, on the committer's thread.
    /// It must make durable all data that the frames name. Its error fails the journal for good. It must not close
    /// the journal or register hooks.
    pub fn before_commit(&self, barrier: Box<dyn Fn(Position) -> Result<(), String> + Send>) {
        self.tail.hooks.set_barrier(barrier);
    }

    /// Removes the segments all of whose events are at or below `upto` and durable; returns how many.
    /// The one that is being written stays.
    ///
    /// # Errors
    /// An error of the place; segments that were removed before stay removed.
    pub fn trim(&self, upto: Position) -> Result<usize, JournalError> {
        Ok(self.catalog.trim(&*self.place, upto.min(self.durable()))?)
    }

    /// Refuses appends from now on, makes everything durable and ends the committer.
    ///
    /// # Errors
    /// The reason why not everything is durable.
    pub fn close(&self) -> Result<(), JournalError> {
        self.tail.begin_close();
        if let Some(thread) = self.thread.lock().take() {
            thread.join().expect("the committer catches its panics");
        }
        self.tail.verdict()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A caller that needs the error calls `close`.
        let _ = self.close();
    }
}

/// Logs the requests whose events were appended.
#[cold]
fn log_frames(frames: &[u8], last: Position, event_count: u64) {
    let (mut at, mut position) = (0, last.0 - event_count);
    while let Some((bytes, events)) = frame::hop(&frames[at..]) {
        position += events;
        if let Ok((header, _)) = parse_body(&frames[at + PREFIX_BYTES..at + bytes]) {
            tracing::debug!(
                session = header.session.0,
                seq = header.seq.0,
                events,
                position,
                "appended to the journal"
            );
        }
        at += bytes;
    }
}
