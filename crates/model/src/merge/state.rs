//! How far a merge is.

use chiton_types::Position;
use chiton_types::codec::{Malformed, Put, Take};

/// How far the server has got with a decoupled journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MergeState {
    /// All of the journal up to here is merged.
    pub merged: Position,
    /// The end of the window under way, and how many of its events are done.
    pub window: Option<(Position, u64)>,
}

impl MergeState {
    /// Appends the encoding.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.merged.0);
        out.put_u8(u8::from(self.window.is_some()));
        if let Some((upto, done)) = self.window {
            out.put_u64(upto.0);
            out.put_varint(done);
        }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn take(from: &mut Take<'_>) -> Result<MergeState, Malformed> {
        let merged = Position(from.u64()?);
        let window = match from.u8()? {
            0 => None,
            1 => Some((Position(from.u64()?), from.varint()?)),
            _ => return Err(Malformed { expected: "a flag" }),
        };
        Ok(MergeState { merged, window })
    }
}
