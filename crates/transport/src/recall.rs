//! The second connection of a session: the server asks for leases back.

use std::io;
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_types::Take;
use chiton_wire::{Channel, Hello, Recall, RecallDone, Welcome};
use parking_lot::Mutex;

use crate::address::Address;
use crate::connection_lost::ConnectionLost;
use crate::frame::{FrameKind, FrameReader, put_frame};
use crate::handshake::{OpenError, shake};
use crate::stream::Stream;

/// The client's end of the recall channel. One thread loops over [`RecallChannel::next`]; any may call the rest.
#[derive(Debug)]
pub struct RecallChannel {
    stream: Stream,
    reader: Mutex<FrameReader>,
    writing: Mutex<()>,
}

impl RecallChannel {
    /// Connects and says `hello`, which resumes the session of the main channel. The [`Welcome`] is `Accepted`.
    ///
    /// # Errors
    /// If there is no server, or it refuses.
    ///
    /// # Panics
    /// If `hello` is for the main channel.
    pub fn open(
        address: &Address,
        credentials: Option<&Credentials>,
        hello: &Hello,
        timeout: Duration,
    ) -> Result<(RecallChannel, Welcome), OpenError> {
        assert_eq!(hello.channel, Channel::Recall, "a recall channel says so in its hello");
        let greeted = shake(address, credentials, hello, timeout)?;
        let channel = RecallChannel {
            stream: greeted.stream,
            reader: Mutex::new(greeted.reader),
            writing: Mutex::new(()),
        };
        Ok((channel, greeted.welcome))
    }

    /// The next recall; waits for it.
    ///
    /// # Errors
    /// If the connection broke or was closed.
    pub fn next(&self) -> Result<Recall, ConnectionLost> {
        let mut reader = self.reader.lock();
        loop {
            if let Some((kind, body)) = reader.next_frame().map_err(lost)? {
                if kind != FrameKind::Recall {
                    return Err(lost(format!("unexpected {kind:?} on the recall channel")));
                }
                let mut body = Take::new(body);
                let recall = Recall::decode(&mut body).map_err(lost)?;
                body.finish().map_err(lost)?;
                return Ok(recall);
            }
            if reader.fill(&self.stream, true).map_err(lost)? == 0 {
                return Err(lost("the server closed the recall channel"));
            }
        }
    }

    /// Tells the server that a lease was given back.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn done(&self, done: RecallDone) -> Result<(), ConnectionLost> {
        let mut out = Vec::with_capacity(16);
        put_frame(&mut out, FrameKind::RecallDone, |out| done.encode(out)).expect("13 bytes fit a frame");
        // One writer at a time: a frame that is sent in two parts must not be parted by another.
        let _writing = self.writing.lock();
        self.stream.send_all(&out).map_err(|e: io::Error| lost(e))
    }

    /// Ends the connection: a waiting [`RecallChannel::next`] returns.
    pub fn close(&self) {
        self.stream.shutdown();
    }
}

fn lost(reason: impl ToString) -> ConnectionLost {
    ConnectionLost::new(reason.to_string())
}
