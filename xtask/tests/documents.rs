//! Rules for the documents: they name files that exist, and cite only documents of this repository. Tests that quote
//! a promise quote its present words.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository").to_owned()
}

/// All files of the repository as `crates/cli/src/main.rs`, without hidden and built ones.
fn files() -> BTreeSet<String> {
    fn walk(dir: &Path, root: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).expect("a readable folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if entry.file_type().expect("a type").is_dir() {
                walk(&entry.path(), root, found);
            } else {
                let path = entry.path();
                found.insert(path.strip_prefix(root).expect("below it").to_string_lossy().into_owned());
            }
        }
    }
    let (root, mut found) = (root(), BTreeSet::new());
    walk(&root, &root, &mut found);
    found
}

/// The documents: path and text.
fn documents(files: &BTreeSet<String>) -> Vec<(String, String)> {
    let is_document = |path: &&String| {
        path.ends_with(".md")
            && (!path.contains('/') || path.starts_with("docs/") || path.starts_with("spec/"))
    };
    let read = |path: &String| (path.clone(), fs::read_to_string(root().join(path)).expect("text"));
    files.iter().filter(is_document).map(read).collect()
}

/// The texts between backticks, on one line each.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Targets of links to files of the repository, without anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains(':') && !target.contains(char::is_whitespace))
}

/// Whether a code span names a file or folder of the repository: Rust files, and paths with the folder `src`, which
/// may lack their beginning (`journal/src/writer.rs`, `engine/leases.rs`). NAME is a placeholder.
fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    span.chars().all(plain)
        && !span.starts_with(['/', '.'])
        && !span.contains("NAME")
        && (span.ends_with(".rs") || span.contains("/src/") || span.starts_with("docs/"))
}

/// Whether a file has this path or ends in it, or lies in a folder whose path ends in it.
fn exists(files: &BTreeSet<String>, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    files.iter().any(|file| {
        let file = format!("/{file}");
        file.ends_with(&format!("/{path}")) || file.contains(&format!("/{path}/"))
    })
}

#[test]
fn documents_name_files_that_exist() {
    let files = files();
    let mut missing = Vec::new();
    for (document, text) in documents(&files) {
        for span in code_spans(&text).filter(|span| is_path(span)) {
            if !exists(&files, span) {
                missing.push(format!("{document}: `{span}`"));
            }
        }
        let folder = root().join(&document).parent().expect("a folder").to_owned();
        for target in links(&text).filter(|target| !folder.join(target).exists()) {
            missing.push(format!("{document}: ({target})"));
        }
    }
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
}

#[test]
fn documents_cite_only_this_repository() {
    for (document, text) in documents(&files()) {
        // CHANGELOG and others may use the word; "DESIGN 4" and "DESIGN.md" are another document's.
        let cites = |rest: &str| {
            rest.starts_with(".md") || rest.trim_start().starts_with(|c: char| c.is_ascii_digit())
        };
        let is_foreign = text.split("DESIGN").skip(1).any(cites);
        assert!(!is_foreign, "{document} cites a section of DESIGN, which is not in the repository");
    }
}

/// `words` without line breaks and repeated spaces.
fn flat(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The quotations of promises in the comments of a file: `S12: "words …"`.
fn quotations(text: &str) -> Vec<String> {
    let comments = text.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
    let text = flat(&comments.map(|line| line.trim_start_matches('/')).collect::<Vec<_>>().join(" "));
    let mut found = Vec::new();
    for (at, _) in text.match_indices(": \"") {
        let number = text[..at].rsplit([' ', '(']).next().unwrap_or_default();
        let is_promise =
            number.strip_prefix('S').is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
        if is_promise {
            found.push(text[at + 3..].split('"').next().unwrap_or_default().to_owned());
        }
    }
    found
}

#[test]
fn tests_quote_the_present_promises() {
    let files = files();
    let semantics = flat(&fs::read_to_string(root().join("docs/semantics.md")).expect("the promises"));
    let (mut quoted, mut stale) = (0, Vec::new());
    for file in files.iter().filter(|file| file.ends_with(".rs") && !file.starts_with("xtask/")) {
        let text = fs::read_to_string(root().join(file)).expect("text");
        for quotation in quotations(&text) {
            quoted += 1;
            // An ellipsis leaves words out.
            if !quotation.split('…').all(|part| semantics.contains(part.trim())) {
                stale.push(format!("{file}: {quotation:?}"));
            }
        }
    }
    assert!(quoted > 20, "only {quoted} quotations were found");
    assert!(stale.is_empty(), "not in docs/semantics.md:\n{}", stale.join("\n"));
}

#[test]
fn paths_links_and_quotations_are_recognised() {
    let text =
        "`journal/src/writer.rs` and `chiton df`, `wire/src/encode/`, [a](docs/a.md#b), [w](https://x.org)";
    let spans: Vec<_> = code_spans(text).filter(|span| is_path(span)).collect();
    assert_eq!(spans, ["journal/src/writer.rs", "wire/src/encode/"]);
    assert_eq!(links(text).collect::<Vec<_>>(), ["docs/a.md"]);
    let files = BTreeSet::from(["crates/journal/src/writer.rs".to_owned()]);
    assert!(exists(&files, "journal/src/writer.rs") && exists(&files, "journal/src/"));
    assert!(!exists(&files, "riter.rs") && !exists(&files, "wire/src/encode/"));
    assert_eq!(quotations("/// S5: \"Commands …\n    /// wait\"\nfn f() {}"), ["Commands … wait"]);
}
