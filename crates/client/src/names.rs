//! Calls that change the tree.

use chiton_model::{AttrChange, Make, Op, Outcome, RenameHow};
use chiton_types::{Ino, Kind, Mode, Name, Refusal};
use chiton_wire::{Answer, Call, LeaseMode};

use crate::cache::Since;
use crate::client::{Client, Entry};
use crate::service::Caller;
use crate::write_behind;

impl Client {
    /// Asks for an operation and returns what became of it, with the lease on its inode.
    pub(crate) fn operate(
        &self,
        caller: &Caller<'_>,
        op: Op,
        open: bool,
    ) -> Result<(Outcome, LeaseMode, Since), Refusal> {
        let since = self.since();
        if let Some(outcome) = self.operate_locally(caller, &op, open) {
            return Ok((outcome, LeaseMode::Exclusive, since));
        }
        let dir = write_behind::dir_of(&op).filter(|_| self.core.write_behind.is_on());
        match self.ask(caller, Call::Op { op, open })? {
            Answer::Op { outcome, lease, .. } => {
                if let Some(dir) = dir {
                    self.core.write_behind.of(dir).asked_change(dir);
                }
                Ok((outcome, lease, since))
            }
            _ => Err(Refusal::Io),
        }
    }

    fn make(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        make: Make,
        mode: Mode,
    ) -> Result<Entry, Refusal> {
        let name = new_name(name)?;
        let op = Op::Make { parent, name: name.clone(), make, mode };
        let (outcome, lease, since) = self.operate(caller, op, false)?;
        let attr = outcome.attr.ok_or(Refusal::Io)?;
        Ok(self.entry(since, Some((parent, &name)), attr, lease))
    }

    /// Makes a directory. The umask is already applied to `mode`.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, caller: &Caller<'_>, parent: Ino, name: &[u8], mode: Mode) -> Result<Entry, Refusal> {
        self.make(caller, parent, name, Make::Dir, mode)
    }

    /// Makes a file, fifo, socket or device.
    ///
    /// # Errors
    /// As mknod(2).
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        kind: Kind,
        mode: Mode,
        rdev: u32,
    ) -> Result<Entry, Refusal> {
        let make = match kind {
            Kind::File => Make::File { content: Vec::new() },
            Kind::Dir | Kind::Symlink => return Err(Refusal::Invalid),
            kind => Make::Node { kind, rdev },
        };
        self.make(caller, parent, name, make, mode)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Refusal> {
        self.make(caller, parent, name, Make::Symlink { target: target.to_vec() }, Mode(0o777))
    }

    /// Gives a file a further name.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, caller: &Caller<'_>, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, Refusal> {
        let name = new_name(name)?;
        let op = Op::Link { ino, parent, name: name.clone() };
        let (outcome, lease, since) = self.operate(caller, op, false)?;
        let Some(attr) = outcome.attr else {
            // The answer was lost and repeated, and the file is of another plate than its new name.
            return self.getattr(ino, None);
        };
        Ok(self.entry(since, Some((parent, &name)), attr, lease))
    }

    /// Gives a file that has no name, and is open here, its first ([`Client::create_unnamed`]).
    ///
    /// # Errors
    /// As link(2); [`Refusal::Invalid`] if it has a name.
    pub fn link_unnamed(
        &self,
        caller: &Caller<'_>,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Entry, Refusal> {
        let name = new_name(name)?;
        let op = Op::LinkUnnamed { ino, parent, name: name.clone() };
        let (outcome, lease, since) = self.operate(caller, op, false)?;
        let attr = outcome.attr.ok_or(Refusal::Io)?;
        Ok(self.entry(since, Some((parent, &name)), attr, lease))
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn unlink(&self, caller: &Caller<'_>, parent: Ino, name: &[u8]) -> Result<(), Refusal> {
        self.operate(caller, Op::Unlink { parent, name: Name::new(name)? }, false).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, caller: &Caller<'_>, parent: Ino, name: &[u8]) -> Result<(), Refusal> {
        self.operate(caller, Op::Rmdir { parent, name: Name::new(name)? }, false).map(drop)
    }

    /// Removes the directory `ino` with everything in it, as one change. The server frees its content afterwards.
    ///
    /// # Errors
    /// As rmdir(2), and [`Refusal::Stale`] if the name is another inode's meanwhile. The tree stays and has to be removed name by name if the caller is neither root nor the owner of every directory
    /// in it, with the right to change its names; if the caller is not root and the tree lies on several plates; or if it carries policies, is
    /// decoupled, is not journalled or holds too many names to check.
    pub fn remove_tree(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        ino: Ino,
    ) -> Result<(), Refusal> {
        self.operate(caller, Op::RemoveTree { parent, name: Name::new(name)?, ino }, false).map(drop)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        from: Ino,
        from_name: &[u8],
        to: Ino,
        to_name: &[u8],
        how: RenameHow,
    ) -> Result<(), Refusal> {
        let op = Op::Rename { from, from_name: Name::new(from_name)?, to, to_name: Name::new(to_name)?, how };
        self.operate(caller, op, false).map(drop)
    }

    /// chmod, chown, truncate, utimens. With `fh` a truncation needs no right to write: it was checked at open.
    ///
    /// # Errors
    /// As those.
    pub fn setattr(
        &self,
        caller: &Caller<'_>,
        ino: Ino,
        mut change: AttrChange,
        fh: Option<u64>,
    ) -> Result<Entry, Refusal> {
        if let Some(size) = change.size.take() {
            let attr = self.files.truncate(caller, ino, fh, size)?;
            if change == AttrChange::default() {
                return Ok(Entry { attr, ..self.getattr(ino, fh)? });
            }
        } else {
            // Earlier writes must not set the times afterwards.
            self.files.push_inode(ino)?;
        }
        let op = Op::SetAttr { ino, change };
        let since = self.since();
        if let Some(attr) = self.set_attr_locally(caller, &op, ino) {
            return Ok(self.entry(since, None, attr, LeaseMode::Exclusive));
        }
        let (outcome, lease, since) = self.operate(caller, op, false)?;
        Ok(self.entry(since, None, outcome.attr.ok_or(Refusal::Io)?, lease))
    }
}

impl Client {
    /// chattr: makes a file or directory immutable or append-only, or no longer. `flags` are bits of [`Attr::SETTABLE`]; those
    /// that are not in it are cleared.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`] for all but the owner, and to change them without CAP_LINUX_IMMUTABLE;
    /// [`Refusal::Unsupported`] of other flags, and of an inode that is neither a file nor a directory.
    pub fn set_flags(&self, caller: &Caller<'_>, ino: Ino, flags: u8) -> Result<(), Refusal> {
        // Earlier writes are in the file.
        self.files.push_inode(ino)?;
        self.operate(caller, Op::SetFlags { ino, flags }, false).map(drop)
    }
}

/// A name to be made: `.` and `..` are there already.
pub(crate) fn new_name(name: &[u8]) -> Result<Name, Refusal> {
    match name {
        b"." | b".." => Err(Refusal::Exists),
        name => Name::new(name),
    }
}
