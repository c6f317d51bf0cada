//! The system calls on a connected socket that both ends need.
//!
//! The socket itself is left blocking; each call says whether it waits. A peer that is gone is an error of the
//! call, never a signal.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, getpeername, recv, send, shutdown, sockopt};

#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Socket {
        Socket(fd)
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

    /// Waits until one of `flags` holds, or the connection broke, which the next call reports.
    pub(crate) fn wait_for(&self, flags: PollFlags, limit: Option<Timespec>) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.0, flags)], limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Limits how long a waiting [`Socket::recv`] waits; it then fails with `WouldBlock`.
    pub(crate) fn set_recv_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, limit)?)
    }

    /// The address of the other side, if it is one of TCP.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        getpeername(&self.0).ok().flatten().and_then(|address| address.try_into().ok())
    }

    /// Ends both directions: calls that wait on this socket, here or at the peer, return.
    pub(crate) fn shutdown(&self) {
        // An error means that the connection is already gone, which is what was asked for.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

/// Never waits, as [`Socket::send`].
impl io::Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
