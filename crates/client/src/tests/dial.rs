//! Which servers a client dials for a plate, and in which order, while plates move between them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use chiton_transport::{Address, CONNECT_TIMEOUT, OpenError};
use chiton_types::{Epoch, PlateId, Position};
use chiton_wire::{Channel, Hello, PROTOCOL_VERSION, RefuseReason, Welcome};

use crate::dial::SocketDialer;

/// How a server takes a greeting.
#[derive(Clone, Copy)]
enum Says {
    Accepts,
    /// It names the server with this number as the owner.
    Elsewhere(u16),
    /// It closes the connection during the handshake.
    Closes,
    /// It takes the connection and says nothing.
    Silence,
    NothingListens,
}

/// Servers by number, and the numbers of those that were dialed since it was last asked, with the limit of each attempt.
#[derive(Default)]
struct Net {
    servers: RefCell<BTreeMap<u16, Says>>,
    dialed: RefCell<Vec<(u16, Duration)>>,
}

fn address(number: u16) -> Address {
    format!("tcp:127.0.0.1:{number}").parse().expect("an address")
}

fn dialer(known: &[u16]) -> SocketDialer {
    let known: Vec<Address> = known.iter().map(|number| address(*number)).collect();
    SocketDialer::new(Box::new(move || known.clone()), None, Duration::ZERO)
}

impl Net {
    fn set(&self, number: u16, says: Says) {
        self.servers.borrow_mut().insert(number, says);
    }

    /// Dials plate 1, and returns the numbers of the servers that were tried.
    fn dial(&self, dialer: &SocketDialer) -> (Result<Welcome, String>, Vec<u16>) {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            channel: Channel::Main,
            resume: None,
            identity: String::new(),
            resend_count: 0,
            decouples: false,
            plate: PlateId(1),
            client: 0,
            filesystem: 0,
        };
        self.dialed.borrow_mut().clear();
        let answer = dialer.open(&hello, |to, _, timeout| {
            let servers = self.servers.borrow();
            let (number, says) = servers.iter().find(|(number, _)| address(**number) == *to).expect("known");
            self.dialed.borrow_mut().push((*number, timeout));
            let fail = |kind| Err(OpenError::Io(io::Error::new(kind, "as the test wants it")));
            match says {
                Says::Accepts => Ok(((), accepted())),
                Says::Elsewhere(owner) => {
                    let addresses = vec![address(*owner).to_string()];
                    Err(OpenError::Elsewhere { epoch: Epoch(0), addresses })
                }
                Says::Closes => fail(io::ErrorKind::ConnectionAborted),
                Says::Silence => fail(io::ErrorKind::TimedOut),
                Says::NothingListens => fail(io::ErrorKind::ConnectionRefused),
            }
        });
        let tried = self.dialed.borrow().iter().map(|(number, _)| *number).collect();
        (answer.map(|(welcome, _)| welcome), tried)
    }
}

fn accepted() -> Welcome {
    Welcome::Accepted {
        session: chiton_types::SessionId(1),
        secret: 0,
        epoch: Epoch(0),
        filesystem: 1,
        boot: 0,
        session_ms: 0,
        durable: Position(0),
        objects: String::new(),
        shards: 1,
        plates: 2,
    }
}

fn is_not_ready(answer: &Result<Welcome, String>) -> bool {
    matches!(answer, Ok(Welcome::Refused { reason: RefuseReason::NotReady, .. }))
}

fn is_accepted(answer: &Result<Welcome, String>) -> bool {
    matches!(answer, Ok(Welcome::Accepted { .. }))
}

/// S122.
#[test]
fn servers_that_name_each_other_mean_that_the_plate_moves() {
    let (net, dialer) = (Net::default(), dialer(&[1, 2]));
    net.set(1, Says::Elsewhere(2));
    net.set(2, Says::Elsewhere(1));
    let (answer, tried) = net.dial(&dialer);
    assert!(is_not_ready(&answer), "{answer:?}");
    assert_eq!(tried, [1, 2]);
    net.set(2, Says::Accepts);
    assert!(is_accepted(&net.dial(&dialer).0));
}

/// S122.
#[test]
fn a_server_that_closes_the_connection_is_dialed_again_at_once() {
    let (net, dialer) = (Net::default(), dialer(&[1, 2]));
    net.set(1, Says::Elsewhere(2));
    net.set(2, Says::Closes);
    let (answer, _) = net.dial(&dialer);
    assert!(is_not_ready(&answer), "{answer:?}");
    net.set(2, Says::Accepts);
    let (answer, _) = net.dial(&dialer);
    assert!(is_accepted(&answer), "{answer:?}");
    // One server alone, too.
    net.set(1, Says::Closes);
    assert!(is_not_ready(&net.dial(&self::dialer(&[1])).0));
}

#[test]
fn a_silent_server_is_dialed_briefly_if_another_names_it_as_the_owner() {
    let (net, dialer) = (Net::default(), dialer(&[2, 1, 3]));
    net.set(1, Says::Elsewhere(2));
    net.set(2, Says::Silence);
    net.set(3, Says::NothingListens);
    let (answer, tried) = net.dial(&dialer);
    assert!(is_not_ready(&answer), "{answer:?}");
    assert_eq!(tried, [2, 1, 3], "it had its full time");
    let (_, tried) = net.dial(&dialer);
    assert_eq!(tried.last(), Some(&2), "after the others");
    let limit = net.dialed.borrow().last().expect("dialed").1;
    assert!(limit < CONNECT_TIMEOUT / 2, "{limit:?}");
    net.set(2, Says::Accepts);
    assert!(is_accepted(&net.dial(&dialer).0));
}

#[test]
fn no_server_is_an_error() {
    let (net, dialer) = (Net::default(), dialer(&[1]));
    net.set(1, Says::NothingListens);
    assert!(net.dial(&dialer).0.is_err());
}
