//! Where a server is reached, and how a client gets there.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use chiton_auth::Credentials;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::stream::Stream;

/// How long a connection attempt may take unless asked otherwise.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Address of a server: `unix:/path`, `tcp:host:port`, or without the word in front where it is clear:
/// `/path`, `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A socket in the file system: only for clients of the same machine.
    Unix(PathBuf),
    /// `host:port`; an IPv6 address stands in brackets.
    Tcp(String),
}

/// An address that cannot be read; in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host_port) => write!(f, "tcp:{host_port}"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path, text);
        }
        if let Some(host_port) = text.strip_prefix("tcp:") {
            return tcp(host_port, text);
        }
        if text.starts_with('/') { unix(text, text) } else { tcp(text, text) }
    }
}

/// Longest path that a socket address holds, its NUL not counted.
const UNIX_PATH_BYTES_MAX: usize = 107;

fn unix(path: &str, text: &str) -> Result<Address, AddressError> {
    let fail = |why: &str| Err(AddressError(format!("cannot read address {text:?}: {why}")));
    if !path.starts_with('/') {
        return fail("the path of a Unix socket must be absolute, as in unix:/run/chiton.sock");
    }
    if path.len() > UNIX_PATH_BYTES_MAX {
        return fail("the path of a Unix socket has at most 107 bytes");
    }
    if path.contains('\0') {
        return fail("the path of a Unix socket cannot contain NUL");
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

fn tcp(host_port: &str, text: &str) -> Result<Address, AddressError> {
    let fail = |why: &str| Err(AddressError(format!("cannot read address {text:?}: {why}")));
    let Some((host, port)) = host_port.rsplit_once(':') else {
        return fail("expected unix:/path, tcp:host:port, /path or host:port");
    };
    let bracketed = host.len() > 2 && host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host.contains(['/', ' ', '\0']) {
        return fail("the host is missing or no host name");
    }
    if host.contains(':') && !bracketed {
        return fail("an IPv6 address stands in brackets, as in tcp:[::1]:7000");
    }
    if port.parse::<u16>().is_err() {
        return fail("the port must be a number from 0 to 65535");
    }
    Ok(Address::Tcp(host_port.to_owned()))
}

impl Address {
    /// Connects. A refusal is reported at once; `timeout` limits the wait for a machine that does not answer
    /// (for each of the addresses that a host name stands for) or a server whose queue is full.
    ///
    /// # Errors
    /// Those of connect(2), with the address in the message; the kind is kept.
    pub fn connect(&self, timeout: Duration) -> io::Result<Stream> {
        assert!(!timeout.is_zero(), "a connection attempt needs some time");
        let connected = match self {
            Address::Unix(path) => connect_unix(path, timeout),
            Address::Tcp(host_port) => connect_tcp(host_port, timeout),
        };
        connected
            .map(Stream::plain)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot connect to {self}: {}", reason(&e))))
    }
}

impl Address {
    /// Connects, with TLS if there are `credentials` and the address is one of TCP. `timeout` limits the connect, and then the handshake.
    ///
    /// # Errors
    /// Those of [`Address::connect`]; `InvalidData` if one side does not trust the other.
    pub(crate) fn secure(&self, credentials: Option<&Credentials>, timeout: Duration) -> io::Result<Stream> {
        let stream = self.connect(timeout)?;
        match (self, credentials) {
            (Address::Tcp(_), Some(credentials)) => stream
                .secured(credentials, timeout)
                .map_err(|e| io::Error::new(e.kind(), format!("no TLS with {self}: {e}"))),
            (Address::Tcp(_), None) | (Address::Unix(_), _) => Ok(stream),
        }
    }
}

fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there; start the server (chiton serve), or name another address".to_owned()
        }
        io::ErrorKind::NotFound => {
            "there is no such socket; start the server (chiton serve), or name another address".to_owned()
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
        _ => e.to_string(),
    }
}

/// A Unix socket connects at once or waits for room in the server's queue: for as long as its send timeout says.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(timeout))?;
    connect(&fd, &SocketAddrUnix::new(path)?)?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, None)?;
    Ok(fd)
}

fn connect_tcp(host_port: &str, timeout: Duration) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name stands for no address");
    for address in host_port.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream.into());
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let check = |text: &str, expect: &str| {
            let parsed: Result<Address, AddressError> = text.parse();
            match parsed {
                Ok(address) => assert_eq!(address.to_string(), expect),
                Err(e) => assert!(!expect.contains("tcp:") && e.0.contains(expect), "{text}: {e}"),
            }
        };
        check("unix:/run/x", "unix:/run/x");
        check("/run/x", "unix:/run/x");
        check("tcp:host:80", "tcp:host:80");
        check("host:80", "tcp:host:80");
        check("[::1]:80", "tcp:[::1]:80");
        check("unix:run/x", "must be absolute");
        check(&format!("/{}", "x".repeat(107)), "107 bytes");
        check("tcp:host", "expected unix:/path");
        check("::1:80", "in brackets");
        check("host:http", "number from 0 to 65535");
        check("host:70000", "number from 0 to 65535");
        check(":80", "host is missing");
        check("", "expected unix:/path");
    }

    #[test]
    fn refusals_are_told_at_once_and_name_the_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = Address::Tcp(listener.local_addr().unwrap().to_string());
        drop(listener);
        let e = tcp.connect(CONNECT_TIMEOUT).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
        assert!(e.to_string().contains(&tcp.to_string()), "{e}");
        let unix = Address::Unix("/nonexistent/socket".into());
        assert_eq!(unix.connect(CONNECT_TIMEOUT).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
