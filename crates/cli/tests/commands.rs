//! The command as users and scripts see it: exit codes, messages with advice, JSON.

mod program;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use program::{chiton, done, json, refused};
use serde_json::Value;

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Runs a command with this on standard input.
fn piped(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    // One that reads no further has closed the pipe.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

/// Ends a process as a crash would. (A bare Debian has no program `kill`.)
fn kill(pid: i64) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
}

/// A mount in the background, ended when dropped.
struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    fn start() -> Mounted {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("mnt")).expect("a mount point");
        let mounted = Mounted { dir };
        done(&["format", &mounted.data()]);
        mounted.mount();
        mounted
    }

    fn mount(&self) -> Value {
        let said = done(&["mount", "--json", "--data", &self.data(), &self.mnt()]);
        serde_json::from_str(&said).expect("JSON")
    }

    fn data(&self) -> String {
        text(&self.dir.path().join("data")).to_string()
    }

    fn mnt(&self) -> String {
        text(&self.dir.path().join("mnt")).to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("mnt").join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = chiton(&["umount", "--lazy", &self.mnt()]);
    }
}

#[test]
fn two_commands_to_a_mount_and_it_is_there_again_after_a_umount() {
    let mounted = Mounted::start();
    fs::write(mounted.file("a"), "kept").expect("a write");
    let status: Value = json(&["status", "--json", &mounted.mnt()]);
    assert_eq!(status["inodes"], 2);
    let df: Value = json(&["df", "--json", &mounted.data()]);
    assert!(df["bytes_total"].as_u64().is_some_and(|n| n > 0), "{df}");
    assert!(done(&["flush", &mounted.mnt()]).contains("durable"));
    let top = done(&["top", "--count", "1", "--interval", "0.05", "--json", &mounted.mnt()]);
    assert!(serde_json::from_str::<Value>(&top).expect("JSON").is_object(), "{top}");
    done(&["umount", &mounted.mnt()]);
    assert!(!mounted.file("a").exists());
    mounted.mount();
    assert_eq!(fs::read_to_string(mounted.file("a")).expect("it is there"), "kept");
}

#[test]
fn a_killed_mount_keeps_synced_data() {
    let mounted = Mounted::start();
    done(&["umount", &mounted.mnt()]);
    let pid = mounted.mount()["pid"].as_i64().expect("a pid");
    fs::write(mounted.file("synced"), vec![7; 100_000]).expect("a write");
    fs::File::open(mounted.file("synced")).and_then(|f| f.sync_all()).expect("an fsync");
    kill(pid);
    // Its files are closed last.
    while rustix::fs::statvfs(mounted.mnt()).is_ok() {
        std::thread::yield_now();
    }
    refused(
        &["mount", "--data", &mounted.data(), &mounted.mnt()],
        3,
        "has died: detach the mount (chiton umount --lazy",
    );
    done(&["umount", "--lazy", &mounted.mnt()]);
    mounted.mount();
    assert_eq!(fs::read(mounted.file("synced")).expect("it is there"), vec![7; 100_000]);
}

#[test]
fn a_store_in_use_names_its_holder_and_can_be_taken_over() {
    let mounted = Mounted::start();
    let second = mounted.dir.path().join("second");
    fs::create_dir(&second).expect("a mount point");
    refused(&["mount", "--data", &mounted.data(), text(&second)], 3, "--take-over");
    refused(&["serve", "--data", &mounted.data()], 3, "in use by process");
    fs::write(mounted.file("before"), "x").expect("a write");
    done(&["mount", "--take-over", "--data", &mounted.data(), text(&second)]);
    assert_eq!(fs::read_to_string(second.join("before")).expect("what was there"), "x");
    done(&["umount", text(&second)]);
}

#[test]
fn one_server_two_mounts() {
    let first = Mounted::start();
    let second = first.dir.path().join("second");
    fs::create_dir(&second).expect("a mount point");
    let socket = format!("unix:{}/socket", first.data());
    done(&["mount", "--server", &socket, text(&second)]);
    fs::write(first.file("f"), "from the first").expect("a write");
    assert_eq!(fs::read_to_string(second.join("f")).expect("a read"), "from the first");
    fs::write(second.join("f"), "from the second, longer").expect("a write");
    assert_eq!(fs::read_to_string(first.file("f")).expect("a read"), "from the second, longer");
    fs::rename(second.join("f"), second.join("g")).expect("a rename");
    assert!(!first.file("f").exists());
    assert_eq!(fs::metadata(first.file("g")).expect("the new name").size(), 23);
    done(&["umount", text(&second)]);
}

#[test]
fn refusals_name_the_next_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| text(&dir.path().join(name)).to_string();
    fs::create_dir(path("mnt")).expect("a folder");
    fs::create_dir(path("full")).expect("a folder");
    fs::write(path("full/x"), "").expect("a file");

    refused(&["mount", "--data", &path("d"), &path("nowhere")], 4, "make the directory first");
    refused(&["mount", "--server", "tcp:127.0.0.1:1", &path("mnt")], 4, "127.0.0.1:1");
    refused(&["mount", "--server", "unix:/no/such/socket", &path("mnt")], 4, "/no/such/socket");
    refused(&["mount", "--data", &path("full"), &path("mnt")], 4, "full");
    for command in [&["mount", &path("mnt")][..], &["recover"]] {
        refused(command, 2, "--data");
        refused(command, 2, "--server");
    }
    refused(&["mount", "--server", "tcp:127.0.0.1:1", &path("full")], 3, "--nonempty");
    refused(&["load", &path("nowhere")], 4, "create one (chiton format");
    refused(&["load", &path("mnt")], 4, "chiton format");
    refused(&["dump", &path("nowhere")], 4, "create one (chiton format");
    refused(&["status", &path("nowhere")], 4, "does not exist; name a mount point");
    // The place of a data disk that is not mounted: nothing is made there, in the foreground either.
    fs::create_dir(path("disk")).expect("a folder");
    for data in ["disk", "disk/data"] {
        refused(&["mount", "--data", &path(data), &path("mnt")], 4, "chiton format");
        refused(&["mount", "-f", "--data", &path(data), &path("mnt")], 4, "if its disk is not mounted");
    }
    assert!(
        fs::read_dir(path("disk"))
            .expect("listed")
            .all(|entry| { entry.expect("an entry").file_name().to_string_lossy().ends_with(".log") })
    );
    refused(&["mount", "--format", "--server", "unix:/b", &path("mnt")], 2, "cannot be used with");
    refused(&["mount", "--data", "a", "--server", "unix:/b", &path("mnt")], 2, "cannot be used with");
    refused(&["mount", "--data", &path("d"), "--threads", "0", &path("mnt")], 2, "threads");
    refused(&["serve", "--data", &path("mnt")], 4, "chiton format");
    refused(&["serve", "--data", &path("mnt"), "--cache", "lots"], 2, "K, M, G");
    refused(&["format", &path("full")], 3, "not empty");
    refused(&["format", &path("new"), "--shards", "0"], 2, "shards");
    refused(&["status", &path("mnt")], 4, "neither a mount point");
    refused(&["umount", &path("mnt")], 1, "cannot unmount");

    done(&["format", &path("new")]);
    refused(&["format", &path("new")], 3, "already");
    assert!(done(&["status", &path("new")]).contains("no server is running"));
}

/// As mount(8) and umount(8) call their helpers, also for lines of /etc/fstab.
#[test]
fn the_helpers_of_mount_and_umount_are_this_program_under_other_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| text(&dir.path().join(name)).to_owned();
    let (data, mnt) = (path("data"), path("mnt"));
    fs::create_dir(&mnt).expect("a mount point");
    fs::write(dir.path().join("mnt/hidden"), "").expect("a file");
    done(&["format", &data]);
    for name in ["mount.chiton", "umount.fuse.chiton"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_chiton"), path(name)).expect("a link");
    }
    let helper = |name: &str, words: &[&str]| {
        let out = Command::new(path(name)).args(words).output().expect("it runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, said) = helper("mount.chiton", &[&data, &mnt, "-o", "rw,_netdev,no_such_option"]);
    assert!(
        code == Some(1) && said.contains("mount.chiton: the option no_such_option is not known"),
        "{said}"
    );
    let (code, said) = helper("mount.chiton", &[&data, &mnt, "-o", "rw,_netdev"]);
    assert!(code == Some(3) && said.contains("is not empty"), "{code:?} {said}");
    let options = "noexec,nonempty,_netdev,nofail,x-systemd.automount,cache=64M";
    let (code, said) = helper("mount.chiton", &[&data, &mnt, "-n", "-o", options]);
    assert_eq!(code, Some(0), "{said}");
    let table = fs::read_to_string("/proc/self/mounts").expect("a table");
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(&mnt)).expect("it is mounted");
    assert!(line.contains("noexec") && line.contains("fuse.chiton"), "{line}");
    fs::write(dir.path().join("mnt/file"), "content").expect("a write");
    assert!(!dir.path().join("mnt/hidden").exists());
    let open = fs::File::open(dir.path().join("mnt/file")).expect("a file");
    let holder = format!("process {} (", std::process::id());
    refused(&["umount", &mnt], 3, &holder);
    refused(&["umount", &mnt], 3, &format!("chiton umount --lazy {mnt}"));
    drop(open);
    let (code, said) = helper("umount.fuse.chiton", &[&mnt]);
    assert_eq!(code, Some(0), "{said}");
    assert!(dir.path().join("mnt/hidden").exists());
    assert!(done(&["dump", &data]).contains("file"), "the process of the mount has ended");
}

/// The commands in the systemd units are valid, and systemd accepts the units, where it is installed.
#[test]
fn the_units_for_systemd_are_understood() {
    let dir = tempfile::tempdir().expect("a folder");
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut found = 0;
    for unit in fs::read_dir(units).expect("units") {
        let unit = unit.expect("a unit").path();
        let content = fs::read_to_string(&unit).expect("text");
        for line in content.lines().filter(|line| {
            line.contains("=/usr/local/bin/chiton ") || line.contains("=-/usr/local/bin/chiton ")
        }) {
            let (_, words) = line.split_once("/usr/local/bin/chiton ").expect("just seen");
            let words = words
                .replace("%f", "/mnt/x")
                .replace("$CHITON_SOURCE", "--server tcp:host:1")
                .replace("$CHITON_OPTIONS", "");
            let args: Vec<&str> = words.split_whitespace().chain(["--help"]).collect();
            done(&args);
            found += 1;
        }
        let name = unit.file_name().expect("a name").to_str().expect("text").replace("@.", "@mnt-x.");
        let copy = dir.path().join(name);
        fs::write(&copy, content.replace("/usr/local/bin/chiton", env!("CARGO_BIN_EXE_chiton")))
            .expect("a copy");
        match Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&copy)
            .output()
        {
            Ok(out) => {
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert!(out.status.success() && !said.contains(text(&copy)), "{said}");
            }
            Err(error) => eprintln!("SKIPPED: systemd-analyze does not run here: {error}"),
        }
    }
    assert_eq!(found, 4);
}

#[test]
fn mount_formats_on_request_and_only_where_there_is_no_file_system() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| text(&dir.path().join(name)).to_string();
    fs::create_dir(path("mnt")).expect("a folder");
    done(&["mount", "--format", "--data", &path("d"), &path("mnt")]);
    fs::write(path("mnt/f"), "kept").expect("a write");
    done(&["umount", &path("mnt")]);
    refused(&["mount", "--format", "--data", &path("d"), &path("mnt")], 3, "without --format");
    done(&["mount", "--data", &path("d"), &path("mnt")]);
    assert_eq!(fs::read_to_string(path("mnt/f")).expect("it is there"), "kept");
    done(&["umount", &path("mnt")]);
}

/// As in `chiton … | head`.
#[test]
fn a_command_ends_quietly_when_its_reader_is_gone() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = Command::new(env!("CARGO_BIN_EXE_chiton"))
        .args(["policy", "presets"])
        .stdout(writer)
        .output()
        .expect("chiton runs");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(141), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let ended = Command::new(env!("CARGO_BIN_EXE_chiton"))
        .args(["policy", "presets"])
        .stdout(full)
        .output()
        .expect("chiton runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("cannot write the output"), "{said}");
}

#[test]
fn completions_are_there_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(done(&["completions", shell]).contains("umount"), "{shell}");
    }
}

#[test]
fn fsck_exit_codes_show_the_findings() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    done(&["format", text(&data)]);
    assert!(done(&["fsck", text(&data)]).contains("clean"));
    refused(&["fsck", "--repair", text(&data)], 8, "--repair --yes");
    refused(&["fsck", text(dir.path())], 8, "file system");
    let stray = data.join("objects/blocks/00ff000000000000/01");
    fs::create_dir_all(&stray).expect("a folder");
    fs::write(stray.join("0000000000000001"), [0; 21]).expect("a stray block");
    let out = chiton(&["fsck", "--json", text(&data)]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(4), "{said}");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["problem"], "leaked-block");
    assert_eq!(lines[1]["left"], 1);
    let out = chiton(&["fsck", "--repair", "--yes", text(&data)]);
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stdout));
    assert!(done(&["fsck", text(&data)]).contains("clean"));
}

#[test]
fn a_dump_of_one_file_system_becomes_another() {
    let mounted = Mounted::start();
    fs::create_dir(mounted.file("dir")).expect("a folder");
    fs::write(mounted.file("dir/a"), [5; 100_000]).expect("a write");
    fs::hard_link(mounted.file("dir/a"), mounted.file("b")).expect("a link");
    let served = done(&["dump", &mounted.mnt()]);
    // Checked beside its server; repaired only without.
    assert!(done(&["fsck", "--content", &mounted.mnt()]).contains("clean"));
    assert!(done(&["fsck", &mounted.data()]).contains("clean"));
    refused(&["fsck", "--repair", "--yes", &mounted.mnt()], 8, "has a running server");
    done(&["umount", &mounted.mnt()]);
    let file = text(&mounted.dir.path().join("dump")).to_string();
    done(&["dump", &mounted.data(), "-o", &file]);
    assert_eq!(fs::read_to_string(&file).expect("text"), served);
    refused(&["dump", &mounted.data(), "-o", &file], 1, "a new file");
    let other = text(&mounted.dir.path().join("other")).to_string();
    done(&["format", &other]);
    done(&["load", &other, &file]);
    assert_eq!(done(&["dump", &other]), served);
    refused(&["load", &other, &file], 1, "line 3");
    done(&["load", &other, &file, "--resume"]);
    assert!(done(&["fsck", "--content", &other]).contains("clean"));
}

#[test]
fn policies_are_set_explained_listed_and_removed_on_a_mount() {
    let mounted = Mounted::start();
    let at = |name: &str| text(&mounted.file(name)).to_owned();
    fs::create_dir(mounted.file("scratch")).expect("a directory");
    fs::create_dir(mounted.file("scratch/sub")).expect("a directory");
    fs::write(mounted.file("scratch/sub/f"), "x").expect("a file");
    assert!(
        done(&["policy", "set", &at("scratch"), "ramdisk"])
            .contains("rpcs (consistency strong, durability none)")
    );
    assert!(done(&["policy", "get", &at("scratch")]).contains("durability: none"));
    let explained: Value = json(&["policy", "explain", "--json", &at("scratch/sub/f")]);
    assert_eq!(
        (explained["root"].as_str(), explained["durability"].as_str()),
        (Some("/scratch"), Some("none"))
    );
    assert!(done(&["policy", "explain", &at("scratch/sub")]).contains("data that survive each failure"));
    // S17: "A rename or link out of a realm (a subtree with a policy of its own) is EXDEV, as between mounts."
    let crossed = fs::rename(mounted.file("scratch/sub/f"), mounted.file("f")).expect_err("a border");
    assert_eq!(crossed.kind(), std::io::ErrorKind::CrossesDevices);
    done(&["policy", "set", &at("scratch/sub"), "--interfere", "block", "--inodes", "100"]);
    let list: Value = json(&["policy", "list", "--json", &mounted.mnt()]);
    assert_eq!(list["policies"].as_array().map(Vec::len), Some(2));
    assert_eq!(list["policies"][1]["composition"], "rpcs", "inherited");
    assert!(done(&["policy", "list", "--history", &mounted.mnt()]).contains("/scratch/sub"));
    refused(&["policy", "set", &at("scratch"), "calvinfs"], 1, "does not carry out replicate yet");
    refused(&["policy", "get", &mounted.mnt()], 4, "policy explain");
    let bad = mounted.dir.path().join("bad.yml");
    fs::write(&bad, "consistency: rpcs\ndurability: stream + local_persist\n").expect("a file");
    refused(
        &["policy", "set", &at("scratch"), text(&bad)],
        1,
        "nearest that makes sense: composition: rpcs + stream",
    );
    fs::hard_link(mounted.file("scratch/sub/f"), mounted.file("scratch/sub/g")).expect("a link within");
    fs::create_dir(mounted.file("scratch/sub/deep")).expect("a directory");
    fs::hard_link(mounted.file("scratch/sub/f"), mounted.file("scratch/sub/deep/h")).expect("a link within");
    refused(&["policy", "set", &at("scratch/sub/deep"), "posix"], 1, "/scratch/sub/deep/h");
    let out = piped(&["policy", "set", &at("scratch/sub"), "-"], "data: lazy\n");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(done(&["policy", "get", &at("scratch/sub")]), "data: lazy\n");
    for (policy, words) in [("no: key", "standard input: line 1"), (&"#".repeat(20_000), "too long")] {
        let out = piped(&["policy", "set", &at("scratch/sub"), "-"], policy);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && said.contains(words), "{said}");
    }
    assert!(piped(&["policy", "explain", "-"], "durability: local").status.success());
    done(&["policy", "rm", &at("scratch/sub")]);
    done(&["policy", "rm", &at("scratch")]);
    fs::rename(mounted.file("scratch/sub/f"), mounted.file("f")).expect("no border any more");
}

/// S29: "The root directory of a new file system belongs to the user who formatted it."
#[test]
fn a_file_system_belongs_to_the_user_who_formats_it() {
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let mut program = PathBuf::from(env!("CARGO_BIN_EXE_chiton"));
    let mut owner = fs::metadata(dir.path()).expect("there").uid();
    let is_root = owner == 0;
    if is_root {
        // The other user may not be able to enter the directory of the build (root's home directory is closed to them).
        let near = dir.path().join("chiton");
        fs::hard_link(&program, &near).or_else(|_| fs::copy(&program, &near).map(drop)).expect("a program");
        program = near;
        owner = 65534;
        std::os::unix::fs::chown(dir.path(), Some(owner), Some(owner)).expect("an owner");
    }
    let mut format = Command::new(program);
    if is_root {
        format.uid(owner).gid(owner);
    }
    let out = format.arg("format").arg(&data).output().expect("the program runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let dump = done(&["dump", text(&data)]);
    assert!(dump.contains(&owner.to_string()), "{dump}");
}

#[test]
fn several_plates_are_formatted_served_and_checked() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join("mnt")).expect("a mount point");
    let mounted = Mounted { dir };
    let (data, mnt) = (mounted.data(), mounted.mnt());
    refused(&["format", &data, "--plates", "65"], 1, "cannot have 65 plates: name 1 to 64");
    refused(&["format", &data, "--plates", "0"], 1, "cannot have 0 plates");
    done(&["format", &data, "--plates", "3"]);
    let status = || -> Value { json(&["status", &data, "--json"]) };
    assert_eq!(status()["journals"].as_array().map(Vec::len), Some(3));
    assert!(done(&["status", &data]).contains("plate 2: everything that was acknowledged"));
    done(&["fsck", &data]);
    assert!(done(&["fsck", &data, "--repair", "--yes"]).contains("clean"));
    refused(&["fsck", &data, "--rebuild", "--yes"], 8, "has 3 plates");
    refused(&["serve", "--salvage", "--data", &data], 1, "has 3 plates");
    refused(&["view", "--data", &data, "/"], 1, "has 3 plates");
    assert!(done(&["journal", "inspect", &data, "--plate", "2"]).contains("OK"));
    refused(&["journal", "inspect", &data, "--plate", "3"], 4, "has no plate 3: its plates are 0 to 2");
    refused(&["journal", "header", "get", &data, "--plate", "3"], 4, "has no plate 3");
    mounted.mount();
    let said = done(&["status", &mnt]);
    assert!(said.contains("healthy") && said.contains("plate 1: 0 files"), "{said}");
    let socket = format!("unix:{data}/socket");
    let suite = ["conformance", "directory", "--server", &socket];
    assert!(done(&suite).contains(" 0 failed, 0 not applicable"));
    let one = done(&[&suite[..], &["--clause", "D46", "--json"]].concat());
    let one: Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!((&one["passed"], &one["clauses"][1]["state"]), (&2.into(), &"split".into()));
    refused(&[&suite[..], &["--path", "/none"]].concat(), 1, "cannot find none of --path");
    refused(&[&suite[..], &["--clause", "D999"]].concat(), 2, "has no clause D999");
    refused(&["conformance", "directory", "--server", &format!("unix:{data}/none")], 4, "start the server");
    assert_eq!(status()["plates"].as_array().map(Vec::len), Some(3));
    for n in 0..8 {
        let dir = format!("{mnt}/dir{n}");
        fs::create_dir(&dir).expect("made");
        fs::write(format!("{dir}/small"), "a few bytes").expect("written");
        fs::write(format!("{dir}/large"), vec![n; 1 << 20]).expect("written");
    }
    fs::remove_file(format!("{mnt}/dir7/small")).expect("removed");
    refused(&["policy", "set", &mnt, "ramdisk"], 1, "several plates");
    refused(&["decouple", &mnt], 1, "lies on several plates");
    assert!(done(&["fsck", "--content", &mnt]).contains("clean"));
    refused(&["fsck", "--repair", "--yes", &mnt], 8, "has a running server");
    refused(&["view", &mnt], 1, "has 3 plates, and chiton view works only with one");
    done(&["umount", &mnt]);
    done(&["fsck", "--content", &data]);
    mounted.mount();
    for n in 0..8 {
        assert_eq!(fs::read(format!("{mnt}/dir{n}/large")).expect("read"), vec![n; 1 << 20]);
    }
    assert!(fs::metadata(format!("{mnt}/dir7/small")).is_err());
    done(&["umount", &mnt]);
}
