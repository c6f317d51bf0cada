//! `docs/formats.md` says what the tables of operations and events say. `CHITON_WRITE=1` in the environment writes it there.

use std::fs;
use std::path::Path;

use chiton_model::field::Listed;
use chiton_model::merge::MergeState;
use chiton_model::{Attached, Decoupling, Event, Interference, Op, PolicyChange};

/// The lines of a table: tag, variant, fields.
fn table(head: &str, layouts: Vec<(u8, &'static str, String)>) -> String {
    let rows = layouts
        .iter()
        .map(|(tag, name, fields)| format!("| {tag} | {name} | {fields} |\n").replace("  |", " |"));
    format!("{head}\n|---|---|---|\n{}", rows.collect::<String>())
}

/// The line of a part of events.
fn part<T: Listed>() -> String {
    format!("| {} | {} |\n", T::TITLE, T::layouts()[0].fields)
}

#[test]
fn the_formats_are_those_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let text = fs::read_to_string(&path).expect("the project's documents");
    let mut expected = text.clone();
    let parts = [
        part::<PolicyChange>(),
        part::<Decoupling>(),
        part::<Interference>(),
        part::<Attached>(),
        part::<MergeState>(),
    ];
    let (events, ops, parts_head) =
        ("| tag | event | fields |", "| tag | operation | fields |", "| part of an event | fields |");
    for (head, table) in [
        (events, table(events, Event::layouts())),
        (ops, table(ops, Op::layouts())),
        (parts_head, format!("{parts_head}\n|---|---|\n{}", parts.concat())),
    ] {
        let start = expected.find(head).unwrap_or_else(|| panic!("no table begins with {head}"));
        let end = start + expected[start..].find("\n\n").expect("text follows the table") + 1;
        expected.replace_range(start..end, &table);
    }
    if std::env::var_os("CHITON_WRITE").is_some() {
        fs::write(&path, &expected).expect("the document can be written");
    }
    assert!(
        text == expected,
        "CHITON_WRITE=1 cargo test -p chiton-model --test formats writes the tables anew"
    );
}

#[test]
fn each_tag_and_each_name_is_one_thing_only() {
    for layouts in [Event::layouts(), Op::layouts()] {
        let mut tags: Vec<u8> = layouts.iter().map(|(tag, ..)| *tag).collect();
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), count, "{layouts:?}");
    }
    for names in [Event::TYPE_NAMES, Op::COUNTERS] {
        let mut names = names.to_vec();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
