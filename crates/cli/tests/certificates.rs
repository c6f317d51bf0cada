//! Certificates between real processes: which ones get in, with which rights, and for how long.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_client::{Client, ClientOptions};
use chiton_etcd_process::Etcd;
use chiton_transport::{Address, CONNECT_TIMEOUT, OpenError, PeerChannel};
use chiton_types::{PlateId, Refusal, SessionId};
use chiton_wire::{Channel, Hello, PROTOCOL_VERSION, RefuseReason};
use serde_json::Value;
use tempfile::TempDir;

/// How often something is looked for that must come, and the time between.
const LOOKS: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

struct Site {
    // Ended in this order.
    mounts: RefCell<Vec<String>>,
    servers: Vec<Child>,
    etcd: Option<Etcd>,
    dir: TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        for mountpoint in self.mounts.get_mut() {
            // One that a test has ended is gone already.
            let _ = rustix::mount::unmount(mountpoint.as_str(), rustix::mount::UnmountFlags::DETACH);
        }
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Site {
    /// An authority, and identities of it and of another.
    fn new() -> Site {
        let mounts = RefCell::default();
        let site =
            Site { mounts, servers: Vec::new(), etcd: None, dir: tempfile::tempdir().expect("a directory") };
        for authority in ["ours", "theirs"] {
            site.done(&["auth", "init", "--dir", &site.path(authority)]);
        }
        site.create("ours", "server", &["--server"]);
        site.create("ours", "writer", &["--allow", "rw:/"]);
        site.create("ours", "reader", &["--allow", "r:/"]);
        site.create("ours", "admin", &["--admin"]);
        site.create("theirs", "stranger", &["--admin"]);
        site
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn create(&self, authority: &str, name: &str, role: &[&str]) {
        let (dir, out) = (self.path(authority), self.path(name));
        self.done(&[&["auth", "create", name, "--dir", &dir, "--out", &out][..], role].concat());
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
        command.args(words).stdin(Stdio::null());
        if let Some(etcd) = &self.etcd {
            command.env("CHITON_MONITOR", etcd.address());
        }
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

    /// A server with TLS, at a port that is free now.
    fn serve(&mut self, words: &[&str]) -> String {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("tcp:{}", free.local_addr().expect("a port"));
        drop(free);
        let log = std::fs::File::create(self.path(&format!("{}.log", self.servers.len()))).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
        command.args(["serve", "--identity", &self.path("server"), "--listen", &address]).args(words);
        command.stdin(Stdio::null()).stderr(log);
        self.servers.push(command.spawn().expect("chiton runs"));
        address
    }

    fn credentials(&self, name: &str) -> Credentials {
        Credentials::load(Path::new(&self.path(name))).expect("an identity")
    }

    fn connect(&self, name: &str, address: &str) -> Result<Client, String> {
        let options = ClientOptions {
            credentials: Some(self.credentials(name)),
            timeout: Some(Duration::from_secs(10)),
            ..ClientOptions::default()
        };
        let address: Address = address.parse().expect("an address");
        Client::connect(&address, options).map_err(|e| e.to_string())
    }

    fn await_client(&self, name: &str, address: &str) -> Client {
        let mut failure = String::new();
        for _ in 0..LOOKS {
            match self.connect(name, address) {
                Ok(client) => return client,
                Err(why) => failure = why,
            }
            std::thread::sleep(PAUSE);
        }
        panic!("no server: {failure}")
    }

    /// Waits until the history of the cluster has such a line.
    fn await_history(&self, text: &str) {
        let mut history = String::new();
        for _ in 0..LOOKS {
            history = self.done(&["cluster", "history", "--count", "100"]);
            if history.contains(text) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("no {text:?} in {history}");
    }
}

#[test]
fn a_certificate_gives_its_rights_and_no_more() {
    let mut site = Site::new();
    let data = site.path("data");
    site.done(&["format", &data]);
    let address = site.serve(&["--data", &data]);
    let writer = site.await_client("writer", &address);
    writer.mkdir_all("/dir").expect("it may change");
    writer.write_file("/dir/file", b"content").expect("it may change");

    let reader = site.connect("reader", &address).expect("it may read");
    assert_eq!(reader.read_file("/dir/file").expect("it may read"), b"content");
    assert_eq!(reader.mkdir_all("/other").map(drop), Err(Refusal::ReadOnly));
    assert_eq!(reader.write_file("/dir/file", b"x"), Err(Refusal::ReadOnly));
    assert_eq!(writer.read_file("/dir/file").expect("it is as it was"), b"content");

    let with = |name: &str| site.path(name);
    site.done(&["df", "--identity", &with("reader"), &address]);
    site.done(&["status", "--identity", &with("admin"), &address]);
    site.refused(&["status", "--identity", &with("writer"), &address], 1, "operation not permitted");
    site.refused(&["df", &address], 1, "name an identity");
    site.refused(&["df", "--identity", &with("stranger"), &address], 1, "signed by another authority");
    site.refused(&["df", "--identity", &with("absent"), &address], 1, "cannot read");
    let limited = ["auth", "create", "x", "--allow", "rw:dir", "--dir", &site.path("ours")];
    site.refused(&limited, 1, "the path must begin with a slash");
    let client = ["serve", "--identity", &with("writer"), "--data", &data, "--listen", "tcp:127.0.0.1:0"];
    site.refused(&client, 1, "is that of a client");

    let list = site.done(&["auth", "list", "--dir", &site.path("ours"), "--json"]);
    let names: Vec<Value> = list.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(names.len(), 4, "{list}");
    assert!(names.iter().all(|one| one["state"] == "valid"), "{list}");
}

/// S145: a certificate of a subtree has it as its root, at a mount and for tools.
#[test]
fn a_certificate_of_a_subtree_has_it_as_its_root() {
    let mut site = Site::new();
    site.create("ours", "home", &["--allow", "rw:/dir"]);
    site.create("ours", "look", &["--allow", "r:/dir/sub"]);
    site.create("ours", "lost", &["--allow", "rw:/absent"]);
    assert!(site.done(&["auth", "list", "--dir", &site.path("ours")]).contains("r:/dir/sub"));
    let data = site.path("data");
    site.done(&["format", "--plates", "3", &data]);
    let address = site.serve(&["--data", &data]);
    let writer = site.await_client("writer", &address);
    writer.mkdir_all("/dir/sub/deep").expect("made");
    writer.mkdir_all("/secret").expect("made");
    writer.write_file("/dir/sub/file", b"content").expect("written");
    writer.write_file("/secret/key", b"key").expect("written");
    let lost = site.connect("lost", &address).map(drop).expect_err("no such directory");
    assert!(lost.contains("limited to /absent") && lost.contains("no such directory"), "{lost}");
    for report in ["status", "df"] {
        site.refused(&[report, "--identity", &site.path("home"), &address], 1, "operation not permitted");
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: mounts need root");
    }
    let mounted = |identity: &str| {
        let mountpoint = site.path(&format!("mnt-{identity}"));
        std::fs::create_dir_all(&mountpoint).expect("a directory");
        let identity = site.path(identity);
        site.mounts.borrow_mut().push(mountpoint.clone());
        site.done(&["mount", "--identity", &identity, "--server", &address, &mountpoint]);
        mountpoint
    };
    let names = |dir: &str| {
        let entries =
            std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let home = mounted("home");
    assert_eq!(names(&home), ["sub"]);
    assert_eq!(std::fs::read(format!("{home}/sub/file")).expect("read"), b"content");
    std::fs::create_dir_all(format!("{home}/made/below")).expect("it may change");
    std::fs::write(format!("{home}/made/below/large"), [7; 300_000]).expect("it may change");
    std::os::unix::fs::symlink("../../../../secret/key", format!("{home}/made/out")).expect("made");
    assert!(std::fs::read(format!("{home}/made/out")).is_err(), "nothing of the file system is above");
    let own = site.path("home");
    site.done(&["cp", "-r", "--identity", &own, &format!("{home}/made"), &format!("{home}/copy")]);
    site.done(&["du", "--identity", &own, &home]);
    site.done(&["rm", "-r", "--identity", &own, &format!("{home}/made")]);
    assert_eq!(names(&home), ["copy", "sub"]);
    site.done(&["flush", "--identity", &own, &home]);
    assert_eq!(writer.read_file("/dir/copy/below/large").expect("seen by others"), [7; 300_000]);
    let look = mounted("look");
    assert_eq!(names(&look), ["deep", "file"]);
    let refused = std::fs::write(format!("{look}/file"), b"x").expect_err("it may only read");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    assert_eq!(std::fs::read(format!("{look}/file")).expect("as it was"), b"content");
    site.done(&["umount", &look]);
    site.done(&["umount", &home]);
}

#[test]
fn a_revoked_certificate_is_out_everywhere_and_the_history_says_so() {
    let mut site = Site::new();
    std::fs::create_dir(site.path("etcd")).expect("a directory");
    site.etcd = Some(Etcd::start(&site.dir.path().join("etcd"), 1).expect("an etcd"));
    let monitor = site.etcd.as_ref().expect("an etcd").address();
    let data = site.path("data");
    site.done(&["cluster", "init", "--data", &data, "--plates", "4"]);
    let cluster = ["--data", &data, "--monitor", &monitor];
    let (one, two) = (site.serve(&cluster), site.serve(&cluster));
    let writer = site.await_client("writer", &one);
    site.await_history(&format!("server {}", 2));
    let admin = site.path("admin");
    site.done(&["cluster", "rebalance", "--identity", &admin]);
    // Names on all plates: the servers speak to each other.
    for number in 0..20 {
        writer.mkdir_all(format!("/{number}/x")).expect("it may change");
        writer.write_file(format!("/{number}/x/file"), b"content").expect("it may change");
    }
    drop(writer);

    // Only a server may send messages of plates.
    let map: Value = serde_json::from_str(&site.done(&["cluster", "map"])).expect("JSON");
    let hello = Hello {
        version: PROTOCOL_VERSION,
        channel: Channel::Peer,
        resume: Some((SessionId(1), map["filesystem"].as_u64().expect("a number"))),
        identity: "mallory".to_owned(),
        resend_count: 0,
        decouples: false,
        plate: PlateId(0),
        client: 0,
        filesystem: 0,
    };
    let address: Address = two.parse().expect("an address");
    match PeerChannel::open(&address, Some(&site.credentials("admin")), &hello, CONNECT_TIMEOUT) {
        Err(OpenError::Refused { reason: RefuseReason::Untrusted, message }) => {
            assert!(message.contains("is not that of a server"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    site.await_history("is not that of a server");

    let open = site.await_client("writer", &one);
    let ours = site.path("ours");
    site.done(&["auth", "revoke", "writer", "--dir", &ours]);
    site.await_history("revoke the certificate");
    for server in [&one, &two] {
        let mut looks = 0..LOOKS;
        let why = loop {
            match site.connect("writer", server) {
                Err(why) => break why,
                Ok(_) => looks.next().expect("the map arrives"),
            };
            std::thread::sleep(PAUSE);
        };
        assert!(why.contains("is revoked"), "{why}");
    }
    assert!(open.mkdir_all("/late").is_err(), "an open connection ends, too");
    site.await_history("revoked");
    assert!(site.done(&["auth", "list", "--dir", &ours]).contains("revoked"));
    assert!(site.done(&["auth", "revoke", "writer", "--dir", &ours]).contains("already"));
    site.await_client("reader", &one).read_file("/7/x/file").expect("others stay");
}
