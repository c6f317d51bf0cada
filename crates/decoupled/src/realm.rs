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
mod rehearsing;

pub(crate) use opening::Opening;

/// The status of a realm whose journal failed.
const FAILED: &str = "its journal failed, so no operation can change it any more; unmount, then mount again or run \
                      chiton recover: durable changes are still there";

/// One decoupled subtree: an engine and a client in this process. All methods may be called from many threads.
pub struct Realm {
    calls: ClaimCalls,
    granted: Granted,
    policy: Policy,
    branch: Option<Name>,
    server: Arc<Server>,
    base: Arc<ServerBase>,
    client: Arc<Client>,
    /// The client of the global namespace.
    global: Arc<Client>,
    /// Conflicts that the user has resolved.
    resolved: Mutex<Resolved>,
    options: ClientOptions,
    /// Location of the journal, in words.
    journal_at: String,
    state_dir: Mutex<Option<StateDir>>,
    /// Its directory, if it has one.
    state_dir_path: Option<PathBuf>,
    /// The journal in the object store, with `durability: global`.
    remote: Option<Remote>,
    /// How far merging is; held while something is merged.
    merging: Mutex<MergeState>,
    /// A merge failed, and its changes may not be durable.
    unsettled: AtomicBool,
    /// Copy of the position in `merging`, for readers that must not wait.
    merged: AtomicU64,
    /// Held for reading by every operation in the realm, and for writing while the realm ends.
    gate: RwLock<()>,
    /// The current treatment of conflicts.
    on_conflict: Mutex<OnConflict>,
    /// A journal whose end is missing is merged without it.
    accept_truncated: AtomicBool,
    /// Events that were missing when it was opened, and in no report yet.
    missing: AtomicU64,
    /// The position up to which the mark in the object store says that the journal is durable.
    durable_noted: Mutex<Position>,
    /// Another client has it now, or none: nothing is carried out here any more.
    lost: AtomicBool,
    /// Why an automatic merge failed, if it did.
    trouble: Mutex<Option<String>>,
    ended: AtomicBool,
    /// Orphans that were open when the realm ended, held open in the global namespace while this value lives.
    held: Mutex<Vec<u64>>,
    /// How it came to be open.
    stages: Vec<Stage>,
}

/// An operation inside a realm. The realm does not end before this is dropped.
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
    /// Inode number of the decoupled directory: the same here and in the global namespace.
    pub fn root(&self) -> Ino {
        self.granted.root.ino
    }

    /// Its attributes when it was taken.
    pub fn root_attr(&self) -> &Attr {
        &self.granted.root
    }

    /// The decoupling's number.
    pub fn id(&self) -> RealmId {
        self.granted.claim.realm
    }

    /// The decoupling's number and generation.
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

    /// Whether its journal failed for good. A new client can recover the durable operations; the rest is lost.
    pub fn has_failed(&self) -> bool {
        self.server.has_failed()
    }

    /// Whether it is over: merged, or discarded.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether an inode is known to belong to the realm, without asking the server.
    pub fn holds(&self, ino: Ino) -> bool {
        self.holds_number(ino) || (!self.is_border(ino) && self.server.knows(ino))
    }

    /// Whether the realm ends at this directory, because the directory has a policy of its own. The name belongs to
    /// the realm, the directory itself does not.
    pub fn is_border(&self, ino: Ino) -> bool {
        self.granted.borders.contains(&ino)
    }

    /// Whether the number shows that the inode is the root or was created in the realm. Inodes that existed before
    /// have other numbers.
    pub fn holds_number(&self, ino: Ino) -> bool {
        ino == self.root() || self.base.has_granted(ino)
    }

    /// Whether this client lost the decoupling: an administrator ended it, or another client has it. While the
    /// journal waits here, operations of the realm's client must be refused with [`Refusal::Io`].
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether a user has since dealt with the journal of a lost realm. Then the realm is over.
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

    /// Asks the server whether this client still has the decoupling. If not, the realm carries out nothing more,
    /// and its journal keeps all acknowledged changes for recovery. While the server is away nothing is decided.
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
        // Content that is only in buffers may be lost: the server accepts no more blocks of this client. Synced
        // content is durable.
        let _ = self.client.sync();
        let _ = self.server.shutdown();
        self.state_dir.lock().take();
    }

    /// Held during a call of the realm's client, so that the realm does not end meanwhile. `None` if it has ended;
    /// its inodes are then in the global namespace.
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

    /// The stages of opening the realm, with their times.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// How far it is merged, and where its journal ends.
    pub(crate) fn extent(&self) -> (Position, Position) {
        (Position(self.merged.load(Ordering::Relaxed)), self.server.last())
    }

    /// Records for the status why an automatic merge failed.
    pub(crate) fn note_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
    }

    /// The state of the realm, for reports.
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
                    "no inode number is left, so nothing can be created (ENOSPC), and the server grants no more: {why}"
                )),
                (false, _) => self.trouble.lock().clone(),
            },
            ended: self.is_ended(),
        }
    }

    /// From now on a merge accepts that events are missing at the end of the journal.
    pub fn accept_truncated(&self) {
        self.accept_truncated.store(true, Ordering::Release);
    }

    /// Where an inode is in the subtree, without a `/` before it.
    pub fn path_within(&self, ino: Ino) -> Option<Vec<u8>> {
        let path = self.server.path_of(ino)?;
        Some(path.strip_prefix(b"/").unwrap_or(&path).to_vec())
    }

    /// The segments of its journal, for readers.
    pub fn journal_place(&self) -> Arc<dyn Place> {
        self.server.journal_place()
    }

    /// The segments of the journal: number and bytes of each.
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

    /// Records in the state directory which process works in the realm.
    ///
    /// # Errors
    /// The record cannot be written.
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
                "decouple the directory again (chiton decoupled lists the decoupled directories)",
            )),
            (_, true) => Err(self.lost_error()),
            (false, false) => Ok(()),
        }
    }
}

/// Names a decoupling's journal in messages.
fn journal_named(granted: &Granted, journal_at: &str) -> String {
    format!("decoupling {} ({journal_at})", granted.claim.realm)
}

/// Which journal it is: of this decoupling of this file system.
fn journal_identity(granted: &Granted) -> u64 {
    granted.filesystem ^ (u64::from(granted.claim.realm.0) << 32)
}
