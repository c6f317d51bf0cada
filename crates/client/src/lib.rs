//! The client library, on which programs, tools and the mount stand.
//!
//! ```text
//!   path calls, batches ─┐
//!   handle calls ────────┴▶ Client ─┬─ cache of names and attributes (under leases)
//!                                   ├─ Files: file data
//!                                   └─ Service ─▶ a connection, or a server in this process (chiton-embedded);
//!                                                 of several plates: Routed ─▶ one of either for each
//! ```
//!
//! # Getting started
//!
//! ```no_run
//! use chiton_client::{Client, ClientOptions, OpenFlags};
//! use chiton_types::Refusal;
//!
//! # let refused = |refusal: Refusal| refusal.to_string();
//! let client = Client::connect(&"tcp:server:7117".parse()?, ClientOptions::default())?;
//!
//! // By path, as std::fs has it. A small file is one operation with its content.
//! client.mkdir_all("/results/run-1").map_err(refused)?;
//! client.create_file("/results/run-1/score", b"42").map_err(refused)?;
//! assert_eq!(client.read_file("/results/run-1/score"), Ok(b"42".to_vec()));
//!
//! // Parts of a file, through a handle.
//! let fh = client.open_path("/results/run-1/score", OpenFlags::READ_WRITE).map_err(refused)?;
//! client.write(&client.caller(), fh, 1 << 20, b"far away").map_err(refused)?;
//! client.release(fh).map_err(refused)?;
//!
//! // The server keeps what it has answered; after `sync` it also survives a crash.
//! client.sync().map_err(refused)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `chiton-embedded` makes a client of a server in the same process.
//!
//! A client outlives restarts of its server: every operation takes effect
//! exactly once, and callers see nothing but time that passes. Handles that are not released, and data that were
//! not flushed, end with the client: [`Client::sync`] before dropping it.
//!
//! Invariants:
//! - The client never takes a result back but by the failures that the durability level does not cover.
//! - The client believes no cached entry without a lease, or past the session's time.
//! - Threads and memory do not grow with the number of files.
//!
//! # Layout
//!
//! - [`Client`]: calls with handles (`client`, `names`, `open`, `xattrs`, `listing`), by path (`path`, `resolve`), many at once (`batch`,
//!   `pipeline`, `open_each`, `stat_each`); for administrators `admin`, `huge`; for mounts `mounted`, `pages`.
//! - [`data`]: the content of files.
//! - `core` and the caches under leases: `cache`, `complete_dirs`, `kernel_dentries`, `exclusion_cache`, `cache_invalidation`.
//! - `write_behind`: operations that the client acknowledges itself.
//! - [`Service`] (`service`): answers calls. `connected` with `session`, `link`, `remote_call`: a plate at the
//!   other end of a socket (`wire`, `dial`). [`Routed`]: several plates (`reached`, `part_lists`, `plate_inodes`).
//! - Recalls: `recall_pool`, `recall_handler`, `recall_inbox`, [`Recalls`].

#![warn(missing_docs)]

mod decorator;
mod service;

mod admin;
mod client;
mod limited;
mod listing;
mod mounted;
mod names;
mod open;
mod pages;

mod batch;
mod huge;
mod in_flight;
mod open_each;
mod path;
mod pipeline;
mod resolve;
mod stat_each;

mod write_behind;
mod xattrs;

mod cache;
mod cache_invalidation;
mod complete_dirs;
mod core;
mod exclusion_cache;
mod generations;
mod kernel_dentries;

pub mod data;

mod connected;
mod dial;
mod first_session;
mod held_locks;
mod kept_blocks;
mod link;
mod part_lists;
mod plate_inodes;
mod reached;
mod recall_handler;
mod recall_inbox;
mod recall_pool;
mod remote_call;
mod routed;
mod session;
mod wire;

mod cancel;
mod error;
mod flags;
mod handler;
mod options;
mod recalls;
mod renames;

#[cfg(test)]
mod tests;

pub use batch::{Each, NewFile};
pub use cancel::CancelToken;
pub use client::{Client, Entry, Listed, Lookup};
pub use core::Invalidator;
pub use error::ConnectError;
pub use flags::OpenFlags;
pub use in_flight::InFlight;
pub use open_each::FileToOpen;
pub use options::ClientOptions;
pub use part_lists::PartLists;
pub use pipeline::{MessageNumber, OnRefusal, Performed, Pipeline};
pub use plate_inodes::PlateInodes;
pub use recall_inbox::RecallInbox;
pub use recalls::{Mark, Recalls};
pub use routed::Routed;
pub use service::{
    CallError, Caller, Connection, Durability, Groups, Interrupted, LookUp, PlateLookup, Service, Session,
    Standing, Underway, ask, ready,
};
pub use stat_each::StatResult;
pub use wire::{Dialer, RecallWire, Wire};
