//! The state that `plan` reads: the namespace of a server, or the part of it that a client knows under its leases.
//!
//! ```text
//!   Namespace          every row is in memory or can be fetched ─┐
//!   a client's cache   names and attributes under leases ────────┼─▶ PlanState ─▶ plan ─▶ events, or a fault
//!   Attr               one inode alone ──────────────────────────┘
//! ```
//!
//! Invariant: an answer is right or it is [`Fault::Missing`]. The server then fetches the row and asks again; a client asks the
//! server.

use chiton_model::{Body, Event, Rows};
use chiton_types::{Attr, Ino, Kind, Mode, Name, Position, Refusal, Time};

use crate::fault::{Fault, Need};
use crate::values::Xattrs;

/// Where the content of a file is, or the target of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentIn {
    /// The inode has no content.
    Nothing,
    /// In a row of its own.
    Inline,
    /// In blocks, which chunks map. A file may be mapped that has holes only.
    Blocks,
}

/// The fields of an inode that decisions depend on.
#[derive(Clone, Copy, Debug)]
pub struct InodeFacts {
    pub ino: Ino,
    /// The directory where it was born or moved to last (itself for the root).
    pub parent: Ino,
    /// Position of the last change.
    pub position: Position,
    pub kind: Kind,
    /// Permissions. With an access list the group's bits are its mask.
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
    /// Number of names (directories: 2 + subdirectories).
    pub nlink: u32,
    /// Size in bytes; 0 of directories.
    pub size: u64,
    /// Last change of attributes.
    pub ctime: Time,
    pub flags: u8,
    /// The location of its content.
    pub content: ContentIn,
}

impl InodeFacts {
    /// `chattr +i`: nobody may change it.
    pub fn is_immutable(&self) -> bool {
        self.flags & Attr::IMMUTABLE != 0
    }

    /// `chattr +a`: it may only grow.
    pub fn is_append_only(&self) -> bool {
        self.flags & Attr::APPEND_ONLY != 0
    }

    /// It must stay as it is: attributes, and names.
    pub fn is_kept(&self) -> bool {
        self.flags & Attr::SETTABLE != 0
    }

    /// Of an inode with these attributes. They do not say where its content is.
    pub fn new(attr: &Attr, content: ContentIn) -> InodeFacts {
        InodeFacts {
            ino: attr.ino,
            parent: attr.parent,
            position: attr.position,
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            size: if attr.kind == Kind::Dir { 0 } else { attr.size },
            ctime: attr.ctime,
            flags: attr.flags,
            content,
        }
    }
}

/// An implementation may leave out methods that have a default: the default reports the rows as missing.
pub trait PlanState {
    /// An inode.
    ///
    /// # Errors
    /// [`Refusal::Stale`] if it is gone.
    fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault>;

    /// The inode that bears a name in a directory; `None` if there is none.
    ///
    /// # Errors
    /// [`Refusal::Io`] if the entry cannot be read.
    fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault>;

    /// Whether a directory has no entries.
    ///
    /// # Errors
    fn is_empty(&self, dir: &InodeFacts) -> Result<bool, Fault> {
        Err(Need::Dir(dir.ino).into())
    }

    /// The parts of a directory that has any, its own inode among them.
    ///
    /// # Errors
    fn parts(&self, dir: &InodeFacts) -> Result<Vec<Ino>, Fault> {
        Err(Need::Content(dir.ino).into())
    }

    /// All extended attributes.
    ///
    /// # Errors
    fn xattrs(&self, inode: &InodeFacts) -> Result<Option<&Xattrs>, Fault> {
        Err(Need::Xattrs(inode.ino).into())
    }

    /// Inline content; empty if there is none.
    ///
    /// # Errors
    fn inline_content(&self, inode: &InodeFacts) -> Result<&[u8], Fault> {
        Err(Need::Content(inode.ino).into())
    }

    /// Refuses unless two directories are of one realm.
    ///
    /// # Errors
    /// [`Refusal::CrossDevice`].
    fn same_realm(&self, a: Ino, b: Ino) -> Result<(), Fault> {
        if a == b { Ok(()) } else { Err(Fault::Missing(vec![Need::Inode(a), Need::Inode(b)])) }
    }

    /// Everything is in memory that an event changes in maps of content.
    ///
    /// # Errors
    fn has_maps_for(&self, event: &Event) -> Result<(), Fault> {
        if let Event::Write { body: Body::Inline(_), .. } = event {
            return Ok(());
        }
        match event.footprint().writes(Rows::CONTENT.and(Rows::BLOCKS)).next() {
            Some(ino) => Err(Need::Chunks(ino).into()),
            None => Ok(()),
        }
    }

    /// The first chunk that the next step of a reclaim frees.
    ///
    /// # Errors
    fn reclaim_from(&self, inode: &InodeFacts) -> Result<u32, Fault> {
        Err(Need::Chunks(inode.ino).into())
    }
}

/// One inode of which the attributes are known, and nothing else.
impl PlanState for Attr {
    fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault> {
        match ino == self.ino {
            // Only questions about permissions are decided with so little.
            true => Ok(InodeFacts::new(self, ContentIn::Blocks)),
            false => Err(Need::Inode(ino).into()),
        }
    }

    fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault> {
        Err(Need::Entry(dir.ino, name.clone()).into())
    }
}

pub(super) fn dir<S: PlanState>(state: &S, ino: Ino) -> Result<InodeFacts, Fault> {
    let inode = state.inode(ino)?;
    if inode.kind == Kind::Dir { Ok(inode) } else { Err(Refusal::NotDir.into()) }
}
