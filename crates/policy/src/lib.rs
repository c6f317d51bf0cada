//! Policies: the requirements of a subtree, as files, and their meaning.
//!
//! ```text
//!   YAML ── document ──▶ PolicyFile ── resolve (with the parent's Policy) ──▶ Policy ── explain ──▶ text, JSON
//!                          │ language: `append_client_journal + local_persist || volatile_apply`
//!                          └ sense: every composition is sensible, or refused with the nearest sensible one
//! ```
//!
//! # Getting started
//!
//! ```
//! use chiton_policy::{Consistency, Durability, Policy, PolicyFile};
//!
//! // The file of a subtree, under the policy that holds around it.
//! let file = PolicyFile::parse("consistency: weak\ndurability: local\non_conflict: keep_both\n")?;
//! let policy = Policy::resolve(&file, &Policy::default())?;
//! assert_eq!((policy.consistency(), policy.durability()), (Consistency::Weak, Durability::Local));
//!
//! // A mistake is reported with its place and a remedy.
//! let fault = PolicyFile::parse("consistency: weak\nowner_decouples: perhaps\n").unwrap_err();
//! assert_eq!(fault.place.line, 2);
//! # Ok::<(), chiton_policy::Fault>(())
//! ```
//!
//! Invariants:
//! - Pure: no clock, no disk, no socket. Presets are embedded.
//! - Hostile input ends in a [`Fault`] with line, column and reason; never in a panic, and never in more memory than
//!   a small multiple of [`FILE_BYTES_MAX`].
//! - A [`Policy`] always holds a sensible composition in normal form.
//! - Mechanisms, levels and the survival of data after each failure are tables (`mechanism`, `level`, `survival`).

mod composition;
mod document;
mod explain;
mod fault;
mod file;
mod language;
mod level;
mod mechanism;
mod policy;
mod preset;
mod sense;
mod support;
mod survival;
mod values;

pub use composition::Composition;
pub use document::FILE_BYTES_MAX;
pub use explain::{Explanation, StepExplained};
pub use fault::{Fault, Place};
pub use file::{Half, PolicyFile};
pub use language::{COMPOSITION_STEPS_MAX, parse_composition};
pub use level::{CELLS, Cell, Consistency, Durability, compose};
pub use mechanism::{End, Mechanism};
pub use policy::Policy;
pub use preset::{PRESETS, Preset, preset};
pub use sense::{Senseless, judge};
pub use support::Support;
pub use survival::{Failed, Kept, survival};
pub use values::{
    Acknowledge, Data, Huge, Interfere, LeasePolicy, OnConflict, OnFailure, OwnerDecouples, Placement, Span,
};
