//! The words of the control socket.

use chiton_decoupled::MergeProgress;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request to a mount. Inodes are those that stat(2) returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    /// This mount takes a directory for itself.
    Decouple {
        ino: u64,
        /// Its policy meanwhile, as YAML; none: the one that holds there.
        policy: Option<String>,
    },
    /// Merges the changes so far.
    Sync {
        /// Any inode in the subtree.
        ino: u64,
    },
    /// The effects that a merge would have: the JSON of a [`chiton_decoupled::Diff`], as pieces of text.
    Diff {
        /// Any inode in the subtree.
        ino: u64,
        /// The treatment of conflicts, instead of the policy's.
        on_conflict: Option<String>,
    },
    Conflicts {
        /// Any inode in the subtree.
        ino: u64,
    },
    /// Resolves a conflict of a decoupled subtree: one side's version is kept.
    Resolve {
        /// A directory in the subtree.
        ino: u64,
        /// The path from there; it may not exist.
        rest: Vec<u8>,
        /// Copies the version of the others here; otherwise keeps ours.
        theirs: bool,
    },
    /// Ends the decoupling; `how` decides what becomes of unmerged changes.
    GiveBack {
        /// Any inode in the subtree.
        ino: u64,
        /// How unmerged changes are treated.
        how: GiveBack,
        /// Although files are open for writing there: their descriptors answer EIO from then on.
        force: bool,
        /// How conflicts are treated, in the words of a policy's `on_conflict`; `None`: as the policy says.
        #[serde(default)]
        on_conflict: Option<String>,
        /// A journal whose end is missing is merged without it.
        #[serde(default)]
        accept_truncated: bool,
    },
    /// Something is about to be mounted inside this mount: it is to stay there.
    KeepMounts,
    /// Lists the segments of the journal, for readers during writes: numbers and bytes.
    Segments {
        /// Any inode in the subtree.
        ino: u64,
    },
    /// One of them, as pieces of Base64.
    Segment {
        /// Any inode in the subtree.
        ino: u64,
        /// The segment's number.
        number: u64,
        /// Maximum number of bytes, from the segment's start.
        bytes_max: u64,
    },
    /// Lists the decoupled subtrees of the mount.
    List,
    /// Asks whether the server answers, for a user who may not open the server's socket.
    Probe,
    /// The end of the mount: acknowledged by an empty `Text`; the last word comes when everything is durable, or cannot be
    /// made so.
    AwaitEnd,
}

/// The treatment of unmerged changes in a decoupled subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveBack {
    Merge,
    Discard,
    /// As the policy says: merged if it is weak. An invisible subtree needs an explicit choice.
    AsThePolicySays,
}

/// A reply of a mount: any number of `Progress` and `Text`, then one of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// The progress so far.
    Progress(Progress),
    /// A piece of a long report, or of a journal's segment.
    Text(String),
    Done {
        /// As JSON; null if it was sent as `Text`.
        report: Value,
        /// 0, or 5 if a conflict stopped it.
        exit_code: u8,
    },
    Failed {
        /// The message: the failure, its reason, and the next step.
        message: String,
        /// The exit code of the command.
        exit_code: u8,
    },
}

/// The progress of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub events_done: u64,
    /// Events in all, as far as they are known.
    pub events_total: u64,
}

impl From<MergeProgress> for Progress {
    fn from(progress: MergeProgress) -> Progress {
        Progress { events_done: progress.events_done, events_total: progress.events_total }
    }
}
