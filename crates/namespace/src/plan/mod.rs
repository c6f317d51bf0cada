//! Operations become events, or are refused. One file a family of operations; this one holds the driver.
//!
//! Which refusal is given when several apply follows Linux's order of checks: existence and search permission first,
//! then what the names are, then permission to change the directory, then limits.
//!
//! Invariants:
//! - Nothing is changed. Events are appended only if all is decided.
//! - After a successful plan, everything that the events touch is in memory (`apply` relies on it).

mod attrs;
mod content;
mod make;
mod names;
mod rename;
mod unnamed;
mod xattr;

use chiton_model::Event;
use chiton_model::Op;
use chiton_types::{Cred, Ino};

use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Context, Namespace, Planned};
use crate::permission;

/// Operations that [`Namespace::warm`] is best called with: so many reads does a processor have under way.
pub const WARM_OPS: usize = 16;

impl Namespace {
    /// The events that carry out `op`, appended to `out` (nothing is appended on a fault).
    ///
    /// # Errors
    /// [`Fault::Refused`] by the state or permissions, [`Fault::Missing`] rows, [`Fault::NeedGroups`].
    pub fn plan(&self, op: &Op, ctx: &Context<'_>, out: &mut Vec<Event>) -> Result<Planned, Fault> {
        match op {
            Op::Make { parent, name, make, mode } => self.plan_make(*parent, name, make, *mode, ctx, out),
            Op::MakeUnnamed { parent, mode } => self.plan_make_unnamed(*parent, *mode, ctx, out),
            Op::LinkUnnamed { ino, parent, name } => self.plan_link_unnamed(*ino, *parent, name, ctx, out),
            Op::Link { ino, parent, name } => self.plan_link(*ino, *parent, name, ctx, out),
            Op::Unlink { parent, name } => self.plan_unlink(*parent, name, ctx, out),
            Op::Rmdir { parent, name } => self.plan_rmdir(*parent, name, ctx, out),
            Op::Rename { from, from_name, to, to_name, how } => {
                self.plan_rename((*from, from_name), (*to, to_name), *how, ctx, out)
            }
            Op::SetAttr { ino, change } => self.plan_setattr(*ino, change, ctx, out),
            Op::Write { ino, body, size, mtime, kill_setid, hold } => {
                self.plan_write(*ino, (body, *size, *hold), *mtime, *kill_setid, out)
            }
            Op::Clone { from, from_offset, to, to_offset, len } => {
                self.plan_clone((*from, *from_offset), (*to, *to_offset), *len, ctx, out)
            }
            Op::Remap { ino, expected, extents } => self.plan_remap(*ino, *expected, extents, out),
            Op::SetXattr { ino, name, value, how } => self.plan_set_xattr(*ino, name, value, *how, ctx, out),
            Op::RemoveXattr { ino, name } => self.plan_remove_xattr(*ino, name, ctx, out),
            Op::Reclaim { ino } => self.plan_reclaim(*ino, out),
        }
    }

    /// Brings what operations on names will look at into the processor's caches, all of it side by side. To be called
    /// with the next [`WARM_OPS`] or fewer. Changes nothing but time.
    pub fn warm(&self, ops: &[Op]) {
        let Some(dir) = ops.first().and_then(parent_of) else { return };
        let Some(held) = self.dirs.get(&dir) else { return };
        let (mut hashes, mut count) = ([0; WARM_OPS], 0);
        for op in &ops[..ops.len().min(WARM_OPS)] {
            if let Op::Make { parent, name, .. } | Op::Unlink { parent, name } = op
                && *parent == dir
            {
                hashes[count] = name.hash64();
                count += 1;
            }
        }
        held.warm(&hashes[..count]);
    }

    /// Inodes whose attributes, names or content the events change: leases of other clients on them are in the way.
    pub fn touched(events: &[Event], out: &mut Vec<Ino>) {
        for event in events {
            match event {
                Event::Make { parent, .. } => out.push(*parent),
                Event::Link { parent, ino, .. }
                | Event::Unlink { parent, ino, .. }
                | Event::Restore { parent, ino, .. } => out.extend([*parent, *ino]),
                Event::Rename { from, to, ino, over, .. } => {
                    out.extend([*from, *to, *ino]);
                    out.extend(over.ino());
                }
                Event::SetAttr { ino, .. }
                | Event::Write { ino, .. }
                | Event::Revert { ino, .. }
                | Event::Xattr { ino, .. }
                | Event::Touch { ino, .. } => out.push(*ino),
                Event::Clone { to, .. } => out.push(*to),
                Event::Policy(change) => out.push(change.ino),
                Event::Remap { .. }
                | Event::Reclaim { .. }
                | Event::Swept { .. }
                | Event::Reserve { .. }
                | Event::SessionOpened { .. }
                | Event::SessionClosed { .. }
                | Event::Decoupled(_)
                | Event::Attached(_)
                | Event::Granted { .. }
                | Event::Merged(_)
                | Event::DecouplingEnded { .. }
                | Event::Noop => {}
            }
        }
        out.sort_unstable();
        out.dedup();
    }
}

/// The directory of an operation that comes in masses.
fn parent_of(op: &Op) -> Option<Ino> {
    match op {
        Op::Make { parent, .. } | Op::Unlink { parent, .. } => Some(*parent),
        _ => None,
    }
}

impl Namespace {
    /// Search permission on a directory.
    fn may_search(&self, cred: &Cred, dir: &Inode) -> Result<(), Fault> {
        self.judge(dir, |dir| permission::may_search(cred, dir))
    }

    /// Write and search permission on a directory whose entries change.
    fn may_change(&self, cred: &Cred, dir: &Inode) -> Result<(), Fault> {
        self.judge(dir, |dir| permission::may_change_names(cred, dir))
    }

    /// Whether the sticky bit of a directory allows that this is removed from it.
    fn may_remove(&self, cred: &Cred, dir: &Inode, victim: &Inode) -> Result<(), Fault> {
        self.judge(dir, |dir| Ok(self.judge(victim, |victim| permission::may_remove(cred, dir, victim))))?
    }
}
