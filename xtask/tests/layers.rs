//! The layers: which crates a crate may link.
//!
//! Invariants:
//! - A crate links only crates that stand above it in the table of ARCHITECTURE.md.
//! - A client of a server elsewhere links no server, no store and no asynchronous runtime.
//! - The engine knows messages, and no socket that could carry them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that only a server needs: its own crates, its stores, and their dependencies.
const OF_SERVERS: [&str; 12] = [
    "chiton-engine",
    "chiton-server",
    "chiton-journal",
    "chiton-metastore",
    "chiton-s3",
    "fjall",
    "slatedb",
    "object_store",
    "reqwest",
    "hyper",
    "tokio",
    "comfy-table",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the workspace").to_owned()
}

/// Names of all packages that a package links, itself included.
fn linked(package: &str, options: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--package", package];
    let output =
        Command::new(cargo).args(args).args(options).current_dir(root()).output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree --package {package}: {said}");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

#[test]
fn a_client_links_no_server() {
    let linked = linked("chiton-client", &[]);
    assert!(linked.contains("chiton-wire"), "{linked:?}");
    let of_servers: Vec<_> = OF_SERVERS.into_iter().filter(|name| linked.contains(*name)).collect();
    assert!(of_servers.is_empty(), "chiton-client links {of_servers:?}; what needs them belongs above it");
}

#[test]
fn the_engine_links_no_socket() {
    let linked = linked("chiton-engine", &[]);
    assert!(linked.contains("chiton-wire"), "{linked:?}");
    for name in ["chiton-transport", "chiton-runtime", "rustix"] {
        assert!(!linked.contains(name), "chiton-engine links {name}");
    }
}

#[test]
fn only_commands_draw_tables() {
    for package in ["chiton-decoupled", "chiton-ffi", "chiton-fuse", "chiton-admin"] {
        assert!(!linked(package, &[]).contains("comfy-table"), "{package} links comfy-table");
    }
}

#[test]
fn libchiton_without_its_features_links_no_server() {
    let linked = linked("chiton-ffi", &["--no-default-features"]);
    let of_servers: Vec<_> = OF_SERVERS.into_iter().filter(|name| linked.contains(*name)).collect();
    assert!(linked.contains("chiton-client") && of_servers.is_empty(), "libchiton links {of_servers:?}");
    assert!(self::linked("chiton-ffi", &[]).contains("chiton-server"), "with its features it does");
}

/// The crates of ARCHITECTURE.md, in the order of its table.
fn listed() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = page.split("\n## Crates\n").nth(1).expect("a section of crates");
    let table = section.split("\n## ").next().expect("a first part");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

/// The crates of this workspace that each crate links, by its manifest.
fn direct() -> BTreeMap<String, BTreeSet<String>> {
    let mut direct = BTreeMap::new();
    for folder in std::fs::read_dir(root().join("crates")).expect("crates") {
        let folder = folder.expect("a folder");
        let manifest = std::fs::read_to_string(folder.path().join("Cargo.toml")).expect("a manifest");
        let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        let names = section.lines().filter_map(|line| line.strip_prefix("chiton-"));
        let names = names.map(|name| name.split(['.', ' ', '=']).next().unwrap_or_default().to_owned());
        direct.insert(folder.file_name().into_string().expect("UTF-8"), names.collect());
    }
    direct
}

#[test]
fn crates_link_only_crates_that_are_listed_above_them() {
    let listed = listed();
    let place = |name: &str| listed.iter().position(|listed| listed == name);
    for (name, links) in direct() {
        let at = place(&name).unwrap_or_else(|| panic!("ARCHITECTURE.md does not list crates/{name}"));
        for linked in links.iter().filter(|linked| *linked != "bench") {
            let above = place(linked).is_some_and(|other| other < at);
            assert!(above, "crates/{name} links {linked}, which ARCHITECTURE.md does not list above it");
        }
    }
}
