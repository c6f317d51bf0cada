//! Operations, events and outcomes: the vocabulary in which every part of Chiton speaks of a change.
//!
//! ```text
//!   client ── Op ──▶ plan ── Event ──▶ journal, apply, merge, dump
//!                     └───── Outcome ──▶ client
//! ```
//!
//! Invariants:
//! - Data and encodings only: no state of the file system, no clock, no socket, no thread.
//! - An event is complete: applying it needs nothing else.
//!
//! # Layout
//!
//! - [`Op`] (`op`, `op_rules`) and [`Event`] (`event`): the two tables, whose syntax `table` gives. [`Footprint`]: the inodes and names of an entry.
//! - [`Outcome`]: the result of an operation. `change`, `extent`, `attrs`, `parts`, `reverted`: the parts of operations and events.
//! - `decoupling`, `policy`, [`merge`]: records about subtrees.
//! - [`field`], [`codec`], [`text`]: how a value becomes bytes, JSON, and words. `frame_events`: the events of a frame.

pub mod codec;
pub mod field;
pub mod merge;
pub mod text;

mod attrs;
mod change;
mod decoupling;
mod event;
mod extent;
mod footprint;
mod frame_events;
mod op;
mod op_rules;
mod outcome;
mod parts;
mod policy;
mod reverted;
mod table;

pub use attrs::AttrFields;
pub use change::{AttrChange, Body, Hold, Make, RenameHow, SetTime, XattrHow};
pub use decoupling::{Attached, DECOUPLING_TEXT_BYTES_MAX, Decoupling, Interference, MergedUpTo};
pub use event::{Event, Over};
pub use extent::{CHUNK_BYTES, EXTENT_BYTES_MIN, Extent};
pub use footprint::{Footprint, InodeTouch, NameChange, NameTouch, NameUse, Role, Rows};
pub use frame_events::FrameEvents;
pub use op::{
    FILE_BYTES_MAX, INLINE_BYTES_MAX, LINKS_MAX, Op, SYMLINK_BYTES_MAX, XATTR_NAME_BYTES_MAX,
    XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
pub use op_rules::{AcrossPlates, Batched};
pub use outcome::{Gone, Outcome};
pub use parts::{HASHES, PartRange, decode_parts, encode_parts, equal_parts, home_range, part_of, range_of};
pub use policy::{POLICY_BYTES_MAX, POLICY_HISTORY_MAX, PolicyChange};
pub use reverted::{OldContent, Reverted};
pub use table::Layout;
