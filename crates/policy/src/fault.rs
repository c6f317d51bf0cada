//! An error in a policy: its place, the reason, and the nearest text that makes sense.

use std::fmt;

/// A place in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

impl Place {
    /// The first character of a file.
    pub const START: Place = Place { line: 1, column: 1 };

    /// The place so many characters on in the same line.
    pub(crate) fn right(self, characters: usize) -> Place {
        Place { line: self.line, column: self.column.saturating_add(characters as u32) }
    }
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub place: Place,
    /// Why, in one sentence.
    pub reason: String,
    /// The nearest that would make sense, if there is one: a composition, a key or a value.
    pub nearest: Option<String>,
}

impl Fault {
    pub(crate) fn new(place: Place, reason: impl Into<String>) -> Fault {
        Fault { place, reason: reason.into(), nearest: None }
    }

    pub(crate) fn or_rather(mut self, nearest: impl fmt::Display) -> Fault {
        self.nearest = Some(nearest.to_string());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.place.line, self.place.column, self.reason)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; nearest that makes sense: {nearest}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
