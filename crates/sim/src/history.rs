//! The events of a run in order, for the checkers.
//!
//! ```text
//!   Invoked(call 7, Rename a → b) … ServerCrashed … ServerStarted … Returned(call 7, Done) … Recovered(tree)
//! ```
//!
//! Invariants:
//! - A call is invoked once and returns at most once. One without a return was cut off by the end of its client
//!   ([`Happened::ClientCrashed`]): it may have taken effect or not, at any time from its invocation on.
//! - A client has at most one call under way at a time, so its calls are in order. Concurrency is between clients.
//! - Paths begin with `/` and have no `.` or `..`. Nothing follows symbolic links in the last component.

use std::time::Duration;

use chiton_types::{Ino, Name, PlateId, Plates, Refusal, SessionId, Time};
use chiton_wire::LeaseMode;

use crate::model::List;
use crate::tree::Tree;
use crate::users::User;

/// A client of the run. A client that crashed and came back keeps its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A server of the run: the first is 0; one that takes over has another number, one that restarts keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// Numbers the calls of a run, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Names an open file within one life of a client. Chosen by the plan, not by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Mkdir {
        path: String,
        mode: u16,
    },
    /// A new regular file with this content, in one operation; refused if the name is taken.
    Create {
        path: String,
        content: Vec<u8>,
    },
    /// A new symbolic link.
    Symlink {
        path: String,
        target: String,
    },
    /// Another name of a file.
    Link {
        /// An existing name of the file.
        from: String,
        to: String,
    },
    /// Removes a name that is not a directory's.
    Unlink {
        path: String,
    },
    /// Removes an empty directory.
    Rmdir {
        path: String,
    },
    /// Renames, and replaces an existing name as POSIX says.
    Rename {
        from: String,
        to: String,
    },
    /// Moves a name and leaves a whiteout.
    Whiteout {
        from: String,
        to: String,
    },
    Exchange {
        from: String,
        to: String,
    },
    /// Sets an extended attribute (made or replaced). An empty value removes it.
    SetXattr {
        path: String,
        /// With its namespace: `user.x`.
        name: String,
        value: Vec<u8>,
    },
    /// Sets the permission bits.
    Chmod {
        path: String,
        /// The low 12 bits.
        mode: u16,
    },
    /// Sets owner and group.
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// Sets an access control list, or removes it.
    SetList {
        path: String,
        /// The default list of a directory, not the access list.
        default: bool,
        list: Option<List>,
    },
    /// Sets atime and mtime.
    SetTimes {
        path: String,
        time: Time,
    },
    /// Sets the size of a file.
    Truncate {
        path: String,
        /// In bytes.
        size: u64,
    },
    /// Opens a file for reading and writing under a handle that is free in this client.
    Open {
        path: String,
        /// Create it if it is missing.
        create: bool,
        truncate: bool,
        /// The handle's name from now on.
        handle: Handle,
    },
    /// Writes into an open file; may stay buffered in the client.
    Write {
        handle: Handle,
        /// In bytes.
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Makes a hole in an open file; its size stays.
    PunchHole {
        handle: Handle,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u64,
    },
    /// Reads from an open file.
    Read {
        handle: Handle,
        /// In bytes.
        offset: u64,
        len: u64,
    },
    /// Makes an open file durable.
    Fsync {
        handle: Handle,
    },
    Close {
        handle: Handle,
    },
    /// Reads a whole file.
    ReadFile {
        path: String,
    },
    /// Opens a file, writes from its first byte on, closes it.
    WriteFile {
        path: String,
        bytes: Vec<u8>,
    },
    /// Writes a record at the end of a file, through a descriptor (O_APPEND) that this client keeps open for it; may stay
    /// buffered in the client.
    Append {
        path: String,
        /// The record: one line.
        bytes: Vec<u8>,
    },
    /// Makes the appends through that descriptor durable.
    FsyncAppended {
        path: String,
    },
    CloseAppended {
        path: String,
    },
    Stat {
        path: String,
    },
    /// Reads a symbolic link.
    ReadLink {
        path: String,
    },
    /// The value of an extended attribute.
    GetXattr {
        path: String,
        name: String,
    },
    List {
        path: String,
    },
    /// Spreads the names of a directory over the plates, as an administrator does.
    Split {
        path: String,
    },
    /// Brings the names of a directory back to one plate.
    Fold {
        path: String,
    },
    /// Makes acknowledged changes durable, as fsync of a directory does. Buffers are not pushed.
    FsyncDir,
    /// Pushes buffers and makes everything durable.
    Sync,
    /// In a decoupled subtree: merges the changes so far.
    MergeSoFar,
    /// Merges everything, and ends the decoupling.
    MergeAll,
    /// Drops unmerged changes, and ends the decoupling.
    Discard,
    /// Reads marks in another client's subtree, the last one first. The answer has the paths of existing marks; a
    /// mark with wrong content has inode 0.
    Follow {
        /// The client with the subtree.
        client: usize,
        /// Paths of marks, as they were made; filled in when it begins.
        marks: Vec<String>,
    },
}

impl Action {
    /// The paths that it names, both of those with two.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        match self {
            Action::Mkdir { path, .. }
            | Action::Create { path, .. }
            | Action::Symlink { path, .. }
            | Action::Unlink { path }
            | Action::Rmdir { path }
            | Action::SetXattr { path, .. }
            | Action::Chmod { path, .. }
            | Action::Chown { path, .. }
            | Action::SetList { path, .. }
            | Action::SetTimes { path, .. }
            | Action::Truncate { path, .. }
            | Action::Open { path, .. }
            | Action::ReadFile { path }
            | Action::WriteFile { path, .. }
            | Action::Append { path, .. }
            | Action::FsyncAppended { path }
            | Action::CloseAppended { path }
            | Action::Stat { path }
            | Action::ReadLink { path }
            | Action::GetXattr { path, .. }
            | Action::Split { path }
            | Action::Fold { path }
            | Action::List { path } => vec![path],
            Action::Link { from, to }
            | Action::Rename { from, to }
            | Action::Whiteout { from, to }
            | Action::Exchange { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }
}

/// Attributes in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub ino: Ino,
    pub kind: chiton_types::Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Size in bytes (of directories as `stat` returns it).
    pub size: u64,
    pub atime: Time,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of any kind.
    pub ctime: Time,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// Success; the attributes of the created, opened, changed or named inode.
    Attr(Seen),
    /// Bytes read, a link's target, an attribute's value.
    Bytes(Vec<u8>),
    /// Number of bytes that were written.
    Written(u64),
    /// Names, sorted, with their inodes.
    Names(Vec<(String, Ino)>),
    /// Refused: nothing was changed, unless it is [`Refusal::NotConnected`] or [`Refusal::Io`], which leave open
    /// whether the call took effect.
    Refused(Refusal),
}

/// An event of a run: a call, its return, or a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A client begins a call.
    Invoked {
        client: ClientId,
        call: CallId,
        user: User,
        action: Action,
    },
    Returned {
        client: ClientId,
        call: CallId,
        answer: Answer,
    },
    /// A client begins (again): it has no handles, nothing buffered and nothing cached.
    ClientStarted {
        client: ClientId,
    },
    /// A client died with its buffers. Its session expires later.
    ClientCrashed {
        client: ClientId,
    },
    /// A client's session expired: its buffers, and answers that were not durable, may be lost.
    SessionLost {
        client: ClientId,
    },
    /// From here on the client works in directories that it decouples.
    WorksApart {
        client: ClientId,
    },
    /// A client has decoupled a directory of its own.
    Decoupled {
        client: ClientId,
        root: String,
        /// Time of the directory's last change.
        changed: Time,
        /// Data of a returned fsync survive the client's machine.
        kept: bool,
        /// It is also merged automatically.
        merges: bool,
        /// The policy for other clients.
        interfere: &'static str,
    },
    /// A client's claim to its subtree is void: it lost its session.
    ClaimLost {
        client: ClientId,
    },
    /// A later life of a client resumes the subtree of an earlier one, and finds this tree.
    WentOn {
        client: ClientId,
        root: String,
        tree: Tree,
    },
    /// A client's decoupling has ended without its knowledge, so there is nothing to resume.
    IsOver {
        client: ClientId,
        root: String,
    },
    /// A merge reports a loss or a conflict.
    MergeTrouble {
        client: ClientId,
        what: String,
    },
    /// A plate answers an operation on names, which it has decided. (Recorded only where directories are split.)
    Decided {
        client: ClientId,
        plate: PlateId,
        names: Vec<Name>,
    },
    /// A client gave up buffered content that could not be stored.
    DataLost {
        client: ClientId,
        ino: Ino,
    },
    /// The server's clock was set, perhaps back.
    ClockSet,
    /// A plate has started: with its server, or alone.
    ServerStarted {
        server: ServerId,
        plate: PlateId,
        /// The epoch of its journal.
        epoch: u64,
        /// The last position that it found there.
        found: u64,
    },
    /// A server died, or a plate of it. Its storage has lost unsynced data.
    ServerCrashed {
        server: ServerId,
    },
    /// A server is paused, without its knowledge.
    ServerPaused {
        server: ServerId,
    },
    /// The server that [`Happened::ServerPaused`] paused runs again.
    ServerResumed {
        server: ServerId,
    },
    /// A server answered that something is durable (a commit).
    Acknowledged {
        server: ServerId,
        plate: PlateId,
        /// The epoch of its journal.
        epoch: u64,
        /// The server reports everything up to this position as durable.
        durable: u64,
    },
    /// An answer that grants a lease reached the client, and no recall crossed it.
    LeaseGiven {
        session: SessionId,
        ino: Ino,
        mode: LeaseMode,
        /// Sessions whose clients still trust their caches, because they have heard of the server lately.
        believers: Vec<SessionId>,
    },
    /// A client gave a lease back.
    LeaseReturned {
        session: SessionId,
        ino: Ino,
        keep: LeaseMode,
    },
    /// A client believes nothing any more that it has cached in this session: it connects again, ends, or is dead.
    LeasesVoid {
        session: SessionId,
    },
    /// A server answers an operation that changed names.
    NamesChanged {
        session: SessionId,
        dirs: Vec<Ino>,
        /// Time at which the call was sent.
        asked: Duration,
        /// But for sessions of the same client with other plates.
        believers: Vec<SessionId>,
    },
    /// The tree as a fresh reader found it, when nothing else was under way.
    Observed {
        tree: Tree,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Simulated time since the beginning of the run.
    pub at: Duration,
    pub what: Happened,
}

/// All of a run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The plates of the file system.
    pub plates: Plates,
    /// Directories are split over them.
    pub splits: bool,
    /// In the order of happening; `at` never falls.
    pub events: Vec<Event>,
}

impl Default for History {
    fn default() -> History {
        History { plates: Plates::one(1), splits: false, events: Vec::new() }
    }
}

impl History {
    pub fn push(&mut self, at: Duration, what: Happened) {
        self.events.push(Event { at, what });
    }
}

/// A violation that a checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the checker.
    pub checker: &'static str,
    /// The promise, the observation, and the calls involved.
    pub what: String,
}
