//! Which plate decides the operations of a client where the server splits directories meanwhile.
//!
//! ```text
//!   Invoked(create f4) ─ Decided(plate 1, f4) ─ Returned      f4 is in the part on plate 1: an entry of plate 1
//!   Invoked(create f5) ─ Decided(plate 0, f5) ─ Returned      the directory has been folded: an entry of plate 0
//! ```
//!
//! Invariants:
//! - The plate that answers an operation on names has decided it. Its answer comes before the call's.
//! - What a client acknowledges by write-behind is decided at the directory's own plate: nobody has a lease on names in parts, and the
//!   server splits a directory only when all leases are given back.

use chiton_types::{Kind, Name, PlateId};

use super::{Life, violation};
use crate::checkers::crash::Entry;
use crate::history::{Action, Answer, Violation};
use crate::tree::Tree;

impl Life {
    /// A plate has decided an operation of the client on these names.
    pub(super) fn decided_by(&mut self, plate: PlateId, names: &[Name]) {
        if self.under_way.is_some() {
            self.decider = Some((plate, names.to_vec()));
        }
    }

    /// The plate that has decided a change of a name, if it is known from an answer.
    fn decider_of(&self, at: usize) -> Option<usize> {
        let Entry::Act(change, _) = &self.entries.entries()[at] else { return None };
        let (_, name) = change.name()?;
        let (plate, names) = self.decider.as_ref()?;
        names.contains(name).then_some(usize::from(plate.0))
    }

    /// The last entry is of the call under way.
    pub(super) fn note_decider(&mut self) {
        let at = self.entries.len() - 1;
        if let Some(plate) = self.decider_of(at) {
            self.entries.decided(at, plate);
        }
    }

    /// Of the entries from `from` on, which are of a call without an answer, that on a name may be any plate's.
    pub(super) fn note_undecided(&mut self, from: usize) {
        let is_of_name = |entry: &Entry| matches!(entry, Entry::Act(change, _) if change.name().is_some());
        let at = self.entries.entries()[from..].iter().position(is_of_name).map(|at| from + at);
        self.undecided = at.filter(|at| self.splits && self.decider_of(*at).is_none());
    }

    /// A file's number is of the plate that has decided its making, which has its name.
    pub(super) fn check_birthplace(&self, action: &Action, answer: &Answer) -> Result<(), Violation> {
        let path = match action {
            Action::Create { path, .. } | Action::Symlink { path, .. } => path,
            _ => return Ok(()),
        };
        let (Some((plate, names)), Answer::Attr(seen)) = (&self.decider, answer) else { return Ok(()) };
        let is_its =
            path.rsplit('/').next().is_some_and(|last| names.iter().any(|name| name.to_string() == last));
        let born = self.entries.plate(seen.ino);
        if !is_its || seen.kind == Kind::Dir || born == usize::from(plate.0) {
            return Ok(());
        }
        Err(violation(format!("{path}: plate {plate} has made inode {}, which is of plate {born}", seen.ino)))
    }

    /// Judges the tree by the crash oracle.
    pub(super) fn judge_prefixes(&self, own: &Tree) -> Result<(), Violation> {
        let judged = self.entries.judge(self.entries.len(), own);
        let (Err(found), Some(at)) = (&judged, self.undecided) else { return judged.map(drop) };
        let fits = |plate: &PlateId| {
            let mut entries = self.entries.clone();
            entries.decided(at, usize::from(plate.0));
            entries.judge(entries.len(), own).is_ok()
        };
        match self.entries.plates().all().any(|plate| fits(&plate)) {
            true => Ok(()),
            false => Err(found.clone()),
        }
    }
}
