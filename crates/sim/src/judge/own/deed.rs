//! What an action of one client does to the model of its directory.

use chiton_namespace::RenameHow;
use chiton_types::{Ino, Kind, Name, Refusal, Time};

use super::Life;
use crate::history::{Action, Handle};
use crate::model::{Change, TIME_UNKNOWN, What};

/// What an action does.
#[derive(Default)]
pub(super) struct Deed {
    pub(super) changes: Vec<(Change, Time)>,
    /// First what is buffered of this file, or of all, is pushed.
    pub(super) pushes: Vec<Option<Ino>>,
    /// The same, afterwards.
    pub(super) pushes_after: Vec<Option<Ino>>,
    /// The changes stay in the client's buffers.
    pub(super) buffers: Option<Ino>,
    pub(super) durable: bool,
    pub(super) opens: Option<(Handle, Ino)>,
    pub(super) closes: Option<Handle>,
}

impl Deed {
    fn act(changes: Vec<(Change, Time)>) -> Deed {
        Deed { changes, ..Deed::default() }
    }
}

impl Life {
    fn find(&self, path: &str) -> Result<Ino, Refusal> {
        let within = self.within(path).ok_or(Refusal::CrossRealm)?;
        self.model.find(&within).ok_or(Refusal::NotFound)
    }

    /// What an action that follows symbolic links may be about.
    fn no_link(&self, path: &str) -> Result<Ino, Refusal> {
        let ino = self.find(path)?;
        let kind = self.model.node(ino).map(|node| node.kind);
        if kind == Some(Kind::Symlink) { Err(Refusal::Loop) } else { Ok(ino) }
    }

    fn parent(&self, path: &str) -> Result<(Ino, Name), Refusal> {
        let within = self.within(path).ok_or(Refusal::CrossRealm)?;
        self.model.find_parent(&within).ok_or(Refusal::NotFound)
    }

    /// What an action does to the model; `None`: nothing, or it is not about this directory.
    pub(super) fn deed(&self, action: &Action, ino: Ino, time: Time) -> Result<Option<Deed>, Refusal> {
        if action.clone().paths_mut().iter().any(|path| self.within(path).is_none()) {
            return Ok(None);
        }
        let make = |path: &str, what: What, mode: u16| -> Result<Change, Refusal> {
            let (parent, name) = self.parent(path)?;
            Ok(Change::Make { parent, name, ino, what, mode })
        };
        let one = |change: Change| Ok(Some(Deed::act(vec![(change, time)])));
        let pushed = |ino: Ino, change: Change| {
            Ok(Some(Deed { pushes: vec![Some(ino)], ..Deed::act(vec![(change, TIME_UNKNOWN)]) }))
        };
        match action {
            Action::Mkdir { path } => one(make(path, What::Dir, 0o755)?),
            Action::Create { path, content } => one(make(path, What::File(content.clone()), 0o644)?),
            Action::Symlink { path, target } => {
                one(make(path, What::Symlink(target.clone().into_bytes()), 0o777)?)
            }
            Action::Link { from, to } => {
                let ino = self.find(from)?;
                let (parent, name) = self.parent(to)?;
                one(Change::Link { ino, parent, name })
            }
            Action::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                one(Change::Unlink { parent, name })
            }
            Action::Rmdir { path } => {
                let (parent, name) = self.parent(path)?;
                one(Change::Rmdir { parent, name })
            }
            Action::Rename { from, to } => one(self.rename(from, to, RenameHow::Replace, ino)?),
            Action::Whiteout { from, to } => one(self.rename(from, to, RenameHow::Whiteout, ino)?),
            Action::Exchange { from, to } => one(self.rename(from, to, RenameHow::Exchange, ino)?),
            Action::SetXattr { path, name, value } => {
                let value = (!value.is_empty()).then(|| value.clone());
                let ino = self.no_link(path)?;
                if self.is_device(ino) {
                    // Of `user.` there is nothing but on files and directories.
                    return Err(Refusal::NotPermitted);
                }
                one(Change::Xattr { ino, name: name.clone(), value })
            }
            Action::Chmod { path, mode } => {
                let ino = self.no_link(path)?;
                pushed(ino, Change::Set { ino, mode: Some(*mode), atime: None, mtime: None })
            }
            Action::SetTimes { path, time } => {
                let ino = self.no_link(path)?;
                pushed(ino, Change::Set { ino, mode: None, atime: Some(*time), mtime: Some(*time) })
            }
            Action::Truncate { path, size } => {
                let ino = self.no_link(path)?;
                pushed(ino, Change::Truncate { ino, size: *size })
            }
            Action::Open { path, create, truncate, handle } => {
                let mut changes = Vec::new();
                // What another handle of this client has buffered goes before it is cut off; what the one that is replaced
                // has, when it is closed at the end.
                let mut pushes = Vec::new();
                let pushes_after = self.handles.get(handle).map(|before| Some(*before)).into_iter().collect();
                let opened = match self.no_link(path) {
                    Ok(there) if self.model.node(there).is_some_and(|node| node.kind == Kind::Dir) => {
                        return Err(Refusal::IsDir);
                    }
                    Ok(there) if self.is_device(there) => {
                        return Err(if *create { Refusal::Exists } else { Refusal::Invalid });
                    }
                    Ok(there) => {
                        if *truncate {
                            pushes.push(Some(there));
                            changes.push((Change::Truncate { ino: there, size: 0 }, TIME_UNKNOWN));
                        }
                        there
                    }
                    Err(Refusal::NotFound) if *create => {
                        changes.push((make(path, What::File(Vec::new()), 0o644)?, TIME_UNKNOWN));
                        ino
                    }
                    Err(refusal) => return Err(refusal),
                };
                changes.push((Change::Open { ino: opened }, TIME_UNKNOWN));
                if let Some(before) = self.handles.get(handle) {
                    changes.push((Change::Close { ino: *before }, TIME_UNKNOWN));
                }
                Ok(Some(Deed { pushes, pushes_after, opens: Some((*handle, opened)), ..Deed::act(changes) }))
            }
            Action::Write { handle, offset, bytes } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                let change = Change::Write { ino, pieces: vec![(*offset, bytes.clone())], size: 0 };
                Ok(Some(Deed { buffers: Some(ino), ..Deed::act(vec![(change, TIME_UNKNOWN)]) }))
            }
            Action::PunchHole { handle, offset, len } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                // Where nothing is stored but in the client's buffer, the hole is made there.
                let change = Change::Punch { ino, offset: *offset, len: *len };
                Ok(Some(Deed { buffers: Some(ino), ..Deed::act(vec![(change, TIME_UNKNOWN)]) }))
            }
            Action::Fsync { handle } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                Ok(Some(Deed { pushes: vec![Some(ino)], durable: true, ..Deed::act(Vec::new()) }))
            }
            Action::Close { handle } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                let changes = vec![(Change::Close { ino }, TIME_UNKNOWN)];
                Ok(Some(Deed { pushes: vec![Some(ino)], closes: Some(*handle), ..Deed::act(changes) }))
            }
            Action::FsyncDir => Ok(Some(Deed { durable: true, ..Deed::act(Vec::new()) })),
            Action::Sync => Ok(Some(Deed { pushes: vec![None], durable: true, ..Deed::act(Vec::new()) })),
            Action::Read { .. }
            | Action::ReadFile { .. }
            | Action::WriteFile { .. }
            | Action::Append { .. }
            | Action::FsyncAppended { .. }
            | Action::CloseAppended { .. }
            | Action::Stat { .. }
            | Action::ReadLink { .. }
            | Action::GetXattr { .. }
            | Action::List { .. }
            | Action::Follow { .. }
            | Action::MergeSoFar
            | Action::MergeAll
            | Action::Discard => Ok(None),
        }
    }

    fn is_device(&self, ino: Ino) -> bool {
        self.model.node(ino).is_some_and(|node| node.kind == Kind::Char)
    }

    fn rename(&self, from: &str, to: &str, how: RenameHow, whiteout: Ino) -> Result<Change, Refusal> {
        let (from, from_name) = self.parent(from)?;
        let (to, to_name) = self.parent(to)?;
        Ok(Change::Rename { from, from_name, to, to_name, how, whiteout })
    }
}
