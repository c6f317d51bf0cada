//! Messages between client and server.
//!
//! ```text
//!  client ── Hello ───────────▶ server      once per connection; a session has two:
//!         ◀────────── Welcome ──             `Main` (requests, replies) and `Recall`
//!         ── Request(id) ─────▶              any number in flight
//!         ◀────────── Reply(id) ──           in any order
//!         ◀────────── Recall(id) ──          on the recall connection
//!         ── RecallDone(id) ──▶              on the recall connection
//!  server ── Hello, PeerFrame… ▶ server      messages between plates, on a connection of their own in each direction
//! ```
//!
//! Invariants:
//! - `decode(encode(m)) == m` for every message within its limits.
//! - Decoding never panics, and allocates at most a small multiple of the bytes that are there.
//! - Fields of every request, and those that occur in masses (headers, attributes, operations), have fixed offsets; rare
//!   ones are varints. `docs/formats.md`, "Wire protocol", has the layouts; a test compares it with the declarations.

use chiton_model::field::{Code, Sample, Samples};
use chiton_types::codec::{Malformed, Take};

use crate::handshake::{Hello, Welcome};
use crate::peer::PeerFrame;
use crate::recall::{Recall, RecallDone};
use crate::reply::Reply;
use crate::request::Request;

/// Longest message, in bytes: a block of 16 MiB, and 64 KiB for the fields around it.
pub const FRAME_BYTES_MAX: usize = (16 << 20) + (64 << 10);

macro_rules! messages {
    ($($message:ident),+) => {
        $(impl $message {
            pub fn encode(&self, out: &mut Vec<u8>) {
                <$message as Code<$message>>::put(self, out);
            }

            /// Reads one.
            ///
            /// # Errors
            /// If the bytes are none, or a limit is passed.
            pub fn decode(from: &mut Take<'_>) -> Result<$message, Malformed> {
                <$message as Code<$message>>::take(from)
            }
        })+

        /// Any message, for code that treats all of them alike.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "tests have one at a time")]
        pub enum Message {
            $($message($message)),+
        }

        impl Message {
            /// The names of the messages, in the order of their kinds.
            pub const KINDS: &'static [&'static str] = &[$(stringify!($message)),+];

            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Message::$message(message) => message.encode(out)),+
                }
            }

            /// Reads a message of the kind at this place of [`Message::KINDS`].
            ///
            /// # Errors
            /// If the bytes are none, or a limit is passed.
            ///
            /// # Panics
            /// If there is no such kind.
            #[allow(unused_assignments, reason = "the last number is not looked at")]
            pub fn decode(kind: usize, from: &mut Take<'_>) -> Result<Message, Malformed> {
                let mut number = 0;
                $(
                    if kind == number {
                        return Ok(Message::$message($message::decode(from)?));
                    }
                    number += 1;
                )+
                panic!("message {kind}")
            }

            /// Draws a message of the kind at this place of [`Message::KINDS`].
            ///
            /// # Panics
            /// If there is no such kind.
            #[allow(unused_assignments, reason = "the last number is not looked at")]
            pub fn sample(kind: usize, from: &mut Samples<'_>) -> Message {
                let mut number = 0;
                $(
                    if kind == number {
                        return Message::$message(<$message as Sample<$message>>::sample(from));
                    }
                    number += 1;
                )+
                panic!("message {kind}")
            }
        }
    };
}

messages!(Hello, Welcome, Request, Reply, Recall, RecallDone, PeerFrame);
