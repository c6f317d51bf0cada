//! Opening a realm: its journal is replayed, or merged first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use chiton_client::{Client, ClientOptions};
use chiton_journal::{Frame, MemoryPlace, Place, Shape, replay};
use chiton_model::Event;
use chiton_policy::{Durability, Interfere, Policy};
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::{Mutex, RwLock};
use chiton_server::{DecoupledSubtree, Role, Server, ServerOptions, StartError};
use chiton_types::{Ino, Name, Position, Refusal, SessionId};
use chiton_wire::{Granted, MergeState};

use crate::base::ServerBase;
use crate::batches::read_events;
use crate::calls::{Calls, ClaimCalls};
use crate::durable_mark::{DurableMark, end_of};
use crate::error::RealmError;
use crate::merge::Merger;
use crate::merge_lock::MergeLock;
use crate::options::{BRANCH_ROWS_BYTES, Journals};
use crate::realm::{Realm, journal_identity, journal_named, policy_of};
use crate::remote::Remote;
use crate::report::MergeReport;
use crate::resolve::Resolved;
use crate::stages::Stages;
use crate::state_dir::StateDir;

/// Block numbers of one generation of a decoupling's clients: 2^40.
const GENERATION_SHIFT: u32 = 40;

/// The parts from which a realm is opened.
pub(crate) struct Opening {
    pub(crate) global: Arc<Client>,
    pub(crate) options: ClientOptions,
    pub(crate) granted: Granted,
    pub(crate) branch: Option<Name>,
    pub(crate) state_dir: Option<StateDir>,
    pub(crate) journals: Option<Journals>,
    pub(crate) journal_at: String,
    pub(crate) stages: Stages,
    pub(crate) accept_truncated: bool,
}

impl Realm {
    /// Starts the engine and replays the journal, if there is one.
    pub(crate) fn open(opening: Opening) -> Result<Realm, RealmError> {
        let Opening {
            global,
            options,
            granted,
            branch,
            mut state_dir,
            journals,
            journal_at,
            mut stages,
            accept_truncated,
        } = opening;
        let policy = policy_of(&granted.policy)?;
        let calls = ClaimCalls { calls: Calls { service: global.service().clone() }, claim: granted.claim };
        let remote = (policy.durability() == Durability::Global).then(|| Remote { calls: calls.clone() });
        let place: Arc<dyn Place> = match (policy.durability(), &state_dir, &remote) {
            (Durability::None, ..) => Arc::new(MemoryPlace::new(Shape::Grows)),
            (Durability::Local, Some(state_dir), _) => state_dir.place(journals.as_ref())?,
            (Durability::Global, _, Some(remote)) => Arc::new(remote.clone()),
            (level, ..) => {
                let what =
                    format!("a client's journal at durability {} is not carried out yet", level.name());
                let next = "use durability: none, local or global";
                return Err(RealmError::new(Refusal::Unsupported, what, next));
            }
        };
        // For a journal of files, the folder shows whether it exists.
        let in_files = policy.durability() == Durability::Local && journals.is_none();
        if let Some(state_dir) = state_dir.as_ref().filter(|_| in_files) {
            state_dir.check_begun(&*place)?;
        }
        // Before a merge or a new journal: both make everything behind the journal's end void.
        let mark_dir = state_dir.as_ref().filter(|_| in_files).map(|state_dir| state_dir.dir().to_owned());
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
        // An interrupted merge of a batch: its rows must end where an operation ends.
        if let Some((upto, _)) = state.batch {
            merge_before_opening((&calls, granted.root.ino, &world), &place, &mut state, upto)?;
        }
        let blocks = global.blocks().clone();
        let durable = policy.durability() != Durability::None;
        let journal = chiton_journal::Options {
            flush_interval: policy.flush_interval.duration(),
            ..chiton_journal::Options::default()
        };
        let inode_count = global.statfs().map_or(0, |totals| totals.inodes_used);
        let mut used = match (&remote, &state_dir) {
            (Some(remote), _) => remote.used()?,
            (None, Some(state_dir)) => state_dir.record().used.iter().map(|n| Ino(*n)).collect(),
            (None, None) => Vec::new(),
        };
        if granted.claim.generation > 1 {
            // Numbers that an earlier client used in lost events must not be used again.
            used.extend(
                granted.ranges.iter().filter(|(first, end)| first < end).map(|(_, end)| Ino(end.0 - 1)),
            );
        }
        let base = Arc::new(ServerBase::new(calls.clone(), blocks.clone(), durable, &granted.ranges));
        let cache_bytes = if branch.is_some() { BRANCH_ROWS_BYTES } else { usize::MAX };
        let start = |merged: Position, used: &[Ino]| {
            let subtree = DecoupledSubtree {
                filesystem: granted.filesystem,
                journal: journal_identity(&granted),
                shards: granted.shards,
                own_shards: granted.first_shard..granted.end_shard,
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
            };
            Server::start_as(
                Role::Decoupled(subtree),
                ServerOptions { journal, cache_bytes, ..ServerOptions::default() },
                world.clone(),
            )
        };
        let mut trouble = None;
        let server = match start(state.merged, &used) {
            // Changes of others conflict with the journal. A merge resolves that, so it goes first.
            Err(StartError::Corrupt(why)) if may_merge_first(&policy) => {
                let last = last_of(&*place, state.merged)?;
                read_events(&*place, state.merged, last, &mut |event| {
                    if let Event::Make { ino, .. } = event {
                        used.push(*ino);
                    }
                })?;
                let report =
                    merge_before_opening((&calls, granted.root.ino, &world), &place, &mut state, last)?;
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
            // If the disk is full, the next commit reports it.
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
        if let Some(state_dir) = state_dir.as_mut().filter(|_| in_files) {
            state_dir.note_begun()?;
        }
        let mut client_options = ClientOptions {
            root: granted.root.ino,
            user: options.user.clone().or_else(|| Some(user_of(&global))),
            ..options.clone()
        };
        client_options.files.first_block = (u64::from(granted.claim.generation) << GENERATION_SHIFT) + 1;
        let client = chiton_embedded::client_with_blocks(&server, blocks, client_options).map_err(|e| {
            RealmError::local(format!("cannot start the engine of the decoupled subtree: {e}"))
        })?;
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
                state_dir
                    .as_ref()
                    .map_or_else(Resolved::default, |state_dir| Resolved::read(state_dir.dir())),
            ),
            options,
            journal_at,
            state_dir_path: state_dir.as_ref().map(|state_dir| state_dir.dir().to_owned()),
            state_dir: Mutex::new(state_dir),
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
}

/// Takes the merge lock and merges a journal up to a position, before an engine runs over it.
fn merge_before_opening(
    (calls, root, world): (&ClaimCalls, Ino, &SharedWorld),
    place: &Arc<dyn Place>,
    state: &mut MergeState,
    upto: Position,
) -> Result<MergeReport, RealmError> {
    let _merge_lock = MergeLock::wait(calls, root, world)?;
    let (place, progress, durable) = (place.clone(), &|_| {}, &mut |_| Ok(()));
    Merger { calls, place, world, progress, durable }.run(state, upto)
}

/// Whether a journal that conflicts with changes of others may be merged before its client resumes: the policy
/// merges automatically, and lets others act.
fn may_merge_first(policy: &Policy) -> bool {
    policy.merges_by_itself() && policy.interfere == Interfere::Allow
}

/// The last position of a journal.
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
