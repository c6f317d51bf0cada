//! Extended attributes: `user.`, `trusted.` and `security.`.

use chiton_types::{Ino, Refusal};

use crate::event::Event;
use crate::fault::Fault;
use crate::namespace::{Context, Namespace, Planned};
use crate::op::{XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrHow};
use crate::permission;

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
        self.judge(inode, |inode| permission::may_set_xattr(ctx.cred, inode, name))?;
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
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }

    pub(super) fn plan_remove_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let inode = self.inode(ino)?;
        self.judge(inode, |inode| permission::may_set_xattr(ctx.cred, inode, name))?;
        if self.xattrs_of(inode)?.is_none_or(|x| !x.0.contains_key(name)) {
            return Err(Refusal::NoXattr.into());
        }
        out.push(Event::Xattr { ino, name: name.to_vec(), value: None, ctime: ctx.now });
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }
}
