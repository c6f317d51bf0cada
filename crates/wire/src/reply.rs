//! Replies. Their header is written by hand: one store of 24 bytes; the tag behind it is that of the answer (below 128) or of
//! the failure.
//!
//! ```text
//!  0        8           16           24    25
//!  │ id u64 │ epoch u64 │ durable u64│ tag │ the answer or the failure
//! ```

use chiton_model::field::{Code, OverLimit, Sample, Samples};
use chiton_types::codec::{Malformed, Take};
use chiton_types::{Epoch, Position};

use crate::answer::{Answer, Failure};

/// A reply on the main channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// [`crate::Request::id`] of the request.
    pub id: u64,
    /// The server's epoch.
    pub epoch: Epoch,
    /// Everything up to here is durable.
    pub durable: Position,
    /// The answer, or why there is none.
    pub result: Result<Answer, Failure>,
}

/// Bytes of the header, without the tag.
const HEAD_BYTES: usize = 24;

impl Code<Reply> for Reply {
    const BYTES_MIN: usize = HEAD_BYTES + 1;

    fn form() -> String {
        "reply".to_owned()
    }

    fn put(reply: &Reply, out: &mut Vec<u8>) {
        debug_assert_eq!(Reply::check(reply), Ok(()), "no client decodes {reply:?}");
        let mut head = [0u8; HEAD_BYTES];
        head[0..8].copy_from_slice(&reply.id.to_le_bytes());
        head[8..16].copy_from_slice(&reply.epoch.0.to_le_bytes());
        head[16..24].copy_from_slice(&reply.durable.0.to_le_bytes());
        out.extend_from_slice(&head);
        Result::<Answer, Failure>::put(&reply.result, out);
    }

    fn take(from: &mut Take<'_>) -> Result<Reply, Malformed> {
        let mut head = Take::new(from.take(HEAD_BYTES, "a reply's header")?);
        let (id, epoch, durable) = (head.u64()?, Epoch(head.u64()?), Position(head.u64()?));
        Ok(Reply { id, epoch, durable, result: Result::<Answer, Failure>::take(from)? })
    }

    fn check(reply: &Reply) -> Result<(), OverLimit> {
        Result::<Answer, Failure>::check(&reply.result)
    }
}

impl Sample<Reply> for Reply {
    fn sample(from: &mut Samples<'_>) -> Reply {
        let result = Result::<Answer, Failure>::sample(from);
        Reply { id: from.number(), epoch: Epoch::sample(from), durable: Position::sample(from), result }
    }
}
