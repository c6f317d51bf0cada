//! The client library: what programs, tools and the mount stand on.
//!
//! ```text
//!   path calls, batches ─┐
//!   handle calls ────────┴▶ Client ─┬─ cache of names and attributes (under leases)
//!                                   ├─ Files: file data
//!                                   └─ Service ─▶ embedded server, or a connection
//! ```

mod flags;
mod recalls;
mod service;

pub use flags::OpenFlags;
pub use recalls::{Mark, Recalls};
pub use service::{CallError, Caller, Groups, Service, Underway, ask};
