//! Keys between plates of operations that have no number of a client.

use chiton_types::{Seq, SessionId};
use chiton_wire::OpKey;

/// The key of an operation that is never sent again: of the request that has this ticket, the operation at this place.
pub(crate) fn unnumbered_key(ticket: u64, at: usize) -> OpKey {
    OpKey { session: SessionId(0), seq: Seq(ticket << 16 | at as u64) }
}

/// Whether it is a key of [`unnumbered_key`] for the request with this ticket.
pub(crate) fn is_of_ticket(key: OpKey, ticket: u64) -> bool {
    key.session == SessionId(0) && key.seq.0 >> 16 == ticket
}

/// The key of the server's operation with this number that frees a name of a removed tree, in this start.
pub(super) fn key_of_server(boot: u64, number: u64) -> OpKey {
    OpKey { session: SessionId(0), seq: Seq(OF_SERVER | (boot << 32 & !OF_SERVER) | (number & 0xffff_ffff)) }
}

/// Whether an operation of the server has this key, which frees a name of a removed tree.
pub(crate) fn is_key_of_server(key: OpKey) -> bool {
    key.session == SessionId(0) && key.seq.0 & OF_SERVER != 0
}

/// No ticket is so high.
const OF_SERVER: u64 = 1 << 63;
