//! TLS over a socket that one thread reads while another writes.
//!
//! ```text
//!   recv ── socket (no lock held) ──▶ ciphertext of this thread ──▶ ┐
//!                                                                   │ rustls, under the lock
//!   send ── plaintext, at most 64 KiB ────────────────────────────▶ ┘ ──▶ socket (never waits)
//! ```
//!
//! Invariants:
//! - No thread waits for the socket while it holds the lock.
//! - A part that was encrypted and did not wholly reach the socket counts as not sent (`owed`). The caller sends it again, as after any
//!   `WouldBlock`, and it is confirmed when its ciphertext is out. So there are never bytes left that no caller knows of.
//! - Bytes that came are returned by [`Tls::recv`], or counted by [`Tls::holds_bytes`].
//! - After a failure nothing is received or sent any more.

#![expect(clippy::disallowed_methods, reason = "sockets are real: a simulation has a network of its own")]

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use chiton_auth::{Certified, Credentials};
use chiton_wire::{RefuseReason, Welcome};
use parking_lot::Mutex;
use rustix::event::PollFlags;
use rustls::{AlertDescription, CertificateError, Connection};

use crate::frame::{FrameKind, put_frame};
use crate::socket::Socket;

/// Most bytes that are encrypted at a time: the limit of rustls's own buffer.
const PART_BYTES: usize = 64 << 10;
/// Bytes that are read at a time.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The first byte of a TLS record with a message of the handshake, and the one behind it.
pub(crate) const HANDSHAKE_RECORD: [u8; 2] = [22, 3];
/// The first byte of a TLS record with an alert.
const ALERT_RECORD: u8 = 21;

thread_local! {
    /// Ciphertext between the socket and rustls.
    static CHUNK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Tls(Mutex<State>);

struct State {
    end: Connection,
    /// Decrypted bytes for which the reader had no room.
    held: Vec<u8>,
    /// Plaintext bytes that are encrypted, of which not all ciphertext is sent.
    owed: usize,
    has_begun: bool,
    has_ended: bool,
    failed: Option<String>,
    other: Option<Certified>,
}

impl Tls {
    pub(crate) fn serving(credentials: &Credentials) -> io::Result<Tls> {
        let end = credentials.server_end().map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Tls::new(end.into()))
    }

    pub(crate) fn asking(credentials: &Credentials) -> io::Result<Tls> {
        let end = credentials.client_end().map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Tls::new(end.into()))
    }

    fn new(end: Connection) -> Tls {
        Tls(Mutex::new(State {
            end,
            held: Vec::new(),
            owed: 0,
            has_begun: false,
            has_ended: false,
            failed: None,
            other: None,
        }))
    }

    /// Takes part in the handshake until it is over, for no longer than `limit`.
    pub(crate) fn shake_hands(&self, socket: &Socket, limit: Duration) -> io::Result<()> {
        let until = Instant::now() + limit;
        let late = || {
            io::Error::new(
                io::ErrorKind::TimedOut,
                "the server accepts connections but does not answer with TLS",
            )
        };
        let mut chunk = [0; CHUNK_BYTES_MIN];
        loop {
            let flushed = {
                let mut state = self.0.lock();
                let flushed = state.flush(socket);
                if flushed.is_ok() && !state.end.is_handshaking() {
                    break;
                }
                flushed
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            match flushed {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let limit = left.try_into().map_err(io::Error::other)?;
                    socket.wait_for(PollFlags::OUT, Some(limit))?;
                    continue;
                }
                Err(e) => return Err(broken_off(e)),
            }
            socket.set_recv_timeout(Some(left))?;
            match socket.recv(&mut chunk, true) {
                Ok(0) => return Err(broken_off(io::ErrorKind::ConnectionAborted.into())),
                Ok(n) => {
                    self.0.lock().feed(socket, &chunk[..n], &mut [])?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                Err(e) => return Err(broken_off(e)),
            }
        }
        socket.set_recv_timeout(None)
    }

    pub(crate) fn recv(&self, socket: &Socket, buf: &mut [u8], wait: bool) -> io::Result<usize> {
        loop {
            {
                let mut state = self.0.lock();
                let n = state.take_held(buf)?;
                if n > 0 || state.has_ended {
                    return Ok(n);
                }
            }
            let n = CHUNK.with_borrow_mut(|chunk| {
                if chunk.is_empty() {
                    chunk.resize(CHUNK_BYTES_MAX, 0);
                }
                let len = buf.len().clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
                let n = socket.recv(&mut chunk[..len], wait)?;
                let mut state = self.0.lock();
                match n {
                    0 => {
                        state.has_ended = true;
                        Ok(0)
                    }
                    n => state.feed(socket, &chunk[..n], buf),
                }
            })?;
            if n > 0 {
                return Ok(n);
            }
        }
    }

    pub(crate) fn holds_bytes(&self) -> bool {
        !self.0.lock().held.is_empty()
    }

    pub(crate) fn send(&self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        state.check()?;
        state.flush(socket)?;
        if state.owed > 0 {
            return Ok(std::mem::take(&mut state.owed));
        }
        if state.end.is_handshaking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = state.end.writer().write(&bytes[..bytes.len().min(PART_BYTES)])?;
        match state.flush(socket) {
            Ok(()) => Ok(n),
            Err(e) => {
                if e.kind() == io::ErrorKind::WouldBlock {
                    state.owed = n;
                }
                Err(e)
            }
        }
    }

    pub(crate) fn certified(&self) -> Option<Certified> {
        self.0.lock().other.clone()
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why.clone())),
            None => Ok(()),
        }
    }

    fn fail(&mut self, why: String) -> io::Error {
        self.failed.get_or_insert(why);
        self.check().expect_err("a failure is noted")
    }

    fn take_held(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let n = self.held.len().min(buf.len());
        buf[..n].copy_from_slice(&self.held[..n]);
        self.held.drain(..n);
        Ok(n)
    }

    /// Sends the ciphertext that there is; `WouldBlock` if some is left.
    fn flush(&mut self, socket: &Socket) -> io::Result<()> {
        let mut socket = socket;
        while self.end.wants_write() {
            self.end.write_tls(&mut socket)?;
        }
        Ok(())
    }

    /// Takes ciphertext that came. Returns the number of plaintext bytes in `buf`; those without room are held.
    fn feed(&mut self, socket: &Socket, mut bytes: &[u8], buf: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.refuse_plain(socket, bytes)?;
        }
        let mut filled = 0;
        while !bytes.is_empty() && !self.has_ended {
            self.end.read_tls(&mut bytes)?;
            let processed = self.end.process_new_packets();
            // Answers of the handshake, or the alert that says why it fails. Not the replies of a server: these wait for its gate.
            if self.owed == 0 {
                match self.flush(socket) {
                    Err(e) if processed.is_ok() && e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                    _ => {}
                }
            }
            match processed {
                Ok(state) => self.has_ended = state.peer_has_closed(),
                Err(e) => return Err(self.fail(in_words(&e))),
            }
            filled += self.drain(&mut buf[filled..]);
        }
        self.meet()?;
        Ok(filled)
    }

    /// Takes what rustls has decrypted.
    fn drain(&mut self, buf: &mut [u8]) -> usize {
        let mut reader = self.end.reader();
        let mut filled = 0;
        // Both calls end with an error when nothing is left, which says nothing new.
        while filled < buf.len() {
            match reader.read(&mut buf[filled..]) {
                Ok(n) if n > 0 => filled += n,
                _ => return filled,
            }
        }
        let _ = reader.read_to_end(&mut self.held);
        filled
    }

    /// Reads the other side's certificate, once the handshake has shown that it is genuine.
    fn meet(&mut self) -> io::Result<()> {
        if self.other.is_some() || self.end.is_handshaking() {
            return Ok(());
        }
        let Some(certificate) = self.end.peer_certificates().and_then(<[_]>::first) else { return Ok(()) };
        match Certified::read(certificate) {
            Ok(certified) => {
                self.other = Some(certified);
                Ok(())
            }
            Err(e) => Err(self.fail(e.to_string())),
        }
    }

    /// Says in plain words to a plain peer that TLS is spoken here.
    fn refuse_plain(&mut self, socket: &Socket, first: &[u8]) -> io::Result<()> {
        let is_server = matches!(self.end, Connection::Server(_));
        let [kind, version] = HANDSHAKE_RECORD;
        let is_tls = (first[0] == kind || !is_server && first[0] == ALERT_RECORD)
            && first.get(1).is_none_or(|second| *second == version);
        if is_tls {
            return Ok(());
        }
        if !is_server {
            return Err(self.fail(
                "the server speaks without TLS: start it with an identity (chiton serve --identity FILE), or connect without one"
                    .to_owned(),
            ));
        }
        let message =
            "the server speaks only TLS here: name an identity (--identity FILE or CHITON_IDENTITY), which \
                       chiton auth create makes"
                .to_owned();
        let welcome = Welcome::Refused { reason: RefuseReason::Untrusted, message };
        let mut out = Vec::new();
        put_frame(&mut out, FrameKind::Welcome, |out| welcome.encode(out)).expect("a welcome fits a frame");
        // If it cannot be sent, the peer sees the end of the connection.
        let _ = socket.send(&out);
        Err(self.fail("the client speaks without TLS".to_owned()))
    }
}

fn broken_off(e: io::Error) -> io::Error {
    io::Error::new(
        e.kind(),
        format!(
            "the server ends the connection during the TLS handshake ({e}); its log says why, and it may speak without TLS"
        ),
    )
}

/// Why a handshake or a connection fails, with the next step.
fn in_words(e: &rustls::Error) -> String {
    match e {
        rustls::Error::NoCertificatesPresented => {
            "the other side shows no certificate: it needs an identity (--identity FILE), which chiton auth create makes".to_owned()
        }
        rustls::Error::InvalidCertificate(e) => of_certificate(e),
        rustls::Error::AlertReceived(alert) => of_alert(*alert),
        rustls::Error::InvalidMessage(_) => {
            format!("the other side sends bytes that are no TLS, or were damaged on the way: {e}")
        }
        e => format!("TLS fails: {e}"),
    }
}

fn of_certificate(e: &CertificateError) -> String {
    match e {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the other side's certificate has expired: make a new one (chiton auth create)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the other side's certificate is not valid yet: set the clocks of both machines".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the other side's certificate is signed by another authority: both need identities of the cluster's authority".to_owned()
        }
        CertificateError::NotValidForName
        | CertificateError::NotValidForNameContext { .. }
        | CertificateError::InvalidPurpose
        | CertificateError::InvalidPurposeContext { .. } => {
            "the other side's certificate is not that of a server: its server needs one (chiton auth create NAME --server)".to_owned()
        }
        e => format!("the other side's certificate is invalid: {e}"),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the other side does not know the authority that signed this identity: use one of the cluster's authority".to_owned()
        }
        AlertDescription::CertificateExpired => {
            "the other side says that this identity has expired: make a new one (chiton auth create)".to_owned()
        }
        AlertDescription::CertificateRequired => {
            "the other side asks for a certificate: name an identity (--identity FILE or CHITON_IDENTITY)".to_owned()
        }
        alert => format!("the other side refuses this identity: {alert:?}"),
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
