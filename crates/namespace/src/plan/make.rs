//! New inodes.

use chiton_model::{Event, INLINE_BYTES_MAX, Make, SYMLINK_BYTES_MAX};
use chiton_types::{Ino, Kind, Mode, Name, Refusal};

use super::{Context, PlanState, Planned, state};
use crate::fault::Fault;
use crate::permission::{self, ACL_ACCESS, ACL_DEFAULT, Birth, Newborn};

pub(super) fn make<S: PlanState>(
    state: &S,
    parent: Ino,
    name: &Name,
    make: &Make,
    mode: Mode,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let dir = state::dir(state, parent)?;
    permission::may_search(state, ctx.cred, &dir)?;
    if state.entry(&dir, name)?.is_some() {
        return Err(Refusal::Exists.into());
    }
    permission::may_change_names(state, ctx.cred, &dir)?;
    if dir.nlink == 0 {
        return Err(Refusal::NotFound.into());
    }
    let (kind, rdev, content) = match make {
        Make::File { content } if content.len() > INLINE_BYTES_MAX => return Err(Refusal::TooBig.into()),
        Make::File { content } => (Kind::File, 0, content.clone()),
        Make::Dir => {
            permission::room_for_subdirectory(dir.nlink)?;
            (Kind::Dir, 0, Vec::new())
        }
        Make::Symlink { target } if target.len() > SYMLINK_BYTES_MAX => {
            return Err(Refusal::NameTooLong.into());
        }
        Make::Symlink { target } if target.is_empty() || target.contains(&0) => {
            return Err(Refusal::Invalid.into());
        }
        Make::Symlink { target } => (Kind::Symlink, 0, target.clone()),
        Make::Node { kind: Kind::Fifo | Kind::Socket, rdev } if *rdev != 0 => {
            return Err(Refusal::Invalid.into());
        }
        Make::Node { kind: Kind::File | Kind::Dir | Kind::Symlink, .. } => {
            return Err(Refusal::Invalid.into());
        }
        Make::Node { kind, rdev } => (*kind, *rdev, Vec::new()),
    };
    let newborn = Newborn { kind, rdev, mode, umask: ctx.cred.umask };
    let inherited = permission::default_list(state, &dir)?;
    let Birth { mode, gid, list, default } = permission::birth(ctx.cred, &dir, inherited.as_ref(), newborn)?;
    let ino = ctx.offered;
    out.push(Event::Make {
        parent,
        name: name.clone(),
        ino,
        kind,
        mode,
        uid: ctx.cred.uid,
        gid,
        rdev,
        time: ctx.now,
        content,
    });
    let lists = [(ACL_ACCESS, list.map(|list| list.stored())), (ACL_DEFAULT, default)];
    for (name, list) in lists {
        let value = list.map(|list| list.encode());
        if value.is_some() {
            out.push(Event::Xattr { ino, name: name.to_vec(), value, ctime: ctx.now });
        }
    }
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}
