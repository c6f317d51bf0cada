//! Messages name one cause, the holder, and the next command.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::rig::chiton;
use crate::two::{Two, done, mount_branch, run, text, tree_at};

/// Runs a command that is refused with this exit code; its message contains all of these words.
fn says(args: &[&str], code: i32, words: &[&str]) {
    let out = run(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "chiton {args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "chiton {args:?} does not say {word:?}: {said}");
    }
}

const ALLOW: &str = "consistency: weak\ndurability: local\ninterfere_policy: allow\n";

#[test]
fn an_obstacle_to_a_decoupling_names_its_holder() {
    let Some(two) = Two::new() else { return };
    let policy = two.scratch.path("allow.yml");
    fs::write(&policy, ALLOW).expect("a policy");
    let policy = text(&policy).to_owned();
    fs::create_dir_all(two.near.path("top/job/sub")).expect("directories");
    fs::create_dir_all(two.near.path("other/ram")).expect("directories");
    done(&["policy", "set", text(&two.near.path("other/ram")), "ramdisk"]);
    done(&["decouple", text(&two.near.path("top/job")), "--policy", &policy]);
    let holder = format!("mount {}, process", two.near.dir.display());
    let decouple = |path: &str, words: &[&str]| {
        let path = two.far.path(path);
        let words: Vec<&str> = words.iter().copied().chain([holder.as_str(), "--id 1 --force"]).collect();
        says(&["decouple", text(&path), "--policy", &policy], 3, &words);
    };
    decouple("top/job", &["/top/job is already decoupled by"]);
    decouple("top/job/sub", &["/top/job, in which the directory lies, is decoupled by"]);
    decouple("top", &["/top/job, which lies in the directory, is decoupled by"]);
    let far = two.far.path("top");
    says(&["branch", "create", text(&far), "b"], 3, &["/top/job, which lies in the directory", &holder]);
    let far = two.far.path("other");
    let words = ["/other/ram, which lies in the directory, has a policy of its own", "chiton policy rm"];
    says(&["branch", "create", text(&far), "b"], 3, &words);
    let far = two.far.path("top/job/sub");
    let words = ["cannot set a policy on", "/top/job is decoupled by", &holder, "--id 1 --force"];
    says(&["policy", "set", text(&far), "ramdisk"], 3, &words);
    // Where others cannot even look.
    fs::create_dir(two.near.path("shut")).expect("a directory");
    done(&["decouple", text(&two.near.path("shut")), "--policy", "batchfs"]);
    says(&["branch", "create", text(&two.far.path("shut")), "b"], 3, &["/shut is decoupled by", &holder]);
}

#[test]
fn a_branch_in_use_names_its_mount_and_what_ends_the_use() {
    let Some(two) = Two::new() else { return };
    let tree = two.near.path("tree");
    tree_at(&tree);
    fs::create_dir(tree.join("sub")).expect("a directory");
    let dir = text(&tree);
    done(&["branch", "create", dir, "c1"]);
    let mounted = mount_branch(&two.scratch, &tree, "c1");
    let user = format!("branch c1 is in use by mount {}, process", mounted.dir.display());
    let says_not_there = |args: &[&str], words: &[&str]| {
        says(args, 3, words);
        let said = String::from_utf8_lossy(&run(args).stderr).into_owned();
        assert!(!said.contains("on a path in that mount"), "chiton {args:?}: {said}");
    };
    says_not_there(&["branch", "rebase", dir, "c1"], &[&user, "unmount it first (chiton umount)"]);
    says_not_there(
        &["branch", "delete", dir, "c1"],
        &[&user, "unmount it first (chiton umount), or use --force"],
    );
    let user = format!("has the branch c1, in use by mount {}, process", mounted.dir.display());
    says(&["branch", "create", text(&tree.join("sub")), "c2"], 3, &["in which the directory lies", &user]);
    mounted.unmount();
    done(&["branch", "delete", dir, "c1"]);
}

#[test]
fn a_file_that_is_to_be_decoupled_is_named() {
    let Some(two) = Two::new() else { return };
    let file = two.near.path("file");
    fs::write(&file, "content").expect("a write");
    let at = text(&file);
    let words = |doing: &str| format!("cannot {doing} {at}: it is not a directory; name a directory");
    says(&["decouple", at], 1, &[&words("decouple")]);
    says(&["run", "--path", at, "--", "true"], 1, &[&words("decouple")]);
    says(&["branch", "create", at, "b"], 1, &[&words("branch")]);
}

/// An address is no path, also where the command is run in a mount.
#[test]
fn an_address_is_one_inside_a_mount_too() {
    let Some(two) = Two::new() else { return };
    let address = format!("unix:{}", two.scratch.data().join("socket").display());
    for args in [&["status", &address][..], &["du", "--server", &address, "/"]] {
        let out = chiton().args(args).current_dir(&two.near.dir).output().expect("runs");
        assert!(out.status.success(), "chiton {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn a_bad_policy_is_refused_with_line_and_column_wherever_it_is_given() {
    let Some(two) = Two::new() else { return };
    let dir = two.near.path("dir");
    fs::create_dir(&dir).expect("a directory");
    let file = two.scratch.path("bad.yml");
    let (dir, policy) = (text(&dir), text(&file));
    for (content, place) in [
        ("consistency: weak\nno_such_key: 1\n", "bad.yml: line 2, column 1"),
        ("composition: volatile_apply + volatile_apply\n", "bad.yml: line 1, column"),
        ("consistency: weak\ndurability: geo\n", "bad.yml: line"),
    ] {
        fs::write(&file, content).expect("a policy");
        says(&["policy", "set", dir, policy], 1, &[place]);
        says(&["decouple", dir, "--policy", policy], 1, &[place]);
        says(&["run", "--policy", policy, "--path", dir, "--", "true"], 1, &[place]);
        says(&["run", "--branch", "b", "--policy", policy, "--path", dir, "--", "true"], 1, &[place]);
        says(&["branch", "create", dir, "b", "--policy", policy], 1, &[place]);
    }
    assert!(two.decouplings().is_empty());
}

#[test]
fn diff_and_merge_report_a_conflict_in_the_same_form() {
    let Some(two) = Two::new() else { return };
    let (near, far) = (two.near.path("job"), two.far.path("job"));
    fs::create_dir_all(near.join("dir")).expect("directories");
    fs::write(near.join("dir/file"), "before").expect("a write");
    fs::write(near.join("dir/moved"), "before").expect("a write");
    let policy = two.scratch.path("allow.yml");
    fs::write(&policy, ALLOW).expect("a policy");
    done(&["decouple", text(&near), "--policy", text(&policy)]);
    fs::write(near.join("dir/file"), "ours").expect("a write");
    fs::write(far.join("dir/file"), "theirs").expect("a write");
    // Others know it by another path.
    fs::write(near.join("dir/moved"), "ours").expect("a write");
    fs::rename(far.join("dir/moved"), far.join("dir/moved by others")).expect("a rename");
    fs::write(far.join("dir/moved by others"), "theirs").expect("a write");
    let conflicts = |args: &[&str]| -> Vec<Value> {
        let report: Value = serde_json::from_str(&done(args)).expect("JSON");
        report["conflicts"].as_array().expect("a list").clone()
    };
    let diff = conflicts(&["diff", "--json", text(&near)]);
    let merge = conflicts(&["merge", "--json", text(&near)]);
    let keys =
        |line: &Value| -> BTreeSet<String> { line.as_object().expect("fields").keys().cloned().collect() };
    assert_eq!((diff.len(), merge.len()), (2, 2), "{diff:?} {merge:?}");
    for line in &diff {
        let same = merge.iter().find(|other| other["path"] == line["path"]).expect("the same path");
        assert_eq!(keys(line), keys(same));
        for key in ["base", "ours", "theirs"] {
            assert_eq!(line[key], same[key], "{key}");
        }
    }
    assert_eq!((&diff[0]["path"], &diff[1]["path"]), (&"dir/file".into(), &"dir/moved".into()));
}

#[test]
fn the_status_names_mounts_and_their_decouplings() {
    let Some(two) = Two::new() else { return };
    let (near, _) = two.job("batchfs");
    fs::write(near.join("file"), "x").expect("a write");
    let said = done(&["status", text(&two.far.dir)]);
    let (near, far) = (two.near.dir.display(), two.far.dir.display());
    for words in [
        &format!("{far}: healthy\n"),
        "\nclients     2 connected\n",
        &format!("            mount {near}, process "),
        &format!("            mount {far}, process "),
        "\ndecoupled   1 (details: chiton decoupled",
        "            /job for ",
        "\nto do       nothing",
    ] {
        assert!(said.contains(words), "{words:?} is not in\n{said}");
    }
    assert!(said.lines().count() <= 15, "{said}");
}
