//! Extended attributes: `user.`, `trusted.` and `security.`, and access control lists.

use chiton_model::{AttrChange, Event, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrHow};
use chiton_types::{Ino, Kind, Mode, Refusal};

use super::{Context, InodeFacts, PlanState, Planned};
use crate::fault::Fault;
use crate::permission::{self, ACL_ACCESS, Acl};

pub(super) fn set_xattr<S: PlanState>(
    state: &S,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    how: XattrHow,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let inode = state.inode(ino)?;
    permission::may_set_xattr(state, ctx.cred, &inode, name)?;
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Refusal::ArgTooBig.into());
    }
    if permission::is_list(name) {
        return set_list(state, &inode, name, value, how, ctx, out);
    }
    let held = state.xattrs(&inode)?;
    let old = held.and_then(|x| x.0.get(name));
    match (how, old) {
        (XattrHow::Create, Some(_)) => return Err(Refusal::Exists.into()),
        (XattrHow::Replace, None) => return Err(Refusal::NoXattr.into()),
        _ => {}
    }
    has_room(state, &inode, name, value)?;
    out.push(Event::Xattr { ino, name: name.to_vec(), value: Some(value.to_vec()), ctime: ctx.now });
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}

pub(super) fn remove_xattr<S: PlanState>(
    state: &S,
    ino: Ino,
    name: &[u8],
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let inode = state.inode(ino)?;
    permission::may_set_xattr(state, ctx.cred, &inode, name)?;
    if state.xattrs(&inode)?.is_none_or(|x| !x.0.contains_key(name)) {
        return match permission::is_list(name) {
            // As Linux answers: there is none afterwards.
            true => Ok(Planned { subject: Some(ino), gone: None, other: None }),
            false => Err(Refusal::NoXattr.into()),
        };
    }
    out.push(Event::Xattr { ino, name: name.to_vec(), value: None, ctime: ctx.now });
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}

fn has_room<S: PlanState>(state: &S, inode: &InodeFacts, name: &[u8], value: &[u8]) -> Result<(), Fault> {
    let held = state.xattrs(inode)?;
    let old = held.and_then(|x| x.0.get(name));
    let before = held.map_or(0, |x| x.bytes()) - old.map_or(0, |v| v.len() + name.len());
    let fits = before + name.len() + value.len() <= XATTR_TOTAL_BYTES_MAX;
    if fits { Ok(()) } else { Err(Refusal::NoSpace.into()) }
}

/// An access control list. The entries that the mode can express become the mode, and if that is all, no list is
/// kept. An empty list removes the present one.
fn set_list<S: PlanState>(
    state: &S,
    inode: &InodeFacts,
    name: &[u8],
    value: &[u8],
    how: XattrHow,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let (is_access, ino, ctime) = (name == ACL_ACCESS, inode.ino, ctx.now);
    let planned = Planned { subject: Some(ino), gone: None, other: None };
    let list = Acl::decode(value)?;
    let is_held = state.xattrs(inode)?.is_some_and(|xattrs| xattrs.0.contains_key(name));
    match how {
        XattrHow::Create if is_held => return Err(Refusal::Exists.into()),
        XattrHow::Replace if !is_held => return Err(Refusal::NoXattr.into()),
        _ => {}
    }
    if !is_access && inode.kind != Kind::Dir {
        return if list.is_some() { Err(Refusal::Access.into()) } else { Ok(planned) };
    }
    let mut events = Vec::new();
    let value = match &list {
        Some(list) if is_access => {
            let wanted = Mode(inode.mode.0 & !0o777 | list.mode());
            let change = AttrChange { mode: Some(wanted), ..AttrChange::default() };
            let changed = permission::change(state, ctx.cred, inode, &change, ctx.now)?;
            let mode = changed.mode.filter(|mode| *mode != inode.mode);
            let ctime = ctime.max(inode.ctime);
            let (uid, gid, size, atime, mtime) = (None, None, None, None, None);
            events.push(Event::SetAttr { ino, mode, uid, gid, size, atime, mtime, ctime });
            (!list.is_trivial()).then(|| list.stored().encode())
        }
        Some(list) => Some(list.encode()),
        None => None,
    };
    if let Some(value) = &value {
        has_room(state, inode, name, value)?;
    }
    if value.is_some() || is_held {
        events.push(Event::Xattr { ino, name: name.to_vec(), value, ctime });
    }
    out.append(&mut events);
    Ok(planned)
}
