//! Extended attributes: `user.`, `trusted.` and `security.`.

use chiton_types::{Ino, Kind, Mode, Refusal, access};

use crate::event::Event;
use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Context, Namespace, Planned};
use crate::op::{XATTR_NAME_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrHow};
use crate::query::may;

impl Namespace {
    pub(super) fn plan_set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let inode = self.inode(ino)?;
        writable(inode, name, ctx)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Refusal::ArgTooBig.into());
        }
        let held = self.xattrs_of(inode)?;
        let old = held.and_then(|x| x.0.get(name));
        match (how, old) {
            (XattrHow::Create, Some(_)) => return Err(Refusal::Exists.into()),
            (XattrHow::Replace, None) => return Err(Refusal::NoXattr.into()),
            _ => {}
        }
        let before = held.map_or(0, |x| x.bytes()) - old.map_or(0, |v| v.len() + name.len());
        if before + name.len() + value.len() > XATTR_TOTAL_BYTES_MAX {
            return Err(Refusal::NoSpace.into());
        }
        out.push(Event::Xattr { ino, name: name.to_vec(), value: Some(value.to_vec()), ctime: ctx.now });
        Ok(Planned { subject: Some(ino), gone: None })
    }

    pub(super) fn plan_remove_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let inode = self.inode(ino)?;
        writable(inode, name, ctx)?;
        if self.xattrs_of(inode)?.is_none_or(|x| !x.0.contains_key(name)) {
            return Err(Refusal::NoXattr.into());
        }
        out.push(Event::Xattr { ino, name: name.to_vec(), value: None, ctime: ctx.now });
        Ok(Planned { subject: Some(ino), gone: None })
    }
}

fn writable(inode: &Inode, name: &[u8], ctx: &Context<'_>) -> Result<(), Fault> {
    let cred = ctx.cred;
    let suffix = |prefix: &[u8]| name.strip_prefix(prefix).map(|s| !s.is_empty());
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Refusal::Range.into());
    }
    if name.contains(&0) {
        return Err(Refusal::Invalid.into());
    }
    match (suffix(b"user."), suffix(b"trusted."), suffix(b"security.")) {
        (Some(true), ..) => {
            let sticky_other = inode.kind == Kind::Dir
                && inode.mode.has(Mode::STICKY)
                && !cred.is_root()
                && cred.uid != inode.uid;
            if !matches!(inode.kind, Kind::File | Kind::Dir) || sticky_other {
                return Err(Refusal::NotPermitted.into());
            }
            may(cred, inode, access::WRITE)
        }
        (_, Some(true), _) | (_, _, Some(true)) if cred.is_root() => Ok(()),
        (_, Some(true), _) | (_, _, Some(true)) => Err(Refusal::NotPermitted.into()),
        (Some(false), ..) | (_, Some(false), _) | (_, _, Some(false)) => Err(Refusal::Invalid.into()),
        _ => Err(Refusal::Unsupported.into()),
    }
}
