//! Other clients in a decoupled subtree, and the outcome when both sides changed it: through two mounts.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::seen::{assert_same, look};
use crate::two::{Two, done, errno, libc_busy, refused, run, text};

impl Two {
    /// A directory with a few files and a policy of one's own, which the near mount has decoupled.
    fn decoupled(&self, policy: &str) -> (PathBuf, PathBuf) {
        let (near, far) = (self.near.path("job"), self.far.path("job"));
        fs::create_dir_all(near.join("dir")).expect("directories");
        for name in ["kept", "both", "ours", "theirs", "gone", "dir/in"] {
            fs::write(near.join(name), format!("before: {name}")).expect("a write");
        }
        let file = self.scratch.path("policy.yml");
        fs::write(&file, policy).expect("a write");
        done(&["decouple", text(&near), "--policy", text(&file)]);
        (near, far)
    }
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(&[args, &["--json"]].concat())).expect("JSON")
}

fn busy<T: std::fmt::Debug>(result: std::io::Result<T>, what: &str) {
    assert_eq!(errno(result), Some(libc_busy()), "{what}");
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a listing").map(|e| e.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("text")).collect();
    names.sort();
    names
}

/// All kinds of changes.
fn every_change(dir: &Path) -> Vec<(&'static str, std::io::Result<()>)> {
    let file = dir.join("kept");
    let attribute = |flags| rustix::fs::setxattr(&file, "user.a", b"x", flags).map_err(Into::into);
    vec![
        ("create", File::create_new(dir.join("new")).map(drop)),
        ("mkdir", fs::create_dir(dir.join("newdir"))),
        ("symlink", symlink("x", dir.join("newlink"))),
        ("link", fs::hard_link(&file, dir.join("another"))),
        ("rename", fs::rename(&file, dir.join("moved"))),
        ("unlink", fs::remove_file(dir.join("gone"))),
        ("rmdir", fs::remove_dir(dir.join("dir"))),
        ("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o600))),
        ("truncate", File::options().write(true).open(&file).and_then(|f| f.set_len(1))),
        ("append", File::options().append(true).open(&file).and_then(|mut f| f.write_all(b"x"))),
        ("setxattr", attribute(rustix::fs::XattrFlags::empty())),
        ("below", fs::write(dir.join("dir/in"), "x")),
    ]
}

/// S59: "`block`: EBUSY for every request from the root of the subtree down, lookups of its name included …"
#[test]
fn block_excludes_all_others_from_the_root_down() {
    let Some(two) = Two::new() else { return };
    let far = two.far.path("job");
    fs::create_dir(two.near.path("job")).expect("a directory");
    fs::write(two.near.path("job/early"), "early").expect("a write");
    let early = File::open(far.join("early")).expect("an open");
    let (near, far) = two.decoupled("consistency: weak\ndurability: local\ninterfere_policy: block\n");
    let before = look(&near);
    busy(fs::metadata(&far), "stat");
    busy(fs::read_dir(&far).map(drop), "a listing");
    busy(fs::read(far.join("kept")), "a read");
    busy(fs::metadata(far.join("nothing")), "a name that is not there");
    for (what, result) in every_change(&far) {
        busy(result, what);
    }
    busy(fs::rename(&far, two.far.path("elsewhere")), "the root is moved");
    busy(fs::remove_dir(&far), "the root is removed");
    busy(early.read_at(&mut [0; 5], 0), "what was open before");
    // The name is in its parent's listing, and its neighbours are shared.
    assert_eq!(names(&two.far.dir), ["job"]);
    fs::write(two.far.path("beside"), "beside").expect("a write");
    assert_same(&before, &look(&near));
    let report = json(&["merge", text(&near)]);
    assert_eq!(report["conflict_count"], 0, "{report}");
    assert_same(&before, &look(&far));
    let mut content = [0; 5];
    early.read_exact_at(&mut content, 0).expect("it goes on");
    assert_eq!(&content, b"early");
}

/// S59: "`block_writes`: they see the state in which the subtree was decoupled or last merged, and may not change it (EBUSY)."
#[test]
fn block_writes_shows_others_the_last_merged_state() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.decoupled("consistency: weak\ndurability: local\ninterfere_policy: block_writes\n");
    let before = look(&near);
    fs::write(near.join("ours"), "by us").expect("a write");
    fs::write(near.join("new"), "new").expect("a write");
    fs::remove_file(near.join("gone")).expect("a removal");
    assert_same(&before, &look(&far));
    for (what, result) in every_change(&far) {
        busy(result, what);
    }
    assert_same(&before, &look(&far));

    // A dry run reports the effects of a merge, and does not merge.
    let planned = json(&["merge", "--dry-run", text(&near)]);
    assert_eq!(planned, json(&["diff", text(&near)]));
    let changes: Vec<(&str, &str)> = planned["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|c| (c["path"].as_str().expect("a path"), c["kind"].as_str().expect("a kind")))
        .collect();
    assert_eq!(changes, [("gone", "removed"), ("new", "created"), ("ours", "written")]);
    assert_eq!(planned["conflicts"], Value::Array(Vec::new()));
    assert_same(&before, &look(&far));

    // The job continues after a sync, and others see the state of the sync.
    let mut job = File::create(near.join("log")).expect("a file");
    job.write_all(b"one\n").expect("a write");
    let report = json(&["sync", text(&near)]);
    assert_eq!((&report["ended"], &report["conflict_count"]), (&false.into(), &0.into()), "{report}");
    assert_eq!(json(&["diff", text(&near)])["changes"], Value::Array(Vec::new()));
    assert_eq!(fs::read(far.join("log")).expect("merged"), b"one\n");
    assert_eq!(fs::read(far.join("ours")).expect("merged"), b"by us");
    assert!(!far.join("gone").exists() && far.join("new").exists());
    job.write_all(b"two\n").expect("the job goes on");
    // Of one file nothing is merged, nor of the rest.
    refused(&["sync", text(&near.join("log"))], 1, "a part of a decoupled subtree");
    assert_eq!(fs::read(far.join("log")).expect("not merged"), b"one\n");
    busy(fs::write(far.join("log"), "x"), "a write");
    drop(job);
    let here = look(&near);
    done(&["merge", text(&near)]);
    assert_same(&here, &look(&far));
    assert_eq!(fs::read(far.join("log")).expect("merged"), b"one\ntwo\n");
    fs::write(far.join("log"), "everybody's").expect("a write");
}

/// Both sides change the same files.
fn contradict(near: &Path, far: &Path) {
    fs::write(near.join("both"), "by us").expect("a write");
    fs::write(near.join("ours"), "by us").expect("a write");
    fs::write(near.join("made"), "by us").expect("a write");
    fs::remove_file(near.join("gone")).expect("a removal");
    fs::write(near.join("dir/in"), "by us").expect("a write");
    fs::create_dir_all(near.join("same/deep")).expect("directories");
    fs::write(far.join("both"), "by them").expect("a write");
    fs::write(far.join("theirs"), "by them").expect("a write");
    fs::write(far.join("made"), "by them").expect("a write");
    fs::write(far.join("gone"), "by them").expect("a write");
    fs::remove_file(far.join("dir/in")).expect("a removal");
    fs::create_dir_all(far.join("same/deep")).expect("directories");
    // Each side's view.
    assert_eq!(fs::read(near.join("theirs")).expect("a read"), b"before: theirs");
    assert_eq!(fs::read(far.join("ours")).expect("a read"), b"before: ours");
}

/// path, base, ours, theirs, outcome
fn lines(report: &Value) -> Vec<[String; 5]> {
    let word = |line: &Value, key: &str| line[key].as_str().expect("text").to_owned();
    let mut lines: Vec<[String; 5]> = report["conflicts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| ["path", "base", "ours", "theirs", "resolution"].map(|key| word(line, key)))
        .collect();
    lines.sort();
    lines
}

fn policy(on_conflict: &str) -> String {
    format!("consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: {on_conflict}\n")
}

#[test]
fn overwrite_lets_ours_prevail_and_reports_conflicts() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.decoupled(&policy("overwrite"));
    contradict(&near, &far);
    let diff = json(&["diff", text(&near)]);
    let mut found: Vec<&str> =
        diff["conflicts"].as_array().expect("a list").iter().filter_map(|c| c["path"].as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, ["both", "dir/in", "gone", "made"], "{diff}");
    let report = json(&["merge", text(&near)]);
    assert_eq!(
        lines(&report),
        [
            ["both", "present", "changed", "changed", "ours prevails"],
            ["dir/in", "present", "changed", "removed", "brought back, with ours"],
            ["gone", "present", "removed", "changed", "ours prevails"],
            ["made", "absent", "new file", "new file", "ours prevails"],
        ],
        "{report}"
    );
    for (name, content) in
        [("both", "by us"), ("ours", "by us"), ("made", "by us"), ("dir/in", "by us"), ("theirs", "by them")]
    {
        assert_eq!(fs::read_to_string(far.join(name)).expect("there"), content, "{name}");
    }
    assert_eq!(names(&far), ["both", "dir", "kept", "made", "ours", "same", "theirs"]);
    assert_same(&look(&far), &look(&near));
}

#[test]
fn by_keep_both_nothing_of_others_is_lost() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.decoupled(&policy("keep_both"));
    contradict(&near, &far);
    let report = json(&["merge", text(&near)]);
    let lines = lines(&report);
    assert_eq!(lines.len(), 4, "{report}");
    for (name, content) in [
        ("both", "by us"),
        ("both.theirs", "by them"),
        ("made", "by us"),
        ("made.theirs", "by them"),
        ("gone", "by them"),
        ("dir/in", "by us"),
        ("theirs", "by them"),
        ("ours", "by us"),
    ] {
        assert_eq!(fs::read_to_string(far.join(name)).expect("there"), content, "{name}: {report}");
    }
    let aside: Vec<&str> = report["conflicts"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line["aside"].as_str())
        .collect();
    assert_eq!(aside.len(), 2, "{report}");
}

#[test]
fn abort_merges_nothing_until_the_user_decides() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.decoupled(&policy("abort"));
    contradict(&near, &far);
    let (here, there) = (look(&near), look(&far));
    for command in ["sync", "merge"] {
        let out = run(&[command, "--json", text(&near)]);
        assert_eq!(out.status.code(), Some(5), "{command}");
        let report: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!((&report["stopped"], &report["ended"]), (&true.into(), &false.into()), "{report}");
        let paths: Vec<String> = lines(&report).into_iter().map(|[path, ..]| path).collect();
        assert_eq!(paths, ["both", "dir/in", "gone", "made"], "{report}");
        assert!(lines(&report).iter().all(|line| line[4] == "not merged"));
        assert_same(&there, &look(&far));
        assert_same(&here, &look(&near));
    }
    refused(&["merge", text(&near)], 5, "stopped the merge");
    // Remove the conflicts, or choose a side for all.
    let report = json(&["merge", "--on-conflict", "overwrite", text(&near)]);
    assert_eq!((&report["ended"], &report["conflict_count"]), (&true.into(), &4.into()), "{report}");
    assert_eq!(fs::read(far.join("both")).expect("merged"), b"by us");
    assert_eq!(fs::metadata(far.join("made")).expect("merged").size(), 5);
}
