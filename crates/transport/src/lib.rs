//! Connections that carry the messages of `wire`: frames over Unix sockets and TCP, the client's ends, the server's event loop.
//!
//! ```text
//!   client                                                        server
//!   Connection ── Request frames ──▶ ┌──────────┐ a batch of ┌─────────┐
//!   (callers read the socket        │ serve:   │ requests   │ Service │
//!    themselves, one at a time)     │ 2 threads│───────────▶│         │
//!              ◀── Reply frames ──── └──────────┘◀─ Sender ──└─────────┘
//!   RecallChannel ◀── Recall, RecallDone ──▶
//! ```
//!
//! Invariants:
//! - A TCP connection of a process with [`Credentials`](chiton_auth::Credentials) has TLS, and both sides show certificates; one without
//!   them has none. A Unix socket has its file's owner and mode instead.
//! - Bytes from a peer are hostile until decoded; a malformed message ends that one connection.
//! - The number of threads does not depend on the number of connections.
//!
//! # Layout
//! - [`FrameReader`] and [`put_frame`] cut the stream into messages; [`Address`] and [`Stream`] are its sockets.
//! - A server opens a [`PeerChannel`] to each other server, for the messages of its plates.
//! - The client opens a [`Connection`] (`mux.rs` shares its socket among callers) and a [`RecallChannel`]; [`probe()`] asks
//!   whether a server answers.
//! - The server binds a [`Listener`] and calls [`serve()`] with a [`Service`]; `step.rs` is one step of its event loop with one
//!   connection, and a [`Sender`] sends to one client.

mod frame;

mod address;
mod socket;
mod stream;
mod tls;

mod connection;
mod connection_lost;
mod handshake;
mod mux;
mod peer;
mod pending;
mod probe;
mod recall;

mod listener;
mod sender;
mod serve;
mod step;

pub use address::{Address, AddressError, CONNECT_TIMEOUT};
pub use connection::Connection;
pub use connection_lost::ConnectionLost;
pub use frame::{
    FrameError, FrameKind, FrameReader, FrameTooLong, GREETING_BYTES_MAX, READ_BYTES, put_frame,
};
pub use handshake::OpenError;
pub use listener::Listener;
pub use peer::PeerChannel;
pub use pending::{Pending, Promise};
pub use probe::probe;
pub use recall::RecallChannel;
pub use sender::{ConnId, Gate, Outlet, Sender};
pub use serve::{Closed, ServeOptions, Service, Serving, serve};
pub use stream::Stream;
