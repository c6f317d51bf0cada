//! Operations become events, or are refused: functions over a small trait, [`PlanState`], so that a client which answers before
//! it asks the server decides as the server will. One file a family of operations; this one picks among them.
//!
//! Which refusal is given when several apply follows Linux's order of checks: existence and search permission first,
//! then what the names are, then permission to change the directory, then limits.
//!
//! Invariants:
//! - Nothing is changed. Events are appended only if all is decided.
//! - After a successful plan over a [`Namespace`], everything that the events touch is in memory (`apply` relies on it).

mod state;

mod attrs;
mod content;
mod make;
mod names;
mod parts;
mod rename;
mod unnamed;
mod xattr;

mod namespace;

pub use parts::{Entries, end_folded, fold, split, with_parts};
pub use state::{ContentIn, InodeFacts, PlanState};

use chiton_model::{Event, Gone, Op, Rows};
use chiton_types::{Cred, Ino, Name, Refusal, Time};

use crate::fault::Fault;
use crate::namespace::Namespace;

/// Operations that [`Namespace::warm`] is best called with: so many reads does a processor have under way.
pub const WARM_OPS: usize = 16;

/// The knowledge that `plan` needs beside the state.
pub struct Context<'a> {
    /// Credentials of the caller.
    pub cred: &'a Cred,
    /// The time of the change.
    pub now: Time,
    /// Number for the inode that [`chiton_model::Op::Make`] makes.
    pub offered: Ino,
    /// Whether any session has the inode open. A client, which cannot know, must not rely on [`chiton_model::Gone::orphan`].
    pub is_open: &'a dyn Fn(Ino) -> bool,
    /// The server frees the content of a removed tree: also immutable inodes there.
    pub frees: bool,
}

/// The results of a successful plan beside its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Planned {
    /// The inode that the operation is about.
    pub subject: Option<Ino>,
    /// The inode that loses its last name.
    pub gone: Option<Gone>,
    /// As [`chiton_model::Outcome::other`].
    pub other: Option<Ino>,
}

/// The events that carry out `op`, appended to `out` (nothing is appended on a fault).
///
/// # Errors
/// [`Fault::Refused`] by the state or permissions, [`Fault::Missing`] of rows that are not known here, [`Fault::NeedGroups`].
pub fn plan<S: PlanState>(
    state: &S,
    op: &Op,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let from = out.len();
    let planned = plan_one(state, op, ctx, out)?;
    if let Err(fault) = parts::extend(state, out, from) {
        out.truncate(from);
        return Err(fault);
    }
    Ok(planned)
}

fn plan_one<S: PlanState>(
    state: &S,
    op: &Op,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    match op {
        Op::Make { parent, name, make, mode } => make::make(state, *parent, name, make, *mode, ctx, out),
        Op::MakeUnnamed { parent, mode } => unnamed::make_unnamed(state, *parent, *mode, ctx, out),
        Op::LinkUnnamed { ino, parent, name } => unnamed::link_unnamed(state, *ino, *parent, name, ctx, out),
        Op::Link { ino, parent, name } => names::link(state, *ino, *parent, name, ctx, out),
        Op::Unlink { parent, name } => names::unlink(state, *parent, name, ctx, out),
        Op::Rmdir { parent, name } => names::rmdir(state, *parent, name, ctx, out),
        Op::RemoveTree { parent, name, ino } => names::remove_tree(state, *parent, name, *ino, ctx, out),
        Op::Rename { from, from_name, to, to_name, how } => {
            rename::rename(state, (*from, from_name), (*to, to_name), *how, ctx, out)
        }
        Op::SetAttr { ino, change } => attrs::set_attr(state, *ino, change, ctx, out),
        Op::Write { ino, body, size, mtime, kill_setid, hold } => {
            content::write(state, *ino, (body, *size, *hold), *mtime, *kill_setid, out)
        }
        Op::Clone { from, from_offset, to, to_offset, len } => {
            content::clone(state, (*from, *from_offset), (*to, *to_offset), *len, ctx, out)
        }
        Op::Remap { ino, expected, extents } => content::remap(state, *ino, *expected, extents, out),
        Op::SetXattr { ino, name, value, how } => xattr::set_xattr(state, *ino, name, value, *how, ctx, out),
        Op::RemoveXattr { ino, name } => xattr::remove_xattr(state, *ino, name, ctx, out),
        Op::SetFlags { ino, flags } => attrs::set_flags(state, *ino, *flags, ctx, out),
        // The engine plans it, which knows the plates.
        Op::Split { .. } | Op::Fold { .. } => Err(Refusal::Unsupported.into()),
        Op::Reclaim { ino } => content::reclaim(state, *ino, out),
    }
}

impl Namespace {
    /// Brings what operations on names will look at into the processor's caches, all of it side by side. To be called
    /// with the next [`WARM_OPS`] or fewer. Changes nothing but time.
    pub fn warm(&self, ops: &[Op]) {
        self.warm_names(ops.iter().take(WARM_OPS).filter_map(|op| {
            if let Op::Make { parent, name, .. } | Op::Unlink { parent, name } = op {
                Some((*parent, name))
            } else {
                None
            }
        }));
    }

    /// The same for names that are about to be looked up, as far as they are in the directory of the first.
    pub fn warm_names<'n>(&self, names: impl Iterator<Item = (Ino, &'n Name)>) {
        let mut names = names.take(WARM_OPS).peekable();
        let Some(dir) = names.peek().map(|(dir, _)| *dir) else { return };
        let Some(held) = self.dirs.get(&dir) else { return };
        let (mut hashes, mut count) = ([0; WARM_OPS], 0);
        for (_, name) in names.filter(|(parent, _)| *parent == dir) {
            hashes[count] = name.hash64();
            count += 1;
        }
        held.warm(&hashes[..count]);
    }

    /// Inodes whose attributes, names or content the events change: leases of other clients on them are in the way.
    pub fn touched(events: &[Event], out: &mut Vec<Ino>) {
        for event in events {
            out.extend(event.footprint().writes(Rows::SEEN));
        }
        out.sort_unstable();
        out.dedup();
    }
}
