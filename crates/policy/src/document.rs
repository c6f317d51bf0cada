//! From YAML to keys and values with their places.
//!
//! A policy is one flat mapping of words to words, so of YAML only that is taken: aliases and anchors (which can make
//! a short text a long one), tags, nesting and further documents are refused where they stand.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use crate::fault::{Fault, Place};
use crate::language::shortened;

/// Most bytes of a policy file.
pub const FILE_BYTES_MAX: usize = 16 << 10;
/// Most keys that a document may have.
const ENTRIES_MAX: usize = 64;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) value: String,
    /// Place of the first character of the value.
    pub(crate) value_place: Place,
    /// Of each character of it that is no blank, where it goes over several lines.
    places: Vec<Place>,
}

impl Entry {
    /// A fault in the value, whose place was counted as if that were one line.
    pub(crate) fn placed(&self, fault: Fault) -> Fault {
        let is_within = fault.place.line == self.value_place.line && fault.place > self.value_place;
        if !is_within || self.places.is_empty() {
            return fault;
        }
        let before = (fault.place.column - self.value_place.column) as usize;
        let at = self.value.chars().take(before).filter(|c| !c.is_whitespace()).count();
        // Past its end: behind its last character.
        let end = self.places.last().map(|place| place.right(1));
        Fault { place: self.places.get(at).copied().or(end).unwrap_or(fault.place), ..fault }
    }
}

/// Reads a document. A document without content has no entries.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>, Fault> {
    if text.len() > FILE_BYTES_MAX {
        let reason = format!("a policy has at most {FILE_BYTES_MAX} bytes, this one has {}", text.len());
        return Err(Fault::new(Place::START, reason));
    }
    let mut entries = Vec::new();
    let mut key: Option<(String, Place)> = None;
    let mut documents = 0;
    let mut inside = false;
    for item in Parser::new_from_str(text) {
        let (event, span) = item.map_err(|e| no_yaml(text, place(e.marker()), e.info()))?;
        let at = place(&span.start);
        let refuse =
            |what: &str| Err(Fault::new(at, format!("{what} in a policy, which is a list of `key: value`")));
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return refuse("there is no second document");
                }
            }
            Event::Alias(_) => return refuse("there are no aliases"),
            Event::SequenceStart(..) => return refuse("there are no lists"),
            Event::MappingStart(..) if inside => return refuse("there is no nesting"),
            Event::MappingStart(anchor, tag) => {
                if anchor != 0 || tag.is_some() {
                    return refuse("there are no anchors and tags");
                }
                inside = true;
            }
            Event::MappingEnd => inside = false,
            Event::Scalar(value, style, anchor, tag) => {
                if anchor != 0 || tag.is_some() {
                    return refuse("there are no anchors and tags");
                }
                if !inside {
                    if value.trim().is_empty() || (style == ScalarStyle::Plain && is_null(&value)) {
                        continue;
                    }
                    return refuse(&format!("`{}` stands alone", shortened(&value)));
                }
                let Some((key, key_place)) = key.take() else {
                    key = Some((value.into_owned(), at));
                    continue;
                };
                if style == ScalarStyle::Plain && (value.is_empty() || is_null(&value)) {
                    return Err(Fault::new(key_place, format!("`{}` has no value", shortened(&key))));
                }
                if entries.len() == ENTRIES_MAX {
                    return Err(Fault::new(key_place, format!("a policy has at most {ENTRIES_MAX} keys")));
                }
                let quoted = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
                let value_place = at.right(usize::from(quoted));
                let places = match span.end.line() > span.start.line() {
                    true => places_of(text, value_place, &value),
                    false => Vec::new(),
                };
                entries.push(Entry { key, key_place, value: value.into_owned(), value_place, places });
            }
            _ => {}
        }
    }
    Ok(entries)
}

/// The places of a value's characters in the text, blanks left out: folding changes nothing else.
fn places_of(text: &str, from: Place, value: &str) -> Vec<Place> {
    let count = value.chars().filter(|c| !c.is_whitespace()).count();
    let lines = text.lines().zip(1u32..).skip_while(|(_, line)| *line < from.line);
    let all = lines.flat_map(|(text, line)| {
        let first = if line == from.line { from.column } else { 1 };
        text.chars()
            .zip(1u32..)
            .filter(move |(c, column)| *column >= first && !c.is_whitespace())
            .map(move |(_, column)| Place { line, column })
    });
    all.take(count).collect()
}

/// The fault for a text that the parser cannot read. It points at a tab if there is one: people do not see it.
fn no_yaml(text: &str, at: Place, why: &str) -> Fault {
    let mut lines = text.lines().zip(1u32..).filter(|(_, line)| (at.line..=at.line + 1).contains(line));
    let tab = lines.find_map(|(text, line)| {
        let column = text.split('#').next()?.chars().position(|c| c == '\t')?;
        Some(Place { line, column: column as u32 + 1 })
    });
    match tab {
        Some(tab) => Fault::new(tab, "this is no YAML: a tab; write blanks"),
        None => Fault::new(at, format!("this is no YAML: {why}")),
    }
}

fn is_null(value: &str) -> bool {
    matches!(value, "~" | "null" | "Null" | "NULL")
}

fn place(marker: &Marker) -> Place {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: small(marker.line().max(1)), column: small(marker.col() + 1) }
}
