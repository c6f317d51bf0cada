//! What is told about decoupled subtrees: status, progress and outcome of merges, differences. For people as tables, for
//! programs as JSON.

use std::fmt;

use chiton_namespace::merge::{Conflict, Resolution};
use comfy_table::{Table, presets};
use serde::Serialize;

/// How far a merge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MergeProgress {
    /// Events of the journal that are dealt with.
    pub events_done: u64,
    /// Events of the journal that there were when it began.
    pub events_total: u64,
}

/// A conflict: what there was, what both sides did, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConflictLine {
    /// Where, from the subtree's root.
    pub path: String,
    /// What there was before.
    pub base: String,
    /// What was done here.
    pub ours: String,
    /// What others did.
    pub theirs: String,
    /// What became of it.
    pub resolution: String,
    /// The name under which theirs is now, beside ours.
    pub aside: Option<String>,
}

impl From<&Conflict> for ConflictLine {
    fn from(conflict: &Conflict) -> ConflictLine {
        let [base, ours, theirs] = conflict.kind.versions().map(|version| version.to_string());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ConflictLine {
            path: text(&conflict.path),
            base,
            ours,
            theirs,
            resolution: conflict.resolution.to_string(),
            aside: conflict.aside.as_ref().map(|name| text(name.as_bytes())),
        }
    }
}

/// Most conflicts, and most lost events, that a report names; the rest it counts.
pub(crate) const LINES_MAX: usize = 10_000;

/// What a merge did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MergeReport {
    /// Events of the journal that were dealt with.
    pub events: u64,
    /// Those of them that were redundant and not sent (created and gone again).
    pub squashed: u64,
    /// Events sent.
    pub sent: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Calls.
    pub calls: u64,
    /// Events sent that changed nothing.
    pub skipped: u64,
    /// Conflicts.
    pub conflict_count: u64,
    /// The first of them.
    pub conflicts: Vec<ConflictLine>,
    /// Events that could not be carried out.
    pub lost_count: u64,
    /// Why, of the first of them.
    pub lost: Vec<String>,
    /// The policy forbids conflicts and there is one: it stopped there.
    pub stopped: bool,
    /// The decoupling ended.
    pub ended: bool,
    /// How long it took.
    pub seconds: f64,
}

impl ConflictLine {
    /// A conflict that a comparison found.
    fn of_change(change: &Change, theirs: SideVersion) -> ConflictLine {
        let is_new = matches!(change.kind, ChangeKind::Created | ChangeKind::Linked);
        let ours = match change.kind {
            ChangeKind::Created | ChangeKind::Linked => "new",
            ChangeKind::Written | ChangeKind::Attributes => "changed",
            ChangeKind::Renamed => "moved",
            ChangeKind::Removed => "removed",
        };
        let theirs = match theirs {
            SideVersion::Changed if is_new => "new",
            SideVersion::Changed => "changed",
            SideVersion::Removed => "removed",
        };
        ConflictLine {
            path: change.path.clone(),
            base: if is_new { "absent" } else { "present" }.to_owned(),
            ours: ours.to_owned(),
            theirs: theirs.to_owned(),
            resolution: Resolution::Aborted.to_string(),
            aside: None,
        }
    }
}

impl MergeReport {
    /// Of a merge that does not begin, because of what a comparison found; not stopped if that is nothing.
    pub(crate) fn of_conflicts(diff: &Diff) -> MergeReport {
        let lines = diff.conflicts.iter().take(LINES_MAX);
        MergeReport {
            conflict_count: diff.conflicts.len() as u64,
            conflicts: lines.map(|(change, theirs)| ConflictLine::of_change(change, *theirs)).collect(),
            stopped: !diff.conflicts.is_empty(),
            ..MergeReport::default()
        }
    }

    pub(crate) fn note_conflicts(&mut self, conflicts: &[Conflict]) {
        self.conflict_count += conflicts.len() as u64;
        let room = LINES_MAX.saturating_sub(self.conflicts.len());
        self.conflicts.extend(conflicts.iter().take(room).map(ConflictLine::from));
    }

    pub(crate) fn note_lost(&mut self, lost: &[(u64, String)]) {
        self.lost_count += lost.len() as u64;
        let room = LINES_MAX.saturating_sub(self.lost.len());
        self.lost.extend(lost.iter().take(room).map(|(_, why)| why.clone()));
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
        self.conflicts.splice(0..0, before.conflicts);
        self.lost.splice(0..0, before.lost);
        self.seconds += before.seconds;
        self
    }
}

impl fmt::Display for MergeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.ended { "merged and recoupled" } else { "merged" };
        let verb = if self.stopped { "stopped at a conflict" } else { end };
        writeln!(
            f,
            "{verb}: {} events, of which {} were redundant, in {:.2} s ({} sent, {} bytes; {} changed nothing)",
            self.events, self.squashed, self.seconds, self.sent, self.bytes, self.skipped
        )?;
        if self.conflict_count > 0 {
            writeln!(f, "{} conflicts:\n{}", self.conflict_count, conflicts_table(&self.conflicts))?;
        }
        if self.lost_count > 0 {
            writeln!(f, "{} events could not be carried out:", self.lost_count)?;
            self.lost.iter().try_for_each(|why| writeln!(f, "  {why}"))?;
        }
        Ok(())
    }
}

fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table
}

fn conflicts_table(conflicts: &[ConflictLine]) -> Table {
    let mut table = plain_table(&["path", "before", "ours", "theirs", "outcome"]);
    for line in conflicts {
        let outcome = match &line.aside {
            Some(aside) => format!("{} ({aside})", line.resolution),
            None => line.resolution.clone(),
        };
        table.add_row([&line.path, &line.base, &line.ours, &line.theirs, &outcome]);
    }
    table
}

/// A decoupled subtree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RealmStatus {
    /// Its number.
    pub realm: u32,
    /// Which of its clients this is, from 1.
    pub generation: u32,
    /// Inode of its root.
    pub root: u64,
    /// The name, if it is a branch.
    pub branch: Option<String>,
    /// What the policy composes.
    pub composition: String,
    /// Consistency, as a level.
    pub consistency: String,
    /// Durability, as a level.
    pub durability: String,
    /// Where the journal is.
    pub journal: String,
    /// Events so far.
    pub events: u64,
    /// Those that are durable at the level.
    pub durable: u64,
    /// Those that are merged.
    pub merged: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Bytes written that are not in the journal yet.
    pub dirty_bytes: u64,
    /// Inode numbers granted, and those not used.
    pub inodes_granted: u64,
    /// Inode numbers not used.
    pub inodes_left: u64,
    /// Why it is not merged by itself although the policy says so, or was at a time of its own.
    pub trouble: Option<String>,
    /// It was merged, discarded or taken by another client.
    pub ended: bool,
}

impl fmt::Display for RealmStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let branch = self.branch.as_ref().map(|name| format!(", branch {name}")).unwrap_or_default();
        let rows = [
            ("decoupling", format!("{} (client {}){branch}", self.realm, self.generation)),
            ("policy", format!("{} ({}, {})", self.composition, self.consistency, self.durability)),
            ("journal", format!("{}, {} bytes", self.journal, self.journal_bytes)),
            ("events", format!("{}, durable {}, merged {}", self.events, self.durable, self.merged)),
            ("not in the journal yet", format!("{} bytes", self.dirty_bytes)),
            ("inode numbers left", format!("{} of {}", self.inodes_left, self.inodes_granted)),
        ];
        for (key, value) in rows {
            table.add_row([key.to_owned(), value]);
        }
        if let Some(trouble) = &self.trouble {
            table.add_row(["trouble", trouble]);
        }
        write!(f, "{table}")
    }
}

/// What was done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// Its content changed.
    Written,
    /// Its attributes changed.
    Attributes,
    /// It has another name.
    Renamed,
    /// It has one more name.
    Linked,
    /// It is gone.
    Removed,
}

/// A change that a merge would carry over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Change {
    /// Where, from the subtree's root.
    pub path: String,
    /// What.
    pub kind: ChangeKind,
    /// Where it was before, of what was renamed.
    pub from: Option<String>,
}

/// What others did to what was changed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SideVersion {
    /// Changed, or made.
    Changed,
    /// Removed.
    Removed,
}

/// What a merge would do now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Events of the journal that are not merged.
    pub events: u64,
    /// What they changed.
    pub changes: Vec<Change>,
    /// Paths changed here that others changed too: what was done here, what others did.
    pub conflicts: Vec<(Change, SideVersion)>,
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            return write!(f, "nothing to merge");
        }
        let mut table = plain_table(&["change", "path", "others"]);
        for change in &self.changes {
            let others = self.conflicts.iter().find(|(ours, _)| ours == change).map(|(_, theirs)| theirs);
            let path = match &change.from {
                Some(from) => format!("{from} → {}", change.path),
                None => change.path.clone(),
            };
            let others = match others {
                None => "",
                Some(SideVersion::Changed) => "changed it too",
                Some(SideVersion::Removed) => "removed it",
            };
            table.add_row([word(change.kind).to_owned(), path, others.to_owned()]);
        }
        write!(f, "{table}\n{} changes, {} conflicts", self.changes.len(), self.conflicts.len())
    }
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Created => "new",
        ChangeKind::Written => "content",
        ChangeKind::Attributes => "attributes",
        ChangeKind::Renamed => "moved",
        ChangeKind::Linked => "linked",
        ChangeKind::Removed => "removed",
    }
}
