//! Errors about decoupled subtrees: each names the failure, its reason and the next step.

use std::fmt;

use chiton_types::{Errno, Position, Refusal};

use crate::report::MergeReport;

/// An error about a decoupled subtree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmError {
    refusal: Refusal,
    what: String,
    next: String,
}

impl RealmError {
    /// `what` failed with this class; `next` is the advice, or empty.
    pub fn new(refusal: Refusal, what: impl Into<String>, next: impl Into<String>) -> RealmError {
        RealmError { refusal, what: what.into(), next: next.into() }
    }

    /// The same error, with its object named before it.
    pub(crate) fn about(self, whose: &str) -> RealmError {
        RealmError { what: format!("{whose}: {}", self.what), ..self }
    }

    /// The refusal for the caller of the file system.
    pub fn refusal(&self) -> Refusal {
        self.refusal
    }

    /// The same as a number of the system.
    pub fn errno(&self) -> Errno {
        self.refusal.errno()
    }

    /// The exit code of a command: 3 another client holds the object, 4 it does not exist, 5 a conflict, otherwise
    /// 1.
    pub fn exit_code(&self) -> u8 {
        match self.refusal {
            Refusal::Busy | Refusal::Stale => 3,
            Refusal::NotFound | Refusal::NotConnected => 4,
            Refusal::Exists => 5,
            _ => 1,
        }
    }

    /// The server refused a call.
    pub(crate) fn refused(doing: &str, refusal: Refusal) -> RealmError {
        let (why, next) = match refusal {
            Refusal::Busy => {
                ("another client has it", "`chiton decoupled` names the clients and their subtrees")
            }
            Refusal::Stale => (
                "another client has resumed this decoupling, or an administrator has ended it",
                "chiton journal export saves the journal here",
            ),
            Refusal::NotPermitted | Refusal::Access => (
                "only root and the owner of a directory may decouple it",
                "ask its owner, or take a directory of your own",
            ),
            Refusal::NotDir => ("", "name a directory"),
            Refusal::NotFound => ("there is no such decoupling", "`chiton decoupled` lists all"),
            Refusal::NotConnected => ("the server does not answer", "run the command again when it does"),
            Refusal::Unsupported => (
                "the server does not support it",
                "`chiton policy explain` names the unsupported part; or use a newer server",
            ),
            Refusal::CrossDevice => (
                "a file in it has a name outside, or it lies on several plates",
                "remove those names; with several plates, give a new directory a policy with `placement: near`, and copy the \
                 tree there",
            ),
            Refusal::Invalid => {
                ("the server rejects the arguments", "`chiton policy explain` shows what the policy asks for")
            }
            Refusal::NoSpace => (
                "the server's disk is full, or too few inode numbers are left",
                "free space there (chiton df), or ask for fewer numbers (allocated_inodes of the policy)",
            ),
            _ => ("", ""),
        };
        let what = if why.is_empty() {
            format!("{doing}: {refusal}")
        } else {
            format!("{doing}: {refusal} ({why})")
        };
        RealmError::new(refusal, what, next)
    }

    /// An operation on this machine failed.
    pub(crate) fn local(what: impl fmt::Display) -> RealmError {
        RealmError::new(Refusal::Io, what.to_string(), "")
    }

    /// The journal cannot be read.
    pub(crate) fn journal(what: impl fmt::Display) -> RealmError {
        let next = "`chiton journal inspect` on its directory shows the damage";
        RealmError::new(
            Refusal::Io,
            format!("the journal of the decoupled subtree cannot be used: {what}"),
            next,
        )
    }

    /// The end of a journal is missing although it was durable. `whose`: which journal, and where it is.
    pub(crate) fn truncated(whose: &str, end: Position, durable: Position) -> RealmError {
        let missing = durable.0.saturating_sub(end.0);
        let what = format!(
            "the journal of {whose} is cut off: {missing} of {} events that were durable are missing, those after position {end}",
            durable.0
        );
        let next = "bring the journal back from a backup; to go on without these events, say --accept-truncated (chiton merge, \
                    recouple, run, recover, mount, view, branch)";
        RealmError::new(Refusal::Io, what, next)
    }

    /// The decoupling was ended elsewhere.
    pub(crate) fn ended_elsewhere(whose: &str) -> RealmError {
        let what = format!("{whose} was ended by another client, and its changes are not merged");
        let next = "`chiton recover --as-branch NAME` makes a branch of its journal, which can be looked at and merged; \
                    `chiton discard`, or `chiton recover --discard`, drops it";
        RealmError::new(Refusal::Stale, what, next)
    }

    /// The server's answer does not fit the call.
    pub(crate) fn nonsense(what: impl fmt::Display) -> RealmError {
        RealmError::new(
            Refusal::Io,
            format!("the server's answer does not fit the request ({what})"),
            "use the same version of chiton for client and server",
        )
    }
}

impl fmt::Display for RealmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.next.is_empty() { Ok(()) } else { write!(f, "; {}", self.next) }
    }
}

impl std::error::Error for RealmError {}

/// The reason why a [`crate::Subtree`] did not switch its mode, or did not merge.
#[derive(Clone, Debug, PartialEq)]
pub enum SubtreeError {
    /// The policy forbids conflicts (`on_conflict: abort`), and the report names some.
    Conflicts(Box<MergeReport>),
    /// Any other failure: of the server, the disk or the network.
    Failed(RealmError),
}

impl SubtreeError {
    /// The refusal for the caller of the file system; [`Refusal::Exists`] for conflicts.
    pub fn refusal(&self) -> Refusal {
        match self {
            SubtreeError::Conflicts(_) => Refusal::Exists,
            SubtreeError::Failed(error) => error.refusal(),
        }
    }
}

impl From<RealmError> for SubtreeError {
    fn from(error: RealmError) -> SubtreeError {
        SubtreeError::Failed(error)
    }
}

impl fmt::Display for SubtreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubtreeError::Conflicts(report) => {
                let conflicts = report.conflicts_in_short();
                write!(
                    f,
                    "others changed the same files, which the policy forbids (on_conflict: abort): {conflicts}"
                )
            }
            SubtreeError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SubtreeError {}
