//! `docs/formats.md` says what the tables of operations and events say. `CHITON_WRITE=1` in the environment writes it there.

use std::fs;
use std::path::Path;

use chiton_model::{Event, Op};

/// The lines of a table: tag, variant, fields.
fn table(head: &str, layouts: Vec<(u8, &'static str, String)>) -> String {
    let rows = layouts
        .iter()
        .map(|(tag, name, fields)| format!("| {tag} | {name} | {fields} |\n").replace("  |", " |"));
    format!("{head}\n|---|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn the_formats_are_those_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let text = fs::read_to_string(&path).expect("the project's documents");
    let mut expected = text.clone();
    for (head, layouts) in
        [("| tag | event | fields |", Event::layouts()), ("| tag | operation | fields |", Op::layouts())]
    {
        let start = expected.find(head).unwrap_or_else(|| panic!("no table begins with {head}"));
        let end = start + expected[start..].find("\n\n").expect("text follows the table") + 1;
        expected.replace_range(start..end, &table(head, layouts));
    }
    if std::env::var_os("CHITON_WRITE").is_some() {
        fs::write(&path, &expected).expect("the document can be written");
    }
    assert_eq!(
        text, expected,
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
