//! The promises of `docs/semantics.md`, checked on the library and on a mount, and between two mounts.
//!
//! Needs root: other users are part of it, and so is mounting.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod fixture;
mod library;
mod mounted;
mod process;
mod subject;

mod content;
mod flags;
mod lists;
mod names;
mod permissions;
mod times;
mod xattrs;

mod file_handle;
mod handles;
mod kernel;
mod listed;
mod listing;
mod locks;
mod overlay;
mod plates;
mod privileges;
mod sizes;
mod stale_pages;
mod two_mounts;
