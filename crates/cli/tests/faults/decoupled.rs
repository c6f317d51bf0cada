//! Decoupled subtrees as people and jobs use them: through mounts and commands, with another mount looking on.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::file_handle::{Handle, forget_inodes};
use crate::rig::{Mounted, checkable, plates, until, write_checkable};
use crate::seen::{assert_same, look, plant};
use crate::two::{Two, done, errno, libc_busy, mount_near, refused, run, text};

/// S95: in a decoupled subtree file handles are good as elsewhere, also that of its root.
#[test]
fn file_handles_are_good_in_a_decoupled_subtree() {
    let Some(two) = Two::new() else { return };
    let (near, _far) = two.job("batchfs");
    fs::create_dir_all(near.join("a/b")).expect("directories");
    fs::write(near.join("a/b/f"), "here").expect("a write");
    assert_eq!(two.decouplings()[0]["path"], "/job");
    let dirs = [near.clone(), near.join("a"), near.join("a/b")];
    let handles: Vec<Handle> = dirs.iter().map(|dir| Handle::of(dir)).collect();
    let mount = File::open(two.near.path("")).expect("open");
    for (dir, handle) in dirs.iter().zip(&handles) {
        forget_inodes();
        let opened = handle.open(&mount, libc::O_RDONLY | libc::O_DIRECTORY).expect("by handle");
        let link = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string());
        assert_eq!(fs::read_link(&link).expect("a path"), *dir);
        let above = dir.parent().expect("the mount");
        let ino = |path: &Path| fs::metadata(path).expect("there").ino();
        assert_eq!(ino(&link.join("..")), ino(above), "{}", dir.display());
    }
}

/// S58, S59, S60, S61.
#[test]
fn a_tree_unpacked_in_a_batchfs_subtree_is_there_for_others_when_it_is_merged() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    let source = two.scratch.path("source");
    plant(&source);
    let tar = |args: &[&str]| {
        let status = Command::new("tar").args(args).status().expect("tar runs");
        assert!(status.success(), "tar {args:?}: {status}");
    };
    let archive = two.scratch.path("archive.tar");
    tar(&["-C", text(&source), "--format=posix", "--xattrs", "--acls", "-cf", text(&archive), "."]);
    assert!(two.decouplings().is_empty());
    tar(&["-C", text(&near), "--xattrs", "--acls", "-xf", text(&archive)]);
    rustix::fs::setxattr(near.join("dir/file4"), "user.colour", b"red", rustix::fs::XattrFlags::empty())
        .expect("an attribute");
    rustix::fs::setxattr(source.join("dir/file4"), "user.colour", b"red", rustix::fs::XattrFlags::empty())
        .expect("an attribute");

    let here = look(&near);
    assert_same(&look(&source), &here);
    assert_eq!(two.decouplings()[0]["path"], "/job");
    // Others are refused, and the name exists.
    assert_eq!(errno(fs::metadata(&far)), Some(libc_busy()));
    assert_eq!(errno(fs::write(far.join("intruder"), "")), Some(libc_busy()));
    let names: Vec<_> =
        fs::read_dir(&two.far.dir).expect("a listing").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names, ["job"]);
    refused(&["merge", text(&far)], 3, &format!("is decoupled by mount {}, process", text(&two.near.dir)));
    // The surroundings are not disturbed.
    fs::write(two.far.path("beside"), "x").expect("a write");
    assert_eq!(fs::read(two.near.path("beside")).expect("a read"), b"x");

    // A border is a border.
    let crossed = |result: std::io::Result<()>| {
        assert_eq!(result.expect_err("a border").kind(), ErrorKind::CrossesDevices)
    };
    crossed(fs::rename(near.join("dir/file1"), two.near.path("file1")));
    crossed(fs::rename(two.near.path("beside"), near.join("beside")));
    crossed(fs::hard_link(near.join("dir/file1"), two.near.path("file1")));
    crossed(fs::hard_link(two.near.path("beside"), near.join("beside")));
    assert_eq!(errno(fs::rename(&near, two.near.path("other"))), Some(libc_busy()));

    let report: Value = serde_json::from_str(&done(&["merge", "--json", text(&near)])).expect("JSON");
    assert_eq!(
        (&report["ended"], &report["conflict_count"], &report["lost_count"]),
        (&Value::Bool(true), &0.into(), &0.into()),
        "{report}"
    );
    assert_same(&here, &look(&far));
    assert_same(&here, &look(&near));
    assert!(two.decouplings().is_empty());
    refused(&["merge", text(&near)], 4, "no subtree that this mount has decoupled");
    // The next client that changes it gets it.
    fs::remove_file(far.join("dir/file0")).expect("ours now");
    assert_eq!(errno(fs::metadata(&near)), Some(libc_busy()));
    done(&["merge", text(&far)]);
    assert_eq!(fs::metadata(near.join("dir/file0")).expect_err("gone").kind(), ErrorKind::NotFound);
}

/// S58a: "A decoupled subtree ends at the next policy …"
#[test]
fn a_directory_with_a_policy_of_its_own_below_is_not_decoupled_with_the_rest() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    let dir = near.join("a/shared");
    fs::create_dir_all(&dir).expect("directories");
    done(&["merge", text(&near)]);
    done(&["policy", "set", text(&dir), "posix"]);
    // A descriptor from before.
    let theirs = File::open(far.join("a/shared")).expect("everybody's");
    fs::write(near.join("a/mine"), "mine").expect("a write");
    assert_eq!(two.decouplings()[0]["path"], "/job");
    // Others pass through the path to their own files, and see nothing else.
    assert!(fs::metadata(&far).expect("the way").is_dir());
    for kept in [far.join("a/mine"), far.join("a/nothing")] {
        assert_eq!(errno(fs::metadata(&kept)), Some(libc_busy()), "{}", kept.display());
    }
    for dir in [far.clone(), far.join("a")] {
        assert_eq!(errno(fs::read_dir(&dir).map(drop)), Some(libc_busy()), "{}", dir.display());
        assert_eq!(errno(fs::write(dir.join("intruder"), "")), Some(libc_busy()), "{}", dir.display());
    }
    fs::write(far.join("a/shared/by-path"), "there").expect("everybody's");
    assert_eq!(fs::read(dir.join("by-path")).expect("seen at once"), b"there");
    fs::remove_file(far.join("a/shared/by-path")).expect("removed");

    // The directory below the border is shared, immediately, in both directions.
    fs::write(dir.join("here"), "here").expect("a write");
    let open = |name: &str, flags| rustix::fs::openat(&theirs, name, flags, 0o644.into());
    open("here", rustix::fs::OFlags::RDONLY).expect("seen at once");
    drop(open("there", rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY).expect("made by others"));
    assert!(dir.join("there").exists());
    let names = |at: &Path| fs::read_dir(at).expect("a listing").count();
    assert_eq!((names(&dir), names(&near.join("a"))), (2, 2));
    fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o711)).expect("chmod");
    for _ in 0..2 {
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&dir).expect("there"));
        assert_eq!(mode & 0o777, 0o711, "its attributes are those that it has now");
    }

    // A border is a border, and stays where it is.
    let crossed = |result: std::io::Result<()>| {
        assert_eq!(result.expect_err("a border").kind(), ErrorKind::CrossesDevices)
    };
    crossed(fs::rename(near.join("a/mine"), dir.join("mine")));
    crossed(fs::rename(dir.join("here"), near.join("here")));
    crossed(fs::hard_link(near.join("a/mine"), dir.join("mine")));
    for moved in [fs::rename(&dir, near.join("b")), fs::rename(near.join("a"), near.join("b"))] {
        assert_eq!(errno(moved), Some(libc_busy()));
    }
    assert_eq!(errno(fs::remove_dir(&dir)), Some(libc_busy()));
    refused(&["policy", "rm", text(&dir)], 3, "decoupled");

    // Changes above it survive the mount and are merged; the part below never belonged to it.
    let report: Value = serde_json::from_str(&done(&["merge", "--json", text(&near)])).expect("JSON");
    assert_eq!((&report["conflict_count"], &report["lost_count"]), (&0.into(), &0.into()), "{report}");
    assert_eq!(fs::read(far.join("a/mine")).expect("merged"), b"mine");
    assert_eq!(fs::read(far.join("a/shared/here")).expect("there"), b"here");
    assert_same(&look(&near), &look(&far));

    // Both may be decoupled, independently.
    done(&["policy", "set", text(&dir), "batchfs"]);
    fs::write(near.join("a/mine"), "again").expect("a write");
    fs::write(dir.join("here"), "again").expect("a write");
    assert_eq!(two.decouplings().len(), 2);
    done(&["discard", text(&dir)]);
    assert_eq!(fs::read(dir.join("here")).expect("as before"), b"here");
    done(&["merge", text(&near)]);
    assert_eq!(fs::read(far.join("a/mine")).expect("merged"), b"again");
    assert!(two.decouplings().is_empty());
}

/// The switches of `Subtree::sync_mode` by commands: asynchronous, synchronous, asynchronous again.
#[test]
fn the_first_change_in_a_subtree_over_several_plates_goes_to_the_servers() {
    const JOBS: usize = 12;
    let Some(two) = Two::new() else { return };
    let jobs = || (0..JOBS).map(|n| format!("job {n}"));
    for job in jobs() {
        let dir = two.near.path(&job);
        fs::create_dir_all(dir.join("sub/below")).expect("directories");
        done(&["policy", "set", text(&dir), "batchfs"]);
        fs::write(dir.join("first"), "x").expect("the first change");
        fs::write(dir.join("sub/second"), "x").expect("another");
        fs::remove_dir(dir.join("sub/below")).expect("a removal");
    }
    let decoupled: Vec<String> =
        two.decouplings().iter().map(|one| one["path"].as_str().expect("a path").to_owned()).collect();
    // A directory is born on any plate, so of twelve subtrees some lie on several.
    assert!(decoupled.len() == JOBS || (plates() > 1 && decoupled.len() < JOBS), "{decoupled:?}");
    for job in jobs().filter(|job| !decoupled.contains(&format!("/{job}"))) {
        assert_eq!(fs::read(two.far.path(&job).join("sub/second")).expect("seen by others"), b"x");
    }
}

#[test]
fn a_job_is_asynchronous_and_synchronous_by_turns_through_commands() {
    let Some(two) = Two::new() else { return };
    let (near, far) = (two.near.path("job"), two.far.path("job"));
    fs::create_dir(&near).expect("a directory");
    for round in 0..2 {
        let verbose = done(&["decouple", text(&near), "--policy", "batchfs", "--verbose"]);
        for stage in ["grant", "snapshot", "inode numbers", "place", "journal", "engine", "in all"] {
            assert!(verbose.lines().any(|line| line.starts_with(stage)), "no {stage} in\n{verbose}");
        }
        assert!(verbose.contains(" ms ") && verbose.contains("100000 reserved"), "{verbose}");
        fs::write(near.join(format!("alone-{round}")), "before").expect("a write");
        assert_eq!(errno(fs::metadata(&far)), Some(libc_busy()));
        let status: Value =
            serde_json::from_str(&done(&["status", "--json", text(&two.far.dir)])).expect("JSON");
        assert_eq!(status["inode_numbers"]["reserved_by_decouplings"], 100_000);
        let status = done(&["status", "--verbose", text(&two.far.dir)]);
        for said in ["100000 inode numbers reserved", "OBJECT STORE", "gets per 1000 events"] {
            assert!(status.contains(said), "{said:?} is not in\n{status}");
        }

        done(&["merge", text(&near)]);
        assert_eq!(fs::read(far.join(format!("alone-{round}"))).expect("seen"), b"before");
        for n in 0..5 {
            let name = format!("strong-{round}-{n}");
            fs::write(near.join(&name), "after").expect("a write");
            assert_eq!(fs::read(far.join(&name)).expect("seen at once"), b"after");
        }
        assert!(two.decouplings().is_empty(), "it stays everybody's");
    }
    let report: Value =
        serde_json::from_str(&done(&["decouple", text(&near), "--policy", "batchfs", "--json"]))
            .expect("JSON");
    let stages = report["stages"].as_array().expect("stages");
    assert!(stages.len() == 6 && stages[0]["seconds"].as_f64() > Some(0.0), "{report}");
    done(&["discard", text(&near)]);
}

/// S62: "`chiton run` merges the changes of a command if the command ends with 0, and else drops them …"
#[test]
fn a_command_that_succeeds_is_merged_and_one_that_fails_leaves_nothing() {
    let Some(two) = Two::new() else { return };
    let (near, far) = (two.near.path("job"), two.far.path("job"));
    fs::create_dir(&near).expect("a directory");
    fs::write(near.join("before"), "before").expect("a write");
    let script = |script: &str, more: &[&str]| {
        let mut args = vec!["run", "--policy", "batchfs", "--path", text(&near)];
        args.extend(more);
        args.extend(["--", "sh", "-c", script, text(&near)]);
        run(&args)
    };
    let made = script("echo made > $0/made; rm $0/before; mkdir $0/dir", &[]);
    assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(fs::read(far.join("made")).expect("merged"), b"made\n");
    assert!(!far.join("before").exists() && far.join("dir").is_dir());

    let failed = script("echo more > $0/more; echo other > $0/made; exit 7", &[]);
    assert_eq!(failed.status.code(), Some(7), "{}", String::from_utf8_lossy(&failed.stderr));
    for job in [&near, &far] {
        assert!(!job.join("more").exists());
        assert_eq!(fs::read(job.join("made")).expect("as before"), b"made\n");
    }
    let killed = script("echo more > $0/more; kill -9 $$", &[]);
    assert_eq!(killed.status.code(), Some(128 + 9));
    assert!(!near.join("more").exists());

    let kept = script("echo kept > $0/kept; exit 3", &["--keep"]);
    assert_eq!(kept.status.code(), Some(3));
    assert_eq!(fs::read(near.join("kept")).expect("left"), b"kept\n");
    assert!(done(&["diff", text(&near)]).contains("kept"));
    done(&["discard", text(&near)]);
    assert!(!near.join("kept").exists());
    refused(&["run", "--policy", "posix", "--path", text(&near), "--", "true"], 1, "strong");
    assert!(two.decouplings().is_empty());
}

/// S63: "`local`: everything acknowledged before is in the journal on the disk of the mount's machine …"
#[test]
fn a_killed_mount_keeps_synced_data_of_its_subtree() {
    let Some(mut two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    let mut files = Vec::new();
    for at in 0..20u64 {
        let path = near.join(format!("file{at}"));
        write_checkable(&path, at, 1 + 9_000 * at as usize).expect("a write");
        files.push(File::open(&path).expect("an open"));
    }
    fs::create_dir(near.join("dir")).expect("a directory");
    fs::rename(near.join("file3"), near.join("dir/moved")).expect("a rename");
    files[0].sync_all().expect("an fsync");
    drop(files);
    two.near.process.kill();
    // Others are refused until a user decides.
    assert_eq!(errno(fs::metadata(&far)), Some(libc_busy()));
    two.near = mount_near(&two.scratch, "again");
    let near = two.near.path("job");
    assert!(two.near.process.said().contains("resumed decoupling"));
    let check = |job: &Path| {
        for at in (0..20u64).filter(|at| *at != 3) {
            let content = fs::read(job.join(format!("file{at}"))).expect("it is there");
            assert!(content == checkable(at, 1 + 9_000 * at as usize), "file{at}");
        }
        assert!(fs::read(job.join("dir/moved")).expect("it is there") == checkable(3, 27_001));
    };
    check(&near);
    fs::write(near.join("after"), "after").expect("work goes on");
    done(&["merge", text(&near)]);
    check(&far);
    assert_eq!(fs::read(far.join("after")).expect("merged"), b"after");
}

/// A journal that is missing or unreadable is reported: its changes are not silently treated as none.
#[test]
fn a_subtree_without_its_journal_is_not_resumed() {
    let Some(mut two) = Two::new() else { return };
    let (near, _) = two.job("batchfs");
    fs::write(near.join("kept"), "kept").expect("a write");
    File::open(near.join("kept")).and_then(|file| file.sync_all()).expect("an fsync");
    two.near.process.kill();
    let home = fs::read_dir(two.scratch.path("state")).expect("the state").next().expect("a decoupling");
    let home = home.expect("an entry").path();
    // The tool inspects the part that exists.
    assert!(done(&["journal", "inspect", text(&home)]).contains("integrity: OK"));
    assert!(done(&["journal", "event", "get", text(&home), "--name", "kept"]).contains("make file"));
    let aside = two.scratch.path("aside");
    fs::rename(home.join("journal"), &aside).expect("moved");
    two.near = mount_near(&two.scratch, "without");
    let said = two.near.process.said();
    assert!(
        said.contains("is gone, or its beginning is damaged") && said.contains("recouple --force"),
        "{said}"
    );
    two.near.process.kill();
    // With the journal back nothing is lost.
    let _ = fs::remove_dir_all(home.join("journal"));
    fs::rename(&aside, home.join("journal")).expect("moved back");
    two.near = mount_near(&two.scratch, "with");
    assert_eq!(fs::read(two.near.path("job/kept")).expect("it is there"), b"kept");
    done(&["merge", text(&two.near.path("job"))]);
}

/// S63, without a mount.
#[test]
fn recover_merges_the_journal_of_a_killed_mount() {
    let Some(mut two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    fs::write(near.join("kept"), "kept").expect("a write");
    File::open(near.join("kept")).and_then(|file| file.sync_all()).expect("an fsync");
    two.near.process.kill();
    let socket = format!("unix:{}", two.scratch.data().join("socket").display());
    let state = text(&two.scratch.path("state")).to_owned();
    let recover = ["recover", "--server", &socket, "--state-dir", &state];
    assert!(done(&recover).contains("left"));
    assert_eq!(errno(fs::metadata(&far)), Some(libc_busy()));
    let merged: Value =
        serde_json::from_str(&done(&[&recover[..], &["--merge", "--json"]].concat())).expect("JSON");
    assert_eq!(merged[0]["ended"], true, "{merged}");
    assert_eq!(fs::read(far.join("kept")).expect("merged"), b"kept");
    assert!(done(&recover).contains("no journals of this file system are in"));
}

/// S63: "`global`: it is in the object store, and any machine may resume it …"
#[test]
fn a_journal_in_the_object_store_is_merged_from_any_machine() {
    let Some(mut two) = Two::new() else { return };
    let policy = two.scratch.path("global.yml");
    fs::write(&policy, "consistency: weak\ndurability: global\ninterfere_policy: block\n").expect("a file");
    let (near, far) = two.job(text(&policy));
    fs::write(near.join("kept"), "kept").expect("a write");
    File::open(near.join("kept")).and_then(|file| file.sync_all()).expect("an fsync");
    two.near.process.kill();
    fs::remove_dir_all(two.scratch.path("state"))
        .or_else(|e| match e.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        })
        .expect("that machine is gone");
    let id = two.decouplings()[0]["realm"].to_string();
    let socket = format!("unix:{}", two.scratch.data().join("socket").display());
    let state = text(&two.scratch.path("elsewhere")).to_owned();
    let recover = ["recover", "--server", &socket, "--state-dir", &state, "--id", &id];
    refused(&recover, 1, "--merge, --discard or --as-branch");
    done(&[&recover[..], &["--merge"]].concat());
    assert_eq!(fs::read(far.join("kept")).expect("merged"), b"kept");
    refused(&[&recover[..], &["--merge"]].concat(), 4, "there is no decoupling");
}

/// S64: "A mount that ends in order merges its weak subtrees and gives them back."
#[test]
fn the_end_of_a_mount_merges_weak_subtrees_and_keeps_invisible_ones() {
    let Some(mut two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    let hidden = two.near.path("hidden");
    fs::create_dir(&hidden).expect("a directory");
    done(&["policy", "set", text(&hidden), "deltafs"]);
    fs::write(near.join("weak"), "weak").expect("a write");
    fs::write(hidden.join("invisible"), "invisible").expect("a write");
    assert_eq!(two.decouplings().len(), 2);
    refused(&["recouple", text(&hidden)], 1, "--discard");
    let next = Mounted::beside(&two.scratch, "next", &["--state-dir", text(&two.scratch.path("next-state"))]);
    std::mem::replace(&mut two.near, next).unmount();
    assert_eq!(fs::read(far.join("weak")).expect("merged"), b"weak");
    assert_eq!(errno(fs::metadata(two.far.path("hidden"))), Some(libc_busy()));
    // The next mount on this machine resumes it.
    let back = mount_near(&two.scratch, "again");
    assert_eq!(fs::read(back.path("hidden/invisible")).expect("kept"), b"invisible");
    done(&["recouple", "--merge", text(&back.path("hidden"))]);
    assert_eq!(fs::read(two.far.path("hidden/invisible")).expect("merged"), b"invisible");
    back.unmount();
}

/// S65: open files continue; S54: a policy that is set while the directory is in use.
#[test]
fn open_files_continue_when_their_directory_is_decoupled() {
    let Some(two) = Two::new() else { return };
    let (near, far) = (two.near.path("job"), two.far.path("job"));
    fs::create_dir(&near).expect("a directory");
    fs::write(near.join("read"), "what is read").expect("a write");
    fs::write(near.join("written"), "0123456789").expect("a write");
    let reader = File::open(near.join("read")).expect("an open");
    let writer = File::options().read(true).write(true).open(near.join("written")).expect("an open");
    writer.write_all_at(b"before", 0).expect("a write");
    done(&["policy", "set", text(&near), "batchfs"]);
    fs::write(near.join("new"), "new").expect("decouples");
    assert_eq!(two.decouplings().len(), 1);
    let mut got = [0; 12];
    reader.read_exact_at(&mut got, 0).expect("it goes on");
    assert_eq!(&got, b"what is read");
    writer.write_all_at(b"after", 10).expect("it goes on");
    assert_eq!(fs::read(near.join("written")).expect("a read"), b"before6789after");
    // As long as it is open for writing, nothing is given back but by force.
    refused(&["merge", text(&near)], 3, "open for writing");
    drop(writer);
    done(&["merge", text(&near)]);
    assert_eq!(fs::read(far.join("written")).expect("merged"), b"before6789after");
    // The reader continues, and sees later changes of others.
    done(&["policy", "set", text(&near), "posix"]);
    fs::write(far.join("read"), "what is READ").expect("a write");
    let mut got = [0; 12];
    until("the reader sees it", || {
        reader.read_exact_at(&mut got, 0).expect("it goes on");
        &got == b"what is READ"
    });
}

/// S66: by force, descriptors that are open for writing answer EIO.
#[test]
fn by_force_a_subtree_is_given_back_from_under_its_writers() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("batchfs");
    let mut file = File::create(near.join("file")).expect("a file");
    file.write_all(b"merged").expect("a write");
    done(&["recouple", "--force", text(&near)]);
    assert_eq!(fs::read(far.join("file")).expect("merged"), b"merged");
    let lost = file.write_all(b"lost").and_then(|()| file.sync_all());
    assert_eq!(errno(lost), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(two.near.process.said().contains("open for writing"));
}

/// S66: an administrator ends the decoupling of a client that is gone for good.
#[test]
fn force_ends_the_decoupling_of_a_vanished_client() {
    let Some(mut two) = Two::new() else { return };
    let (near, far) = two.job("deltafs");
    fs::write(near.join("file"), "never merged").expect("a write");
    File::open(near.join("file")).and_then(|file| file.sync_all()).expect("durable");
    two.near.process.kill();
    let number = two.decouplings()[0]["realm"].clone();
    refused(&["recouple", text(&far)], 3, &format!("--id {number} --force"));
    let ended = done(&["recouple", "--force", "--yes", text(&far)]);
    assert!(ended.contains(&format!("wait as branch ended-{number}")), "{ended}");
    assert_eq!(fs::read_dir(&far).expect("it is back").count(), 0);
    // The old client's journal is refused from now on.
    let socket = format!("unix:{}", two.scratch.data().join("socket").display());
    let state = text(&two.scratch.path("state")).to_owned();
    let out = run(&["recover", "--server", &socket, "--state-dir", &state, "--merge"]);
    assert_eq!(out.status.code(), Some(3), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(fs::read_dir(&far).expect("as before").count(), 0);
    // It is not lost.
    done(&["recover", "--server", &socket, "--state-dir", &state, "--as-branch", "rescued"]);
    done(&["branch", "merge", "--state-dir", &state, text(&far), "rescued"]);
    assert_eq!(fs::read(far.join("file")).expect("merged"), b"never merged");
}
