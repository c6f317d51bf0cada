//! A client that decouples subtrees: works there, merges, discards, dies, and resumes.
//!
//! ```text
//!   Mkdir root ─ decouple ─ steps in the subtree's own engine ─┬─ MergeSoFar …
//!        ▲                                                     ├─ MergeAll │ Discard ─▶ the next root
//!        └──── found, read, ended ◀─ recover │ adopt ◀─────────┴─ death, or the session is lost
//! ```
//!
//! Journals of `local` are on a disk of the client's machine, which loses unsynced data when the machine dies; with
//! `global` each life is on another machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use chiton_client::{Client, ask};
use chiton_decoupled::{Journals, Realm, RealmError, Realms, RealmsOptions};
use chiton_journal::{Place, Shape};
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_types::{Ino, Refusal};
use chiton_wire::{Answer as Told, Call, RealmAnswer, RealmCall, RealmInfo};

use super::Cluster;
use super::program::{Program, fits, in_root};
use crate::canary::Canary;
use crate::disk::{Disk, DiskHandle};
use crate::history::{Action, Answer, Happened};
use crate::judge::is_of_the_outside;
use crate::party::LiveClient;
use crate::perform::{Handles, perform, perform_as, read_tree};
use crate::plan::{Job, MARK, OWN, Step};
use crate::scheduler::scheduler;
use crate::users::User;

const PAUSE: Duration = Duration::from_millis(300);
/// Number of attempts to resume a subtree before that counts as a violation.
const TRIES_MAX: u32 = 1_000;

/// The state that outlives a job's client.
#[derive(Default)]
pub(super) struct Apart {
    /// The subtree that is, or was last, taken.
    root: String,
    /// Marks in it, in order.
    marks: Vec<String>,
    left: Option<Left>,
    disks: BTreeMap<PathBuf, Arc<Disk>>,
}

/// A subtree that may be decoupled still.
#[derive(Clone)]
struct Left {
    root: String,
    ino: Ino,
    begun: bool,
}

/// A job at work.
struct Desk<'a> {
    cluster: &'a Cluster,
    program: &'a Program,
    live: &'a Arc<LiveClient>,
    job: &'a Job,
    client: Arc<Client>,
    realms: Arc<Realms>,
    dir: PathBuf,
}

struct Taken {
    root: String,
    realm: Arc<Realm>,
    handles: Handles,
}

impl Program {
    /// Marks in the subtree that this client has taken last.
    pub(super) fn marks(&self) -> Vec<String> {
        self.apart.lock().marks.clone()
    }

    pub(super) fn apart_root(&self) -> Option<String> {
        Some(self.apart.lock().root.clone()).filter(|root| !root.is_empty())
    }
}

impl Cluster {
    /// One life of a job's client.
    pub(super) fn work_apart(&self, n: usize, live: &Arc<LiveClient>, job: &Job) {
        let program = &self.clients[n];
        let options = live.options(&self.options_of(live));
        let Some(client) = live.connect(&self.rig.net, &options) else { return };
        self.recorder.push(Happened::ClientStarted { client: program.id });
        self.recorder.push(Happened::WorksApart { client: program.id });
        // A journal in the object store leaves nothing on the machine.
        let machine = if job.durability == "global" { live.life } else { 0 };
        let dir = self.scratch.join(format!("client{n}-machine{machine}"));
        let handles: Arc<Mutex<Vec<Arc<DiskHandle>>>> = Arc::default();
        let journals = self.journals(n, &handles);
        let realms_options =
            RealmsOptions { state_dir: dir.clone(), client: options, accept_truncated: false };
        let realms = Realms::with_journals(client.clone(), realms_options, journals);
        let (dying, party) = (Arc::downgrade(&realms), live.party);
        live.when_it_dies(move || {
            handles.lock().iter().for_each(|disk_handle| disk_handle.cut());
            if let Some(realms) = dying.upgrade() {
                scheduler()
                    .spawn_in(party, "grave", move || realms.list().iter().for_each(|realm| realm.abandon()));
            }
        });
        let desk = Desk { cluster: self, program, live, job, client, realms, dir };
        desk.resume();
        desk.work();
        if desk.leave() {
            drop(desk);
            live.end();
            program.done.store(true, SeqCst);
        }
    }

    /// Where the journals of a client's machine are.
    fn journals(&self, n: usize, handles: &Arc<Mutex<Vec<Arc<DiskHandle>>>>) -> Journals {
        let (program, handles) = (self.clients[n].clone(), handles.clone());
        let (seed, canary) = (self.plan.seed ^ n as u64, self.canary.filter(|c| *c == Canary::FsyncSkipped));
        Arc::new(move |dir: &Path| {
            let mut apart = program.apart.lock();
            let disk = apart.disks.entry(dir.to_owned());
            let disk_handle = disk.or_insert_with(|| Disk::new(Shape::Grows, seed, canary)).handle();
            handles.lock().push(disk_handle.clone());
            Ok(disk_handle as Arc<dyn Place>)
        })
    }

    /// The machine of a job's client lost its power: its disks lose unsynced data.
    pub(super) fn power_lost(&self, n: usize) {
        self.clients[n].apart.lock().disks.values().for_each(|disk| disk.crash());
    }
}

/// Ends, as an administrator does, decouplings without a client: their clients died before the grant arrived.
pub(super) fn end_forsaken(client: &Client, begun: &BTreeSet<Ino>) -> Result<(), String> {
    let reported = |error: RealmError| error.to_string();
    for info in list(client).map_err(reported)? {
        if !begun.contains(&info.root) {
            force_end(client, &info).map_err(reported)?;
        }
    }
    Ok(())
}

fn ask_about(client: &Client, call: RealmCall) -> Result<RealmAnswer, RealmError> {
    match ask(&**client.service(), &client.caller(), Call::Realm(Box::new(call))) {
        Ok(Told::Realm(answer)) => Ok(answer),
        Ok(_) => Err(RealmError::new(Refusal::Io, "no answer about realms", "")),
        Err(refusal) => Err(RealmError::new(refusal, refusal.to_string(), "")),
    }
}

fn list(client: &Client) -> Result<Vec<RealmInfo>, RealmError> {
    match ask_about(client, RealmCall::List)? {
        RealmAnswer::Realms(all) => Ok(all),
        _ => Err(RealmError::new(Refusal::Io, "no list", "")),
    }
}

/// Whether a refusal may mean that blocks of the subtree are not taken any more.
fn is_of_the_claim(step: &Step, refusal: Refusal) -> bool {
    let is_of_rights = step.user != User::Root
        && !matches!(step.action, Action::Write { .. } | Action::PunchHole { .. } | Action::Truncate { .. });
    refusal == Refusal::NotPermitted && !is_of_rights
}

fn force_end(client: &Client, info: &RealmInfo) -> Result<(), RealmError> {
    ask_about(client, RealmCall::End { claim: info.claim, force: true }).map(drop)
}

impl Desk<'_> {
    fn is_over(&self) -> bool {
        self.live.is_over()
    }

    fn push(&self, what: Happened) {
        if !self.is_over() {
            self.cluster.recorder.push(what);
        }
    }

    fn note_left(&self, left: Option<Left>) {
        if !self.is_over() {
            self.program.apart.lock().left = left;
        }
    }

    fn work(&self) {
        let mut taken: Option<Taken> = None;
        while !self.is_over() {
            let at = self.program.next.load(SeqCst);
            let Some(step) = self.program.steps.get(at) else { break };
            self.program.next.store(at + 1, SeqCst);
            if !self.cluster.healing.load(SeqCst) {
                thread::sleep(step.pause);
            }
            if taken.is_none() {
                taken = self.take();
            }
            let Some(mut at_hand) = taken.take() else { continue };
            taken = match &step.action {
                action @ (Action::MergeAll | Action::Discard) => {
                    self.end(at_hand, action);
                    None
                }
                Action::MergeSoFar => self.so_far(at_hand),
                action => {
                    let action = in_root(action, &at_hand.root);
                    match self.act_as(step.user, &mut at_hand, &action) {
                        Answer::Refused(refusal)
                            if is_of_the_outside(refusal) || is_of_the_claim(step, refusal) =>
                        {
                            self.end(at_hand, &Action::MergeAll);
                            None
                        }
                        _ => Some(at_hand),
                    }
                }
            };
        }
        if let Some(taken) = taken {
            self.end(taken, &Action::MergeAll);
        }
    }

    /// The orderly end: true if it was one.
    fn leave(&self) -> bool {
        while !self.is_over() {
            if self.record(&Action::Sync, || self.client.sync().map(|()| Answer::Done)) == Answer::Done {
                return !self.is_over();
            }
            thread::sleep(PAUSE);
        }
        false
    }

    fn record(&self, action: &Action, body: impl FnOnce() -> Result<Answer, Refusal>) -> Answer {
        self.record_as(User::Root, action, body)
    }

    fn record_as(
        &self,
        user: User,
        action: &Action,
        body: impl FnOnce() -> Result<Answer, Refusal>,
    ) -> Answer {
        let call = self.cluster.recorder.next_call();
        self.push(Happened::Invoked { client: self.live.id, call, user, action: action.clone() });
        let answer = body().unwrap_or_else(Answer::Refused);
        self.push(Happened::Returned { client: self.live.id, call, answer: answer.clone() });
        answer
    }

    /// An action of root in a subtree.
    fn act(&self, taken: &mut Taken, action: &Action) -> Answer {
        self.act_as(User::Root, taken, action)
    }

    fn act_as(&self, user: User, taken: &mut Taken, action: &Action) -> Answer {
        if !fits(action, &taken.handles) {
            return Answer::Done;
        }
        let mut within = action.clone();
        for path in within.paths_mut() {
            *path = path.strip_prefix(&taken.root).unwrap_or(path).to_owned();
        }
        let acting = self.cluster.acting(user);
        let answer = self.record_as(user, action, || {
            Ok(perform_as(acting, taken.realm.client(), &mut taken.handles, &within))
        });
        if let (Action::Create { path, .. }, Answer::Attr(_)) = (action, &answer)
            && path.strip_prefix(&taken.root).is_some_and(|rest| rest.starts_with(MARK))
        {
            self.program.apart.lock().marks.push(path.clone());
        }
        answer
    }

    /// A new directory, decoupled.
    fn take(&self) -> Option<Taken> {
        let number = self.program.roots.fetch_add(1, SeqCst);
        let root = format!("{OWN}{}-{number}", self.program.id.0);
        let make = Action::Mkdir { path: root.clone(), mode: self.cluster.plan.setup.own_mode };
        let made = self.record(&make, || {
            // A caller that makes directories looks first.
            let _ = self.client.lstat(&root);
            Ok(perform(&self.client, &mut Handles::new(), &make))
        });
        let Answer::Attr(made) = made else {
            return None;
        };
        self.client.mkdir_all(format!("{root}/theirs")).ok()?;
        self.note_left(Some(Left { root: root.clone(), ino: made.ino, begun: false }));
        let mut policy = self.job.policy();
        if self.cluster.canary == Some(Canary::BlockIgnored) {
            policy = policy.replace("block_writes", "allow").replace("block", "allow");
        }
        match self.realms.decouple(&self.client.caller(), made.ino, Some(policy.as_bytes()), None) {
            Ok(realm) => {
                if self.is_over() {
                    realm.abandon();
                    return None;
                }
                self.note_left(Some(Left { root: root.clone(), ino: made.ino, begun: true }));
                self.cluster.begun.lock().insert(made.ino);
                {
                    let mut apart = self.program.apart.lock();
                    apart.root = root.clone();
                    apart.marks.clear();
                }
                self.push(Happened::Decoupled {
                    client: self.live.id,
                    root: root.clone(),
                    changed: realm.root_attr().ctime,
                    kept: self.job.is_kept(),
                    merges: self.job.sync_ms.is_some(),
                    interfere: self.job.interfere,
                });
                Some(Taken { root, realm, handles: Handles::new() })
            }
            Err(error) => {
                self.cluster.recorder.line(format!("{root} is not decoupled: {error}"));
                self.resume();
                None
            }
        }
    }

    fn so_far(&self, taken: Taken) -> Option<Taken> {
        match self.until_done(&Action::MergeSoFar, &taken.realm) {
            Answer::Done => Some(taken),
            _ => {
                self.claim_lost(taken);
                None
            }
        }
    }

    /// Ends the decoupling, repeating it until it succeeds.
    fn end(&self, mut taken: Taken, action: &Action) {
        for handle in taken.handles.keys().copied().collect::<Vec<_>>() {
            self.act(&mut taken, &Action::Close { handle });
        }
        match self.until_done(action, &taken.realm) {
            Answer::Done => self.note_left(None),
            _ => self.claim_lost(taken),
        }
    }

    /// Asks until it is done, or cannot be any more.
    fn until_done(&self, action: &Action, realm: &Realm) -> Answer {
        self.record(action, || {
            loop {
                let done = match action {
                    Action::Discard if self.cluster.canary != Some(Canary::DiscardMerges) => realm.discard(),
                    Action::MergeSoFar => realm.sync(&|_| {}).map(|report| self.look_at(&report)),
                    _ => realm.merge(&|_| {}).map(|report| self.look_at(&report)),
                };
                match done {
                    Ok(()) => return Ok(Answer::Done),
                    // The rest is this machine's own clean-up.
                    Err(_) if realm.is_ended() && !self.is_over() => return Ok(Answer::Done),
                    Err(error) if self.is_over() || error.refusal() == Refusal::Stale => {
                        return Err(Refusal::Stale);
                    }
                    // A journal in the object store fails when its claim is void.
                    Err(_) if self.is_void(realm) => return Err(Refusal::Stale),
                    // Its engine has failed; a new one finds the durable changes.
                    Err(_) if realm.has_failed() => return Err(Refusal::Stale),
                    Err(error) => self.cluster.recorder.line(format!("{action:?}: {error}")),
                }
                thread::sleep(PAUSE);
            }
        })
    }

    /// The durable decouplings, which no crash of the server changes.
    fn durably_listed(&self) -> Result<Vec<RealmInfo>, RealmError> {
        let roots = |all: &[RealmInfo]| all.iter().map(|info| (info.claim, info.is_own)).collect::<Vec<_>>();
        let before = list(&self.client)?;
        self.client.sync().map_err(|refusal| RealmError::new(refusal, "not durable", ""))?;
        let after = list(&self.client)?;
        match roots(&before) == roots(&after) {
            true => Ok(after),
            false => Err(RealmError::new(Refusal::WouldBlock, "others come and go", "")),
        }
    }

    /// Whether a decoupling ended, or another client has it, according to the server.
    fn is_void(&self, realm: &Realm) -> bool {
        let is_ours = |info: &RealmInfo| info.claim == realm.claim() && info.is_own;
        self.durably_listed().is_ok_and(|all| !all.iter().any(is_ours))
    }

    fn look_at(&self, report: &chiton_decoupled::MergeReport) {
        if report.stopped || report.conflict_count + report.lost_count > 0 {
            self.push(Happened::MergeTrouble { client: self.live.id, what: format!("{report:?}") });
        }
    }

    fn claim_lost(&self, taken: Taken) {
        self.push(Happened::ClaimLost { client: self.live.id });
        taken.realm.abandon();
        drop(taken);
        self.resume();
    }

    /// Resumes a subtree of an earlier life, or session.
    fn resume(&self) {
        let Some(left) = self.program.apart.lock().left.clone() else { return };
        let mut tries = 0;
        while !self.is_over() {
            match self.try_to_go_on(&left) {
                Ok(Some(mut taken)) => {
                    // Numbers that were given out before must not come again.
                    let path = format!("{}/theirs/r{}", taken.root, self.live.life);
                    self.act(&mut taken, &Action::Create { path, content: Vec::new() });
                    let merges = (self.cluster.plan.seed + u64::from(self.live.life)).is_multiple_of(2);
                    return self.end(taken, if merges { &Action::MergeAll } else { &Action::Discard });
                }
                Ok(None) => {
                    self.push(Happened::IsOver { client: self.live.id, root: left.root });
                    self.note_left(None);
                    // Leftovers there belong to ended decouplings.
                    if !self.is_over() {
                        let _ = std::fs::remove_dir_all(&self.dir);
                    }
                    return;
                }
                Err(error) => {
                    self.cluster.recorder.line(format!("{} is not resumed: {error}", left.root));
                    tries += 1;
                    if tries == TRIES_MAX {
                        let what = format!("{} cannot be resumed: {error}", left.root);
                        self.push(Happened::MergeTrouble { client: self.live.id, what });
                        return;
                    }
                }
            }
            thread::sleep(PAUSE);
        }
    }

    /// `None`: it has ended.
    fn try_to_go_on(&self, left: &Left) -> Result<Option<Taken>, RealmError> {
        let found = self.durably_listed()?.into_iter().find(|info| info.root == left.ino);
        let Some(info) = found else { return Ok(None) };
        if !left.begun {
            force_end(&self.client, &info)?;
            return Ok(None);
        }
        let id = info.claim.realm;
        let realm = match self.job.durability {
            // It ends when its session expires.
            "none" => return Ok(None),
            "global" => self.realms.adopt(id)?,
            _ => {
                let mut last = RealmError::new(Refusal::NotFound, "nothing is left on this machine", "");
                let mut found = None;
                for one in self.realms.recover() {
                    match one {
                        Ok(realm) if realm.id() == id => found = Some(realm),
                        Ok(other) => other.abandon(),
                        Err(error) => last = error,
                    }
                }
                found.ok_or(last)?
            }
        };
        let tree = read_tree(realm.client()).map_err(|why| {
            realm.abandon();
            RealmError::new(Refusal::Io, why, "")
        })?;
        self.push(Happened::WentOn { client: self.live.id, root: left.root.clone(), tree });
        Ok(Some(Taken { root: left.root.clone(), realm, handles: Handles::new() }))
    }
}
