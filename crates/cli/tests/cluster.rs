//! Commands of a cluster against a real etcd: their output, their effects, and their exit codes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use chiton_etcd_process::Etcd;
use serde_json::Value;
use tempfile::TempDir;

/// How often something is looked for that must come, and the time between.
const LOOKS: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

struct Site {
    // Ended in this order.
    servers: Vec<Child>,
    etcd: Etcd,
    dir: TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("etcd")).expect("a directory");
        let etcd = Etcd::start(&dir.path().join("etcd"), 1).expect("an etcd");
        Site { servers: Vec::new(), etcd, dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
        command.args(words).env("CHITON_MONITOR", self.etcd.address()).stdin(Stdio::null());
        command.output().expect("chiton runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let out = self.run(words);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "chiton {words:?} ({}): {said}", out.status);
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn refused(&self, words: &[&str], code: i32, why: &str) {
        let out = self.run(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "chiton {words:?}: {said}");
        assert!(said.contains(why), "chiton {words:?} does not say {why:?}: {said}");
    }

    /// A server at a Unix socket of this name.
    fn serve(&mut self, name: &str) {
        let address = format!("unix:{}", self.path(name));
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
        command
            .args([
                "serve",
                "--monitor",
                &self.etcd.address(),
                "--data",
                &self.path("data"),
                "--listen",
                &address,
            ])
            .stdin(Stdio::null())
            .stderr(log);
        self.servers.push(command.spawn().expect("chiton runs"));
    }

    fn status(&self) -> Value {
        let out = self.run(&["cluster", "status", "--json"]);
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    /// Waits until so many plates are with each server, in the order of their numbers, and none moves.
    fn await_plates(&self, wanted: &[u64]) {
        for _ in 0..LOOKS {
            let status = self.status();
            let servers = status["servers"].as_array().cloned().unwrap_or_default();
            let counts: Vec<u64> = servers.iter().filter_map(|server| server["plates"].as_u64()).collect();
            if counts == wanted && status["plates_moving"] == 0 {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("not {wanted:?}: {}", self.status());
    }
}

#[test]
fn a_cluster_that_is_not_there_is_reported_in_plain_words() {
    let site = Site::new();
    for what in ["status", "map", "plates", "history"] {
        site.refused(&["cluster", what], 4, "chiton cluster init");
    }
    let data = site.path("data");
    site.done(&["cluster", "init", "--data", &data, "--plates", "2"]);
    site.done(&["cluster", "history"]);
    // Nothing listens at port 1.
    let words = ["cluster", "status", "--monitor", "etcd://127.0.0.1:1"];
    site.refused(&words, 4, "etcd at 127.0.0.1:1: ");
    site.refused(&words, 4, "Connection refused");
    site.refused(&words, 4, "start etcd there, or name the etcd of the cluster (--monitor)");
    let said = String::from_utf8_lossy(&site.run(&words).stderr).into_owned();
    assert!(!said.contains("Error(") && !said.contains("Error {") && !said.contains("Os {"), "{said}");
    let serve = |address: &str| {
        let monitor = site.etcd.address();
        let out =
            site.run(&["serve", "--insecure", "--data", &data, "--monitor", &monitor, "--listen", address]);
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let said = serve("tcp:no-such-host.invalid:7117");
    assert!(said.contains("name an address of this machine (--listen)"), "{said}");
    assert!(!said.contains("another server"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let said = serve(&format!("tcp:{}", taken.local_addr().expect("an address")));
    assert!(said.contains("another server may listen there: stop it, or choose another address"), "{said}");
}

#[test]
fn a_cluster_is_made_once_and_foreign_data_is_refused() {
    let site = Site::new();
    site.refused(&["cluster", "status"], 4, "chiton cluster init");
    let (data, other) = (site.path("data"), site.path("other"));
    site.refused(&["cluster", "init", "--data", &data, "--plates", "0"], 1, "plates");
    let said = site.done(&["cluster", "init", "--data", &data, "--plates", "4"]);
    assert!(said.contains("chiton serve --monitor"), "{said}");
    // As if the first try had been cut off.
    site.done(&["cluster", "init", "--data", &data, "--plates", "4"]);
    site.refused(&["cluster", "init", "--data", &other, "--plates", "4"], 3, "PREFIX");
    assert!(!Path::new(&other).exists(), "what is refused changes nothing");
    let second = format!("{}/second", site.etcd.address());
    site.refused(
        &["cluster", "init", "--monitor", &second, "--data", &data, "--plates", "4"],
        3,
        "already contains",
    );
    site.done(&["cluster", "init", "--monitor", &second, "--data", &other, "--plates", "4"]);
    let mut alone = Command::new(env!("CARGO_BIN_EXE_chiton"));
    let alone =
        alone.args(["serve", "--data", &data]).env_remove("CHITON_MONITOR").output().expect("chiton runs");
    assert!(String::from_utf8_lossy(&alone.stderr).contains("belongs to a cluster"), "{alone:?}");
    assert!(site.done(&["fsck", "--repair", "--yes", &data]).contains("clean"));
    let said = site.done(&["fsck", &data]);
    assert!(said.contains("1 inode (1 directory)") && said.contains("clean"), "{said}");
    site.refused(
        &["mount", "--data", &data, site.dir.path().to_str().expect("a plain path"), "--nonempty"],
        1,
        "cluster",
    );
    let monitor = site.etcd.address();
    let listen = format!("unix:{}", site.path("socket"));
    let serve = ["serve", "--monitor", &monitor, "--listen", &listen, "--data"];
    site.refused(&[&serve[..], &[&other]].concat(), 1, "same storage");
    let open = ["serve", "--monitor", &monitor, "--data", &data, "--listen", "tcp:0.0.0.0:0"];
    site.refused(&open, 1, "needs an identity");
    site.refused(&[&open[..], &["--insecure"]].concat(), 1, "--advertise");
    site.refused(&["cluster", "status"], 1, "no server that lives");
    site.refused(&["cluster", "map", "--monitor", "etcd://"], 2, "etcd://HOST:PORT");
    site.refused(&["cluster", "map", "--monitor", "etcd://127.0.0.1:1"], 4, "127.0.0.1:1");
    assert!(!Path::new(&site.path("socket")).exists(), "a refused server leaves no socket");
}

/// A command at a mount waits while the etcd is away, as the mount does.
#[test]
fn commands_at_a_mount_wait_for_the_monitor() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: mounts need root");
        return;
    }
    let mut site = Site::new();
    let data = site.path("data");
    site.done(&["cluster", "init", "--data", &data, "--plates", "2"]);
    site.serve("one");
    site.await_plates(&[2]);
    let mount = site.path("mnt");
    std::fs::create_dir(&mount).expect("a directory");
    let state = site.path("state");
    site.done(&["mount", "--state-dir", &state, &mount]);
    site.etcd.kill(0);
    let listed = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
            command.args(["decoupled", "--json", &mount]).output().expect("chiton runs")
        });
        std::thread::sleep(Duration::from_secs(1));
        site.etcd.restart(0).expect("it is back");
        asked.join().expect("it ends")
    });
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    site.done(&["umount", &mount]);
}

#[test]
fn an_administrator_balances_drains_and_removes_servers() {
    let mut site = Site::new();
    let data = site.path("data");
    site.done(&["cluster", "init", "--data", &data, "--plates", "4"]);
    site.serve("one");
    site.await_plates(&[4]);
    let expected = format!("unix:{}", site.path("two"));
    site.done(&["cluster", "server", "add", &expected]);
    site.refused(&["cluster", "server", "add", &expected], 3, "server 2");
    site.serve("two");
    site.await_plates(&[4, 0]);
    for _ in 0..LOOKS {
        // It has to live before it gets plates.
        if site.status()["servers"][1]["up"] == true {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let plan = site.done(&["cluster", "rebalance", "--dry-run"]);
    assert!(plan.contains("2 plates would be handed over"), "{plan}");
    site.await_plates(&[4, 0]);
    site.done(&["cluster", "rebalance"]);
    site.await_plates(&[2, 2]);
    assert!(site.done(&["cluster", "rebalance"]).contains("balanced"));
    a_server_works_for_its_clients(&site);
    site.done(&["cluster", "server", "drain", "1"]);
    site.await_plates(&[0, 4]);
    site.refused(&["cluster", "server", "drain", "2"], 1, "no other server");
    site.refused(&["cluster", "server", "rm", "1"], 3, "server 1 runs");
    site.refused(&["cluster", "server", "out", "9"], 4, "no server 9");
    site.done(&["cluster", "server", "in", "1"]);
    site.done(&["cluster", "rebalance"]);
    site.await_plates(&[2, 2]);
    let mut two = site.servers.pop().expect("it runs");
    let pid = rustix::process::Pid::from_child(&two);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    assert!(two.wait().expect("it ends").success(), "it leaves in order");
    site.await_plates(&[4, 0]);
    site.done(&["cluster", "server", "rm", "2"]);
    site.await_plates(&[4]);
    let table = site.done(&["cluster", "plates"]);
    assert_eq!(table.lines().count(), 5, "{table}");
    let history = site.done(&["cluster", "history", "--count", "100"]);
    for reason in ["it joins", "rebalance", "hand-over", "server drain", "server in", "server rm"] {
        assert!(history.contains(reason), "{reason}: {history}");
    }
    let lines = site.done(&["cluster", "history", "--json"]);
    let newest: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(newest["why"], "server rm");
}

/// A job reaches the plates of all servers, and is known wherever one asks.
fn a_server_works_for_its_clients(site: &Site) {
    let etcd = site.etcd.address();
    let usage: Value =
        serde_json::from_str(&site.done(&["du", "--json", "--server", &etcd, "/"])).expect("JSON");
    assert_eq!((&usage["usage"][0]["directories"], &usage["refused"]), (&1.into(), &0.into()), "{usage}");
    let jobs: Value = serde_json::from_str(&site.done(&["jobs", "--json", &etcd])).expect("JSON");
    assert_eq!(
        (&jobs["jobs"][0]["kind"], &jobs["jobs"][0]["state"]),
        (&"du".into(), &"done".into()),
        "{jobs}"
    );
}

#[test]
fn all_servers_of_a_cluster_are_watched_and_a_silent_one_is_named() {
    let mut site = Site::new();
    let data = site.path("data");
    // A paused server counts as living for the whole test.
    site.done(&["cluster", "init", "--data", &data, "--plates", "4", "--lease", "60s"]);
    site.serve("one");
    site.await_plates(&[4]);
    site.serve("two");
    site.await_plates(&[4, 0]);
    site.done(&["cluster", "server", "drain", "1"]);
    site.await_plates(&[0, 4]);
    site.done(&["cluster", "server", "in", "1"]);
    site.done(&["cluster", "rebalance"]);
    site.await_plates(&[2, 2]);

    let json = |out: Output| -> Value { serde_json::from_slice(&out.stdout).expect("JSON") };
    // A server has a plate by the map before it runs it.
    let runs = || {
        let status = json(site.run(&["status", "--json"]));
        let plates = status["plates"].as_array().cloned().unwrap_or_default();
        plates.len() == 4 && plates.iter().all(|plate| plate["runs"] == true)
    };
    for _ in 0..LOOKS {
        if runs() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let two = format!("unix:{}", site.path("two"));
    for words in [vec!["status", "--json"], vec!["status", "--json", &two], vec!["status", "--json", &data]] {
        let status = json(site.run(&words));
        let plates = status["plates"].as_array().expect("plates");
        assert!(plates.len() == 4 && plates.iter().all(|plate| plate["runs"] == true), "{words:?}: {status}");
        assert_eq!(status["journals"].as_array().map(Vec::len), Some(4), "{words:?}");
        assert_eq!(status["servers"][1]["state"], "up", "{words:?}");
    }
    let said = site.done(&["status"]);
    assert!(said.contains("healthy") && said.contains("2 up") && said.contains(&two), "{said}");
    let df = json(site.run(&["df", "--json"]));
    assert_eq!((&df["inodes_used"], df["servers"].as_array().map(Vec::len)), (&1.into(), Some(2)), "{df}");
    let top = json(site.run(&["top", "--json", "--count", "1", "--interval", "0.05"]));
    assert!(top["all"]["lookup"].is_number() && top["servers"]["2"].is_object(), "{top}");

    let pid = rustix::process::Pid::from_child(&site.servers[1]);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is ours");
    let out = site.run(&["status"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("NOT HEALTHY: server 2 does not answer") && said.contains("SILENT"), "{said}");
    assert_eq!(out.status.code(), Some(1));
    site.refused(&["df"], 1, "server 2 does not answer");
    let status = json(site.run(&["status", "--json"]));
    assert_eq!(status["servers"][0]["state"], "up", "{status}");
    assert_eq!(
        status["plates"].as_array().map(|all| all.iter().filter(|one| one["runs"] == true).count()),
        Some(2)
    );
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is ours");
    site.done(&["status"]);
}

/// Files of a tree, made without a mount.
const DIRS: usize = 100;
const FILES: usize = 200;

fn fill(site: &Site, server: &str) {
    let address = format!("unix:{}", site.path(server)).parse().expect("an address");
    let client = chiton_client::Client::connect(&address, chiton_client::ClientOptions::default());
    let client = client.expect("connected");
    let names: Vec<String> = (0..FILES).map(|n| format!("a-file-with-a-long-name-{n}")).collect();
    for dir in 0..DIRS {
        let dir = format!("/tree/dir-{dir}");
        client.mkdir_all(&dir).expect("made");
        assert!(client.create_many(&dir, &names).expect("asked").iter().all(Result::is_ok));
    }
    client.sync().expect("durable");
}

/// Searches the file system, and has `meanwhile` happen when the job runs. The job waits until its results are read, which is afterwards.
/// Returns the messages of the command, which has to print each path once.
fn search(site: &mut Site, meanwhile: impl FnOnce(&mut Site)) -> String {
    let etcd = site.etcd.address();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
    command.args(["find", "/", "--server", &etcd]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.stdin(Stdio::null()).spawn().expect("chiton runs");
    let is_running = |site: &Site| {
        let jobs: Value = serde_json::from_str(&site.done(&["jobs", "--json", &etcd])).expect("JSON");
        jobs["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(|job| job["state"] == "running"))
    };
    assert!((0..LOOKS).any(|_| is_running(site)), "no job runs");
    meanwhile(site);
    let out = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    let printed = String::from_utf8_lossy(&out.stdout);
    let mut paths: Vec<&str> = printed.lines().collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!((paths.len(), printed.lines().count()), (2 + DIRS * (1 + FILES), paths.len()), "{said}");
    said
}

#[test]
fn jobs_survive_hand_overs_and_the_death_of_their_server() {
    let mut site = Site::new();
    let data = site.path("data");
    site.done(&["cluster", "init", "--data", &data, "--plates", "4"]);
    site.serve("one");
    site.await_plates(&[4]);
    fill(&site, "one");
    site.serve("two");
    site.await_plates(&[4, 0]);
    for _ in 0..LOOKS {
        if site.status()["servers"][1]["up"] == true {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    // Half of the plates leave the server that works: it works on, and asks the other server.
    let said = search(&mut site, |site| {
        site.done(&["cluster", "rebalance"]);
        site.await_plates(&[2, 2]);
    });
    assert!(!said.contains("begins again"), "{said}");
    site.done(&["cluster", "server", "drain", "2"]);
    site.await_plates(&[4, 0]);
    site.done(&["cluster", "server", "in", "2"]);
    // All of them leave.
    let said = search(&mut site, |site| {
        site.done(&["cluster", "server", "drain", "1"]);
        site.await_plates(&[0, 4]);
    });
    assert!(said.contains("a server begins again"), "{said}");
    site.done(&["cluster", "server", "in", "1"]);
    // The server dies, and the other takes its plates.
    let said = search(&mut site, |site| {
        let mut two = site.servers.pop().expect("it runs");
        two.kill().expect("it lives");
        two.wait().expect("it ends");
        site.await_plates(&[4, 0]);
    });
    assert!(said.contains("a server begins again"), "{said}");
}

/// A dump of twenty directories with a file in each.
fn small_dump() -> String {
    let attributes = "mode=755 uid=0 gid=0 atime=0 mtime=0";
    let one = |n| format!("dir dir{n} {attributes}\nfile dir{n}/file {attributes} size=4\nd 0 c29tZQ==\n");
    let all: String = (0..20).map(one).collect();
    format!("chiton-dump 1\ndir . {attributes}\n{all}end inodes=41 crc32c=8e25c91b\n")
}

/// The check goes to the servers if any lives, whichever way the cluster is named, and to the data else.
#[test]
fn a_cluster_is_checked_beside_its_servers() {
    let mut site = Site::new();
    let data = site.path("data");
    site.done(&["cluster", "init", "--data", &data, "--plates", "4"]);
    for (name, plates) in [("one", &[4][..]), ("two", &[4, 0])] {
        site.serve(name);
        site.await_plates(plates);
    }
    for _ in 0..LOOKS {
        if site.status()["servers"][1]["up"] == true {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    site.done(&["cluster", "rebalance"]);
    site.await_plates(&[2, 2]);
    let monitor = site.etcd.address();
    let dump = site.path("some.chiton");
    std::fs::write(&dump, small_dump()).expect("written");
    site.done(&["load", "--no-owner", &monitor, &dump]);
    for target in [&monitor, &data, &format!("unix:{}", site.path("two"))] {
        let said = site.done(&["fsck", target]);
        assert!(
            said.contains("41 inodes (21 directories), 40 entries") && said.contains("clean"),
            "{target}: {said}"
        );
        let said = site.done(&["fsck", "--content", "--json", target]);
        let summary: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
        assert_eq!((&summary["left"], &summary["summary"]["inodes"]), (&0.into(), &41.into()), "{target}");
    }
    site.refused(&["fsck", "--repair", "--yes", &data], 8, "servers that live: 1, 2");
    site.refused(&["fsck", "--repair", "--yes", &monitor], 8, "has a running server");
    for server in &mut site.servers {
        let pid = rustix::process::Pid::from_child(server);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
        assert!(server.wait().expect("it ends").success(), "it leaves in order");
    }
    site.servers.clear();
    let said = site.done(&["fsck", &data]);
    assert!(said.contains("41 inodes (21 directories), 40 entries") && said.contains("clean"), "{said}");
}
