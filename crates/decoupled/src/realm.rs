//! One decoupled subtree.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chiton_client::{Client, ClientOptions};
use chiton_journal::{Place, PlaceError};
use chiton_policy::{OnConflict, Policy, PolicyFile};
use chiton_runtime::sync::{Mutex, RwLock, RwLockReadGuard};
use chiton_server::Server;
use chiton_types::{Attr, Ino, Name, Position, RealmId, Refusal};
use chiton_wire::{Claim, Granted, MergeState};

use crate::base::ServerBase;
use crate::calls::ClaimCalls;
use crate::error::RealmError;
use crate::remote::Remote;
use crate::report::RealmStatus;
use crate::resolve::Resolved;
use crate::stages::Stage;
use crate::state_dir::{StateDir, User};

mod ending;
mod merging;
mod opening;

pub(crate) use opening::Opening;

/// What the status says of a journal that failed.
const FAILED: &str = "its journal failed, so nothing can be changed any more; unmount, then mount again or run chiton \
                      recover: what was durable is still there";

/// See the module. All calls may come from many threads.
pub struct Realm {
    calls: ClaimCalls,
    granted: Granted,
    policy: Policy,
    branch: Option<Name>,
    server: Arc<Server>,
    base: Arc<ServerBase>,
    client: Arc<Client>,
    /// What everybody sees.
    global: Arc<Client>,
    /// Conflicts of which somebody has said what is to hold.
    resolved: Mutex<Resolved>,
    options: ClientOptions,
    /// Where the journal is, in words.
    journal_at: String,
    state_dir: Mutex<Option<StateDir>>,
    /// Its directory, if it has one.
    state_dir_path: Option<PathBuf>,
    /// The journal in the object store, if it is there.
    remote: Option<Remote>,
    /// How far merging is; held while something is merged.
    merging: Mutex<MergeState>,
    /// A merge failed, and what it merged may not be durable.
    unsettled: AtomicBool,
    /// Copy of `merging`'s position, for those who only look.
    merged: AtomicU64,
    /// Held by those who act in it, and alone by who ends it.
    gate: RwLock<()>,
    /// What is done about conflicts now.
    on_conflict: Mutex<OnConflict>,
    /// A journal whose end is missing is merged without it.
    accept_truncated: AtomicBool,
    /// Events that were missing when it was opened, and in no report yet.
    missing: AtomicU64,
    /// How far the mark in the object store says that the journal is durable.
    durable_noted: Mutex<Position>,
    /// Another client has it now, or none: nothing is carried out here any more.
    lost: AtomicBool,
    /// Why it is not merged by itself, if so.
    trouble: Mutex<Option<String>>,
    ended: AtomicBool,
    /// Files without a name that were open at its end, open in the global namespace: they are there as long as this is.
    held: Mutex<Vec<u64>>,
    /// How it came to be open.
    stages: Vec<Stage>,
}

/// Somebody acts in a realm: it does not end before this is dropped.
pub struct Inside<'a> {
    _gate: RwLockReadGuard<'a, ()>,
}

/// The policy that a server's answer carries.
pub(crate) fn policy_of(text: &[u8]) -> Result<Policy, RealmError> {
    let text = std::str::from_utf8(text).map_err(RealmError::nonsense)?;
    let file = PolicyFile::parse(text).map_err(RealmError::nonsense)?;
    Policy::resolve(&file, &Policy::default()).map_err(RealmError::nonsense)
}

impl Realm {
    /// The directory that was taken.
    pub fn root(&self) -> Ino {
        self.granted.root.ino
    }

    /// Its attributes when it was taken.
    pub fn root_attr(&self) -> &Attr {
        &self.granted.root
    }

    /// Its number.
    pub fn id(&self) -> RealmId {
        self.granted.claim.realm
    }

    /// Number and generation.
    pub fn claim(&self) -> Claim {
        self.granted.claim
    }

    /// The name, if it is a branch.
    pub fn branch(&self) -> Option<&Name> {
        self.branch.as_ref()
    }

    /// The client in the subtree: its path calls begin at the subtree's root.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn global(&self) -> &Arc<Client> {
        &self.global
    }

    pub(crate) fn resolved(&self) -> &Mutex<Resolved> {
        &self.resolved
    }

    /// Its directory in the state directory, if it has one.
    pub(crate) fn state_dir_path(&self) -> Option<&Path> {
        self.state_dir_path.as_deref()
    }

    /// The policy that holds for it.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether its journal failed for good: what is durable can be recovered by a new client, what is not is lost.
    pub fn has_failed(&self) -> bool {
        self.server.has_failed()
    }

    /// Whether it is over: merged, or discarded.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether an inode is known to belong to it, as far as can be told without asking the server.
    pub fn holds(&self, ino: Ino) -> bool {
        self.holds_number(ino) || (!self.is_border(ino) && self.server.knows(ino))
    }

    /// Whether the subtree ends at this directory, which has a policy of its own: its name is the realm's, what it stands for
    /// is not.
    pub fn is_border(&self, ino: Ino) -> bool {
        self.granted.borders.contains(&ino)
    }

    /// Whether an inode is its root or was made in it, which its number tells without a look at anything else. (Those that
    /// were there before have other numbers.)
    pub fn holds_number(&self, ino: Ino) -> bool {
        ino == self.root() || self.base.has_granted(ino)
    }

    /// Whether the decoupling was taken from this client: an administrator ended it, or another client has it. What is asked
    /// of the realm's client is to be refused with [`Refusal::Io`] as long as the journal waits here.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Of one that is lost: whether somebody has dealt with its journal since. Then the realm is over.
    pub fn is_settled(&self) -> bool {
        if !self.is_lost() || self.is_ended() {
            return self.is_ended();
        }
        let Some(dir) = &self.state_dir_path else { return false };
        let waits = StateDir::is_at(dir)
            && StateDir::peek(dir).is_ok_and(|record| record.branch == self.branch_text());
        if !waits {
            self.ended.store(true, Ordering::Release);
        }
        !waits
    }

    fn branch_text(&self) -> Option<String> {
        self.branch.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
    }

    /// Asks the server whether this client still has the decoupling; if not, nothing is carried out here from now on, and the
    /// journal waits, with all that was answered, for whoever takes it. A server that is away says nothing.
    pub(crate) fn look_whether_lost(&self) {
        if self.is_lost() || self.is_ended() || self.calls.calls.service.is_away() {
            return;
        }
        if self.calls.holds() != Ok(false) || self.is_ended() || self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        let _alone = self.gate.write();
        let _merging = self.merging.lock();
        if self.is_ended() {
            return;
        }
        // What is in its buffers only may have no place any more: the server takes no blocks of it. What was synced is durable.
        let _ = self.client.sync();
        let _ = self.server.shutdown();
        self.state_dir.lock().take();
    }

    /// To be held during a call of the realm's client that must not meet its end: `None` if it has ended, and what it
    /// held is where its root is again.
    pub fn enter(&self) -> Option<Inside<'_>> {
        let gate = self.gate.read();
        (!self.is_ended()).then_some(Inside { _gate: gate })
    }

    /// Records in the object store how far the journal there is durable. If that fails, it is done the next time.
    pub(crate) fn note_durable(&self) {
        let Some(remote) = self.remote.as_ref().filter(|_| !self.calls.calls.service.is_away()) else {
            return;
        };
        let durable = self.server.durable();
        let mut noted = self.durable_noted.lock();
        if *noted != durable && remote.note_durable(durable).is_ok() {
            *noted = durable;
        }
    }

    /// What was done to open it, and how long each stage took.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// How far it is merged, and where its journal ends.
    pub(crate) fn extent(&self) -> (Position, Position) {
        (Position(self.merged.load(Ordering::Relaxed)), self.server.last())
    }

    /// Why it is not merged by itself, for the status.
    pub(crate) fn note_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
    }

    /// How it is.
    pub fn status(&self) -> RealmStatus {
        let numbers = self.server.numbers();
        let segments = self.server.journal_place().list().unwrap_or_default();
        let (merged, last) = self.extent();
        RealmStatus {
            realm: self.id().0,
            generation: self.claim().generation,
            root: self.root().0,
            branch: self.branch_text(),
            composition: self.policy.composition.to_string(),
            consistency: self.policy.consistency().name().to_owned(),
            durability: self.policy.durability().name().to_owned(),
            journal: self.journal_at.clone(),
            events: last.0,
            durable: self.server.durable().0,
            merged: merged.0,
            journal_bytes: segments.iter().map(|segment| segment.bytes).sum(),
            dirty_bytes: self.client.at_stake().0 as u64,
            inodes_granted: numbers.total,
            inodes_left: numbers.left,
            rows_fetched: self.base.rows_fetched(),
            trouble: match (self.has_failed(), &numbers.refused) {
                _ if self.is_lost() => Some(self.lost_error().to_string()),
                (true, _) => Some(FAILED.to_owned()),
                (false, Some(why)) if numbers.left == 0 => Some(format!(
                    "no inode number is left, so nothing can be made (ENOSPC), and the server gives no more: {why}"
                )),
                (false, _) => self.trouble.lock().clone(),
            },
            ended: self.is_ended(),
        }
    }

    /// A merge passes over what is missing at the end of the journal from now on.
    pub fn accept_truncated(&self) {
        self.accept_truncated.store(true, Ordering::Release);
    }

    /// Where an inode is in the subtree, without a `/` before it.
    pub fn path_within(&self, ino: Ino) -> Option<Vec<u8>> {
        let path = self.server.path_of(ino)?;
        Some(path.strip_prefix(b"/").unwrap_or(&path).to_vec())
    }

    /// The segments of its journal, for who only reads them.
    pub fn journal_place(&self) -> Arc<dyn Place> {
        self.server.journal_place()
    }

    /// The segments: number, bytes.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn segments(&self) -> Result<Vec<[u64; 2]>, RealmError> {
        let all = self.server.journal_place().list().map_err(RealmError::journal)?;
        Ok(all.iter().map(|segment| [segment.number, segment.bytes]).collect())
    }

    /// The first bytes of a segment: all, or `bytes_max` if it is longer.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] if it is gone: merged, and trimmed; or it cannot be read.
    pub fn segment(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, RealmError> {
        self.server.journal_place().read(number, bytes_max).map_err(|error| match error {
            PlaceError::Missing => RealmError::new(Refusal::NotFound, error.to_string(), ""),
            error => RealmError::journal(error),
        })
    }

    /// Tells other processes of this machine who works in it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_user(&self, user: &User) -> Result<(), RealmError> {
        self.state_dir.lock().as_ref().map_or(Ok(()), |state_dir| state_dir.note_user(user))
    }

    fn lost_error(&self) -> RealmError {
        RealmError::ended_elsewhere(&format!("decoupling {}", self.id()))
    }

    fn check_open(&self) -> Result<(), RealmError> {
        match (self.is_ended(), self.is_lost()) {
            (true, _) => Err(RealmError::new(
                Refusal::NotFound,
                "the decoupling has ended",
                "decouple the directory again (chiton decoupled lists what is decoupled)",
            )),
            (_, true) => Err(self.lost_error()),
            (false, false) => Ok(()),
        }
    }
}

/// A decoupling's journal for people.
fn journal_named(granted: &Granted, journal_at: &str) -> String {
    format!("decoupling {} ({journal_at})", granted.claim.realm)
}

/// Which journal it is: of this decoupling of this file system.
fn journal_identity(granted: &Granted) -> u64 {
    granted.filesystem ^ (u64::from(granted.claim.realm.0) << 32)
}
