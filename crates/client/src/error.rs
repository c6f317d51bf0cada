//! Why there is no client.

use std::fmt;

/// The server cannot be reached, or does not want us. In words, with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError(pub String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}
