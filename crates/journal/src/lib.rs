//! The journal: one writer's ordered frames, in one binary format for servers, decoupled clients,
//! recovery and tools. A frame is one operation's events; its payload is opaque here.
//!
//! ```text
//!   append ──▶ tail (memory) ──▶ committer: barrier, write, sync ──▶ place: file | objects | memory
//!                                     │                                  │
//!              wait_durable ◀── durable position            recover ◀────┴──▶ replay
//! ```
//!
//! Invariants:
//! - A position is reported as durable only after the place has confirmed it and all before it.
//! - Bytes that were read are hostile until their checksum and their bounds are checked: nothing here panics on
//!   them or allocates by a length that they state.
//! - Damage is never skipped: replay ends in an error, or at a tail that was never reported as durable.
//! - The format is `docs/formats.md`, chapter "Journal"; `tests/golden.rs` holds both to it.

mod frame;
mod segment;

mod damage;
mod reader;

pub mod conformance;
mod file_place;
mod memory_place;
mod object_place;
mod place;

mod chain;
mod replay;
mod salvage;
mod survey;

mod rewrite;

mod committer;
mod dispatcher;
mod error;
mod hooks;
mod opening;
mod options;
mod tail;
mod trim;
mod writer;

pub use damage::{Cause, Damage, DamageKind};
pub use error::JournalError;
pub use file_place::FilePlace;
pub use frame::decode_frame;
pub use memory_place::MemoryPlace;
pub use object_place::ObjectPlace;
pub use opening::Recovered;
pub use options::{Identity, Options};
pub use place::{Place, PlaceError, SegmentInfo, Shape};
pub use reader::{Frame, SegmentReader};
pub use replay::{Progress, ReplayError, Replayed, replay};
pub use rewrite::{Change, cut, reset, rewrite, trim_before};
pub use segment::{FENCE_NUMBERS, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION};
pub use survey::{Flaw, Found, SegmentNote, SegmentState, Survey, survey};
pub use writer::Journal;
