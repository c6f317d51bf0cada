//! The results of a call of the engine.

use chiton_namespace::Need;
use chiton_types::{Malformed, PlateId, Position, Refusal, SessionId};
use chiton_wire::{Failure, PeerMessage, Recall, Reply};

use crate::wait_queue::{Task, Ticket, Wait};

/// How a request got on.
#[derive(Debug)]
pub enum Step {
    Done(Reply),
    /// A [`Command::Reply`] with this ticket follows.
    Waiting(Ticket),
    /// Install these rows, then call [`Engine::retry`].
    NeedRows(Task, Vec<Need>),
}

/// How the engine's own queues got on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is nothing to do.
    Idle,
    /// Something was done, and there may be more.
    More,
    /// Install these rows and call again.
    NeedRows(Vec<Need>),
}

/// A command for the runtime.
#[derive(Debug)]
pub enum Command {
    /// Answer a waiting request.
    Reply(Ticket, Reply),
    /// Ask a session for a lease.
    Recall(SessionId, Recall),
    /// The session is over: close its connections, look after its blocks. Everything that it did lies at or before
    /// the position.
    DropSession(SessionId, Position),
    /// Pass this to another plate.
    Peer(PlateId, PeerMessage),
    /// An administrator should know this.
    Log(String),
    /// A client reached out of the subtree of its certificate: a line for the log and the history.
    Denied(String),
}

/// Why an answer is not there yet.
#[derive(Debug)]
pub(crate) enum Stop {
    Fail(Failure),
    Missing(Vec<Need>),
    Wait(Wait),
    /// It has done its part for now: others first.
    Yield,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Fail(failure)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Fail(Failure::Refused(refusal))
    }
}

impl From<chiton_namespace::Fault> for Stop {
    fn from(fault: chiton_namespace::Fault) -> Stop {
        match fault {
            chiton_namespace::Fault::Refused(refusal) => refusal.into(),
            chiton_namespace::Fault::Missing(needs) => Stop::Missing(needs),
            // It was asked the wrong plate.
            chiton_namespace::Fault::Elsewhere(_) => Refusal::Stale.into(),
            chiton_namespace::Fault::Realm(dir) => Stop::Wait(Wait::Realm(dir)),
            chiton_namespace::Fault::NeedGroups => Stop::Fail(Failure::NeedGroups),
        }
    }
}

/// The error for a value that is not as the format says.
pub(crate) fn malformed(expected: &'static str) -> Malformed {
    Malformed { expected }
}
