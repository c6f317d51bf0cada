//! Real processes under faults: kills under load, restarts under open files, a torn journal, a second server, a
//! server that is gone at the end of a mount, hostile peers, many sessions, failing disks, decoupled subtrees. The
//! real program, real mounts, real signals.
//!
//! Needs root (mounts); elsewhere it prints a line and passes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod branch_runs;
mod branches;
mod crash;
mod decoupled;
mod decoupled_away;
mod disk;
mod ended;
mod fencing;
#[path = "../../../fuse/tests/posix/file_handle.rs"]
mod file_handle;
mod hostile;
mod interference;
mod lazy;
mod logged;
mod messages;
mod newcomer;
mod offline;
mod peer;
mod rebuild;
mod restart;
mod rig;
mod seen;
mod sessions;
mod silent;
mod two;
mod unmount;
mod viewed;
