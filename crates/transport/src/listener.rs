//! A socket that clients connect to.
//!
//! A Unix socket's file is for its owner only (mode 0600) from its first moment on. The file of a server that died
//! is replaced, that of one that lives is refused. Which of two servers that start at the same moment owns the
//! *data* is not decided here but by the lock on its store.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chiton_auth::Credentials;
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt,
};

use crate::address::Address;
use crate::stream::Stream;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// How long the server that may be alive behind an existing socket file has to take a connection.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// A socket that clients connect to. Dropped, its file is removed.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: Address,
    file: Option<SocketFile>,
    /// Those of a TCP listener whose connections have TLS.
    credentials: Option<Credentials>,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: another server may have put its own in the place.
    identity: (u64, u64),
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one, which [`Listener::address`] names.
    ///
    /// # Errors
    /// `AddrInUse` if a server is alive there; `AlreadyExists` if the path is something other than a socket; else
    /// those of bind(2). The address is in the message.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        let bound = match address {
            Address::Unix(path) => bind_unix(path),
            Address::Tcp(host_port) => bind_tcp(host_port),
        };
        bound.map_err(|e| io::Error::new(e.kind(), format!("cannot listen at {address}: {e}")))
    }

    /// From now on connections have TLS, if they come over TCP.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Option<Credentials>) -> Listener {
        self.credentials = credentials.filter(|_| matches!(self.address, Address::Tcp(_)));
        self
    }

    /// Makes room for one that takes the place of the listener at `address`: a socket file is removed, also if a server is
    /// alive behind it, which keeps those that are connected. Nothing at addresses without a file.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn displace(address: &Address) -> io::Result<()> {
        let Address::Unix(path) = address else { return Ok(()) };
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path),
            _ => Ok(()),
        }
    }

    /// The address at which it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection that waits; `WouldBlock` if there is none.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        let fd = accept_with(&self.fd, SocketFlags::CLOEXEC)?;
        if matches!(self.address, Address::Tcp(_)) {
            sockopt::set_tcp_nodelay(&fd, true)?;
        }
        match &self.credentials {
            Some(credentials) => Stream::serving(fd, credentials),
            None => Ok(Stream::plain(fd)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file
            && identity(&file.path).is_ok_and(|found| found == file.identity)
        {
            // A file that stays behind is replaced by the next server.
            let _ = fs::remove_file(&file.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    remove_stale(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before bind, which gives the file the socket's mode: no moment in which others may open it.
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    listen(&fd, BACKLOG)?;
    Ok(Listener { fd, address: Address::Unix(path.to_owned()), file: Some(file), credentials: None })
}

/// Removes the socket file of a server that is dead.
fn remove_stale(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !meta.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path exists and is no socket; remove it or choose another",
        ));
    }
    match Address::Unix(path.to_owned()).connect(PROBE_TIMEOUT).map_err(|e| e.kind()) {
        Err(io::ErrorKind::ConnectionRefused) => fs::remove_file(path),
        Err(io::ErrorKind::NotFound) => Ok(()),
        Err(io::ErrorKind::PermissionDenied) => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another server is alive there; stop it or choose another address",
        )),
    }
}

fn bind_tcp(host_port: &str) -> io::Result<Listener> {
    let listener = TcpListener::bind(host_port)?;
    listener.set_nonblocking(true)?;
    let address = Address::Tcp(listener.local_addr()?.to_string());
    let fd = OwnedFd::from(listener);
    // Listening again only sets the length of the queue, which std leaves at 128.
    listen(&fd, BACKLOG)?;
    Ok(Listener { fd, address, file: None, credentials: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_a_live_one_and_other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let address = Address::Unix(path.clone());
        let first = Listener::bind(&address).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let refused = Listener::bind(&address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.to_string().contains("another server is alive"), "{refused}");
        Listener::displace(&address).unwrap();
        let instead = Listener::bind(&address).unwrap();
        drop(first);
        assert!(path.exists(), "it is another's");
        drop(instead);
        assert!(!path.exists());
        Listener::displace(&address).unwrap();

        // A killed server leaves a file behind which nobody listens.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let second = Listener::bind(&address).unwrap();
        // A file that is not its own is left alone.
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"precious").unwrap();
        drop(second);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert_eq!(Listener::bind(&address).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        Listener::displace(&address).unwrap();
        assert!(path.exists(), "no socket");
    }
}
