//! link, unlink, rmdir.

use chiton_model::{Event, Gone};
use chiton_types::{Attr, Ino, Kind, Name, Refusal};

use super::{ContentIn, Context, InodeFacts, PlanState, Planned, parts, state};
use crate::fault::Fault;
use crate::permission;

pub(super) fn link<S: PlanState>(
    state: &S,
    ino: Ino,
    parent: Ino,
    name: &Name,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let (dir, inode) = named(state, ino, parent, name, ctx)?;
    permission::may_link(state, ctx.cred, &inode)?;
    if inode.nlink == 0 || dir.nlink == 0 {
        return Err(Refusal::NotFound.into());
    }
    permission::room_for_link(inode.nlink)?;
    state.same_realm(inode.parent, parent)?;
    out.push(Event::Link { parent, name: name.clone(), ino, kind: inode.kind, time: ctx.now });
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}

/// A directory that may get this name, which is free, and the inode that it is for.
pub(super) fn named<S: PlanState>(
    state: &S,
    ino: Ino,
    parent: Ino,
    name: &Name,
    ctx: &Context<'_>,
) -> Result<(InodeFacts, InodeFacts), Fault> {
    let dir = state::dir(state, parent)?;
    permission::may_search(state, ctx.cred, &dir)?;
    let inode = state.inode(ino)?;
    if state.entry(&dir, name)?.is_some() {
        return Err(Refusal::Exists.into());
    }
    permission::may_change_names(state, ctx.cred, &dir)?;
    Ok((dir, inode))
}

pub(super) fn unlink<S: PlanState>(
    state: &S,
    parent: Ino,
    name: &Name,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let is_file =
        |victim: &InodeFacts| if victim.kind == Kind::Dir { Err(Refusal::IsDir.into()) } else { Ok(()) };
    remove(state, parent, name, is_file, ctx, out)
}

pub(super) fn rmdir<S: PlanState>(
    state: &S,
    parent: Ino,
    name: &Name,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let is_empty_dir = |victim: &InodeFacts| match victim.kind {
        Kind::Dir if parts::is_empty(state, victim)? => Ok(()),
        Kind::Dir => Err(Refusal::NotEmpty.into()),
        _ => Err(Refusal::NotDir.into()),
    };
    remove(state, parent, name, is_empty_dir, ctx, out)
}

/// Takes the name of a directory away. With everything in it the directory becomes an orphan, which the server empties and
/// frees. Whether the caller may remove the directories below, and whether nothing in the tree forbids it, the engine has
/// checked.
pub(super) fn remove_tree<S: PlanState>(
    state: &S,
    parent: Ino,
    name: &Name,
    ino: Ino,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let is_meant = |victim: &InodeFacts| match victim.kind {
        Kind::Dir if victim.ino == ino => Ok(()),
        Kind::Dir => Err(Refusal::Stale.into()),
        _ => Err(Refusal::NotDir.into()),
    };
    let is_open = |_| true;
    remove(state, parent, name, is_meant, &Context { is_open: &is_open, ..*ctx }, out)
}

/// Takes a name away from an inode that `fits`.
fn remove<S: PlanState>(
    state: &S,
    parent: Ino,
    name: &Name,
    fits: impl FnOnce(&InodeFacts) -> Result<(), Fault>,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let mut dir = state::dir(state, parent)?;
    permission::may_search(state, ctx.cred, &dir)?;
    let ino = present(state, &dir, name)?;
    let mut victim = state.inode(ino)?;
    if ctx.frees {
        dir.flags &= !Attr::SETTABLE;
        victim.flags &= !Attr::SETTABLE;
    }
    permission::may_change_names(state, ctx.cred, &dir)?;
    permission::may_remove(ctx.cred, &dir, &victim)?;
    fits(&victim)?;
    let gone = gone_without_name(&victim, ctx);
    let orphan = gone.is_some_and(|g| g.orphan);
    let kind = victim.kind;
    out.push(Event::Unlink { parent, name: name.clone(), ino, orphan, kind, time: ctx.now });
    Ok(Planned { subject: Some(ino), gone, other: None })
}

/// The inode that bears `name`, or `NotFound`.
pub(super) fn present<S: PlanState>(state: &S, dir: &InodeFacts, name: &Name) -> Result<Ino, Fault> {
    state.entry(dir, name)?.ok_or(Refusal::NotFound.into())
}

/// The fate of an inode that is about to lose one name (a directory: its only one). Content in blocks is
/// never freed in the same event, because that may take many steps.
pub(super) fn gone_without_name(victim: &InodeFacts, ctx: &Context<'_>) -> Option<Gone> {
    if victim.kind != Kind::Dir && victim.nlink > 1 {
        return None;
    }
    let orphan = victim.content == ContentIn::Blocks || (ctx.is_open)(victim.ino);
    Some(Gone { ino: victim.ino, orphan })
}
