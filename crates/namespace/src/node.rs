//! The type of an inode, with the fields that only inodes of this type have.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Kind, Position};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    File {
        /// Size of the file in bytes.
        size: u64,
        /// Bytes of content, inline or mapped; holes do not count.
        bytes: u64,
    },
    Dir {
        /// Number of names, without `.` and `..`.
        entries: u64,
        /// Position of the last change of its own attributes. (The inode's position also says that an entry changed.) By it a
        /// merge knows a chmod from a create.
        attrs_changed: Position,
        /// Whether it has all names of its directory.
        share: Share,
    },
    Symlink {
        /// Length of the target in bytes.
        target_bytes: u64,
    },
    /// A character device, or a whiteout.
    Char {
        rdev: u32,
    },
    Block {
        rdev: u32,
    },
    Fifo,
    Socket,
}

/// The names of its directory that a directory's inode has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Share {
    #[default]
    All = 0,
    /// Those of its range. The other parts have the rest; its content row lists them all.
    Home = 1,
    /// Those of its range, which its content row has. The directory is its parent.
    Part = 2,
}

impl Node {
    /// The names of its directory that it has; [`Share::All`] unless it is a directory.
    #[inline]
    pub fn share(&self) -> Share {
        if let Node::Dir { share, .. } = self { *share } else { Share::All }
    }

    /// One that is born: with so many bytes of content, or as this device. Directories begin empty, and their attributes count
    /// as unchanged.
    pub fn new(kind: Kind, bytes: u64, rdev: u32) -> Node {
        match kind {
            Kind::File => Node::File { size: bytes, bytes },
            Kind::Dir => Node::Dir { entries: 0, attrs_changed: Position(0), share: Share::All },
            Kind::Symlink => Node::Symlink { target_bytes: bytes },
            Kind::Char => Node::Char { rdev },
            Kind::Block => Node::Block { rdev },
            Kind::Fifo => Node::Fifo,
            Kind::Socket => Node::Socket,
        }
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        match self {
            Node::File { .. } => Kind::File,
            Node::Dir { .. } => Kind::Dir,
            Node::Symlink { .. } => Kind::Symlink,
            Node::Char { .. } => Kind::Char,
            Node::Block { .. } => Kind::Block,
            Node::Fifo => Kind::Fifo,
            Node::Socket => Kind::Socket,
        }
    }

    /// Where a file ends, or a link's target; 0 for all else.
    #[inline]
    pub fn size(&self) -> u64 {
        match *self {
            Node::File { size, .. } => size,
            Node::Symlink { target_bytes } => target_bytes,
            Node::Dir { .. } | Node::Char { .. } | Node::Block { .. } | Node::Fifo | Node::Socket => 0,
        }
    }

    /// Bytes of content; 0 for types that can have none.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match *self {
            Node::File { bytes, .. } => bytes,
            Node::Symlink { target_bytes } => target_bytes,
            Node::Dir { .. } | Node::Char { .. } | Node::Block { .. } | Node::Fifo | Node::Socket => 0,
        }
    }

    /// Names in a directory; 0 for all else.
    #[inline]
    pub fn entries(&self) -> u64 {
        if let Node::Dir { entries, .. } = self { *entries } else { 0 }
    }

    /// A device's number; 0 for all else.
    #[inline]
    pub fn rdev(&self) -> u32 {
        if let Node::Char { rdev } | Node::Block { rdev } = self { *rdev } else { 0 }
    }

    /// Sets where a file ends. Nothing else ends elsewhere.
    pub fn set_size(&mut self, to: u64) {
        if let Node::File { size, .. } = self {
            *size = to;
        }
    }

    /// Sets the bytes of content of a file or a link.
    pub fn set_bytes(&mut self, to: u64) {
        if let Node::File { bytes, .. } | Node::Symlink { target_bytes: bytes } = self {
            *bytes = to;
        }
    }

    /// Sets which names of its directory it has.
    pub(crate) fn set_share(&mut self, to: Share) {
        if let Node::Dir { share, .. } = self {
            *share = to;
        }
    }

    /// Sets how many names a directory has.
    pub fn set_entries(&mut self, to: u64) {
        if let Node::Dir { entries, .. } = self {
            *entries = to;
        }
    }

    /// The part of a row's value that depends on the type.
    pub(crate) fn encode(&self, v: &mut Vec<u8>) {
        match *self {
            Node::File { size, bytes } => {
                v.put_varint(size);
                v.put_varint(bytes);
            }
            Node::Dir { entries, attrs_changed, share } => {
                v.put_varint(entries);
                v.put_varint(attrs_changed.0);
                v.put_u8(share as u8);
            }
            Node::Symlink { target_bytes } => v.put_varint(target_bytes),
            Node::Char { rdev } | Node::Block { rdev } => v.put_varint(u64::from(rdev)),
            Node::Fifo | Node::Socket => {}
        }
    }

    pub(crate) fn decode(kind: Kind, v: &mut Take<'_>) -> Result<Node, Malformed> {
        let device = |n: u64| u32::try_from(n).map_err(|_| Malformed { expected: "a device's number" });
        Ok(match kind {
            Kind::File => Node::File { size: v.varint()?, bytes: v.varint()? },
            Kind::Dir => {
                let (entries, attrs_changed) = (v.varint()?, Position(v.varint()?));
                let share = match v.u8()? {
                    0 => Share::All,
                    1 => Share::Home,
                    2 => Share::Part,
                    _ => return Err(Malformed { expected: "all names, a home or a part" }),
                };
                Node::Dir { entries, attrs_changed, share }
            }
            Kind::Symlink => Node::Symlink { target_bytes: v.varint()? },
            Kind::Char => Node::Char { rdev: device(v.varint()?)? },
            Kind::Block => Node::Block { rdev: device(v.varint()?)? },
            Kind::Fifo => Node::Fifo,
            Kind::Socket => Node::Socket,
        })
    }
}
