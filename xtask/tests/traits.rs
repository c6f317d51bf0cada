//! The seams of the client stay narrow: a trait that grows is parted by what its methods are about.

use std::fs;
use std::path::{Path, PathBuf};

/// Most methods of a trait: as many as a reader keeps in mind.
const METHODS_MAX: usize = 8;

/// The traits that a source file declares, each with the number of its methods.
fn traits(source: &str) -> Vec<(String, usize)> {
    let mut traits = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let declared = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        let Some(name) = declared.strip_prefix("trait ").filter(|_| line.ends_with('{')) else { continue };
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let methods = lines.by_ref().take_while(|line| *line != "}");
        traits.push((name.to_owned(), methods.filter(|line| line.starts_with("    fn ")).count()));
    }
    traits
}

fn sources(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, files);
        } else if entry.extension().is_some_and(|end| end == "rs") {
            files.push(entry);
        }
    }
}

#[test]
fn traits_of_the_client_have_at_most_eight_methods() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/client/src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let read = |file: &PathBuf| traits(&fs::read_to_string(file).expect("a source file is text"));
    let all: Vec<_> = files.iter().flat_map(read).collect();
    let methods = |wanted: &str| all.iter().find(|(name, _)| name == wanted).map_or(0, |(_, count)| *count);
    for name in ["Service", "Session", "Durability", "Connection"] {
        assert!(methods(name) > 3, "{name} was not read: {all:?}");
    }
    let wide: Vec<_> = all.iter().filter(|(_, count)| *count > METHODS_MAX).collect();
    assert!(wide.is_empty(), "part these by what their methods are about: {wide:?}");
}

#[test]
fn methods_of_a_trait_are_counted() {
    let source = "/// A seam.\npub trait A: B {\n    fn a(&self);\n\n    fn b(&self) {\n        fn c() {}\n    }\n}\n\n\
                  impl A for C {\n    fn a(&self) {}\n}\n\npub(crate) trait D {\n}\n";
    assert_eq!(traits(source), [("A".to_owned(), 2), ("D".to_owned(), 0)]);
}
