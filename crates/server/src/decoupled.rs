//! A server in the process of a client, for a subtree that the client took for itself: the same engine, journal and
//! sessions, over rows that are fetched from the server it was taken from.
//!
//! ```text
//!   start ── replay its journal, if there is one ──▶ ready
//!   a row is missing ──▶ Base::fetch        numbers run short ──▶ Base::grant
//! ```
//!
//! Invariants:
//! - Nothing is checkpointed, swept or compacted: changes stay in memory until they are merged and the decoupling
//!   ends. Rows that are as the server gave them leave above `cache_bytes`.
//! - Its journal is trimmed only when the client says that all of it is merged for good.
//! - Its first session bears the id that the server gave for the blocks.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chiton_journal::{JournalError, Place, PlaceError};
use chiton_namespace::{Fault, Fetched, Namespace, Need};
use chiton_policy::Policy;
use chiton_runtime::sync::Mutex;
use chiton_types::{Attr, Ino, Kind, Position, SessionId, ShardId};

use crate::fatal::Fatal;
use crate::plate::Plate;
use crate::server::Server;
use crate::wake_up::WakeUp;
use chiton_engine::{Creates, Health};

/// The server that a subtree was taken from.
pub trait Base: Send + Sync {
    /// Rows of the subtree, for each need in order. Called without any lock; may take as long as the server does.
    ///
    /// # Errors
    /// In words.
    fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String>;

    /// More inode numbers, first and first past: reserved durably.
    ///
    /// # Errors
    /// In words: creates then fail with "no space".
    fn grant(&self, shard: ShardId, count: u64) -> Result<Vec<(Ino, Ino)>, String>;

    /// Makes all blocks durable that were put before, at the level that the journal has: asked before the journal
    /// names new ones.
    ///
    /// # Errors
    /// In words; the journal has failed then.
    fn sync_blocks(&self) -> Result<(), String>;
}

/// A subtree that a client took from another server, as the client knows it when it starts.
pub struct DecoupledSubtree {
    /// Identity of the file system.
    pub filesystem: u64,
    /// Identity of the journal.
    pub journal: u64,
    /// Number of shards of the file system.
    pub shards: u16,
    /// Those of the plate on which the subtree lies.
    pub own_shards: Range<u16>,
    /// The directory that was taken.
    pub root: Ino,
    /// The policy that holds for it.
    pub policy: Policy,
    /// Inodes of the whole file system.
    pub inode_count: u64,
    /// Id of the first session, which its blocks bear.
    pub writer: SessionId,
    /// Inode numbers that were granted.
    pub ranges: Vec<(Ino, Ino)>,
    /// Directories below the root that are not the client's, nor what is below them.
    pub borders: Vec<Ino>,
    /// The last of them that is known to be used, of each shard, beside those in the journal.
    pub used: Vec<Ino>,
    /// The rows hold all of the journal up to here.
    pub merged: Position,
    /// The server that lends the subtree: it supplies rows and inode numbers.
    pub base: Arc<dyn Base>,
    /// The journal; a new one is begun if there is none.
    pub place: Arc<dyn Place>,
}

/// Inode numbers of a decoupled client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Numbers granted and not yet used.
    pub left: u64,
    /// Numbers granted so far.
    pub total: u64,
    /// The last number used, of each shard.
    pub used: Vec<Ino>,
    /// Why there are no more, if the server was asked and gave none.
    pub refused: Option<String>,
}

/// How long a server that gave no numbers is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// How the inode numbers of a decoupled client are supplied.
#[derive(Default)]
pub(crate) struct GrantedNumbers {
    /// Wakes the thread that asks for more numbers.
    pub(crate) wake_up: WakeUp,
    /// Why there are no more, if the base was asked last and had none.
    pub(crate) refused: Mutex<Option<String>>,
}

impl Plate {
    /// Fetches numbers when they run short, until the server stops.
    pub(crate) fn number_keeper(&self) {
        let Some(base) = self.kind.base().cloned() else { return };
        let mut is_reported = false;
        while !self.is_stopping() {
            let wanted = self.engine.lock_as_it_is().numbers_wanted();
            let Some((shard, count)) = wanted else {
                self.evict_clean();
                self.numbers.wake_up.wait(PAUSE);
                continue;
            };
            match base.grant(shard, count) {
                Ok(ranges) => {
                    is_reported = false;
                    *self.numbers.refused.lock() = None;
                    self.with_engine_as_it_is(|engine, _| engine.numbers_granted(Some(&ranges)));
                }
                Err(why) => {
                    *self.numbers.refused.lock() = Some(why.clone());
                    if !std::mem::replace(&mut is_reported, true) {
                        self.note_error(&format!(
                            "no more inode numbers for this decoupled subtree, so nothing can be created when those \
                             it has are used up: {why}; `allocated_inodes` of the policy says how many it begins with"
                        ));
                    }
                    self.with_engine(|engine, _| engine.numbers_granted(None));
                    self.leave_base_alone();
                    self.with_engine(|engine, _| engine.ask_again());
                }
            }
        }
    }

    /// Makes files as far as the journal alone is needed for it; none in other roles. Returns their attributes.
    pub(crate) fn create_lazily(&self, creates: &Creates<'_>) -> Vec<Attr> {
        let mut made = Vec::new();
        if self.kind.base().is_none() {
            return made;
        }
        let _fatal = Fatal::guard();
        let mut engine = self.engine.lock_as_it_is();
        let m = self.moment();
        if !self.is_stopping() {
            made.reserve(creates.names.len());
            engine.create_lazily(creates, &m, &mut made);
        }
        self.leave(engine, &m);
        made
    }

    /// Rows that nobody changed leave the memory above what they may take: they can be fetched again.
    fn evict_clean(&self) {
        let target = self.options.cache_bytes;
        self.with_engine_as_it_is(|engine, _| {
            let ns = engine.namespace();
            if ns.memory_bytes() > target {
                ns.evict(target);
            }
        });
    }

    /// Waits a while, however often numbers are asked for meanwhile.
    fn leave_base_alone(&self) {
        let until = self.world.monotonic() + PAUSE;
        while !self.is_stopping() && self.world.monotonic() < until {
            self.numbers.wake_up.wait(PAUSE);
        }
    }
}

impl Server {
    /// Position of the last event in the journal.
    pub fn last(&self) -> Position {
        self.first().journal.last()
    }

    /// Waits until the journal is durable up to `position`.
    ///
    /// # Errors
    /// Why it is not.
    pub fn wait_durable(&self, position: Position) -> Result<(), JournalError> {
        self.first().journal.wait_durable(position)
    }

    /// Has `witness` record how far the journal is durable before a commit is acknowledged; see
    /// [`Journal::witness_durable`].
    pub fn witness_durable(&self, witness: Box<dyn Fn(Position) -> Result<(), PlaceError> + Send>) {
        self.first().journal.witness_durable(witness);
    }

    /// The journal's segments.
    pub fn journal_place(&self) -> Arc<dyn Place> {
        self.first().place.clone()
    }

    /// Whether the journal failed for good: nothing is changed any more, and changes that are not durable are lost.
    pub fn has_failed(&self) -> bool {
        self.first().health() == Health::Failed
    }

    /// Of a decoupled client: whether files are in its journal that nobody has looked at since, and so not in memory.
    pub fn has_unapplied(&self) -> bool {
        self.first().engine.lock_as_it_is().has_pending()
    }

    /// Of a decoupled client: the journal up to here is merged for good.
    ///
    /// # Errors
    /// The place's.
    pub fn forget_merged(&self, upto: Position) -> Result<(), JournalError> {
        assert!(self.first().kind.base().is_some(), "a server's journal is trimmed by its checkpoints");
        self.first().journal.trim(upto).map(drop)
    }

    /// Files that have no name any more and are open.
    pub fn open_orphans(&self) -> Vec<Ino> {
        self.first().engine.lock().open_orphans()
    }

    /// The inode numbers of a decoupled client.
    pub fn numbers(&self) -> Numbers {
        let plate = self.first();
        let engine = plate.engine.lock_as_it_is();
        let (left, total) = engine.numbers();
        let used = engine.numbers_used();
        drop(engine);
        Numbers { left, total, used, refused: plate.numbers.refused.lock().clone() }
    }

    /// Changes wait from now on, until this is called with `false` or the server ends.
    pub fn freeze(&self, frozen: bool) {
        self.first().with_engine_as_it_is(|engine, _| engine.freeze(frozen));
    }

    /// Whether an inode is in memory.
    pub fn knows(&self, ino: Ino) -> bool {
        self.first().engine.lock().namespace().attr(ino).is_ok()
    }

    /// Where an inode is, from the root: a name that it has. `None` if it is gone, or cannot be read.
    pub fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        self.looked_up(|ns| path_of(ns, ino))
    }

    /// Whether an inode has a name. One that cannot be read has none.
    pub fn has_name(&self, ino: Ino) -> bool {
        self.looked_up(|ns| ns.attr(ino)).is_some_and(|attr| attr.nlink > 0)
    }

    /// The result of `ask` on rows, which are fetched if they are missing. `None` if there are none.
    fn looked_up<T>(&self, question: impl Fn(&Namespace) -> Result<T, Fault>) -> Option<T> {
        let plate = self.first();
        loop {
            let (found, generation) = {
                let mut engine = plate.engine.lock();
                let ns = engine.namespace();
                (question(ns), ns.generation())
            };
            match found {
                Ok(found) => return Some(found),
                Err(Fault::Missing(needs)) => plate.supply(&needs, generation).ok()?,
                Err(_) => return None,
            }
        }
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.first().is_stopping()
    }
}

fn path_of(ns: &Namespace, ino: Ino) -> Result<Vec<u8>, Fault> {
    let attr = ns.attr(ino)?;
    if attr.kind == Kind::Dir {
        return ns.dir_path(ino);
    }
    let mut path = ns.dir_path(attr.parent)?;
    if path != b"/" {
        path.push(b'/');
    }
    path.extend(ns.name_held(attr.parent, ino)?);
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use chiton_journal::{MemoryPlace, Shape};
    use chiton_runtime::SeededWorld;

    use crate::{Role, ServerOptions};

    use super::*;

    /// A server that is away.
    #[derive(Default)]
    struct Away(AtomicU64);

    impl Base for Away {
        fn fetch(&self, _: &[Need]) -> Result<Vec<Fetched>, String> {
            Err("away".to_owned())
        }

        fn grant(&self, _: ShardId, _: u64) -> Result<Vec<(Ino, Ino)>, String> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Err("away".to_owned())
        }

        fn sync_blocks(&self) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn a_server_that_gives_no_numbers_is_left_alone_however_many_are_wanted() {
        let (base, world) = (Arc::new(Away::default()), Arc::new(SeededWorld::new(1)));
        let subtree = DecoupledSubtree {
            filesystem: 1,
            journal: 2,
            shards: 4,
            own_shards: 0..4,
            root: Ino(9),
            policy: Policy::default(),
            inode_count: 1,
            writer: SessionId(7),
            ranges: Vec::new(),
            borders: Vec::new(),
            used: Vec::new(),
            merged: Position(0),
            base: base.clone(),
            place: Arc::new(MemoryPlace::new(Shape::Grows)),
        };
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let server = Server::start_as(Role::Decoupled(subtree), options, world.clone()).expect("started");
        let asked = || base.0.load(Ordering::SeqCst);
        for round in 1..=3 {
            while asked() < round {
                std::thread::yield_now();
            }
            // The clock stands still.
            for _ in 0..200 {
                server.first().numbers.wake_up.wake();
                std::thread::yield_now();
            }
            assert_eq!(asked(), round);
            world.advance(PAUSE * 2);
            server.first().numbers.wake_up.wake();
        }
        server.abandon();
    }
}
