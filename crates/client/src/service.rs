//! The seam between the client and the service that answers it: a server at the other end of a socket, or one in this process.
//!
//! [`Service`] answers calls, and includes the other traits: [`Session`] (what the client may believe), [`Durability`] (what survives a
//! crash of the server), [`PlateLookup`] (which plate has an inode) and [`Connection`] (the way to the server). A service that stands around
//! another one, and changes only how calls are answered, is a `Decorator`.
//!
//! ```text
//!   Client ──┬── names, attributes ──▶ Service ──▶ embedded server
//!            └── Files (data layer) ──▶        ├─▶ connection: numbers, resends, reconnects
//!                                              └─▶ Routed: one of these for each plate of the file system
//! ```
//!
//! Invariants:
//! - A call returns when it is answered. Lost connections and restarts of the server are not visible here, but
//!   as time that passes.
//! - Every operation takes effect exactly once, in the order in which one thread made them.
//! - No lock is held while the recall handler runs, and none may be held by it that a caller holds while it
//!   waits for a call on the same inode.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chiton_model::Op;
use chiton_types::{Attr, Capabilities, Cred, Ino, Mode, PlateId, Position, Privileges, Refusal, SessionId};
use chiton_wire::{Answer, Call, Failure};

use crate::{CancelToken, PartLists, Recalls};

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The caller gets this errno.
    Refused(Refusal),
    /// Ask again with supplementary groups and capabilities.
    NeedGroups,
}

impl CallError {
    /// The same of one operation of a batch.
    pub(crate) fn failure(self) -> Failure {
        match self {
            CallError::Refused(refusal) => Failure::Refused(refusal),
            CallError::NeedGroups => Failure::NeedGroups,
        }
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> CallError {
        CallError::Refused(refusal)
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> CallError {
        match failure {
            Failure::Refused(refusal) => CallError::Refused(refusal),
            Failure::NeedGroups => CallError::NeedGroups,
            Failure::SessionGone => CallError::Refused(Refusal::Io),
            Failure::Malformed(reason) => {
                tracing::warn!(
                    "the server does not understand this client: {reason}; use the same version of chiton for both"
                );
                CallError::Refused(Refusal::Io)
            }
        }
    }
}

/// Whether the caller of the current thread has been interrupted.
pub type Interrupted = Box<dyn Fn() -> bool + Send + Sync>;

/// A service that answers calls: a server at the other end of a connection, or one in this process.
pub trait Service: Session + Durability + PlateLookup + Connection {
    /// Asks and waits for the answer. Of a batch the answer is [`Answer::Batch`], with a result each.
    ///
    /// # Errors
    /// The refusal; [`Refusal::NotConnected`] when the server cannot be reached for longer than the time-out;
    /// [`Refusal::Io`] when the session expired before the answer was known.
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError>;

    /// As [`Service::call`], but only while this session lasts: [`Refusal::Io`] if it is over before the call is sent. For
    /// operations that the client reports as lost with the session.
    ///
    /// # Errors
    /// As [`Service::call`].
    fn call_in(&self, _session: SessionId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.call(cred, call)
    }

    /// As [`Service::call`], at a plate that the caller names. A service of one plate asks that one.
    ///
    /// # Errors
    /// As [`Service::call`]; [`Refusal::Invalid`] if there is no such plate.
    fn call_at(&self, _plate: PlateId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.call(cred, call)
    }

    /// As [`Service::call`], for a call that may wait long ([`Call::SetLock`]): `token` ends the wait, with
    /// [`Refusal::Interrupted`].
    ///
    /// # Errors
    /// As [`Service::call`].
    fn call_cancellable(&self, cred: &Cred, call: Call, token: &CancelToken) -> Result<Answer, CallError> {
        // A service whose locks are never waited for has nothing to end.
        let answer = self.call(cred, call);
        token.over();
        answer
    }

    /// Asks without waiting: many calls of one thread may be under way, in order.
    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway>;

    /// Makes empty files, in the order of their names, where that is possible without a request: attributes of those made. For
    /// the rest the caller sends requests.
    fn create_lazily(&self, _cred: &Cred, _parent: Ino, _names: &[&[u8]], _mode: Mode) -> Vec<Attr> {
        Vec::new()
    }

    /// Writes all of a small file by write-behind, if possible: its attributes then. `known`: its attributes under an exclusive
    /// lease.
    fn write_locally(&self, _cred: &Cred, _op: &Op, _known: &Attr) -> Option<Attr> {
        None
    }
}

/// The session in which calls are made: its leases, and the state that the server is to know.
pub trait Session: Send + Sync {
    /// The session with the plate that owns an inode. Blocks that are written for the inode bear it as their writer. It changes when a
    /// session expired.
    fn session(&self, ino: Ino) -> SessionId;

    /// Until when (in the world's monotonic time) what is cached under a lease on an inode may be believed.
    fn valid_until(&self, ino: Ino) -> Duration;

    /// The recalls so far. A cache under a lease takes `recalls().now()` before the call that grants it,
    /// and keeps nothing if `recalled_since` says yes afterwards.
    fn recalls(&self) -> &Recalls;

    /// False if no other client uses the file system now, as far as is known.
    fn is_shared(&self) -> bool {
        true
    }

    /// Returns when the server has answered all operations that write-behind has acknowledged so far: a call at another plate could
    /// see or undo them.
    ///
    /// # Errors
    /// As [`Service::call`].
    fn settle(&self) -> Result<(), CallError> {
        Ok(())
    }

    /// An open of `ino` ended. The next request reports it to the server, after at most a second.
    fn closed(&self, ino: Ino);
}

/// How much of the answered operations survives a crash of the server.
pub trait Durability: Send + Sync {
    /// Everything up to here is known to be durable. Of several plates: with that of the root directory.
    fn durable(&self) -> Position;

    /// Returns when everything up to `upto` (0: everything answered so far) is durable. A position is one of a single plate: several
    /// plates make everything durable.
    ///
    /// # Errors
    /// [`Refusal::Io`], once, if answered operations of this session were lost.
    fn commit(&self, upto: Position) -> Result<(), Refusal>;

    /// Returns when everything answered so far to this client is durable, and all that any client has changed of an inode.
    ///
    /// # Errors
    /// As [`Durability::commit`].
    fn commit_with(&self, _ino: Ino) -> Result<(), Refusal> {
        self.commit(Position(0))
    }

    /// Whether something that this client was answered may not be durable.
    fn needs_commit(&self) -> bool {
        true
    }

    /// True once after answered operations were lost.
    fn take_lost(&self) -> bool {
        false
    }

    /// Waits until there is memory for more operations that are not durable yet; for callers of [`Service::start`] that
    /// ask for many.
    ///
    /// # Errors
    /// As [`Service::call`].
    fn make_room(&self) -> Result<(), CallError> {
        Ok(())
    }
}

/// Which plate has an inode. The defaults are those of a file system with one plate.
pub trait PlateLookup: Send + Sync {
    /// How many plates serve the file system.
    fn plates(&self) -> u16 {
        1
    }

    /// The plate that has an inode.
    fn plate_of(&self, _ino: Ino) -> PlateId {
        PlateId(0)
    }

    /// Which directories have parts on several plates, as far as is known.
    fn part_lists(&self) -> Arc<PartLists> {
        Arc::default()
    }
}

/// The way to the server: whether it is there, and how it ends.
pub trait Connection: Send + Sync {
    /// True if the server is in this process: asking it costs less than a cache.
    fn is_embedded(&self) -> bool;

    /// Whether there is no connection to the server now.
    fn is_away(&self) -> bool {
        false
    }

    /// Whether the server answers now, within a few seconds: a connection to one that is stuck may look healthy.
    ///
    /// # Errors
    /// Why not, in words.
    fn probe(&self) -> Result<(), String> {
        Ok(())
    }

    /// Operations that were answered and are not known to be durable, or have no answer yet.
    fn unsettled(&self) -> usize {
        0
    }

    /// Questions, operations and commits that were sent so far, each once: not what keeps the session alive or reports closes.
    fn messages(&self) -> u64 {
        0
    }

    /// Calls that wait for a server that is away ask this, about ten times a second, on their own thread; `true` ends
    /// the wait with [`Refusal::Interrupted`].
    fn set_interrupted(&self, _interrupted: Interrupted) {}

    /// From now on a server that says nothing for `limit` is given up for good: calls that wait, and all later ones,
    /// are answered [`Refusal::NotConnected`]. For the end of a mount. A server in this
    /// process waits for a store that is away no longer than that.
    fn leave(&self, _limit: Duration) {}

    /// Ends as a crash would: nothing more is sent, and callers that wait get [`Refusal::NotConnected`].
    fn abandon(&self) {}
}

/// A call under way: a future, or something to wait for.
pub trait Underway: Future<Output = Result<Answer, CallError>> + Send + Unpin {
    /// Waits for the answer on this thread.
    ///
    /// # Errors
    /// As [`Service::call`].
    fn wait(self: Box<Self>) -> Result<Answer, CallError>;
}

/// A call whose answer is there already.
pub fn ready(answer: Result<Answer, CallError>) -> Box<dyn Underway> {
    Box::new(Ready(Some(answer)))
}

struct Ready(Option<Result<Answer, CallError>>);

impl Future for Ready {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.0.take().expect("a future is not polled after its end"))
    }
}

impl Underway for Ready {
    fn wait(mut self: Box<Self>) -> Result<Answer, CallError> {
        self.0.take().expect("a future is not waited for after its end")
    }
}

/// Supplementary groups and capabilities of a caller.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Ids of the supplementary groups.
    pub groups: Arc<[u32]>,
    /// Capabilities, and in which user namespace they count.
    pub privileges: Privileges,
}

/// Finds out about a caller what costs something to find out.
pub trait LookUp {
    /// Groups and capabilities. Asked for only when a decision depends on them.
    fn standing(&self) -> Standing;

    /// Whether the caller's machine protects hard links (`fs.protected_hardlinks`).
    fn protects_hardlinks(&self) -> bool {
        false
    }

    /// The caller's umask, if it is not applied yet.
    fn umask(&self) -> u16 {
        0
    }
}

/// Supplementary groups of a caller, and capabilities.
#[derive(Clone, Copy)]
pub enum Groups<'a> {
    /// These. User 0 has all capabilities, others have none.
    Known(&'a Arc<[u32]>),
    /// Looked up (in `/proc`) only when a decision depends on them.
    Lazy(&'a dyn LookUp),
}

/// The user for whom a call is made.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups and capabilities, known or to be looked up.
    pub groups: Groups<'a>,
}

impl Caller<'_> {
    /// Credentials without what must be looked up.
    pub fn cred(&self) -> Cred {
        match self.groups {
            Groups::Known(groups) => Cred::new(self.uid, self.gid, groups),
            Groups::Lazy(look_up) => Cred {
                protected_hardlinks: look_up.protects_hardlinks(),
                umask: look_up.umask(),
                ..Cred::unseen(self.uid, self.gid)
            },
        }
    }

    /// Credentials with groups and capabilities.
    pub fn full_cred(&self) -> Cred {
        match self.groups {
            Groups::Known(_) => self.cred(),
            Groups::Lazy(look_up) => {
                let Standing { groups, privileges } = look_up.standing();
                Cred { groups: Some(groups), privileges: Some(privileges), ..self.cred() }
            }
        }
    }

    /// Whether the caller's writes leave set-id bits as they are (CAP_FSETID).
    pub fn keeps_setid(&self) -> bool {
        self.full_cred().everywhere(Capabilities::FSETID) == Some(true)
    }
}

/// Asks as `caller`: first without groups and capabilities that would have to be looked up, then with them if they decide.
///
/// # Errors
/// As [`Service::call`].
pub fn ask(service: &dyn Service, caller: &Caller<'_>, call: Call) -> Result<Answer, Refusal> {
    let again = match caller.groups {
        Groups::Known(_) => None,
        // Batches and large writes are not copied on suspicion: they go with groups and capabilities at once.
        Groups::Lazy(_) if matches!(call, Call::Batch { .. } | Call::PutBlock { .. }) => {
            return once(service, &caller.full_cred(), call);
        }
        Groups::Lazy(_) => Some(call.clone()),
    };
    match service.call(&caller.cred(), call) {
        Ok(answer) => Ok(answer),
        Err(CallError::Refused(refusal)) => Err(refusal),
        Err(CallError::NeedGroups) => match again {
            Some(call) => once(service, &caller.full_cred(), call),
            None => Err(Refusal::Access),
        },
    }
}

fn once(service: &dyn Service, cred: &Cred, call: Call) -> Result<Answer, Refusal> {
    service.call(cred, call).map_err(|error| match error {
        CallError::Refused(refusal) => refusal,
        CallError::NeedGroups => Refusal::Access,
    })
}
