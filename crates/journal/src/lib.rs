//! The journal: one writer's ordered frames, in one binary format for servers, decoupled clients,
//! recovery and tools. A frame is one operation's events; its payload is opaque here.
//!
//! ```text
//!   append ──▶ tail (memory) ──▶ committer: barrier, write, sync ──▶ place: file | objects | memory
//!                                     │                                  │
//!              wait_durable ◀── durable position            recover ◀────┴──▶ replay
//! ```
//!
//! # Getting started
//!
//! ```
//! use std::sync::Arc;
//!
//! use chiton_journal::{Identity, Journal, MemoryPlace, Options, Shape, replay};
//! use chiton_types::frame::{FrameHeader, encode_frame};
//! use chiton_types::{Epoch, Position, Seq, SessionId, ShardId};
//!
//! let place = Arc::new(MemoryPlace::new(Shape::Grows));
//! let identity = Identity { journal: 1, epoch: Epoch(1), nonce: 7 };
//! let journal = Journal::create(place.clone(), identity, Options::default())?;
//!
//! // A frame of one event, appended to memory, then made durable.
//! let header = FrameHeader { event_count: 1, shard: ShardId(0), session: SessionId(0), seq: Seq(0) };
//! let mut frame = Vec::new();
//! encode_frame(&mut frame, &header, b"an event");
//! let position = journal.append(&frame, 1)?;
//! journal.wait_durable(position)?;
//! journal.close()?;
//!
//! let mut payloads = Vec::new();
//! let mut visit = |frame: &chiton_journal::Frame<'_>| -> Result<(), String> {
//!     payloads.push(frame.payload.to_vec());
//!     Ok(())
//! };
//! replay(&*place, Position(0), &mut visit, &mut |_| {}).expect("a whole journal");
//! assert_eq!(payloads, [b"an event"]);
//! # Ok::<(), chiton_journal::JournalError>(())
//! ```
//!
//! Invariants:
//! - A position is reported as durable only after the place has confirmed it and all before it.
//! - Bytes that were read are hostile until their checksum and their bounds are checked: nothing here panics on
//!   them or allocates by a length that they state.
//! - Damage is never skipped: replay ends in an error, or at a tail that was never reported as durable.
//! - The format is `docs/formats.md`, chapter "Journal"; `tests/golden.rs` holds both to it.
//!
//! # Layout
//!
//! - [`Journal`]: append, wait until durable, trim. [`replay`] reads a healthy journal, [`survey`] a damaged one.
//! - [`Place`]: where segments are stored: [`FilePlace`], [`ObjectPlace`], [`MemoryPlace`]; [`conformance`] tests a
//!   new one.
//! - `frame`, `segment`, `reader`, `damage`: the format. `chain`: which segments belong to the journal.
//! - `committer`: commits to files; `dispatcher`: commits to objects; `tail`: frames that are not yet durable.
//! - `rewrite`, `salvage`: changing and reading journals offline, for tools.

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
pub use frame::{decode_frame, seal_frames};
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
