//! The two connections that a session needs from a network. The real one is the protocol's; tests and simulation cut
//! theirs.

use std::sync::Arc;
use std::time::Duration;

use chiton_transport::{ConnectionLost, Pending};
use chiton_types::PlateId;
use chiton_wire::{Hello, Recall, RecallDone, Reply, Request, Welcome};

/// The connection for requests and their replies.
pub trait Wire: Send + Sync {
    /// Sends and waits for the reply.
    ///
    /// # Errors
    /// If the connection broke before the answer came.
    fn call(&self, request: &Request) -> Result<Reply, ConnectionLost>;
    /// Sends; the reply is waited for later.
    fn start(&self, request: &Request) -> Pending;
    /// Ends it: callers that wait get an error.
    fn close(&self);
}

/// The connection that recalls come on.
pub trait RecallWire: Send + Sync {
    /// The next recall.
    ///
    /// # Errors
    /// If the connection broke.
    fn next(&self) -> Result<Recall, ConnectionLost>;
    /// Acknowledges a recall: the client has given the lease up. A broken connection is reported by [`RecallWire::next`].
    fn done(&self, done: RecallDone);
    /// Ends it: `next` returns.
    fn close(&self);
}

/// Makes connections. Errors are in words, with the address. There is none if the welcome is a refusal.
pub trait Dialer: Send + Sync {
    /// A main connection.
    ///
    /// # Errors
    /// Why there is none.
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String>;
    /// A recall connection.
    ///
    /// # Errors
    /// Why there is none.
    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String>;
    /// How long a new client asks again for plates that do not run yet.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
    /// The server to which this plate was dialed last has been silent for too long: another may have the plate.
    fn was_silent(&self, _plate: PlateId) {}
}
