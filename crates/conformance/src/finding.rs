//! What a check finds.

use std::fmt::Debug;

/// What a server did otherwise than its clause says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The step of the check.
    pub step: String,
    /// What the clause says.
    pub expected: String,
    /// What the server did.
    pub seen: String,
}

/// Why a check did not pass.
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

/// It is so.
pub(crate) fn holds(step: &str, is_so: bool, expected: &str, seen: impl Debug) -> Outcome {
    if is_so { Ok(()) } else { Err(failed(step, expected, format!("{seen:?}"))) }
}
