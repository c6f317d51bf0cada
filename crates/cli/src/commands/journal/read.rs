//! Commands that only read, also while a server runs.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use chiton_admin::journal::{JournalToolError, Pointers, export as export_to, get, inspect as inspect_place};
use serde_json::json;

use super::args::{EventGet, Export, Form, HeaderGet, Inspect};
use super::open;
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;

pub(super) fn inspect(args: &Inspect) -> Outcome {
    let place = open::segments(&args.source)?;
    let inspection = {
        let work = Work::begin("reading the journal");
        inspect_place(&*place, &mut |p| work.report(p))?
    };
    if args.source.json {
        println!("{}", json!(inspection));
    } else {
        println!("{inspection}");
    }
    if inspection.is_whole() { Ok(()) } else { Err(damaged("the listed events are lost")) }
}

fn damaged(what: &str) -> Failure {
    Failure::failed(format!(
        "the journal is damaged: {what}. export its whole part (chiton journal export), then reset it (chiton journal reset) \
         and put it back (chiton journal import)"
    ))
}

pub(super) fn export(args: &Export) -> Outcome {
    let journal = open::to_read(&args.source)?;
    let file = create(&args.file)?;
    let exported = {
        let work = Work::begin("exporting the journal");
        export_to(&*journal.place(), journal.stored()?, BufWriter::new(&file), &mut |p| work.report(p))
    };
    let exported = match exported.and_then(|exported| Ok((file.sync_all()?, exported).1)) {
        Ok(exported) => exported,
        Err(error) => {
            // Half an export is none.
            let _ = std::fs::remove_file(&args.file);
            return Err(error.into());
        }
    };
    if args.source.json {
        println!("{}", json!({ "file": args.file, "whole": exported.is_whole(), "export": exported }));
    } else {
        let (file, events, frames) = (args.file.display(), exported.events, exported.frames);
        println!(
            "{file}: {events} events in {frames} operations, positions {} to {}",
            exported.first, exported.last
        );
        exported.lost.iter().for_each(|lost| println!("not whole: {lost}"));
    }
    if exported.is_whole() { Ok(()) } else { Err(damaged("the export contains the rest")) }
}

pub(super) fn header(args: &HeaderGet) -> Outcome {
    let journal = open::to_read(&args.source)?;
    let newest = match (args.rows, journal.offline()) {
        (false, _) => None,
        (true, None) => {
            return Err(Failure::new(
                Class::Busy,
                "the rows cannot be read while a server has the metadata store: stop the server first, or leave out --rows",
            ));
        }
        (true, Some(offline)) => Some(offline.newest_row(&mut |_| {})?),
    };
    let pointers = {
        let work = Work::begin("reading the journal");
        Pointers::read(&*journal.place(), journal.stored()?, newest, &mut |p| work.report(p))?
    };
    if args.source.json {
        println!("{}", json!(pointers));
    } else {
        println!("{pointers}");
    }
    if pointers.is_sound() {
        Ok(())
    } else {
        Err(Failure::failed(
            "the pointers contradict each other, as listed above; chiton fsck and chiton journal inspect show the damage",
        ))
    }
}

pub(super) fn events(args: &EventGet) -> Outcome {
    let filter = args.filter.filter();
    let form = if args.source.json && args.form == Form::List { Form::Json } else { args.form };
    if form == Form::Binary && args.to.is_none() {
        return Err(Failure::failed("an export goes to a file: name it with --to FILE"));
    }
    // Only a path needs the metadata store.
    let journal = match filter.path {
        Some(_) => Some(open::to_read(&args.source)?),
        None => None,
    };
    let place = match &journal {
        Some(journal) => journal.place(),
        None => open::segments(&args.source)?,
    };
    let store = journal.as_ref().and_then(|journal| journal.offline()).map(|offline| offline.meta());
    if filter.path.is_some() && store.is_none() {
        chiton_runtime::log_line!(
            "chiton: a server has the metadata store: paths are known only as far as the journal names them"
        );
    }
    let mut out: Box<dyn Write> = match &args.to {
        Some(path) => Box::new(BufWriter::new(create(path)?)),
        None => Box::new(BufWriter::new(std::io::stdout())),
    };
    let tally = {
        let work = Work::begin("reading the journal");
        match get(&*place, &filter, store, form.output(), &mut *out, &mut |p| work.report(p)) {
            Ok(tally) => tally,
            // The reader of the output has gone.
            Err(JournalToolError::File(e)) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    };
    match form {
        Form::Summary if args.source.json => println!("{}", json!(tally)),
        Form::Summary => print!("{tally}"),
        _ if args.to.is_some() && !args.source.json => println!("{} events", tally.events),
        _ => {}
    }
    match tally.flaws {
        0 => Ok(()),
        n => Err(damaged(&format!("in {n} places, and lost events may have matched, too"))),
    }
}

/// A new file: nothing is overwritten.
fn create(path: &Path) -> Outcome<File> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|e| {
        let hint = if e.kind() == ErrorKind::AlreadyExists { "; choose another name" } else { "" };
        Failure::failed(format!("cannot make {}: {e}{hint}", path.display()))
    })
}
