//! Reports about decoupled subtrees as text.

use std::borrow::Cow;
use std::fmt::{self, Write};

use chiton_decoupled::{
    ChangeKind, ConflictLine, Diff, MergeReport, OpenConflict, RealmStatus, SideVersion, Stage, quoted,
};
use chiton_types::counted;

/// The outcome of a merge, with a table of its conflicts.
pub(crate) fn merge_report(report: &MergeReport) -> String {
    let mut text = String::new();
    write_merge_report(&mut text, report).expect("a string takes everything");
    text
}

fn write_merge_report(out: &mut String, report: &MergeReport) -> fmt::Result {
    let end = if report.ended { "merged and recoupled" } else { "merged" };
    let verb = if report.stopped { "stopped at a conflict" } else { end };
    writeln!(
        out,
        "{verb}: {}, of which {} were redundant, in {:.2} s ({} sent, {} bytes; {} changed nothing)",
        counted(report.events, "event"),
        report.squashed,
        report.seconds,
        report.sent,
        report.bytes,
        report.skipped
    )?;
    if report.conflict_count > 0 {
        writeln!(
            out,
            "{}:\n{}",
            counted(report.conflict_count, "conflict"),
            conflicts_table(&report.conflicts)
        )?;
    }
    if let Some(warning) = report.warning() {
        writeln!(out, "{warning}")?;
    }
    if report.lost_count > 0 {
        writeln!(out, "{} could not be carried out:", counted(report.lost_count, "event"))?;
        report.lost.iter().try_for_each(|why| writeln!(out, "  {why}"))?;
    }
    Ok(())
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
pub(crate) fn status(status: &RealmStatus) -> String {
    let branch = status.branch.as_ref().map(|name| format!(", branch {name}")).unwrap_or_default();
    let mut rows = vec![
        ("decoupling", format!("{} (client {}){branch}", status.realm, status.generation)),
        ("policy", format!("{} ({}, {})", status.composition, status.consistency, status.durability)),
        ("journal", format!("{}, {} bytes", status.journal, status.journal_bytes)),
        ("events", format!("{}, durable {}, merged {}", status.events, status.durable, status.merged)),
        ("not in the journal yet", format!("{} bytes", status.dirty_bytes)),
        ("inode numbers left", format!("{} of {}", status.inodes_left, status.inodes_granted)),
    ];
    if let Some(trouble) = &status.trouble {
        rows.push(("trouble", trouble.clone()));
    }
    let rows: Vec<_> = rows.into_iter().map(|(key, value)| [key.to_owned(), value]).collect();
    aligned(&rows)
}

/// A stage of a decoupling, and how long it took.
pub(crate) fn stage(stage: &Stage) -> String {
    let took = stage.seconds.map_or_else(String::new, |seconds| format!("{:.2} ms", seconds * 1e3));
    format!("{:<14} {took:>10}  {}", stage.name, stage.what)
}

/// The changes that a merge would make now, a line for each.
pub(crate) fn diff(diff: &Diff) -> String {
    let mut text = String::new();
    write_diff(&mut text, diff).expect("a string takes everything");
    text
}

fn write_diff(out: &mut String, diff: &Diff) -> fmt::Result {
    if diff.changes.is_empty() && diff.conflicts.is_empty() {
        return write!(out, "nothing to merge");
    }
    for change in &diff.changes {
        let path = shown(&change.path, change.path_bytes.as_ref());
        write!(out, "{:<11} ", word(change.kind))?;
        if let Some(from) = &change.from {
            write!(out, "{} → ", shown(from, change.from_bytes.as_ref()))?;
        }
        writeln!(out, "{path}")?;
    }
    let changes = counted(diff.changes.len() as u64, "change");
    write!(out, "{changes}, {}", counted(diff.conflict_count, "conflict"))?;
    if diff.conflict_count > 0 {
        write!(out, ":\n{}", conflicts_table(&diff.conflicts))?;
    }
    if diff.lost_count > 0 {
        write!(out, "\n{} could not be carried out:", counted(diff.lost_count, "event"))?;
        diff.lost.iter().try_for_each(|why| write!(out, "\n  {why}"))?;
    }
    if diff.stopped {
        write!(
            out,
            "\na merge would stop there, and merge nothing (on_conflict: abort): chiton conflicts, chiton resolve"
        )?;
    }
    Ok(())
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Created => "new",
        ChangeKind::Written => "content",
        ChangeKind::Attributes => "attributes",
        ChangeKind::Replaced => "replaced",
        ChangeKind::Renamed => "moved",
        ChangeKind::Linked => "linked",
        ChangeKind::Removed => "removed",
    }
}

/// Conflicts, a line each.
pub(crate) fn conflicts(all: &[OpenConflict]) -> String {
    if all.is_empty() {
        return "no conflicts".to_owned();
    }
    all.iter().map(conflict).collect::<Vec<_>>().join("\n")
}

fn conflict(one: &OpenConflict) -> String {
    let path = quoted(one.path_bytes.as_deref().unwrap_or(one.path.as_bytes()));
    let ours = match one.ours {
        ChangeKind::Created | ChangeKind::Linked => "new here",
        ChangeKind::Written => "changed here",
        ChangeKind::Attributes => "attributes changed here",
        ChangeKind::Replaced => "replaced here",
        ChangeKind::Renamed => "moved here",
        ChangeKind::Removed => "removed here",
    };
    let theirs = match one.theirs {
        SideVersion::Changed => "changed or made by others",
        SideVersion::Replaced => "replaced by others",
        SideVersion::Removed => "removed by others",
    };
    let state = if one.resolved { "resolved" } else { "open" };
    format!("{state:<9} {path}: {ours}, {theirs}")
}

#[cfg(test)]
mod tests {
    use chiton_decoupled::Change;

    use super::*;

    #[test]
    fn cells_stand_below_each_other() {
        let rows = [["a", "bc", "d"], ["café", "", "e"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), " a     bc  d\n café      e");
    }

    fn change(path: &str, kind: ChangeKind, from: Option<&str>) -> Change {
        let (path, from) = (path.to_owned(), from.map(str::to_owned));
        Change { path, kind, from, path_bytes: None, from_bytes: None }
    }

    #[test]
    fn a_diff_shows_each_change_and_the_conflicts_as_a_merge_reports_them() {
        let mut odd = change("odd?", ChangeKind::Written, None);
        odd.path_bytes = Some(b"odd\n".to_vec());
        let moved = change("dir/there", ChangeKind::Renamed, Some("here"));
        let changes = vec![change("a", ChangeKind::Replaced, None), moved, odd];
        let conflict = serde_json::json!({
            "path": "a", "base": "file", "ours": "new file", "theirs": "edited", "resolution": "ours",
        });
        let conflicts = vec![serde_json::from_value(conflict).expect("a conflict")];
        let all = Diff { events: 9, changes, conflict_count: 1, conflicts, ..Diff::default() };
        let lines = [
            "replaced    a",
            "moved       here → dir/there",
            "content     $'odd\\n'",
            "3 changes, 1 conflict:",
            " path  before  ours      theirs  outcome",
            " a     file    new file  edited  ours",
        ];
        assert_eq!(diff(&all), lines.join("\n"));
        assert_eq!(diff(&Diff::default()), "nothing to merge");
        // As a mount sends it, and a command reads it.
        let sent = serde_json::to_string(&all).expect("JSON");
        assert_eq!(serde_json::from_str::<Diff>(&sent).expect("a diff"), all);
    }

    #[test]
    fn a_merge_report_says_what_was_lost_and_reads_back_as_it_was_sent() {
        let conflict = serde_json::json!({
            "path": "f", "base": "present", "ours": "changed", "theirs": "removed",
            "resolution": "ours", "aside": "f.theirs",
        });
        let conflict: ConflictLine = serde_json::from_value(conflict).expect("a conflict");
        let report = MergeReport {
            events: 7,
            conflict_count: 1,
            conflicts: vec![conflict],
            missing: 2,
            lost_count: 1,
            lost: vec!["no space".to_owned()],
            ended: true,
            ..MergeReport::default()
        };
        let text = merge_report(&report);
        for part in [
            "merged and recoupled: 7 events",
            "1 conflict:\n",
            " ours (f.theirs)",
            "2 events that were durable",
            "  no space\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        let sent = serde_json::to_value(&report).expect("JSON");
        assert_eq!(serde_json::from_value::<MergeReport>(sent).expect("a report"), report);
    }
}
