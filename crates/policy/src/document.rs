//! From YAML to keys and values with their places.
//!
//! A policy is one flat mapping of words to words, so of YAML only that is taken: aliases and anchors (which can make
//! a short text a long one), tags, nesting and further documents are refused where they stand.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use crate::fault::{Fault, Place};
use crate::language::shortened;

/// Most bytes of a policy file.
pub const FILE_BYTES_MAX: usize = 16 << 10;
/// Most keys.
const ENTRIES_MAX: usize = 64;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) value: String,
    /// Of the first character of the value.
    pub(crate) value_place: Place,
}

/// Reads a document. What has no content has no entries.
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
        let (event, span) =
            item.map_err(|e| Fault::new(place(e.marker()), format!("this is no YAML: {}", e.info())))?;
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
                entries.push(Entry { key, key_place, value: value.into_owned(), value_place });
            }
            _ => {}
        }
    }
    Ok(entries)
}

fn is_null(value: &str) -> bool {
    matches!(value, "~" | "null" | "Null" | "NULL")
}

fn place(marker: &Marker) -> Place {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: small(marker.line().max(1)), column: small(marker.col() + 1) }
}
