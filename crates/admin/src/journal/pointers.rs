//! The pointers of a journal, and the invariants between them.
//!
//! ```text
//!   trimmed_pos ≤ expire_pos ≤ write_pos          (each is the first position that is not yet trimmed, stored, written)
//!   └ events here are in the store only ┘└ in the journal only: replayed at a start ┘
//! ```
//!
//! There is no header object that could be wrong: `trimmed_pos` and `write_pos` are read from the segments, `expire_pos`
//! from the metadata store.

use std::fmt;
use std::str::FromStr;

use chiton_journal::{Found, Identity, JournalError, Place, cut, survey, trim_before};
use chiton_types::Position;
use serde::Serialize;

use crate::journal::OnProgress;
use crate::journal::error::JournalToolError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// First position that is in the journal.
    Trimmed,
    /// First position that is not in the metadata store.
    Expire,
    /// First position that is not written.
    Write,
}

impl FromStr for Pointer {
    type Err = String;

    fn from_str(text: &str) -> Result<Pointer, String> {
        match text {
            "trimmed_pos" => Ok(Pointer::Trimmed),
            "expire_pos" => Ok(Pointer::Expire),
            "write_pos" => Ok(Pointer::Write),
            other => Err(format!("{other:?} is not one of trimmed_pos, expire_pos, write_pos")),
        }
    }
}

/// The outcome of checking one invariant of the pointers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub invariant: &'static str,
    /// Whether it holds; `None` if unknown.
    pub holds: Option<bool>,
    /// The violation, or the reason why it is unknown.
    pub detail: String,
}

/// All pointers and invariants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pointers {
    /// First position that is in the journal.
    pub trimmed_pos: u64,
    /// First position that is not in the metadata store; `None` if the store could not be asked.
    pub expire_pos: Option<u64>,
    /// Where a start would begin to read: the expire position.
    pub read_pos: Option<u64>,
    /// First position that is not written.
    pub write_pos: u64,
    /// First position that is not known to be durable.
    pub durable_pos: u64,
    /// The highest epoch of a writer.
    pub epoch: u64,
    pub checks: Vec<Check>,
}

impl Pointers {
    /// Reads them. `stored`: up to where the metadata store holds the events, if that is known; `newest_row`: the highest
    /// position that a row carries, if that was looked for.
    ///
    /// # Errors
    /// The journal's, if it cannot be read at all.
    pub fn read(
        place: &dyn Place,
        stored: Option<Position>,
        newest_row: Option<Position>,
        progress: OnProgress<'_>,
    ) -> Result<Pointers, JournalToolError> {
        let mut boundary = None;
        let wanted = stored.map(Position::next);
        let mut visit = |found: Found<'_>| -> Result<(), JournalToolError> {
            if let Found::Frame(frame) = found
                && wanted.is_some_and(|p| frame.first < p && p <= frame.last())
            {
                boundary = Some(frame.first);
            }
            Ok(())
        };
        let survey = survey(place, &mut visit, progress)?;
        let mut checks = Vec::new();
        let mut check = |invariant, holds: Option<bool>, detail: String| {
            let detail = if holds == Some(true) { String::new() } else { detail };
            checks.push(Check { invariant, holds, detail });
        };
        let in_use = "the metadata store is in use by a server: ask it (chiton status)";
        check(
            "trimmed_pos <= expire_pos: trimmed events are in the metadata store",
            wanted.map(|p| survey.first <= p),
            stored.map_or(in_use.to_owned(), |p| {
                format!(
                    "events {} to {} are neither in the journal nor in the store: restore the store from a backup",
                    p.next(),
                    survey.first.0 - 1
                )
            }),
        );
        check(
            "expire_pos <= write_pos: the metadata store holds nothing that the journal lacks",
            stored.map(|p| p <= survey.last),
            stored.map_or(in_use.to_owned(), |p| {
                format!(
                    "the store holds all up to {p}, the journal ends with {}: chiton journal reset begins it behind {p}",
                    survey.last
                )
            }),
        );
        check(
            "expire_pos lies between operations",
            stored.map(|_| boundary.is_none()),
            boundary
                .map_or(in_use.to_owned(), |first| format!("the operation at position {first} is parted")),
        );
        check(
            "the rows of the metadata store are not newer than expire_pos",
            newest_row.zip(stored).map(|(row, stored)| row <= stored),
            match newest_row.zip(stored) {
                Some((row, stored)) => format!(
                    "a row carries position {row}, the store says {stored}: chiton journal event recover sets it right"
                ),
                None => "not looked for: chiton journal header get --rows reads all rows".to_owned(),
            },
        );
        check(
            "every durable event is there (segments join, checksums are right)",
            Some(survey.is_whole()),
            survey.flaws.first().map(|flaw| flaw.damage.to_string()).unwrap_or_default(),
        );
        check(
            "durable_pos <= write_pos",
            Some(survey.witnessed <= survey.last),
            format!(
                "a header says that {} was durable, the journal ends with {}",
                survey.witnessed, survey.last
            ),
        );
        Ok(Pointers {
            trimmed_pos: survey.first.0,
            expire_pos: wanted.map(|p| p.0),
            read_pos: wanted.map(|p| p.0),
            write_pos: survey.last.0 + 1,
            durable_pos: survey.witnessed.0 + 1,
            epoch: survey.epoch.0,
            checks,
        })
    }

    /// True if nothing is known to be wrong.
    pub fn is_sound(&self) -> bool {
        self.checks.iter().all(|check| check.holds != Some(false))
    }

    /// Why the expire pointer must not be set to `to`.
    ///
    /// # Errors
    /// [`JournalToolError::Refused`].
    pub fn may_expire_at(&self, to: Position) -> Result<(), JournalToolError> {
        if (self.trimmed_pos..=self.write_pos).contains(&to.0) {
            return Ok(());
        }
        Err(JournalToolError::Refused(format!(
            "expire_pos is between trimmed_pos ({}) and write_pos ({}), not {to}: chiton journal header get shows all",
            self.trimmed_pos, self.write_pos
        )))
    }
}

/// Trims the journal up to at most `to`, by whole segments; returns how many went.
///
/// # Errors
/// [`JournalToolError::Refused`] if events would go that the metadata store lacks; the journal's.
pub fn set_trimmed(place: &dyn Place, stored: Position, to: Position) -> Result<usize, JournalToolError> {
    if to > stored.next() {
        return Err(JournalToolError::Refused(format!(
            "trimmed_pos is at most expire_pos ({}): the events from there on are nowhere else. Apply them first (chiton \
             journal event apply)",
            stored.next()
        )));
    }
    Ok(trim_before(place, to)?)
}

/// Ends the journal before `to`: events from there on are gone.
///
/// # Errors
/// [`JournalToolError::Refused`] if the metadata store holds them, or `to` is not the beginning of an operation; the
/// journal's.
pub fn set_write(
    place: &dyn Place,
    identity: Identity,
    stored: Position,
    to: Position,
) -> Result<(), JournalToolError> {
    if to <= stored {
        return Err(JournalToolError::Refused(format!(
            "write_pos is at least expire_pos ({}), not {to}: the metadata store holds the events before it",
            stored.next()
        )));
    }
    let mut visit = |found: Found<'_>| match found {
        Found::Frame(frame) if frame.first < to && to <= frame.last() => {
            Err(JournalToolError::Refused(format!(
                "position {to} is amid an operation: it begins with {}, the next with {}: name one of these",
                frame.first,
                frame.last().next()
            )))
        }
        _ => Ok(()),
    };
    survey(place, &mut visit, &mut |_| {})?;
    match cut(place, identity, to) {
        Ok(()) => Ok(()),
        Err(JournalError::Trimmed { first, .. }) => Err(JournalToolError::Refused(format!(
            "write_pos is between the journal's first position ({first}) and the one after its last, not {to}"
        ))),
        Err(error) => Err(error.into()),
    }
}

impl fmt::Display for Pointers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = |p: Option<u64>| p.map_or("unknown".to_owned(), |p| p.to_string());
        writeln!(f, "trimmed_pos  {}  (first position in the journal)", self.trimmed_pos)?;
        writeln!(f, "expire_pos   {}  (first that is not in the metadata store)", unknown(self.expire_pos))?;
        writeln!(f, "read_pos     {}  (where a start begins to read)", unknown(self.read_pos))?;
        writeln!(f, "write_pos    {}  (first that is not written)", self.write_pos)?;
        writeln!(f, "durable_pos  {}  (first that no segment says to be durable)", self.durable_pos)?;
        write!(f, "epoch        {}", self.epoch)?;
        for check in &self.checks {
            let verdict = match check.holds {
                Some(true) => "holds  ",
                Some(false) => "BROKEN ",
                None => "unknown",
            };
            write!(f, "\n{verdict}  {}", check.invariant)?;
            if !check.detail.is_empty() {
                write!(f, ": {}", check.detail)?;
            }
        }
        Ok(())
    }
}
