//! Showing the events that are meant: as lines, as JSON, counted, or as an export.

use std::collections::BTreeMap;
use std::io::Write;

use chiton_journal::{Found, Frame, Place, survey};
use chiton_metastore::Metastore;
use chiton_model::Event;
use chiton_model::text::utc;
use chiton_types::{Position, Time};
use serde::Serialize;

use crate::journal::error::JournalToolError;
use crate::journal::export_file::{ExportHeader, ExportWriter};
use crate::journal::filter::Filter;
use crate::journal::inspect::Lost;
use crate::journal::{OnProgress, events_of};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A line for each event.
    List,
    /// An object for each event, one a line.
    Json,
    /// No line for each event: see [`Tally`].
    Summary,
    /// The operations that they belong to, as an export.
    Binary,
}

/// Counts of the events that were meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub events: u64,
    /// Number of their operations.
    pub frames: u64,
    /// Bytes of these in the journal.
    pub payload_bytes: u64,
    /// Number of events of each type.
    pub types: BTreeMap<&'static str, u64>,
    /// Events by session; 0 is the server itself.
    pub sessions: BTreeMap<u64, u64>,
    /// Position of the first.
    pub first: Option<u64>,
    /// Position of the last.
    pub last: Option<u64>,
    /// Earliest time, in nanoseconds since 1970.
    pub earliest_ns: Option<i64>,
    /// The latest time, in nanoseconds since 1970.
    pub latest_ns: Option<i64>,
    /// Number of damaged places, whose lost events might have matched.
    pub flaws: u64,
}

impl Tally {
    fn count(&mut self, position: Position, frame: &Frame<'_>, event: &Event) {
        self.events += 1;
        *self.types.entry(event.type_name()).or_default() += 1;
        *self.sessions.entry(frame.header.session.0).or_default() += 1;
        self.first.get_or_insert(position.0);
        self.last = Some(position.0);
        if let Some(Time(ns)) = event.time() {
            self.earliest_ns = Some(self.earliest_ns.map_or(ns, |before| before.min(ns)));
            self.latest_ns = Some(self.latest_ns.map_or(ns, |before| before.max(ns)));
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} events in {} operations, {} bytes", self.events, self.frames, self.payload_bytes)?;
        if let (Some(first), Some(last)) = (self.first, self.last) {
            writeln!(f, "positions {first} to {last}")?;
        }
        if let (Some(earliest), Some(latest)) = (self.earliest_ns, self.latest_ns) {
            writeln!(f, "times {} to {} (UTC)", utc(Time(earliest)), utc(Time(latest)))?;
        }
        for (name, count) in &self.types {
            writeln!(f, "{count:>12}  {name}")?;
        }
        for (session, count) in &self.sessions {
            let who =
                if *session == 0 { "the server itself".to_owned() } else { format!("session {session}") };
            writeln!(f, "{count:>12}  of {who}")?;
        }
        if self.flaws > 0 {
            writeln!(f, "the journal is damaged in {} places: see chiton journal inspect", self.flaws)?;
        }
        Ok(())
    }
}

/// The destination of events.
enum Sink<'a> {
    Lines(&'a mut dyn Write),
    Objects(&'a mut dyn Write),
    Export(ExportWriter<&'a mut dyn Write>),
    Nowhere,
}

impl Sink<'_> {
    fn event(&mut self, position: Position, frame: &Frame<'_>, event: &Event) -> std::io::Result<()> {
        match self {
            Sink::Lines(to) => line(to, position, frame, event),
            Sink::Objects(to) => {
                let mut value = event.json();
                value["position"] = position.0.into();
                value["by_session"] = frame.header.session.0.into();
                value["by_seq"] = frame.header.seq.0.into();
                value["in_shard"] = frame.header.shard.0.into();
                value["segment"] = frame.segment.into();
                writeln!(to, "{value}")
            }
            Sink::Export(_) | Sink::Nowhere => Ok(()),
        }
    }

    fn flaw(&mut self, lost: &Lost) -> std::io::Result<()> {
        match self {
            Sink::Lines(to) => writeln!(to, "{:>14}  {lost}", "DAMAGED"),
            Sink::Objects(to) => writeln!(to, "{}", serde_json::json!({ "type": "damaged", "lost": lost })),
            Sink::Export(export) => match lost.first {
                Some(first) => export.lost(Position(first), lost.last.map(Position), &lost.what),
                None => Ok(()),
            },
            Sink::Nowhere => Ok(()),
        }
    }
}

/// Writes the events of a journal that `filter` means to `to`, and counts them. `store` is for the filter's path.
///
/// # Errors
/// The writer's; the store's; the journal's, if it cannot be read at all.
pub fn get(
    place: &dyn Place,
    filter: &Filter,
    store: Option<&dyn Metastore>,
    output: Output,
    to: &mut dyn Write,
    progress: OnProgress<'_>,
) -> Result<Tally, JournalToolError> {
    let mut sink = match output {
        Output::List => Sink::Lines(to),
        Output::Json => Sink::Objects(to),
        Output::Summary => Sink::Nowhere,
        Output::Binary => {
            let shape = survey::<JournalToolError>(place, &mut |_| Ok(()), &mut |_| {})?;
            let journal = shape.journal.unwrap_or(0);
            let header = ExportHeader { journal, epoch: shape.epoch, stored: None, first: shape.first };
            Sink::Export(ExportWriter::new(to, &header)?)
        }
    };
    let mut tally = Tally::default();
    let mut seen = filter.begin(store)?;
    let mut visit = |found: Found<'_>| -> Result<(), JournalToolError> {
        let (frame, events) = match found {
            Found::Frame(frame) => match events_of(&frame) {
                Ok(events) => (frame, events),
                Err(malformed) => {
                    tally.flaws += 1;
                    return Ok(sink.flaw(&Lost::malformed(&frame, &malformed))?);
                }
            },
            Found::Flaw(flaw) => {
                tally.flaws += 1;
                return Ok(sink.flaw(&Lost::of(flaw))?);
            }
        };
        let mut meant = false;
        for (position, event) in &events {
            let position = *position;
            if seen.matches(position, &frame.header, event)? {
                meant = true;
                tally.count(position, &frame, event);
                sink.event(position, &frame, event)?;
            }
        }
        if meant {
            tally.frames += 1;
            tally.payload_bytes += frame.payload.len() as u64;
            if let Sink::Export(export) = &mut sink {
                export.frame(frame.first, &frame.header, frame.payload)?;
            }
        }
        Ok(())
    };
    survey(place, &mut visit, progress)?;
    match sink {
        Sink::Export(export) => drop(export.finish()?),
        Sink::Lines(to) | Sink::Objects(to) => to.flush()?,
        Sink::Nowhere => {}
    }
    Ok(tally)
}

fn line(to: &mut dyn Write, position: Position, frame: &Frame<'_>, event: &Event) -> std::io::Result<()> {
    let time = event.time().map_or(String::new(), utc);
    let who = format!("{}.{}", frame.header.session, frame.header.seq);
    writeln!(to, "{position:>14}  {time:23}  {who:>12}  {}", event.describe())
}
