//! Rehearsals of merges, for `chiton diff`, dry runs and lists of conflicts.

use chiton_model::Event;
use chiton_policy::OnConflict;
use chiton_types::Position;
use chiton_wire::MergeState;

use super::merging::of_merges;
use crate::batches::{read_events, read_sent};
use crate::diff::{Changes, Compared};
use crate::error::RealmError;
use crate::realm::Realm;
use crate::rehearsal::Rehearsal;
use crate::report::{Change, Diff, MergeReport, SideVersion};
use crate::resolve::path_of;
use crate::text_merge::Agreed;

impl Realm {
    /// The effects that a merge would have now.
    ///
    /// # Errors
    /// The comparison failed.
    pub fn diff(&self) -> Result<Diff, RealmError> {
        self.diff_with(None)
    }

    /// As [`Realm::diff`], with another treatment of conflicts than the policy's, if one is given.
    ///
    /// # Errors
    /// As [`Realm::diff`].
    pub fn diff_with(&self, on_conflict: Option<OnConflict>) -> Result<Diff, RealmError> {
        self.check_open()?;
        let on_conflict = on_conflict.unwrap_or(*self.on_conflict.lock());
        let state = self.merging.lock();
        let compared = self.compared(&state)?;
        let (events, changes) = (compared.events, compared.changes_by_path());
        let report = self.as_named_here(self.rehearsed(&state, on_conflict, compared)?);
        let MergeReport { conflict_count, conflicts, lost_count, lost, stopped, .. } = report;
        Ok(Diff { events, changes, conflict_count, conflicts, lost_count, lost, stopped })
    }

    /// The report of a merge, without the merge.
    fn rehearsed(
        &self,
        state: &MergeState,
        on_conflict: OnConflict,
        mut compared: Compared,
    ) -> Result<MergeReport, RealmError> {
        if !self.others_act() {
            return Ok(MergeReport::default());
        }
        let mut agreed = Vec::new();
        let mut how = on_conflict;
        if self.compares(state, on_conflict) {
            agreed = self.agreed(&mut compared, on_conflict == OnConflict::Merge)?;
        }
        if on_conflict == OnConflict::Abort {
            self.add_missed(state, &mut compared, &agreed)?;
            let conflicts = self.by_path(&compared)?;
            let open = self.open_of(conflicts.clone())?;
            if !open.is_empty() {
                return Ok(MergeReport::of_conflicts(&open));
            }
            if !conflicts.is_empty() {
                // All are resolved to ours.
                how = OnConflict::Overwrite;
            }
        }
        self.rehearse(state, how, &compared, self.compares(state, how).then_some(&agreed[..]))
    }

    fn rehearse(
        &self,
        state: &MergeState,
        on_conflict: OnConflict,
        compared: &Compared,
        agreed: Option<&[Agreed]>,
    ) -> Result<MergeReport, RealmError> {
        let shards = self.granted.first_shard..self.granted.end_shard;
        let mut rehearsal = Rehearsal::begin(&self.calls, shards, of_merges(on_conflict))?;
        if let Some(agreed) = agreed {
            rehearsal.settle(compared.gone_alike());
            rehearsal.settle(agreed.iter().map(Agreed::settled));
        }
        // As far as the comparison went.
        let cut = Position(state.merged.0 + compared.events);
        rehearsal.run(&*self.server.journal_place(), state, cut)
    }

    /// Where the comparison of both outcomes finds no conflict, a merge may still meet one on its way there, because it takes step after step: as
    /// where others moved a directory at once and ours by two moves. A merge that must not conflict has to know of it before it begins.
    fn add_missed(
        &self,
        state: &MergeState,
        compared: &mut Compared,
        agreed: &[Agreed],
    ) -> Result<(), RealmError> {
        if !self.others_act() || !compared.conflicts.is_empty() {
            return Ok(());
        }
        let report = self.rehearse(state, OnConflict::Overwrite, compared, Some(agreed))?;
        for line in self.as_named_here(report).conflicts {
            compared.inos.push(line.ino);
            compared.conflicts.push(line.as_change());
        }
        Ok(())
    }

    /// Conflicts that no resolution settles.
    pub(crate) fn open_of(
        &self,
        conflicts: Vec<(Change, SideVersion)>,
    ) -> Result<Vec<(Change, SideVersion)>, RealmError> {
        let mut open = Vec::new();
        for (change, theirs) in conflicts {
            if !self.is_resolved(&path_of(&change))? {
                open.push((change, theirs));
            }
        }
        Ok(open)
    }

    /// The conflicts of a comparison, one for each path.
    pub(crate) fn by_path(&self, compared: &Compared) -> Result<Vec<(Change, SideVersion)>, RealmError> {
        compared.conflicts_by_path(|path| Ok(self.calls.file(self.root(), path)?.is_some()))
    }

    /// Our changes and those of others, without those in which both agree.
    pub(crate) fn comparison(&self) -> Result<Compared, RealmError> {
        self.check_open()?;
        let state = self.merging.lock();
        let mut compared = self.compared(&state)?;
        let agreed = self.agreed(&mut compared, false)?;
        self.add_missed(&state, &mut compared, &agreed)?;
        Ok(compared)
    }

    /// Compares our changes with those of other clients.
    pub(super) fn compared(&self, state: &MergeState) -> Result<Compared, RealmError> {
        self.client.sync().map_err(|refusal| {
            RealmError::refused("writes in the subtree cannot be made durable", refusal)
        })?;
        let cut = self.server.last();
        self.server.wait_durable(cut).map_err(RealmError::journal)?;
        let mut changes = Changes::default();
        let place = self.server.journal_place();
        self.whole_upto(&*place, state.merged, cut)?;
        read_events(&*place, state.merged, cut, &mut |event| changes.note(event))?;
        let first = state.batch.map(|(upto, _)| upto);
        let sent = |visit: &mut dyn FnMut(&Event)| read_sent(&*place, state.merged, first, cut, visit);
        let events = cut.0 - state.merged.0;
        changes.diff(&self.server, &self.calls, self.root(), (events, &sent), self.others_act())
    }
}
