//! The client at the other end of a connection: its address and its certificate.

use std::net::SocketAddr;

use chiton_auth::Certified;

use super::{Sender, Way};

impl Sender {
    /// The address of the client, if it is one of TCP.
    pub fn remote(&self) -> Option<SocketAddr> {
        match &self.0 {
            Way::Socket(peer) => peer.output.lock().stream.as_ref()?.remote(),
            Way::Outlet(..) => None,
        }
    }

    /// The statements of the client's certificate; `None` without TLS.
    pub fn certified(&self) -> Option<Certified> {
        match &self.0 {
            Way::Socket(peer) => peer.output.lock().stream.as_ref()?.certified(),
            Way::Outlet(..) => None,
        }
    }
}
