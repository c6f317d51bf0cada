//! Branches: several copies of one subtree side by side, each decoupled, merged or dropped separately.
//!
//! ```text
//!   create_branch ─▶ granted, a directory in the state directory       (no row is read, no engine is started)
//!   open_branch   ─▶ Realm ─▶ client() … sync() | merge() | discard() | close: it waits for the next one
//!   delete_branch ─▶ nothing stays
//! ```
//!
//! Invariants:
//! - A branch is merged only on command, never automatically.
//! - It outlives its processes: it has a journal, and a client that dies leaves it as that journal has it.
//! - Other clients continue to work in the directory, and the branch does not see their changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chiton_client::Caller;
use chiton_policy::{Consistency, Durability};
use chiton_runtime::thread;
use chiton_types::{Ino, Name, RealmId, Refusal};
use chiton_wire::{Claim, RealmCall, RealmInfo};

use crate::calls::ClaimCalls;
use crate::error::RealmError;
use crate::obstacle::client_of;
use crate::realm::{Realm, policy_of};
use crate::realms::{self, Realms};
use crate::state_dir::{LocalRealm, Record, StateDir, User};

/// How often, and for how long, it is looked whether a branch is free.
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(5);

/// The default policy of a branch, on top of the directory's policy: synced data are kept on the local disk.
pub const BRANCH_POLICY: &str =
    "consistency: invisible\ndurability: local\ninterfere_policy: allow\nallocated_inodes: 1000\n";

/// A branch, as the server and this machine know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The server's record of it.
    pub info: RealmInfo,
    /// This machine's part, if its directory is here.
    pub left: Option<LocalRealm>,
}

impl Branch {
    /// Its name as text, with invalid UTF-8 replaced.
    pub fn name(&self) -> String {
        self.info.branch.as_ref().map(text).unwrap_or_default()
    }

    /// The state directory in which its journal is, if that is on this machine.
    pub fn state_dir(&self) -> Option<PathBuf> {
        let (host, dir) = self.info.journal_at.split_once(':')?;
        (host == realms::host()).then(|| PathBuf::from(dir))
    }

    /// Whether a process works in it.
    pub fn is_in_use(&self) -> bool {
        match &self.left {
            Some(left) => left.in_use,
            None => self.info.is_attached,
        }
    }
}

pub(crate) fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

impl Realms {
    /// Creates a branch of the directory `root` as it is now. This reads no row of the directory, so its cost does
    /// not depend on the size. `policy` is YAML; the default is [`BRANCH_POLICY`]. No client has the branch until
    /// one opens it.
    ///
    /// # Errors
    /// Why not: there is one of this name, the caller is not the directory's owner, the policy keeps nothing …
    pub fn create_branch(
        &self,
        caller: &Caller<'_>,
        root: Ino,
        name: &Name,
        policy: Option<&[u8]>,
    ) -> Result<Claim, RealmError> {
        if self.infos(Some(root))?.iter().any(|info| info.branch.as_ref() == Some(name)) {
            let what = format!("this directory already has a branch {}", text(name));
            return Err(RealmError::new(
                Refusal::Busy,
                what,
                "choose another name, or delete that one (chiton branch delete)",
            ));
        }
        let call = RealmCall::Decouple {
            root,
            branch: Some(name.clone()),
            nonce: self.options.client.world.random(),
            journal_at: self.journal_at(),
            policy: policy.unwrap_or(BRANCH_POLICY.as_bytes()).to_vec(),
        };
        let granted = self
            .calls
            .decouple(caller, call)
            .map_err(|error| self.with_obstacle(error, caller, root, true))?;
        let calls = ClaimCalls { calls: self.calls.clone(), claim: granted.claim };
        let make = || {
            let policy = policy_of(&granted.policy)?;
            let what = match (policy.consistency(), policy.durability()) {
                (Consistency::Strong, _) => "strong: the server carries everything out",
                (_, Durability::None) => "without durability: the branch would be lost between two commands",
                (_, Durability::Geo) => "durability: geo, which no client's journal has",
                (_, Durability::Local | Durability::Global) => {
                    let name = Some(text(name));
                    let record = Record::new(granted.filesystem, granted.claim.realm, granted.root.ino, name);
                    return StateDir::create(&self.options.state_dir, record).map(drop);
                }
            };
            let what = format!("the branch's policy ({}) is {what}", policy.composition);
            let next = "give it one with durability: local or global; without any it is local";
            Err(RealmError::new(Refusal::Invalid, what, next))
        };
        match make() {
            Ok(()) => Ok(granted.claim),
            Err(error) => {
                // If that fails, too, it is in the list, and can be deleted.
                let _ = calls.end(false);
                Err(error)
            }
        }
    }

    /// Processes that had mounted branches of this file system and died without removing their record from the
    /// state directory. Each is reported once.
    pub fn dead_users(&self) -> Vec<User> {
        let dirs = StateDir::all(&self.options.state_dir, self.global.filesystem()).unwrap_or_default();
        let dead = |dir: &PathBuf| {
            let user = StateDir::user(dir)?;
            // If the lock can be taken, the process that held it is dead. Opening removes its record.
            let state_dir = StateDir::open(dir).ok()??;
            drop(state_dir);
            Some(user)
        };
        dirs.iter().filter_map(dead).collect()
    }

    /// The branches of a directory, or all, in the order in which they were made.
    ///
    /// # Errors
    /// The server does not answer, or the state directory cannot be read.
    pub fn branches(&self, root: Option<Ino>) -> Result<Vec<Branch>, RealmError> {
        let look = |info| {
            let mut branch = self.with_left(info)?;
            if let (None, Some(state_dir)) = (&branch.left, branch.state_dir()) {
                // Another user's may not be looked at.
                branch.left = self.left_in(&state_dir, &branch.info).unwrap_or_default();
            }
            Ok(branch)
        };
        self.infos(root)?.into_iter().map(look).collect()
    }

    fn infos(&self, root: Option<Ino>) -> Result<Vec<RealmInfo>, RealmError> {
        let mut all = self.calls.list()?;
        all.retain(|info| info.branch.is_some() && root.is_none_or(|root| info.root == root));
        Ok(all)
    }

    /// The branch with this name.
    ///
    /// # Errors
    /// No branch has this name.
    pub fn branch(&self, root: Ino, name: &Name) -> Result<Branch, RealmError> {
        let found = self.infos(Some(root))?.into_iter().find(|info| info.branch.as_ref() == Some(name));
        let found = found.ok_or_else(|| {
            let what = format!("this directory has no branch {}", text(name));
            RealmError::new(Refusal::NotFound, what, "`chiton branch list` lists them")
        })?;
        self.with_left(found)
    }

    /// Opens a branch in this process, with the changes that were made in it before.
    ///
    /// # Errors
    /// Why not: another process has it, its journal is on another machine …
    pub fn open_branch(&self, root: Ino, name: &Name) -> Result<Arc<Realm>, RealmError> {
        let branch = self.branch(root, name)?;
        match branch.left {
            Some(left) => match open_home(&left)? {
                Some(mut state_dir) => {
                    // One that an administrator made of a decoupling has another name here than there.
                    if state_dir.record().branch.as_deref() != Some(&*text(name)) {
                        state_dir.note_branch(text(name))?;
                    }
                    self.recover_as(state_dir, Some(name.clone()))
                }
                None => Err(in_use(&branch.info, UNMOUNT)),
            },
            None if branch.info.is_attached => Err(in_use(&branch.info, UNMOUNT)),
            None => self.adopt(branch.info.claim.realm),
        }
    }

    /// Drops a branch with all its unmerged changes. With `force`, also a branch that another process or machine
    /// has: the server refuses that process's journal from then on.
    ///
    /// # Errors
    /// Why not: there is none, another process has it.
    pub fn delete_branch(&self, root: Ino, name: &Name, force: bool) -> Result<(), RealmError> {
        let branch = self.branch(root, name)?;
        let realm = branch.info.claim.realm;
        let state_dir = match &branch.left {
            Some(left) => open_home(left)?,
            None => None,
        };
        let is_free = state_dir.is_some() || (branch.left.is_none() && !branch.info.is_attached);
        if !is_free && !force {
            let next = "unmount it first (chiton umount), or use --force: unmerged changes are then lost";
            return Err(in_use(&branch.info, next));
        }
        let is_global = policy_of(&branch.info.policy)?.durability() == Durability::Global;
        if !is_global && branch.left.is_none() && !force {
            let what = format!("its journal is elsewhere: {}", branch.info.journal_at);
            return Err(RealmError::new(
                Refusal::Busy,
                what,
                "delete it there, or use --force: unmerged changes are then lost",
            ));
        }
        // Attaching makes this client the latest one, so the server refuses every earlier client from here on.
        let granted = self.calls.attach(realm, self.options.client.world.random(), self.journal_at())?;
        let calls = ClaimCalls { calls: self.calls.clone(), claim: granted.claim };
        calls.end(false)?;
        state_dir.map_or(Ok(()), StateDir::remove)
    }

    /// Renames a branch that no client works in.
    pub(crate) fn rename_branch(&self, realm: RealmId, name: &Name) -> Result<(), RealmError> {
        let dir = StateDir::dir_of(&self.options.state_dir, self.global.filesystem(), realm);
        let state_dir = if StateDir::is_at(&dir) { open_home(&StateDir::look(&dir)?)? } else { None };
        self.calls.become_branch(realm, Some(name))?;
        state_dir.map_or(Ok(()), |mut state_dir| state_dir.note_branch(text(name)))
    }

    fn with_left(&self, info: RealmInfo) -> Result<Branch, RealmError> {
        let left = self.left_in(&self.options.state_dir, &info)?;
        Ok(Branch { info, left })
    }

    fn left_in(&self, state_dir: &Path, info: &RealmInfo) -> Result<Option<LocalRealm>, RealmError> {
        let dir = StateDir::dir_of(state_dir, self.global.filesystem(), info.claim.realm);
        if StateDir::is_at(&dir) { StateDir::look(&dir).map(Some) } else { Ok(None) }
    }
}

/// Locks the folder of a branch. A process that only reads it also locks it for a moment, so this waits.
fn open_home(left: &LocalRealm) -> Result<Option<StateDir>, RealmError> {
    for _ in 0..LOOKS {
        if let Some(state_dir) = StateDir::open(&left.dir)? {
            return Ok(Some(state_dir));
        }
        thread::sleep(LOOK);
    }
    StateDir::open(&left.dir)
}

/// Ends the use of a branch.
const UNMOUNT: &str = "unmount it first (chiton umount)";

fn in_use(info: &RealmInfo, next: &str) -> RealmError {
    let name = info.branch.as_ref().map(text).unwrap_or_default();
    RealmError::new(Refusal::Busy, format!("branch {name} is in use by {}", client_of(info)), next)
}
