//! The connection over which the plates of one server send to those of another. Each direction has its own.

use std::io;
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_wire::{Channel, Hello, PeerFrame};

use crate::address::Address;
use crate::connection_lost::ConnectionLost;
use crate::frame::{FrameKind, put_frame};
use crate::handshake::{OpenError, shake};
use crate::stream::Stream;

/// Messages are gathered up to so many bytes before they are sent.
const SEND_BYTES: usize = 256 << 10;

/// The sending end of a connection between two servers.
#[derive(Debug)]
pub struct PeerChannel {
    stream: Stream,
}

impl PeerChannel {
    /// Connects and says `hello`, which names the server that speaks.
    ///
    /// # Errors
    /// If there is no server, or it refuses.
    ///
    /// # Panics
    /// If `hello` is for another channel.
    pub fn open(
        address: &Address,
        credentials: Option<&Credentials>,
        hello: &Hello,
        timeout: Duration,
    ) -> Result<PeerChannel, OpenError> {
        assert_eq!(hello.channel, Channel::Peer, "a peer channel says so in its hello");
        Ok(PeerChannel { stream: shake(address, credentials, hello, timeout)?.stream })
    }

    /// Sends messages in their order; waits for room. One thread at a time.
    ///
    /// # Errors
    /// If the connection broke, or a message is longer than a frame: then none of those behind it arrives.
    pub fn send(&self, frames: impl IntoIterator<Item = PeerFrame>) -> Result<(), ConnectionLost> {
        let mut out = Vec::new();
        for frame in frames {
            put_frame(&mut out, FrameKind::Peer, |out| frame.encode(out)).map_err(lost)?;
            if out.len() >= SEND_BYTES {
                self.stream.send_all(&out).map_err(|e: io::Error| lost(e))?;
                out.clear();
            }
        }
        self.stream.send_all(&out).map_err(|e: io::Error| lost(e))
    }

    /// Returns when the connection is over: the other side says nothing on it.
    pub fn wait_for_end(&self) {
        let mut bytes = [0; 64];
        while matches!(self.stream.recv(&mut bytes, true), Ok(n) if n > 0) {}
    }

    /// Ends the connection: waiting threads return.
    pub fn close(&self) {
        self.stream.shutdown();
    }
}

fn lost(reason: impl ToString) -> ConnectionLost {
    ConnectionLost::new(reason.to_string())
}
