//! Reports about decoupled subtrees: status, progress and outcome of merges, differences. Displayed as tables,
//! serialised as JSON.

use std::borrow::Cow;
use std::fmt;

use chiton_model::merge::{Conflict, ConflictKind, Resolution, Version};
use chiton_types::Ino;
use serde::{Serialize, Serializer};

use crate::quoted::{if_no_text, quoted};
use crate::text_merge::Agreed;

/// The progress of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MergeProgress {
    /// Events of the journal that are dealt with.
    pub events_done: u64,
    /// Events of the journal that there were when it began.
    pub events_total: u64,
}

/// A conflict: the state at the base, both changes, and the resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConflictLine {
    /// The path, from the subtree's root.
    pub path: String,
    /// The same byte by byte, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// The state at the base.
    pub base: String,
    /// Our change.
    pub ours: String,
    /// The inode that theirs is, or is about.
    #[serde(skip)]
    pub(crate) ino: Ino,
    /// How they contradict, if a merge found it.
    #[serde(skip)]
    pub(crate) kind: Option<ConflictKind>,
    /// The change of the other clients.
    pub theirs: String,
    /// The outcome.
    pub resolution: String,
    /// The name under which theirs is now, beside ours.
    pub aside: Option<String>,
    /// The same byte by byte, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// The outcome of a merge.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    /// Number of conflicts.
    pub conflict_count: u64,
    /// The first conflicts.
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
    /// Duration in seconds.
    pub seconds: f64,
}

impl ConflictLine {
    /// Whether the other side put something into a directory.
    pub(crate) fn is_filled(&self) -> bool {
        self.theirs == Version::Filled.to_string()
    }

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
        if self.missing > 0 {
            let missing = self.missing;
            writeln!(
                f,
                "{missing} events that were durable are missing: the journal was cut off (--accept-truncated)"
            )?;
        }
        if self.lost_count > 0 {
            writeln!(f, "{} events could not be carried out:", self.lost_count)?;
            self.lost.iter().try_for_each(|why| writeln!(f, "  {why}"))?;
        }
        Ok(())
    }
}

/// A path for a terminal.
fn shown<'a>(text: &'a str, bytes: Option<&'a Vec<u8>>) -> Cow<'a, str> {
    quoted(bytes.map_or(text.as_bytes(), Vec::as_slice))
}

/// Rows as lines whose cells stand below each other.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(widest);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} "));
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn conflicts_table(conflicts: &[ConflictLine]) -> String {
    let mut rows = vec![["path", "before", "ours", "theirs", "outcome"].map(str::to_owned)];
    for line in conflicts {
        let path = shown(&line.path, line.path_bytes.as_ref());
        let outcome = match &line.aside {
            Some(aside) => format!("{} ({})", line.resolution, shown(aside, line.aside_bytes.as_ref())),
            None => line.resolution.clone(),
        };
        rows.push([path.into_owned(), line.base.clone(), line.ours.clone(), line.theirs.clone(), outcome]);
    }
    aligned(&rows)
}

/// The status of a decoupled subtree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// Bytes of the journal.
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

impl fmt::Display for RealmStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = self.branch.as_ref().map(|name| format!(", branch {name}")).unwrap_or_default();
        let mut rows = vec![
            ("decoupling", format!("{} (client {}){branch}", self.realm, self.generation)),
            ("policy", format!("{} ({}, {})", self.composition, self.consistency, self.durability)),
            ("journal", format!("{}, {} bytes", self.journal, self.journal_bytes)),
            ("events", format!("{}, durable {}, merged {}", self.events, self.durable, self.merged)),
            ("not in the journal yet", format!("{} bytes", self.dirty_bytes)),
            ("inode numbers left", format!("{} of {}", self.inodes_left, self.inodes_granted)),
        ];
        if let Some(trouble) = &self.trouble {
            rows.push(("trouble", trouble.clone()));
        }
        let rows: Vec<_> = rows.into_iter().map(|(key, value)| [key.to_owned(), value]).collect();
        f.write_str(&aligned(&rows))
    }
}

/// The kind of a change to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Created.
    Created,
    /// Its content changed.
    Written,
    /// Its attributes changed, not its content.
    Attributes,
    /// Renamed.
    Renamed,
    /// It got a further name.
    Linked,
    /// Removed.
    Removed,
}

/// A change that a merge would carry over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Change {
    /// The path, from the subtree's root.
    pub path: String,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The previous path of a renamed file.
    pub from: Option<String>,
    /// The path byte by byte, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// Where it was before byte by byte, if that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SideVersion {
    /// Changed or created by others.
    Changed,
    /// Removed by others.
    Removed,
}

/// The effects that a merge would have now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Events of the journal that are not merged.
    pub events: u64,
    /// Our changes.
    pub changes: Vec<Change>,
    /// Conflicts: our change and that of other clients. The JSON has the same form as in the report of a merge.
    #[serde(serialize_with = "as_lines")]
    pub conflicts: Vec<(Change, SideVersion)>,
}

fn as_lines<S: Serializer>(conflicts: &[(Change, SideVersion)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(conflicts.iter().map(|(change, theirs)| ConflictLine::of_change(change, *theirs)))
}

impl Diff {
    /// Equal outcomes on both sides are no conflict. (Of a file that moved only the content is the same.)
    pub(crate) fn leave_out(&mut self, agreed: &[Agreed]) {
        let is_agreed = |change: &Change| {
            if matches!(change.kind, ChangeKind::Renamed | ChangeKind::Linked) {
                return false;
            }
            let path = change.path_bytes.as_deref().unwrap_or(change.path.as_bytes());
            agreed.iter().any(|one| one.is_same() && one.path == path)
        };
        self.conflicts.retain(|(change, _)| !is_agreed(change));
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() && self.conflicts.is_empty() {
            return write!(f, "nothing to merge");
        }
        // In the order of the changes; names that ours used for a while only are among them.
        let mut conflicts = self.conflicts.iter().peekable();
        let temporary = |f: &mut fmt::Formatter<'_>, (change, theirs): &(Change, SideVersion)| {
            let path = shown(&change.path, change.path_bytes.as_ref());
            let did = if *theirs == SideVersion::Removed { "removed it" } else { "have a file there" };
            writeln!(f, "{:<11} {path}   (others {did})", "temporary")
        };
        for change in &self.changes {
            while let Some(conflict) = conflicts.next_if(|(ours, _)| ours < change) {
                temporary(f, conflict)?;
            }
            let path = shown(&change.path, change.path_bytes.as_ref());
            write!(f, "{:<11} ", word(change.kind))?;
            if let Some(from) = &change.from {
                write!(f, "{} → ", shown(from, change.from_bytes.as_ref()))?;
            }
            writeln!(
                f,
                "{path}{}",
                match conflicts.next_if(|(ours, _)| ours == change) {
                    None => "",
                    Some((_, SideVersion::Changed)) => "   (others changed it too)",
                    Some((_, SideVersion::Removed)) => "   (others removed it)",
                }
            )?;
        }
        conflicts.try_for_each(|conflict| temporary(f, conflict))?;
        write!(f, "{} changes, {} conflicts", self.changes.len(), self.conflicts.len())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_each_other() {
        let rows = [["a", "bc", "d"], ["café", "", "e"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), " a     bc  d\n café      e");
    }
}
