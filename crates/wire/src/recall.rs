//! The two messages of the recall channel.

use chiton_model::field::Fixed;
use chiton_model::record;
use chiton_types::Ino;

use crate::lease::LeaseMode;

record! {
    /// The server asks for a lease back (recall channel).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Recall "recall" {
        /// To be repeated in the acknowledgement.
        pub id: u64 as Fixed,
        /// Inode; [`Recall::EVERYTHING`]: each on which the client may hold a lease. A client that keeps a `Shared` one has sent its
        /// pending operations before it acknowledges.
        pub ino: Ino,
        /// The lease that the client may keep: `None`, or `Shared` (write back what is dirty, keep reading).
        pub keep: LeaseMode,
        /// Not a recall: the client keeps what it has, and is to know of this before it acknowledges.
        pub grown: Option<Grown>,
    }
}

impl Recall {
    /// Stands for all inodes.
    pub const EVERYTHING: Ino = Ino(0);
}

record! {
    /// A file that the client has open grew elsewhere.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Grown "growth" {
        /// Its size in bytes, at least 1.
        pub size: u64 as Fixed,
        /// Value of the last byte of the file.
        pub last: u8,
    }
}

record! {
    /// The client gave the lease back (recall channel).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RecallDone "recall done" {
        /// Number of the recall that is acknowledged.
        pub id: u64 as Fixed,
    }
}
