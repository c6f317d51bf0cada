//! The conversation with the Linux kernel over `/dev/fuse`: requests come in, replies and notifications go out.
//!
//! ```text
//!   kernel ── /dev/fuse ──▶ Device (one clone a thread) ── Fields ──▶ dispatch ──▶ Filesystem (the shell)
//!      ▲                        ▲                                                    │
//!      │                        └───────────────── Reply ◀───────────────────────────┘
//!      └─────────────────────── Notifier: names, attributes and pages that no longer hold
//! ```
//!
//! It replaces a library because no library passes on all fields of the kernel's requests: see
//! `docs/decisions/2026-11-25-fuse-session.md`.
//!
//! # Getting started
//!
//! Implement [`Filesystem`], attach `/dev/fuse` to a directory, and run a [`Session`]; `chiton-fuse` does this in
//! `mount.rs`.
//!
//! Invariants:
//! - Every request is answered exactly once: a reply that is dropped answers EIO.
//! - A reply leaves through the descriptor that its request came from; the kernel looks for it nowhere else.
//! - Nothing here knows a file system: numbers, names and bytes are passed on as they are.
//! - All numbers are in the byte order of the machine, as the kernel has them.
//!
//! # Layout
//!
//! - [`Filesystem`]: the operations, in the order of `linux/fuse.h`. [`Session`]: the threads that serve them.
//! - `dispatch`, `fields`: decoding requests. `reply`, `body`, `attr`: encoding replies. `abi`, `flags`: numbers.
//! - `init`: FUSE_INIT. `device`: `/dev/fuse`. `worker_pool`: threads on demand. `notifier`: notifications.

mod filesystem;
mod session;

mod attr;
mod flags;
mod numbers;
mod reply;

mod notifier;

mod abi;
mod body;
mod device;
mod dispatch;
mod fields;
mod init;
mod worker_pool;

pub use attr::{Errno, FileAttr, FileType, SetAttr, TimeOrNow, Timestamp};
pub use filesystem::Filesystem;
pub use flags::{AccessFlags, CopyFileRangeFlags, FopenFlags, InitFlags, OpenFlags, RenameFlags, WriteFlags};
pub use init::KernelConfig;
pub use notifier::Notifier;
pub use numbers::{FileHandle, Generation, INodeNo, LockAsked, LockOwner, Request};
pub use reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
pub use session::Session;
