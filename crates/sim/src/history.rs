//! What happened in a run, in the order in which it happened: what the checkers judge.
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

use chiton_types::{Ino, Refusal, SessionId, Time};
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

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A new directory.
    Mkdir {
        /// Of the directory.
        path: String,
        /// The permissions that are asked for.
        mode: u16,
    },
    /// A new regular file with this content, in one operation; refused if the name is taken.
    Create {
        /// Of the file.
        path: String,
        /// All of it.
        content: Vec<u8>,
    },
    /// A new symbolic link.
    Symlink {
        /// Of the link.
        path: String,
        /// What it says.
        target: String,
    },
    /// Another name of a file.
    Link {
        /// A name that it has.
        from: String,
        /// The new one.
        to: String,
    },
    /// Removes a name that is not a directory's.
    Unlink {
        /// The name.
        path: String,
    },
    /// Removes an empty directory.
    Rmdir {
        /// The name.
        path: String,
    },
    /// Moves a name; what is there is replaced, as POSIX has it.
    Rename {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Moves a name and leaves a whiteout.
    Whiteout {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Exchanges two names.
    Exchange {
        /// One.
        from: String,
        /// The other.
        to: String,
    },
    /// Sets an extended attribute (made or replaced). An empty value removes it.
    SetXattr {
        /// Of the inode.
        path: String,
        /// With its namespace: `user.x`.
        name: String,
        /// The value.
        value: Vec<u8>,
    },
    /// Sets the permission bits.
    Chmod {
        /// Of the inode.
        path: String,
        /// The low 12 bits.
        mode: u16,
    },
    /// Sets owner and group.
    Chown {
        /// Of the inode.
        path: String,
        /// The owner.
        uid: Option<u32>,
        /// The group.
        gid: Option<u32>,
    },
    /// Sets an access control list, or removes it.
    SetList {
        /// Of the inode.
        path: String,
        /// The default list of a directory, not the access list.
        default: bool,
        /// The list.
        list: Option<List>,
    },
    /// Sets atime and mtime.
    SetTimes {
        /// Of the inode.
        path: String,
        /// Both.
        time: Time,
    },
    /// Sets the size of a file.
    Truncate {
        /// Of the file.
        path: String,
        /// In bytes.
        size: u64,
    },
    /// Opens a file for reading and writing under a handle that is free in this client.
    Open {
        /// Of the file.
        path: String,
        /// Made if it is missing.
        create: bool,
        /// Emptied.
        truncate: bool,
        /// Its name from now on.
        handle: Handle,
    },
    /// Writes into an open file; may stay buffered in the client.
    Write {
        /// The file.
        handle: Handle,
        /// In bytes.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Makes a hole in an open file; its size stays.
    PunchHole {
        /// The file.
        handle: Handle,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u64,
    },
    /// Reads from an open file.
    Read {
        /// The file.
        handle: Handle,
        /// In bytes.
        offset: u64,
        /// At most.
        len: u64,
    },
    /// Makes an open file durable.
    Fsync {
        /// The file.
        handle: Handle,
    },
    /// Closes a handle.
    Close {
        /// The file.
        handle: Handle,
    },
    /// Reads a whole file.
    ReadFile {
        /// Of the file.
        path: String,
    },
    /// Opens a file, writes from its first byte on, closes it.
    WriteFile {
        /// Of the file.
        path: String,
        /// What.
        bytes: Vec<u8>,
    },
    /// Writes a record at the end of a file, through a descriptor (O_APPEND) that this client keeps open for it; may stay
    /// buffered in the client.
    Append {
        /// Of the file.
        path: String,
        /// The record: one line.
        bytes: Vec<u8>,
    },
    /// Makes durable what was appended through that descriptor.
    FsyncAppended {
        /// Of the file.
        path: String,
    },
    /// Closes that descriptor.
    CloseAppended {
        /// Of the file.
        path: String,
    },
    /// Attributes.
    Stat {
        /// Of the inode.
        path: String,
    },
    /// What a symbolic link says.
    ReadLink {
        /// Of the link.
        path: String,
    },
    /// The value of an extended attribute.
    GetXattr {
        /// Of the inode.
        path: String,
        /// With its namespace.
        name: String,
    },
    /// The names in a directory.
    List {
        /// Of the directory.
        path: String,
    },
    /// Makes what was answered so far durable, as fsync of a directory does. What is buffered is not pushed.
    FsyncDir,
    /// Pushes what is buffered and makes everything durable.
    Sync,
    /// In a subtree of one's own: what there is so far becomes everybody's.
    MergeSoFar,
    /// The same for everything, and the subtree is everybody's again.
    MergeAll,
    /// What is not merged is dropped, and the subtree is everybody's again.
    Discard,
    /// Reads marks in the subtree of another client, the last made first. Those that are there are answered, with their
    /// paths; one that does not hold what it should, with inode 0.
    Follow {
        /// Whose subtree.
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
            | Action::List { path } => vec![path],
            Action::Link { from, to }
            | Action::Rename { from, to }
            | Action::Whiteout { from, to }
            | Action::Exchange { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }
}

/// Attributes as they were answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number.
    pub ino: Ino,
    /// File, directory, …
    pub kind: chiton_types::Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Bytes (directories: as `stat` says).
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

/// What a call was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; nothing to say.
    Done,
    /// Done; the attributes of what was made, opened, changed or asked about.
    Attr(Seen),
    /// Bytes read, a link's target, an attribute's value.
    Bytes(Vec<u8>),
    /// Bytes written.
    Written(u64),
    /// Names, sorted, with their inodes.
    Names(Vec<(String, Ino)>),
    /// Refused: nothing was changed, unless it is [`Refusal::NotConnected`] or [`Refusal::Io`], which leave open
    /// whether the call took effect.
    Refused(Refusal),
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A client begins a call.
    Invoked {
        /// Who.
        client: ClientId,
        /// Which.
        call: CallId,
        /// As which user.
        user: User,
        /// What.
        action: Action,
    },
    /// A call returns.
    Returned {
        /// Who.
        client: ClientId,
        /// Which.
        call: CallId,
        /// With what.
        answer: Answer,
    },
    /// A client begins (again): it has no handles, nothing buffered and nothing cached.
    ClientStarted {
        /// Who.
        client: ClientId,
    },
    /// A client is gone, with what it buffered. Its session ends some time later.
    ClientCrashed {
        /// Who.
        client: ClientId,
    },
    /// A client's session was lost (it was silent for too long): what it had buffered, and answers that were not
    /// durable, may be lost.
    SessionLost {
        /// Who.
        client: ClientId,
    },
    /// What a client does from here on, it does in directories that it takes for itself.
    WorksApart {
        /// Who.
        client: ClientId,
    },
    /// A client has taken a directory of its own for itself alone.
    Decoupled {
        /// Who.
        client: ClientId,
        /// The directory.
        root: String,
        /// When the directory was changed last.
        changed: Time,
        /// What fsync answers there survives the client's machine.
        kept: bool,
        /// Merged by itself, too.
        merges: bool,
        /// What others may not do there.
        interfere: &'static str,
    },
    /// A client's claim to its subtree is void: it lost its session.
    ClaimLost {
        /// Who.
        client: ClientId,
    },
    /// A later life of a client goes on with the subtree of an earlier one, and finds this.
    WentOn {
        /// Who.
        client: ClientId,
        /// The directory.
        root: String,
        /// Everything in it.
        tree: Tree,
    },
    /// A client's subtree is everybody's although it did not see that: nothing is to be gone on with.
    IsOver {
        /// Who.
        client: ClientId,
        /// The directory.
        root: String,
    },
    /// A merge says that something is lost, or contradicts what others did.
    MergeTrouble {
        /// Who.
        client: ClientId,
        /// In words.
        what: String,
    },
    /// A client gave up what waited in a file to be stored.
    DataLost {
        /// Who.
        client: ClientId,
        /// The file.
        ino: Ino,
    },
    /// The server's clock was set, perhaps back.
    ClockSet,
    /// A server serves.
    ServerStarted {
        /// Which.
        server: ServerId,
        /// The epoch of its journal.
        epoch: u64,
        /// The last position that it found there.
        found: u64,
    },
    /// A server is gone. Its storage has forgotten what was not synced.
    ServerCrashed {
        /// Which.
        server: ServerId,
    },
    /// A server stands still (it does not know) until it goes on.
    ServerPaused {
        /// Which.
        server: ServerId,
    },
    /// See [`Happened::ServerPaused`].
    ServerResumed {
        /// Which.
        server: ServerId,
    },
    /// A server answered that something is durable (a commit).
    Acknowledged {
        /// Which.
        server: ServerId,
        /// The epoch of its journal.
        epoch: u64,
        /// Everything up to this position is said to be durable.
        durable: u64,
    },
    /// An answer that says that its session has a lease reached the client, and no recall crossed it.
    LeaseGiven {
        /// To whom.
        session: SessionId,
        /// On what.
        ino: Ino,
        /// How much.
        mode: LeaseMode,
        /// Sessions whose clients still believe what they have cached: they have heard of the server lately.
        believers: Vec<SessionId>,
    },
    /// A client gave a lease back.
    LeaseReturned {
        /// Who.
        session: SessionId,
        /// On what.
        ino: Ino,
        /// What remains.
        keep: LeaseMode,
    },
    /// A client believes nothing any more that it has cached in this session: it connects again, ends, or is dead.
    LeasesVoid {
        /// Of whom.
        session: SessionId,
    },
    /// A server answers an operation that changed names.
    NamesChanged {
        /// Who asked.
        session: SessionId,
        /// The directories.
        dirs: Vec<Ino>,
        /// When it was asked for.
        asked: Duration,
        /// As above.
        believers: Vec<SessionId>,
    },
    /// The tree as a fresh reader found it, when nothing else was under way.
    Observed {
        /// Everything.
        tree: Tree,
    },
}

/// When, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Simulated time since the beginning of the run.
    pub at: Duration,
    /// What.
    pub what: Happened,
}

/// All of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In the order of happening; `at` never falls.
    pub events: Vec<Event>,
}

impl History {
    /// Appends what happened.
    pub fn push(&mut self, at: Duration, what: Happened) {
        self.events.push(Event { at, what });
    }
}

/// What a checker found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the checker.
    pub checker: &'static str,
    /// In words: what was promised, what was found, which calls are involved.
    pub what: String,
}
