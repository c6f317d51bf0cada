//! The wire: messages, their encoding, framing, and transports over Unix sockets, TCP and within a process.
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
//! - Only this crate knows the wire. Bytes from a peer are hostile until decoded; what is malformed ends that one
//!   connection.
//! - The number of threads does not depend on the number of connections.

mod message;
mod realm;
mod touches;

mod encode;

mod frame;

mod address;
mod stream;

mod connection;
mod connection_lost;
mod handshake;
mod link;
mod pending;
mod recall;

mod listener;
mod sender;
mod serve;
mod turn;

pub use address::{Address, AddressError, CONNECT_TIMEOUT};
pub use connection::Connection;
pub use connection_lost::ConnectionLost;
pub use encode::IDENTITY_BYTES_MAX;
pub use frame::{
    FrameError, FrameKind, FrameReader, FrameTooLong, GREETING_BYTES_MAX, READ_BYTES, put_frame,
};
pub use handshake::{OpenError, knock};
pub use listener::Listener;
pub use message::*;
pub use pending::{Pending, Promise};
pub use realm::*;
pub use recall::RecallChannel;
pub use sender::{ConnId, Outlet, Sender};
pub use serve::{Closed, ServeOptions, Service, Serving, serve};
pub use stream::Stream;
pub use touches::is_policy_attribute;
