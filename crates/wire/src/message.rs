//! What client and server say to each other.
//!
//! ```text
//!  client ── Hello ───────────▶ server      once per connection; a session has two:
//!         ◀────────── Welcome ──             `Main` (requests, replies) and `Recall`
//!         ── Request(id) ─────▶              any number in flight
//!         ◀────────── Reply(id) ──           in any order
//!         ◀────────── Recall(id) ──          on the recall connection
//!         ── RecallDone(id) ──▶              on the recall connection
//! ```

use crate::realm::{RealmAnswer, RealmCall};
use chiton_model::{Extent, Op, Outcome};
use chiton_types::{Attr, BlockId, Cred, Epoch, Ino, Kind, Name, Position, Refusal, Seq, SessionId, Time};

/// Version of the protocol; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest frame, in bytes: a block of 16 MiB and what goes with it.
pub const FRAME_BYTES_MAX: usize = (16 << 20) + (64 << 10);
/// Most operations in one batch.
pub const BATCH_OPS_MAX: usize = 16_384;
/// Most supplementary groups (Linux: 65,536).
pub const GROUPS_MAX: usize = 65_536;

/// Which of a session's two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Channel {
    /// Requests and replies.
    Main = 0,
    /// The server's recalls and their acknowledgements.
    Recall = 1,
}

/// First message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// Which connection this is.
    pub channel: Channel,
    /// The session to go on with, and its secret; `None` begins one (main channel only).
    pub resume: Option<(SessionId, u64)>,
    /// Who: host, process, mount point; for `status` and logs. At most 256 bytes.
    pub identity: String,
    /// On resume: operations that the client will send again before anything new.
    pub resend_count: u32,
    /// The client decouples subtrees whose policy asks for it: see
    /// [`chiton_types::Refusal::Undecoupled`].
    pub decouples: bool,
}

/// Answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// Go on.
    Accepted {
        /// The session.
        session: SessionId,
        /// Shows that a later connection belongs to it.
        secret: u64,
        /// The maps' epoch.
        epoch: Epoch,
        /// Identity of this file system.
        filesystem: u64,
        /// Grows with each start of the server: a client that sees a new one re-declares opens and locks.
        boot: u64,
        /// What a client caches is valid for no longer than this after the last word from the server, in milliseconds.
        /// Neither this server nor the next, after a restart, lets others have what the session holds any sooner.
        session_ms: u32,
        /// Durable position.
        durable: Position,
        /// Where a client on the same machine finds the object store (`local:/path`), else empty: blocks then
        /// go through the server.
        objects: String,
    },
    /// Not possible; the connection is closed.
    Refused {
        /// Why.
        reason: RefuseReason,
        /// In words, with what to do next.
        message: String,
    },
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefuseReason {
    /// Another protocol version.
    Version = 1,
    /// The session to resume is unknown, expired, or the secret is wrong.
    SessionGone = 2,
    /// Too many sessions.
    Full = 3,
    /// The server is shutting down or not ready.
    NotReady = 4,
}

/// A request on the main channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the client, unique among its requests in flight.
    pub id: u64,
    /// For calls that change something: the operation's number in the session (of a batch: of its first
    /// operation, the others follow without gaps). 0: not kept, not sent again.
    pub seq: Seq,
    /// The client knows that everything below this is durable, or was refused: the server may forget it.
    pub settled: Seq,
    /// The client's epoch.
    pub epoch: Epoch,
    /// Sent again after a reconnect. A batch that was never answered is sent again whole (with the default);
    /// of one that was, the operations that succeeded are sent again one by one.
    pub again: Option<Again>,
    /// Who asks.
    pub cred: Cred,
    /// What is asked.
    pub call: Call,
}

/// The first answer to an operation that is sent again. The server repeats it, with the same inode number and the same time, also
/// when it has lost the operation: the caller has seen them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Again {
    /// [`Welcome::Accepted`]'s `boot` of the start of the server that answered it first.
    pub boot: u64,
    /// Its position then, 0 if it was never answered. Positions of two starts cannot be compared; (boot, position)
    /// is the order in which all sessions' operations took effect.
    pub position: Position,
    /// The inode that it made, 0 if none (or never answered): to be offered to the plan again.
    pub ino: Ino,
    /// The time of its change, 0 if not known.
    pub time: Time,
}

/// The answer that the client gave to the caller of an operation before the server knew of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acknowledged {
    /// The inode that it makes (one of the next of the numbers that the session was granted in its shard), writes or removes.
    pub ino: Ino,
    /// When.
    pub time: Time,
    /// Count the made file as open.
    pub open: bool,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Carry out one operation. With `open` a file that is made or found counts as opened once by this session.
    Op {
        /// The operation.
        op: Op,
        /// Count the made file as open.
        open: bool,
    },
    /// Carry out several, in order; each gets a result of its own.
    Batch {
        /// The operations.
        ops: Vec<Op>,
        /// Stop at the first that is refused.
        stop_on_failure: bool,
    },
    /// Carry out pending operations, in order: the client has acknowledged them under exclusive leases on the names of their
    /// directories. They make inodes (no nodes), remove names, write inline content or set attributes (no size). Each gets a result
    /// of its own. A client that makes a directory so gets such a lease on it.
    WriteBehind {
        /// The operations.
        ops: Vec<Op>,
        /// Of each operation, the answer that its caller got.
        acknowledged: Vec<Acknowledged>,
    },
    /// Answer a question.
    Query(Query),
    /// Wait until this position (0: everything answered so far) is durable.
    Commit {
        /// The position.
        upto: Position,
    },
    /// A lease on an inode, waiting until others have given up theirs.
    Lease {
        /// Inode.
        ino: Ino,
        /// What for.
        mode: LeaseMode,
    },
    /// An exclusive lease on the names of a directory, and inode numbers for new files there. The client may then acknowledge
    /// changes of these names, and send them afterwards ([`Call::WriteBehind`]). Not waited for: see [`Answer::Names`].
    LeaseNames {
        /// Directory.
        dir: Ino,
        /// About so many numbers, of the directory's shard; none if the client has enough.
        numbers: u32,
    },
    /// A file that others have open is longer now, by what this client has answered and may not have pushed: answered when all of
    /// them know ([`Recall::grown`]).
    Grown {
        /// Inode.
        ino: Ino,
        /// Its size in bytes, at least 1.
        size: u64,
        /// Its last byte.
        last: u8,
    },
    /// These opens ended (each occurrence one open less).
    Closed {
        /// Inodes.
        inos: Vec<Ino>,
    },
    /// The first request on each connection that resumes a session: what the session has open, and what it has that the
    /// server may not know. A server that was restarted counts the session as the holder of `dirty` and `names` until it
    /// gives them back, and answers nothing new before every session that it knows has declared.
    Reopen {
        /// Inode and number of opens.
        opens: Vec<(Ino, u32)>,
        /// Locks held.
        locks: Vec<Lock>,
        /// Files with content that is not pushed, or of which a push is not answered.
        dirty: Vec<Ino>,
        /// Directories with pending operations ([`Call::WriteBehind`]).
        names: Vec<Ino>,
    },
    /// Which operations of a session that is over were carried out: [`Answer::CarriedOut`], or
    /// [`chiton_types::Refusal::NotFound`] if the server does not remember that session.
    Ended {
        /// The session.
        session: SessionId,
        /// Its secret.
        secret: u64,
    },
    /// Set, change or drop a lock.
    SetLock {
        /// The lock; kind `Unlock` drops.
        lock: Lock,
        /// Wait until it can be granted.
        wait: bool,
    },
    /// Give up waiting for a lock asked for by request `id`.
    CancelLock {
        /// The waiting request.
        id: u64,
    },
    /// Which lock would conflict.
    GetLock {
        /// The lock that would be set.
        lock: Lock,
    },
    /// Store a block in the server's object store. Durable when an operation that names it is, or a commit asked later
    /// is answered; until then the client puts it again should the server be restarted.
    PutBlock {
        /// Its name; the writer must be this session.
        block: BlockId,
        /// Encoded block (payload with trailer).
        bytes: Vec<u8>,
    },
    /// Read part of a block.
    GetBlock {
        /// Its name.
        block: BlockId,
        /// First byte of the payload.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// Administrators' questions, answered with JSON: `status`, `df`, `top`, `metrics`.
    Admin {
        /// Which.
        what: String,
    },
    /// What concerns decoupled realms.
    Realm(Box<RealmCall>),
    /// Nothing: keeps the session alive.
    Ping,
    /// The session ends in order: opens, locks and leases are dropped.
    Bye,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// A name in a directory (`.` and `..` are the client's matter). Asks search permission.
    Lookup {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// Attributes.
    GetAttr {
        /// Inode.
        ino: Ino,
    },
    /// Open: attributes, with a check of `want` (bits of [`chiton_types::access`]); counts as opened once.
    /// Writers elsewhere are asked to write back first.
    Open {
        /// Inode.
        ino: Ino,
        /// Bits; 0 for O_PATH-like opens without a check.
        want: u8,
    },
    /// Permission check alone (access(2)).
    Access {
        /// Inode.
        ino: Ino,
        /// Bits.
        want: u8,
    },
    /// Entries of a directory in the order of [`chiton_types::name_hash`], after `cookie` (0: from the start).
    ReadDir {
        /// Directory.
        dir: Ino,
        /// Hash of the last entry seen.
        cookie: u64,
        /// At most so many entries (entries of the same hash are never parted, so there may be a few more).
        entries_max: u32,
        /// With attributes, and leases on them.
        plus: bool,
    },
    /// Target of a symbolic link.
    ReadLink {
        /// Inode.
        ino: Ino,
    },
    /// Value of an extended attribute. Asks for read permission (`user.`), or root (`trusted.`).
    GetXattr {
        /// Inode.
        ino: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// Names of the extended attributes.
    ListXattr {
        /// Inode.
        ino: Ino,
    },
    /// Where a file's bytes are: see [`Answer::Map`].
    Map {
        /// Inode.
        ino: Ino,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for; the answer covers whole chunks of the map.
        len: u64,
    },
    /// A whole path from a directory on, symbolic links included, at most 40; asks search permission on the way.
    Resolve {
        /// Where relative paths begin (and absolute ones too: the root of this file system is [`Ino::ROOT`]).
        from: Ino,
        /// The path.
        path: Vec<u8>,
        /// Also follow a symbolic link at the end.
        follow: bool,
    },
    /// Totals of the file system.
    StatFs,
}

/// What a client may do by itself with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LeaseMode {
    /// Nothing.
    None = 0,
    /// Cache names (present and absent), attributes and content.
    Shared = 1,
    /// Also buffer writes and own size and times: nobody else has a lease.
    Exclusive = 2,
}

/// A lock, POSIX (by range) or BSD (whole file).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Inode.
    pub ino: Ino,
    /// flock(2) instead of fcntl(2).
    pub flock: bool,
    /// Owner as the kernel of that mount names it.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` for "to the end".
    pub end: u64,
    /// What kind.
    pub kind: LockKind,
    /// Process, for `F_GETLK`.
    pub pid: u32,
}

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LockKind {
    /// Drop.
    Unlock = 0,
    /// Shared.
    Read = 1,
    /// Exclusive.
    Write = 2,
}

/// A reply on the main channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of which request.
    pub id: u64,
    /// The server's epoch.
    pub epoch: Epoch,
    /// Everything up to here is durable.
    pub durable: Position,
    /// The result.
    pub result: Result<Answer, Failure>,
}

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The caller gets this errno.
    Refused(Refusal),
    /// Ask again with supplementary groups.
    NeedGroups,
    /// The session is unknown or expired: what it had buffered is lost (EIO), begin a new one.
    SessionGone,
    /// The request breaks the protocol; in words.
    Malformed(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// An operation was carried out at this position.
    Op {
        /// Position of its last event; 0: the journal holds nothing of it (it changed nothing, or its policy has it so), and
        /// it is not to be sent again.
        position: Position,
        /// What became of it.
        outcome: Outcome,
        /// The lease that the session now has on the inode of `outcome.attr`.
        lease: LeaseMode,
        /// The session has a shared lease on the directory (names may be cached).
        parent_leased: bool,
    },
    /// A result for each operation of a batch that was performed, in order.
    Batch(Vec<Result<(Position, Outcome), Failure>>),
    /// Of each operation of [`Call::WriteBehind`], in order: its position (as in `Op`), and the lease that the session now has on
    /// what it is about (exclusive of a new directory: on its names).
    WriteBehind(Vec<Result<(Position, LeaseMode), Failure>>),
    /// To [`Call::Ended`]: runs of numbers of operations that were carried out, each with its first number and the first past
    /// it, rising. They are durable. Operations below the last number that the client settled are not listed.
    CarriedOut(Vec<(Seq, Seq)>),
    /// To [`Call::LeaseNames`].
    Names {
        /// The session has the lease. Not so where others have leases on the directory or want one, or where its policy
        /// has the server answer each operation.
        leased: bool,
        /// The directory's attributes.
        attr: Attr,
        /// Inode numbers: the first, and the first past them.
        numbers: (Ino, Ino),
        /// The server's clock.
        now: Time,
    },
    /// An inode.
    Attr {
        /// Its attributes.
        attr: Attr,
        /// The lease that the session now has on it (None: do not cache).
        lease: LeaseMode,
        /// For lookups: the session has a lease on the directory, so the name may be cached.
        parent_leased: bool,
        /// For lookups: everybody may search the directory, so cached names need no check.
        parent_open: bool,
    },
    /// For lookups: no such name.
    Absent {
        /// The session has a lease on the directory, so that may be cached.
        parent_leased: bool,
        /// As in `Attr`.
        parent_open: bool,
    },
    /// Entries of a directory.
    Entries {
        /// In the order of cookies.
        entries: Vec<DirEntry>,
        /// There are no more.
        end: bool,
        /// As in `Attr`.
        parent_leased: bool,
        /// As in `Attr`.
        parent_open: bool,
    },
    /// Bytes: a link's target, an attribute's value, names (each ended by NUL), a block's range, JSON.
    Bytes(Vec<u8>),
    /// Content of a file.
    Map {
        /// Its attributes (size!).
        attr: Attr,
        /// The lease on it.
        lease: LeaseMode,
        /// The content.
        content: Content,
    },
    /// Totals.
    StatFs(StatFs),
    /// The lease that the session has now.
    Lease {
        /// At least what was asked.
        mode: LeaseMode,
        /// Attributes at that moment.
        attr: Attr,
        /// Others have the file open, and are to hear of each growth before it is answered ([`Call::Grown`]).
        is_watched: bool,
    },
    /// The lock that conflicts, if any.
    Lock(Option<Lock>),
    /// What concerns decoupled realms.
    Realm(RealmAnswer),
}

/// Content of a file, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it; if it is shorter than the file's size, the rest reads as zeros.
    Inline(Vec<u8>),
    /// The mapping of the chunks from `start` to `end` (multiples of the chunk size, `end` exclusive).
    Extents {
        /// First byte covered.
        start: u64,
        /// One past the last byte covered.
        end: u64,
        /// What is mapped there; the rest is holes.
        extents: Vec<Extent>,
    },
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Name.
    pub name: Name,
    /// Inode.
    pub ino: Ino,
    /// Type.
    pub kind: Kind,
    /// Place in the order of the directory ([`chiton_types::name_hash`] of the name).
    pub cookie: u64,
    /// With `plus`: attributes, and whether the session has a lease on them.
    pub attr: Option<(Attr, LeaseMode)>,
}

/// Totals of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatFs {
    /// Bytes of the store's disk.
    pub bytes_total: u64,
    /// Bytes free on it.
    pub bytes_free: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}

/// The server asks for a lease back (recall channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// To be repeated in the acknowledgement.
    pub id: u64,
    /// Inode; [`Recall::EVERYTHING`]: each on which the client may hold a lease. A client that keeps a `Shared` one has sent its
    /// pending operations before it acknowledges.
    pub ino: Ino,
    /// What the client may keep: `None`, or `Shared` (write back what is dirty, keep reading).
    pub keep: LeaseMode,
    /// Not a recall: the client keeps what it has, and is to know of this before it acknowledges.
    pub grown: Option<Grown>,
}

/// A file that the client has open grew elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Its size in bytes, at least 1.
    pub size: u64,
    /// Its last byte.
    pub last: u8,
}

impl Recall {
    /// Stands for all inodes.
    pub const EVERYTHING: Ino = Ino(0);
}

/// The client gave the lease back (recall channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallDone {
    /// Of which recall.
    pub id: u64,
}
