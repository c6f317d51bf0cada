//! Decoupled subtrees and branches at mounts of a file system with four plates: the tests of one plate again.
//!
//! Needs root (mounts); elsewhere it prints a line and passes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

#[path = "../../../fuse/tests/posix/file_handle.rs"]
mod file_handle;
#[path = "../faults/rig.rs"]
#[allow(dead_code, reason = "the tests of one plate need more")]
mod rig;
#[path = "../faults/seen.rs"]
#[allow(dead_code, reason = "the tests of one plate need more")]
mod seen;
#[path = "../faults/two.rs"]
#[allow(dead_code, reason = "the tests of one plate need more")]
mod two;

#[path = "../faults/branch_runs.rs"]
mod branch_runs;
#[path = "../faults/branches.rs"]
mod branches;
#[path = "../faults/decoupled.rs"]
mod decoupled;
#[path = "../faults/decoupled_away.rs"]
mod decoupled_away;
#[path = "../faults/interference.rs"]
mod interference;
#[path = "../faults/offline.rs"]
mod offline;
