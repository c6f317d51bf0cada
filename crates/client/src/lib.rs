//! The client library: what programs, tools and the mount stand on.
//!
//! ```text
//!   path calls, batches ─┐
//!   handle calls ────────┴▶ Client ─┬─ cache of names and attributes (under leases)
//!                                   ├─ Files: file data
//!                                   └─ Service ─▶ embedded server, or a connection
//! ```

mod service;

mod client;
mod names;
mod open;
mod mounted;

mod batch;
mod path;
mod pending;

mod cache;
mod core;
mod generations;
mod observed;
mod told;

pub mod data;

mod embedded;

mod asked;
mod connected;
mod dial;
mod held_locks;
mod link;
mod recall_pool;
mod session;
mod wire;

mod cancel;
mod error;
mod flags;
mod handler;
mod options;
mod recalls;

#[cfg(test)]
mod tests;

pub use batch::Each;
pub use cancel::CancelToken;
pub use client::{Client, Entry, Listed, Lookup};
pub use core::Invalidator;
pub use error::ConnectError;
pub use flags::OpenFlags;
pub use options::ClientOptions;
pub use pending::Pending;
pub use recalls::{Mark, Recalls};
pub use service::{CallError, Caller, Groups, Service, Underway, ask};
