//! Real connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_runtime::sync::Mutex;
use chiton_runtime::{RealWorld, World};
use chiton_transport::{
    Address, CONNECT_TIMEOUT, Connection, ConnectionLost, OpenError, Pending, RecallChannel,
};
use chiton_types::PlateId;
use chiton_wire::{Hello, Recall, RecallDone, RefuseReason, Reply, Request, Welcome};

use crate::wire::{Dialer, RecallWire, Wire};

/// Where to find servers, if none of those that are known answers.
type Ask = Box<dyn Fn() -> Vec<Address> + Send + Sync>;

/// Dials the server that has a plate: the one that was dialed last for it, those that are known from the beginning, or the one to
/// which they point. One that has failed comes last the next time.
pub(crate) struct SocketDialer {
    ask: Ask,
    credentials: Option<Credentials>,
    patience: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Servers to begin with, the best first.
    addresses: Vec<Address>,
    /// The address at which each plate was found.
    found: BTreeMap<PlateId, Address>,
    /// Those that were silent, and until when others are asked before them.
    silent: Vec<(Address, Duration)>,
}

/// How long a silent server is asked only if no other answers: a paused one takes connections, and a client that waits for it
/// each time comes too late to the one that takes its plates over. A server that answers, or closes the connection, is not silent:
/// it may have the plate in a moment.
const AVOIDED: Duration = Duration::from_secs(3);
/// How long a silent server may take to answer if another names it as the owner of the plate. It may be there again; if it is
/// not, the other one is soon asked again.
const NAMED_TIMEOUT: Duration = Duration::from_millis(400);

/// The server took the connection, or its packets, and did not answer.
fn is_silence(error: &OpenError) -> bool {
    use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut, WouldBlock};
    matches!(error, OpenError::Io(e) if matches!(e.kind(), HostUnreachable | NetworkUnreachable | TimedOut | WouldBlock))
}

/// The server took the connection and closed it: it stops, or its plate does.
fn is_closed(error: &OpenError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error, OpenError::Io(e) if matches!(e.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof))
}

impl Known {
    fn failed(&mut self, address: &Address, error: &OpenError) {
        if is_silence(error) {
            self.avoid(address.clone());
        }
        self.found.retain(|_, found| found != address);
        if let Some(at) = self.addresses.iter().position(|known| known == address) {
            self.addresses[at..].rotate_left(1);
        }
    }

    /// In the order in which they are tried for a plate.
    fn order(&self, plate: PlateId) -> VecDeque<Address> {
        // Servers of other plates know where this one is, too.
        let others = self.found.iter().filter(|(other, _)| **other != plate).map(|(_, address)| address);
        self.found.get(&plate).into_iter().chain(&self.addresses).chain(others).cloned().collect()
    }

    fn avoid(&mut self, address: Address) {
        self.silent.push((address, RealWorld.monotonic() + AVOIDED));
    }

    fn is_avoided(&mut self, address: &Address) -> bool {
        let now = RealWorld.monotonic();
        self.silent.retain(|(_, until)| now < *until);
        self.silent.iter().any(|(silent, _)| silent == address)
    }
}

impl SocketDialer {
    /// `ask` is asked at first, and again whenever nobody answers.
    pub(crate) fn new(ask: Ask, credentials: Option<Credentials>, patience: Duration) -> SocketDialer {
        let known = Known { addresses: ask(), ..Known::default() };
        SocketDialer { ask, credentials, patience, known: Mutex::new(known) }
    }

    /// Opens a connection for the plate of a hello. A server that has it may refuse; one that has not, or is away, may know another.
    /// While the plate is between two servers, the answer is that it is not ready.
    pub(crate) fn open<C>(
        &self,
        hello: &Hello,
        open: impl Fn(&Address, Option<&Credentials>, Duration) -> Result<(C, Welcome), OpenError>,
    ) -> Result<(Welcome, Option<C>), String> {
        let mut next = self.known.lock().order(hello.plate);
        let mut tried: Vec<Address> = Vec::new();
        let mut refusal = None;
        let mut failure = None;
        let mut is_anyone_there = false;
        let mut is_moving = false;
        // Those that a server names as the owners of the plate.
        let mut named: Vec<Address> = Vec::new();
        let mut avoided = Vec::new();
        let mut is_last_resort = false;
        loop {
            let Some(address) = next.pop_front() else {
                if is_last_resort {
                    break;
                }
                is_last_resort = true;
                next.extend(avoided.drain(..).filter(|address| !is_anyone_there || named.contains(address)));
                continue;
            };
            if tried.contains(&address) {
                continue;
            }
            let is_avoided = self.known.lock().is_avoided(&address);
            if is_avoided && !is_last_resort {
                avoided.push(address);
                continue;
            }
            tried.push(address.clone());
            let timeout = if is_avoided && is_anyone_there { NAMED_TIMEOUT } else { CONNECT_TIMEOUT };
            let opened = open(&address, self.credentials.as_ref(), timeout).map_err(|error| match error {
                // Another server may have ours.
                OpenError::Refused { reason: RefuseReason::OtherFileSystem, message } => {
                    OpenError::Io(std::io::Error::other(message))
                }
                error => error,
            });
            is_anyone_there |=
                matches!(opened, Ok(_) | Err(OpenError::Elsewhere { .. } | OpenError::Refused { .. }));
            match opened {
                Ok((connection, welcome)) => {
                    self.known.lock().found.insert(hello.plate, address);
                    return Ok((welcome, Some(connection)));
                }
                Err(OpenError::Elsewhere { addresses, .. }) => {
                    is_moving = true;
                    for address in addresses.iter().filter_map(|address| address.parse::<Address>().ok()) {
                        named.push(address.clone());
                        next.push_front(address);
                    }
                }
                Err(OpenError::Refused { reason, message }) => {
                    let welcome = Welcome::Refused { reason, message };
                    if reason != RefuseReason::NotReady {
                        return Ok((welcome, None));
                    }
                    refusal = Some(welcome);
                }
                Err(OpenError::Untrusted(message)) => {
                    // Another server may have a certificate that is still valid.
                    refusal = Some(Welcome::Refused { reason: RefuseReason::Untrusted, message });
                }
                Err(error) => {
                    is_moving |= is_closed(&error);
                    self.known.lock().failed(&address, &error);
                    failure = Some(format!("no connection to {address}: {error}"));
                }
            }
        }
        if !is_anyone_there {
            let addresses = (self.ask)();
            let mut known = self.known.lock();
            let is_new = |address: &&Address| !known.addresses.contains(address);
            let new: Vec<Address> = addresses.iter().filter(is_new).cloned().collect();
            known.addresses.splice(0..0, new);
        }
        match (refusal, failure) {
            (Some(welcome), _) => Ok((welcome, None)),
            (None, failure) if is_moving => {
                let message = failure.unwrap_or_else(|| {
                    format!("plate {} is moving from one server to another; try again", hello.plate)
                });
                Ok((Welcome::Refused { reason: RefuseReason::NotReady, message }, None))
            }
            (None, failure) => Err(failure.unwrap_or_else(|| "there is no address of a server".to_owned())),
        }
    }
}

impl Dialer for SocketDialer {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        let (welcome, wire) = self.open(hello, |address, credentials, timeout| {
            Connection::open(address, credentials, hello, timeout)
        })?;
        Ok((welcome, wire.map(|wire| Arc::new(wire) as Arc<dyn Wire>)))
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        let (welcome, wire) = self.open(hello, |address, credentials, timeout| {
            RecallChannel::open(address, credentials, hello, timeout)
        })?;
        Ok((welcome, wire.map(|wire| Arc::new(wire) as Arc<dyn RecallWire>)))
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn was_silent(&self, plate: PlateId) {
        let mut known = self.known.lock();
        if let Some(address) = known.found.get(&plate).cloned() {
            known.avoid(address);
        }
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
