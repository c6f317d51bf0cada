//! Questions about operations and events are answered in their table: a new one would fall into the rest unseen.
//!
//! The first rule: in a `match` of which any arm's pattern names a variant of `Op` or `Event`, no arm may take all the rest, be it
//! by `_` or by a bare name. Such a match either lists every variant, so that the compiler asks about a new one, or it is no
//! match: a question about one variant is an `if let`, `let … else` or `matches!`, and a question about inodes and names is one
//! for the footprint.
//!
//! The second rule: outside the table no pattern of `matches!`, `if let` or `let … else` names two variants. Such a question answers no
//! for every new variant, silently. It is one for the footprint, or a column of the table. [`MAY_NAME_SEVERAL`] lists those that
//! are right about a new variant anyway.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use chiton_model::field::{Samples, Variants};
use chiton_model::{Event, Role, Rows};

/// Files with patterns of several variants, how many, and why a variant that they do not name does no harm.
const MAY_NAME_SEVERAL: &[(&str, usize, &str)] = &[
    ("crates/admin/src/journal/filter.rs", 1, "a filter of journals, for people"),
    ("crates/client/src/connected.rs", 1, "other operations only report closes later"),
    (
        "crates/client/src/core.rs",
        1,
        "an outline leaves large content out; of any other operation it is a whole copy",
    ),
    ("crates/client/src/write_behind/decide.rs", 1, "the server decides about the rest"),
    (
        "crates/client/src/write_behind/mod.rs",
        2,
        "the rest disturbs; and the two that bring blocks have them in different fields",
    ),
    (
        "crates/decoupled/src/filter.rs",
        1,
        "the rest is sent, and the server refuses events that only a server writes",
    ),
    ("crates/decoupled/src/provenance.rs", 1, "the rest that is about names changes names only"),
    ("crates/decoupled/src/temporary_names.rs", 4, "the rest neither gives a temporary name nor takes one"),
    ("crates/engine/src/execute.rs", 2, "the operations of files without names; and those that bring blocks"),
    ("crates/engine/src/peers/crossing.rs", 1, "other plates get the rest too"),
    ("crates/engine/src/peers/folds.rs", 1, "the two forms of a step of a fold"),
    ("crates/engine/src/peers/keeper.rs", 1, "at the rest the client gives its leases back"),
    ("crates/engine/src/realms/merge.rs", 1, "the rest is small"),
    ("crates/engine/src/realms/required.rs", 1, "the rest is asked to decouple, and refused afterwards"),
    (
        "crates/engine/src/write_behind.rs",
        2,
        "no client may acknowledge the rest; its time has no earlier bound",
    ),
    ("crates/merge/src/lib.rs", 1, "of the rest the inode is in memory, and the merge notes it"),
    ("crates/merge/src/squash.rs", 1, "the two events that say whether they leave an orphan"),
    (
        "crates/namespace/src/apply/mod.rs",
        1,
        "the two events that bring blocks; `apply` fails loudly if a new one lacks rows",
    ),
    ("crates/namespace/src/plan/mod.rs", 1, "the rest is only slower"),
    (
        "crates/namespace/src/plan/namespace.rs",
        1,
        "the two events that bring blocks; the plan of a new one asks for its maps",
    ),
    ("crates/sim/src/net.rs", 1, "of the rest a checker of write-behind knows nothing"),
    ("crates/sim/src/part_steps.rs", 1, "the two events of a part"),
];

#[test]
fn no_match_over_operations_or_events_takes_the_rest() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for top in ["crates", "bench"] {
        sources(&root.join(top), &mut files);
    }
    assert!(files.len() > 300, "only {} files were found below {}", files.len(), root.display());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file is text");
        if text.contains("chiton_model") || file.starts_with(root.join("crates/model")) {
            found.extend(catch_alls(&text).into_iter().map(|line| format!("{}:{line}", file.display())));
        }
    }
    assert!(found.is_empty(), "list every variant, or ask the footprint:\n{}", found.join("\n"));
}

#[test]
fn patterns_outside_the_table_name_one_variant() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    ["crates", "bench"].iter().for_each(|top| sources(&root.join(top), &mut files));
    let mut found = Vec::new();
    let mut met = BTreeSet::new();
    for file in files.iter().filter(|file| !file.starts_with(root.join("crates/model"))) {
        let lines = several(&fs::read_to_string(file).expect("a source file is text"));
        let path = file.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        let allowed = MAY_NAME_SEVERAL.iter().find(|(allowed, ..)| *allowed == path);
        if lines.len() != allowed.map_or(0, |(_, count, _)| *count) {
            found.push(format!("{path}: lines {lines:?}"));
        }
        met.extend(allowed.map(|(path, ..)| *path));
    }
    found.extend(
        MAY_NAME_SEVERAL.iter().filter(|(path, ..)| !met.contains(path)).map(|(p, ..)| p.to_string()),
    );
    assert!(
        found.is_empty(),
        "ask the footprint or a column of the table, or list them with a reason:\n{}",
        found.join("\n")
    );
}

/// An event that sets attributes of one inode says so: parts of a directory get it too.
#[test]
fn events_of_attributes_alone_have_the_column() {
    // They are about the list of parts.
    let of_parts = ["Parts", "Folded"];
    for (at, name) in Event::VARIANTS.iter().enumerate() {
        let bytes: Vec<u8> = (0..=255).collect();
        let event = Event::sample_variant(at, &mut Samples::new(&bytes));
        let footprint = event.footprint();
        let sets_attributes = matches!(footprint.inodes(), [only] if only.role == Role::Subject
            && only.writes.has_any(Rows::ATTRS)
            && !only.writes.has_any(Rows::CONTENT));
        let is_alone = sets_attributes && footprint.names().next().is_none() && !of_parts.contains(name);
        assert_eq!(event.attributes_of().is_some(), is_alone, "{event:?}");
        if let Some(ino) = event.attributes_of() {
            let copy = event.with_attributes_of(chiton_types::Ino(ino.0 ^ 1)).expect("a copy");
            assert_ne!(copy.attributes_of(), Some(ino));
            assert_eq!(copy.with_attributes_of(ino), Some(event));
        }
    }
}

/// Sources of what runs: not tests, not examples.
fn sources(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in
        fs::read_dir(dir).expect("a directory of the project").map(|entry| entry.expect("an entry").path())
    {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && !matches!(name.as_str(), "tests" | "examples" | "benches" | "target" | "fuzz") {
            sources(&entry, files);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            files.push(entry);
        }
    }
}

/// The lines of the matches that break the rule.
fn catch_alls(source: &str) -> Vec<usize> {
    let code = blanked(source);
    let code = &code[..code.find("#[cfg(test)]\nmod ").unwrap_or(code.len())];
    let mut lines = Vec::new();
    for (at, _) in code.match_indices("match ") {
        let is_word =
            code[..at].chars().next_back().is_none_or(|c| !(c.is_alphanumeric() || "_!.".contains(c)));
        let Some(body) = body_of(&code[at..]).filter(|_| is_word) else { continue };
        let patterns = patterns(body);
        let names = |pattern: &String| names_variant(pattern, "Op") || names_variant(pattern, "Event");
        if patterns.iter().any(names) && patterns.iter().any(|pattern| takes_all(pattern)) {
            lines.push(code[..at].matches('\n').count() + 1);
        }
    }
    lines
}

/// The lines of the patterns that break the second rule.
fn several(source: &str) -> Vec<usize> {
    let code = blanked(source);
    let code = &code[..code.find("#[cfg(test)]\nmod ").unwrap_or(code.len())];
    let mut lines = Vec::new();
    let tests = code.match_indices("matches!(").filter_map(|(at, start)| {
        let rest = &code[at + start.len()..];
        Some((at, &rest[..until(rest, &[')'])?]))
    });
    let lets = code.match_indices("let ").filter_map(|(at, start)| {
        let rest = &code[at + start.len()..];
        Some((at, &rest[..until(rest, &['=', ';'])?]))
    });
    for (at, pattern) in tests.chain(lets) {
        let named: BTreeSet<_> = ["Op", "Event"].iter().flat_map(|of| variants(pattern, of)).collect();
        if named.len() > 1 {
            lines.push(code[..at].matches('\n').count() + 1);
        }
    }
    lines
}

/// `Op::Make`, but not `Call::Op` or `Op::COUNTERS`.
fn names_variant(pattern: &str, of: &str) -> bool {
    !variants(pattern.split(" if ").next().unwrap_or_default(), of).is_empty()
}

/// The variants that a pattern names.
fn variants<'a>(pattern: &'a str, of: &str) -> Vec<&'a str> {
    let path = format!("{of}::");
    let named = pattern.match_indices(&path).filter_map(|(at, _)| {
        let before = pattern[..at].chars().next_back();
        let rest = &pattern[at + path.len()..];
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())];
        let mut letters = name.chars();
        let is_variant = before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
            && letters.next().is_some_and(char::is_uppercase)
            && letters.next().is_some_and(char::is_lowercase);
        is_variant.then_some(name)
    });
    named.collect()
}

/// `_`, `other`, `(_, other)`, also with a guard.
fn takes_all(pattern: &str) -> bool {
    let pattern = pattern.split(" if ").next().unwrap_or_default();
    let part = |part: &str| {
        let part = part.trim();
        if matches!(part, "true" | "false") {
            return false;
        }
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !part.is_empty() && part.chars().all(is_name) && part.starts_with(|c: char| !c.is_ascii_digit())
    };
    pattern.trim().trim_start_matches('(').trim_end_matches(')').split(',').all(part)
}

/// The source with comments, strings and characters made blank, lines kept.
fn blanked(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source[at..];
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with('"') {
            let mut end = 1;
            while end < rest.len() && rest.as_bytes()[end] != b'"' {
                end += if rest.as_bytes()[end] == b'\\' { 2 } else { 1 };
            }
            (end + 1).min(rest.len())
        } else if let Some(escaped) = rest.strip_prefix("'\\") {
            escaped.get(1..).and_then(|rest| rest.find('\'')).map_or(1, |end| end + 4)
        } else if rest.starts_with('\'') && rest.as_bytes().get(2) == Some(&b'\'') {
            3
        } else {
            at += 1;
            while !source.is_char_boundary(at) {
                at += 1;
            }
            continue;
        };
        out[at..at + len].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at += len;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length up to the first of these characters outside brackets.
fn until(code: &str, ends: &[char]) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        if depth == 0 && ends.contains(&c) {
            return Some(at);
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// The code between the braces of a match.
fn body_of(code: &str) -> Option<&str> {
    let body = &code[until(code, &['{'])? + 1..];
    Some(&body[..until(body, &['}'])?])
}

/// The patterns of the arms, with their guards.
fn patterns(mut body: &str) -> Vec<String> {
    let mut patterns = Vec::new();
    while let Some(at) = arrow(body) {
        patterns.push(body[..at].trim().to_owned());
        let rest = body[at + 2..].trim_start();
        let end = if let Some(block) = rest.strip_prefix('{') {
            let end = until(block, &['}']).map_or(rest.len(), |end| end + 2);
            end + usize::from(rest[end..].trim_start().starts_with(','))
                * (rest[end..].find(',').unwrap_or(0) + 1)
        } else {
            until(rest, &[',']).map_or(rest.len(), |end| end + 1)
        };
        body = &rest[end.min(rest.len())..];
    }
    patterns
}

/// Where the `=>` of the next arm is.
fn arrow(code: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + until(&code[from..], &['='])?;
        if code[at..].starts_with("=>") {
            return Some(at);
        }
        from = at + 1;
    }
}

#[test]
fn the_second_rule_finds_what_it_shall_find() {
    let check = |source: &str, lines: &[usize]| assert_eq!(several(source), lines, "{source}");
    check("fn f() {\n    matches!(event, Event::Make { .. } | Event::Link { .. })\n}", &[2]);
    check("if let Op::Make { parent, .. } | Op::Unlink { parent, .. } = op { f() }", &[1]);
    check("let (Op::Make { .. } | Op::Unlink { .. }) = op else { return };", &[1]);
    check("if let (Some(_), Op::Link { .. } | Op::Unlink { .. }) = (a, op) {}", &[1]);
    check("matches!(call, Call::Op { op: Op::Unlink { .. } | Op::Rename { .. }, .. })", &[1]);
    check("if let Op::Make { parent, .. } = op { Op::Unlink { parent } }", &[]);
    check("matches!(op, Op::Make { .. }) || matches!(op, Op::Link { .. })", &[]);
    check("let (Event::Write { mode: a, .. }, Event::Write { mode, .. }) = both else { return };", &[]);
    check("let ops = [Op::Make { a }, Op::Link { b }];", &[]);
}

#[test]
fn the_rule_finds_what_it_shall_find() {
    let check = |source: &str, lines: &[usize]| assert_eq!(catch_alls(source), lines, "{source}");
    check("fn f() {\n    match event {\n        Event::Make { .. } => 1,\n        _ => 2,\n    }\n}", &[2]);
    check("match op { Op::Link { ino, .. } | Op::Reclaim { ino } => f(ino), other => g(other), }", &[1]);
    check(
        "match op {\n Op::Link { .. } if x == y => {\n f(a, b)\n }\n _ if z => 3,\n Op::Make { .. } => 4 }",
        &[1],
    );
    check("match (a, op) { (Some(_), Op::Link { .. }) => 1, (_, _) => 2 }", &[1]);
    check("match call { Call::Op { op: Op::Rename { .. }, .. } => 1, _ => 2 }", &[1]);
    check("let a = 1;\nmatch x { 1 => match op { Op::Link { .. } => 1, _ => 2 }, _ => 3 }", &[2]);
    // All are listed; a question about something else; words in texts; tests.
    check("match event { Event::Make { .. } => 1, Event::Swept { .. } => match n { 1 => 2, _ => 3 } }", &[]);
    check("match call { Call::Op { op, .. } => f(op), _ => Op::COUNTERS.len() }", &[]);
    check("match is_dir { true => 1, false if matches!(op, Op::Link { .. }) => 2, false => 3 }", &[]);
    check("match n { 1 => Event::NOTHING, _ => Event::Touch { ino, time } }", &[]);
    check(
        "// match op { Op::Link { .. } => 1, _ => 2 }\nlet s = \"match op { Op::Link => 1, _ => 2 }\";",
        &[],
    );
    check("#[cfg(test)]\nmod tests { fn f() { match op { Op::Link { .. } => 1, _ => 2 } } }", &[]);
}
