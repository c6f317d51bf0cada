//! One decoupled subtree.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_journal::{Frame, MemoryPlace, Place, PlaceError, Shape, replay};
use chiton_namespace::{Event, merge};
use chiton_policy::{Durability, Interfere, OnConflict, Policy, PolicyFile};
use chiton_proto::{Claim, Granted, MergeState, Settled};
use chiton_server::{RealmStart, Server, ServerOptions, StartError};
use chiton_types::{Attr, Ino, Name, Position, RealmId, Refusal, SessionId};
use chiton_world::sync::{Mutex, RwLock, RwLockReadGuard};

use crate::agree::{Agreed, Sides};
use crate::base::{ReadBase, ServerBase};
use crate::calls::{Calls, ClaimCalls, no_groups, root as as_root};
use crate::diff::{Compared, Lives};
use crate::durable_mark::{DurableMark, end_of};
use crate::error::RealmError;
use crate::home::{Home, User};
use crate::merge::Merger;
use crate::options::{BRANCH_ROWS_BYTES, Journals};
use crate::remote::Remote;
use crate::report::{Diff, MergeProgress, MergeReport, RealmStatus};
use crate::resolve::{Resolved, Standing};
use crate::stages::{Stage, Stages};
use crate::turn::Turn;
use crate::windows::{read_events, read_sent};

/// Block numbers of one generation of a decoupling's clients: 2^40.
const GENERATION_SHIFT: u32 = 40;

/// So long a journal is compared with what others did before each merge, to leave out what both did alike; a longer one only
/// where the policy asks for a comparison.
const COMPARED_MAX: u64 = 65_536;

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
    home: Mutex<Option<Home>>,
    /// Its directory, if it has one.
    home_dir: Option<PathBuf>,
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

/// What a realm is opened with.
pub(crate) struct Opening {
    pub(crate) global: Arc<Client>,
    pub(crate) options: ClientOptions,
    pub(crate) granted: Granted,
    pub(crate) branch: Option<Name>,
    pub(crate) home: Option<Home>,
    pub(crate) journals: Option<Journals>,
    pub(crate) journal_at: String,
    pub(crate) stages: Stages,
    pub(crate) accept_truncated: bool,
}

/// The policy that a server's answer carries.
pub(crate) fn policy_of(text: &[u8]) -> Result<Policy, RealmError> {
    let text = std::str::from_utf8(text).map_err(RealmError::nonsense)?;
    let file = PolicyFile::parse(text).map_err(RealmError::nonsense)?;
    Policy::resolve(&file, &Policy::default()).map_err(RealmError::nonsense)
}

impl Realm {
    /// Starts the engine: over what the journal says, if there is one.
    pub(crate) fn open(opening: Opening) -> Result<Realm, RealmError> {
        let Opening {
            global,
            options,
            granted,
            branch,
            mut home,
            journals,
            journal_at,
            mut stages,
            accept_truncated,
        } = opening;
        let policy = policy_of(&granted.policy)?;
        let calls = ClaimCalls { calls: Calls { service: global.service().clone() }, claim: granted.claim };
        let remote = (policy.durability() == Durability::Global).then(|| Remote { calls: calls.clone() });
        let place: Arc<dyn Place> = match (policy.durability(), &home, &remote) {
            (Durability::None, ..) => Arc::new(MemoryPlace::new(Shape::Grows)),
            (Durability::Local, Some(home), _) => home.place(journals.as_ref())?,
            (Durability::Global, _, Some(remote)) => Arc::new(remote.clone()),
            (level, ..) => {
                let what =
                    format!("a client's journal at durability {} is not carried out yet", level.name());
                let next = "use durability: none, local or global";
                return Err(RealmError::new(Refusal::Unsupported, what, next));
            }
        };
        // A journal of files, of which the directory says whether it is there.
        let in_files = policy.durability() == Durability::Local && journals.is_none();
        if let Some(home) = home.as_ref().filter(|_| in_files) {
            home.check_begun(&*place)?;
        }
        // Before anything of it is merged or begun anew: what is behind its end is void after that.
        let mark_dir = home.as_ref().filter(|_| in_files).map(|home| home.dir().to_owned());
        let mut missing = 0;
        let marked = match (&mark_dir, &remote) {
            (Some(dir), _) => DurableMark::read(dir),
            (None, Some(remote)) => remote.durable()?,
            (None, None) => None,
        };
        if let Some(durable) = marked {
            let end = end_of(&*place, granted.state.merged, durable).map_err(RealmError::journal)?;
            if end < durable {
                if !accept_truncated {
                    return Err(RealmError::truncated(&journal_named(&granted, &journal_at), end, durable));
                }
                missing = durable.0 - end.0;
            }
        }
        stages.took(
            "journal",
            match policy.durability() {
                Durability::None => "in memory",
                Durability::Local => "on the local disk",
                _ => "in the object store",
            },
        );
        let mut state = granted.state;
        let world = options.world.clone();
        // The server has begun with a window: what is in the rows must end where an operation does.
        if let Some((upto, _)) = state.window {
            let _turn = Turn::wait(&calls, granted.root.ino, &world)?;
            let mut merger = Merger {
                calls: &calls,
                place: place.clone(),
                world: &world,
                progress: &|_| {},
                durable: &mut |_| Ok(()),
            };
            merger.run(&mut state, upto)?;
        }
        let blocks = global.blocks().clone();
        let durable = policy.durability() != Durability::None;
        let journal = chiton_journal::Options {
            flush_interval: policy.flush_interval.duration(),
            ..chiton_journal::Options::default()
        };
        let inode_count = global.statfs().map_or(0, |totals| totals.inodes_used);
        let mut used = match (&remote, &home) {
            (Some(remote), _) => remote.used()?,
            (None, Some(home)) => home.record().used.iter().map(|n| Ino(*n)).collect(),
            (None, None) => Vec::new(),
        };
        if granted.claim.generation > 1 {
            // What an earlier client made and its journal has lost had numbers too, and these are never used again.
            used.extend(
                granted.ranges.iter().filter(|(first, end)| first < end).map(|(_, end)| Ino(end.0 - 1)),
            );
        }
        let base = Arc::new(ServerBase::new(calls.clone(), blocks.clone(), durable, &granted.ranges));
        let cache_bytes = if branch.is_some() { BRANCH_ROWS_BYTES } else { usize::MAX };
        let start = |merged: Position, used: &[Ino]| {
            Server::start_realm(RealmStart {
                filesystem: granted.filesystem,
                journal: journal_identity(&granted),
                shards: granted.shards,
                root: granted.root.ino,
                policy: policy.clone(),
                inode_count,
                writer: SessionId(granted.writer),
                ranges: granted.ranges.clone(),
                borders: granted.borders.clone(),
                used: used.to_vec(),
                merged,
                base: base.clone(),
                place: place.clone(),
                options: ServerOptions { journal, cache_bytes, ..ServerOptions::default() },
                world: world.clone(),
            })
        };
        let mut trouble = None;
        let server = match start(state.merged, &used) {
            // What others did meanwhile is in the way. A merge knows what to do about that, so it goes first.
            Err(StartError::Corrupt(why)) if may_merge_first(&policy) => {
                let last = last_of(&*place, state.merged)?;
                read_events(&*place, state.merged, last, &mut |event| {
                    if let Event::Make { ino, .. } = event {
                        used.push(*ino);
                    }
                })?;
                let _turn = Turn::wait(&calls, granted.root.ino, &world)?;
                let mut merger = Merger {
                    calls: &calls,
                    place: place.clone(),
                    world: &world,
                    progress: &|_| {},
                    durable: &mut |_| Ok(()),
                };
                let report = merger.run(&mut state, last)?;
                if report.stopped {
                    return Err(RealmError::journal(why));
                }
                trouble = Some(format!(
                    "others changed what the journal rests on, so it was merged when it was recovered: {} events, {} \
                     conflicts",
                    report.events, report.conflict_count
                ));
                start(state.merged, &used)
            }
            started => started,
        };
        let server = server.map_err(RealmError::journal)?;
        if let Some(dir) = &mark_dir {
            let mark =
                DurableMark::open(dir).map_err(|e| RealmError::local(format!("{}: {e}", dir.display())))?;
            // Of a disk that is full, the next commit says it.
            let _ = mark.write(server.durable());
            server.witness_durable(Box::new(move |durable| mark.write(durable)));
        }
        let durable_noted = Mutex::new(server.durable());
        if let Some(remote) = &remote {
            remote.note_durable(server.durable())?;
        }
        if missing > 0 {
            trouble = Some(format!(
                "{missing} events that were durable are missing: the journal was cut off, which was accepted"
            ));
        }
        if let Some(home) = home.as_mut().filter(|_| in_files) {
            home.note_begun()?;
        }
        let mut client_options = ClientOptions {
            root: granted.root.ino,
            user: options.user.clone().or_else(|| Some(user_of(&global))),
            ..options.clone()
        };
        client_options.files.first_block = (u64::from(granted.claim.generation) << GENERATION_SHIFT) + 1;
        let client = Client::embedded_with(server.clone(), blocks, client_options)
            .map_err(|e| RealmError::local(format!("cannot begin to work in the decoupled subtree: {e}")))?;
        let replayed = server.last().0.saturating_sub(state.merged.0);
        stages.took(
            "engine",
            format!("{replayed} events of the journal replayed, {} rows fetched", base.rows_fetched()),
        );
        Ok(Realm {
            calls,
            on_conflict: Mutex::new(policy.on_conflict),
            policy,
            branch,
            server,
            base,
            client: Arc::new(client),
            global,
            resolved: Mutex::new(
                home.as_ref().map_or_else(Resolved::default, |home| Resolved::read(home.dir())),
            ),
            options,
            journal_at,
            home_dir: home.as_ref().map(|home| home.dir().to_owned()),
            home: Mutex::new(home),
            remote,
            merged: AtomicU64::new(state.merged.0),
            merging: Mutex::new(state),
            unsettled: AtomicBool::new(false),
            gate: RwLock::default(),
            accept_truncated: AtomicBool::new(accept_truncated),
            missing: AtomicU64::new(missing),
            durable_noted,
            lost: AtomicBool::new(false),
            trouble: Mutex::new(trouble),
            ended: AtomicBool::new(false),
            held: Mutex::default(),
            stages: stages.into_vec(),
            granted,
        })
    }

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
    pub(crate) fn home_dir(&self) -> Option<&Path> {
        self.home_dir.as_deref()
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
        let Some(dir) = &self.home_dir else { return false };
        let waits =
            Home::is_at(dir) && Home::peek(dir).is_ok_and(|record| record.branch == self.branch_text());
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
        self.home.lock().take();
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
        self.home.lock().as_ref().map_or(Ok(()), |home| home.note_user(user))
    }

    /// Merges what there is so far; work goes on meanwhile.
    ///
    /// # Errors
    /// Why not; what was merged by then is.
    pub fn sync(&self, progress: &dyn Fn(MergeProgress)) -> Result<MergeReport, RealmError> {
        self.check_open()?;
        let _turn = self.turn()?;
        self.merge_unless_in_the_way(false, progress)
    }

    fn merge_unless_in_the_way(
        &self,
        alone: bool,
        progress: &dyn Fn(MergeProgress),
    ) -> Result<MergeReport, RealmError> {
        match self.in_the_way()? {
            Standing::Free => self.merge_so_far(alone, progress),
            // Ours is what was resolved to.
            Standing::Resolved => {
                self.resolving(Some(OnConflict::Overwrite), || self.merge_so_far(alone, progress))
            }
            Standing::Open(diff) => Ok(MergeReport::of_conflicts(&diff)),
        }
    }

    /// Nobody else merges in the directory from here on.
    fn turn(&self) -> Result<Turn<'_>, RealmError> {
        Turn::wait(&self.calls, self.root(), &self.options.world)
    }

    /// As [`Realm::sync`]. `alone`: nobody acts in it, so texts that both sides changed can be merged.
    fn merge_so_far(&self, alone: bool, progress: &dyn Fn(MergeProgress)) -> Result<MergeReport, RealmError> {
        self.check_open()?;
        let mut state = self.merging.lock();
        if let Some(report) = self.meet_others(&state, alone)? {
            return Ok(report);
        }
        self.client.sync().map_err(|refusal| {
            RealmError::refused("what was written here cannot be made durable", refusal)
        })?;
        self.merge_upto(&mut state, self.server.last(), progress)
    }

    /// As [`Realm::sync`], with something else done about conflicts this time than the policy says, if that is given.
    ///
    /// # Errors
    /// As [`Realm::sync`].
    pub fn sync_with(
        &self,
        on_conflict: Option<OnConflict>,
        progress: &dyn Fn(MergeProgress),
    ) -> Result<MergeReport, RealmError> {
        self.resolving(on_conflict, || self.sync(progress))
    }

    /// The report of a merge, with what both sides have named by the path that it has here, as [`Realm::diff`] names it. The
    /// server, which found the conflicts, knows it by the path that it has for others, and so does a view.
    pub fn as_named_here(&self, mut report: MergeReport) -> MergeReport {
        report.name_by_our_paths(|ino| self.server.path_of(ino));
        report
    }

    /// As [`Realm::merge`], with something else done about conflicts this time than the policy says, if that is given.
    ///
    /// # Errors
    /// As [`Realm::merge`].
    pub fn merge_with(
        &self,
        on_conflict: Option<OnConflict>,
        progress: &dyn Fn(MergeProgress),
    ) -> Result<MergeReport, RealmError> {
        self.resolving(on_conflict, || self.merge(progress))
    }

    fn resolving(
        &self,
        on_conflict: Option<OnConflict>,
        merge: impl FnOnce() -> Result<MergeReport, RealmError>,
    ) -> Result<MergeReport, RealmError> {
        let Some(on_conflict) = on_conflict else { return merge() };
        let before = *self.on_conflict.lock();
        self.resolve(on_conflict)?;
        let merged = merge();
        if !self.is_ended() {
            self.resolve(before)?;
        }
        merged
    }

    /// What is done about conflicts from now on.
    fn resolve(&self, on_conflict: OnConflict) -> Result<(), RealmError> {
        self.check_open()?;
        let _merging = self.merging.lock();
        self.calls.resolve(match on_conflict {
            OnConflict::Overwrite => merge::OnConflict::Overwrite,
            OnConflict::Abort => merge::OnConflict::Abort,
            OnConflict::KeepBoth => merge::OnConflict::KeepBoth,
            OnConflict::Merge => merge::OnConflict::Merge,
        })?;
        *self.on_conflict.lock() = on_conflict;
        Ok(())
    }

    /// Where conflicts are forbidden: what stands in the way of a merge.
    fn in_the_way(&self) -> Result<Standing, RealmError> {
        match *self.on_conflict.lock() == OnConflict::Abort && self.others_act() {
            true => self.standing(),
            false => Ok(Standing::Free),
        }
    }

    /// Looks at what both sides changed, before anything is merged. Where conflicts are forbidden: the report of a merge that
    /// does not begin, if there are any.
    fn meet_others(&self, state: &MergeState, alone: bool) -> Result<Option<MergeReport>, RealmError> {
        let on_conflict = *self.on_conflict.lock();
        let is_short = self.server.last().0 - state.merged.0 <= COMPARED_MAX;
        let looks = matches!(on_conflict, OnConflict::Abort | OnConflict::Merge) || is_short;
        if !self.others_act() || !looks {
            return Ok(None);
        }
        let Compared { mut diff, inos, gone } = self.compared(state)?;
        let mut agreed = Vec::new();
        if !diff.conflicts.is_empty() {
            agreed = self.agreed((&diff, &inos), alone && on_conflict == OnConflict::Merge)?;
            diff.leave_out(&agreed);
        }
        if on_conflict == OnConflict::Abort {
            let report = MergeReport::of_conflicts(&diff);
            if report.stopped {
                return Ok(Some(report));
            }
        }
        let gone = gone.into_iter().map(|ino| (ino, Settled::REMOVED, Settled::Same));
        self.calls.settle(gone.collect())?;
        if !agreed.is_empty() {
            self.with_sides(&|sides| sides.settle(&agreed))?;
        }
        Ok(None)
    }

    /// The outcomes for paths that both sides changed, with the inode of each conflict.
    fn agreed(&self, (diff, inos): (&Diff, &[Ino]), texts: bool) -> Result<Vec<Agreed>, RealmError> {
        self.with_sides(&|sides| sides.compare(diff, inos, texts))
    }

    fn with_sides<T>(&self, body: &dyn Fn(&Sides<'_>) -> Result<T, RealmError>) -> Result<T, RealmError> {
        let opened: Mutex<Vec<Arc<Server>>> = Mutex::new(Vec::new());
        let base = || {
            let (server, client) = self.base_as_it_was()?;
            opened.lock().push(server);
            Ok(client)
        };
        let (calls, root) = (&self.calls, self.root());
        let result = body(&Sides { calls, root, ours: &self.client, global: &self.global, base: &base });
        for server in opened.lock().drain(..) {
            // Nothing was written there.
            let _ = server.shutdown();
        }
        result
    }

    /// A client of the subtree as it was when it was taken, or merged last: what ours builds on.
    fn base_as_it_was(&self) -> Result<(Arc<Server>, Arc<Client>), RealmError> {
        let granted = &self.granted;
        let server = Server::start_realm(RealmStart {
            filesystem: granted.filesystem,
            journal: journal_identity(granted),
            shards: granted.shards,
            root: granted.root.ino,
            policy: self.policy.clone(),
            inode_count: 0,
            writer: SessionId(granted.writer),
            ranges: granted.ranges.clone(),
            borders: granted.borders.clone(),
            used: Vec::new(),
            merged: Position(0),
            base: Arc::new(ReadBase { rows: self.base.clone() }),
            place: Arc::new(MemoryPlace::new(Shape::Grows)),
            options: ServerOptions::default(),
            world: self.options.world.clone(),
        });
        let server = server.map_err(RealmError::journal)?;
        let options = ClientOptions {
            root: granted.root.ino,
            user: Some((0, 0, Vec::new())),
            ahead_after: None,
            ..self.options.clone()
        };
        let client = Client::embedded_with(server.clone(), self.global.blocks().clone(), options)
            .map_err(|e| RealmError::local(format!("a client of the subtree as it was: {e}")))?;
        Ok((server, Arc::new(client)))
    }

    /// Whether others change what is there for everybody meanwhile.
    fn others_act(&self) -> bool {
        self.branch.is_some() || self.policy.interfere == Interfere::Allow
    }

    /// Merges everything, and the decoupling ends. What is asked of its client meanwhile waits, and is refused with
    /// [`Refusal::NotConnected`] when it has ended.
    ///
    /// # Errors
    /// Why not; then it is decoupled as before, and what was merged by then is.
    pub fn merge(&self, progress: &dyn Fn(MergeProgress)) -> Result<MergeReport, RealmError> {
        self.check_open()?;
        let _turn = self.turn()?;
        // What is merged line by line replaces files of ours: nobody acts meanwhile.
        let merges_texts = *self.on_conflict.lock() == OnConflict::Merge && self.others_act();
        let early = merges_texts.then(|| self.gate.write());
        let first = self.merge_unless_in_the_way(early.is_some(), progress)?;
        if first.stopped {
            return Ok(first);
        }
        // What came since is little: others wait for it.
        let _alone = early.unwrap_or_else(|| self.gate.write());
        let mut state = self.merging.lock();
        self.check_open()?;
        self.client.sync().map_err(|refusal| {
            RealmError::refused("what was written here cannot be made durable", refusal)
        })?;
        self.server.freeze(true);
        let rest = self.merge_upto(&mut state, self.server.last(), &|_| {}).and_then(|report| {
            if !report.stopped {
                self.hold_orphans();
                self.end()?;
            }
            Ok(report)
        });
        match rest {
            Ok(report) if !report.stopped => {
                self.close_down(true)?;
                Ok(MergeReport { ended: true, ..report.after(first) })
            }
            other => {
                self.server.freeze(false);
                other.map(|report| report.after(first))
            }
        }
    }

    /// Files that were unlinked while open are merged without a name, and go with the decoupling unless somebody has them open:
    /// whoever goes on with their descriptors finds them.
    fn hold_orphans(&self) {
        let groups = no_groups();
        let opened = self.server.open_orphans().into_iter();
        let opened = opened.filter_map(|ino| self.global.open(&as_root(&groups), ino, OpenFlags::READ).ok());
        self.held.lock().extend(opened);
    }

    /// What a merge would do now.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn diff(&self) -> Result<Diff, RealmError> {
        self.check_open()?;
        let state = self.merging.lock();
        let Compared { mut diff, inos, .. } = self.compared(&state)?;
        if !diff.conflicts.is_empty() {
            let agreed = self.agreed((&diff, &inos), false)?;
            diff.leave_out(&agreed);
        }
        Ok(diff)
    }

    /// What was changed here, and what others changed too.
    fn compared(&self, state: &MergeState) -> Result<Compared, RealmError> {
        self.client.sync().map_err(|refusal| {
            RealmError::refused("what was written here cannot be made durable", refusal)
        })?;
        let cut = self.server.last();
        self.server.wait_durable(cut).map_err(RealmError::journal)?;
        let mut lives = Lives::default();
        let place = self.server.journal_place();
        self.whole_upto(&*place, state.merged, cut)?;
        read_events(&*place, state.merged, cut, &mut |event| lives.note(event))?;
        let first = state.window.map(|(upto, _)| upto);
        let sent = |visit: &mut dyn FnMut(&Event)| read_sent(&*place, state.merged, first, cut, visit);
        let events = cut.0 - state.merged.0;
        lives.diff(&self.server, &self.calls, self.root(), (events, &sent), self.others_act())
    }

    fn lost_error(&self) -> RealmError {
        RealmError::ended_elsewhere(&format!("decoupling {}", self.id()))
    }

    /// Drops a journal that was left to this client when the decoupling was taken from it.
    fn discard_lost(&self) -> Result<(), RealmError> {
        let _merging = self.merging.lock();
        if self.is_settled() {
            return Ok(());
        }
        let Some(dir) = &self.home_dir else {
            self.ended.store(true, Ordering::Release);
            return Ok(());
        };
        let home = Home::open(dir)?.ok_or_else(|| {
            let what = format!("{} is in use: somebody else has the journal", dir.display());
            RealmError::new(Refusal::Busy, what, "")
        })?;
        let calls = &self.calls.calls;
        match calls.attach(self.id(), self.options.world.random(), self.journal_at.clone()) {
            Ok(granted) => ClaimCalls { calls: calls.clone(), claim: granted.claim }.end(false)?,
            Err(error) if matches!(error.refusal(), Refusal::Stale | Refusal::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.ended.store(true, Ordering::Release);
        home.remove()
    }

    /// Drops what is not merged, and the decoupling ends.
    ///
    /// # Errors
    /// Why not; then it is as before.
    pub fn discard(&self) -> Result<(), RealmError> {
        if self.is_lost() {
            return self.discard_lost();
        }
        self.check_open()?;
        let _alone = self.gate.write();
        let _merging = self.merging.lock();
        self.check_open()?;
        self.end()?;
        self.close_down(true)
    }

    /// The server is told that it is over.
    fn end(&self) -> Result<(), RealmError> {
        self.calls.end(false)
    }

    /// This client ends, the decoupling does not: another goes on where its journal ends.
    pub(crate) fn leave(&self) -> Result<(), RealmError> {
        if self.is_lost() {
            // It has left, and the journal waits.
            return Ok(());
        }
        let _alone = self.gate.write();
        let _merging = self.merging.lock();
        self.check_open()?;
        let synced = self.client.sync();
        self.note_durable();
        self.close_down(false)?;
        synced.map_err(|refusal| RealmError::refused("what was written here cannot be made durable", refusal))
    }

    /// Ends as a crash would. For tests.
    pub fn abandon(&self) {
        self.ended.store(true, Ordering::Release);
        self.server.abandon();
        self.home.lock().take();
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

    fn merge_upto(
        &self,
        state: &mut MergeState,
        cut: Position,
        progress: &dyn Fn(MergeProgress),
    ) -> Result<MergeReport, RealmError> {
        self.server.wait_durable(cut).map_err(RealmError::journal)?;
        let place = self.server.journal_place();
        let end = self.whole_upto(&*place, state.merged, cut)?;
        let missing = self.missing.swap(0, Ordering::AcqRel) + (cut.0 - end.0.min(cut.0));
        let report = self.merge_whole(state, cut.min(end), place, progress)?;
        Ok(MergeReport { missing, ..report })
    }

    /// Where the journal ends that should reach up to `cut`.
    ///
    /// # Errors
    /// It ends before, and nobody has accepted that.
    fn whole_upto(&self, place: &dyn Place, merged: Position, cut: Position) -> Result<Position, RealmError> {
        let end = end_of(place, merged, cut).map_err(RealmError::journal)?;
        if end < cut && !self.accept_truncated.load(Ordering::Acquire) {
            return Err(RealmError::truncated(&journal_named(&self.granted, &self.journal_at), end, cut));
        }
        Ok(end)
    }

    /// Merges a part of the journal that is there.
    fn merge_whole(
        &self,
        state: &mut MergeState,
        cut: Position,
        place: Arc<dyn Place>,
        progress: &dyn Fn(MergeProgress),
    ) -> Result<MergeReport, RealmError> {
        if self.unsettled.load(Ordering::Acquire) {
            // The last merge failed in the midst: what it has heard may be lost with the server.
            let asked = self.calls.calls.service.commit(Position(0));
            asked.map_err(|refusal| RealmError::refused("what was merged is not durable", refusal))?;
            *state = self.calls.state()?;
        }
        if state.merged >= cut {
            self.unsettled.store(false, Ordering::Release);
            return Ok(MergeReport::default());
        }
        self.unsettled.store(true, Ordering::Release);
        // Whoever goes on after a crash replays only what is not merged, and must not use these numbers again.
        let used = self.server.numbers().used;
        match (&self.remote, &mut *self.home.lock()) {
            (Some(remote), _) => remote.note_used(cut, &used)?,
            (None, Some(home)) => home.note_used(&used)?,
            (None, None) => {}
        }
        let mut trim = |upto: Position| self.server.forget_merged(upto).map_err(RealmError::journal);
        let mut merger =
            Merger { calls: &self.calls, place, world: &self.options.world, progress, durable: &mut trim };
        let report = merger.run(state, cut);
        self.merged.store(state.merged.0, Ordering::Relaxed);
        if report.is_ok() {
            self.unsettled.store(false, Ordering::Release);
        }
        report
    }

    /// The engine stops. `over`: nothing stays of the decoupling.
    fn close_down(&self, over: bool) -> Result<(), RealmError> {
        self.ended.store(true, Ordering::Release);
        let stopped = self.server.shutdown();
        let home = self.home.lock().take();
        if over {
            return home.map_or(Ok(()), Home::remove);
        }
        stopped.map_err(RealmError::journal)
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        for handle in self.held.get_mut().drain(..) {
            // If the server is gone, so is what was held.
            let _ = self.global.release(handle);
        }
    }
}

/// Whether a journal that does not fit what others did may be merged before its client goes on: the policy merges by
/// itself, and lets others act.
fn may_merge_first(policy: &Policy) -> bool {
    policy.merges_by_itself() && policy.interfere == Interfere::Allow
}

/// Where a journal ends.
fn last_of(place: &dyn Place, after: Position) -> Result<Position, RealmError> {
    let mut pass = |_: &Frame<'_>| Ok::<(), std::convert::Infallible>(());
    match replay(place, after, &mut pass, &mut |_| {}) {
        Ok(replayed) => Ok(replayed.last),
        Err(error) => Err(RealmError::journal(error)),
    }
}

fn user_of(global: &Client) -> (u32, u32, Vec<u32>) {
    let caller = global.caller();
    let groups = caller.full_cred().groups.map(|groups| groups.to_vec()).unwrap_or_default();
    (caller.uid, caller.gid, groups)
}

/// A decoupling's journal for people.
fn journal_named(granted: &Granted, journal_at: &str) -> String {
    format!("decoupling {} ({journal_at})", granted.claim.realm)
}

/// Which journal it is: of this decoupling of this file system.
fn journal_identity(granted: &Granted) -> u64 {
    granted.filesystem ^ (u64::from(granted.claim.realm.0) << 32)
}
