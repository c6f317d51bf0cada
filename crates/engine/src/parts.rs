//! The engine's state, parted by its owner. A method that needs one part is a method of that part, and the other
//! parts that it reads or changes are its arguments. Where many methods need the same few parts, a handler borrows these:
//! [`QueryHandler`](crate::query::QueryHandler), [`RealmHandler`](crate::realms::RealmHandler). So a signature shows what
//! may change.
//!
//! ```text
//!   Clients      sessions, what they hold (opens, leases, locks), and what they send again after a restart
//!   Shards       the namespace, and what the server knows of its inodes, policies and decouplings
//!   Output       the frames that go to the journal, and the position that they have reached
//!   Queue        requests on their way, and commands for the runtime
//!   Decoupled    of a decoupled client only: its inode numbers and its borders
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chiton_namespace::Namespace;
use chiton_types::{Ino, Position, SessionId};

use crate::growth::Growths;
use crate::inodes::Inodes;
use crate::leases::Leases;
use crate::lingering::Lingering;
use crate::locks::Locks;
use crate::opens::Opens;
use crate::removed_trees::{Emptying, Far};
use crate::sessions::Sessions;
use crate::split::Splits;
use crate::step::Command;
use crate::wait_queue::{Task, Ticket, Wait, WaitQueue};
use crate::{policies, realms, session_expiry, volatile};

/// The state of sessions.
pub(crate) struct Clients {
    pub(crate) sessions: Sessions,
    /// In the order of their ends.
    pub(crate) expired: VecDeque<session_expiry::Expired>,
    pub(crate) opens: Opens,
    pub(crate) leases: Leases,
    pub(crate) growths: Growths,
    pub(crate) locks: Locks,
    /// Waiters whose locks were granted.
    pub(crate) lock_grants: Vec<Ticket>,
    pub(crate) resends: Resends,
}

/// Operations that sessions send again after a restart.
#[derive(Default)]
pub(crate) struct Resends {
    /// In their order. They go before all else.
    pub(crate) tasks: VecDeque<Task>,
    /// One of them is being carried out.
    pub(crate) is_running: bool,
    /// Sessions of which a pending operation waits for a lease or another plate: its later pending operations wait behind it.
    pub(crate) held_up: BTreeMap<SessionId, Wait>,
}

impl Resends {
    /// Until the last of them is carried out no lease is granted.
    #[inline]
    pub(crate) fn are_left(&self) -> bool {
        self.is_running || !self.tasks.is_empty()
    }
}

/// The state of shards.
pub(crate) struct Shards {
    pub(crate) ns: Namespace,
    pub(crate) inodes: Inodes,
    pub(crate) marks_at_start: Vec<u64>,
    pub(crate) orphans: BTreeSet<Ino>,
    pub(crate) reclaims: VecDeque<Ino>,
    pub(crate) emptying: Emptying,
    pub(crate) far: Far,
    /// Removed directories in a row of which no name could be freed.
    pub(crate) turns: usize,
    pub(crate) splits: Splits,
    pub(crate) lingering: Lingering,
    /// Files with many small extents.
    pub(crate) fragmented: VecDeque<Ino>,
    pub(crate) fragments: hashbrown::HashMap<Ino, u32>,
    pub(crate) policies: policies::Policies,
    pub(crate) volatile: volatile::Volatile,
    pub(crate) realms: realms::Realms,
    /// Changed rows in memory above which changes wait for a checkpoint.
    pub(crate) dirty_rows_max: usize,
    /// Changes wait, whatever the journal and the store could take.
    pub(crate) frozen: bool,
}

/// The frames for the journal.
#[derive(Default)]
pub(crate) struct Output {
    /// Position of the last event applied.
    pub(crate) position: Position,
    /// Positions at the end that no frame stands for yet.
    pub(crate) skipped: u64,
    pub(crate) frames: Vec<u8>,
    pub(crate) frame_events: u64,
    pub(crate) blocks_named: bool,
}

/// Requests on their way.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) waiting: WaitQueue,
    pub(crate) ready: VecDeque<Task>,
    /// A task has done its part for now.
    pub(crate) has_yielded: bool,
    pub(crate) commands: Vec<Command>,
}
