//! A file system that one server has served grows into a cluster without losing a byte, also if the growth is killed in between.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use chiton_etcd_process::Etcd;
use chiton_moto::Moto;
use rustix::fs::{
    CWD, FileType, Mode, XattrFlags, copy_file_range, getxattr, listxattr, makedev, mknodat, setxattr,
};
use serde_json::Value;
use tempfile::TempDir;

/// How often something is looked for that must come, and the time between.
const LOOKS: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);
/// Entries of the large directory.
const MANY: usize = 1_200;
const JOB_POLICY: &str = "consistency: weak\ndurability: local\nallocated_inodes: 1000\n";
/// Larger than a block.
const LARGE: usize = 20 << 20;

struct Site {
    // Ended in this order.
    servers: Vec<Child>,
    etcd: Etcd,
    moto: Option<&'static Moto>,
    dir: TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        for mount in ["old", "new"] {
            let _ = self.run(&["umount", "--lazy", &self.path(mount)]);
        }
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["etcd", "old", "new"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        let etcd = Etcd::start(&dir.path().join("etcd"), 1).expect("an etcd");
        Site { servers: Vec::new(), etcd, moto: None, dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
        command.args(words).env("CHITON_MONITOR", self.etcd.address()).stdin(Stdio::null());
        command.envs(self.moto.iter().flat_map(|moto| moto.environment()));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("chiton runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let out = self.run(words);
        let said = String::from_utf8_lossy(&out.stderr);
        let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "chiton {words:?} ({}): {said}{stdout}", out.status);
        stdout
    }

    fn refused(&self, words: &[&str], why: &str) {
        let out = self.run(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success(), "chiton {words:?}: {said}");
        assert!(said.contains(why), "chiton {words:?} does not say {why:?}: {said}");
    }

    /// Mounts the file system of one server; the process that does.
    fn mount_old(&self) -> i32 {
        let (source, old, state) = (self.path("source"), self.path("old"), self.path("state"));
        let said = self.done(&["mount", "--json", "--data", &source, "--state-dir", &state, &old]);
        let said: Value = serde_json::from_str(&said).expect("JSON");
        i32::try_from(said["pid"].as_i64().expect("a process")).expect("a process")
    }

    fn mount_new(&self) {
        // CHITON_MONITOR says which cluster.
        self.done(&["mount", "--state-dir", &self.path("state"), &self.path("new")]);
    }

    fn set_policy(&self, dir: &Path, policy: &str) {
        let file = self.path("policy");
        fs::write(&file, policy).expect("written");
        self.done(&["policy", "set", &dir.display().to_string(), &file]);
    }

    /// All policies and their history.
    fn policies(&self, mount: &str) -> Value {
        let said = self.done(&["policy", "list", "--history", "--json", &self.path(mount)]);
        serde_json::from_str(&said).expect("JSON")
    }

    fn grow(&self) -> Command {
        self.command(&[
            "cluster",
            "init",
            "--data",
            &self.path("target"),
            "--from",
            &self.path("source"),
            "--plates",
            "8",
        ])
    }

    fn serve(&mut self, name: &str) {
        let log = File::create(self.path(&format!("{name}.log"))).expect("a log");
        let address = format!("unix:{}", self.path(name));
        let words = ["serve", "--data", &self.path("target"), "--listen", &address];
        let mut command = self.command(&words);
        self.servers.push(command.stderr(log).spawn().expect("chiton runs"));
    }

    /// Waits until so many plates are with each server, and none moves.
    fn await_plates(&self, wanted: &[u64]) {
        let mut status = Value::Null;
        for _ in 0..LOOKS {
            let out = self.run(&["cluster", "status", "--json"]);
            status = serde_json::from_slice(&out.stdout).unwrap_or_default();
            let servers = status["servers"].as_array().cloned().unwrap_or_default();
            let counts: Vec<u64> = servers.iter().filter_map(|server| server["plates"].as_u64()).collect();
            if counts == wanted && status["plates_moving"] == 0 {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        let logs: Vec<String> = ["one.log", "two.log"]
            .into_iter()
            .filter_map(|name| fs::read_to_string(self.path(name)).ok())
            .collect();
        panic!("not {wanted:?}: {status}; {logs:?}");
    }

    /// Two servers that have half of the plates each.
    fn serve_with_two(&mut self) {
        self.serve("one");
        let is_known = Path::new(&self.path("two.log")).exists();
        self.await_plates(if is_known { &[8, 0] } else { &[8] });
        self.serve("two");
        self.await_plates(&[8, 0]);
        for _ in 0..LOOKS {
            // It has to live before it gets plates.
            let status = self.run(&["cluster", "status", "--json"]).stdout;
            let status: Value = serde_json::from_slice(&status).unwrap_or_default();
            if status["servers"][1]["up"] == true {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        self.done(&["cluster", "rebalance"]);
        self.await_plates(&[4, 4]);
    }

    fn stop_servers(&mut self) {
        for mut server in self.servers.drain(..) {
            let pid = rustix::process::Pid::from_child(&server);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
            assert!(server.wait().expect("it ends").success(), "it leaves in order");
        }
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
}

/// Bytes that no other seed gives.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect()
}

/// An access list: version, then tag, permissions and id of each entry.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 6, 1234), (4, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 4, u32::MAX)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Shares the blocks of a whole file.
fn clone_file(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).expect("opened"), File::create(to).expect("made"));
    let mut left = from.metadata().expect("read").len();
    while left > 0 {
        let copied = copy_file_range(&from, None, &to, None, left as usize).expect("copied");
        assert!(copied > 0, "the source has not ended");
        left -= copied as u64;
    }
}

/// One of everything.
fn make_tree(at: &Path) {
    for dir in 0..20 {
        let dir = at.join(format!("d{dir}"));
        fs::create_dir(&dir).expect("made");
        fs::create_dir(dir.join("below")).expect("made");
    }
    fs::write(at.join("d0/empty"), b"").expect("written");
    fs::write(at.join("d0/inline"), b"a few bytes").expect("written");
    fs::write(at.join("d1/large"), bytes(1, LARGE + 777)).expect("written");
    for n in 0..20 {
        fs::write(at.join(format!("d{n}/below/middle")), bytes(100 + n, 300_000 + n as usize))
            .expect("written");
    }
    fs::hard_link(at.join("d1/large"), at.join("d2/below/linked")).expect("linked");
    fs::hard_link(at.join("d0/inline"), at.join("d3/linked")).expect("linked");
    symlink("../d1/large", at.join("d4/symlink")).expect("linked");
    let sparse = File::create(at.join("d5/sparse")).expect("made");
    sparse.write_all_at(&bytes(2, 200_000), 70 << 20).expect("written");
    sparse.set_len(200 << 20).expect("grown");
    // Clones within a directory, and over many of them.
    for n in 0..8 {
        clone_file(&at.join("d6/below/middle"), &at.join(format!("d{}/clone", n + 6)));
    }
    clone_file(&at.join("d6/clone"), &at.join("d6/clone of it"));
    let part = File::options().write(true).open(at.join("d7/clone")).expect("opened");
    part.write_all_at(&bytes(3, 70_000), 100_000).expect("written");
    setxattr(at.join("d0/inline"), "user.small", b"value", XattrFlags::empty()).expect("set");
    setxattr(at.join("d8"), "user.of a directory", &bytes(4, 2_000), XattrFlags::empty()).expect("set");
    setxattr(at.join("d1/large"), "system.posix_acl_access", &acl(), XattrFlags::empty()).expect("set");
    setxattr(at.join("d9"), "system.posix_acl_default", &acl(), XattrFlags::empty()).expect("set");
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, at.join("d9/fifo"), FileType::Fifo, mode, 0).expect("made");
    mknodat(CWD, at.join("d9/null"), FileType::CharacterDevice, mode, makedev(1, 3)).expect("made");
    mknodat(CWD, at.join("d9/block"), FileType::BlockDevice, mode, makedev(7, 99)).expect("made");
    fs::create_dir(at.join("many")).expect("made");
    for n in 0..MANY {
        fs::write(at.join(format!("many/file {n}")), format!("{n}")).expect("written");
    }
    fs::set_permissions(at.join("many/file 7"), fs::Permissions::from_mode(0o4711)).expect("set");
    std::os::unix::fs::chown(at.join("many/file 8"), Some(1000), Some(1001)).expect("set");
    let old = std::time::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    let file = File::options().write(true).open(at.join("many/file 9")).expect("opened");
    file.set_modified(old).expect("set");
    fs::rename(at.join("d10/below"), at.join("d11/moved")).expect("moved");
    fs::remove_file(at.join("d12/below/middle")).expect("removed");
}

/// Everything that a program can see of an inode.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Inode, mode, links, owner, group, device, size.
    numbers: [u64; 7],
    /// Seconds and nanoseconds of mtime and ctime.
    times: [i64; 4],
    xattrs: BTreeMap<String, Vec<u8>>,
    /// Length and checksum of the content, or the target of a link.
    content: (usize, u64),
    /// The policy that holds, explained; of directories and files.
    policy: String,
}

fn checksum(bytes: &[u8]) -> (usize, u64) {
    (bytes.len(), xxhash_rust::xxh3::xxh3_64(bytes))
}

fn look(at: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut seen, mut dirs) = (BTreeMap::new(), vec![at.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("listed") {
            let path = entry.expect("listed").path();
            let meta = fs::symlink_metadata(&path).expect("read");
            let (mut xattrs, mut policy) = (BTreeMap::new(), String::new());
            if !meta.is_symlink() {
                let mut names = vec![0; 4096];
                let len = listxattr(&path, &mut names[..]).expect("listed");
                for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                    let name = String::from_utf8_lossy(name).into_owned();
                    let mut value = vec![0; 70_000];
                    let len = getxattr(&path, &name, &mut value[..]).expect("read");
                    value.truncate(len);
                    xattrs.insert(name, value);
                }
            }
            if meta.is_dir() || meta.is_file() {
                policy = effective(&path);
            }
            let content = match meta.file_type() {
                kind if kind.is_file() => checksum(&fs::read(&path).expect("read")),
                kind if kind.is_symlink() => {
                    checksum(fs::read_link(&path).expect("read").as_os_str().as_encoded_bytes())
                }
                kind => {
                    let is_node = kind.is_fifo() || kind.is_char_device() || kind.is_block_device();
                    assert!(is_node || kind.is_dir(), "{}", path.display());
                    (0, 0)
                }
            };
            if meta.is_dir() {
                dirs.push(path.clone());
            }
            let numbers = [
                meta.ino(),
                meta.mode().into(),
                meta.nlink(),
                meta.uid().into(),
                meta.gid().into(),
                meta.rdev(),
                meta.size(),
            ];
            let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
            let name = path.strip_prefix(at).expect("below").to_owned();
            seen.insert(name, Seen { numbers, times, xattrs, content, policy });
        }
    }
    seen
}

/// The policy that holds at a path, as its server explains it.
fn effective(path: &Path) -> String {
    let mut value = vec![0; 65_536];
    let len = getxattr(path, "chiton.policy.effective", &mut value[..]).expect("explained");
    String::from_utf8_lossy(&value[..len]).into_owned()
}

/// Policies above each other, of several kinds; and one that was removed.
fn make_policies(site: &Site, at: &Path) {
    fs::create_dir(at.join("job")).expect("made");
    fs::write(at.join("job/before"), bytes(70, 200_000)).expect("written");
    site.set_policy(&at.join("job"), JOB_POLICY);
    for n in 0..6 {
        fs::create_dir_all(at.join(format!("nested/d{n}/sub/below"))).expect("made");
        fs::write(at.join(format!("nested/d{n}/sub/below/file")), bytes(71, 90_000)).expect("written");
    }
    site.set_policy(&at.join("nested"), "data: lazy");
    site.set_policy(&at.join("nested/d3/sub/below"), "acknowledge: durable");
    site.set_policy(&at.join("nested/d3"), "owner_decouples: never");
    site.set_policy(&at.join("d16"), "data: close_to_open");
    site.done(&["policy", "rm", &at.join("d16").display().to_string()]);
    fs::create_dir(at.join("near")).expect("made");
    site.set_policy(&at.join("near"), "placement: near\nconsistency: weak\ndurability: local");
    site.set_policy(at, "interfere_policy: block");
}

/// A client decouples a subtree that it could decouple before, works in it, and merges.
fn decouple_and_merge(site: &Site, at: &Path) {
    let job = at.join("job");
    let path = job.display().to_string();
    site.done(&["decouple", &path]);
    assert!(effective(&job).contains(r#""decoupled":true"#));
    fs::create_dir(job.join("made")).expect("made");
    fs::write(job.join("made/file"), bytes(72, 150_000)).expect("written");
    fs::rename(job.join("before"), job.join("made/moved")).expect("moved");
    site.done(&["merge", &path]);
    assert!(effective(&job).contains(r#""decoupled":false"#));
    assert!(fs::read(job.join("made/file")).expect("read") == bytes(72, 150_000));
    assert!(fs::read(job.join("made/moved")).expect("read") == bytes(70, 200_000));
    // The first change decouples, as the policy says.
    fs::write(job.join("made/later"), b"later").expect("written");
    assert!(effective(&job).contains(r#""decoupled":true"#));
    site.done(&["merge", &path]);
    assert_eq!(fs::read(job.join("made/later")).expect("read"), b"later");
}

fn check_same(found: &BTreeMap<PathBuf, Seen>, expected: &BTreeMap<PathBuf, Seen>) {
    let names = |seen: &BTreeMap<PathBuf, Seen>| seen.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, expected) in expected {
        assert_eq!(&found[name], expected, "{}", name.display());
    }
}

/// New things among the old ones.
fn continue_work(at: &Path) {
    fs::create_dir(at.join("later")).expect("made");
    for n in 0..40 {
        fs::create_dir(at.join(format!("later/{n}"))).expect("made");
        fs::write(at.join(format!("later/{n}/new")), bytes(500 + n, 100_000)).expect("written");
    }
    for n in 0..8 {
        fs::rename(at.join(format!("d{n}/below")), at.join(format!("later/{n}/old"))).expect("moved");
        fs::rename(at.join(format!("later/{n}/new")), at.join(format!("d{n}/new"))).expect("moved");
        let path = at.join(format!("d{}/clone", n + 6));
        let changed = File::options().write(true).open(&path).expect("opened");
        changed.write_all_at(&bytes(600 + n, 10_000), 5_000 * n).expect("written");
    }
    fs::hard_link(at.join("d1/large"), at.join("later/9/linked")).expect("linked");
    clone_file(&at.join("d1/large"), &at.join("d1/its clone"));
    assert_eq!(fs::read(at.join("d1/its clone")).expect("read"), bytes(1, LARGE + 777));
    for n in 0..8 {
        let path = at.join(format!("d{}/clone", n + 6));
        let mut expected = bytes(106, 300_006);
        if n == 1 {
            expected[100_000..170_000].copy_from_slice(&bytes(3, 70_000));
        }
        let from = 5_000 * n as usize;
        expected[from..from + 10_000].copy_from_slice(&bytes(600 + n, 10_000));
        assert!(fs::read(&path).expect("read") == expected, "{}", path.display());
    }
}

#[test]
fn a_laptops_file_system_becomes_a_cluster_without_losing_a_byte() {
    let mut site = Site::new();
    let (old, new) = (PathBuf::from(site.path("old")), PathBuf::from(site.path("new")));
    let (source, target) = (PathBuf::from(site.path("source")), PathBuf::from(site.path("target")));
    site.done(&["format", &site.path("source")]);
    let pid = site.mount_old();
    make_tree(&old);
    make_policies(&site, &old);
    // Removed, and open while the server dies.
    fs::write(old.join("d0/open"), bytes(9, 500_000)).expect("written");
    let open = File::open(old.join("d0/open")).expect("opened");
    fs::remove_file(old.join("d0/open")).expect("removed");
    let grow = |site: &Site| site.grow().output().expect("chiton runs");
    let refused = grow(&site);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("end it in order"), "{said}");
    assert!(!target.exists(), "what is refused changes nothing");
    site.done(&["flush", &site.path("old")]);
    let (before, policies) = (look(&old), site.policies("old"));
    assert!(before.len() > MANY + 70, "{} names", before.len());
    kill(pid);
    drop(open);
    site.done(&["umount", "--lazy", &site.path("old")]);

    // Killed as soon as each of these is there.
    for path in [
        target.join("growing.json"),
        target.join("objects/blocks"),
        target.join("stores/meta"),
        target.join("stores/plates/5/journal"),
        source.join("became-cluster.json"),
        target.join("chiton.json"),
    ] {
        let mut child = site.grow().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("chiton runs");
        while !path.exists() && child.try_wait().expect("asked").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        child.wait().expect("it ends");
        if !source.join("became-cluster.json").exists() {
            assert!(!target.join("chiton.json").exists(), "both could be served");
            site.done(&["fsck", &site.path("source")]);
        }
    }
    let out = grow(&site);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(grow(&site).status.success(), "a repetition changes nothing");
    site.refused(&["mount", "--data", &site.path("source"), &site.path("old")], "has become the cluster");

    // The environment names the cluster, whose servers need an address.
    site.refused(&["serve", "--data", &site.path("target")], "--listen");
    let plain = site.path("plain");
    site.done(&["format", &plain]);
    site.refused(&["serve", "--data", &plain, "--standby"], "--standby is for a server of a cluster");
    site.serve_with_two();
    site.mount_new();
    check_same(&look(&new), &before);
    assert_eq!(site.policies("new"), policies);
    decouple_and_merge(&site, &new);
    assert!(site.done(&["fsck", &site.path("target")]).contains("clean"), "checked beside its servers");
    site.refused(&["fsck", "--repair", "--yes", &site.path("target")], "live");
    site.refused(
        &["journal", "event", "apply", &site.path("target"), "--journal", "server", "--yes"],
        "live",
    );
    continue_work(&new);
    let later = look(&new);
    site.done(&["umount", &site.path("new")]);
    site.stop_servers();
    // At rest it is looked at as a file system of one server is.
    let checked = site.done(&["fsck", "--content", &site.path("target")]);
    assert!(checked.contains("clean"), "{checked}");
    let dumped = site.done(&["dump", "--no-content", &site.path("target")]);
    assert!(dumped.lines().any(|line| line.starts_with("file many/file\\x207 mode=4711")), "{dumped}");
    for plate in ["0", "5"] {
        site.done(&["journal", "inspect", &site.path("target"), "--plate", plate]);
    }
    site.serve_with_two();
    site.mount_new();
    check_same(&look(&new), &later);
    for entry in fs::read_dir(&new).expect("listed") {
        fs::remove_dir_all(entry.expect("listed").path()).expect("removed");
    }
    site.done(&["umount", &site.path("new")]);
    // Files that the mount had open are freed afterwards.
    site.mount_new();
    for _ in 0..LOOKS {
        let found = rustix::fs::statvfs(&new).expect("asked");
        if found.f_files - found.f_ffree <= 1 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    site.done(&["umount", &site.path("new")]);
    site.stop_servers();
    let checked = site.done(&["fsck", &site.path("target")]);
    assert!(
        checked.starts_with("1 inode (1 directory), 0 entries") && checked.contains("clean"),
        "{checked}"
    );

    // The old one is as it was.
    fs::remove_file(source.join("became-cluster.json")).expect("removed");
    site.mount_old();
    check_same(&look(&old), &before);
}

#[test]
fn a_served_file_system_with_a_policy_grows_into_a_bucket_when_both_have_ended() {
    let moto = Moto::shared();
    let mut site = Site::new();
    site.moto = Some(moto);
    let old = PathBuf::from(site.path("old"));
    let (source, bucket) = (site.path("source"), format!("s3://{}/grown", moto.bucket()));
    site.done(&["format", &source]);
    site.mount_old();
    fs::create_dir(old.join("dir")).expect("made");
    fs::write(old.join("dir/file"), bytes(1, 300_000)).expect("written");
    fs::create_dir(old.join("src")).expect("made");
    let (dir, src) = (old.join("dir").display().to_string(), old.join("src").display().to_string());
    site.set_policy(Path::new(&dir), "durability: none");
    site.done(&["branch", "create", "--state-dir", &site.path("state"), &src, "try1"]);
    let grow = ["cluster", "init", "--data", &bucket, "--from", &source, "--plates", "3"];
    site.refused(&grow, "--take-over");
    let unborn = site.path("unborn");
    let out = site.run(&["cluster", "init", "--data", &unborn, "--from", &source, "--take-over"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success());
    for part in [
        "the policy of /dir has `durability: none`",
        "chiton policy set MOUNT/dir",
        "/src has the branch try1",
        "chiton branch delete MOUNT/src try1",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!Path::new(&unborn).exists(), "what is refused changes nothing");
    site.mount_old();
    assert!(fs::read(old.join("dir/file")).expect("read") == bytes(1, 300_000));
    site.set_policy(Path::new(&dir), "durability: local");
    site.done(&["branch", "delete", &src, "try1", "--force"]);
    let said = site.done(&[&grow[..], &["--take-over"]].concat());
    assert!(said.contains("4 inodes, 3 names, 1 blocks"), "{said}");
    let checked = site.done(&["fsck", "--content", &bucket]);
    assert!(checked.contains("4 inodes") && checked.contains("clean"), "{checked}");
    let dumped = site.done(&["dump", &bucket]);
    assert!(dumped.lines().any(|line| line.starts_with("file dir/file ")), "{dumped}");
    site.done(&["journal", "inspect", &bucket, "--plate", "2"]);
}
