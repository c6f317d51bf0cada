//! Reports of the work to its caller, and the way to end it.

use std::borrow::Cow;
use std::fmt;

use chiton_types::Refusal;

use crate::Found;

/// Hears of the work while it is done.
pub trait Watch {
    /// Something could not be done. The work continues with the rest.
    fn refused(&mut self, refused: Refused);

    /// So many names are done.
    fn progress(&mut self, _names: u64) {}

    /// A search has found a name.
    fn found(&mut self, _found: Found) {}

    /// The job `id` has ended with its server, after about so many names, and another one begins from the start. Refusals are
    /// reported again, and names are found again.
    fn restarted(&mut self, _id: u64, _names: u64) {}

    /// Whether to end: no further work begins, and the function waits for the work under way.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Something that could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The path, which begins as the caller's own.
    pub path: Vec<u8>,
    /// The step that failed: `remove`, `list`.
    pub doing: Cow<'static, str>,
    pub refusal: Refusal,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.doing, String::from_utf8_lossy(&self.path), self.refusal)?;
        match self.refusal {
            Refusal::Busy => f.write_str(
                " (another client has decoupled it, or it is the root of a decoupled subtree or a branch: see chiton decoupled)",
            ),
            Refusal::NotEmpty => f.write_str(" (others made something in it meanwhile: run the command again)"),
            _ => Ok(()),
        }
    }
}
