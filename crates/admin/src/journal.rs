//! The journal tool: look at a journal, take it out, put it back, change it.
//!
//! ```text
//!   place ── survey ──▶ filter ──▶ list | json | summary | binary
//!                   └─▶ inspection (whole or not, and the lost events)
//!                   └─▶ export file ── import ──▶ an empty journal
//! ```
//!
//! Invariants:
//! - Frames and events are read by the journal's and the namespace's own code; there is no second decoder.
//! - Bytes of a journal or an export are hostile until checked: nothing here panics on them.
//! - Memory is bounded by a segment or a frame, whatever the journal's length; only `--path` keeps parents in
//!   memory.
//! - Functions that write get a place that their caller has locked.

mod error;
mod filter;
mod under;

mod events;
mod export;
mod export_file;
mod import;
mod inspect;
mod pointers;
mod splice;

pub use error::JournalToolError;
pub use events::{Output, Tally, get};
pub use export::{Exported, export};
pub use export_file::{ExportHeader, ExportReader, ExportWriter, Record};
pub use filter::{Filter, Range, Seen};
pub use import::{Gaps, Imported, import};
pub use inspect::{Inspection, inspect};
pub use pointers::{Check, Pointer, Pointers, set_trimmed, set_write};
pub use splice::{Spliced, splice};
pub use under::Under;

use chiton_journal::{Frame, Progress};
use chiton_model::{Event, FrameEvents};
use chiton_types::{Malformed, Position};

/// Called with the progress of long work.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

/// The events of a frame, each with its first position.
///
/// # Errors
/// If the payload does not hold events for exactly the frame's positions.
pub fn events_of(frame: &Frame<'_>) -> Result<Vec<(Position, Event)>, Malformed> {
    FrameEvents::new(frame.first, frame.header.event_count, frame.payload).collect()
}
