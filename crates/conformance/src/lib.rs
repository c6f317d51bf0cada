//! The conformance suite of directory objects: every numbered clause of `docs/directory-object.md`, asked of a server.
//!
//! ```text
//!   CLAUSES ── D1 "a lookup finds …" ── check(&Case) ─▶ Client ─▶ Server ── messages ──▶ the server under test
//!                                           │            (routes names to parts)
//!                                           ▼
//!                        Report: each clause passed, failed (expected, seen), or not applicable
//! ```
//!
//! Invariants:
//! - The suite speaks the wire protocol and nothing else, so it can be run against any server of it.
//! - It works in a scratch directory of its own, and removes that in the end.
//! - Each clause of the page has one check here, and the reverse: a test compares them.
//! - On a file system with several plates each clause about names is checked twice: in a directory as it is made, and in one that was split.

mod finding;
mod report;

mod server;

mod client;

mod case;

mod clauses;

mod suite;

pub use clauses::{CLAUSES, Clause};
pub use finding::Difference;
pub use report::{Checked, Report, State, Verdict};
pub use suite::{SuiteError, Target, run};
