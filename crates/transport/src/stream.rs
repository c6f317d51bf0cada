//! A connection's two directions of bytes: a socket, Unix or TCP, plain or with TLS.
//!
//! One thread at a time receives, and one at a time sends, while the other receives.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use chiton_auth::{Certified, Credentials};
use rustix::event::{PollFlags, Timespec};

use crate::socket::Socket;
use crate::tls::Tls;

/// A connected socket, in the clear or with TLS.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// `None`: bytes go as they are.
    tls: Option<Box<Tls>>,
}

impl Stream {
    pub(crate) fn plain(fd: OwnedFd) -> Stream {
        Stream { socket: Socket::new(fd), tls: None }
    }

    /// The server's end of a connection with TLS. The handshake takes place while the connection is read.
    pub(crate) fn serving(fd: OwnedFd, credentials: &Credentials) -> io::Result<Stream> {
        Ok(Stream { socket: Socket::new(fd), tls: Some(Box::new(Tls::serving(credentials)?)) })
    }

    /// The client's end: shakes hands with the server, within `limit`.
    pub(crate) fn secured(self, credentials: &Credentials, limit: Duration) -> io::Result<Stream> {
        let tls = Tls::asking(credentials)?;
        tls.shake_hands(&self.socket, limit)?;
        Ok(Stream { socket: self.socket, tls: Some(Box::new(tls)) })
    }

    /// Receives into `buf`, which is not empty; 0 at the end of the stream. `InvalidData`: the other side cannot be trusted,
    /// or does not trust this one; in words.
    pub(crate) fn recv(&self, buf: &mut [u8], wait: bool) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.recv(buf, wait),
            Some(tls) => tls.recv(&self.socket, buf, wait),
        }
    }

    /// Whether bytes were received that [`Stream::recv`] has not returned: no event announces them.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.holds_bytes())
    }

    /// Sends as much as there is room for; `WouldBlock` if there is none: the next call must begin with the same bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.send(bytes),
            Some(tls) => tls.send(&self.socket, bytes),
        }
    }

    /// Sends all, waiting for room: for handshakes and other messages of a few bytes.
    pub(crate) fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.wait_for(PollFlags::OUT, None)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Waits until there is room to send; with `or_bytes` also until there is something to receive, else for no
    /// longer than 10 ms.
    pub(crate) fn wait_for_room(&self, or_bytes: bool) -> io::Result<()> {
        if or_bytes {
            return self.socket.wait_for(PollFlags::OUT | PollFlags::IN, None);
        }
        self.socket.wait_for(PollFlags::OUT, Some(Timespec { tv_sec: 0, tv_nsec: 10_000_000 }))
    }

    /// Limits how long a waiting [`Stream::recv`] waits; it then fails with `WouldBlock`.
    pub(crate) fn set_recv_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.set_recv_timeout(limit)
    }

    /// Ends both directions: calls that wait on this socket, here or at the peer, return.
    pub(crate) fn shutdown(&self) {
        self.socket.shutdown();
    }

    /// The address of the other side, if it is one of TCP.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.socket.remote()
    }

    /// The statements of the other side's certificate; `None` without TLS, and until its handshake is over.
    pub(crate) fn certified(&self) -> Option<Certified> {
        self.tls.as_ref()?.certified()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
