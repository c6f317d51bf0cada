//! All decoupled subtrees of one client of the global namespace.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chiton_client::{Caller, Client};
use chiton_policy::{Consistency, Durability};
use chiton_runtime::sync::{Mutex, RwLock};
use chiton_runtime::thread;
use chiton_types::{Ino, Name, RealmId, Refusal};
use chiton_wire::{Granted, RealmCall, RealmInfo};
use hashbrown::HashMap;

use crate::auto_merge::watch;
use crate::calls::{Calls, ClaimCalls};
use crate::error::RealmError;
use crate::obstacle;
use crate::options::{Journals, RealmsOptions};
use crate::realm::{Opening, Realm, policy_of};
use crate::stages::Stages;
use crate::state_dir::{LeftRealm, Record, StateDir};

/// Inodes outside of the ranges whose place is remembered.
const PLACES_MAX: usize = 1 << 16;

/// How often a subtree is taken anew because something of it was not handed over before.
const TAKES_MAX: usize = 8;

/// How often, and for how long, it is looked whether a mount has left a journal.
const LEAVES_MAX: u32 = 50;
const LEAVE: Duration = Duration::from_millis(100);

/// All decoupled subtrees of one client.
pub struct Realms {
    pub(crate) global: Arc<Client>,
    pub(crate) calls: Calls,
    pub(crate) options: RealmsOptions,
    /// Where journals of `durability: local` are, if not in files of the state directory.
    journals: Option<Journals>,
    open: RwLock<Vec<Arc<Realm>>>,
    /// How many are open: nothing is looked up where there are none.
    count: AtomicUsize,
    /// Where inodes belong that the server was asked about.
    places: Mutex<HashMap<Ino, Option<RealmId>>>,
}

impl Realms {
    /// No subtree is decoupled yet.
    pub fn new(global: Arc<Client>, options: RealmsOptions) -> Arc<Realms> {
        Realms::begin(global, options, None)
    }

    /// The same, with journals of `durability: local` elsewhere than in files: on disks of a simulation.
    pub fn with_journals(global: Arc<Client>, options: RealmsOptions, journals: Journals) -> Arc<Realms> {
        Realms::begin(global, options, Some(journals))
    }

    fn begin(global: Arc<Client>, options: RealmsOptions, journals: Option<Journals>) -> Arc<Realms> {
        let calls = Calls { service: global.service().clone() };
        Arc::new(Realms {
            global,
            calls,
            options,
            journals,
            open: RwLock::default(),
            count: AtomicUsize::new(0),
            places: Mutex::default(),
        })
    }

    /// Takes the directory `root` for this client. `policy` is YAML; without one, the policy holds that is set there. A
    /// directory may have several branches, and one decoupling that is none.
    ///
    /// # Errors
    /// Why not: it is in use by another client, the policy does not decouple, the caller is not its owner …
    pub fn decouple(
        &self,
        caller: &Caller<'_>,
        root: Ino,
        policy: Option<&[u8]>,
        branch: Option<&Name>,
    ) -> Result<Arc<Realm>, RealmError> {
        let mut stages = Stages::begin(&self.options.client.world);
        let granted = self.take(caller, root, policy, branch)?;
        let said = format!(
            "the server recalled the leases below the directory and recorded decoupling {} in its journal",
            granted.claim.realm
        );
        stages.took("grant", said);
        note_granted(&mut stages, &granted);
        let calls = ClaimCalls { calls: self.calls.clone(), claim: granted.claim };
        let open = move || {
            let policy = policy_of(&granted.policy)?;
            if policy.consistency() == Consistency::Strong {
                let what = format!(
                    "its policy ({}) is strong: the server carries everything out",
                    policy.composition
                );
                let next = "name a policy that is weak or invisible; `chiton policy presets` lists some";
                return Err(RealmError::new(Refusal::Invalid, what, next));
            }
            let state_dir = self.make_state_dir(&granted, branch)?;
            stages.took(
                "place",
                match &state_dir {
                    Some(state_dir) => format!("{} is made for later processes", state_dir.dir().display()),
                    None => "nothing is kept on this machine".to_owned(),
                },
            );
            self.open(granted, branch.cloned(), state_dir, stages)
        };
        open().inspect_err(|_| {
            // The subtree must not stay unavailable to others. If this fails too, an administrator sees the
            // decoupling in the list.
            let _ = calls.end(false);
        })
    }

    /// The grant of a subtree of which nothing that was written is held back here.
    fn take(
        &self,
        caller: &Caller<'_>,
        root: Ino,
        policy: Option<&[u8]>,
        branch: Option<&Name>,
    ) -> Result<Granted, RealmError> {
        for _ in 0..TAKES_MAX {
            // The server recalls leases, but a server that restarted meanwhile knows of none. Content that cannot
            // be pushed is reported as an error at its handles.
            let _ = self.global.push();
            let call = RealmCall::Decouple {
                root,
                branch: branch.cloned(),
                nonce: self.options.client.world.random(),
                journal_at: self.journal_at(),
                policy: policy.unwrap_or_default().to_vec(),
            };
            let granted = self
                .calls
                .decouple(caller, call)
                .map_err(|error| self.with_obstacle(error, caller, root, branch.is_some()))?;
            if branch.is_some() || !self.holds_back(&granted)? {
                return Ok(granted);
            }
            ClaimCalls { calls: self.calls.clone(), claim: granted.claim }.end(false)?;
        }
        let what = "writes to files in it cannot be delivered to the server";
        Err(RealmError::new(Refusal::Busy, what, "close those files, then run the command again"))
    }

    /// The error, with the obstacle named if there is one.
    pub(crate) fn with_obstacle(
        &self,
        error: RealmError,
        caller: &Caller<'_>,
        root: Ino,
        is_branch: bool,
    ) -> RealmError {
        match error.refusal() {
            Refusal::Busy => obstacle::obstacle(&self.calls, &self.global, root, is_branch),
            Refusal::NotPermitted if self.is_owner(caller, root) => obstacle::not_for_its_owner(),
            _ => error,
        }
    }

    fn is_owner(&self, caller: &Caller<'_>, dir: Ino) -> bool {
        self.global.getattr(dir, None).is_ok_and(|entry| entry.attr.uid == caller.uid)
    }

    /// Whether this client still buffers content of files in the granted subtree that the server did not recall,
    /// because it restarted and knows of no lease. After the decoupling this content could not be pushed any more.
    fn holds_back(&self, granted: &Granted) -> Result<bool, RealmError> {
        for ino in self.global.files_at_stake() {
            // The inode is gone, so it is not in the subtree.
            let Ok((_, info)) = self.calls.of(ino) else { continue };
            if info.is_some_and(|info| info.claim.realm == granted.claim.realm) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn make_state_dir(
        &self,
        granted: &Granted,
        branch: Option<&Name>,
    ) -> Result<Option<StateDir>, RealmError> {
        // Also for a journal in the object store, so that the next process on this machine can resume it.
        if policy_of(&granted.policy)?.durability() == Durability::None {
            return Ok(None);
        }
        let branch = branch.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let record = Record::new(granted.filesystem, granted.claim.realm, granted.root.ino, branch);
        StateDir::create(&self.options.state_dir, record).map(Some)
    }

    fn open(
        &self,
        granted: Granted,
        branch: Option<Name>,
        state_dir: Option<StateDir>,
        stages: Stages,
    ) -> Result<Arc<Realm>, RealmError> {
        let realm = Arc::new(Realm::open(Opening {
            global: self.global.clone(),
            options: self.options.client.clone(),
            granted,
            branch,
            state_dir,
            journals: self.journals.clone(),
            journal_at: self.journal_at(),
            stages,
            accept_truncated: self.options.accept_truncated,
        })?);
        watch(&realm, &self.options.client.world);
        let mut open = self.open.write();
        open.retain(|realm| !realm.is_ended());
        open.push(realm.clone());
        self.count.store(open.len(), Ordering::Release);
        self.places.lock().clear();
        Ok(realm)
    }

    /// Where this client's journals are, for administrators and other machines.
    pub(crate) fn journal_at(&self) -> String {
        format!("{}:{}", host(), self.options.state_dir.display())
    }

    /// The decoupled subtree that an inode belongs to, if this client has it; branches are left out, whose inodes have
    /// the numbers of the originals.
    pub fn of(&self, ino: Ino) -> Option<Arc<Realm>> {
        if self.count.load(Ordering::Acquire) == 0 { None } else { self.find(ino) }
    }

    fn find(&self, ino: Ino) -> Option<Arc<Realm>> {
        let candidates: Vec<Arc<Realm>> = {
            let open = self.open.read();
            let candidates = open.iter().filter(|realm| realm.branch().is_none() && !realm.is_ended());
            if let Some(realm) = candidates.clone().find(|realm| realm.holds_number(ino)) {
                return Some(realm.clone());
            }
            candidates.cloned().collect()
        };
        if let Some(realm) = candidates.iter().find(|realm| realm.holds(ino)) {
            return Some(realm.clone());
        }
        if candidates.is_empty() || ino == Ino::ROOT {
            return None;
        }
        let known = self.places.lock().get(&ino).copied();
        let place = match known {
            Some(place) => place,
            None => {
                // If the server does not answer for an inode, count it as not ours.
                let place = self.calls.of(ino).ok()?.1.map(|info| info.claim.realm);
                let mut places = self.places.lock();
                if places.len() >= PLACES_MAX {
                    places.clear();
                }
                places.insert(ino, place);
                place
            }
        };
        candidates.into_iter().find(|realm| Some(realm.id()) == place)
    }

    /// The directory whose policy holds for an inode. [`Realms::decouple`] takes this directory.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn root_of(&self, ino: Ino) -> Result<Ino, RealmError> {
        Ok(self.calls.of(ino)?.0)
    }

    /// Where the root of a decoupled subtree is.
    ///
    /// # Errors
    /// The server does not answer, or the decoupling has ended.
    pub fn path_of(&self, realm: &Realm) -> Result<Vec<u8>, RealmError> {
        let info = self.calls.of(realm.root())?.1;
        info.map(|info| info.path)
            .ok_or_else(|| RealmError::refused("its path is not known", Refusal::NotFound))
    }

    /// The open realms, without those whose decoupling has ended.
    pub fn list(&self) -> Vec<Arc<Realm>> {
        self.open.read().iter().filter(|realm| !realm.is_ended()).cloned().collect()
    }

    /// The decouplings whose journals in the object store are merged offline (`nonvolatile_apply`), in the order in which
    /// they began. They can be [adopted](Realms::adopt).
    ///
    /// # Errors
    /// The server does not answer.
    pub fn offline(&self) -> Result<Vec<RealmId>, RealmError> {
        let mut found = Vec::new();
        for info in self.calls.list()? {
            let is_due = info.branch.is_none() && policy_of(&info.policy)?.is_merged_offline();
            found.extend(is_due.then_some(info.claim.realm));
        }
        Ok(found)
    }

    /// Decouplings of this file system that earlier processes left in the state directory. They are listed, not
    /// resumed.
    ///
    /// # Errors
    /// The state directory cannot be read; the server cannot be asked.
    pub fn left(&self) -> Result<Vec<LeftRealm>, RealmError> {
        let dirs = StateDir::all(&self.options.state_dir, self.global.filesystem())?;
        let all = self.calls.list()?;
        let beside = |dir: &PathBuf| {
            let local = StateDir::look(dir)?;
            let info = all.iter().find(|info| info.claim.realm.0 == local.realm);
            let set_aside = info.filter(|_| local.branch.is_none()).and_then(|info| info.branch.as_ref());
            let ended_as = set_aside.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
            Ok(LeftRealm { ended_as, exists: info.is_some(), local })
        };
        dirs.iter().map(beside).collect()
    }

    /// Resumes all decouplings in the state directory that no process has: attaches each, and replays its journal.
    /// Branches wait until they are opened. A decoupling that was ended elsewhere is removed here if it has no
    /// journal.
    pub fn recover(&self) -> Vec<Result<Arc<Realm>, RealmError>> {
        match StateDir::all(&self.options.state_dir, self.global.filesystem()) {
            Err(error) => vec![Err(error)],
            Ok(dirs) => dirs
                .iter()
                .filter_map(|dir| match StateDir::open(dir) {
                    Ok(None) => None,
                    Ok(Some(state_dir)) if state_dir.record().branch.is_some() => None,
                    Ok(Some(state_dir)) => match self.recover_own(state_dir) {
                        Err(error) if error.refusal() == Refusal::Stale => {
                            self.end_left(dir, error).transpose()
                        }
                        recovered => Some(recovered),
                    },
                    Err(error) => Some(Err(error)),
                })
                .collect(),
        }
    }

    /// Resumes one that no administrator has ended.
    fn recover_own(&self, state_dir: StateDir) -> Result<Arc<Realm>, RealmError> {
        let realm = RealmId(state_dir.record().realm);
        if self.is_set_aside(realm)? {
            return Err(set_aside(realm));
        }
        self.recover_one(state_dir)
    }

    /// Whether an administrator turned this decoupling into a branch.
    fn is_set_aside(&self, realm: RealmId) -> Result<bool, RealmError> {
        let all = self.calls.list()?;
        Ok(all.iter().any(|info| info.claim.realm == realm && info.branch.is_some()))
    }

    /// Handles the folder of a decoupling that is over. A journal is kept, because a user may still want it; a
    /// folder without one is removed.
    fn end_left(&self, dir: &Path, error: RealmError) -> Result<Option<Arc<Realm>>, RealmError> {
        let left = StateDir::look(dir)?;
        match left.journal_bytes == 0 && self.is_over(RealmId(left.realm))? {
            // A user must decide about a journal that waits as a branch.
            true => StateDir::open(dir)?.map_or(Ok(None), |state_dir| state_dir.remove().map(|()| None)),
            false => Err(error),
        }
    }

    fn is_over(&self, realm: RealmId) -> Result<bool, RealmError> {
        Ok(self.calls.list()?.iter().all(|info| info.claim.realm != realm))
    }

    /// Removes folders of decouplings that are over (merged elsewhere, or ended by an administrator) from the state
    /// directory.
    ///
    /// # Errors
    /// The server does not answer, or a folder cannot be removed.
    pub fn drop_over(&self) -> Result<Vec<RealmId>, RealmError> {
        let mut dropped = Vec::new();
        for dir in StateDir::all(&self.options.state_dir, self.global.filesystem())? {
            let Some(state_dir) = StateDir::open(&dir)? else { continue };
            let realm = RealmId(state_dir.record().realm);
            let is_aside = state_dir.record().branch.is_none() && self.is_set_aside(realm)?;
            if is_aside {
                let granted =
                    self.calls.attach(realm, self.options.client.world.random(), self.journal_at())?;
                ClaimCalls { calls: self.calls.clone(), claim: granted.claim }.end(false)?;
            }
            if is_aside || self.is_over(realm)? {
                state_dir.remove()?;
                dropped.push(realm);
            }
        }
        Ok(dropped)
    }

    /// Turns a decoupling in the state directory into a branch: `id`, or the one that was ended elsewhere. Returns
    /// the branch.
    ///
    /// # Errors
    /// There is no such decoupling, or several; a process has it; or the branch name is taken.
    pub fn rescue(&self, id: Option<RealmId>, name: &Name) -> Result<RealmInfo, RealmError> {
        let all = self.calls.list()?;
        let info_of = |realm: u32| all.iter().find(|info| info.claim.realm.0 == realm);
        let mut found = Vec::new();
        for dir in StateDir::all(&self.options.state_dir, self.global.filesystem())? {
            let record = StateDir::peek(&dir)?;
            let Some(info) = info_of(record.realm) else { continue };
            let is_aside = record.branch.is_none() && info.branch.is_some();
            if id.map_or(is_aside, |id| id.0 == record.realm) {
                found.push((dir, info));
            }
        }
        let (dir, info) = match (&found[..], id) {
            ([(dir, info)], _) => (Some(dir), *info),
            ([], Some(id)) => {
                let info = info_of(id.0).ok_or_else(|| {
                    let next = "`chiton decoupled` lists them";
                    RealmError::new(Refusal::NotFound, format!("there is no decoupling {id}"), next)
                })?;
                if policy_of(&info.policy)?.durability() != Durability::Global {
                    let what = format!(
                        "the journal of decoupling {id} is not in {}",
                        self.options.state_dir.display()
                    );
                    let next = format!(
                        "it is in {}: run the command there, or name that directory with --state-dir",
                        info.journal_at
                    );
                    return Err(RealmError::new(Refusal::NotFound, what, next));
                }
                (None, info)
            }
            ([], None) => {
                let what = format!(
                    "no journal of a decoupling that was ended elsewhere is in {}",
                    self.options.state_dir.display()
                );
                let next = "`chiton recover` lists the journals; name a decoupling with --id";
                return Err(RealmError::new(Refusal::NotFound, what, next));
            }
            (several, _) => {
                let ids: Vec<String> = several.iter().map(|(_, info)| info.claim.realm.to_string()).collect();
                let what = format!("several were ended elsewhere: {}", ids.join(", "));
                return Err(RealmError::new(Refusal::Invalid, what, "choose one with --id"));
            }
        };
        // The mount that had it hears of the end within a second or two, and leaves the journal then.
        let state_dir = dir.map(|dir| open_in_time(dir)).transpose()?;
        self.calls.become_branch(info.claim.realm, Some(name))?;
        if let Some(mut state_dir) = state_dir {
            state_dir.note_branch(String::from_utf8_lossy(name.as_bytes()).into_owned())?;
        }
        Ok(RealmInfo { branch: Some(name.clone()), ..info.clone() })
    }

    /// Resumes a decoupling whose journal is in the object store, from any machine. The server refuses the previous
    /// client from then on.
    ///
    /// # Errors
    /// Why not: it is over, the caller may not, its journal is on another machine.
    pub fn adopt(&self, realm: RealmId) -> Result<Arc<Realm>, RealmError> {
        let info = self.calls.list()?.into_iter().find(|info| info.claim.realm == realm);
        let info = info.ok_or_else(|| {
            let next = "`chiton decoupled` lists them";
            RealmError::new(Refusal::NotFound, format!("there is no decoupling {realm}"), next)
        })?;
        let level = policy_of(&info.policy)?.durability();
        if level != Durability::Global {
            let what =
                format!("the journal of decoupling {realm} is not in the object store: {}", info.journal_at);
            return Err(RealmError::new(
                Refusal::Unsupported,
                what,
                "run chiton recover on that machine, or end it without its journal: chiton recouple MOUNTPOINT --id NUMBER --force",
            ));
        }
        let (granted, stages) = self.attach(realm)?;
        let state_dir = self.make_state_dir(&granted, info.branch.as_ref())?;
        self.open(granted, info.branch, state_dir, stages)
    }

    pub(crate) fn recover_one(&self, state_dir: StateDir) -> Result<Arc<Realm>, RealmError> {
        let branch = state_dir.record().branch.as_ref().and_then(|name| Name::new(name.as_bytes()).ok());
        self.recover_as(state_dir, branch)
    }

    /// The same, with the name of the branch if it is one.
    pub(crate) fn recover_as(
        &self,
        state_dir: StateDir,
        branch: Option<Name>,
    ) -> Result<Arc<Realm>, RealmError> {
        let realm = RealmId(state_dir.record().realm);
        let (granted, stages) = self.attach(realm)?;
        self.open(granted, branch, Some(state_dir), stages)
    }

    /// Attaches this client to a decoupling at the server.
    fn attach(&self, realm: RealmId) -> Result<(Granted, Stages), RealmError> {
        let world = &self.options.client.world;
        let mut stages = Stages::begin(world);
        let granted = self.calls.attach(realm, world.random(), self.journal_at())?;
        stages
            .took("grant", format!("decoupling {realm} is resumed, as client {}", granted.claim.generation));
        note_granted(&mut stages, &granted);
        Ok((granted, stages))
    }

    /// Ends this client's work. Realms that their policy merges automatically are merged, and their decouplings
    /// end. Others keep their journal for the next process, or are dropped if they have no journal. Returns the
    /// failures.
    pub fn close(&self) -> Vec<RealmError> {
        let mut errors = Vec::new();
        for realm in self.list() {
            errors.extend(part_with(&realm).err());
        }
        self.open.write().clear();
        self.count.store(0, Ordering::Release);
        errors
    }
}

fn set_aside(realm: RealmId) -> RealmError {
    RealmError::ended_elsewhere(&format!("decoupling {realm}"))
}

/// Takes the directory of a decoupling that is about to be free.
fn open_in_time(dir: &Path) -> Result<StateDir, RealmError> {
    for _ in 0..LEAVES_MAX {
        if let Some(state_dir) = StateDir::open(dir)? {
            return Ok(state_dir);
        }
        thread::sleep(LEAVE);
    }
    let what = format!("{} is in use", dir.display());
    Err(RealmError::new(
        Refusal::Busy,
        what,
        "a mount has it: unmount it, or run the command on a path in that mount",
    ))
}

/// Records the size of the server's answer.
fn note_granted(stages: &mut Stages, granted: &Granted) {
    let base = granted.base;
    stages.brought("snapshot", format!("position {base} of the server; rows are fetched on demand"));
    let count: u64 = granted.ranges.iter().map(|(first, end)| end.0.saturating_sub(first.0)).sum();
    stages.brought("inode numbers", format!("{count} reserved, in {} ranges", granted.ranges.len()));
}

/// Ends a client's work in a realm as the policy says: see [`Realms::close`].
pub(crate) fn part_with(realm: &Realm) -> Result<(), RealmError> {
    if realm.is_lost() {
        return realm.leave();
    }
    let policy = realm.policy();
    // A branch is merged only on command.
    let is_merged = policy.merges_by_itself() && realm.branch().is_none();
    match (is_merged, policy.durability()) {
        (false, Durability::None) => realm.discard(),
        (false, _) => realm.leave(),
        (true, _) => match realm.merge(&|_| {}) {
            Ok(report) if !report.stopped => {
                if let Some(warning) = report.warning() {
                    tracing::warn!("decoupling {}: {warning}", realm.id());
                }
                Ok(())
            }
            Ok(_) => realm.leave(),
            // Unmerged changes stay in the journal.
            Err(error) => realm.leave().and(Err(error)),
        },
    }
}

/// This machine's name, as it stands before the place of a journal.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
