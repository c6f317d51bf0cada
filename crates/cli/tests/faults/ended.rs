//! Decouplings that end otherwise than by a merge: by force from elsewhere, with the directory, after a conflict.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::rig::{Mounted, is_root, until};
use crate::seen::{assert_same, list, look, plant, set_xattr, xattrs};
use crate::two::{Two, done, errno, libc_busy, mount_branch, refused, run, text};

fn eio() -> Option<i32> {
    Some(rustix::io::Errno::IO.raw_os_error())
}

/// S110: "From then on every call in the subtree returns EIO …"
#[test]
fn a_mount_whose_decoupling_was_ended_elsewhere_acknowledges_nothing_more() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    let file = fs::File::create(near.join("a")).expect("made");
    // Owners, modes, times, extended attributes and all.
    plant(&near);
    if is_root() {
        chown(near.join("dir/file0"), Some(1_234), Some(4_321)).expect("given away");
    }
    file.sync_all().expect("durable");
    fs::File::open(&near).and_then(|dir| dir.sync_all()).expect("durable");
    // Files that the other client makes meanwhile may be there, too.
    let seen = |root: &Path| ["dir", "empty"].map(|dir| look(&root.join(dir)));
    let expected = seen(&near);
    done(&["recouple", "--force", "--yes", text(&far)]);
    // Shared at once.
    assert_eq!(fs::read_dir(&far).expect("given back").count(), 0);
    until("the mount hears of it", || fs::write(near.join("b"), "2").is_err());
    assert_eq!(errno(fs::write(near.join("c"), "3")), eio());
    assert_eq!(errno(file.sync_all()), eio());
    assert_eq!(errno(fs::metadata(&near).map(drop)), eio());
    refused(&["merge", text(&two.near.dir)], 4, "no subtree");
    until("the log says so", || two.near.process.said().contains("recover --as-branch"));

    let socket = format!("unix:{}", two.scratch.data().join("socket").display());
    let state = two.scratch.path("state");
    let recover = |words: &[&str]| {
        let mut all = vec!["recover", "--server", &socket, "--state-dir", text(&state)];
        all.extend(words);
        done(&all)
    };
    recover(&["--as-branch", "rescued"]);
    let view = two.scratch.path("view");
    done(&["view", text(&far), "--journal", "rescued", "--to", text(&view)]);
    expected.iter().zip(&seen(&view)).for_each(|(expect, found)| assert_same(expect, found));
    assert!(view.join("a").exists());
    // The refused directory is shared again, also here.
    until("the mount goes on without it", || fs::metadata(&near).is_ok());
    done(&["branch", "merge", text(&far), "rescued"]);
    expected.iter().zip(&seen(&far)).for_each(|(expect, found)| assert_same(expect, found));
    assert!(near.join("a").exists());
}

/// S110: "`chiton discard` drops the journal, also by a path that returns EIO …"
#[test]
fn a_lost_decoupling_is_discarded_by_its_path() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    for how in [&[][..], &["--discard"]] {
        fs::create_dir(near.join("deep")).expect("made");
        fs::write(near.join("deep/a"), "1").expect("a write");
        fs::File::open(&near).and_then(|dir| dir.sync_all()).expect("durable");
        let words = [&["recouple", "--force", "--yes"], how, &[text(&far)]].concat();
        done(&words);
        until("the mount hears of it", || fs::metadata(&near).is_err());
        refused(&["merge", text(&near)], 3, "recover --as-branch");
        // Any path below stands for the subtree.
        done(&["discard", text(&near.join("deep/a"))]);
        fs::write(near.join("b"), "2").expect("available again");
        done(&["merge", text(&near)]);
        let names: Vec<_> =
            fs::read_dir(&far).expect("shared").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["b"], "the lost changes are dropped");
    }
}

/// A slip, or a script without the option, cannot end another client's decoupling.
#[test]
fn ending_another_clients_decoupling_needs_yes() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    let file = fs::File::create(near.join("a")).expect("made");
    file.sync_all().expect("durable");
    let id = two.decouplings()[0]["realm"].to_string();
    for words in [&["--discard"][..], &[]] {
        for at in [&[text(&far)][..], &["--id", &id, text(&two.far.dir)]] {
            let words = [&["recouple", "--force"], words, at].concat();
            for said in ["has had it for", "durable events are not merged", "add --yes"] {
                refused(&words, 1, said);
            }
        }
    }
    assert_eq!(two.decouplings().len(), 1);
    file.sync_all().expect("it is the client's still");
    drop(file);
    done(&["recouple", "--force", "--discard", "--yes", text(&far)]);
    assert!(two.decouplings().is_empty());
}

/// S58a: "… may be decoupled separately, by the same mount or another."
#[test]
fn a_mount_has_its_inner_subtree_after_the_outer_one_is_merged() {
    let Some(two) = Two::new() else { return };
    let (near, far) = (two.near.path("n"), two.far.path("n"));
    fs::create_dir_all(near.join("deep/inner")).expect("directories");
    for dir in [near.clone(), near.join("deep/inner")] {
        done(&["policy", "set", text(&dir), "batchfs"]);
    }
    fs::write(near.join("f"), "o").expect("a write");
    fs::write(near.join("deep/inner/f"), "i").expect("a write");
    assert_eq!(two.decouplings().len(), 2);
    assert_eq!(errno(fs::read(far.join("deep/inner/f"))), Some(libc_busy()), "the inner is kept from others");
    done(&["merge", text(&near)]);
    assert_eq!(fs::read(near.join("deep/inner/f")).expect("still its own"), b"i");
    fs::write(near.join("deep/inner/g"), "more").expect("a write");
    assert_eq!(fs::read(far.join("f")).expect("merged"), b"o");
    done(&["merge", text(&near.join("deep/inner"))]);
    assert_eq!(fs::read(far.join("deep/inner/g")).expect("merged"), b"more");
}

/// S111: a directory with a weak policy is removed like any other.
#[test]
fn a_directory_that_carries_a_weak_policy_is_removed_as_any_other() {
    let Some(two) = Two::new() else { return };
    for policy in ["batchfs", "deltafs"] {
        let (near, far) = two.job(policy);
        fs::create_dir(near.join("dir")).expect("a directory");
        fs::write(near.join("dir/x"), "x").expect("a write");
        assert_eq!(
            errno(fs::remove_dir(&near)),
            Some(rustix::io::Errno::NOTEMPTY.raw_os_error()),
            "{policy}"
        );
        let removed = Command::new("rm").arg("-rf").arg(&near).status().expect("runs");
        assert!(removed.success() && !near.exists(), "{policy}");
        until("others see that it is gone", || !far.exists());
        assert!(two.decouplings().is_empty(), "{policy}");
    }
}

/// Conflicts, one by one, through a mount and of a branch.
#[test]
fn a_person_resolves_conflicts_and_merges_again() {
    let Some(two) = Two::new() else { return };
    let (near, far) = (two.near.path("job"), two.far.path("job"));
    fs::create_dir(&near).expect("a directory");
    for file in ["a", "b", "gone", "c"] {
        fs::write(near.join(file), "before").expect("a write");
    }
    let policy = two.scratch.path("abort.yml");
    fs::write(&policy, "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n")
        .expect("a policy");
    done(&["decouple", text(&near), "--policy", text(&policy)]);
    for file in ["a", "b", "c"] {
        fs::write(near.join(file), "ours").expect("a write");
        fs::write(far.join(file), "theirs").expect("a write");
    }
    fs::remove_file(near.join("gone")).expect("removed");
    fs::write(far.join("gone"), "theirs").expect("a write");
    refused(&["merge", text(&near)], 5, "conflict");
    let listed = done(&["conflicts", text(&near)]);
    assert_eq!(listed.lines().filter(|line| line.starts_with("open")).count(), 4, "{listed}");
    done(&["resolve", text(&near.join("a")), "--ours"]);
    done(&["resolve", text(&near.join("b")), "--theirs"]);
    done(&["resolve", text(&near.join("gone")), "--theirs"]);
    refused(&["merge", text(&near)], 5, "conflict");
    let merged = two.scratch.path("merged");
    fs::write(&merged, "ours and theirs").expect("a file");
    done(&["resolve", text(&near.join("c")), "--merged", text(&merged)]);
    assert!(!done(&["conflicts", text(&near)]).contains("open "));
    done(&["merge", text(&near)]);
    for (file, expect) in [("a", "ours"), ("b", "theirs"), ("gone", "theirs"), ("c", "ours and theirs")] {
        assert_eq!(fs::read_to_string(far.join(file)).expect("there"), expect, "{file}");
    }

    let state = text(&two.scratch.path("state")).to_owned();
    let branch = |words: &[&str]| {
        let mut all = vec!["branch", words[0], "--state-dir", &state];
        all.extend(&words[1..]);
        run(&all)
    };
    assert!(branch(&["create", text(&near), "one", "--policy", text(&policy)]).status.success());
    assert!(branch(&["resolve", text(&near), "one", "a", "--ours"]).status.code() == Some(4), "no conflict");
    let at = mount_branch(&two.scratch, &near, "one");
    fs::write(at.dir.join("a"), "branch").expect("a write");
    fs::write(near.join("a"), "tree").expect("a write");
    at.unmount();
    assert_eq!(branch(&["merge", text(&near), "one"]).status.code(), Some(5));
    let listed = branch(&["conflicts", text(&near), "one", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!((&listed[0]["path"], &listed[0]["resolved"]), (&"a".into(), &false.into()), "{listed}");
    assert!(branch(&["resolve", text(&near), "one", "a", "--ours"]).status.success());
    assert!(branch(&["merge", text(&near), "one"]).status.success());
    assert_eq!(fs::read(near.join("a")).expect("merged"), b"branch");
}

/// A resolution carries links, owners, times and attributes, also over a mount whose kernel has cached the old file.
#[test]
fn a_resolution_to_theirs_copies_type_and_attributes() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let Some(two) = Two::new() else { return };
    let (near, far) = (two.near.path("job"), two.far.path("job"));
    fs::create_dir(&near).expect("a directory");
    let names = ["theirs", "to_link", "in_place", "anew", "link"];
    for name in names {
        fs::write(near.join(name), "before").expect("a write");
    }
    fs::set_permissions(near.join("in_place"), PermissionsExt::from_mode(0o751)).expect("a mode");
    let policy = two.scratch.path("abort.yml");
    fs::write(&policy, "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n")
        .expect("a policy");
    done(&["decouple", text(&near), "--policy", text(&policy)]);
    for name in names {
        fs::write(near.join(name), "ours").expect("a write");
        fs::write(far.join(name), "theirs").expect("a write");
    }
    fs::remove_file(near.join("anew")).expect("removed");
    set_xattr(&far.join("theirs"), "user.of", b"theirs");
    set_xattr(&far.join("theirs"), "system.posix_acl_access", &list());
    fs::remove_file(far.join("to_link")).expect("removed");
    symlink("theirs", far.join("to_link")).expect("a link");
    refused(&["merge", text(&near)], 5, "conflict");

    for name in ["theirs", "to_link"] {
        done(&["resolve", text(&near.join(name)), "--theirs"]);
    }
    // An existing file gets the content; otherwise the file is created with all its attributes.
    let merged = two.scratch.path("merged");
    fs::write(&merged, "merged").expect("a file");
    fs::set_permissions(&merged, PermissionsExt::from_mode(0o640)).expect("a mode");
    set_xattr(&merged, "user.of", b"merged");
    for name in ["in_place", "anew"] {
        done(&["resolve", text(&near.join(name)), "--merged", text(&merged)]);
    }
    let link = two.scratch.path("link");
    symlink("in_place", &link).expect("a link");
    done(&["resolve", text(&near.join("link")), "--merged", text(&link)]);
    let is_as_resolved = |dir: &Path| {
        let mode = |name: &str| fs::symlink_metadata(dir.join(name)).expect("there").mode() & 0o7777;
        assert_eq!(fs::read(dir.join("theirs")).expect("read"), b"theirs");
        assert_eq!(mode("theirs"), 0o760);
        let of = |name: &str| xattrs(&dir.join(name));
        assert_eq!(of("theirs")["user.of"], b"theirs");
        assert_eq!(of("theirs")["system.posix_acl_access"], list());
        assert_eq!(fs::read_link(dir.join("to_link")).expect("a link"), Path::new("theirs"));
        for (name, expect) in [("in_place", 0o751), ("anew", 0o640)] {
            assert_eq!((fs::read(dir.join(name)).expect("read"), mode(name)), (b"merged".to_vec(), expect));
        }
        assert!(of("in_place").is_empty());
        assert_eq!(of("anew")["user.of"], b"merged");
        let times =
            [&dir.join("anew"), &merged].map(|path| fs::metadata(path).expect("there").modified().ok());
        assert_eq!(times[0], times[1]);
        assert_eq!(fs::read_link(dir.join("link")).expect("a link"), Path::new("in_place"));
    };
    is_as_resolved(&near);
    done(&["merge", text(&near)]);
    is_as_resolved(&far);

    // In a branch that no process has mounted.
    let state = text(&two.scratch.path("state")).to_owned();
    let branch = |words: &[&str]| done(&[&["branch", words[0], "--state-dir", &state], &words[1..]].concat());
    branch(&["create", text(&near), "one", "--policy", text(&policy)]);
    let at = mount_branch(&two.scratch, &near, "one");
    for name in ["in_place", "anew", "link"] {
        fs::remove_file(at.dir.join(name)).expect("removed");
        fs::remove_file(near.join(name)).expect("removed");
        fs::write(near.join(name), "tree").expect("a write");
    }
    fs::write(at.dir.join("in_place"), "branch").expect("a write");
    fs::set_permissions(at.dir.join("in_place"), PermissionsExt::from_mode(0o751)).expect("a mode");
    at.unmount();
    for (name, file) in [("in_place", &merged), ("anew", &merged), ("link", &link)] {
        branch(&["resolve", text(&near), "one", name, "--merged", text(file)]);
    }
    branch(&["merge", text(&near), "one"]);
    is_as_resolved(&near);
}

/// `chiton run`: the treatment of conflicts and failures.
#[test]
fn run_chooses_for_conflicts_and_the_policy_for_failures() {
    let Some(two) = Two::new() else { return };
    let near = two.near.path("job");
    fs::create_dir(&near).expect("a directory");
    fs::write(near.join("f"), "before").expect("a write");
    let policy = two.scratch.path("open.yml");
    let text_of = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_failure: keep\n";
    fs::write(&policy, text_of).expect("a policy");
    let both = format!("echo ours > {0}/f; echo theirs > {1}/job/f", near.display(), two.far.dir.display());
    let run_with = |words: &[&str], command: &str| {
        let mut all = vec!["run", "--policy", text(&policy), "--path", text(&near)];
        all.extend(words);
        all.extend(["--", "sh", "-c", command]);
        run(&all)
    };
    let stopped = run_with(&["--on-conflict", "abort"], &both);
    assert_eq!(stopped.status.code(), Some(5), "{}", String::from_utf8_lossy(&stopped.stderr));
    assert_eq!(fs::read_to_string(two.far.path("job/f")).expect("theirs"), "theirs\n");
    done(&["discard", text(&near)]);
    // The policy keeps a failed command's changes; --discard drops them.
    assert_eq!(run_with(&[], "exit 7").status.code(), Some(7));
    assert_eq!(two.decouplings().len(), 1);
    done(&["discard", text(&near)]);
    assert_eq!(run_with(&["--discard"], "exit 7").status.code(), Some(7));
    assert!(two.decouplings().is_empty());
}

/// S58: "… does the same for any directory that the caller owns.".
#[test]
fn an_owner_decouples_a_directory_of_their_own_as_far_as_its_policy_lets_them() {
    let Some(two) = Two::new() else { return };
    let near = two.near.path("home");
    fs::create_dir(&near).expect("a directory");
    chown(&near, Some(65_534), Some(65_534)).expect("given away");
    let as_nobody = |words: &[&str]| two.scratch.chiton_of_another_user().args(words).output().expect("runs");
    fs::set_permissions(two.scratch.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("a mode");
    let decouple = |policy: &str| as_nobody(&["decouple", text(&near), "--policy", policy]);
    let taken = decouple("batchfs");
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    assert!(as_nobody(&["merge", text(&near)]).status.success());
    // Without durability only if the directory's policy says so.
    let refused = decouple("ramdisk-decoupled");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("owner_decouples"), "{said}");
    let policy = |text_of: &str| {
        let file = two.scratch.path("lax.yml");
        fs::write(&file, text_of).expect("a policy");
        done(&["policy", "set", text(&near), text(&file)]);
    };
    policy("owner_decouples: none\n");
    assert!(decouple("ramdisk-decoupled").status.success());
    assert!(as_nobody(&["discard", text(&near)]).status.success());
    policy("owner_decouples: never\n");
    assert_eq!(decouple("batchfs").status.code(), Some(1));
}

/// Several branches in one process; cleaning up after a killed one.
#[test]
fn one_process_serves_several_branches_and_dead_mounts_are_detached() {
    if !is_root() {
        return;
    }
    let Some(two) = Two::new() else { return };
    let tree = two.near.path("tree");
    fs::create_dir(&tree).expect("a directory");
    fs::write(tree.join("f"), "base").expect("a write");
    let names = ["one", "two", "three"];
    let dirs: Vec<_> = names.iter().map(|name| two.scratch.path(&format!("at-{name}"))).collect();
    for (name, dir) in names.iter().zip(&dirs) {
        done(&["branch", "create", text(&tree), name]);
        fs::create_dir(dir).expect("a mount point");
    }
    let mut words = vec!["branch", "mount", text(&tree)];
    for (name, dir) in names.iter().zip(&dirs) {
        words.extend([*name, text(dir)]);
    }
    done(&words);
    for (name, dir) in names.iter().zip(&dirs) {
        fs::write(dir.join("f"), name).expect("a write");
    }
    for (name, dir) in names.iter().zip(&dirs) {
        assert_eq!(fs::read_to_string(dir.join("f")).expect("a read"), *name);
    }
    let pid = |dir: &Path| {
        let all: Value =
            serde_json::from_str(&done(&["branch", "list", "--json", text(&tree)])).expect("JSON");
        let one = all.as_array().expect("a list").iter().find(|one| one["mountpoint"] == text(dir)).cloned();
        one.map(|one| one["pid"].as_u64().expect("a number"))
    };
    assert_eq!(pid(&dirs[0]), pid(&dirs[1]));
    done(&["branch", "merge", text(&tree), "one"]);
    assert_eq!(fs::read_to_string(tree.join("f")).expect("merged"), "one");
    assert_eq!(fs::read_to_string(dirs[1].join("f")).expect("the others go on"), "two");
    done(&["umount", text(&dirs[1])]);
    assert_eq!(fs::read_to_string(dirs[2].join("f")).expect("the last goes on"), "three");
    fs::File::open(dirs[2].join("f")).and_then(|file| file.sync_all()).expect("durable");

    let process = pid(&dirs[2]).expect("it is mounted");
    let process = rustix::process::Pid::from_raw(process as i32).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("killed");
    until("its mount answers nobody", || fs::read_dir(&dirs[2]).is_err());
    done(&["branch", "mount", text(&tree), "three", text(&dirs[2])]);
    assert_eq!(fs::read_to_string(dirs[2].join("f")).expect("as it was"), "three");
    done(&["umount", text(&dirs[2])]);
}

/// Takes the last bytes of the journals in a state directory away: a shell script of a job, or of a test.
const CUT_OFF: &str = "for f in $(find $STATE -name '*.seg'); do truncate -s -30 $f; done";

/// S112: "… no command resumes, merges or shows the journal in silence."
#[test]
fn every_merging_command_reports_a_truncated_journal() {
    let Some(two) = Two::new() else { return };
    let state = two.scratch.path("state");
    let cut_off = || {
        let cut = Command::new("sh").args(["-c", CUT_OFF]).env("STATE", &state).status();
        assert!(cut.expect("runs").success());
    };
    let missing = "events that were durable are missing";
    let make = |dir: &Path| {
        for n in 0..5 {
            let file = fs::File::create(dir.join(format!("f{n}"))).expect("made");
            file.sync_all().expect("durable");
        }
    };
    let (near, far) = two.job("batchfs");
    make(&near);
    cut_off();
    refused(&["sync", text(&near)], 1, missing);
    refused(&["diff", text(&near)], 1, missing);
    refused(&["merge", text(&near)], 1, missing);
    refused(&["recouple", text(&near)], 1, missing);
    let said = done(&["recouple", "--accept-truncated", text(&near)]);
    assert!(said.contains(missing), "{said}");
    let kept = fs::read_dir(&far).expect("everybody's").count();
    assert!((1..5).contains(&kept), "{kept} files");

    // A job under which the journal is cut off.
    let job = two.near.path("run");
    fs::create_dir(&job).expect("a directory");
    let script = format!(
        "for n in 1 2 3; do echo x > $JOB/f$n; sync $JOB/f$n; done; STATE={}; {CUT_OFF}",
        text(&state)
    );
    let run_job = |more: &[&str]| {
        let script = format!("JOB={}; {script}", text(&job));
        let mut words = vec!["run", "--policy", "batchfs", "--path", text(&job)];
        words.extend(more);
        words.extend(["--", "sh", "-c", &script]);
        run(&words)
    };
    let out = run_job(&[]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains(missing) && said.contains("--accept-truncated"), "{said}");
    done(&["discard", text(&job)]);
    let out = run_job(&["--accept-truncated"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && said.contains(missing), "{said}");

    // The end of a mount, which merges weak subtrees.
    let last = two.near.path("last");
    fs::create_dir(&last).expect("a directory");
    done(&["policy", "set", text(&last), "batchfs"]);
    make(&last);
    cut_off();
    refused(&["umount", text(&two.near.dir)], 1, missing);

    // The branch that a killed mount left.
    let state = two.scratch.path("other-state");
    let other = Mounted::beside(&two.scratch, "other", &["--state-dir", text(&state)]);
    fs::create_dir(other.path("killed")).expect("a directory");
    done(&["policy", "set", text(&other.path("killed")), "batchfs"]);
    make(&other.path("killed"));
    other.kill();
    let cut = Command::new("sh").args(["-c", CUT_OFF]).env("STATE", &state).status();
    assert!(cut.expect("runs").success());
    let socket = format!("unix:{}", two.scratch.data().join("socket").display());
    let recover = ["recover", "--server", &socket, "--state-dir", text(&state), "--merge"];
    refused(&recover, 1, missing);
    let said = done(&[&recover[..], &["--accept-truncated"]].concat());
    assert!(said.contains(missing), "{said}");
}
