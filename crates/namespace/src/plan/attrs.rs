//! chmod, chown, truncate, utimens, chattr.

use chiton_model::{AttrChange, Event, FILE_BYTES_MAX};
use chiton_types::{Ino, Kind, Refusal};

use super::{Context, PlanState, Planned};
use crate::fault::Fault;
use crate::permission::{self, Changed};

pub(super) fn set_attr<S: PlanState>(
    state: &S,
    ino: Ino,
    change: &AttrChange,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let inode = state.inode(ino)?;
    if let Some(size) = change.size {
        match inode.kind {
            Kind::File => {}
            Kind::Dir => return Err(Refusal::IsDir.into()),
            _ => return Err(Refusal::Invalid.into()),
        }
        permission::may_truncate(state, ctx.cred, &inode, change)?;
        if size > FILE_BYTES_MAX {
            return Err(Refusal::TooBig.into());
        }
    }
    let Changed { mode, atime, mut mtime } = permission::change(state, ctx.cred, &inode, change, ctx.now)?;
    if change.size.is_some() && mtime.is_none() {
        mtime = Some(ctx.now);
    }
    let event = Event::SetAttr {
        ino,
        mode,
        uid: change.uid,
        gid: change.gid,
        size: change.size,
        atime,
        mtime,
        // Change times never go back, also when the clock does.
        ctime: ctx.now.max(inode.ctime),
    };
    state.has_maps_for(&event)?;
    out.push(event);
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}

pub(super) fn set_flags<S: PlanState>(
    state: &S,
    ino: Ino,
    flags: u8,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let inode = state.inode(ino)?;
    permission::may_set_flags(ctx.cred, &inode, flags)?;
    out.push(Event::Flags { ino, flags, ctime: ctx.now.max(inode.ctime) });
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}
