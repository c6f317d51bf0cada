//! The first two messages of a connection.

use chiton_model::field::Fixed;
use chiton_model::{choice, code, number, record};
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Epoch, PlateId, Position, SessionId};

/// Version of the protocol; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest [`Hello::identity`], in bytes.
pub const IDENTITY_BYTES_MAX: usize = 256;

number! {
    /// The kind of a connection. A session has two of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Channel "a channel" {
        /// Requests and replies.
        Main = 0,
        /// The server's recalls and their acknowledgements.
        Recall = 1,
        /// Messages of plates of another server to plates of this one. It belongs to no session.
        Peer = 2,
    }
}

record! {
    /// First message of a connection.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Hello "hello" {
        pub version: u32 as Fixed,
        /// Which connection this is.
        pub channel: Channel,
        /// The session to resume, and its secret; `None` begins one (main channel only). Of a peer channel: the number of the
        /// server that speaks, and the identity of its file system.
        pub resume: Option<(SessionId, u64)> as Option<(SessionId, Fixed)>,
        /// Host, process and mount point of the client, for `status` and logs. At most 256 bytes.
        pub identity: String as Identity,
        /// On resume: operations that the client will send again before anything new.
        pub resend_count: u32 as Fixed,
        /// The client decouples subtrees whose policy asks for it: see
        /// [`chiton_types::Refusal::Undecoupled`].
        pub decouples: bool,
        /// The plate that the connection is for. A client has a session with each plate, and finds out at plate 0 how many there are.
        pub plate: PlateId,
        /// A random number that the client names at every plate, and nobody else knows: by it a plate finds the client's session when an
        /// operation of the client guards a row for another plate ([`crate::PeerMessage::Guard`]). 0: none.
        pub client: u64 as Fixed,
        /// The identity of the file system that the client means: a server of another one refuses, and begins no session. 0: any (a peer
        /// channel names it in `resume`).
        pub filesystem: u64 as Fixed,
    }
}

/// How the identities of tools begin that ask a server a question or two, and keep nothing of its answers. A restarted server does not
/// wait for them: one that comes back late has lost its session.
pub const TOOL_IDENTITY: &str = "chiton tool, ";

impl Hello {
    /// The version alone: these four bytes stay where they are in every version of the protocol, the rest may
    /// change with it.
    ///
    /// # Errors
    /// With fewer than four bytes.
    pub fn decode_version(from: &Take<'_>) -> Result<u32, Malformed> {
        from.clone().u32()
    }
}

/// A name for people to read: one that is too long is cut, at a character's border.
struct Identity;

code!(
    Identity => String,
    1,
    format!("text (at most {IDENTITY_BYTES_MAX})"),
    |identity, out| {
        let mut end = identity.len().min(IDENTITY_BYTES_MAX);
        while !identity.is_char_boundary(end) {
            end -= 1;
        }
        out.put_bytes(&identity.as_bytes()[..end]);
    },
    |from| match str::from_utf8(from.bytes()?) {
        Ok(identity) if identity.len() <= IDENTITY_BYTES_MAX => Ok(identity.to_owned()),
        _ => Err(Malformed { expected: "an identity of at most 256 bytes" }),
    };
    draw = |from| from.text()
);

choice! {
    /// Answer to [`Hello`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Welcome "a welcome" {
        /// The session begins, or is resumed.
        0 Accepted {
            session: SessionId,
            /// Shows that a later connection belongs to it.
            secret: u64 as Fixed,
            /// The server's epoch, as in `Reply::epoch`.
            epoch: Epoch,
            /// Identity of this file system.
            filesystem: u64 as Fixed,
            /// Grows with each start of the server: a client that sees a new one re-declares opens and locks.
            boot: u64 as Fixed,
            /// A client's cached state is valid for no longer than this after the last word from the server, in milliseconds.
            /// Neither this server nor the next, after a restart, lets others have what the session holds any sooner.
            session_ms: u32 as Fixed,
            /// Everything up to here is durable.
            durable: Position,
            /// Where a client on the same machine finds the object store (`local:/path`), else empty: blocks then
            /// go through the server.
            objects: String,
            /// Shards of the file system, and plates that share them evenly ([`chiton_types::Plates`]).
            shards: u16,
            plates: u16,
        }
        /// Not possible; the connection is closed.
        1 Refused {
            reason: RefuseReason,
            /// In words, with the next step.
            message: String,
        }
        /// Another server has the plate; the connection is closed.
        2 Elsewhere {
            /// The maps' epoch by which that is so.
            epoch: Epoch,
            /// The addresses at which its server listens.
            addresses: Vec<String>,
        }
    }
}

number! {
    /// Why a connection is refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RefuseReason "a reason against a connection" {
        /// Client and server speak different versions of the protocol.
        Version = 1,
        /// The session to resume is unknown, expired, or the secret is wrong.
        SessionGone = 2,
        /// The server has as many sessions or connections as it allows.
        Full = 3,
        /// The server is shutting down or not ready.
        NotReady = 4,
        /// The server has no such plate.
        NoPlate = 5,
        /// The certificate does not allow it, or is revoked; or only one side speaks TLS.
        Untrusted = 6,
        /// The server has another file system than the one that the hello names.
        OtherFileSystem = 7,
    }
}
