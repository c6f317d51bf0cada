//! What `plan` reads for an operation over plates: own rows, and the rows of other plates that are guarded for it.

use chiton_model::Event;
use chiton_namespace::{ContentIn, Fault, InodeFacts, Namespace, PlanState, Xattrs};
use chiton_types::{Ino, Name};
use chiton_wire::GuardedRow;

/// See the module.
pub(super) struct OverPlates<'a> {
    pub(super) ns: &'a Namespace,
    pub(super) rows: Vec<(Ino, &'a GuardedRow)>,
}

impl OverPlates<'_> {
    fn guarded(&self, ino: Ino) -> Option<&GuardedRow> {
        self.rows.iter().find(|(row, _)| *row == ino).map(|(_, row)| *row)
    }
}

impl PlanState for OverPlates<'_> {
    fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault> {
        match self.guarded(ino) {
            Some(row) => Ok(InodeFacts::new(&row.attr, ContentIn::Nothing)),
            None => PlanState::inode(self.ns, ino),
        }
    }

    fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault> {
        PlanState::entry(self.ns, dir, name)
    }

    fn is_empty(&self, dir: &InodeFacts) -> Result<bool, Fault> {
        match self.guarded(dir.ino) {
            Some(row) => Ok(row.is_empty),
            None => PlanState::is_empty(self.ns, dir),
        }
    }

    fn xattrs(&self, inode: &InodeFacts) -> Result<Option<&Xattrs>, Fault> {
        PlanState::xattrs(self.ns, inode)
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
