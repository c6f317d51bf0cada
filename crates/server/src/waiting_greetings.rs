//! Greetings of clients that come back to a plate while it is between two servers.
//!
//! ```text
//!   old server: freeze ─ greetings wait ─ the map changes ─▶ "the plate is elsewhere"
//!   new server:                           the map changes ─ greetings wait ─ the plate runs ─▶ answered by it
//! ```
//!
//! Invariants:
//! - A greeting waits only for a plate that is awaited and does not run here; both are looked at under one lock.
//! - It is answered once: by the plate, when the plate is not awaited any more, or after a time that clients do not take for silence.

use std::collections::BTreeSet;
use std::time::Duration;

use chiton_runtime::sync::Mutex;
use chiton_transport::{ConnId, Sender};
use chiton_types::PlateId;
use chiton_wire::Hello;

use crate::listen::PlatesService;

/// A greeting waits no longer: a client takes a server for silent after two seconds.
const WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct WaitingGreetings {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    awaited: BTreeSet<PlateId>,
    greetings: Vec<Greeting>,
}

/// A greeting, and the service that it came to.
pub(crate) struct Greeting {
    pub(crate) hello: Hello,
    pub(crate) sender: Sender,
    pub(crate) service: PlatesService,
    pub(crate) since: Duration,
}

impl WaitingGreetings {
    /// Greetings for this plate wait, too.
    pub(crate) fn await_also(&self, plate: PlateId) {
        self.state.lock().awaited.insert(plate);
    }

    /// Greetings for these plates wait. Returns those for others.
    pub(crate) fn await_only(&self, plates: BTreeSet<PlateId>) -> Vec<Greeting> {
        let mut state = self.state.lock();
        state.awaited = plates;
        let State { awaited, greetings } = &mut *state;
        greetings.extract_if(.., |greeting| !awaited.contains(&greeting.hello.plate)).collect()
    }

    /// The plate runs now. Returns the greetings for it.
    pub(crate) fn has_come(&self, plate: PlateId) -> Vec<Greeting> {
        let mut state = self.state.lock();
        state.awaited.remove(&plate);
        state.greetings.extract_if(.., |greeting| greeting.hello.plate == plate).collect()
    }

    /// Keeps a greeting, or gives it back if its plate is not awaited or runs by now.
    pub(crate) fn hold(&self, greeting: Greeting, runs: impl FnOnce() -> bool) -> Option<Greeting> {
        let mut state = self.state.lock();
        if !state.awaited.contains(&greeting.hello.plate) || runs() {
            return Some(greeting);
        }
        state.greetings.push(greeting);
        None
    }

    /// Greetings that have waited for too long.
    pub(crate) fn late(&self, now: Duration) -> Vec<Greeting> {
        let is_late = |greeting: &mut Greeting| now.saturating_sub(greeting.since) >= WAIT_MAX;
        self.state.lock().greetings.extract_if(.., is_late).collect()
    }

    /// The client of a greeting has gone.
    pub(crate) fn forget(&self, conn: ConnId) {
        self.state.lock().greetings.retain(|greeting| greeting.sender.id() != conn);
    }

    /// Nobody answers any more.
    pub(crate) fn clear(&self) {
        *self.state.lock() = State::default();
    }
}
