//! The same real jobs (`tests/jobs`) in a local directory, in a decoupled subtree, in a strong one and in a branch:
//! the resulting trees are equal, entry by entry.
//!
//! Differences between any two runs (paths in configuration files, git's index with its inode numbers, times that
//! no program sets) do not concern the file system. So the jobs run in two local directories, whose names have
//! different lengths, and a field that differs there is not compared. Times that the jobs set are those from before
//! they began; two others may be equal by chance. Size and link count of directories depend on the file system.
//!
//! A separate test process: it starts hundreds of programs, and each start briefly holds all open files of this
//! process. Beside the tests of `faults`, some of those would be on mounts whose server is gone.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

#[path = "../faults/rig.rs"]
#[allow(dead_code, reason = "the tests of faults use the rest")]
mod rig;
#[path = "../faults/seen.rs"]
#[allow(dead_code, reason = "the tests of faults use the rest")]
mod seen;
#[path = "../faults/two.rs"]
#[allow(dead_code, reason = "the tests of faults use the rest")]
mod two;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::rig::{Mounted, now};
use crate::seen::{Seen, assert_same, look};
use crate::two::{Two, done, mount_branch, mount_near, text};

type Tree = BTreeMap<PathBuf, Seen>;

/// Inode numbers, by path from the root.
fn inodes(root: &Path, tree: &BTreeMap<PathBuf, Seen>) -> BTreeMap<PathBuf, u64> {
    let number = |name: &PathBuf| fs::symlink_metadata(root.join(name)).expect("there").ino();
    tree.keys().map(|name| (name.clone(), number(name))).collect()
}

/// The directory of the scripts.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs")
}

/// Packs a part of this project: a real source tree.
fn archive(at: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let parts =
        ["crates/wire", "crates/policy", "crates/types", "crates/fuse", "examples", "docs", "README.md"];
    let status =
        Command::new("tar").arg("-C").arg(root).arg("-cf").arg(at).args(parts).status().expect("tar runs");
    assert!(status.success(), "{status}");
}

fn script(name: &str, dir: &Path, archive: &Path) {
    let start = now();
    let mut command = Command::new("sh");
    command.arg(scripts().join(name)).arg(dir).arg(archive).arg(scripts());
    let out = command.stdin(Stdio::null()).output().expect("sh runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{name} in {}: {}\n{said}", dir.display(), out.status);
    eprintln!("{name} in {}: {:?}", dir.display(), start.elapsed());
}

/// Compares a tree with those that the jobs left in both local directories, where these agree.
fn assert_as_locally(began: (i64, i64), [one, two]: &[Tree; 2], tree: &Tree, what: &str) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(one), names(two), "the jobs make the same names each time");
    assert_eq!(names(one), names(tree), "{what}");
    let (mut differences, mut compared, mut set) = (Vec::new(), 0, 0);
    for (name, found) in tree {
        let (one, two) = (&one[name], &two[name]);
        let mut field = |field: &str, agree: bool, same: bool, shown: String| {
            compared += usize::from(agree);
            if agree && !same {
                differences.push(format!("{}: {field}: {shown}", name.display()));
            }
        };
        macro_rules! compare {
            ($($name:ident),*) => {
                $(field(
                    stringify!($name),
                    one.$name == two.$name,
                    one.$name == found.$name,
                    format!("{:?}, locally {:?}", found.$name, one.$name),
                );)*
            };
        }
        compare!(mode, owner, size, links, same_as, xattrs);
        let times = format!("{:?}, locally {:?}", found.mtime, one.mtime);
        let is_set = one.mtime == two.mtime && one.mtime < began;
        set += usize::from(is_set);
        field("mtime", is_set, one.mtime == found.mtime, times);
        let lengths = format!("{} bytes, locally {}", found.content.len(), one.content.len());
        field("content", one.content == two.content, one.content == found.content, lengths);
    }
    assert!(differences.is_empty(), "{what} differs from a local directory:\n{}", differences.join("\n"));
    let all = tree.len();
    assert!(
        compared > 6 * all && set > all / 3,
        "most is compared: {compared} fields, {set} times of {all} entries"
    );
}

/// Checks that another mount shows exactly the same tree, inode numbers and times included.
fn assert_same_at(left: (&Path, &Tree), right: &Path) {
    let tree = look(right);
    assert_same(left.1, &tree);
    assert_eq!(inodes(left.0, left.1), inodes(right, &tree), "inode numbers");
}

fn merged(words: &[&str]) {
    let report: Value = serde_json::from_str(&done(words)).expect("JSON");
    assert_eq!(
        (&report["ended"], &report["conflict_count"], &report["lost_count"]),
        (&true.into(), &0.into(), &0.into()),
        "{report}"
    );
}

/// S60, S63, S70, and POSIX.
#[test]
fn real_jobs_leave_the_same_tree_as_locally() {
    let Some(mut two) = Two::new() else { return };
    let packed = two.scratch.path("source.tar");
    archive(&packed);
    let began = fs::metadata(&packed).map(|meta| (meta.mtime(), meta.mtime_nsec())).expect("a time");
    let local = [two.scratch.path("local"), two.scratch.path("another-local")];
    let near = |name: &str| two.near.path(name);
    let (batchfs, posix, tree) = (near("batchfs"), near("posix"), near("tree"));
    for dir in local.iter().chain([&batchfs, &posix, &tree]) {
        fs::create_dir(dir).expect("a directory");
        script("old.sh", dir, &packed);
    }
    done(&["policy", "set", text(&batchfs), "batchfs"]);
    done(&["policy", "set", text(&posix), "posix"]);
    let state = text(&two.scratch.path("branch-state")).to_owned();
    done(&["branch", "create", text(&tree), "work", "--state-dir", &state]);
    let before = look(&tree);
    let branch: Mounted = mount_branch(&two.scratch, &tree, "work");

    std::thread::scope(|scope| {
        for dir in local.iter().chain([&batchfs, &posix, &branch.dir]) {
            scope.spawn(|| script("job.sh", dir, &packed));
        }
    });
    let expected = [look(&local[0]), look(&local[1])];

    let here = look(&posix);
    assert_as_locally(began, &expected, &here, "a strong subtree");
    assert_same_at((&posix, &here), &two.far.path("posix"));

    let here = look(&branch.dir);
    assert_as_locally(began, &expected, &here, "a branch");
    assert_same(&before, &look(&tree));
    let there = inodes(&branch.dir, &here);
    branch.unmount();
    merged(&["branch", "merge", "--json", text(&tree), "work"]);
    for tree in [tree, two.far.path("tree")] {
        let merged = look(&tree);
        assert_same(&here, &merged);
        assert_eq!(there, inodes(&tree, &merged), "inode numbers");
    }

    let here = look(&batchfs);
    assert_as_locally(began, &expected, &here, "a decoupled subtree");
    let there = inodes(&batchfs, &here);
    fs::File::open(&batchfs).and_then(|dir| dir.sync_all()).expect("an fsync");
    two.near.process.kill();
    two.near = mount_near(&two.scratch, "again");
    let again = two.near.path("batchfs");
    let recovered = look(&again);
    assert_same(&here, &recovered);
    assert_eq!(there, inodes(&again, &recovered), "inode numbers");
    merged(&["merge", "--json", text(&again)]);
    assert_same_at((&again, &recovered), &two.far.path("batchfs"));
    assert_same_at((&again, &recovered), &again);
}
