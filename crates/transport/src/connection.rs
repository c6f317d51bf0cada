//! The client's end of the main channel: one socket, any number of callers.
//!
//! - [`Connection::call`]: ask and wait. The calling thread writes and reads the socket itself.
//! - [`Connection::send`] and [`Connection::wait`]: many requests in flight from one thread. They go out together when a thread waits.
//! - [`Connection::start`]: a [`Pending`] answer, which is also a future.
//!
//! [`crate::mux`] has the workings.

use std::sync::Arc;
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_wire::{Channel, Hello, Reply, Request, Welcome};

use crate::address::Address;
use crate::connection_lost::ConnectionLost;
use crate::handshake::{OpenError, shake};
use crate::mux::Mux;
use crate::pending::Pending;

/// A connection to a server. Shared by reference; dropped, callers that still wait get [`ConnectionLost`].
#[derive(Debug)]
pub struct Connection {
    mux: Arc<Mux>,
}

impl Connection {
    /// Connects, with TLS over TCP if there are `credentials`, and says `hello`. The [`Welcome`] is `Accepted`. `timeout` limits the connect and each wait of the
    /// handshake ([`crate::CONNECT_TIMEOUT`] is a good one).
    ///
    /// # Errors
    /// If there is no server, or it refuses.
    ///
    /// # Panics
    /// If `hello` is for the recall channel.
    pub fn open(
        address: &Address,
        credentials: Option<&Credentials>,
        hello: &Hello,
        timeout: Duration,
    ) -> Result<(Connection, Welcome), OpenError> {
        assert_eq!(hello.channel, Channel::Main, "a main channel says so in its hello");
        let greeted = shake(address, credentials, hello, timeout)?;
        let connection = Connection { mux: Arc::new(Mux::new(greeted.stream, greeted.reader)) };
        Ok((connection, greeted.welcome))
    }

    /// An id that no other request of this connection got from here.
    pub fn next_id(&self) -> u64 {
        self.mux.next_id()
    }

    /// Asks and waits for the answer. A request past the protocol's limits is answered here, with
    /// [`chiton_wire::Failure::Malformed`].
    ///
    /// # Errors
    /// If the connection broke before the answer came.
    ///
    /// # Panics
    /// If another request with this id is in flight.
    pub fn call(&self, request: &Request) -> Result<Reply, ConnectionLost> {
        self.mux.send(request);
        self.mux.wait(request.id)
    }

    /// Asks without waiting: [`Connection::wait`] has the answer. Nothing need go out before a thread waits or
    /// flushes.
    ///
    /// # Panics
    /// If another request with this id is in flight.
    pub fn send(&self, request: &Request) {
        self.mux.send(request);
    }

    /// Waits for the answer to a request that was sent; once for each.
    ///
    /// # Errors
    /// If the connection broke before the answer came.
    ///
    /// # Panics
    /// If no such request was sent, or its answer was already taken.
    pub fn wait(&self, id: u64) -> Result<Reply, ConnectionLost> {
        self.mux.wait(id)
    }

    /// Asks without waiting.
    ///
    /// # Panics
    /// If another request with this id is in flight.
    pub fn start(&self, request: &Request) -> Pending {
        self.mux.send(request);
        Pending::on_socket(self.mux.clone(), request.id)
    }

    /// Sends what [`Connection::send`] and [`Connection::start`] have gathered.
    pub fn flush(&self) {
        self.mux.flush();
    }

    /// Why the connection is lost, if it is.
    pub fn lost(&self) -> Option<ConnectionLost> {
        self.mux.lost()
    }

    /// Ends the connection: callers that wait get [`ConnectionLost`].
    pub fn close(&self) {
        self.mux.lose(ConnectionLost::new("closed by this client"));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
