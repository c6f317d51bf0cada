//! No `_ =>` over operations or events outside their table: a new one would fall into it unseen.
//!
//! The rule: in a `match` of which any arm's pattern names a variant of `Op` or `Event`, no arm may take all the rest, be it
//! by `_` or by a bare name. Such a match either lists every variant, so that the compiler asks about a new one, or it is no
//! match: a question about one variant is an `if let`, `let … else` or `matches!`, and a question about inodes and names is one
//! for the footprint.

use std::fs;
use std::path::{Path, PathBuf};

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

/// `Op::Make`, but not `Call::Op` or `Op::COUNTERS`.
fn names_variant(pattern: &str, of: &str) -> bool {
    let pattern = pattern.split(" if ").next().unwrap_or_default();
    let path = format!("{of}::");
    pattern.match_indices(&path).any(|(at, _)| {
        let before = pattern[..at].chars().next_back();
        let mut after = pattern[at + path.len()..].chars();
        before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
            && after.next().is_some_and(char::is_uppercase)
            && after.next().is_some_and(char::is_lowercase)
    })
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

/// What stands between the braces of a match.
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
