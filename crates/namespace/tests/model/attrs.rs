//! Attributes and extended attributes. Checks come in the order of the table in `model.rs`.

use chiton_model::{
    AttrChange, FILE_BYTES_MAX, SetTime, XATTR_NAME_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
    XattrHow,
};
use chiton_namespace::permission::ACL_ACCESS;
use chiton_types::{Capabilities, Cred, Ino, Kind, Mode, Refusal, access};

use crate::pools::list_bytes;
use crate::state::{Ask, Content, Done, Model, Node, entries_of};

impl Model {
    pub(crate) fn set_attr(&mut self, ino: Ino, change: &AttrChange, ask: &Ask<'_>) -> Result<Done, Refusal> {
        let cred = ask.cred;
        let node = self.node(ino)?;
        if let Some(size) = change.size {
            match node.kind {
                Kind::File => {}
                Kind::Dir => return Err(Refusal::IsDir),
                _ => return Err(Refusal::Invalid),
            }
            if !change.size_by_handle {
                node.may(cred, access::WRITE)?;
            }
            if size > FILE_BYTES_MAX {
                return Err(Refusal::TooBig);
            }
        }
        let owner = node.owned_by(cred);
        let (mine, chowns) = (cred.uid == node.uid, node.can(cred, Capabilities::CHOWN));
        let keeps_setid = node.can(cred, Capabilities::FSETID);
        if change.uid.is_some_and(|uid| !(chowns || mine && uid == node.uid)) {
            return Err(Refusal::NotPermitted);
        }
        let may_chgrp = |gid| chowns || mine && (cred.in_group(gid) == Some(true) || gid == node.gid);
        if change.gid.is_some_and(|gid| !may_chgrp(gid)) {
            return Err(Refusal::NotPermitted);
        }
        if change.mode.is_some() && !owner {
            return Err(Refusal::NotPermitted);
        }
        for time in [change.atime, change.mtime].into_iter().flatten() {
            match time {
                _ if owner => {}
                SetTime::At(_) => return Err(Refusal::NotPermitted),
                SetTime::Now => node.may(cred, access::WRITE)?,
            }
        }
        let node = self.node_mut(ino);
        let chown = change.uid.is_some() || change.gid.is_some();
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        if let Some(mode) = change.mode {
            node.mode = mode.0 & 0o7777;
            if !node.in_group(cred) && !keeps_setid {
                node.mode &= !Mode::SETGID;
            }
        }
        if change.kill_setid || chown && !chowns {
            node.kill_setid();
        }
        if let Some(size) = change.size {
            node.resize(size);
            node.mtime = ask.now;
        }
        let at = |t: SetTime| match t {
            SetTime::Now => ask.now,
            SetTime::At(t) => t,
        };
        node.atime = change.atime.map_or(node.atime, at);
        node.mtime = change.mtime.map_or(node.mtime, at);
        node.ctime = ask.now;
        Ok(Done::about(ino))
    }

    pub(crate) fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let node = self.node(ino)?;
        node.may_set_xattr(name, ask.cred)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Refusal::ArgTooBig);
        }
        let is_list = name.starts_with(b"system.posix_acl");
        let entries = entries_of(value);
        if is_list && !entries.is_empty() && !is_valid(&entries) {
            return Err(Refusal::Invalid);
        }
        match (how, node.xattrs.contains_key(name)) {
            (XattrHow::Create, true) => return Err(Refusal::Exists),
            (XattrHow::Replace, false) => return Err(Refusal::NoXattr),
            _ => {}
        }
        if is_list {
            return self.set_list(ino, name, entries, ask);
        }
        let others = node.xattrs.iter().filter(|(n, _)| n.as_slice() != name);
        let total: usize = others.map(|(n, v)| n.len() + v.len()).sum();
        if total + name.len() + value.len() > XATTR_TOTAL_BYTES_MAX {
            return Err(Refusal::NoSpace);
        }
        let node = self.node_mut(ino);
        node.xattrs.insert(name.to_vec(), value.to_vec());
        node.ctime = ask.now;
        Ok(Done::about(ino))
    }

    fn set_list(
        &mut self,
        ino: Ino,
        name: &[u8],
        mut entries: Vec<(u16, u16, u32)>,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let (is_access, is_empty) = (name == ACL_ACCESS, entries.is_empty());
        let node = self.node(ino)?;
        if !is_access && node.kind != Kind::Dir {
            return if is_empty { Ok(Done::about(ino)) } else { Err(Refusal::Access) };
        }
        let keeps_group = node.in_group(ask.cred) || node.can(ask.cred, Capabilities::FSETID);
        let node = self.node_mut(ino);
        let had = node.xattrs.contains_key(name);
        if is_empty {
            node.xattrs.remove(name);
        } else if is_access {
            let has_mask = entries.iter().any(|(tag, ..)| *tag == 16);
            let mut bits = 0;
            for (tag, rights, _) in &mut entries {
                match (*tag, has_mask) {
                    (1, _) => bits |= std::mem::take(rights) << 6,
                    (16, _) | (4, false) => bits |= std::mem::take(rights) << 3,
                    (32, _) => bits |= std::mem::take(rights),
                    _ => {}
                }
            }
            node.mode = node.mode & !0o777 | bits;
            if !keeps_group {
                node.mode &= !Mode::SETGID;
            }
            node.xattrs.remove(name);
            if entries.len() > 3 {
                node.xattrs.insert(name.to_vec(), list_bytes(&entries));
            }
        } else {
            node.xattrs.insert(name.to_vec(), list_bytes(&entries));
        }
        if had || !is_empty {
            node.ctime = ask.now;
        }
        Ok(Done::about(ino))
    }

    pub(crate) fn remove_xattr(&mut self, ino: Ino, name: &[u8], ask: &Ask<'_>) -> Result<Done, Refusal> {
        let node = self.node(ino)?;
        node.may_set_xattr(name, ask.cred)?;
        if !node.xattrs.contains_key(name) {
            let is_list = name.starts_with(b"system.posix_acl");
            return if is_list { Ok(Done::about(ino)) } else { Err(Refusal::NoXattr) };
        }
        let node = self.node_mut(ino);
        node.xattrs.remove(name);
        node.ctime = ask.now;
        Ok(Done::about(ino))
    }

    pub(crate) fn get_xattr(&self, ino: Ino, name: &[u8], cred: &Cred) -> Result<Vec<u8>, Refusal> {
        let node = self.node(ino)?;
        node.may_get_xattr(name, cred)?;
        node.shown(name).ok_or(Refusal::NoXattr)
    }

    pub(crate) fn xattr_names(&self, ino: Ino, cred: &Cred) -> Vec<u8> {
        let seen = |name: &&Vec<u8>| administers(cred) || !name.starts_with(b"trusted.");
        self.nodes[&ino].xattrs.keys().filter(seen).flat_map(|n| [n.as_slice(), b"\0"].concat()).collect()
    }
}

/// Owner, group and others once, in the order of the tags, and a mask if there are named entries.
fn is_valid(entries: &[(u16, u16, u32)]) -> bool {
    let tags: Vec<u16> = entries.iter().map(|(tag, ..)| *tag).collect();
    let unnamed: Vec<u16> = tags.iter().copied().filter(|tag| ![2, 8].contains(tag)).collect();
    let names = unnamed.len() < tags.len();
    tags.is_sorted() && (unnamed == [1, 4, 16, 32] || !names && unnamed == [1, 4, 32])
}

/// CAP_SYS_ADMIN, and not in a user namespace.
fn administers(cred: &Cred) -> bool {
    cred.everywhere(Capabilities::SYS_ADMIN).expect("the model is asked with all that is known")
}

impl Node {
    /// The value of an attribute as it is read: an access list with what the mode says of it.
    pub(crate) fn shown(&self, name: &[u8]) -> Option<Vec<u8>> {
        let stored = self.xattrs.get(name)?;
        if name != ACL_ACCESS {
            return Some(stored.clone());
        }
        let mut entries = entries_of(stored);
        for (tag, rights, _) in &mut entries {
            match tag {
                1 => *rights = self.mode >> 6 & 7,
                16 => *rights = self.mode >> 3 & 7,
                32 => *rights = self.mode & 7,
                _ => {}
            }
        }
        Some(list_bytes(&entries))
    }

    fn may_set_xattr(&self, name: &[u8], cred: &Cred) -> Result<(), Refusal> {
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Refusal::Range);
        }
        if name.contains(&0) || [&b"user."[..], b"trusted.", b"security."].contains(&name) {
            return Err(Refusal::Invalid);
        }
        if name.starts_with(b"user.") {
            let by_type = matches!(self.kind, Kind::File | Kind::Dir);
            let by_sticky = self.kind != Kind::Dir || !self.has(Mode::STICKY) || self.owned_by(cred);
            if !by_type || !by_sticky {
                return Err(Refusal::NotPermitted);
            }
            return self.may(cred, access::WRITE);
        }
        if name.starts_with(b"system.posix_acl") {
            return match self.kind {
                Kind::Symlink => Err(Refusal::Unsupported),
                _ if self.owned_by(cred) => Ok(()),
                _ => Err(Refusal::NotPermitted),
            };
        }
        if !name.starts_with(b"trusted.") && !name.starts_with(b"security.") {
            return Err(Refusal::Unsupported);
        }
        let allowed = match name {
            b"security.capability" => self.can(cred, Capabilities::SETFCAP),
            _ => administers(cred),
        };
        if allowed { Ok(()) } else { Err(Refusal::NotPermitted) }
    }

    fn may_get_xattr(&self, name: &[u8], cred: &Cred) -> Result<(), Refusal> {
        if name.starts_with(b"user.") {
            if !matches!(self.kind, Kind::File | Kind::Dir) {
                return Err(Refusal::NoXattr);
            }
            return self.may(cred, access::READ);
        }
        if name.starts_with(b"trusted.") && !administers(cred) {
            return Err(Refusal::NoXattr);
        }
        if name.starts_with(b"system.posix_acl") && self.kind != Kind::Symlink {
            return Ok(());
        }
        if !name.starts_with(b"trusted.") && !name.starts_with(b"security.") {
            return Err(Refusal::Unsupported);
        }
        Ok(())
    }

    fn resize(&mut self, size: u64) {
        let shrinks = size < self.size;
        self.size = size;
        match &mut self.content {
            // Empty again: small content may live in the inode again.
            Content::Blocks(_) if shrinks && size == 0 => self.content = Content::Inline(Vec::new()),
            Content::Inline(bytes) => bytes.truncate(size.min(1 << 20) as usize),
            Content::Blocks(bytes) => drop(bytes.split_off(&size)),
        }
    }

    /// Clears the bits that a write or chown by a caller other than root clears.
    pub(crate) fn kill_setid(&mut self) {
        if self.kind == Kind::Dir {
            return;
        }
        self.mode &= !Mode::SETUID;
        if self.has(0o010) {
            self.mode &= !Mode::SETGID;
        }
    }
}
