//! Commands on whole trees, as users and scripts see them: through paths of a mount and past it, on a server with several plates.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use program::{chiton, done, json, refused};

fn serve(data: &str) -> Child {
    let mut server = Command::new(env!("CARGO_BIN_EXE_chiton"))
        .args(["serve", "--data", data])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("chiton runs");
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("serving")), "the server says when it serves");
    std::thread::spawn(move || lines.for_each(drop));
    server
}

/// A server of three plates, and a mount of it.
struct Site {
    dir: TempDir,
    server: Child,
}

impl Site {
    fn start() -> Site {
        let dir = tempfile::tempdir().expect("a folder");
        let data = dir.path().join("data").display().to_string();
        done(&["format", &data, "--plates", "3"]);
        let server = serve(&data);
        let site = Site { dir, server };
        fs::create_dir(site.dir.path().join("mnt")).expect("a mount point");
        done(&["mount", "--server", &site.socket(), &site.path("")]);
        site
    }

    /// The server dies, and another one starts.
    fn crash(&mut self) {
        self.crash_and(|_| {});
    }

    /// The same, and something is done with the data meanwhile.
    fn crash_and(&mut self, meanwhile: impl FnOnce(&str)) {
        let data = self.dir.path().join("data").display().to_string();
        self.server.kill().expect("it lives");
        self.server.wait().expect("it ends");
        meanwhile(&data);
        self.server = serve(&data);
    }

    fn socket(&self) -> String {
        format!("unix:{}/data/socket", self.dir.path().display())
    }

    /// A path in the mount.
    fn path(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn at(&self, name: &str) -> PathBuf {
        match name {
            "" => self.dir.path().join("mnt"),
            name => self.dir.path().join("mnt").join(name),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = chiton(&["umount", "--lazy", &self.path("")]);
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Makes directories of a hundred files each.
fn fill(root: &Path, dirs: usize) {
    for dir in 0..dirs {
        let dir = root.join(format!("dir-{dir}"));
        fs::create_dir_all(&dir).expect("made");
        for file in 0..100 {
            fs::write(dir.join(format!("file-{file}.txt")), "content").expect("written");
        }
    }
}

#[test]
fn a_tree_of_a_mount_is_counted_copied_changed_and_removed() {
    let site = Site::start();
    fill(&site.at("tree"), 20);
    fs::write(site.at("tree/large.bin"), vec![7; 300_000]).expect("written");
    fs::write(site.at("kept"), "kept").expect("written");
    symlink("..", site.at("tree/up")).expect("linked");
    symlink(site.at("kept"), site.at("tree/out")).expect("linked");
    fs::hard_link(site.at("tree/large.bin"), site.at("tree/same.bin")).expect("linked");

    let tree = site.path("tree");
    let usage = json(&["du", "--json", "--depth", "1", &tree]);
    let total = &usage["usage"][0];
    assert_eq!((&total["files"], &total["directories"]), (&2_003.into(), &21.into()), "{total}");
    assert_eq!(usage["usage"].as_array().map(Vec::len), Some(21));
    assert!(done(&["du", &tree]).contains("2003"));

    let found = done(&["find", &tree, "--name", "file-7.*", "--type", "f"]);
    assert_eq!(found.lines().count(), 20);
    assert!(found.lines().all(|line| line.starts_with(&tree) && line.ends_with("/file-7.txt")), "{found}");
    assert_eq!(done(&["find", &tree, "--size", "+100K", "-0"]).matches('\0').count(), 2);
    assert_eq!(done(&["find", &tree, "--older", "1d"]), "");
    assert_eq!(done(&["find", &tree, "--newer", "1d", "--max-depth", "1"]).lines().count(), 1 + 20 + 4);

    let long = done(&["ls", "-l", &tree]);
    assert!(long.contains("large.bin") && long.contains(&format!("out -> {}", site.path("kept"))), "{long}");
    assert_eq!(done(&["ls", "--json", &tree]).lines().count(), 24);
    assert_eq!(done(&["ls", "-d", &tree]), format!("{tree}\n"));

    let copy = site.path("copy");
    let copied = json(&["cp", "-r", "--json", &tree, &copy]);
    assert_eq!((&copied["files"], &copied["directories"]), (&2_004.into(), &21.into()), "{copied}");
    assert_eq!(fs::read(site.at("copy/large.bin")).expect("read"), vec![7; 300_000]);
    let same = |name: &str| fs::metadata(site.at(name)).expect("there").ino();
    assert_eq!(same("copy/large.bin"), same("copy/same.bin"));
    assert_ne!(same("copy/large.bin"), same("tree/large.bin"));
    let mtime = |name: &str| fs::metadata(site.at(name)).expect("there").modified().expect("a time");
    assert_eq!(mtime("copy/dir-3"), mtime("tree/dir-3"));
    // Into a directory that is there.
    let into = site.path("copy/into");
    fs::create_dir(&into).expect("made");
    done(&["cp", "-r", &site.path("tree/dir-1"), &site.path("tree/dir-2"), &into]);
    refused(&["cp", "-r", &site.path("tree/dir-1"), &into], 1, "file exists");

    done(&["chmod", "-R", "u+rwX,go=", &copy]);
    let mode = |name: &str| fs::metadata(site.at(name)).expect("there").permissions().mode() & 0o7777;
    assert_eq!(
        (mode("copy/dir-5"), mode("copy/dir-5/file-5.txt"), mode("tree/dir-5/file-5.txt")),
        (0o700, 0o600, 0o644)
    );
    done(&["chown", "-R", "12:34", &copy]);
    let owner = fs::symlink_metadata(site.at("copy/up")).expect("there");
    assert_eq!((owner.uid(), owner.gid()), (12, 34));

    let would = done(&["rm", "-r", "--dry-run", &copy]);
    assert_eq!(would.lines().count(), 2_025 + 203);
    let removed = json(&["rm", "-r", "--json", "--each", &copy]);
    assert_eq!((&removed["files"], &removed["refused"]), (&2_204.into(), &0.into()), "{removed}");
    let removed = json(&["rm", "-r", "--json", &tree]);
    assert_eq!((&removed["trees"], &removed["refused"]), (&1.into(), &0.into()), "{removed}");
    let left: Vec<_> =
        fs::read_dir(site.at("")).expect("listed").map(|one| one.expect("an entry").file_name()).collect();
    assert_eq!(left, ["kept"]);
}

/// No client is left that could send the changes again.
#[test]
fn changes_outlive_a_crash_of_the_server_after_the_command() {
    let mut site = Site::start();
    fill(&site.at("tree"), 3);
    let (tree, copy) = (site.path("tree"), site.path("copy"));
    done(&["cp", "-r", &tree, &copy]);
    site.crash();
    let copied = json(&["du", "--json", &copy]);
    assert_eq!(copied["usage"][0]["files"], 300, "{copied}");
    done(&["chmod", "-R", "go=", &copy]);
    done(&["chown", "-R", "12:34", &copy]);
    site.crash();
    for dir in 0..3 {
        let meta = fs::metadata(site.at(&format!("copy/dir-{dir}/file-99.txt"))).expect("there");
        assert_eq!((meta.mode() & 0o777, meta.uid(), meta.gid()), (0o600, 12, 34));
    }
    // In directories with parts on all plates, too.
    fs::create_dir(site.at("wide")).expect("made");
    let policy = site.dir.path().join("policy.yaml").display().to_string();
    fs::write(&policy, "huge: always\n").expect("written");
    done(&["policy", "set", &site.path("wide"), &policy]);
    fill(&site.at("wide/tree"), 4);
    for gone in [copy, site.path("wide/tree")] {
        assert_eq!(json(&["rm", "-r", "--json", &gone])["trees"], 1);
        // The plates have not freed all of it.
        site.crash_and(|data| assert!(done(&["fsck", data]).contains("clean")));
        assert!(!Path::new(&gone).exists());
    }
    assert!(site.at("tree/dir-2/file-99.txt").exists());
}

#[test]
fn names_that_the_mount_holds_back_are_met() {
    let site = Site::start();
    fs::create_dir(site.at("new")).expect("made");
    let mut open = fs::File::create(site.at("new/open")).expect("made");
    std::io::Write::write_all(&mut open, &[1; 50_000]).expect("written");
    fs::write(site.at("new/just-made"), "x").expect("written");
    done(&["cp", "-r", &site.path("new"), &site.path("copy")]);
    assert_eq!(
        fs::metadata(site.at("copy/open")).expect("there").len(),
        50_000,
        "what was written is copied"
    );
    assert_eq!(json(&["rm", "-r", "--json", &site.path("new")])["trees"], 1);
    assert!(!site.at("new").exists());
    // Through paths of programs: relative, with links on the way, from the root of the file system.
    symlink("copy", site.at("link")).expect("linked");
    fs::create_dir(site.at("copy/below")).expect("made");
    done(&["rm", "-r", &site.path("link/below")]);
    assert!(!site.at("copy/below").exists() && site.at("link").exists());
    assert_eq!(done(&["ls", "--server", &site.socket(), "/copy"]), "just-made\nopen\n");
    refused(&["rm", "-r", &site.path("link/")], 1, "without the slash");
    done(&["rm", &site.path("link")]);
    assert!(site.at("copy/open").exists(), "a link is removed itself");
}

#[test]
fn refusals_say_what_to_do_next() {
    let site = Site::start();
    fs::create_dir_all(site.at("tree/inner")).expect("made");
    let tree = site.path("tree");
    refused(&["rm", &tree], 1, "it is a directory; add -r");
    refused(&["cp", &tree, &site.path("copy")], 1, "it is a directory; add -r");
    refused(&["rm", "-r", &site.path("nothing")], 4, "does not exist");
    refused(&["rm", "-r", &site.path("nothing/below")], 4, "does not exist");
    done(&["rm", "-rf", &site.path("nothing")]);
    refused(&["rm", "-r", &site.path("")], 1, "the root of the file system");
    refused(&["rm", "-r", &site.path("tree/..")], 1, "no entry of a directory");
    refused(&["rm", "-r", "/tmp"], 4, "not in a mount of Chiton");
    refused(&["rm", "-r", "--server", &site.socket(), "tree"], 1, "begins with /");
    refused(&["cp", "-r", &tree, &site.path("tree/inner")], 1, "cannot copy into itself");
    refused(&["chown", "nobody-of-that-name", &tree], 1, "no passwd");
    refused(&["chmod", "rwx", &tree], 2, "is no mode");
    let out = chiton(&["rm", "-r", "--json", &tree, &site.path("nothing")]);
    let said: Value = serde_json::from_slice(&out.stdout).expect("JSON, whatever is refused");
    assert_eq!((out.status.code(), &said["trees"], &said["refused"]), (Some(4), &1.into(), &1.into()));
    assert!(
        said["refusals"][0]["reason"].as_str().is_some_and(|why| why.contains("does not exist")),
        "{said}"
    );
    // Another file system is mounted inside.
    fs::create_dir_all(site.at("tree/inner")).expect("made");
    done(&["mount", "--server", &site.socket(), &site.path("tree/inner")]);
    refused(&["rm", "-r", &tree], 3, "is mounted on");
    done(&["umount", "--lazy", &site.path("tree/inner")]);
}

#[test]
fn decoupled_subtrees_are_left_to_their_mounts() {
    let site = Site::start();
    fs::create_dir_all(site.at("tree/beside")).expect("made");
    fs::create_dir_all(site.at("tree/job")).expect("made");
    done(&["policy", "set", &site.path("tree/job"), "batchfs"]);
    done(&["decouple", &site.path("tree/job")]);
    fs::write(site.at("tree/job/result"), "x").expect("written");
    let out = chiton(&["rm", "-r", "--json", &site.path("tree")]);
    let said: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(
        (out.status.code(), &said["directories"], &said["refused"]),
        (Some(1), &1.into(), &1.into()),
        "{said}"
    );
    assert!(said["refusals"][0]["path"].as_str().is_some_and(|path| path.ends_with("tree/job")), "{said}");
    assert_eq!(fs::read_to_string(site.at("tree/job/result")).expect("there"), "x");
    refused(&["rm", "-r", &site.path("tree")], 1, "chiton decoupled");
    done(&["merge", &site.path("tree/job")]);
    done(&["rm", "-r", &site.path("tree")]);
}

#[test]
fn an_interrupt_ends_a_command_in_order() {
    let site = Site::start();
    fill(&site.at("tree"), 100);
    let mut find = Command::new(env!("CARGO_BIN_EXE_chiton"))
        .args(["find", &site.path("tree")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut out = find.stdout.take().expect("a pipe");
    // More than the pipe holds is to come.
    out.read_exact(&mut [0; 100]).expect("the first names");
    let pid = rustix::process::Pid::from_child(&find);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    out.read_to_end(&mut Vec::new()).expect("the rest");
    let ended = find.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
}

/// S147: "Nothing can be changed by a path in a read-only mount …"
#[test]
fn a_read_only_mount_stops_every_command_that_changes_something() {
    let site = Site::start();
    let other = |name: &str| {
        let dir = site.dir.path().join(name);
        fs::create_dir(&dir).expect("a mount point");
        dir
    };
    let (read_only, bound) = (other("read-only"), other("bound"));
    done(&["mount", "--read-only", "--server", &site.socket(), &read_only.display().to_string()]);
    rustix::mount::mount_bind(site.at(""), &bound).expect("bound");
    let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&bound, flags, c"").expect("remounted");
    fs::create_dir_all(site.at("dir/sub")).expect("made");
    fs::write(site.at("dir/file"), "content").expect("written");
    symlink(&read_only, site.at("way")).expect("linked");
    let dump = site.dir.path().join("dump").display().to_string();
    done(&["dump", &site.socket(), "-o", &dump]);
    let before = done(&["dump", &site.socket()]);

    for mount in [&read_only, &bound, &site.at("way")] {
        let (top, dir) = (mount.display().to_string(), mount.join("dir").display().to_string());
        let copy = mount.join("copy").display().to_string();
        let changes: &[&[&str]] = &[
            &["rm", "-r", &dir],
            &["cp", "-r", &dir, &copy],
            &["chmod", "-R", "700", &dir],
            &["chown", "-R", "1:1", &dir],
            &["huge", "split", &dir],
            &["huge", "fold", &dir],
            &["load", &top, &dump, "--into", "/dir/sub"],
            &["fsck", "--repair", "--yes", &top],
            &["policy", "set", &dir, "ramdisk"],
            &["policy", "rm", &dir],
            &["decouple", &dir],
            &["sync", &dir],
            &["merge", &dir],
            &["discard", &dir],
            &["recouple", &dir],
            &["resolve", &dir, "--theirs"],
            &["run", "--path", &dir, "--", "true"],
            &["branch", "create", &dir, "b"],
            &["branch", "rebase", &dir, "b"],
            &["branch", "resolve", &dir, "b", "file", "--theirs"],
            &["branch", "merge", &dir, "b"],
            &["branch", "delete", &dir, "b"],
            &["rm", "-r", "--server", &top, "/dir"],
        ];
        for command in changes {
            refused(command, 1, "Read-only file system");
            refused(command, 1, "name a path in a mount that is not read-only, or the server's address");
        }
        for command in [&["ls", &dir][..], &["du", &dir], &["rm", "-r", "--dry-run", &dir], &["flush", &top]]
        {
            done(command);
        }
    }
    assert_eq!(done(&["dump", &site.socket()]), before);
    // A link itself is in the mount that holds it, and a copy may come from a read-only mount.
    done(&["cp", "-r", &read_only.join("dir").display().to_string(), &site.path("copy")]);
    done(&["rm", &site.path("way")]);
    for mount in [&bound, &read_only] {
        done(&["umount", &mount.display().to_string()]);
    }
}
