//! Unmerged journals in `chiton view`: of working mounts, of dead mounts, of branches.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use crate::rig::{Mounted, Scratch, is_root, serve};
use crate::seen::{assert_same, look, plant};
use crate::two::{Two, done, errno, libc_busy, mount_branch, mount_near, refused, run, text};

/// The output of `chiton view --json`, which must end with this code.
fn view(args: &[&str], code: i32) -> Value {
    let out = run(&[&["view", "--json"], args].concat());
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "chiton view {args:?}: {said}");
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// The origin of a path.
fn from<'a>(view: &'a Value, path: &str) -> &'a str {
    let entries = view["entries"].as_array().expect("a list");
    let entry = entries.iter().find(|entry| entry["path"] == path);
    entry.unwrap_or_else(|| panic!("no {path} in {view}"))["from"].as_str().expect("text")
}

fn conflicts(view: &Value) -> Vec<String> {
    let all = view["conflicts"].as_array().expect("a list").iter();
    let word = |one: &Value, key: &str| one[key].as_str().expect("text").to_owned();
    let line =
        |one: &Value| ["path", "against", "theirs", "journal", "ours"].map(|key| word(one, key)).join(", ");
    all.map(line).collect()
}

/// The name of an entry of a directory, and nothing else there.
fn only_entry(dir: &Path) -> PathBuf {
    let mut all = fs::read_dir(dir).expect("a listing").map(|entry| entry.expect("an entry").path());
    let one = all.next().expect("one");
    assert_eq!(all.next(), None);
    one
}

/// S73, S74: it is seen without being merged, and the job does not notice.
#[test]
fn a_deltafs_subtree_is_viewed_while_its_job_works() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("deltafs");
    fs::write(near.join("before"), "").expect("a write");
    plant(&near);
    let to = |name: &str| two.scratch.path(name);
    // From the mount that has it: it is asked to write out its buffers.
    done(&["view", text(&near), "--to", text(&to("first"))]);
    assert_same(&look(&near), &look(&to("first")));
    // By one that may not even look.
    assert_eq!(errno(fs::metadata(&far)), Some(libc_busy()));
    done(&["view", text(&far), "--to", text(&to("second"))]);
    assert_same(&look(&near), &look(&to("second")));
    let before = two.decouplings();
    let number = before[0]["realm"].to_string();
    let below = view(&[text(&near.join("dir/deep"))], 0);
    assert_eq!(below["entries"].as_array().expect("a list").len(), 302, "{below}");
    assert_eq!((from(&below, "small7"), &below["conflict_count"]), (&*number, &0.into()));
    let listed = done(&["view", text(&two.near.dir)]);
    assert!(listed.contains(&format!("{number:<12} job/dangling -> nowhere")), "{listed}");
    assert!(listed.contains(&format!("{:<12} job\n", "global")), "{listed}");

    // While it works.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                fs::write(near.join(format!("made{count:06}")), "made").expect("a write");
                count += 1;
            }
            count
        });
        for n in 0..5 {
            let seen = view(&[text(&near)], 0);
            let entries = seen["entries"].as_array().expect("a list");
            let made = entries.iter().filter(|e| e["path"].as_str().is_some_and(|p| p.starts_with("made")));
            // A prefix of the created files.
            for (at, entry) in made.enumerate() {
                assert_eq!(entry["path"], format!("made{at:06}"), "look {n}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(job.join().expect("the job goes on") > 0);
    });
    // Nothing is different.
    let reported =
        |all: &[Value]| (all[0]["generation"].clone(), all[0]["owner"].clone(), all[0]["merged"].clone());
    assert_eq!(reported(&two.decouplings()), reported(&before));
    assert_eq!(errno(fs::metadata(&far)), Some(libc_busy()));
    let expected = look(&near);
    done(&["merge", text(&near)]);
    assert_same(&expected, &look(&far));
    // Nothing is left to merge into it.
    let merged = view(&[text(&far)], 0);
    assert_eq!((&merged["journals"], from(&merged, "before")), (&Value::Array(Vec::new()), "global"));
    refused(&["view", text(&near), "--to", text(&to("first"))], 1, "is not empty");
    refused(&["view", text(&near.join("before"))], 1, "is no directory");
    refused(&["view", text(&near.join("nothing"))], 4, "nothing");
    refused(&["view", text(&to("first"))], 4, "not in a mount");
}

/// S73, S74: the journal of a dead mount, by any name.
#[test]
fn a_view_shows_the_journal_of_a_killed_mount() {
    let Some(mut two) = Two::new() else { return };
    let (near, far) = two.job("deltafs");
    plant(&near);
    fs::rename(near.join("dir/deep"), near.join("deep")).expect("a rename");
    File::open(&near).and_then(|dir| dir.sync_all()).expect("an fsync");
    let expected = look(&near);
    let number = two.decouplings()[0]["realm"].to_string();
    two.near.process.kill();
    let state = only_entry(&two.scratch.path("state"));
    let files = |dir: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        let read = |path: PathBuf| {
            if path.is_dir() { vec![] } else { vec![(path.clone(), fs::read(path).expect("read"))] }
        };
        let mut all: Vec<_> =
            fs::read_dir(dir).expect("listed").map(|e| e.expect("an entry").path()).collect();
        all.extend(fs::read_dir(dir.join("journal")).expect("listed").map(|e| e.expect("an entry").path()));
        all.sort();
        all.into_iter().flat_map(read).collect()
    };
    let left = files(&state);
    // A copy, as it would be brought from another machine.
    let copy = two.scratch.path("copy");
    let status = std::process::Command::new("cp").arg("-a").arg(&state).arg(&copy).status();
    assert!(status.expect("cp runs").success());
    let data = text(&two.scratch.data()).to_owned();
    for (n, args) in [
        vec![text(&far)],
        vec![text(&far), "--journal", &number],
        vec![text(&far), "--journal", text(&state)],
        vec![text(&far), "--journal", text(&copy)],
        vec!["/job", "--data", &data, "--state-dir", text(&two.scratch.path("state"))],
    ]
    .into_iter()
    .enumerate()
    {
        let to = two.scratch.path(&format!("to{n}"));
        done(&[&["view", "--to", text(&to)], &args[..]].concat());
        assert_same(&expected, &look(&to));
    }
    assert_eq!(files(&state), left, "who looks changes nothing");
    refused(&["view", text(&far), "--journal", "77"], 4, "no decoupling 77");
    refused(&["view", text(&far), "--journal", "nobody"], 4, "no branch nobody");
    refused(&["view", text(&far), "--journal", &number, "--journal", text(&state)], 1, "named twice");
    refused(
        &["view", text(&far), "--journal", text(&two.scratch.data())],
        4,
        "not the directory of a decoupling",
    );
    fs::create_dir(two.far.path("other")).expect("a directory");
    refused(&["view", text(&two.far.path("other")), "--journal", &number], 1, "neither in nor around");

    // Damaged, it is named.
    let segment =
        fs::read_dir(copy.join("journal")).expect("listed").map(|e| e.expect("an entry").path()).min();
    let segment = segment.expect("a segment");
    let mut bytes = fs::read(&segment).expect("read");
    bytes[100] ^= 1;
    fs::write(&segment, &bytes).expect("written");
    refused(&["view", text(&far), "--journal", text(&copy)], 1, text(&copy));
    fs::rename(&state, two.scratch.path("moved")).expect("moved");
    refused(&["view", text(&far)], 4, "--state-dir");
    fs::rename(two.scratch.path("moved"), &state).expect("moved back");

    two.near = mount_near(&two.scratch, "again");
    assert_same(&expected, &look(&two.near.path("job")));
    done(&["merge", text(&two.near.path("job"))]);
    assert_same(&expected, &look(&far));
}

/// S73, S74: branches, mounted and not, with a journal on the disk and in the object store.
#[test]
fn branches_are_viewed_together_as_their_merges_would_make_the_tree() {
    let Some(two) = Two::new() else { return };
    let tree = two.near.path("tree");
    fs::create_dir(&tree).expect("a directory");
    plant(&tree);
    let policy = two.scratch.path("anywhere.yml");
    fs::write(&policy, "consistency: invisible\ndurability: global\n").expect("a write");
    let state = text(&two.scratch.path("branches")).to_owned();
    done(&["branch", "create", text(&tree), "one", "--state-dir", &state]);
    done(&["branch", "create", text(&tree), "two", "--state-dir", &state, "--policy", text(&policy)]);
    done(&["branch", "create", text(&tree), "idle", "--state-dir", &state]);
    let (one, other) = (mount_branch(&two.scratch, &tree, "one"), mount_branch(&two.scratch, &tree, "two"));
    for (at, who) in [(&one.dir, "one"), (&other.dir, "two")] {
        fs::write(at.join("dir/file1"), format!("by {who}")).expect("a write");
        fs::write(at.join(format!("large by {who}")), vec![who.as_bytes()[0]; 200_000]).expect("a write");
        fs::hard_link(at.join("dir/file3"), at.join(format!("link by {who}"))).expect("a link");
        fs::create_dir_all(at.join("shared/deep")).expect("folders");
        fs::write(at.join(format!("shared/deep/{who}")), who).expect("a write");
    }
    fs::remove_file(one.path("dir/file4")).expect("a removal");
    fs::write(two.far.path("tree/dir/file4"), "global").expect("a write");
    File::open(&two.far.dir).and_then(|dir| dir.sync_all()).expect("an fsync");
    other.unmount();

    let was = look(&tree);
    let seen = view(&[text(&tree), "--journal", "one", "--journal", "two"], 5);
    let mut reported = conflicts(&seen);
    reported.sort();
    assert_eq!(
        reported,
        ["dir/file1, one, changed, two, changed", "dir/file4, global, changed, one, removed"]
    );
    for (path, expect) in [
        ("dir/file1", "two"),
        ("dir/file2", "global"),
        ("large by one", "one"),
        ("link by two", "two"),
        ("shared/deep/one", "one"),
        ("shared/deep/two", "two"),
        ("shared", "one"),
    ] {
        assert_eq!(from(&seen, path), expect, "{path}");
    }
    let to = two.scratch.path("to");
    let out = run(&["view", text(&tree), "--journal", "one", "--journal", "two", "--to", text(&to)]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.code() == Some(5) && said.contains("2 conflicts") && said.contains("written to"),
        "{said}"
    );
    let expected = look(&to);
    assert_eq!(expected[Path::new("dir/file1")].content, b"by two");
    // All, in the order of their numbers; a journal that no client has opened adds nothing.
    let all = view(&[text(&tree)], 5);
    assert_eq!((&all["entries"], &all["conflicts"]), (&seen["entries"], &seen["conflicts"]));
    assert_eq!(all["journals"].as_array().expect("a list").len(), 3);
    // In the other order the other prevails.
    let other_order = view(&[text(&tree), "--journal", "two", "--journal", "one"], 5);
    assert_eq!(from(&other_order, "dir/file1"), "one");
    refused(&["view", text(&one.dir)], 1, "mount of a branch");
    assert_same(&was, &look(&tree));
    done(&["branch", "merge", text(&tree), "one"]);
    done(&["branch", "merge", text(&tree), "two", "--state-dir", &state]);
    assert_same(&expected, &look(&tree));
}

/// A journal in a mount's memory, and stores without a server.
#[test]
fn a_journal_in_memory_is_asked_for_and_one_of_an_unserved_file_system_is_read() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mut server = serve(&scratch, &[]);
    let near = mount_near(&scratch, "near");
    let far = Mounted::beside(&scratch, "far", &[]);
    let (fleeting, kept) = (near.path("fleeting"), near.path("kept"));
    let policy = scratch.path("fleeting.yml");
    fs::write(&policy, "consistency: invisible\ndurability: none\n").expect("a write");
    for (job, policy) in [(&fleeting, text(&policy)), (&kept, "deltafs")] {
        fs::create_dir(job).expect("a directory");
        done(&["policy", "set", text(job), policy]);
        plant(job);
    }
    let expected = look(&kept);
    let (all, to) = (scratch.path("all"), scratch.path("to"));
    done(&["view", text(&near.dir), "--to", text(&all)]);
    assert_same(&look(&fleeting), &look(&all.join("fleeting")));
    assert_same(&expected, &look(&all.join("kept")));
    refused(&["view", text(&far.path("fleeting"))], 1, "durability: none");
    far.unmount();
    near.unmount();
    server.signal(Signal::TERM);
    assert!(server.ended().success(), "{}", server.said());

    let (data, state) = (text(&scratch.data()).to_owned(), text(&scratch.path("state")).to_owned());
    let stores = || {
        let list = |dir: &str| {
            let mut all: Vec<_> = fs::read_dir(scratch.data().join(dir))
                .expect("listed")
                .map(|entry| entry.expect("an entry").path())
                .map(|path| (fs::metadata(&path).expect("there").len(), path))
                .collect();
            all.sort();
            all
        };
        list("journal")
    };
    let before = stores();
    for _ in 0..2 {
        done(&["view", "--data", &data, "--state-dir", &state, "/kept", "--to", text(&to)]);
        assert_same(&expected, &look(&to));
        fs::remove_dir_all(&to).expect("removed");
    }
    assert_eq!(stores(), before);
    refused(&["view", "--data", &data, "kept"], 1, "begins with /");
    refused(&["view", "--data", &data, "/nothing"], 4, "nothing");
    // It still exists for a merge.
    let _server = serve(&scratch, &[]);
    let near = mount_near(&scratch, "near");
    assert_same(&expected, &look(&near.path("kept")));
    done(&["merge", text(&near.path("kept"))]);
}
