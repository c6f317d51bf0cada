//! Extended attributes: `user.`, `trusted.` and `security.`, and access control lists.

use chiton_model::Event;
use chiton_model::{AttrChange, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrHow};
use chiton_types::{Ino, Kind, Mode, Refusal};

use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Context, Namespace, Planned};
use crate::permission::{self, ACL_ACCESS, Acl};

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
        if permission::is_list(name) {
            return self.plan_list(inode, name, value, how, ctx, out);
        }
        let held = self.xattrs_of(inode)?;
        let old = held.and_then(|x| x.0.get(name));
        match (how, old) {
            (XattrHow::Create, Some(_)) => return Err(Refusal::Exists.into()),
            (XattrHow::Replace, None) => return Err(Refusal::NoXattr.into()),
            _ => {}
        }
        self.has_room(inode, name, value)?;
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
            return match permission::is_list(name) {
                // As Linux answers: there is none afterwards.
                true => Ok(Planned { subject: Some(ino), gone: None, other: None }),
                false => Err(Refusal::NoXattr.into()),
            };
        }
        out.push(Event::Xattr { ino, name: name.to_vec(), value: None, ctime: ctx.now });
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }

    fn has_room(&self, inode: &Inode, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        let held = self.xattrs_of(inode)?;
        let old = held.and_then(|x| x.0.get(name));
        let before = held.map_or(0, |x| x.bytes()) - old.map_or(0, |v| v.len() + name.len());
        let fits = before + name.len() + value.len() <= XATTR_TOTAL_BYTES_MAX;
        if fits { Ok(()) } else { Err(Refusal::NoSpace.into()) }
    }

    /// An access control list. What the mode says of an access list becomes the mode, and if that is all, no list is
    /// kept. An empty list removes what was there.
    fn plan_list(
        &self,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let (is_access, ino, ctime) = (name == ACL_ACCESS, inode.ino, ctx.now);
        let planned = Planned { subject: Some(ino), gone: None, other: None };
        let list = Acl::decode(value)?;
        let is_held = self.xattrs_of(inode)?.is_some_and(|xattrs| xattrs.0.contains_key(name));
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
                let changed =
                    self.judge(inode, |inode| permission::change(ctx.cred, inode, &change, ctx.now))?;
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
            self.has_room(inode, name, value)?;
        }
        if value.is_some() || is_held {
            events.push(Event::Xattr { ino, name: name.to_vec(), value, ctime });
        }
        out.append(&mut events);
        Ok(planned)
    }
}
