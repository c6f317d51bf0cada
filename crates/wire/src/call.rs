//! The calls that a request carries.

use chiton_model::field::{Fixed, Max, Tagged};
use chiton_model::{Op, choice};
use chiton_types::codec::{Malformed, Take};
use chiton_types::{BlockId, Ino, Position, SessionId};

use crate::lease::{LeaseMode, Lock};
use crate::query::Query;
use crate::realm::RealmCall;
use crate::request::Acknowledged;

/// Most operations in one batch.
pub const BATCH_OPS_MAX: usize = 16_384;

/// The operations of a batch.
type Ops = Max<Op, BATCH_OPS_MAX>;

choice! {
    /// The body of a request, by its tag.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Call "call" {
        /// Carry out one operation. With `open` a file that is made or found counts as opened once by this session.
        0 Op {
            (1)
            /// Count the made file as open.
            open,
            op: Op,
        }
        /// Carry out several, in order; each gets a result of its own.
        2 Batch {
            (3)
            /// Stop at the first that is refused.
            stop_on_failure,
            ops: Vec<Op> as Ops,
        }
        /// Carry out pending operations, in order: the client has acknowledged them under exclusive leases on the names of their
        /// directories. They make inodes (no nodes), remove names, write inline content or set attributes (no size). Each gets a result
        /// of its own. A client that makes a directory so gets such a lease on it.
        18 WriteBehind {
            ops: Vec<Op> as Ops,
            /// Of each operation, the answer that its caller got.
            acknowledged: Vec<Acknowledged> as Max<Acknowledged, BATCH_OPS_MAX>,
        }
        valid { ops.len() == acknowledged.len() }
        /// Operations of a session that is over, which the server did not carry out ([`Call::Ended`]). It carries out, in order, those
        /// that have the same outcome as before and that no other client has contradicted since, and refuses the others and all that
        /// rest on these. The answer is that to a batch.
        21 Late {
            /// [`crate::Answer::CarriedOut`]'s `end`: the operations took place in a state that had no later changes.
            since: Position,
            ops: Vec<Op> as Ops,
            /// Of each operation, the answer that its caller got.
            acknowledged: Vec<Acknowledged> as Max<Acknowledged, BATCH_OPS_MAX>,
        }
        valid { ops.len() == acknowledged.len() }
        /// Answer a question.
        31 Query(query: Query)
        /// Wait until this position (0: everything answered so far) is durable.
        4 Commit {
            upto: Position,
        }
        /// A lease on an inode. The answer waits until other sessions have returned theirs.
        5 Lease {
            ino: Ino,
            mode: LeaseMode,
        }
        /// An exclusive lease on the names of a directory, and inode numbers for new files there. The client may then acknowledge
        /// changes of these names, and send them afterwards ([`Call::WriteBehind`]). Not waited for: see [`crate::Answer::Names`].
        17 LeaseNames {
            dir: Ino,
            /// About so many numbers, of the directory's shard; none if the client has enough.
            numbers: u32 as Fixed,
        }
        /// A file that others have open is longer now, by writes that this client has acknowledged
        /// and may not have pushed: answered when all of them know ([`crate::Recall::grown`]).
        19 Grown {
            ino: Ino,
            /// Its size in bytes, at least 1.
            size: u64 as Fixed,
            /// Value of the last byte of the file.
            last: u8,
        }
        /// These opens ended (each occurrence one open less).
        6 Closed {
            inos: Vec<Ino>,
        }
        /// The first request on each connection that resumes a session: the files that the session has open, and the
        /// state that the server may not know. A server that was restarted counts the session as the holder of `dirty`
        /// and `names` until it gives them back, and answers nothing new before every session that it knows has declared.
        7 Reopen {
            /// Inode and number of opens.
            opens: Vec<(Ino, u32)> as Vec<(Ino, Fixed)>,
            /// Locks that it holds.
            locks: Vec<Lock>,
            /// Files with content that is not pushed, or of which a push is not answered.
            dirty: Vec<Ino>,
            /// Directories with pending operations ([`Call::WriteBehind`]).
            names: Vec<Ino>,
        }
        /// Which operations of a session that is over were carried out: [`crate::Answer::CarriedOut`], or
        /// [`chiton_types::Refusal::NotFound`] if the server does not remember that session.
        20 Ended {
            session: SessionId,
            secret: u64 as Fixed,
        }
        /// Set, change or drop a lock.
        8 SetLock {
            /// The lock; kind `Unlock` drops.
            lock: Lock,
            /// Wait until it can be granted.
            wait: bool,
        }
        /// Give up waiting for a lock asked for by request `id`.
        9 CancelLock {
            /// [`super::Request::id`] of the request that waits for the lock.
            id: u64 as Fixed,
        }
        /// Which lock would conflict.
        10 GetLock {
            /// The lock that would be set.
            lock: Lock,
        }
        /// Store a block in the server's object store. Durable when an operation that names it is, or a commit asked later
        /// is answered; until then the client puts it again should the server be restarted.
        11 PutBlock {
            /// Its name; the writer must be this session.
            block: BlockId,
            /// Encoded block (payload with trailer).
            bytes: Vec<u8>,
        }
        /// Read part of a block.
        12 GetBlock {
            block: BlockId,
            /// First byte of the payload.
            offset: u32 as Fixed,
            /// Bytes to read.
            len: u32 as Fixed,
        }
        /// Administrators' questions, answered with JSON: `status`, `df`, `top`, `metrics`.
        13 Admin {
            what: String,
        }
        /// Calls about decoupled realms.
        16 Realm(call: Box<RealmCall>)
        /// Nothing: keeps the session alive.
        14 Ping
        /// The session ends in order: opens, locks and leases are dropped.
        15 Bye
    }
}

impl Call {
    /// The operations that it asks for, in their order.
    pub fn ops(&self) -> &[Op] {
        match self {
            Call::Op { op, .. } => std::slice::from_ref(op),
            Call::Batch { ops, .. } | Call::WriteBehind { ops, .. } | Call::Late { ops, .. } => ops,
            _ => &[],
        }
    }
}

// Calls and questions share the tag in a request's header: a question needs no tag of its own, and lookups are the most
// frequent requests.
impl Call {
    #[inline]
    pub(crate) fn tag(&self) -> u8 {
        match self {
            Call::Query(query) => <Query as Tagged<Query>>::tag(query),
            call => <Call as Tagged<Call>>::tag(call),
        }
    }

    #[inline]
    pub(crate) fn put_rest(&self, out: &mut Vec<u8>) {
        match self {
            Call::Query(query) => <Query as Tagged<Query>>::put_rest(query, out),
            call => <Call as Tagged<Call>>::put_rest(call, out),
        }
    }

    #[inline]
    pub(crate) fn take_rest(tag: u8, from: &mut Take<'_>) -> Result<Call, Malformed> {
        match tag {
            QUERIES.. => Ok(Call::Query(<Query as Tagged<Query>>::take_rest(tag, from)?)),
            _ => <Call as Tagged<Call>>::take_rest(tag, from),
        }
    }
}

/// The first tag of questions; those below are calls.
const QUERIES: u8 = 32;
