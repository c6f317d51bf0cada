//! Small runs of every load on a real file system: the counts are right, and nothing stays behind.

use std::fs;
use std::path::Path;

use chiton_bench::hierarchy::{self, Hierarchy};
use chiton_bench::mdtest::{
    DIRECTORY_CREATION, DIRECTORY_REMOVAL, DIRECTORY_STAT, FILE_CREATION, FILE_READ, FILE_REMOVAL, FILE_STAT,
    Mdtest, Parts, TREE_CREATION, TREE_REMOVAL,
};
use chiton_bench::metarates::Metarates;
use chiton_bench::tasks::{self, Load, Phase, Place};

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("a directory").next().is_none()
}

/// Runs a load by processes; the number of operations of each phase.
fn ops(dir: &Path, load: &Load, tasks: usize) -> Vec<(&'static str, u64)> {
    let program = Path::new(env!("CARGO_BIN_EXE_mdtest"));
    let phases = tasks::run(load, Place::Directory { dir, program }, tasks).expect("a run");
    assert!(phases.iter().all(|phase: &Phase| phase.seconds > 0.0), "{phases:?}");
    phases.iter().map(|phase| (phase.name, phase.ops)).collect()
}

#[test]
fn mdtest_counts_its_operations() {
    let scratch = scratch();
    for (tasks, unique_dirs, trees) in [(1, true, 1), (3, true, 3), (3, false, 1)] {
        let all = Mdtest {
            directories: true,
            depth: 2,
            branch: 2,
            unique_dirs,
            write_bytes: 5_000,
            read_bytes: 5_000,
            stride: 1,
            parts: Parts::ALL,
            ..Mdtest::files(50)
        };
        let items = 50 * tasks as u64;
        let expect = [
            (TREE_CREATION, 7 * trees),
            (DIRECTORY_CREATION, items),
            (DIRECTORY_STAT, items),
            (DIRECTORY_REMOVAL, items),
            (FILE_CREATION, items),
            (FILE_STAT, items),
            (FILE_READ, items),
            (FILE_REMOVAL, items),
            (TREE_REMOVAL, 7 * trees),
        ];
        assert_eq!(ops(scratch.path(), &Load::Mdtest(all), tasks), expect);
        assert!(is_empty(scratch.path()));
    }
}

#[test]
fn mdtest_s_phases_can_run_one_by_one() {
    let scratch = scratch();
    let none = Parts { create: false, stat: false, read: false, remove: false };
    for leaf_only in [true, false] {
        let load = Mdtest { depth: 1, branch: 3, leaf_only, batch: 4, ..Mdtest::files(10) };
        let only = |parts| ops(scratch.path(), &Load::Mdtest(Mdtest { parts, ..load.clone() }), 2);
        assert_eq!(only(Parts { create: true, ..none }), [(TREE_CREATION, 4), (FILE_CREATION, 20)]);
        let root = scratch.path().join("test-dir.0-0/mdtest_tree.0");
        let leaf = root.join("mdtest_tree.0.1");
        assert_eq!(
            (root.join("file.mdtest.0.0").exists(), leaf.join("file.mdtest.0.0").exists()),
            (!leaf_only, leaf_only)
        );
        assert_eq!(only(Parts { stat: true, ..none }), [(FILE_STAT, 20)]);
        assert_eq!(only(Parts { remove: true, ..none }), [(FILE_REMOVAL, 20), (TREE_REMOVAL, 4)]);
        assert!(is_empty(scratch.path()));
    }
}

#[test]
fn mdtest_names_the_reason_when_it_fails() {
    let scratch = scratch();
    let load = Load::Mdtest(Mdtest { parts: Parts { create: false, ..Parts::ALL }, ..Mdtest::files(1) });
    let run = |program| {
        let place = Place::Directory { dir: scratch.path(), program: Path::new(program) };
        tasks::run(&load, place, 2).expect_err("it fails").to_string()
    };
    let error = run(env!("CARGO_BIN_EXE_mdtest"));
    assert!(error.starts_with("File stat: test-dir.0-0/mdtest_tree.0/file.mdtest."), "{error}");
    assert!(error.contains("No such file"), "{error}");
    let error = run("/bin/true");
    assert!(error.contains("child_main_if_requested"), "{error}");
}

#[test]
fn metarates_counts_its_operations() {
    let scratch = scratch();
    for (tasks, dirs, batch) in [(1, 1, 1), (3, 1, 1), (3, 2, 7), (3, 0, 1), (2, 0, 1_000)] {
        let load = Load::Metarates(Metarates { files: 100, dirs, stride: 1, batch, utime: true });
        let got = ops(scratch.path(), &load, tasks);
        let rated: Vec<_> = got.into_iter().filter(|(_, ops)| *ops > 0).collect();
        assert_eq!(rated, ["Create-close", "Stat", "Utime", "Removal"].map(|name| (name, 100)));
        assert!(is_empty(scratch.path()));
    }
}

#[test]
fn hierarchies_are_made_traversed_and_removed() {
    let scratch = scratch();
    let load = Load::Hierarchy(Hierarchy { files: 50 });
    let expect = [hierarchy::CREATION, hierarchy::TRAVERSAL, hierarchy::REMOVAL].map(|name| (name, 2 * 64));
    assert_eq!(ops(scratch.path(), &load, 2), expect);
    assert!(is_empty(scratch.path()));
}
