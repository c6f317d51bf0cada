//! What a client needs of the way to its server, be it a socket or a function call.

use std::fmt;
use std::sync::Arc;

use crate::message::{Reply, Request};
use crate::pending::Pending;

/// The way to the server is gone. What was asked may or may not have been carried out: connect again, resume the
/// session and send it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLost {
    /// Why, in words.
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

/// The way to the server: a [`crate::Connection`], or the server itself in the same process.
///
/// Every request in flight has an id of its own.
pub trait Transport: Send + Sync {
    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// If the connection broke before the answer came.
    fn call(&self, request: Request) -> Result<Reply, ConnectionLost>;

    /// Asks without waiting.
    fn start(&self, request: Request) -> Pending;
}
