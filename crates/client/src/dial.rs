//! Real connections.

use std::sync::Arc;

use chiton_transport::{
    Address, CONNECT_TIMEOUT, Connection, ConnectionLost, OpenError, Pending, RecallChannel,
};
use chiton_wire::{Hello, Recall, RecallDone, Reply, Request, Welcome};

use crate::wire::{Dialer, RecallWire, Wire};

/// Dials one address.
pub(crate) struct SocketDialer {
    pub(crate) address: Address,
}

impl SocketDialer {
    fn greeted<C>(&self, opened: Result<(C, Welcome), OpenError>) -> Result<(Welcome, Option<C>), String> {
        match opened {
            Ok((connection, welcome)) => Ok((welcome, Some(connection))),
            Err(OpenError::Refused { reason, message }) => Ok((Welcome::Refused { reason, message }, None)),
            Err(error) => Err(format!("no connection to {}: {error}", self.address)),
        }
    }
}

impl Dialer for SocketDialer {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        let (welcome, wire) = self.greeted(Connection::open(&self.address, hello, CONNECT_TIMEOUT))?;
        Ok((welcome, wire.map(|wire| Arc::new(wire) as Arc<dyn Wire>)))
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        let (welcome, wire) = self.greeted(RecallChannel::open(&self.address, hello, CONNECT_TIMEOUT))?;
        Ok((welcome, wire.map(|wire| Arc::new(wire) as Arc<dyn RecallWire>)))
    }
}

impl Wire for Connection {
    fn call(&self, request: &Request) -> Result<Reply, ConnectionLost> {
        Connection::call(self, request)
    }

    fn start(&self, request: &Request) -> Pending {
        Connection::start(self, request)
    }

    fn close(&self) {
        Connection::close(self);
    }
}

impl RecallWire for RecallChannel {
    fn next(&self) -> Result<Recall, ConnectionLost> {
        RecallChannel::next(self)
    }

    fn done(&self, done: RecallDone) {
        // If it is lost, the channel is: `next` says so, and all leases are void.
        drop(RecallChannel::done(self, done));
    }

    fn close(&self) {
        RecallChannel::close(self);
    }
}
