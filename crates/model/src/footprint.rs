//! Which inodes and names an operation or event is about: the one answer to "what does this touch?".
//!
//! ```text
//!   rename a/x → b/y over an old file      place   b
//!                                          inodes  a Directory · b Directory · x Subject · y Victim
//!                                          names   (a, x): x → nothing · (b, y): y → x
//! ```
//!
//! Invariants:
//! - The tables of [`crate::Event`] and [`crate::Op`] declare it beside the tag and the fields. Leases, before-images, merges,
//!   interference, replay and the journal's filters ask it, and match no variant to find out themselves.
//! - Inodes stand in the order in which they are to be checked: directories first.

use chiton_types::{Ino, Name};

/// The part that an inode plays in an operation or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A directory in which a name changes, or as if in which something is made.
    Directory,
    /// The inode that it is about.
    Subject,
    /// It loses its name to the subject, or exchanges names with it.
    Victim,
    /// It begins to exist.
    Newborn,
    /// It has no name any more, and is freed.
    Orphan,
    /// Its content is read, and it stays as it is.
    Source,
    /// The root of a subtree: a policy or a decoupling of it changes.
    Root,
}

/// Which rows of an inode are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows(u8);

impl Rows {
    pub const NONE: Rows = Rows(0);
    /// The inode's own: permissions, owners, size, times, number of names, place.
    pub const ATTRS: Rows = Rows(1);
    pub const XATTRS: Rows = Rows(2);
    /// The bytes of a file.
    pub const CONTENT: Rows = Rows(4);
    /// The blocks that hold these bytes.
    pub const BLOCKS: Rows = Rows(8);
    /// The policy of a directory.
    pub const POLICY: Rows = Rows(16);
    pub const DECOUPLING: Rows = Rows(32);

    /// The rows that callers see: a lease of another client on an inode is in the way of a change.
    pub const SEEN: Rows = Rows::ATTRS.and(Rows::XATTRS).and(Rows::CONTENT).and(Rows::POLICY);
    /// The rows that a decoupled client reads, of which before-images are kept.
    pub const IMAGED: Rows = Rows::ATTRS.and(Rows::XATTRS).and(Rows::CONTENT).and(Rows::BLOCKS);

    /// The union of both sets.
    pub const fn and(self, other: Rows) -> Rows {
        Rows(self.0 | other.0)
    }

    /// The other ones too, if something holds.
    pub const fn and_if(self, holds: bool, other: Rows) -> Rows {
        if holds { self.and(other) } else { self }
    }

    /// Whether any of these is among them.
    pub const fn has_any(self, of: Rows) -> bool {
        self.0 & of.0 != 0
    }
}

/// An inode of a footprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeTouch {
    pub ino: Ino,
    pub role: Role,
    /// The rows that are written; none if the inode is only read.
    pub writes: Rows,
}

/// A name that an event changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameChange<'a> {
    pub dir: Ino,
    pub name: &'a Name,
    /// The inode that bears it before the event.
    pub before: Option<Ino>,
    /// The inode that bears it afterwards.
    pub after: Option<Ino>,
}

/// The use of a name by an operation. Which inode bears the name is known only from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameUse {
    /// Nothing bears it; it is given.
    Given,
    /// It is taken from an inode that is no directory.
    Removed,
    /// It is taken from a directory.
    RemovedDir,
    /// It is taken from the inode that moves.
    Left,
    /// It is given to the inode that moves, whatever bears it.
    Taken,
}

/// A name that an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameTouch<'a> {
    pub dir: Ino,
    pub name: &'a Name,
    pub how: NameUse,
}

/// `N` is [`NameChange`] or [`NameTouch`].
#[derive(Clone, Copy, Debug)]
pub struct Footprint<N> {
    /// The inode by which it belongs to a shard, a policy and a subtree; 0 if it belongs to none.
    pub place: Ino,
    inodes: [InodeTouch; INODES_MAX],
    inode_count: u8,
    names: [Option<N>; NAMES_MAX],
}

/// Most inodes of a footprint: those of a rename.
const INODES_MAX: usize = 4;
/// Most names of a footprint: the two of a rename.
const NAMES_MAX: usize = 2;

impl<N: Copy> Footprint<N> {
    #[inline]
    pub(crate) fn at(place: Ino) -> Footprint<N> {
        let none = InodeTouch { ino: Ino(0), role: Role::Source, writes: Rows::NONE };
        Footprint { place, inodes: [none; INODES_MAX], inode_count: 0, names: [None; NAMES_MAX] }
    }

    /// It belongs to the file system as a whole.
    #[inline]
    pub(crate) fn nowhere() -> Footprint<N> {
        Footprint::at(Ino(0))
    }

    #[inline]
    pub(crate) fn inode(mut self, role: Role, ino: Ino, writes: Rows) -> Footprint<N> {
        self.inodes[usize::from(self.inode_count)] = InodeTouch { ino, role, writes };
        self.inode_count += 1;
        self
    }

    #[inline]
    pub(crate) fn dir(self, ino: Ino) -> Footprint<N> {
        self.inode(Role::Directory, ino, Rows::ATTRS)
    }

    #[inline]
    pub(crate) fn subject(self, ino: Ino, writes: Rows) -> Footprint<N> {
        self.inode(Role::Subject, ino, writes)
    }

    #[inline]
    fn push_name(mut self, name: N) -> Footprint<N> {
        let free = self.names.iter_mut().find(|held| held.is_none());
        *free.expect("a footprint has at most two names") = Some(name);
        self
    }

    /// The inodes, directories first.
    #[inline]
    pub fn inodes(&self) -> &[InodeTouch] {
        &self.inodes[..usize::from(self.inode_count)]
    }

    /// The names, the old one of a rename first.
    #[inline]
    pub fn names(&self) -> impl Iterator<Item = N> + '_ {
        self.names.iter().flatten().copied()
    }

    /// Inodes of which any of these rows is written, without those that begin to exist or are freed: nobody else can
    /// have looked at them.
    #[inline]
    pub fn writes(&self, rows: Rows) -> impl Iterator<Item = Ino> + '_ {
        let is_looked_at = |touch: &&InodeTouch| !matches!(touch.role, Role::Newborn | Role::Orphan);
        self.inodes()
            .iter()
            .filter(is_looked_at)
            .filter(move |touch| touch.writes.has_any(rows))
            .map(|t| t.ino)
    }

    /// Whether any of these rows of an inode that is there changes, or ends with the inode.
    pub fn alters(&self, rows: Rows) -> bool {
        self.inodes().iter().any(|touch| touch.role != Role::Newborn && touch.writes.has_any(rows))
    }

    /// Visits each inode that is there already, and whether something of it is written, until `visit` refuses.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn visit<E>(&self, mut visit: impl FnMut(Ino, bool) -> Result<(), E>) -> Result<(), E> {
        let known = self.inodes().iter().filter(|touch| touch.role != Role::Newborn);
        known
            .map(|touch| (touch.ino, touch.writes != Rows::NONE))
            .try_for_each(|(ino, writes)| visit(ino, writes))
    }

    /// The inode that it is about: one that is there, begins to exist, or is freed.
    pub fn subject_inode(&self) -> Option<Ino> {
        let is_subject = |t: &&InodeTouch| matches!(t.role, Role::Subject | Role::Newborn | Role::Orphan);
        self.inodes().iter().find(is_subject).map(|touch| touch.ino)
    }

    /// The inode that begins to exist.
    pub fn newborn(&self) -> Option<Ino> {
        self.inodes().iter().find(|touch| touch.role == Role::Newborn).map(|touch| touch.ino)
    }

    /// The directories, each once.
    #[inline]
    pub fn dirs(&self) -> impl Iterator<Item = Ino> + '_ {
        let inodes = self.inodes();
        let dirs = inodes.iter().enumerate().filter(|(_, touch)| touch.role == Role::Directory);
        dirs.filter(|(at, touch)| !inodes[..*at].contains(touch)).map(|(_, touch)| touch.ino)
    }
}

impl<'a> Footprint<NameChange<'a>> {
    #[inline]
    pub(crate) fn changes(
        self,
        dir: Ino,
        name: &'a Name,
        before: Option<Ino>,
        after: Option<Ino>,
    ) -> Footprint<NameChange<'a>> {
        self.push_name(NameChange { dir, name, before, after })
    }

    /// The place, if the event changes something there that a decoupled client reads from rows.
    pub fn imaged_place(&self) -> Option<Ino> {
        self.writes(Rows::IMAGED).next().map(|_| self.place)
    }

    /// The inode that loses a name and gets none for it, or is freed: it may be gone by the event.
    pub fn loser(&self) -> Option<Ino> {
        let keeps = |ino: Ino| self.names().any(|name| name.after == Some(ino));
        let orphan = self.inodes().iter().find(|touch| touch.role == Role::Orphan).map(|touch| touch.ino);
        self.names().filter_map(|name| name.before).find(|ino| !keeps(*ino)).or(orphan)
    }
}

impl<'a> Footprint<NameTouch<'a>> {
    #[inline]
    pub(crate) fn uses(self, dir: Ino, name: &'a Name, how: NameUse) -> Footprint<NameTouch<'a>> {
        self.push_name(NameTouch { dir, name, how })
    }

    /// The name whose bearer may end, if that is a directory.
    #[inline]
    pub fn victim_dir(&self) -> Option<NameTouch<'a>> {
        self.names().find(|name| matches!(name.how, NameUse::RemovedDir | NameUse::Taken))
    }
}
