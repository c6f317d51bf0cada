//! Names of removed trees that are freed over plates: the inode, or a part of it, lies on another plate.
//!
//! Invariants:
//! - Each is an ordinary operation over plates, with a key of its own: it guards the inode at the other plate, is decided here, and owes
//!   its effect. A crash of either plate takes it back or leaves it decided. The list of orphans says what is still to be freed.
//! - So many are under way at a time that plates commit them together. Their names are passed over until they are done.
//! - One that would wait for a client gives its guards back. A later pass over the directory finds its name again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chiton_model::Op;
use chiton_types::{Ino, Name};
use chiton_wire::OpKey;

use crate::engine::Engine;
use crate::moment::Moment;
use crate::step::{Progress, Stop};
use crate::wait_queue::Wait;

/// Operations under way at a time.
const UNDER_WAY_MAX: usize = 64;
/// How often all of them are tried again, whatever they wait for.
const RETRY: Duration = Duration::from_millis(200);

/// Operations that free names over plates.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// The number of the last.
    pub(crate) last: u64,
    under_way: BTreeMap<OpKey, Op>,
    /// The names that they are about.
    names: BTreeSet<(Ino, Name)>,
    /// Those that can continue.
    due: BTreeSet<OpKey>,
    is_due: bool,
    retried: Duration,
}

impl Far {
    /// The names of which directory are being freed, and which.
    pub(super) fn has(&self, dir: Ino, name: &Name) -> bool {
        !self.names.is_empty() && self.names.contains(&(dir, name.clone()))
    }

    /// No more can begin.
    pub(super) fn is_full(&self) -> bool {
        self.under_way.len() >= UNDER_WAY_MAX
    }

    /// An operation that frees a name of a directory waits for other plates.
    pub(super) fn begin(&mut self, key: OpKey, op: &Op) {
        self.names.extend(named(op));
        self.under_way.insert(key, op.clone());
    }

    /// A guard came, or the operation has to begin again.
    pub(crate) fn wake(&mut self, key: OpKey) {
        if self.under_way.contains_key(&key) {
            self.due.insert(key);
            self.is_due = true;
        }
    }

    /// Rows are guarded no more.
    pub(crate) fn wake_all(&mut self) {
        if !self.under_way.is_empty() {
            self.due.extend(self.under_way.keys());
            self.is_due = true;
        }
    }

    /// True, once, if one can continue.
    pub(super) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    fn end(&mut self, key: OpKey) {
        if let Some(op) = self.under_way.remove(&key)
            && let Some(named) = named(&op)
        {
            self.names.remove(&named);
        }
    }
}

impl Engine {
    /// Carries on an operation that frees a name over plates. `None` if none can continue.
    pub(crate) fn free_far(&mut self, m: &Moment) -> Option<Progress> {
        let far = &mut self.shards.far;
        if m.mono >= far.retried + RETRY {
            far.retried = m.mono;
            far.due.extend(far.under_way.keys());
        }
        let key = far.due.pop_first()?;
        let Some(op) = far.under_way.get(&key).cloned() else { return Some(Progress::More) };
        match self.operate_with_key(&op, key, m) {
            Ok(_) => self.shards.turns = 0,
            Err(Stop::Missing(needs)) => {
                self.shards.far.due.insert(key);
                return Some(Progress::NeedRows(needs));
            }
            Err(Stop::Wait(Wait::Leases(_))) => self.give_up_crossings(|other| *other == key),
            Err(Stop::Wait(_) | Stop::Yield) => return Some(Progress::More),
            // A client took the name away meanwhile, or a later pass finds it again.
            Err(Stop::Fail(_)) => {}
        }
        self.shards.far.end(key);
        Some(Progress::More)
    }
}

/// The name that an operation takes away.
fn named(op: &Op) -> Option<(Ino, Name)> {
    op.footprint().names().next().map(|touch| (touch.dir, touch.name.clone()))
}
