//! Baselines that Chiton is measured against, and the load generators that measure it.
//!
//! A figure means little alone: machines drift. So each of ours stands beside a *floor*, the least that the
//! same kernel, socket or disk allows a program that does nothing else, taken in the same run.
//!
//! ```text
//!   trivial_fs ── mounted ──▶ mdtest, seqio        what FUSE allows
//!   a server   ── library ──▶ mdtest               what a server allows
//!   echo          ── socket ─▶ round trips         what a wire allows
//!   group_commit  ── disk ───▶ durable records     what a journal allows
//!                                  │
//!                                  ▼
//!                     report: baseline | ours | ratio | target
//! ```
//!
//! Invariants:
//! - A baseline holds no line of Chiton's own code paths (only its clock). A load reaches a server without a mount by `library` alone.
//! - Baseline and subject are measured in alternation, never one after the other ([`report::compare`]).
//! - Every generator counts its actual operations; a failed operation is an error, not a fast operation.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes and real mounts: nothing here runs in a simulation"
)]

pub mod report;

pub mod trivial_fs;
pub mod trivial_mount;

pub mod echo;
pub mod group_commit;
pub mod seqio;

pub mod hierarchy;
pub mod mdtest;
pub mod metarates;
pub mod tasks;

pub mod replay;
pub mod trace;

mod library;
mod target;

pub mod confidence;
pub mod summary;

mod stopwatch;
mod trivial_tree;
