//! Reports about decoupled subtrees: status, progress and outcome of merges, differences. A mount sends them to commands as
//! JSON, and commands show them as text.

use chiton_model::merge::{Conflict, ConflictKind, Resolution, Version};
use chiton_types::{Ino, counted};
use serde::{Deserialize, Serialize};

use crate::quoted::{if_no_text, quoted};

/// The progress of a merge, in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeProgress {
    /// Events of the journal that are dealt with.
    pub events_done: u64,
    /// Events of the journal that there were when it began.
    pub events_total: u64,
}

/// A conflict: the state at the base, both changes, and the resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictLine {
    /// The path, from the subtree's root.
    pub path: String,
    /// The same byte by byte, if it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// The state at the base.
    pub base: String,
    /// The change that the decoupled side made, in words.
    pub ours: String,
    /// The inode that theirs is, or is about.
    #[serde(skip)]
    pub(crate) ino: Ino,
    /// How they contradict, if a merge found it.
    #[serde(skip)]
    pub(crate) kind: Option<ConflictKind>,
    /// The change of the other clients.
    pub theirs: String,
    /// The resolution that the merge chose, in words.
    pub resolution: String,
    /// The name under which theirs is now, beside ours.
    pub aside: Option<String>,
    /// The same byte by byte, if it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside_bytes: Option<Vec<u8>>,
}

impl From<&Conflict> for ConflictLine {
    fn from(conflict: &Conflict) -> ConflictLine {
        let [base, ours, theirs] = conflict.kind.versions().map(|version| version.to_string());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ConflictLine {
            path: text(&conflict.path),
            path_bytes: if_no_text(&conflict.path),
            base,
            ours,
            ino: conflict.ino,
            kind: Some(conflict.kind),
            theirs,
            resolution: conflict.resolution.to_string(),
            aside: conflict.aside.as_ref().map(|name| text(name.as_bytes())),
            aside_bytes: conflict.aside.as_ref().and_then(|name| if_no_text(name.as_bytes())),
        }
    }
}

/// Most conflicts, and most lost events, that a report names; the rest it counts.
pub(crate) const LINES_MAX: usize = 10_000;

/// Most paths that an error message names.
const PATHS_MAX: usize = 5;

/// The outcome of a merge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MergeReport {
    /// Events of the journal that were dealt with.
    pub events: u64,
    /// Those of them that were redundant and not sent (created and gone again).
    pub squashed: u64,
    /// Number of events sent.
    pub sent: u64,
    /// Bytes of the events sent.
    pub bytes: u64,
    /// Number of calls to the server.
    pub calls: u64,
    /// Number of sent events that changed nothing.
    pub skipped: u64,
    /// Number of conflicts, also of those that `conflicts` leaves out.
    pub conflict_count: u64,
    /// The first 10,000 conflicts; `conflict_count` counts all.
    pub conflicts: Vec<ConflictLine>,
    /// Events that could not be carried out.
    pub lost_count: u64,
    /// Why, of the first of them.
    pub lost: Vec<String>,
    /// Events of the journal that were durable and are missing, as it was accepted.
    pub missing: u64,
    /// The policy forbids conflicts and there is one: it stopped there.
    pub stopped: bool,
    /// Whether the decoupling ended.
    pub ended: bool,
    /// Seconds that the merge took.
    pub seconds: f64,
}

impl ConflictLine {
    /// Whether the other side put something into a directory.
    pub(crate) fn is_filled(&self) -> bool {
        self.theirs == Version::Filled.to_string()
    }

    /// The same as a comparison would have it.
    pub(crate) fn as_change(&self) -> (Change, SideVersion) {
        let path = self.path_bytes.as_deref().unwrap_or(self.path.as_bytes());
        let kind = match self.ours.as_str() {
            "moved" => ChangeKind::Renamed,
            "removed" => ChangeKind::Removed,
            ours if ours.starts_with("new") => ChangeKind::Created,
            _ => ChangeKind::Written,
        };
        let theirs = if self.theirs == "removed" { SideVersion::Removed } else { SideVersion::Changed };
        (Change::new(path, kind, None), theirs)
    }

    /// A conflict that a comparison found.
    pub(crate) fn of_change(change: &Change, theirs: SideVersion) -> ConflictLine {
        let is_new = matches!(change.kind, ChangeKind::Created | ChangeKind::Linked);
        let ours = match change.kind {
            ChangeKind::Created | ChangeKind::Linked => "new",
            ChangeKind::Written | ChangeKind::Attributes => "changed",
            ChangeKind::Replaced => "replaced",
            ChangeKind::Renamed => "moved",
            ChangeKind::Removed => "removed",
        };
        let theirs = match theirs {
            SideVersion::Changed if is_new => "new",
            SideVersion::Changed => "changed",
            SideVersion::Replaced => "replaced",
            SideVersion::Removed => "removed",
        };
        ConflictLine {
            path: change.path.clone(),
            path_bytes: change.path_bytes.clone(),
            base: if is_new { "absent" } else { "present" }.to_owned(),
            ours: ours.to_owned(),
            ino: Ino(0),
            kind: None,
            theirs: theirs.to_owned(),
            resolution: Resolution::Aborted.to_string(),
            aside: None,
            aside_bytes: None,
        }
    }
}

impl MergeReport {
    /// The report of a merge that does not begin because of conflicts; not stopped if there are none.
    pub(crate) fn of_conflicts(conflicts: &[(Change, SideVersion)]) -> MergeReport {
        let lines = conflicts.iter().map(|(change, theirs)| ConflictLine::of_change(change, *theirs));
        MergeReport {
            conflict_count: conflicts.len() as u64,
            conflicts: lines.take(LINES_MAX).collect(),
            stopped: !conflicts.is_empty(),
            ..MergeReport::default()
        }
    }

    pub(crate) fn note_conflicts(&mut self, conflicts: &[Conflict]) {
        self.conflict_count += conflicts.len() as u64;
        let room = LINES_MAX.saturating_sub(self.conflicts.len());
        self.conflicts.extend(conflicts.iter().take(room).map(ConflictLine::from));
    }

    /// Replaces the paths of conflicts by the paths in our subtree.
    pub(crate) fn name_by_our_paths(&mut self, path_of: impl Fn(Ino) -> Option<Vec<u8>>) {
        use ConflictKind as K;
        let is_of_both = |kind| {
            matches!(kind, K::EditEdit | K::AttrAttr | K::EditDelete | K::RenameDelete | K::RenameRename)
                || matches!(kind, K::RenameRenameDir | K::Loop)
        };
        for line in &mut self.conflicts {
            let path = line.kind.filter(|kind| is_of_both(*kind)).and_then(|_| path_of(line.ino));
            if let Some(path) = path {
                let path = path.strip_prefix(b"/").unwrap_or(&path);
                line.path = String::from_utf8_lossy(path).into_owned();
                line.path_bytes = if_no_text(path);
            }
        }
    }

    pub(crate) fn note_lost(&mut self, lost: &[(u64, String)]) {
        self.lost_count += lost.len() as u64;
        let room = LINES_MAX.saturating_sub(self.lost.len());
        self.lost.extend(lost.iter().take(room).map(|(_, why)| why.clone()));
    }

    /// Durable changes that a merge left out, as a line for the administrator; `None` if it merged all.
    pub fn warning(&self) -> Option<String> {
        let missing = self.missing;
        let warning = || {
            format!(
                "{missing} events that were durable are missing: the journal was cut off (--accept-truncated)"
            )
        };
        (missing > 0).then(warning)
    }

    /// How many conflicts there are, and the paths of the first, for an error message.
    pub fn conflicts_in_short(&self) -> String {
        let bytes = |line: &ConflictLine| {
            quoted(line.path_bytes.as_deref().unwrap_or(line.path.as_bytes())).into_owned()
        };
        let mut paths: Vec<String> = self.conflicts.iter().take(PATHS_MAX).map(bytes).collect();
        if self.conflict_count > paths.len() as u64 {
            paths.push("…".to_owned());
        }
        format!("{} ({})", counted(self.conflict_count, "conflict"), paths.join(", "))
    }

    /// This one and one that came before it.
    pub fn after(mut self, before: MergeReport) -> MergeReport {
        self.events += before.events;
        self.squashed += before.squashed;
        self.sent += before.sent;
        self.bytes += before.bytes;
        self.calls += before.calls;
        self.skipped += before.skipped;
        self.conflict_count += before.conflict_count;
        self.lost_count += before.lost_count;
        self.missing += before.missing;
        self.conflicts.splice(0..0, before.conflicts);
        self.lost.splice(0..0, before.lost);
        self.seconds += before.seconds;
        self
    }
}

/// The status of a decoupled subtree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealmStatus {
    /// The decoupling's number.
    pub realm: u32,
    /// Which of its clients this is, from 1.
    pub generation: u32,
    /// Inode of its root.
    pub root: u64,
    /// The name, if it is a branch.
    pub branch: Option<String>,
    /// The policy's composition.
    pub composition: String,
    /// Name of the consistency level.
    pub consistency: String,
    /// Name of the durability level.
    pub durability: String,
    /// Location of the journal.
    pub journal: String,
    /// Number of events in the journal.
    pub events: u64,
    /// Those that are durable at the level.
    pub durable: u64,
    /// Number of merged events.
    pub merged: u64,
    /// Bytes that the journal occupies.
    pub journal_bytes: u64,
    /// Bytes written that are not in the journal yet.
    pub dirty_bytes: u64,
    /// Inode numbers granted, and those not used.
    pub inodes_granted: u64,
    /// Granted inode numbers that are unused.
    pub inodes_left: u64,
    /// Rows that were fetched from the server so far.
    pub rows_fetched: u64,
    /// Why an automatic merge failed, or why no operation can run.
    pub trouble: Option<String>,
    /// It was merged, discarded or taken by another client.
    pub ended: bool,
}

/// The kind of a change to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It came into being here.
    Created,
    /// The content of the file changed.
    Written,
    /// Its attributes changed, not its content.
    Attributes,
    /// Another file took its place, as programs save: with a temporary file and a rename.
    Replaced,
    /// It got another name, here or in another directory.
    Renamed,
    /// It got a further name.
    Linked,
    /// It lost this name.
    Removed,
}

/// A change that a merge would carry over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Change {
    /// The path, from the subtree's root.
    pub path: String,
    /// How the path changed.
    pub kind: ChangeKind,
    /// The previous path of a renamed file, or of one that took the place of another.
    pub from: Option<String>,
    /// The path byte by byte, if it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// Where it was before byte by byte, if that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_bytes: Option<Vec<u8>>,
}

impl Change {
    pub(crate) fn new(path: &[u8], kind: ChangeKind, from: Option<&[u8]>) -> Change {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Change {
            path: text(path),
            kind,
            from: from.map(text),
            path_bytes: if_no_text(path),
            from_bytes: from.and_then(if_no_text),
        }
    }
}

/// The change by other clients to a path that ours changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideVersion {
    /// Changed or created by others.
    Changed,
    /// Others put another file in its place.
    Replaced,
    /// Others removed the file.
    Removed,
}

/// The effects that a merge would have now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// Events of the journal that are not merged.
    pub events: u64,
    /// The changes of the decoupled side.
    pub changes: Vec<Change>,
    /// Number of conflicts that the merge would report.
    pub conflict_count: u64,
    /// The first of them, as the merge would report them.
    pub conflicts: Vec<ConflictLine>,
    /// Events that the merge could not carry out.
    pub lost_count: u64,
    /// Why, of the first of them.
    pub lost: Vec<String>,
    /// The policy forbids conflicts and there is one: nothing would be merged.
    pub stopped: bool,
}
