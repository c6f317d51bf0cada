//! The effect of a client's action on the model of its directory.

use chiton_model::RenameHow;
use chiton_types::{Ino, Kind, Name, Refusal, Time};

use super::Life;
use crate::history::{Action, Handle};
use crate::model::{Change, NewInode, READ, SEARCH, TIME_UNKNOWN, WRITE};
use crate::users::User;

/// The effect of an action.
#[derive(Default)]
pub(super) struct Effect {
    pub(super) changes: Vec<(Change, Time)>,
    /// Files whose buffers are pushed before; `None`: all.
    pub(super) pushes: Vec<Option<Ino>>,
    pub(super) pushes_after: Vec<Option<Ino>>,
    /// The changes stay in the client's buffers.
    pub(super) buffers: Option<Ino>,
    pub(super) durable: bool,
    pub(super) opens: Option<(Handle, Ino)>,
    pub(super) closes: Option<Handle>,
}

impl Effect {
    fn act(changes: Vec<(Change, Time)>) -> Effect {
        Effect { changes, ..Effect::default() }
    }
}

impl Life {
    fn find(&self, user: User, path: &str) -> Result<Ino, Refusal> {
        let within = self.within(path).ok_or(Refusal::CrossDevice)?;
        self.model.walk(user, &within)
    }

    /// The inode of an action that follows symbolic links.
    fn no_link(&self, user: User, path: &str) -> Result<Ino, Refusal> {
        let ino = self.find(user, path)?;
        if self.kind(ino) == Some(Kind::Symlink) { Err(Refusal::Loop) } else { Ok(ino) }
    }

    fn kind(&self, ino: Ino) -> Option<Kind> {
        self.model.node(ino).map(|node| node.kind)
    }

    pub(super) fn parent(&self, user: User, path: &str) -> Result<(Ino, Name), Refusal> {
        let within = self.within(path).ok_or(Refusal::CrossDevice)?;
        let (dir, name) = within.rsplit_once('/').ok_or(Refusal::NotFound)?;
        Ok((self.model.walk(user, dir)?, Name::try_from(name).map_err(|_| Refusal::NotFound)?))
    }

    /// The effect of a user's action on the model; `None`: nothing, or it is not about this directory.
    pub(super) fn deed(
        &self,
        user: User,
        action: &Action,
        ino: Ino,
        time: Time,
    ) -> Result<Option<Effect>, Refusal> {
        if action.clone().paths_mut().iter().any(|path| self.within(path).is_none()) {
            return Ok(None);
        }
        let rights = &self.model;
        let make = |path: &str, what: NewInode, mode: u16| -> Result<Change, Refusal> {
            let (parent, name) = self.parent(user, path)?;
            rights.may_make(user, parent)?;
            let kind = match what {
                NewInode::File(_) => Kind::File,
                NewInode::Dir => Kind::Dir,
                NewInode::Symlink(_) => Kind::Symlink,
                NewInode::Whiteout => Kind::Char,
            };
            let birth = rights.birth(user, parent, kind, mode)?;
            Ok(Change::Make { parent, name, ino, what, birth })
        };
        let looked = || Ok(Some(Effect::default()));
        let one = |change: Change| Ok(Some(Effect::act(vec![(change, time)])));
        let pushed = |ino: Ino, change: Change| {
            Ok(Some(Effect { pushes: vec![Some(ino)], ..Effect::act(vec![(change, TIME_UNKNOWN)]) }))
        };
        match action {
            Action::Mkdir { path, mode } => one(make(path, NewInode::Dir, *mode)?),
            Action::Create { path, content } => one(make(path, NewInode::File(content.clone()), 0o644)?),
            Action::Symlink { path, target } => {
                one(make(path, NewInode::Symlink(target.clone().into_bytes()), 0o777)?)
            }
            Action::Link { from, to } => {
                let ino = self.find(user, from)?;
                let (parent, name) = self.parent(user, to)?;
                rights.may_make(user, parent)?;
                one(Change::Link { ino, parent, name })
            }
            Action::Unlink { path } => {
                let (parent, name) = self.parent(user, path)?;
                rights.may_remove(user, parent, &name)?;
                one(Change::Unlink { parent, name })
            }
            Action::Rmdir { path } => {
                let (parent, name) = self.parent(user, path)?;
                rights.may_remove(user, parent, &name)?;
                one(Change::Rmdir { parent, name })
            }
            Action::Rename { from, to } => one(self.rename(user, from, to, RenameHow::Replace, ino)?),
            Action::Whiteout { from, to } => one(self.rename(user, from, to, RenameHow::Whiteout, ino)?),
            Action::Exchange { from, to } => one(self.rename(user, from, to, RenameHow::Exchange, ino)?),
            Action::SetXattr { path, name, value } => {
                let value = (!value.is_empty()).then(|| value.clone());
                let ino = self.no_link(user, path)?;
                rights.may_set_xattr(user, ino)?;
                one(Change::Xattr { ino, name: name.clone(), value })
            }
            Action::Chmod { path, mode } => {
                let ino = self.no_link(user, path)?;
                rights.may_change(user, ino)?;
                let mode = Some(rights.mode_after(user, ino, *mode)?);
                pushed(ino, Change::Set { ino, mode, uid: None, gid: None, atime: None, mtime: None })
            }
            Action::SetTimes { path, time } => {
                let ino = self.no_link(user, path)?;
                rights.may_change(user, ino)?;
                let (atime, mtime) = (Some(*time), Some(*time));
                pushed(ino, Change::Set { ino, mode: None, uid: None, gid: None, atime, mtime })
            }
            Action::Chown { path, uid, gid } => {
                let ino = self.no_link(user, path)?;
                rights.may_give(user, ino, *uid, *gid)?;
                let (uid, gid) = (*uid, *gid);
                pushed(ino, Change::Set { ino, mode: None, uid, gid, atime: None, mtime: None })
            }
            Action::SetList { path, default, list } => {
                let ino = self.no_link(user, path)?;
                rights.may_change(user, ino)?;
                let change = Change::List { ino, default: *default, list: list.clone() };
                let mut changes = vec![(change, time)];
                if let Some(list) = list.as_ref().filter(|_| !*default) {
                    let before = rights.node(ino).map_or(0, |node| node.mode);
                    let mode = Some(rights.mode_after(user, ino, before & !0o777 | list.bits())?);
                    let set = Change::Set { ino, mode, uid: None, gid: None, atime: None, mtime: None };
                    changes.push((set, time));
                }
                Ok(Some(Effect::act(changes)))
            }
            Action::Truncate { path, size } => {
                let ino = self.no_link(user, path)?;
                rights.check(user, ino, WRITE)?;
                pushed(ino, Change::Truncate { ino, size: *size })
            }
            Action::Open { path, create, truncate, handle } => {
                let mut changes = Vec::new();
                // Buffers of another handle of this client are pushed before a truncation; those of a replaced
                // file, when it is closed at the end.
                let mut pushes = Vec::new();
                let pushes_after = self.handles.get(handle).map(|before| Some(*before)).into_iter().collect();
                let opened = match self.no_link(user, path) {
                    Ok(there) if self.kind(there) == Some(Kind::Dir) => return Err(Refusal::IsDir),
                    Ok(there) if self.kind(there) == Some(Kind::Char) => {
                        return Err(if *create { Refusal::Exists } else { Refusal::Invalid });
                    }
                    Ok(there) => {
                        rights.check(user, there, READ | WRITE)?;
                        if *truncate {
                            pushes.push(Some(there));
                            changes.push((Change::Truncate { ino: there, size: 0 }, TIME_UNKNOWN));
                        }
                        there
                    }
                    Err(Refusal::NotFound) if *create => {
                        changes.push((make(path, NewInode::File(Vec::new()), 0o644)?, TIME_UNKNOWN));
                        ino
                    }
                    Err(refusal) => return Err(refusal),
                };
                changes.push((Change::Open { ino: opened }, TIME_UNKNOWN));
                if let Some(before) = self.handles.get(handle) {
                    changes.push((Change::Close { ino: *before }, TIME_UNKNOWN));
                }
                Ok(Some(Effect {
                    pushes,
                    pushes_after,
                    opens: Some((*handle, opened)),
                    ..Effect::act(changes)
                }))
            }
            Action::Write { handle, offset, bytes } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                let change = Change::Write { ino, pieces: vec![(*offset, bytes.clone())], size: 0 };
                Ok(Some(Effect { buffers: Some(ino), ..Effect::act(vec![(change, TIME_UNKNOWN)]) }))
            }
            Action::PunchHole { handle, offset, len } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                // Where nothing is stored but in the client's buffer, the hole is made there.
                let change = Change::Punch { ino, offset: *offset, len: *len };
                Ok(Some(Effect { buffers: Some(ino), ..Effect::act(vec![(change, TIME_UNKNOWN)]) }))
            }
            Action::Fsync { handle } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                Ok(Some(Effect { pushes: vec![Some(ino)], durable: true, ..Effect::act(Vec::new()) }))
            }
            Action::Close { handle } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                let changes = vec![(Change::Close { ino }, TIME_UNKNOWN)];
                Ok(Some(Effect { pushes: vec![Some(ino)], closes: Some(*handle), ..Effect::act(changes) }))
            }
            Action::FsyncDir => Ok(Some(Effect { durable: true, ..Effect::act(Vec::new()) })),
            Action::Sync => Ok(Some(Effect { pushes: vec![None], durable: true, ..Effect::act(Vec::new()) })),
            Action::Stat { path } => self.find(user, path).and_then(|_| looked()),
            Action::List { path } => {
                let dir = self.no_link(user, path)?;
                if self.kind(dir) != Some(Kind::Dir) {
                    return Err(Refusal::NotDir);
                }
                rights.check(user, dir, READ)?;
                looked()
            }
            // The plate of a name is nothing that callers see.
            Action::Split { path } | Action::Fold { path } => {
                let dir = self.no_link(user, path)?;
                if self.kind(dir) != Some(Kind::Dir) {
                    return Err(Refusal::NotDir);
                }
                rights.may_change(user, dir)?;
                looked()
            }
            // A link to another name is not followed.
            Action::ReadFile { path } => match self.no_link(user, path) {
                Err(Refusal::Loop) => Ok(None),
                Err(refusal) => Err(refusal),
                Ok(ino) if self.kind(ino) != Some(Kind::File) => Err(Refusal::Invalid),
                Ok(ino) => rights.check(user, ino, READ).and_then(|()| looked()),
            },
            Action::Read { .. }
            | Action::WriteFile { .. }
            | Action::Append { .. }
            | Action::FsyncAppended { .. }
            | Action::CloseAppended { .. }
            | Action::ReadLink { .. }
            | Action::GetXattr { .. }
            | Action::Follow { .. }
            | Action::MergeSoFar
            | Action::MergeAll
            | Action::Discard => Ok(None),
        }
    }

    fn rename(
        &self,
        user: User,
        from: &str,
        to: &str,
        how: RenameHow,
        whiteout: Ino,
    ) -> Result<Change, Refusal> {
        let (from, from_name) = self.parent(user, from)?;
        let (to, to_name) = self.parent(user, to)?;
        let rights = &self.model;
        rights.check(user, from, SEARCH)?;
        rights.check(user, to, SEARCH)?;
        // Between two names of one file nothing is done.
        let named = |dir, name| rights.node(dir).and_then(|node| node.entries.get(name));
        if named(from, &from_name).is_none() || named(from, &from_name) != named(to, &to_name) {
            rights.may_remove(user, from, &from_name)?;
            rights.may_remove(user, to, &to_name)?;
            if from != to {
                rights.may_move(user, from, &from_name)?;
                if how == RenameHow::Exchange {
                    rights.may_move(user, to, &to_name)?;
                }
            }
        }
        let born = rights.birth(user, from, Kind::Char, 0)?;
        Ok(Change::Rename { from, from_name, to, to_name, how, whiteout, owner: (born.uid, born.gid) })
    }
}
