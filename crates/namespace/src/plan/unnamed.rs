//! Files without names: O_TMPFILE, and the first name that such a file gets.
//!
//! ```text
//!   MakeUnnamed   Make under a name that nobody uses · Unlink that keeps an orphan     (one frame: nobody sees the name)
//!   LinkUnnamed   Restore
//! ```
//!
//! Invariants:
//! - After a crash such a file is an orphan like any other: it lives on if the client that has it open does.
//! - A file that had a name and lost it never gets one again here: the client that asks has made the file without one (its kernel
//!   sees to O_EXCL, as for every file system).

use chiton_model::{Event, Make};
use chiton_types::{Ino, Kind, Mode, Name, Refusal};

use super::{Context, PlanState, Planned, make::make, names, state};
use crate::fault::Fault;
use crate::permission;

pub(super) fn make_unnamed<S: PlanState>(
    state: &S,
    parent: Ino,
    mode: Mode,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let ino = ctx.offered;
    let name = unused_name(state, parent, ino)?;
    let planned = make(state, parent, &name, &Make::File { content: Vec::new() }, mode, ctx, out)?;
    out.push(Event::Unlink { parent, name, ino, orphan: true, kind: Kind::File, time: ctx.now });
    Ok(planned)
}

/// A name that nothing in the directory bears.
fn unused_name<S: PlanState>(state: &S, parent: Ino, ino: Ino) -> Result<Name, Fault> {
    let dir = state::dir(state, parent)?;
    let mut n = 0;
    loop {
        let name = Name::new(format!(".unnamed-{ino}-{n}").as_bytes())?;
        match state.entry(&dir, &name) {
            // Another part of the directory has such a name.
            Ok(Some(_)) | Err(Fault::Refused(Refusal::OtherPart)) => n += 1,
            Ok(None) => return Ok(name),
            Err(fault) => return Err(fault),
        }
    }
}

pub(super) fn link_unnamed<S: PlanState>(
    state: &S,
    ino: Ino,
    parent: Ino,
    name: &Name,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let (dir, inode) = names::named(state, ino, parent, name, ctx)?;
    if inode.kind != Kind::File || inode.nlink > 0 {
        return Err(Refusal::Invalid.into());
    }
    permission::may_link(state, ctx.cred, &inode)?;
    if dir.nlink == 0 || !(ctx.is_open)(ino) {
        return Err(Refusal::NotFound.into());
    }
    state.same_realm(inode.parent, parent)?;
    out.push(Event::Restore { parent, name: name.clone(), ino, time: ctx.now });
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}
