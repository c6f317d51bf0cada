//! Real connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chiton_runtime::sync::Mutex;
use chiton_transport::{
    Address, CONNECT_TIMEOUT, Connection, ConnectionLost, OpenError, Pending, RecallChannel,
};
use chiton_types::PlateId;
use chiton_wire::{Hello, Recall, RecallDone, RefuseReason, Reply, Request, Welcome};

use crate::wire::{Dialer, RecallWire, Wire};

/// Dials the server that has a plate: the one that was dialed last for it, those that are known from the beginning, or the one to
/// which they point.
pub(crate) struct SocketDialer {
    /// Servers to begin with.
    addresses: Vec<Address>,
    /// Where each plate was found.
    found: Mutex<BTreeMap<PlateId, Address>>,
}

impl SocketDialer {
    pub(crate) fn new(addresses: Vec<Address>) -> SocketDialer {
        SocketDialer { addresses, found: Mutex::default() }
    }

    /// Opens a connection for the plate of a hello. A server that has it may refuse; one that has not, or is away, may know another.
    fn open<C>(
        &self,
        hello: &Hello,
        open: impl Fn(&Address) -> Result<(C, Welcome), OpenError>,
    ) -> Result<(Welcome, Option<C>), String> {
        let mut next: VecDeque<Address> = {
            let found = self.found.lock();
            // Servers of other plates know where this one is, too.
            let others = found.iter().filter(|(plate, _)| **plate != hello.plate).map(|(_, address)| address);
            found.get(&hello.plate).into_iter().chain(&self.addresses).chain(others).cloned().collect()
        };
        let mut tried: Vec<Address> = Vec::new();
        let mut failure = Err("there is no address of a server".to_owned());
        while let Some(address) = next.pop_front() {
            if tried.contains(&address) {
                continue;
            }
            tried.push(address.clone());
            match open(&address) {
                Ok((connection, welcome)) => {
                    self.found.lock().insert(hello.plate, address);
                    return Ok((welcome, Some(connection)));
                }
                Err(OpenError::Elsewhere { addresses, .. }) => {
                    let there = addresses.iter().filter_map(|address| address.parse().ok());
                    there.for_each(|address| next.push_front(address));
                }
                Err(OpenError::Refused { reason, message }) => {
                    let welcome = Welcome::Refused { reason, message };
                    if reason != RefuseReason::NotReady {
                        return Ok((welcome, None));
                    }
                    failure = Ok((welcome, None));
                }
                Err(error) if failure.is_err() => {
                    failure = Err(format!("no connection to {address}: {error}"));
                }
                Err(_) => {}
            }
        }
        failure
    }
}

impl Dialer for SocketDialer {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        let (welcome, wire) =
            self.open(hello, |address| Connection::open(address, hello, CONNECT_TIMEOUT))?;
        Ok((welcome, wire.map(|wire| Arc::new(wire) as Arc<dyn Wire>)))
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        let (welcome, wire) =
            self.open(hello, |address| RecallChannel::open(address, hello, CONNECT_TIMEOUT))?;
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
