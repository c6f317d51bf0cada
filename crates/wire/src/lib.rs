//! The messages between clients and servers, and between plates, and their encoding. `transport` carries them over sockets.
//!
//! Invariants:
//! - Only this crate knows the bytes of a message. Bytes from a peer are hostile until decoded.
//! - Data and encodings only: no clock, no socket, no thread.
//! - A message is declared once ([`chiton_model::choice`], [`chiton_model::record`], [`chiton_model::number`]): from the
//!   declaration come its type, bytes, limits, its table in `docs/formats.md`, and samples for tests. By hand are the headers
//!   of requests and replies.
//!
//! # Layout
//!
//! - `handshake`: the first two messages of a connection. `message`: the frames' kinds.
//! - [`Request`] carries a [`Call`]: operations, a [`Query`], a [`RealmCall`] (decoupled subtrees), `stat_each`. [`Reply`] carries an
//!   [`Answer`].
//! - [`Recall`] and its answer; `lease`: words of both. `peer`: messages between plates.
//! - `footprint`: the inodes that a call touches, and those that a limited certificate must reach.

mod message;

mod handshake;

mod call;
mod query;
mod realm;
mod request;
mod stat_each;

mod answer;
mod reply;

mod lease;
mod peer;
mod recall;

mod footprint;

pub use answer::*;
pub use call::*;
pub use chiton_model::field::{GROUPS_MAX, OverLimit};
pub use footprint::{Reach, is_policy_attribute};
pub use handshake::*;
pub use lease::*;
pub use message::{FRAME_BYTES_MAX, Message};
pub use peer::*;
pub use query::*;
pub use realm::*;
pub use recall::*;
pub use reply::*;
pub use request::*;
pub use stat_each::*;
