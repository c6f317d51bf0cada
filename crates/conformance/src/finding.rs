//! The findings of a check.

use std::fmt::Debug;

/// A difference between a server and a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The step of the check.
    pub step: String,
    /// The behaviour that the clause demands.
    pub expected: String,
    /// The server's behaviour.
    pub seen: String,
}

/// The reason for which a check did not pass.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    Failed(Difference),
    /// The clause says nothing about this server; in words, why.
    NotApplicable(String),
}

/// The outcome of a check, or of a step of one.
pub(crate) type Outcome<T = ()> = Result<T, Finding>;

/// The step went otherwise than it should.
pub(crate) fn failed(
    step: impl Into<String>,
    expected: impl Into<String>,
    seen: impl Into<String>,
) -> Finding {
    Finding::Failed(Difference { step: step.into(), expected: expected.into(), seen: seen.into() })
}

/// Both are the same.
pub(crate) fn same<T: PartialEq + Debug>(step: &str, expected: T, seen: T) -> Outcome {
    match expected == seen {
        true => Ok(()),
        false => Err(failed(step, format!("{expected:?}"), format!("{seen:?}"))),
    }
}

/// Fails the step unless `is_so`.
pub(crate) fn holds(step: &str, is_so: bool, expected: &str, seen: impl Debug) -> Outcome {
    if is_so { Ok(()) } else { Err(failed(step, expected, format!("{seen:?}"))) }
}
