//! The server's own work, beside requests: it splits directories that have become large, and frees inodes without names.
//!
//! Invariant: each step is an ordinary operation, or nothing: it waits for the same things as a client's operation.

use chiton_model::{Op, Outcome};
use chiton_types::{Cred, Seq, SessionId};
use chiton_wire::OpKey;

use crate::engine::Engine;
use crate::execute::OpCall;
use crate::moment::{Health, Moment};
use crate::peers::unnumbered_key;
use crate::sessions::Slot;
use crate::step::{Progress, Stop};

impl Engine {
    /// One step of the server's own work: it splits directories that have become large, and frees orphans that nobody has open.
    pub fn run_background(&mut self, m: &Moment) -> Progress {
        if self.recovery.is_some() || self.is_resending() || m.health != Health::Good || m.reserve_spent {
            return Progress::Idle;
        }
        if let Some(progress) = self.split_next(m) {
            return progress;
        }
        if let Some(progress) = self.free_far(m) {
            return progress;
        }
        let Some(&ino) = self.shards.reclaims.front() else { return Progress::Idle };
        // A decoupled client may bring it back: it stays until the decoupling ends.
        let is_pinned = match self.shards.ns.is_pinned(ino) {
            Ok(is_pinned) => is_pinned,
            Err(chiton_namespace::Fault::Missing(needs)) => return Progress::NeedRows(needs),
            Err(_) => false,
        };
        if !self.shards.orphans.contains(&ino) || is_pinned {
            self.shards.reclaims.pop_front();
            return Progress::More;
        }
        // A removed directory is emptied also while a client has it open.
        if let Some(progress) = self.empty_removed(ino, m) {
            return progress;
        }
        if self.clients.opens.is_open(ino) {
            self.shards.reclaims.pop_front();
            return Progress::More;
        }
        match self.operate_as_server(&Op::Reclaim { ino }, m) {
            Ok(outcome) if outcome.gone.is_some_and(|gone| gone.orphan) => Progress::More,
            Err(Stop::Missing(needs)) => Progress::NeedRows(needs),
            Err(Stop::Wait(_) | Stop::Yield) => Progress::Idle,
            Ok(_) | Err(Stop::Fail(_)) => {
                self.shards.orphans.remove(&ino);
                self.shards.reclaims.pop_front();
                Progress::More
            }
        }
    }

    pub(crate) fn operate_as_server(&mut self, op: &Op, m: &Moment) -> Result<Outcome, Stop> {
        self.operate_with_key(op, unnumbered_key(0, 0), m)
    }

    /// The same with a key between plates of its own.
    pub(crate) fn operate_with_key(&mut self, op: &Op, key: OpKey, m: &Moment) -> Result<Outcome, Stop> {
        let call = OpCall {
            session: SessionId(0),
            slot: Slot::SERVER,
            seq: Seq(0),
            again: None,
            cred: &Cred::ROOT,
            open: false,
            leases: false,
            acknowledged: None,
            late: None,
            unnumbered: key,
            op,
        };
        self.counters.count(op.counter());
        let done = self.execute(&call, m);
        // It does not get into the wait queue, which asks other plates for the missing facts.
        if let Err(Stop::Wait(wait)) = &done {
            self.ask_for(wait);
        }
        done.map(|done| done.outcome)
    }
}
