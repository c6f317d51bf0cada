//! The engine of a decoupled client: the same, over the rows of one subtree, with numbers that a server granted.

mod granted;
mod lazy_apply;

use std::sync::Arc;

use chiton_namespace::Namespace;
use chiton_policy::Policy;
use chiton_types::{Ino, Position, ShardId};
use hashbrown::HashSet;

use crate::decoupled::granted::Granted;
use crate::engine::Engine;
use crate::moment::Moment;
use crate::rows::OwnRows;
use crate::settings::Settings;
use crate::wait_queue::Wait;

pub use lazy_apply::{Creates, LazyApply};

/// State that only the engine of a decoupled client has.
pub(crate) struct Decoupled {
    /// Of these are the inodes that it makes: no number comes from the shards' counters.
    pub(crate) numbers: Granted,
    /// The directories at which its subtree ends.
    pub(crate) borders: HashSet<Ino>,
}

impl Engine {
    /// Before its journal is replayed: everything up to `merged` is in the rows. `used` were given out by then.
    pub fn of_realm(
        settings: Settings,
        ns: Namespace,
        merged: Position,
        (ranges, used): (&[(Ino, Ino)], &[Ino]),
        borders: &[Ino],
        policy: Policy,
        m: &Moment,
    ) -> Engine {
        let marks = vec![1; settings.shard_weights.len()];
        let rows = OwnRows { position: merged, marks, ..OwnRows::default() };
        let mut engine = Engine::from_rows(settings, ns, rows, m);
        let mut numbers = Granted::new(ranges);
        for ino in used {
            numbers.used(*ino);
        }
        engine.decoupled = Some(Decoupled { numbers, borders: borders.iter().copied().collect() });
        engine.shards.policies.set_default(Arc::new(policy));
        engine
    }

    /// All is replayed: nobody is waited for.
    pub fn begin_realm(&mut self) {
        self.shards.orphans = self.shards.ns.orphans().into_iter().collect();
        self.recovery_ended(&Moment::default());
    }

    /// True if it is time to ask the server for inode numbers.
    #[inline]
    pub fn wants_numbers(&self) -> bool {
        self.decoupled.as_ref().is_some_and(|decoupled| decoupled.numbers.is_short())
    }

    /// How many inode numbers to ask the server for, and in which shard; once.
    #[inline]
    pub fn numbers_wanted(&mut self) -> Option<(ShardId, u64)> {
        self.decoupled.as_mut().and_then(|decoupled| decoupled.numbers.wanted())
    }

    /// The server gave these, or none: waiting requests resume.
    pub fn numbers_granted(&mut self, ranges: Option<&[(Ino, Ino)]>) {
        let Some(Decoupled { numbers, .. }) = &mut self.decoupled else { return };
        match ranges {
            Some(ranges) => numbers.add(ranges),
            None => numbers.refuse(),
        }
        self.wake_where(|wait| *wait == Wait::Numbers);
    }

    /// The server may be asked again.
    pub fn ask_again(&mut self) {
        if let Some(decoupled) = &mut self.decoupled {
            decoupled.numbers.forgive();
        }
    }

    /// Numbers left, and all that were granted.
    pub fn numbers(&self) -> (u64, u64) {
        self.decoupled.as_ref().map_or((0, 0), |decoupled| decoupled.numbers.figures())
    }

    /// The next number of each shard: those below are used.
    pub fn numbers_used(&self) -> Vec<Ino> {
        self.decoupled.as_ref().map_or_else(Vec::new, |decoupled| decoupled.numbers.used_up_to())
    }

    /// True for the engine of a decoupled client.
    #[inline]
    pub(crate) fn is_realm(&self) -> bool {
        self.decoupled.is_some()
    }

    /// Changes wait from now on, or no more.
    pub fn freeze(&mut self, frozen: bool) {
        self.shards.frozen = frozen;
        self.room_changed();
    }
}
