//! rename in all its cases.

use chiton_model::{Event, Over, RenameHow};
use chiton_types::{Ino, Kind, Mode, Name, Refusal, access};

use super::names::{gone_without_name, present};
use super::{Context, InodeFacts, PlanState, Planned, parts, state};
use crate::fault::Fault;
use crate::permission::{self, Birth, Newborn};

pub(super) fn rename<S: PlanState>(
    state: &S,
    (from, from_name): (Ino, &Name),
    (to, to_name): (Ino, &Name),
    how: RenameHow,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let from_dir = state::dir(state, from)?;
    let to_dir = state::dir(state, to)?;
    permission::may_search(state, ctx.cred, &from_dir)?;
    permission::may_search(state, ctx.cred, &to_dir)?;
    let source = state.inode(present(state, &from_dir, from_name)?)?;
    let target = match state.entry(&to_dir, to_name)? {
        Some(ino) => Some(state.inode(ino)?),
        None => None,
    };
    match (how, &target) {
        (how, Some(_)) if how.refuses() => return Err(Refusal::Exists.into()),
        (RenameHow::Exchange, None) => return Err(Refusal::NotFound.into()),
        _ => {}
    }
    // Neither may a directory move below itself, nor may it replace a directory above it.
    // Within one directory nothing moves up or down.
    if from != to && source.kind == Kind::Dir {
        match way_up(state, source.ino, &to_dir)? {
            WayUp::Meets => return Err(Refusal::Invalid.into()),
            // The server frees that tree: a directory that came into it now would go with it, whoever owns its content.
            WayUp::Removed(top) if top != to => return Err(Refusal::NotFound.into()),
            WayUp::Removed(_) | WayUp::Root => {}
        }
    }
    if let Some(target) = target.filter(|t| from != to && t.kind == Kind::Dir)
        && is_at_or_above(state, target.ino, &from_dir)?
    {
        let exchange = how == RenameHow::Exchange;
        return Err(if exchange { Refusal::Invalid } else { Refusal::NotEmpty }.into());
    }
    if target.is_some_and(|t| t.ino == source.ino) {
        return Ok(Planned { subject: Some(source.ino), gone: None, other: None });
    }
    state.same_realm(from, to)?;
    permission::may_change_names(state, ctx.cred, &from_dir)?;
    permission::may_remove(ctx.cred, &from_dir, &source)?;
    permission::may_change_names(state, ctx.cred, &to_dir)?;
    // A directory that was removed with everything in it still gives names away, and gets none.
    let from_gets = how == RenameHow::Exchange || how.leaves_whiteout();
    if to_dir.nlink == 0 || (from_gets && from_dir.nlink == 0) {
        return Err(Refusal::NotFound.into());
    }
    if let Some(target) = target {
        permission::may_remove(ctx.cred, &to_dir, &target)?;
        if how != RenameHow::Exchange {
            match (source.kind == Kind::Dir, target.kind == Kind::Dir) {
                (true, false) => return Err(Refusal::NotDir.into()),
                (false, true) => return Err(Refusal::IsDir.into()),
                _ => {}
            }
        }
    }
    if from != to {
        // A directory that gets another parent has its `..` rewritten. Callers see all parts of a directory as one parent.
        let is_rewritten = parts::home_of(&from_dir) != parts::home_of(&to_dir);
        if is_rewritten && source.kind == Kind::Dir {
            permission::may(state, ctx.cred, &source, access::WRITE)?;
        }
        let exchanged = target.filter(|t| how == RenameHow::Exchange && t.kind == Kind::Dir);
        if let Some(target) = exchanged.filter(|_| is_rewritten) {
            permission::may(state, ctx.cred, &target, access::WRITE)?;
        }
        let gains = source.kind == Kind::Dir && target.is_none_or(|t| t.kind != Kind::Dir);
        if gains {
            permission::room_for_subdirectory(to_dir.nlink)?;
        }
    }
    let (over, gone, other) = match (how, target) {
        (_, None) => (Over::Nothing, None, None),
        (RenameHow::Exchange, Some(target)) => {
            (Over::Exchanged { ino: target.ino, kind: target.kind }, None, Some(target.ino))
        }
        (_, Some(target)) if target.kind == Kind::Dir && !parts::is_empty(state, &target)? => {
            return Err(Refusal::NotEmpty.into());
        }
        (_, Some(target)) => {
            let gone = gone_without_name(&target, ctx);
            let other = gone.is_none().then_some(target.ino);
            let orphan = gone.is_some_and(|g| g.orphan);
            (Over::Replaced { ino: target.ino, kind: target.kind, orphan }, gone, other)
        }
    };
    let whiteout = Newborn { kind: Kind::Char, rdev: 0, mode: Mode(0), umask: 0 };
    let birth = || permission::birth(ctx.cred, &from_dir, None, whiteout);
    let whiteout = how.leaves_whiteout().then(birth).transpose()?;
    out.push(Event::Rename {
        from,
        from_name: from_name.clone(),
        to,
        to_name: to_name.clone(),
        ino: source.ino,
        kind: source.kind,
        over,
        time: ctx.now,
    });
    if let Some(Birth { mode, gid, .. }) = whiteout {
        out.push(Event::Make {
            parent: from,
            name: from_name.clone(),
            ino: ctx.offered,
            kind: Kind::Char,
            mode,
            uid: ctx.cred.uid,
            gid,
            rdev: 0,
            time: ctx.now,
            content: Vec::new(),
        });
    }
    Ok(Planned { subject: Some(source.ino), gone, other })
}

/// Where a walk from a directory up its parents ends.
enum WayUp {
    /// The inode that is looked for.
    Meets,
    /// The top of a removed tree.
    Removed(Ino),
    Root,
}

fn way_up<S: PlanState>(state: &S, above: Ino, dir: &InodeFacts) -> Result<WayUp, Fault> {
    let mut at = *dir;
    loop {
        if at.ino == above {
            return Ok(WayUp::Meets);
        }
        if at.parent == at.ino {
            return Ok(WayUp::Root);
        }
        if at.nlink == 0 {
            return Ok(WayUp::Removed(at.ino));
        }
        at = state.inode(at.parent)?;
    }
}

/// Whether `dir` is `above` or below it. Walks the parents of directories up to the root.
pub(super) fn is_at_or_above<S: PlanState>(state: &S, above: Ino, dir: &InodeFacts) -> Result<bool, Fault> {
    Ok(matches!(way_up(state, above, dir)?, WayUp::Meets))
}
