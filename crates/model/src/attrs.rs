//! The attributes of an inode that events set: in one place for the namespace, which keeps inodes, and for a client that knows
//! attributes before its server does.

use chiton_types::{Attr, Mode, Position, Time};

use crate::{Body, Event};

/// The attributes that events set, wherever they are kept.
pub struct AttrFields<'a> {
    pub mode: &'a mut Mode,
    pub uid: &'a mut u32,
    pub gid: &'a mut u32,
    pub atime: &'a mut Time,
    pub mtime: &'a mut Time,
    pub ctime: &'a mut Time,
}

impl Event {
    /// Sets what [`Event::SetAttr`] or [`Event::Write`] sets beside size and content. Other events set nothing here.
    #[inline]
    pub fn set_fields(&self, of: AttrFields<'_>) {
        if let Event::SetAttr { mode, uid, gid, atime, mtime, ctime, .. } = self {
            *of.mode = mode.unwrap_or(*of.mode);
            *of.uid = uid.unwrap_or(*of.uid);
            *of.gid = gid.unwrap_or(*of.gid);
            *of.atime = atime.unwrap_or(*of.atime);
            *of.mtime = mtime.unwrap_or(*of.mtime);
            *of.ctime = *ctime;
        }
        if let Event::Write { mode, mtime, .. } = self {
            *of.mode = mode.unwrap_or(*of.mode);
            *of.mtime = *mtime;
            *of.ctime = (*of.ctime).max(*mtime);
        }
    }

    /// Attributes after the event, of the inode that had `before`. `None` if they do not follow from those alone: they do of
    /// [`Event::SetAttr`] without a size, and of [`Event::Write`] with inline content.
    pub fn changed(&self, before: &Attr, position: Position) -> Option<Attr> {
        let mut attr = Attr { position, ..before.clone() };
        if let Event::Write { body: Body::Inline(bytes), size, .. } = self {
            (attr.size, attr.allocated) = (*size, bytes.len() as u64);
        } else if !matches!(self, Event::SetAttr { size: None, .. }) {
            return None;
        }
        let Attr { mode, uid, gid, atime, mtime, ctime, .. } = &mut attr;
        self.set_fields(AttrFields { mode, uid, gid, atime, mtime, ctime });
        Some(attr)
    }
}
