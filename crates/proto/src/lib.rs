//! The wire: messages, their encoding, framing, and transports over Unix sockets, TCP and within a process.

mod message;

pub use message::*;
