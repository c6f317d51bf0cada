//! The outcome for a file of others that the decoupled side looked at before the merge, and met in its own content.
//!
//! ```text
//!   client: reads base, ours, theirs ─▶ writes what comes of it as its own ─▶ durable ─▶ Settle(theirs, its position)
//!   merge:  theirs is as it was then ─▶ ours prevails, nothing is lost │ it changed since ─▶ a conflict like any other
//!
//!   client: both removed it, no trace of the changes of ours ─▶ Settle(inode, REMOVED, Same)
//!   merge:  the changes of ours to it are passed over
//! ```

use chiton_types::Position;
use chiton_types::codec::Malformed;

/// The result that the decoupled side found for such a file, sent to the merge before its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Settled {
    /// Both sides did the same: no conflict.
    Same = 0,
    /// Ours has the lines of theirs in it.
    Merged = 1,
}

impl Settled {
    /// In place of the position of its last change: both sides removed it.
    pub const REMOVED: Position = Position(0);

    /// Inverse of `settled as u8`.
    ///
    /// # Errors
    /// It is none.
    pub fn from_u8(n: u8) -> Result<Settled, Malformed> {
        match n {
            0 => Ok(Settled::Same),
            1 => Ok(Settled::Merged),
            _ => Err(Malformed { expected: "what became of a file of others" }),
        }
    }
}
