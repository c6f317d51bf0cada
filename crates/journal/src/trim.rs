//! The journal's segments, and the removal of segments that are no longer needed.
//!
//! Invariants:
//! - The current segment stays: only a segment with a successor is removed.
//! - Where segments are whole, claims stay for good.
//! - Void segments first, then the oldest: an interrupted trim leaves a whole journal.

use std::collections::{BTreeMap, BTreeSet};

use chiton_runtime::sync::Mutex;
use chiton_types::Position;

use crate::chain::{Chain, Link};
use crate::place::{Place, PlaceError};

/// The journal's segments by number.
#[derive(Debug)]
pub(crate) struct Catalog(Mutex<Segments>);

#[derive(Debug)]
struct Segments {
    /// First position of each segment of the journal.
    live: BTreeMap<u64, Position>,
    /// Claims of an object place, part of it or not.
    claims: BTreeSet<u64>,
    /// Those that are no part of it.
    void: BTreeSet<u64>,
}

impl Catalog {
    /// Of a journal that is the links up to index `end` of `chain`.
    pub(crate) fn new(chain: &Chain, end: usize) -> Catalog {
        let numbers = |links: &[Link]| links.iter().map(|link| link.header.segment).collect::<Vec<_>>();
        let live = chain.links[..=end].iter().map(|link| (link.header.segment, link.header.first)).collect();
        let mut void: BTreeSet<u64> = chain.voids.iter().copied().collect();
        void.extend(chain.headless.iter().map(|damage| damage.segment));
        void.extend(numbers(&chain.links[end + 1..]));
        Catalog(Mutex::new(Segments { live, claims: chain.all_claims.clone(), void }))
    }

    /// A writer's first segment joins the journal; it stays for good.
    pub(crate) fn add_claim(&self, number: u64, first: Position) {
        self.0.lock().claims.insert(number);
        self.add(number, first);
    }

    pub(crate) fn add(&self, number: u64, first: Position) {
        let mut segments = self.0.lock();
        segments.void.remove(&number);
        segments.live.insert(number, first);
    }

    /// Position of the first available event, or of the first that will be written.
    pub(crate) fn first(&self) -> Position {
        *self.0.lock().live.values().next().expect("a journal has a segment")
    }

    /// Whether a void segment has this number.
    pub(crate) fn is_void(&self, number: u64) -> bool {
        self.0.lock().void.contains(&number)
    }

    /// Removes the segments wholly at or below `upto`; returns how many.
    pub(crate) fn trim(&self, place: &dyn Place, upto: Position) -> Result<usize, PlaceError> {
        let (void, live) = {
            let segments = self.0.lock();
            let next = segments.live.iter().zip(segments.live.iter().skip(1));
            let live: Vec<u64> = next
                .take_while(|(_, (_, first))| **first <= upto.next())
                .map(|((&number, _), _)| number)
                .collect();
            let void: Vec<u64> = match live.last() {
                Some(&last) => segments.void.range(..=last).copied().collect(),
                None => Vec::new(),
            };
            (void, live)
        };
        for &number in void.iter().chain(&live) {
            if !self.0.lock().claims.contains(&number) {
                place.remove(number)?;
            }
            let mut segments = self.0.lock();
            segments.void.remove(&number);
            segments.live.remove(&number);
        }
        Ok(live.len())
    }
}
