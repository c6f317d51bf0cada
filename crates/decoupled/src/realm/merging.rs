//! Comparing a realm with the changes of others, and merging it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_journal::{MemoryPlace, Place, Shape};
use chiton_model::merge;
use chiton_policy::{Interfere, OnConflict};
use chiton_runtime::sync::Mutex;
use chiton_server::{DecoupledSubtree, Role, Server, ServerOptions};
use chiton_types::{Position, SessionId};
use chiton_wire::MergeState;

use crate::base::ReadBase;
use crate::calls::{no_groups, root as as_root};
use crate::diff::Compared;
use crate::durable_mark::end_of;
use crate::error::RealmError;
use crate::merge::Merger;
use crate::merge_lock::MergeLock;
use crate::realm::{Realm, journal_identity, journal_named};
use crate::report::{MergeProgress, MergeReport};
use crate::resolve::ConflictState;
use crate::text_merge::{Agreed, Sides};

/// A journal of at most this many events is compared with the changes of others before each merge, so that equal
/// changes are left out. A longer one is compared only if the policy asks for it.
const COMPARED_MAX: u64 = 65_536;

impl Realm {
    /// Merges the changes so far. Clients may work in the subtree meanwhile.
    ///
    /// # Errors
    /// Why the merge ended early. Changes that were merged by then stay merged.
    pub fn sync(&self, progress: &dyn Fn(MergeProgress)) -> Result<MergeReport, RealmError> {
        self.check_open()?;
        let _merge_lock = self.lock_merges()?;
        self.merge_unless_in_the_way(false, progress)
    }

    fn merge_unless_in_the_way(
        &self,
        alone: bool,
        progress: &dyn Fn(MergeProgress),
    ) -> Result<MergeReport, RealmError> {
        match self.in_the_way()? {
            ConflictState::Free => self.merge_so_far(alone, progress),
            // The conflicts were resolved to ours.
            ConflictState::Resolved => {
                self.resolving(Some(OnConflict::Overwrite), || self.merge_so_far(alone, progress))
            }
            ConflictState::Open(conflicts) => Ok(MergeReport::of_conflicts(&conflicts)),
        }
    }

    /// Waits until no other client merges in the directory, and keeps them from it.
    fn lock_merges(&self) -> Result<MergeLock<'_>, RealmError> {
        MergeLock::wait(&self.calls, self.root(), &self.options.world)
    }

    /// As [`Realm::sync`]. `alone`: no operation runs in the realm, so texts that both sides changed can be merged.
    fn merge_so_far(&self, alone: bool, progress: &dyn Fn(MergeProgress)) -> Result<MergeReport, RealmError> {
        self.check_open()?;
        let mut state = self.merging.lock();
        if let Some(report) = self.meet_others(&state, alone)? {
            return Ok(report);
        }
        self.client.sync().map_err(|refusal| {
            RealmError::refused("writes in the subtree cannot be made durable", refusal)
        })?;
        self.merge_upto(&mut state, self.server.last(), progress)
    }

    /// As [`Realm::sync`], with another treatment of conflicts for this merge, if one is given.
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

    /// Replaces the paths in a merge report by the paths in our subtree, as [`Realm::diff`] has them. The server
    /// and views report the paths of the global namespace.
    pub fn as_named_here(&self, mut report: MergeReport) -> MergeReport {
        report.name_by_our_paths(|ino| self.server.path_of(ino));
        report
    }

    /// As [`Realm::merge`], with another treatment of conflicts for this merge, if one is given.
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

    /// Sets how conflicts are treated from now on.
    fn resolve(&self, on_conflict: OnConflict) -> Result<(), RealmError> {
        self.check_open()?;
        let _merging = self.merging.lock();
        self.calls.resolve(of_merges(on_conflict))?;
        *self.on_conflict.lock() = on_conflict;
        Ok(())
    }

    /// Where conflicts are forbidden: whether any of them prevent a merge.
    fn in_the_way(&self) -> Result<ConflictState, RealmError> {
        match *self.on_conflict.lock() == OnConflict::Abort && self.others_act() {
            true => self.conflict_state(),
            false => Ok(ConflictState::Free),
        }
    }

    /// Compares the changes of both sides before anything is merged. Where conflicts are forbidden: the report of a merge that
    /// does not begin, if there are any.
    fn meet_others(&self, state: &MergeState, alone: bool) -> Result<Option<MergeReport>, RealmError> {
        let on_conflict = *self.on_conflict.lock();
        if !self.others_act() || !self.compares(state, on_conflict) {
            return Ok(None);
        }
        let mut compared = self.compared(state)?;
        let agreed = self.agreed(&mut compared, alone && on_conflict == OnConflict::Merge)?;
        if on_conflict == OnConflict::Abort {
            let report = MergeReport::of_conflicts(&self.by_path(&compared)?);
            if report.stopped {
                return Ok(Some(report));
            }
        }
        self.calls.settle(compared.gone_alike().collect())?;
        if !agreed.is_empty() {
            self.with_sides(|sides| sides.settle(&agreed))?;
        }
        Ok(None)
    }

    /// Whether a merge compares both sides before it begins.
    pub(super) fn compares(&self, state: &MergeState, on_conflict: OnConflict) -> bool {
        let is_short = self.server.last().0 - state.merged.0 <= COMPARED_MAX;
        matches!(on_conflict, OnConflict::Abort | OnConflict::Merge) || is_short
    }

    /// The outcomes for paths that both sides changed. Conflicts about equal changes are left out.
    pub(super) fn agreed(&self, compared: &mut Compared, texts: bool) -> Result<Vec<Agreed>, RealmError> {
        match compared.conflicts.is_empty() {
            true => Ok(Vec::new()),
            false => self.with_sides(|sides| sides.compare(compared, texts)),
        }
    }

    fn with_sides<T>(&self, body: impl FnOnce(&Sides<'_>) -> Result<T, RealmError>) -> Result<T, RealmError> {
        let opened: Mutex<Vec<Arc<Server>>> = Mutex::new(Vec::new());
        let base = || {
            let (server, client) = self.base_as_it_was()?;
            opened.lock().push(server);
            Ok(client)
        };
        let (calls, root) = (&self.calls, self.root());
        let path_of = |ino| self.server.path_of(ino);
        let (ours, global) = (&*self.client, &*self.global);
        let result = body(&Sides { calls, root, ours, global, path_of: &path_of, base: &base });
        for server in opened.lock().drain(..) {
            // Nothing was written there.
            let _ = server.shutdown();
        }
        result
    }

    /// A client of the subtree as it was when it was taken, or merged last: the base of ours.
    fn base_as_it_was(&self) -> Result<(Arc<Server>, Arc<Client>), RealmError> {
        let granted = &self.granted;
        let subtree = DecoupledSubtree {
            filesystem: granted.filesystem,
            journal: journal_identity(granted),
            shards: granted.shards,
            own_shards: granted.first_shard..granted.end_shard,
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
        };
        let server =
            Server::start_as(Role::Decoupled(subtree), ServerOptions::default(), self.options.world.clone());
        let server = server.map_err(RealmError::journal)?;
        let options = ClientOptions {
            root: granted.root.ino,
            user: Some((0, 0, Vec::new())),
            write_behind_after: None,
            ..self.options.clone()
        };
        let client = chiton_embedded::client_with_blocks(&server, self.global.blocks().clone(), options)
            .map_err(|e| RealmError::local(format!("the subtree cannot be opened at its base: {e}")))?;
        Ok((server, Arc::new(client)))
    }

    /// Whether other clients may change the directory meanwhile.
    pub(super) fn others_act(&self) -> bool {
        self.branch.is_some() || self.policy.interfere == Interfere::Allow
    }

    /// Merges everything, and the decoupling ends. Operations of its client wait meanwhile, and are then refused with
    /// [`chiton_types::Refusal::NotConnected`] when it has ended.
    ///
    /// # Errors
    /// Why the merge ended early. Then it is decoupled as before, and changes that were merged by then stay merged.
    pub fn merge(&self, progress: &dyn Fn(MergeProgress)) -> Result<MergeReport, RealmError> {
        self.check_open()?;
        let _merge_lock = self.lock_merges()?;
        // A merge of texts replaces files of ours, so no operation may run meanwhile.
        let merges_texts = *self.on_conflict.lock() == OnConflict::Merge && self.others_act();
        let early = merges_texts.then(|| self.gate.write());
        let first = self.merge_unless_in_the_way(early.is_some(), progress)?;
        if first.stopped {
            return Ok(first);
        }
        // The rest since then is small: other operations wait for it.
        let _alone = early.unwrap_or_else(|| self.gate.write());
        let mut state = self.merging.lock();
        self.check_open()?;
        self.client.sync().map_err(|refusal| {
            RealmError::refused("writes in the subtree cannot be made durable", refusal)
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

    /// Keeps orphans open. They are merged without a name, and the server would free them at the end of the
    /// decoupling; a client that continues with their descriptors still finds them.
    fn hold_orphans(&self) {
        let groups = no_groups();
        let opened = self.server.open_orphans().into_iter();
        let opened = opened.filter_map(|ino| self.global.open(&as_root(&groups), ino, OpenFlags::READ).ok());
        self.held.lock().extend(opened);
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
    /// The journal ends earlier, and the user has not accepted that.
    pub(super) fn whole_upto(
        &self,
        place: &dyn Place,
        merged: Position,
        cut: Position,
    ) -> Result<Position, RealmError> {
        let end = end_of(place, merged, cut).map_err(RealmError::journal)?;
        if end < cut && !self.accept_truncated.load(Ordering::Acquire) {
            return Err(RealmError::truncated(&journal_named(&self.granted, &self.journal_at), end, cut));
        }
        Ok(end)
    }

    /// Merges a part of the journal that exists.
    fn merge_whole(
        &self,
        state: &mut MergeState,
        cut: Position,
        place: Arc<dyn Place>,
        progress: &dyn Fn(MergeProgress),
    ) -> Result<MergeReport, RealmError> {
        if self.unsettled.load(Ordering::Acquire) {
            // The last merge failed midway, and a crash of the server may undo its changes.
            let asked = self.calls.calls.service.commit(Position(0));
            asked.map_err(|refusal| RealmError::refused("the merged changes are not durable", refusal))?;
            *state = self.calls.state()?;
        }
        if state.merged >= cut {
            self.unsettled.store(false, Ordering::Release);
            return Ok(MergeReport::default());
        }
        self.unsettled.store(true, Ordering::Release);
        // A client that resumes after a crash replays only unmerged events, and must not use these numbers again.
        let used = self.server.numbers().used;
        match (&self.remote, &mut *self.state_dir.lock()) {
            (Some(remote), _) => remote.note_used(cut, &used)?,
            (None, Some(state_dir)) => state_dir.note_used(&used)?,
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
}

/// As the server has it.
pub(super) fn of_merges(on_conflict: OnConflict) -> merge::OnConflict {
    match on_conflict {
        OnConflict::Overwrite => merge::OnConflict::Overwrite,
        OnConflict::Abort => merge::OnConflict::Abort,
        OnConflict::KeepBoth => merge::OnConflict::KeepBoth,
        OnConflict::Merge => merge::OnConflict::Merge,
    }
}
