//! chmod, chown, truncate, utimens.

use chiton_types::{Ino, Kind, Mode, Refusal, Time, access};

use crate::event::Event;
use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Context, Namespace, Planned};
use crate::op::{AttrChange, FILE_BYTES_MAX, SetTime};
use crate::query::may;

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
        let owner = cred.is_root() || cred.uid == inode.uid;
        let refuse_unless =
            |allowed: bool| if allowed { Ok(()) } else { Err(Fault::from(Refusal::NotPermitted)) };
        if let Some(size) = change.size {
            match inode.kind {
                Kind::File => {}
                Kind::Dir => return Err(Refusal::IsDir.into()),
                _ => return Err(Refusal::Invalid.into()),
            }
            if !change.size_by_handle {
                may(cred, inode, access::WRITE)?;
            }
            if size > FILE_BYTES_MAX {
                return Err(Refusal::TooBig.into());
            }
            self.truncatable(inode, size)?;
        }
        if let Some(uid) = change.uid {
            refuse_unless(cred.is_root() || (cred.uid == inode.uid && uid == inode.uid))?;
        }
        if let Some(gid) = change.gid {
            let member = cred.is_root() || gid == inode.gid || cred.in_group(gid).ok_or(Fault::NeedGroups)?;
            refuse_unless(owner && member)?;
        }
        let mut mode = change.mode.map(|m| Mode(m.0 & 0o7777));
        if let Some(mode) = &mut mode {
            refuse_unless(owner)?;
            if mode.has(Mode::SETGID) && !cred.is_root() {
                let gid = change.gid.unwrap_or(inode.gid);
                if !cred.in_group(gid).ok_or(Fault::NeedGroups)? {
                    mode.0 &= !Mode::SETGID;
                }
            }
        }
        let chowned = (change.uid.is_some() || change.gid.is_some()) && !cred.is_root();
        if chowned || change.kill_setid {
            let cleared = mode.unwrap_or(inode.mode).without_setid(inode.kind);
            if cleared != inode.mode {
                mode = Some(cleared);
            }
        }
        let resolve = |time: Option<SetTime>| match time {
            None => Ok(None),
            Some(SetTime::At(at)) => refuse_unless(owner).map(|()| Some(at)),
            Some(SetTime::Now) if owner => Ok(Some(ctx.now)),
            Some(SetTime::Now) => may(cred, inode, access::WRITE).map(|()| Some(ctx.now)),
        };
        let atime = resolve(change.atime)?;
        let mut mtime = resolve(change.mtime)?;
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
        Ok(Planned { subject: Some(ino), gone: None })
    }
}

/// Change times never go back, also when the clock does.
fn ctime(inode: &Inode, now: Time) -> Time {
    now.max(inode.ctime)
}
