//! A connected socket, Unix or TCP: the few system calls that both ends need.
//!
//! The socket itself is left blocking; each call says whether it waits. A peer that is gone is an error of the
//! call, never a signal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};

/// A connected socket.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl Stream {
    pub(crate) fn new(fd: OwnedFd) -> Stream {
        Stream(fd)
    }

    /// Receives into `buf`, which is not empty; 0 at the end of the stream.
    pub(crate) fn recv(&self, buf: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            match recv(&self.0, &mut *buf, flags) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?.1),
            }
        }
    }

    /// Sends as much as there is room for; `WouldBlock` if there is none.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Sends all, waiting for room: for handshakes and other messages of a few bytes.
    pub(crate) fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_for(PollFlags::OUT, None)?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Waits until there is room to send; with `or_bytes` also until there is something to receive, else for no
    /// longer than 10 ms.
    pub(crate) fn wait_for_room(&self, or_bytes: bool) -> io::Result<()> {
        if or_bytes {
            return self.wait_for(PollFlags::OUT | PollFlags::IN, None);
        }
        self.wait_for(PollFlags::OUT, Some(Timespec { tv_sec: 0, tv_nsec: 10_000_000 }))
    }

    /// Waits until one of `flags` holds, or the connection broke, which the next call reports.
    fn wait_for(&self, flags: PollFlags, limit: Option<Timespec>) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.0, flags)], limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Limits how long a waiting [`Stream::recv`] waits; it then fails with `WouldBlock`.
    pub(crate) fn set_recv_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, limit)?)
    }

    /// Ends both directions: calls that wait on this socket, here or at the peer, return.
    pub(crate) fn shutdown(&self) {
        // An error means that the connection is already gone, which is what was asked for.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
