//! The first half hour of a user with decoupled subtrees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::rig::chiton;
use crate::two::{Two, done, refused, run, text};

/// Names hold any bytes; a line of the text is a change all the same, and programs get the bytes.
#[test]
fn a_difference_tells_any_name() {
    let Some(two) = Two::new() else { return };
    let (near, _) = two.job("batchfs");
    let names: [&[u8]; 4] = [b"plain", b"two\nlines", b"\x1b[31mred", b"no text \xff"];
    for name in names {
        fs::write(near.join(OsStr::from_bytes(name)), "").expect("a write");
    }
    let said = done(&["diff", text(&near)]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            r"new         $'\033[31mred'",
            r"new         $'no text \377'",
            "new         plain",
            r"new         $'two\nlines'",
            "4 changes, 0 conflicts",
        ]
    );
    let diff: Value = serde_json::from_str(&done(&["diff", "--json", text(&near)])).expect("JSON");
    let mut found: Vec<Vec<u8>> = Vec::new();
    for change in diff["changes"].as_array().expect("a list") {
        found.push(match change["path_bytes"].as_array() {
            Some(bytes) => bytes.iter().map(|byte| byte.as_u64().expect("a byte") as u8).collect(),
            None => change["path"].as_str().expect("text").as_bytes().to_vec(),
        });
    }
    found.sort();
    let mut expected: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    expected.sort();
    assert_eq!(found, expected);
    done(&["discard", text(&near)]);
}

/// A long difference comes in pieces, and is whole.
#[test]
fn a_long_diff_is_complete() {
    let Some(two) = Two::new() else { return };
    let (near, _) = two.job("batchfs");
    let names: Vec<String> = (0..1_500).map(|at| format!("{at:04}{}", "x".repeat(200))).collect();
    for name in &names {
        File::create(near.join(name)).expect("a file");
    }
    let said = done(&["diff", text(&near)]);
    let mut lines = said.lines();
    for name in &names {
        assert_eq!(lines.next().and_then(|line| line.strip_prefix("new         ")), Some(&name[..]));
    }
    assert_eq!(lines.collect::<Vec<_>>(), ["1500 changes, 0 conflicts"]);
    // Created files are counted before a merge.
    assert!(done(&["decoupled", text(&near)]).contains("1500 of 100000"));
    let all: Value =
        serde_json::from_str(&done(&["decoupled", "--json", text(&two.near.dir)])).expect("JSON");
    assert_eq!(all[0]["inodes_used"], 1500, "{all}");
    // Another mount does not know.
    assert!(done(&["decoupled", text(&two.far.dir)]).contains("? of 100000"));
}

/// One's own subtree is one's own, also by force.
#[test]
fn force_merges_ones_own_decoupling() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("deltafs");
    let mut file = File::create(near.join("file")).expect("a file");
    file.write_all(b"merged").expect("a write");
    refused(&["recouple", "--merge", text(&near)], 3, "open for writing");
    done(&["recouple", "--merge", "--force", text(&near)]);
    assert_eq!(fs::read(far.join("file")).expect("merged"), b"merged");
    // The message names a process that still has the file open, although a descriptor was closed: no command waits
    // for a close that does not come.
    drop(file);
    done(&["decouple", text(&near)]);
    let file = File::create(near.join("other")).expect("a file");
    drop(file.try_clone().expect("a descriptor"));
    let me = format!("by process {}", std::process::id());
    refused(&["merge", text(&near)], 3, &me);
    done(&["discard", "--force", text(&near)]);
    // Of another mount's decoupling only its journal is known.
    drop(file);
    fs::write(far.join("theirs"), "x").expect("a write");
    refused(&["recouple", "--merge", "--force", text(&near)], 1, "another client");
}

/// A place where nothing can be mounted is refused before anything is begun.
#[test]
fn a_dead_mount_point_is_refused_before_journals_are_resumed() {
    let Some(mut two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    fs::write(near.join("file"), "kept").expect("a write");
    File::open(&near).and_then(|dir| dir.sync_all()).expect("an fsync");
    two.near.process.kill();
    let (socket, state) =
        (format!("unix:{}", two.scratch.data().join("socket").display()), two.scratch.path("state"));
    let mount =
        ["mount", "--foreground", "--server", &socket, "--state-dir", text(&state), text(&two.near.dir)];
    let out = run(&mount);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(3) && said.contains("umount"), "{said}");
    assert!(!said.contains("resumed decoupling"), "{said}");
    // No client has resumed it: it still belongs to the first one.
    let all = two.decouplings();
    assert_eq!(all[0]["generation"], 1, "{all:?}");
    done(&["umount", "--lazy", text(&two.near.dir)]);
    let recover = ["recover", "--server", &socket, "--state-dir", text(&state), "--merge"];
    done(&recover);
    assert_eq!(fs::read(far.join("file")).expect("merged"), b"kept");
}

/// A user without the right reads which users have it, and the command to run next.
#[test]
fn a_refusal_names_the_users_with_the_right() {
    let Some(two) = Two::new() else { return };
    let (near, _) = two.job("batchfs");
    for dir in [two.scratch.path(""), near.clone()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let plain = two.near.path("plain");
    fs::create_dir(&plain).expect("a directory");
    let as_nobody = |words: &[&str], said: &[&str]| {
        let out = two.scratch.chiton_of_another_user().args(words).output().expect("runs");
        let message = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "chiton {words:?}: {message}");
        assert!(said.iter().all(|words| message.contains(words)), "chiton {words:?} says {message}");
    };
    let (plain, job) = (text(&plain), text(&near));
    as_nobody(
        &["policy", "set", plain, "ramdisk"],
        &["root", "the owner of the directory (user 0)", "ask one of them"],
    );
    as_nobody(&["decouple", plain, "--policy", "batchfs"], &["owner", "ask its owner"]);
    as_nobody(&["branch", "create", plain, "try"], &["only root", "ask one of them"]);
    fs::write(near.join("file"), "x").expect("a write");
    as_nobody(&["merge", job], &["owner of the subtree (user 0)", "ask one of them"]);
}

/// A policy that `set` refuses is explained as such.
#[test]
fn a_policy_that_cannot_be_set_is_explained_as_such() {
    let (preset, why) = ("calvinfs", "replicate");
    let out = chiton().args(["policy", "explain", preset]).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("CANNOT BE SET") && said.contains(why), "{said}");
    let json: Value = serde_json::from_str(&done(&["policy", "explain", "--json", preset])).expect("JSON");
    assert!(json["refused"].as_str().is_some_and(|said| said.contains(why)), "{json}");
    let posix: Value = serde_json::from_str(&done(&["policy", "explain", "--json", "posix"])).expect("JSON");
    assert!(posix["refused"].is_null() && !Path::new("posix").exists(), "{posix}");
}
