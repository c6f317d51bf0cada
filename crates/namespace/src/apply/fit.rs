//! Whether an event fits the state: for replay, where journal and store may disagree (a tool erased events, a directory
//! was mixed up). What [`Namespace::apply`] would panic at, or make a directory lie by, is named instead.

use std::fmt;

use chiton_model::Decoupling;
use chiton_model::{Event, Over};
use chiton_types::{Ino, Kind, Name, Position, RealmId};

use crate::inode::{COMPLETE, Inode};
use crate::namespace::Namespace;

/// Why an event does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// An inode that it changes does not exist.
    Absent(Ino),
    /// An inode that it makes exists.
    Present(Ino),
    /// An inode is of another type, or has other names, than the event presumes.
    Wrong(Ino),
    /// An inode carries the position of a later event: this one was applied before.
    Newer(Ino, Position),
    /// A name in this directory does not bear what the event presumes.
    Entry(Ino, Name),
    /// This decoupling is not there, is there already, or is not as the event presumes.
    Decoupling(RealmId),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Absent(ino) => write!(f, "inode {ino} does not exist"),
            Misfit::Present(ino) => write!(f, "inode {ino} exists already"),
            Misfit::Wrong(ino) => write!(f, "inode {ino} is not what the event presumes"),
            Misfit::Newer(ino, position) => {
                write!(f, "inode {ino} is as position {position} left it: the event was applied before")
            }
            Misfit::Entry(dir, name) => {
                write!(f, "the name {name:?} in directory {dir} does not bear what the event presumes")
            }
            Misfit::Decoupling(id) => write!(f, "decoupling {id} is not what the event presumes"),
        }
    }
}

impl std::error::Error for Misfit {}

impl Namespace {
    /// Whether `event` can be applied at `position`, as far as what is in memory tells. To be asked when [`Namespace::needs`] is
    /// empty.
    ///
    /// # Errors
    /// What does not fit.
    pub fn fit(&self, event: &Event, position: Position) -> Result<(), Misfit> {
        match event {
            Event::Make { parent, name, ino, .. } => {
                self.existing_dir(*parent, position)?;
                if self.inodes.get(*ino).is_some() {
                    return Err(Misfit::Present(*ino));
                }
                self.bears(*parent, name, None)
            }
            Event::Link { parent, name, ino, .. } => {
                self.existing_dir(*parent, position)?;
                require(*ino, self.existing(*ino, position)?.kind != Kind::Dir)?;
                self.bears(*parent, name, None)
            }
            Event::Unlink { parent, name, ino, .. } => {
                let dir = self.existing_dir(*parent, position)?;
                self.can_lose(dir, *ino, position)?;
                self.bears(*parent, name, Some(*ino))
            }
            Event::Rename { from, from_name, to, to_name, ino, over, .. } => {
                let (from_dir, to_dir) =
                    (self.existing_dir(*from, position)?, self.existing_dir(*to, position)?);
                self.can_lose(from_dir, *ino, position)?;
                match over {
                    Over::Nothing => {}
                    Over::Replaced { ino: other, .. } => {
                        require(*other, other != ino)?;
                        self.can_lose(to_dir, *other, position)?;
                    }
                    Over::Exchanged { ino: other } => {
                        require(*other, other != ino)?;
                        self.can_lose(to_dir, *other, position)?;
                    }
                }
                self.bears(*from, from_name, Some(*ino))?;
                self.bears(*to, to_name, over.ino())
            }
            Event::SetAttr { ino, size, .. } => {
                let inode = self.existing(*ino, position)?;
                require(*ino, size.is_none() || inode.kind == Kind::File)
            }
            Event::Write { ino, .. } | Event::Remap { ino, .. } | Event::Revert { ino, .. } => {
                require(*ino, self.existing(*ino, position)?.kind == Kind::File)
            }
            Event::Clone { from, to, .. } => {
                require(*from, self.existing(*from, position)?.kind == Kind::File)?;
                require(*to, self.existing(*to, position)?.kind == Kind::File)
            }
            Event::Xattr { ino, .. } => self.existing(*ino, position).map(drop),
            Event::Touch { ino, .. } => self.existing_dir(*ino, position).map(drop),
            Event::Restore { parent, name, ino, .. } => {
                self.existing_dir(*parent, position)?;
                require(*ino, self.existing(*ino, position)?.nlink == 0 && ino != parent)?;
                self.bears(*parent, name, None)
            }
            Event::Reclaim { ino, .. } => require(*ino, self.existing(*ino, position)?.nlink == 0),
            Event::Policy(change) => self.existing_dir(change.ino, position).map(drop),
            Event::Decoupled(decoupling) => {
                self.existing_dir(decoupling.root(), position)?;
                let is_new = decoupling.id.0 > self.decoupling_last;
                if is_new { Ok(()) } else { Err(Misfit::Decoupling(decoupling.id)) }
            }
            Event::Attached(attached) => self.decoupled(attached.id, |_| true),
            Event::Granted { id, ranges } => {
                self.decoupled(*id, |d| ranges.iter().all(|&(first, end)| !d.map.overlaps(first, end)))
            }
            Event::Merged(merged) => self.decoupled(merged.id, |d| d.root() == merged.map.root()),
            Event::DecouplingEnded { id } => self.decoupled(*id, |_| true),
            Event::Swept { .. }
            | Event::Reserve { .. }
            | Event::SessionOpened { .. }
            | Event::SessionClosed { .. }
            | Event::Skipped { .. } => Ok(()),
        }
    }

    fn decoupled(&self, id: RealmId, fits: impl FnOnce(&Decoupling) -> bool) -> Result<(), Misfit> {
        if self.decoupling(id).is_some_and(fits) { Ok(()) } else { Err(Misfit::Decoupling(id)) }
    }

    #[inline]
    fn existing(&self, ino: Ino, position: Position) -> Result<&Inode, Misfit> {
        let inode = self.inodes.get(ino).ok_or(Misfit::Absent(ino))?;
        if inode.position >= position { Err(Misfit::Newer(ino, inode.position)) } else { Ok(inode) }
    }

    fn existing_dir(&self, ino: Ino, position: Position) -> Result<&Inode, Misfit> {
        let inode = self.existing(ino, position)?;
        require(ino, inode.kind == Kind::Dir)?;
        Ok(inode)
    }

    /// The directory can lose a name of the inode.
    fn can_lose(&self, dir: &Inode, ino: Ino, position: Position) -> Result<(), Misfit> {
        let inode = self.existing(ino, position)?;
        require(ino, inode.nlink > 0 && ino != dir.ino)?;
        let links_left = if inode.kind == Kind::Dir { dir.nlink > 2 } else { true };
        require(dir.ino, dir.extra > 0 && links_left)
    }

    /// A name bears `expected`, if what it bears is in memory.
    fn bears(&self, dir: Ino, name: &Name, expected: Option<Ino>) -> Result<(), Misfit> {
        let slot = self.dirs.get(&dir).and_then(|held| held.find(name.hash64(), name.as_bytes()));
        match slot {
            // What cannot be read may have been anything: the journal knows it better.
            Some(slot) if slot.is_unreadable() => Ok(()),
            Some(slot) if slot.kind().map(|_| slot.ino) != expected => Err(Misfit::Entry(dir, name.clone())),
            None if expected.is_some() && self.inodes.get(dir).is_some_and(|dir| dir.has(COMPLETE)) => {
                Err(Misfit::Entry(dir, name.clone()))
            }
            _ => Ok(()),
        }
    }
}

fn require(ino: Ino, holds: bool) -> Result<(), Misfit> {
    if holds { Ok(()) } else { Err(Misfit::Wrong(ino)) }
}
