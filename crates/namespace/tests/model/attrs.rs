//! Attributes and extended attributes. Checks come in the order of the table in `model.rs`.

use chiton_namespace::{
    AttrChange, FILE_BYTES_MAX, SetTime, XATTR_NAME_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
    XattrHow,
};
use chiton_types::{Capabilities, Cred, Ino, Kind, Mode, Refusal, access};

use crate::state::{Ask, Content, Done, Model, Node};

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
        match (how, node.xattrs.contains_key(name)) {
            (XattrHow::Create, true) => return Err(Refusal::Exists),
            (XattrHow::Replace, false) => return Err(Refusal::NoXattr),
            _ => {}
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

    pub(crate) fn remove_xattr(&mut self, ino: Ino, name: &[u8], ask: &Ask<'_>) -> Result<Done, Refusal> {
        let node = self.node(ino)?;
        node.may_set_xattr(name, ask.cred)?;
        if !node.xattrs.contains_key(name) {
            return Err(Refusal::NoXattr);
        }
        let node = self.node_mut(ino);
        node.xattrs.remove(name);
        node.ctime = ask.now;
        Ok(Done::about(ino))
    }

    pub(crate) fn get_xattr(&self, ino: Ino, name: &[u8], cred: &Cred) -> Result<Vec<u8>, Refusal> {
        let node = self.node(ino)?;
        node.may_get_xattr(name, cred)?;
        node.xattrs.get(name).cloned().ok_or(Refusal::NoXattr)
    }

    pub(crate) fn xattr_names(&self, ino: Ino, cred: &Cred) -> Vec<u8> {
        let seen = |name: &&Vec<u8>| administers(cred) || !name.starts_with(b"trusted.");
        self.nodes[&ino].xattrs.keys().filter(seen).flat_map(|n| [n.as_slice(), b"\0"].concat()).collect()
    }
}

/// CAP_SYS_ADMIN, and not in a user namespace.
fn administers(cred: &Cred) -> bool {
    cred.everywhere(Capabilities::SYS_ADMIN).expect("the model is asked with all that is known")
}

impl Node {
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

    /// What a write or chown by one who is not root clears.
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
