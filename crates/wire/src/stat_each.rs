//! Many questions in one message: attributes of inodes, by their numbers or by names.
//!
//! ```text
//!   Query::StatEach   [Name(dir, "a"), Name(dir, "b"), Inode(9), Inode(8)]
//!   Answer::Stats     [Attr,           Absent,         Attr,     Refused]
//! ```

use chiton_model::choice;
use chiton_model::field::Bits;
use chiton_types::{Attr, Ino, Name};

use crate::lease::LeaseMode;

choice! {
    /// An inode of which a client wants the attributes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum StatTarget "target" {
        /// By its number, as [`crate::Query::GetAttr`].
        0 Inode(ino: Ino)
        /// By its name in a directory, as [`crate::Query::Lookup`].
        1 Name {
            parent: Ino,
            name: Name,
        }
        /// By its number, and it is opened, as [`crate::Query::Open`].
        2 Open {
            ino: Ino,
            /// Bits of [`chiton_types::access`]; 0: without a check.
            want: u8 as Bits<7>,
        }
    }
}

choice! {
    /// The answer about one target.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Stat "stat" {
        0 Attr {
            attr: Attr,
            /// The lease that the session now has on it; none unless the question asks for leases.
            lease: LeaseMode,
        }
        /// The directory lacks the name.
        1 Absent
        /// The name is that of an inode of another plate, which is to be asked for its attributes.
        2 Elsewhere(ino: Ino)
    }
}

impl StatTarget {
    /// Its directory and name, if it is asked for by name.
    pub fn named(&self) -> Option<(Ino, &Name)> {
        match self {
            StatTarget::Name { parent, name } => Some((*parent, name)),
            StatTarget::Inode(_) | StatTarget::Open { .. } => None,
        }
    }

    /// The inode at whose plate this is asked: its own, or that of the directory.
    pub fn place(&self) -> Ino {
        match self {
            StatTarget::Inode(ino) | StatTarget::Open { ino, .. } => *ino,
            StatTarget::Name { parent, .. } => *parent,
        }
    }
}
