//! Commands that write: no other process may use the journal, and the user must name it and confirm.

use std::fs::File;

use chiton_admin::journal::{
    Gaps, JournalToolError, Output, Pointer, Pointers, get, import as import_from, set_trimmed, set_write,
    splice as splice_in,
};
use chiton_journal::{JournalError, Place, survey};
use chiton_server::{Apply, Offline};
use chiton_types::{Position, counted};
use serde_json::{Value, json};

use super::args::{EventChange, HeaderSet, Import, Reset, Source};
use super::open;
use crate::failure::{Failure, Outcome};
use crate::progress::Work;

pub(super) fn import(args: &Import) -> Outcome {
    let offline = open::to_change(&args.source, &args.consent)?;
    let file = File::open(&args.file)
        .map_err(|e| Failure::absent(format!("cannot open {}: {e}", args.file.display())))?;
    open::agreed(&args.consent, &format!("put the events of {} into the journal", args.file.display()))?;
    let gaps = match (args.fill_gaps, args.stop_at_gap) {
        (true, _) => Gaps::Fill,
        (_, true) => Gaps::StopAt,
        _ => Gaps::Refuse,
    };
    let imported = {
        let work = Work::begin("importing the journal");
        let (place, identity) = (offline.place(), offline.identity());
        import_from(place, identity, offline.stored()?, file, gaps, &mut |p| work.report(p))?
    };
    let line = format!(
        "{} events are in the journal again ({} were in the metadata store already, {} without effect in the place of those that \
         is lost); its last position is {}",
        imported.events, imported.stored, imported.filled, imported.last
    );
    say(&args.source, &line, json!(imported))
}

pub(super) fn reset(args: &Reset) -> Outcome {
    let offline = open::to_change(&args.source, &args.consent)?;
    let stored = offline.stored()?;
    let lost = beyond(&*offline.place(), stored)?;
    let what = match lost {
        Some(0) => "lose nothing: the metadata store has all its events".to_owned(),
        Some(n) => {
            format!("lose {} after position {stored}, which the metadata store lacks", counted(n, "event"))
        }
        None => format!("lose all events after position {stored}; their number is unknown"),
    };
    open::agreed(&args.consent, &format!("empty the journal and {what}"))?;
    chiton_journal::reset(&*offline.place(), offline.identity(), stored.next())
        .map_err(JournalToolError::from)?;
    let line = format!("the journal is empty; the next position is {}", stored.next());
    say(&args.source, &line, json!({ "next": stored.0 + 1, "lost_events": lost }))
}

/// Events after a position; `None` if the journal cannot be read at all.
fn beyond(place: &dyn Place, stored: Position) -> Outcome<Option<u64>> {
    match survey::<JournalToolError>(place, &mut |_| Ok(()), &mut |_| {}) {
        Ok(survey) => Ok(Some(survey.last.0.saturating_sub(stored.0))),
        Err(JournalToolError::Journal(JournalError::Absent | JournalError::Damaged(_))) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn header(args: &HeaderSet) -> Outcome {
    let offline = open::to_change(&args.source, &args.consent)?;
    if args.position == 0 {
        return Err(Failure::failed("0 is not a position: positions count from 1"));
    }
    let to = Position(args.position);
    let (place, stored) = (offline.place(), offline.stored()?);
    let agreed = |would: String| open::agreed(&args.consent, &would);
    let line = match args.pointer {
        Pointer::Trimmed => {
            agreed(format!("remove the segments that hold only positions below {to}"))?;
            let removed = set_trimmed(&*place, stored, to)?;
            format!("{removed} segments are removed")
        }
        Pointer::Expire => {
            Pointers::read(&*place, Some(stored), None, &mut |_| {})?.may_expire_at(to)?;
            agreed(format!(
                "make the metadata store record that it has the events below {to} and no others (it records {} now)",
                stored.next()
            ))?;
            offline.set_stored(Position(to.0 - 1))?;
            format!("a start replays from position {to} on")
        }
        Pointer::Write => {
            agreed(format!("drop all events from position {to} on"))?;
            set_write(&*place, offline.identity(), stored, to)?;
            format!("the journal ends before position {to}")
        }
    };
    let pointers = Pointers::read(&*place, Some(offline.stored()?), None, &mut |_| {})?;
    say(&args.source, &line, json!(pointers))
}

pub(super) fn splice(args: &EventChange) -> Outcome {
    let offline = open::to_change(&args.source, &args.consent)?;
    let filter = args.filter.filter();
    let erase = |dry: bool, what: &'static str| -> Result<_, JournalToolError> {
        let work = Work::begin(what);
        let place = offline.place();
        splice_in(&*place, offline.identity(), &filter, Some(offline.meta()), dry, &mut |p| work.report(p))
    };
    if !args.consent.yes {
        let found = erase(true, "reading the journal")?;
        return open::agreed(
            &args.consent,
            &format!("erase {} of {}", counted(found.events, "event"), counted(found.frames, "operation")),
        );
    }
    let erased = erase(false, "erasing events")?;
    let events = counted(erased.events, "event");
    let line = format!("erased: {events} of {}", counted(erased.frames, "operation"));
    say(&args.source, &line, json!(erased))
}

pub(super) fn apply(args: &EventChange, recover: bool) -> Outcome {
    let offline = open::to_change(&args.source, &args.consent)?;
    let filter = args.filter.filter();
    let stored = offline.stored()?;
    let after = if recover { newest(&offline)?.max(stored) } else { stored };
    if !args.consent.yes {
        let place = offline.place();
        let meant =
            get(&*place, &filter, Some(offline.meta()), Output::Summary, &mut std::io::sink(), &mut |_| {})?;
        return open::agreed(
            &args.consent,
            &format!(
                "apply the events after position {after} of the {} matching events (positions {} to {}), and skip \
                 the others for good",
                meant.events,
                meant.first.unwrap_or(0),
                meant.last.unwrap_or(0)
            ),
        );
    }
    let mut seen = filter.begin(Some(offline.meta())).map_err(JournalToolError::from)?;
    let mut failed = None;
    let mut select = |position, header: &_, event: &_| match seen.matches(position, header, event) {
        Ok(meant) => meant,
        Err(error) => {
            failed.get_or_insert(error);
            false
        }
    };
    let upto = filter.range.map_or(Position(u64::MAX), |range| range.last);
    let what = Apply { after, upto, select: &mut select, skip_misfits: recover };
    let applied = {
        let work = Work::begin("applying events");
        offline.apply(what, &mut |p| work.report(p))?
    };
    if let Some(error) = failed {
        return Err(JournalToolError::from(error).into());
    }
    let line = format!(
        "{} events applied, {} skipped because they do not match, {} because they do not fit; the metadata store has all up to position {}",
        applied.applied, applied.passed_over, applied.misfits, applied.stored
    );
    let value = json!({
        "applied": applied.applied, "passed_over": applied.passed_over, "misfits": applied.misfits,
        "stored_before": stored.0, "newest_row": if recover { json!(after.0) } else { Value::Null },
        "stored": applied.stored.0,
    });
    say(&args.source, &line, value)
}

fn newest(offline: &Offline) -> Outcome<Position> {
    Ok(offline.newest_row(&mut |_| {})?)
}

fn say(source: &Source, line: &str, value: Value) -> Outcome {
    if source.json {
        println!("{value}");
    } else {
        println!("{line}");
    }
    Ok(())
}
