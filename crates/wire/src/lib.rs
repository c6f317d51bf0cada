//! The messages between clients and servers, and their encoding. `transport` carries them over sockets.
//!
//! Invariants:
//! - Only this crate knows the bytes of a message. Bytes from a peer are hostile until decoded.
//! - Data and encodings only: no clock, no socket, no thread.

mod message;
mod realm;

mod footprint;

mod encode;

pub use encode::IDENTITY_BYTES_MAX;
pub use footprint::is_policy_attribute;
pub use message::*;
pub use realm::*;
