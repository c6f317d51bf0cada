//! The words of the control socket.

use chiton_decoupled::MergeProgress;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is asked of a mount. Inodes are those that stat(2) tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    /// This mount takes a directory for itself.
    Decouple {
        /// The directory.
        ino: u64,
        /// Its policy meanwhile, as YAML; none: the one that holds there.
        policy: Option<String>,
    },
    /// What there is so far is merged.
    Sync {
        /// Anything in the subtree.
        ino: u64,
    },
    /// What a merge would do.
    Diff {
        /// Anything in the subtree.
        ino: u64,
        /// For programs: as a report, and not as text.
        json: bool,
    },
    /// What both sides did.
    Conflicts {
        /// Anything in the subtree.
        ino: u64,
    },
    /// What is to hold where both sides did something.
    Resolve {
        /// A directory in the subtree.
        ino: u64,
        /// What is meant, from there: it may not be there.
        rest: Vec<u8>,
        /// Theirs is copied here; else it is what is here.
        theirs: bool,
    },
    /// The decoupling ends.
    GiveBack {
        /// Anything in the subtree.
        ino: u64,
        /// What becomes of what was done.
        how: GiveBack,
        /// Although files are open for writing there: their descriptors answer EIO from then on.
        force: bool,
        /// What is done about conflicts, as a policy's `on_conflict` says it; none: what the policy says.
        #[serde(default)]
        on_conflict: Option<String>,
        /// A journal whose end is missing is merged without it.
        #[serde(default)]
        accept_truncated: bool,
    },
    /// Something is about to be mounted inside this mount: it is to stay there.
    KeepMounts,
    /// The segments of the journal, for who reads it while it is written: numbers and bytes.
    Segments {
        /// Anything in the subtree.
        ino: u64,
    },
    /// One of them, as pieces of Base64.
    Segment {
        /// Anything in the subtree.
        ino: u64,
        /// Its number.
        number: u64,
        /// Not more than its first so many bytes.
        bytes_max: u64,
    },
    /// What is decoupled here.
    List,
    /// Whether the server answers, for who cannot ask it.
    Knock,
    /// The end of the mount: acknowledged by an empty `Text`; the last word comes when everything is durable, or cannot be
    /// made so.
    AwaitEnd,
}

/// What becomes of what was done in a decoupled subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveBack {
    /// It is merged.
    Merge,
    /// It is dropped.
    Discard,
    /// As the policy says: merged if it is weak; if it is invisible, somebody has to say.
    AsThePolicySays,
}

/// What a mount answers: any number of `Progress` and `Text`, then one of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// So far.
    Progress(Progress),
    /// A piece of what there is to say for people, which may be long.
    Text(String),
    /// It is done.
    Done {
        /// For programs.
        report: Value,
        /// For people.
        text: String,
        /// 0, or 5 if a conflict stopped it.
        exit_code: u8,
    },
    /// It is not.
    Failed {
        /// Why, and what to do.
        message: String,
        /// As the command ends.
        exit_code: u8,
    },
}

/// How far a merge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Events done.
    pub events_done: u64,
    /// Events in all, as far as they are known.
    pub events_total: u64,
}

impl From<MergeProgress> for Progress {
    fn from(progress: MergeProgress) -> Progress {
        Progress { events_done: progress.events_done, events_total: progress.events_total }
    }
}
