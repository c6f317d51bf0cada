//! A FUSE mount of a [`chiton_client::Client`]: a thin shell that translates and decides nothing.
//!
//! ```text
//!   kernel ── /dev/fuse ──▶ dispatch threads ── Shell ── Router ─┬─▶ Client      ◀── Control ◀── chiton merge …
//!      ▲                                         │               └─▶ the clients of decoupled subtrees
//!      │                                         │                       │ recalls, names narrowed
//!      └──────────── Kernel ◀── pages unleased ──┘◀──────────────────────┘
//!                    locks that wait: threads of their own
//! ```
//!
//! `docs/semantics.md` states what a mounted file system promises, and where it differs from POSIX; the tests quote
//! it by number.
//!
//! # Getting started
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use chiton_client::{Client, ClientOptions};
//! use chiton_fuse::{Mount, MountOptions};
//!
//! let client = Client::connect(&"unix:/srv/chiton/socket".parse()?, ClientOptions::default())?;
//! let mount = Mount::start(Arc::new(client), Path::new("/mnt/chiton"), MountOptions::default())?;
//! mount.wait()?; // until it is unmounted
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - Nothing else of the workspace, but `chiton-fuse-session`, knows FUSE.
//! - An errno comes from one table only: [`chiton_types::Refusal::errno`].
//! - A handler never waits for the kernel, and never for a lock of a file.
//!
//! # Layout
//!
//! - [`Mount`]: from start to end. `attach`: mount(2) and fusermount3. `end_notice`, `unmount_watch`: the end.
//! - `shell`: one handler for each FUSE request. `caller`: the credentials of its caller. `panic_guard`: its panics.
//! - `router`: which client serves an inode. `control`: requests about decoupled subtrees.
//! - `listing`: the offsets of listings. `listing_pages`: entries that the kernel had no room for.
//!   `listing_replies`: those that the kernel may not have read. `listing_use`: whether programs use the attributes.
//! - `kernel`, `invalidator`, `moves`: notifications to the kernel. `lock_waits`: waits for locks.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes and real mounts: nothing here runs in a simulation"
)]

mod error;
mod mount;
mod options;

mod attr;
mod caller;
mod listing;
mod listing_pages;
mod listing_replies;
mod listing_use;
mod lock_waits;
mod range_lock;
mod reply;
mod router;
mod shell;
mod shown_inodes;
mod unnamed;

mod invalidator;
mod kernel;
mod moves;

mod attach;
mod end_notice;
mod mount_table;
mod unmount_watch;

mod control;

mod open_files;
mod panic_guard;
mod proc_status;

pub use attach::{check_mount_point, is_dead};
pub use control::{
    AwaitedEnd, ControlReply, ControlRequest, GiveBack, Progress, ask_control, await_end, control_name,
};
pub use error::MountError;
pub use mount::{Mount, Unmounter};
pub use mount_table::also_mounted_at;
pub use options::MountOptions;
pub use shell::NOT_DURABLE;
