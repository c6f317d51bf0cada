//! The error of a connection that ended.

use std::fmt;
use std::sync::Arc;

/// The connection to the server is lost. The server may or may not have carried out a request that has no reply yet: connect again,
/// resume the session and send the request again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLost {
    /// The reason, in words.
    pub reason: Arc<str>,
}

impl ConnectionLost {
    /// With a reason in words.
    pub fn new(reason: impl Into<Arc<str>>) -> ConnectionLost {
        ConnectionLost { reason: reason.into() }
    }
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection lost: {}", self.reason)
    }
}

impl std::error::Error for ConnectionLost {}
