//! Operations on names. Checks come in the order of the table in `model.rs`.

use chiton_model::{INLINE_BYTES_MAX, LINKS_MAX, Make, RenameHow, SYMLINK_BYTES_MAX};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT};
use chiton_types::{Capabilities, Cred, Ino, Kind, Mode, Name, Refusal, access};

use crate::pools::list_bytes;
use crate::state::{Ask, Content, Done, Model, Node};

const CHANGE: u8 = access::WRITE | access::EXEC;

impl Model {
    pub(crate) fn make(
        &mut self,
        parent: Ino,
        name: &Name,
        make: &Make,
        mode: u16,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let dir = self.searched(parent, ask.cred)?;
        if dir.entries.contains_key(name) {
            return Err(Refusal::Exists);
        }
        dir.may(ask.cred, CHANGE)?;
        self.not_removed(parent)?;
        check_make(make, ask.cred)?;
        let mut node = Node::new(Kind::File, mode & 0o7777, ask.now, parent);
        node.uid = ask.cred.uid;
        let inherits = dir.has(Mode::SETGID);
        node.gid = if inherits { dir.gid } else { ask.cred.gid };
        match make {
            Make::File { content } => {
                node.size = content.len() as u64;
                node.content = Content::Inline(content.clone());
            }
            Make::Dir => {
                node.kind = Kind::Dir;
                node.mode |= if inherits { Mode::SETGID } else { 0 };
            }
            Make::Symlink { target } => {
                node.kind = Kind::Symlink;
                node.target = target.clone();
                node.mode = 0o777;
            }
            Make::Node { kind, rdev } => (node.kind, node.rdev) = (*kind, *rdev),
        }
        let keeps_setid = dir.can(ask.cred, Capabilities::FSETID);
        if node.kind != Kind::Dir
            && node.has(Mode::SETGID | 0o010)
            && !node.in_group(ask.cred)
            && !keeps_setid
        {
            node.mode &= !Mode::SETGID;
        }
        match dir.list(ACL_DEFAULT) {
            _ if node.kind == Kind::Symlink => {}
            None => node.mode &= !ask.cred.umask,
            Some(mut entries) => {
                let has_mask = entries.iter().any(|(tag, ..)| *tag == 16);
                let mut bits = 0;
                let is_more = entries.len() > 3;
                for (tag, rights, _) in &mut entries {
                    let shift = match *tag {
                        1 => 6,
                        16 => 3,
                        4 if !has_mask => 3,
                        32 => 0,
                        _ => continue,
                    };
                    bits |= (*rights & (node.mode >> shift)) << shift;
                    // The mode says it from now on.
                    *rights = 0;
                }
                node.mode = node.mode & !0o777 | bits;
                if is_more {
                    node.xattrs.insert(ACL_ACCESS.to_vec(), list_bytes(&entries));
                }
                if node.kind == Kind::Dir {
                    node.xattrs.insert(ACL_DEFAULT.to_vec(), dir.xattrs[ACL_DEFAULT].clone());
                }
            }
        }
        self.nodes.insert(ask.offered, node);
        let dir = self.node_mut(parent);
        dir.entries.insert(name.clone(), ask.offered);
        dir.changed(ask.now);
        Ok(Done::about(ask.offered))
    }

    /// As a file that is made and loses its name in the same moment.
    pub(crate) fn make_unnamed(&mut self, parent: Ino, mode: u16, ask: &Ask<'_>) -> Result<Done, Refusal> {
        let name = Name::try_from("a name of the model alone").expect("a name");
        let done = self.make(parent, &name, &Make::File { content: Vec::new() }, mode, ask)?;
        self.node_mut(parent).entries.remove(&name);
        Ok(done)
    }

    /// The first name of a file that has none and is open.
    pub(crate) fn link_unnamed(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: &Name,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let dir = self.searched(parent, ask.cred)?;
        let node = self.node(ino)?;
        if dir.entries.contains_key(name) {
            return Err(Refusal::Exists);
        }
        dir.may(ask.cred, CHANGE)?;
        if node.kind != Kind::File || self.nlink(ino) > 0 {
            return Err(Refusal::Invalid);
        }
        let sets_id = node.has(Mode::SETUID) || node.has(Mode::SETGID | 0o010);
        let is_safe = !sets_id && node.may(ask.cred, access::READ | access::WRITE).is_ok();
        if ask.cred.protected_hardlinks && !is_safe && !node.owned_by(ask.cred) {
            return Err(Refusal::NotPermitted);
        }
        self.not_removed(parent)?;
        if !self.open.contains(&ino) {
            return Err(Refusal::NotFound);
        }
        self.node_mut(ino).ctime = ask.now;
        self.node_mut(ino).parent = parent;
        let dir = self.node_mut(parent);
        dir.entries.insert(name.clone(), ino);
        dir.changed(ask.now);
        Ok(Done::about(ino))
    }

    pub(crate) fn link(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: &Name,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let dir = self.searched(parent, ask.cred)?;
        let node = self.node(ino)?;
        if dir.entries.contains_key(name) {
            return Err(Refusal::Exists);
        }
        dir.may(ask.cred, CHANGE)?;
        if node.kind == Kind::Dir {
            return Err(Refusal::NotPermitted);
        }
        let sets_id = node.has(Mode::SETUID) || node.has(Mode::SETGID | 0o010);
        let is_safe =
            node.kind == Kind::File && !sets_id && node.may(ask.cred, access::READ | access::WRITE).is_ok();
        if ask.cred.protected_hardlinks && !is_safe && !node.owned_by(ask.cred) {
            return Err(Refusal::NotPermitted);
        }
        self.not_removed(ino)?;
        self.not_removed(parent)?;
        if self.nlink(ino) >= LINKS_MAX {
            return Err(Refusal::TooManyLinks);
        }
        self.node_mut(ino).ctime = ask.now;
        let dir = self.node_mut(parent);
        dir.entries.insert(name.clone(), ino);
        dir.changed(ask.now);
        Ok(Done::about(ino))
    }

    /// unlink and rmdir.
    pub(crate) fn remove(
        &mut self,
        parent: Ino,
        name: &Name,
        is_rmdir: bool,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let dir = self.searched(parent, ask.cred)?;
        let &ino = dir.entries.get(name).ok_or(Refusal::NotFound)?;
        self.may_delete(parent, ino, is_rmdir, ask.cred)?;
        if is_rmdir && !self.nodes[&ino].entries.is_empty() {
            return Err(Refusal::NotEmpty);
        }
        self.node_mut(parent).entries.remove(name);
        self.node_mut(parent).changed(ask.now);
        Ok(Done { subject: Some(ino), gone: self.lost_a_name(ino, ask.now) })
    }

    /// As `may_delete` of Linux: write permission, then the sticky bit, then the type.
    fn may_delete(&self, parent: Ino, victim: Ino, as_dir: bool, cred: &Cred) -> Result<(), Refusal> {
        let (dir, node) = (&self.nodes[&parent], &self.nodes[&victim]);
        dir.may(cred, CHANGE)?;
        let acts = node.can(cred, Capabilities::FOWNER)
            && cred.over(Capabilities::FOWNER, node.uid, node.gid) == Some(true);
        if dir.has(Mode::STICKY) && ![node.uid, dir.uid].contains(&cred.uid) && !acts {
            return Err(Refusal::NotPermitted);
        }
        match (as_dir, node.kind == Kind::Dir) {
            (true, false) => Err(Refusal::NotDir),
            (false, true) => Err(Refusal::IsDir),
            _ => Ok(()),
        }
    }

    pub(crate) fn rename(
        &mut self,
        (from, from_name): (Ino, &Name),
        (to, to_name): (Ino, &Name),
        how: RenameHow,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let cred = ask.cred;
        let (from_dir, to_dir) = (self.dir(from)?, self.dir(to)?);
        from_dir.may(cred, access::EXEC)?;
        to_dir.may(cred, access::EXEC)?;
        let &ino = from_dir.entries.get(from_name).ok_or(Refusal::NotFound)?;
        let over = to_dir.entries.get(to_name).copied();
        match (how, over) {
            (RenameHow::NoReplace | RenameHow::NoReplaceWhiteout, Some(_)) => return Err(Refusal::Exists),
            (RenameHow::Exchange, None) => return Err(Refusal::NotFound),
            _ => {}
        }
        let is_dir = self.nodes[&ino].kind == Kind::Dir;
        if over == Some(ino) {
            return Ok(Done::about(ino));
        }
        if is_dir && self.within(to, ino) {
            return Err(Refusal::Invalid);
        }
        if over.is_some_and(|over| self.nodes[&over].kind == Kind::Dir && self.within(from, over)) {
            return Err(if how == RenameHow::Exchange { Refusal::Invalid } else { Refusal::NotEmpty });
        }
        self.may_delete(from, ino, is_dir, cred)?;
        to_dir.may(cred, CHANGE)?;
        self.not_removed(to)?;
        match over {
            None => {}
            Some(over) => {
                let over_is_dir = self.nodes[&over].kind == Kind::Dir;
                let as_dir = if how == RenameHow::Exchange { over_is_dir } else { is_dir };
                self.may_delete(to, over, as_dir, cred)?;
            }
        }
        // A directory whose parent changes is written to: its `..`.
        let swapped = over.filter(|_| how == RenameHow::Exchange);
        for moved in [Some(ino), swapped].into_iter().flatten() {
            let moved = &self.nodes[&moved];
            if from != to && moved.kind == Kind::Dir {
                moved.may(cred, access::WRITE)?;
            }
        }
        if how != RenameHow::Exchange && over.is_some_and(|over| !self.nodes[&over].entries.is_empty()) {
            return Err(Refusal::NotEmpty);
        }
        self.node_mut(from).entries.remove(from_name);
        self.node_mut(to).entries.insert(to_name.clone(), ino);
        self.node_mut(ino).parent = to;
        let mut gone = None;
        match (how, over) {
            (RenameHow::Exchange, Some(over)) => {
                self.node_mut(from).entries.insert(from_name.clone(), over);
                self.node_mut(over).parent = from;
                self.node_mut(over).ctime = ask.now;
            }
            (_, Some(over)) => gone = self.lost_a_name(over, ask.now),
            _ => {}
        }
        self.node_mut(ino).ctime = ask.now;
        self.node_mut(from).changed(ask.now);
        self.node_mut(to).changed(ask.now);
        if matches!(how, RenameHow::Whiteout | RenameHow::NoReplaceWhiteout) {
            let mut whiteout = Node::new(Kind::Char, 0, ask.now, from);
            whiteout.uid = cred.uid;
            let dir = self.node_mut(from);
            whiteout.gid = if dir.has(Mode::SETGID) { dir.gid } else { cred.gid };
            dir.entries.insert(from_name.clone(), ask.offered);
            self.nodes.insert(ask.offered, whiteout);
        }
        Ok(Done { subject: Some(ino), gone })
    }
}

fn check_make(make: &Make, cred: &Cred) -> Result<(), Refusal> {
    match make {
        Make::File { content } if content.len() > INLINE_BYTES_MAX => Err(Refusal::TooBig),
        Make::Symlink { target } if target.len() > SYMLINK_BYTES_MAX => Err(Refusal::NameTooLong),
        Make::Symlink { target } if target.is_empty() || target.contains(&0) => Err(Refusal::Invalid),
        Make::Node { kind: Kind::File | Kind::Dir | Kind::Symlink, .. } => Err(Refusal::Invalid),
        Make::Node { kind: Kind::Fifo | Kind::Socket, rdev } if *rdev != 0 => Err(Refusal::Invalid),
        // The device 0/0 is the mark of an overlay for what is removed.
        Make::Node { kind: Kind::Char, rdev: 0 } => Ok(()),
        Make::Node { kind: Kind::Char | Kind::Block, .. }
            if cred.everywhere(Capabilities::MKNOD) != Some(true) =>
        {
            Err(Refusal::NotPermitted)
        }
        _ => Ok(()),
    }
}
