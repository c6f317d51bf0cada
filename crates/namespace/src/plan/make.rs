//! New inodes.

use chiton_types::{Ino, Kind, Mode, Name, Refusal, access};

use super::may_change;
use crate::event::Event;
use crate::fault::Fault;
use crate::namespace::{Context, Known, Namespace, Planned};
use crate::op::{INLINE_BYTES_MAX, LINKS_MAX, Make, SYMLINK_BYTES_MAX};
use crate::query::may;

impl Namespace {
    pub(super) fn plan_make(
        &self,
        parent: Ino,
        name: &Name,
        make: &Make,
        mode: Mode,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let dir = self.dir_inode(parent)?;
        may(ctx.cred, dir, access::EXEC)?;
        if let Known::Present(..) = self.entry(dir, name)? {
            return Err(Refusal::Exists.into());
        }
        may_change(ctx.cred, dir)?;
        if dir.nlink == 0 {
            return Err(Refusal::NotFound.into());
        }
        let (kind, rdev, content) = match make {
            Make::File { content } if content.len() > INLINE_BYTES_MAX => return Err(Refusal::TooBig.into()),
            Make::File { content } => (Kind::File, 0, content.clone()),
            Make::Dir if dir.nlink >= LINKS_MAX => return Err(Refusal::TooManyLinks.into()),
            Make::Dir => (Kind::Dir, 0, Vec::new()),
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
            Make::Node { kind: Kind::Char | Kind::Block, .. } if !ctx.cred.is_root() => {
                return Err(Refusal::NotPermitted.into());
            }
            Make::Node { kind, rdev } => (*kind, *rdev, Vec::new()),
        };
        let mut mode = Mode(mode.0 & 0o7777);
        let mut gid = ctx.cred.gid;
        if dir.mode.has(Mode::SETGID) {
            gid = dir.gid;
            if kind == Kind::Dir {
                mode.0 |= Mode::SETGID;
            }
        }
        if kind == Kind::Symlink {
            mode = Mode(0o777);
        }
        let set_group_exec = Mode::SETGID | 0o010;
        if kind != Kind::Dir && mode.has(set_group_exec) && !ctx.cred.is_root() {
            // Nobody gives a program a group that is not theirs.
            match ctx.cred.in_group(gid) {
                Some(true) => {}
                Some(false) => mode.0 &= !Mode::SETGID,
                None => return Err(Fault::NeedGroups),
            }
        }
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
        Ok(Planned { subject: Some(ino), gone: None })
    }
}
