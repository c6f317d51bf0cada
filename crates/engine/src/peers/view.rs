//! The rows that `plan` reads for an operation over plates: own rows, the rows of other plates that are guarded for it, and for a move the
//! directories above its target.

use chiton_model::Event;
use chiton_namespace::{ContentIn, Fault, InodeFacts, Namespace, PlanState, Xattrs};
use chiton_types::{Ino, Name, Refusal};
use chiton_wire::GuardedRow;

use super::crossing::{Crossing, OtherRow};

pub(super) struct OverPlates<'a> {
    pub(super) ns: &'a Namespace,
    pub(super) crossing: &'a Crossing,
}

impl OverPlates<'_> {
    fn guarded(&self, ino: Ino) -> Option<&OtherRow> {
        self.crossing.other_row(ino)?
    }
}

impl PlanState for OverPlates<'_> {
    fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault> {
        if self.ns.owns(ino) {
            return PlanState::inode(self.ns, ino);
        }
        match (self.crossing.other_row(ino), self.crossing.place(ino)) {
            (Some(Some(OtherRow { row: GuardedRow { kept: Some(refusal), .. }, .. })), _) => {
                Err((*refusal).into())
            }
            (Some(Some(other)), _) => Ok(InodeFacts::new(&other.row.attr, ContentIn::Nothing)),
            (None, Some(Some(attr))) => Ok(InodeFacts::new(attr, ContentIn::Nothing)),
            // Its name is here and the inode is gone: both ends of a decision cannot disagree, but damage can.
            (Some(None), _) | (None, Some(None)) => Err(Refusal::Stale.into()),
            (None, None) => Err(Fault::Elsewhere(ino)),
        }
    }

    fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault> {
        match self.guarded(dir.ino) {
            Some(other) => Ok(other.row.named.map(|(ino, _)| ino)),
            None => PlanState::entry(self.ns, dir, name),
        }
    }

    fn is_empty(&self, dir: &InodeFacts) -> Result<bool, Fault> {
        match self.guarded(dir.ino) {
            Some(other) => Ok(other.row.is_empty),
            None => PlanState::is_empty(self.ns, dir),
        }
    }

    fn parts(&self, dir: &InodeFacts) -> Result<Vec<Ino>, Fault> {
        match self.guarded(dir.ino) {
            Some(other) => Ok(other.row.parts.clone()),
            None => PlanState::parts(self.ns, dir),
        }
    }

    fn xattrs(&self, inode: &InodeFacts) -> Result<Option<&Xattrs>, Fault> {
        match self.guarded(inode.ino) {
            Some(other) => Ok(Some(&other.access)),
            None => PlanState::xattrs(self.ns, inode),
        }
    }

    fn inline_content(&self, inode: &InodeFacts) -> Result<&[u8], Fault> {
        PlanState::inline_content(self.ns, inode)
    }

    fn same_realm(&self, a: Ino, b: Ino) -> Result<(), Fault> {
        PlanState::same_realm(self.ns, a, b)
    }

    fn has_maps_for(&self, event: &Event) -> Result<(), Fault> {
        PlanState::has_maps_for(self.ns, event)
    }

    fn reclaim_from(&self, inode: &InodeFacts) -> Result<u32, Fault> {
        PlanState::reclaim_from(self.ns, inode)
    }
}
