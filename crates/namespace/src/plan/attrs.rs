//! chmod, chown, truncate, utimens.

use chiton_model::Event;
use chiton_model::{AttrChange, FILE_BYTES_MAX};
use chiton_types::{Ino, Kind, Refusal, Time};

use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Context, Namespace, Planned};
use crate::permission::{self, Changed};

impl Namespace {
    pub(super) fn plan_setattr(
        &self,
        ino: Ino,
        change: &AttrChange,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let inode = self.inode(ino)?;
        let cred = ctx.cred;
        if let Some(size) = change.size {
            match inode.kind {
                Kind::File => {}
                Kind::Dir => return Err(Refusal::IsDir.into()),
                _ => return Err(Refusal::Invalid.into()),
            }
            self.judge(inode, |inode| permission::may_truncate(cred, inode, change))?;
            if size > FILE_BYTES_MAX {
                return Err(Refusal::TooBig.into());
            }
            self.truncatable(inode, size)?;
        }
        let Changed { mode, atime, mut mtime } =
            self.judge(inode, |inode| permission::change(cred, inode, change, ctx.now))?;
        if change.size.is_some() && mtime.is_none() {
            mtime = Some(ctx.now);
        }
        out.push(Event::SetAttr {
            ino,
            mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime,
            mtime,
            ctime: ctime(inode, ctx.now),
        });
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }
}

/// Change times never go back, also when the clock does.
fn ctime(inode: &Inode, now: Time) -> Time {
    now.max(inode.ctime)
}
