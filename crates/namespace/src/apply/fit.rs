//! Whether an event fits the state: for replay, where journal and store may disagree (a tool erased events, a directory
//! was mixed up). An event at which [`Namespace::apply`] would panic, or make a directory lie, is reported instead.

use std::fmt;

use chiton_model::{Decoupling, Event, InodeTouch, Role, Rows};
use chiton_types::{Ino, Kind, Name, Position, RealmId};

use crate::inode::{COMPLETE, Inode};
use crate::namespace::Namespace;
use crate::node::Share;

/// Why an event does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// An inode that it changes does not exist.
    Absent(Ino),
    /// An inode that it makes exists.
    Present(Ino),
    /// An inode that it makes would lie in a shard that this file system does not have.
    Shard(Ino),
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
            Misfit::Shard(ino) => {
                write!(
                    f,
                    "inode {ino} would lie in shard {}, which this file system does not have",
                    ino.shard()
                )
            }
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
    /// Whether `event` can be applied at `position` in a file system with so many shards,
    /// as far as the rows in memory show. To be asked when [`Namespace::needs`] is empty.
    ///
    /// # Errors
    /// The misfit.
    pub fn fit(&self, event: &Event, position: Position, shards: u16) -> Result<(), Misfit> {
        if let Event::Parent { .. } = event {
            // It fits whether or not the inode still exists.
            return Ok(());
        }
        let footprint = event.footprint();
        for touch in footprint.inodes().iter().filter(|touch| self.owns(touch.ino)) {
            if touch.role == Role::Newborn && touch.ino.shard().0 >= shards {
                return Err(Misfit::Shard(touch.ino));
            }
            self.fits_role(touch, position)?;
        }
        for change in footprint.names().filter(|change| self.owns(change.dir)) {
            if let Some(ino) = change.before {
                let stays = footprint.names().filter(|other| other.before == Some(ino)).count() == 1;
                require(ino, stays)?;
                let is_dir = event.kind_of(ino) == Some(Kind::Dir);
                let dir = self.existing_dir(change.dir, position)?;
                if !matches!(event, Event::Moved { .. }) {
                    self.may_lose_names(ino, dir.ino, position)?;
                }
                can_lose(dir, is_dir)?;
            }
        }
        for change in footprint.names() {
            let named = change.before.into_iter().chain(change.after);
            for ino in named.filter(|ino| self.owns(*ino)) {
                let (is_here, kind) = (self.inodes.get(ino), event.kind_of(ino));
                require(ino, is_here.zip(kind).is_none_or(|(inode, kind)| inode.kind() == kind))?;
            }
        }
        for change in footprint.names().filter(|change| self.owns(change.dir)) {
            self.bears(change.dir, change.name, change.before)?;
        }
        if let Event::Link { ino, kind, .. } = event {
            require(*ino, *kind != Kind::Dir)?;
        }
        if let Event::Restore { parent, ino, .. } = event {
            require(*ino, self.existing(*ino, position)?.nlink == 0 && ino != parent)?;
        }
        if let Event::Decoupled(decoupling) = event {
            let is_new = decoupling.id.0 > self.decoupling_last;
            return if is_new { Ok(()) } else { Err(Misfit::Decoupling(decoupling.id)) };
        }
        if let Event::Granted { id, ranges } = event {
            self.decoupled(*id, |d| ranges.iter().all(|&(first, end)| !d.map.overlaps(first, end)))?;
        }
        if let Event::Merged(merged) = event {
            self.decoupled(merged.id, |d| d.root() == merged.map.root())?;
        }
        if let Event::Attached(attached) = event {
            self.decoupled(attached.id, |_| true)?;
        }
        if let Event::DecouplingEnded { id } = event {
            self.decoupled(*id, |_| true)?;
        }
        Ok(())
    }

    /// Whether an inode is there and is what an event presumes of it.
    fn fits_role(&self, touch: &InodeTouch, position: Position) -> Result<(), Misfit> {
        let ino = touch.ino;
        match touch.role {
            Role::Newborn if self.inodes.get(ino).is_some() => Err(Misfit::Present(ino)),
            Role::Newborn => Ok(()),
            Role::Directory | Role::Root => self.existing_dir(ino, position).map(drop),
            Role::Victim => self.existing(ino, position).map(drop),
            Role::Orphan => {
                let inode = self.existing(ino, position)?;
                // A part has no name either.
                require(ino, inode.nlink == 0 || inode.node.share() == Share::Part)
            }
            Role::Source => require(ino, self.existing(ino, position)?.kind() == Kind::File),
            Role::Subject => {
                let inode = self.existing(ino, position)?;
                require(
                    ino,
                    inode.kind() == Kind::File || !touch.writes.has_any(Rows::CONTENT.and(Rows::BLOCKS)),
                )
            }
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
        require(ino, inode.kind() == Kind::Dir)?;
        Ok(inode)
    }

    /// The inode can lose a name in a directory.
    fn may_lose_names(&self, ino: Ino, dir: Ino, position: Position) -> Result<(), Misfit> {
        if !self.owns(ino) {
            return Ok(());
        }
        require(ino, self.existing(ino, position)?.nlink > 0 && ino != dir)
    }

    /// A name stands for `expected`, if the entry is in memory.
    fn bears(&self, dir: Ino, name: &Name, expected: Option<Ino>) -> Result<(), Misfit> {
        let slot = self.dirs.get(&dir).and_then(|held| held.find(name.hash64(), name.as_bytes()));
        match slot {
            // A row that cannot be read may have been anything: the journal knows it better.
            Some(slot) if slot.is_unreadable() => Ok(()),
            Some(slot) if slot.kind().map(|_| slot.ino) != expected => Err(Misfit::Entry(dir, name.clone())),
            None if expected.is_some() && self.inodes.get(dir).is_some_and(|dir| dir.has(COMPLETE)) => {
                Err(Misfit::Entry(dir, name.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// The directory can lose a name.
fn can_lose(dir: &Inode, is_dir: bool) -> Result<(), Misfit> {
    let links_left = !is_dir || dir.nlink == 0 || dir.nlink > 2;
    require(dir.ino, dir.entries() > 0 && links_left)
}

fn require(ino: Ino, holds: bool) -> Result<(), Misfit> {
    if holds { Ok(()) } else { Err(Misfit::Wrong(ino)) }
}
