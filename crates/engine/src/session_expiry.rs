//! Sessions that ended by silence, until their end is durable.
//!
//! ```text
//!   silent ── SessionClosed ─────────────── durable ──▶ leases, locks, opens are free
//!               │ the client is answered so    │
//!               └── a crash here brings it ────┘
//!                   back, with all it had
//! ```
//!
//! The client of a silent session may be alive, cut off, and believe in its leases. Were that given to others
//! before the end is durable, a crash in between would bring the session back beside them: two holders of one
//! lock, or a writer that pushes what it wrote under a lease over what another wrote meanwhile.
//!
//! Invariants:
//! - The leases, locks and opens of a session are released only when the event of its end is durable.
//! - The recovery window does not close before that, either.

use chiton_types::{Position, Refusal, SessionId};
use chiton_wire::Failure;

use crate::engine::Engine;
use crate::moment::{Health, Moment};
use crate::parts::Clients;
use crate::sessions::Slot;
use crate::wait_queue::Wait;

/// A session that is known no more and still holds what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    slot: Slot,
    /// Position of the event of its end.
    end: Position,
}

impl Engine {
    /// Ends a session whose client does not answer.
    pub(crate) fn expire_session(&mut self, session: SessionId, m: &Moment) {
        if let Some(slot) = self.close_session(session, m) {
            self.clients.expired.push_back(Expired { slot, end: self.output.position });
        }
    }

    /// Releases what those held whose end is durable.
    pub(crate) fn release_ended(&mut self, m: &Moment) {
        while let Some(&Expired { slot, end }) = self.clients.expired.front()
            && end <= m.durable
        {
            self.clients.expired.pop_front();
            self.release(slot, m);
        }
    }

    /// While nothing becomes durable: requests that wait for it are refused, not kept. A journal without space may heal,
    /// so what an ended session holds is waited for then; one that failed does not.
    pub(crate) fn refuse_hopeless(&mut self, m: &Moment) {
        if m.health == Health::Good {
            return;
        }
        self.wake_where(|wait| matches!(wait, Wait::Durable(_)));
        if m.health == Health::Failed && !self.clients.expired.is_empty() {
            let (expired, leases) = (&self.clients.expired, &self.clients.leases);
            let held = |wait: &Wait| match wait {
                Wait::Leases(inos) => {
                    inos.iter().any(|ino| expired.iter().any(|one| leases.is_recalled(*ino, one.slot)))
                }
                Wait::Lock | Wait::Recovery | Wait::Checkpoint | Wait::Numbers => true,
                Wait::Guarded(_) | Wait::Guard(_) | Wait::Birth(_) | Wait::Unborn(_) => true,
                Wait::Realm(_) | Wait::Policies | Wait::PolicySet(_) => true,
                Wait::Carried(_) | Wait::Subtree(_) => true,
                Wait::Durable(_) | Wait::Room | Wait::Growth(_) => false,
            };
            for ticket in self.queue.waiting.select(|_, wait| held(wait)) {
                self.clients.locks.cancel(ticket);
                self.answer_waiting(ticket, Err(Failure::Refused(Refusal::Io)), m);
            }
        }
    }
}

impl Clients {
    /// The lowest position whose durability an ended session's holdings wait for.
    pub(crate) fn expired_wanted(&self) -> Option<Position> {
        self.expired.front().map(|expired| expired.end)
    }
}

#[cfg(test)]
pub(crate) mod tests;
