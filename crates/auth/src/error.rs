//! Why something of an authority or an identity failed.

use std::fmt;

/// The cause and the remedy, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthError(pub(crate) String);

impl AuthError {
    pub(crate) fn new(what: impl Into<String>) -> AuthError {
        AuthError(what.into())
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuthError {}
