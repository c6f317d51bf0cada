//! The output of a view: a listing, JSON, or a local directory with a list of conflicts.

use std::cell::Cell;
use std::io::{BufWriter, Write};
use std::time::Duration;

use chiton_decoupled::{Composed, JournalConflict, Node, RealmError, Step, Written, if_no_text, quoted};
use chiton_runtime::{RealWorld, World};
use chiton_types::{Kind, Refusal, counted};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::source::Source;
use super::{View, failure};
use crate::failure::{Failure, Outcome};

/// The origin of an entry that comes from no journal.
const GLOBAL: &str = "global";
/// How often to extend the view's life.
const BEAT: Duration = Duration::from_secs(10);

pub(super) fn show(args: &View, source: &Source, composed: &Composed, top: &[u8]) -> Outcome {
    let beat = Beat { source, next: Cell::new(RealWorld.monotonic() + BEAT) };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let conflicts: Vec<(&JournalConflict, &[u8])> =
        composed.conflicts().iter().filter_map(|one| Some((one, one.below(top)?))).collect();
    match (&args.to, args.json) {
        (Some(to), json) => {
            let written = composed.write_to(top, to, &mut || beat.now()).map_err(|e| failure(&e))?;
            match json {
                true => say(&mut out, &format_args!("{{\"written\":{}", json!(written)))?,
                false => say(&mut out, &format_args!("{}\n", sentence(&written, &to.display().to_string())))?,
            }
        }
        (None, true) => {
            say(&mut out, &"{\"entries\":[")?;
            let mut before = "";
            list(composed, top, &beat, &mut |node| {
                let said = say(&mut out, &format_args!("{before}{}", as_json(node)));
                before = ",";
                said
            })?;
            say(&mut out, &"]")?;
        }
        (None, false) => list(composed, top, &beat, &mut |node| {
            let Node { path, attr, journal, target } = node;
            let (kind, size) = (word(attr.kind), size(node).map_or("-".to_owned(), |size| size.to_string()));
            let from = journal.unwrap_or(GLOBAL);
            let points = target.map(|target| format!(" -> {}", quoted(target))).unwrap_or_default();
            say(&mut out, &format_args!("{kind:<8} {size:>14}  {from:<12} {}{points}\n", quoted(path)))
        })?,
    }
    match args.json {
        true => say(&mut out, &format_args!(",{}\n", rest(composed, &conflicts)))?,
        false => say(&mut out, &in_words(composed, &conflicts))?,
    }
    out.flush().map_err(Failure::failed)?;
    let lost = composed.lost_count();
    match (conflicts.len(), lost) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::conflict(format!(
            "{} of the journals could not be carried out",
            counted(lost, "event")
        ))),
        (count, _) => {
            let count = counted(count as u64, "conflict");
            Err(Failure::conflict(format!("{count} in {}, listed above", source.said)))
        }
    }
}

/// Extends the view's life regularly.
struct Beat<'a> {
    source: &'a Source,
    next: Cell<Duration>,
}

impl Beat<'_> {
    fn now(&self) -> Result<(), RealmError> {
        let now = RealWorld.monotonic();
        if now < self.next.get() {
            return Ok(());
        }
        self.next.set(now + BEAT);
        self.source.keep().map_err(|failure| RealmError::new(Refusal::Io, failure.message, ""))
    }
}

fn list(
    composed: &Composed,
    top: &[u8],
    beat: &Beat<'_>,
    each: &mut dyn FnMut(&Node<'_>) -> Outcome,
) -> Outcome {
    // An error of the output keeps its message.
    let mut failed = None;
    let walked = composed.walk(top, &mut |step| {
        beat.now()?;
        let Step::Entry(node) = step else { return Ok(()) };
        each(&node).map_err(|failure| {
            let what = failure.message.clone();
            failed = Some(failure);
            RealmError::new(Refusal::Io, what, "")
        })
    });
    match failed {
        Some(failure) => Err(failure),
        None => walked.map_err(|e| failure(&e)),
    }
}

fn say(out: &mut dyn Write, what: &dyn std::fmt::Display) -> Outcome {
    match write!(out, "{what}") {
        // As other programs whose reader has gone.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(141),
        written => written.map_err(Failure::failed),
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "dir",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::Char => "char",
        Kind::Block => "block",
    }
}

/// Bytes, for entries with content.
fn size(node: &Node<'_>) -> Option<u64> {
    matches!(node.attr.kind, Kind::File | Kind::Symlink).then_some(node.attr.size)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn as_json(node: &Node<'_>) -> Value {
    let attr = node.attr;
    let mut value = json!({
        "path": lossy(node.path),
        "kind": word(attr.kind),
        "size": size(node),
        "from": node.journal.unwrap_or(GLOBAL),
        "ino": attr.ino.0,
        "mode": attr.mode.0,
        "links": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "mtime_ns": attr.mtime.0,
    });
    if let Some(bytes) = if_no_text(node.path) {
        value["path_bytes"] = json!(bytes);
    }
    if let Some(target) = node.target {
        value["target"] = lossy(target).into();
    }
    value
}

fn sentence(written: &Written, to: &str) -> String {
    let Written { inodes, bytes, left_out } = written;
    let left_out = match left_out {
        0 => String::new(),
        n => format!(
            "; {n} owners, device nodes or extended attributes are left out, which this user or the file system there cannot set"
        ),
    };
    format!("{}, {} of content written to {to}{left_out}", counted(*inodes, "inode"), counted(*bytes, "byte"))
}

/// The rest of the JSON object after the listing.
fn rest(composed: &Composed, conflicts: &[(&JournalConflict, &[u8])]) -> String {
    let journals: Vec<Value> =
        composed.journals().map(|(name, events)| json!({ "journal": name, "events": events })).collect();
    let conflicts: Vec<Value> = conflicts.iter().map(|(one, path)| conflict(one, path)).collect();
    let lost: Vec<Value> =
        composed.lost().iter().map(|(journal, why)| json!({ "journal": journal, "why": why })).collect();
    let rest = json!({
        "journals": journals,
        "conflict_count": conflicts.len(),
        "conflicts": conflicts,
        "lost_count": composed.lost_count(),
        "lost": lost,
    });
    rest.to_string().split_off(1)
}

fn conflict(one: &JournalConflict, path: &[u8]) -> Value {
    let mut value = serde_json::to_value(&one.line).unwrap_or_default();
    value["path"] = lossy(path).into();
    if let Some(bytes) = if_no_text(path) {
        value["path_bytes"] = json!(bytes);
    }
    value["journal"] = one.journal.clone().into();
    value["against"] = one.against.as_deref().unwrap_or(GLOBAL).into();
    value
}

fn in_words(composed: &Composed, conflicts: &[(&JournalConflict, &[u8])]) -> String {
    let mut said = String::new();
    if !conflicts.is_empty() {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["path", "before", "theirs", "did", "ours", "did", "outcome"]);
        for (one, path) in conflicts {
            let line = &one.line;
            let outcome = match &line.aside {
                Some(aside) => {
                    let bytes = line.aside_bytes.as_deref().unwrap_or(aside.as_bytes());
                    format!("{} ({})", line.resolution, quoted(bytes))
                }
                None => line.resolution.clone(),
            };
            let (ours, theirs) = (&one.journal, one.against.as_deref().unwrap_or(GLOBAL));
            let path = if path.is_empty() { ".".into() } else { quoted(path) };
            table.add_row([&*path, &line.base, theirs, &line.theirs, ours, &line.ours, &outcome]);
        }
        said += &format!("{}:\n{}\n", counted(conflicts.len() as u64, "conflict"), table.trim_fmt());
    }
    if composed.lost_count() > 0 {
        said += &format!("{} could not be carried out:\n", counted(composed.lost_count(), "event"));
        for (journal, why) in composed.lost() {
            said += &format!("  {journal}: {why}\n");
        }
    }
    said
}
