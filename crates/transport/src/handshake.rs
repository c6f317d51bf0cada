//! The first two messages of a connection, on the client's side.

use std::fmt;
use std::io;
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_types::{Epoch, Malformed, Take};
use chiton_wire::{Hello, RefuseReason, Welcome};

use crate::address::Address;
use crate::frame::{FrameKind, FrameReader, put_frame};
use crate::stream::Stream;

/// Why no connection came to be.
#[derive(Debug)]
pub enum OpenError {
    /// The server cannot be reached, or went away during the handshake: try again later.
    Io(io::Error),
    /// One side does not trust the other's certificate, or only one of them speaks TLS; in words.
    Untrusted(String),
    /// The server said no.
    Refused {
        reason: RefuseReason,
        /// In words, with the next step.
        message: String,
    },
    /// Another server has the plate.
    Elsewhere {
        /// The maps' epoch by which that is so.
        epoch: Epoch,
        addresses: Vec<String>,
    },
    /// The peer is not a server of this protocol.
    Malformed(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(e) => e.fmt(f),
            OpenError::Untrusted(why) => f.write_str(why),
            OpenError::Refused { message, .. } => write!(f, "the server refuses the connection: {message}"),
            OpenError::Elsewhere { addresses, .. } => {
                write!(f, "another server has the plate; connect to {}", addresses.join(" or "))
            }
            OpenError::Malformed(what) => write!(f, "the other side is no Chiton server: {what}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(e: io::Error) -> OpenError {
        match e.kind() {
            io::ErrorKind::InvalidData => OpenError::Untrusted(e.to_string()),
            _ => OpenError::Io(e),
        }
    }
}

impl From<Malformed> for OpenError {
    fn from(e: Malformed) -> OpenError {
        OpenError::Malformed(e.to_string())
    }
}

/// A connection whose [`Welcome`] is `Accepted`. The reader may hold what the server sent right behind it.
pub(crate) struct Greeted {
    pub(crate) stream: Stream,
    pub(crate) reader: FrameReader,
    pub(crate) welcome: Welcome,
}

/// Connects and says hello; `timeout` limits the connect, and each wait for bytes of the answer.
pub(crate) fn shake(
    address: &Address,
    credentials: Option<&Credentials>,
    hello: &Hello,
    timeout: Duration,
) -> Result<Greeted, OpenError> {
    greet(address.secure(credentials, timeout)?, address, hello, timeout)
}

pub(crate) fn greet(
    stream: Stream,
    address: &Address,
    hello: &Hello,
    timeout: Duration,
) -> Result<Greeted, OpenError> {
    let mut out = Vec::new();
    put_frame(&mut out, FrameKind::Hello, |out| hello.encode(out)).expect("a hello fits a frame");
    stream.set_recv_timeout(Some(timeout))?;
    let mut reader = FrameReader::new();
    // A server that refuses the certificate has said why before it closed the connection: that is read first.
    let sent = stream.send_all(&out);
    let welcome = loop {
        let frame = reader.next_frame().map_err(|e| OpenError::Malformed(e.to_string()))?;
        if let Some((kind, body)) = frame {
            if kind != FrameKind::Welcome {
                return Err(OpenError::Malformed(format!("it answers a hello with {kind:?}")));
            }
            let mut body = Take::new(body);
            let welcome = Welcome::decode(&mut body)?;
            body.finish()?;
            break welcome;
        }
        match reader.fill(&stream, true) {
            Ok(0) => {
                sent?;
                return Err(OpenError::Io(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    format!("{address} closed the connection during the handshake"),
                )));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(OpenError::Io(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{address} accepts connections but does not answer"),
                )));
            }
            Err(e) => return Err(e.into()),
        }
    };
    stream.set_recv_timeout(None)?;
    match welcome {
        Welcome::Accepted { .. } => Ok(Greeted { stream, reader, welcome }),
        Welcome::Refused { reason, message } => Err(OpenError::Refused { reason, message }),
        Welcome::Elsewhere { epoch, addresses } => Err(OpenError::Elsewhere { epoch, addresses }),
    }
}
