//! A file system in a bucket, by real processes on a real service.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_moto::Moto;

const CHITON: &str = env!("CARGO_BIN_EXE_chiton");

/// Processes of one machine's user, on one service.
struct Site<'a> {
    moto: &'a Moto,
    home: tempfile::TempDir,
}

impl<'a> Site<'a> {
    fn new(moto: &'a Moto) -> Site<'a> {
        Site { moto, home: tempfile::tempdir().expect("a directory") }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(CHITON);
        command.args(args).env("XDG_RUNTIME_DIR", self.home.path()).env("HOME", self.home.path());
        command.envs(self.moto.environment());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    fn refused(&self, args: &[&str], code: i32, words: &str) {
        reported(&self.run(args), code, words);
    }

    /// Starts a server, and waits until it is ready.
    fn serve(&self, args: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
        let mut child = self.command(args).stderr(Stdio::piped()).spawn().expect("the program runs");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("serving ") {
            line.clear();
            assert!(said.read_line(&mut line).expect("readable") > 0, "the server ended before it served");
        }
        (child, said)
    }
}

fn reported(out: &Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "it does not say {words:?}: {said}");
}

#[test]
fn unusable_services_are_found_immediately() {
    let moto = Moto::shared();
    let site = Site::new(moto);
    let bucket = format!("s3://{}/fs", moto.bucket());
    site.refused(&["format", "s3://no-such-bucket/fs"], 1, "there is no bucket");
    site.refused(&["serve", "--data", "s3://no-such-bucket/fs"], 1, "there is no bucket");
    site.refused(&["serve", "--data", &bucket], 4, "holds no file system");
    let out = site.run(&["format", &bucket]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    site.refused(&["format", &bucket], 3, "holds a file system already");
    let mut unreachable = site.command(&["serve", "--data", &bucket]);
    let out = unreachable.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").output().expect("runs");
    reported(&out, 1, "cannot be reached");
    let careless = Moto::start_ignoring_conditions();
    let site = Site::new(&careless);
    site.refused(&["format", &format!("s3://{}/fs", careless.bucket())], 1, "conditional");
}

#[test]
fn several_plates_share_a_bucket() {
    let moto = Moto::shared();
    let site = Site::new(moto);
    let bucket = format!("s3://{}/plates", moto.bucket());
    let done = |args: &[&str]| {
        let out = site.run(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    done(&["format", &bucket, "--plates", "2"]);
    site.refused(&["format", &bucket, "--plates", "2"], 3, "holds a file system already");
    for _ in 0..2 {
        let (mut child, _said) = site.serve(&["serve", "--data", &bucket]);
        let said = done(&["status", &bucket]);
        assert!(said.contains("plate 1: 0 files"), "{said}");
        signal(&child, rustix::process::Signal::TERM);
        assert!(child.wait().expect("it ends").success());
    }
    // After a crash, too.
    let (mut child, _said) = site.serve(&["serve", "--data", &bucket]);
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let (mut child, _said) = site.serve(&["serve", "--data", &bucket]);
    signal(&child, rustix::process::Signal::TERM);
    assert!(child.wait().expect("it ends").success());
    done(&["fsck", &bucket]);
    assert!(done(&["journal", "inspect", &bucket, "--plate", "1"]).contains("OK"));
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("signalled");
}

/// Waits until `cond` holds.
fn until(what: &str, mut cond: impl FnMut() -> bool) {
    for _ in 0..24_000 {
        if cond() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not within two minutes: {what}");
}

/// A free port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// One address for changing servers: new connections go to the present one.
fn forward(to: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let pass = |mut from: TcpStream, mut into: TcpStream| {
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                if into.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            // Either end takes the other with it.
            let _ = (from.shutdown(std::net::Shutdown::Both), into.shutdown(std::net::Shutdown::Both));
        });
    };
    std::thread::spawn(move || {
        for inner in listener.incoming() {
            let (Ok(inner), Ok(outer)) = (inner, TcpStream::connect(("127.0.0.1", to.load(SeqCst)))) else {
                continue;
            };
            pass(inner.try_clone().expect("a handle"), outer.try_clone().expect("a handle"));
            pass(outer, inner);
        }
    });
    port
}

/// Files of one program on a mount: made, written, renamed, appended to and read back. An error of any call ends the test.
fn work_on(dir: &std::path::Path, n: usize) {
    let path = dir.join(format!("file {n}"));
    let content = format!("what file {n} holds ").repeat(1 + n * 37 % 400).into_bytes();
    let work = || -> std::io::Result<Vec<u8>> {
        let new = dir.join(format!("new {n}"));
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&content)?;
        if n.is_multiple_of(4) {
            file.sync_all()?;
        }
        drop(file);
        std::fs::rename(&new, &path)?;
        std::fs::OpenOptions::new().append(true).open(&path)?.write_all(b"the end")?;
        std::fs::metadata(dir.join("first"))?;
        std::fs::read(&path)
    };
    let found = work().unwrap_or_else(|e| panic!("file {n}: {e}"));
    assert!(found == [&content[..], b"the end"].concat(), "file {n} holds something else");
}

/// S87: "A server that another one has replaced answers nothing more: its clients send their requests to the new one." The
/// first serves, and writes, until it finds that it was replaced; programs on a mount meet no error meanwhile.
#[test]
fn programs_on_a_mount_notice_no_take_over() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: mounts need root");
        return;
    }
    let moto = Moto::shared();
    let sites = [Site::new(moto), Site::new(moto)];
    let bucket = format!("s3://{}/fs", moto.bucket());
    let out = sites[0].run(&["format", &bucket]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let start = |site: &Site<'_>, more: &[&str]| {
        let port = free_port();
        let listen = format!("tcp:127.0.0.1:{port}");
        let (child, said) = site.serve(&[&["serve", "--data", &bucket, "--listen", &listen], more].concat());
        (child, said, port)
    };
    let (mut server, mut said, port) = start(&sites[0], &[]);
    let to = Arc::new(AtomicU16::new(port));
    let address = format!("tcp:127.0.0.1:{}", forward(to.clone()));
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().to_str().expect("a plain path").to_owned();
    let state = sites[0].home.path().to_str().expect("a plain path").to_owned();
    let mounted = sites[0].run(&["mount", "--server", &address, "--state-dir", &state, &dir]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let _unmount = Unmount(place.path().to_owned());
    std::fs::write(place.path().join("first"), "x").expect("a write");
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _stop = StopAtDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                let _stop = StopAtDrop(&stop);
                while !stop.load(SeqCst) {
                    work_on(place.path(), next.fetch_add(1, SeqCst));
                    count.fetch_add(1, SeqCst);
                }
            });
        }
        let works = || {
            let before = count.load(SeqCst);
            until("the programs work", || stop.load(SeqCst) || count.load(SeqCst) > before + 20);
            assert!(!stop.load(SeqCst), "a program met an error");
        };
        for round in 1..=3 {
            works();
            let (taken, words, port) = start(&sites[round % 2], &["--take-over"]);
            // For a while both are reached, the one by connections that there are.
            works_or_waits(&count);
            to.store(port, SeqCst);
            let mut why = String::new();
            while !why.contains("taken over") {
                why.clear();
                assert!(said.read_line(&mut why).expect("readable") > 0, "it ended without saying why");
            }
            assert_eq!(server.wait().expect("ended").code(), Some(3));
            (server, said) = (taken, words);
            works();
        }
    });
    let made = next.load(SeqCst);
    for n in 0..made {
        assert!(place.path().join(format!("file {n}")).exists(), "file {n} of {made} is gone");
    }
    drop(_unmount);
    signal(&server, rustix::process::Signal::TERM);
    assert!(server.wait().expect("ended").success());
}

/// Lets programs continue for a moment, if they can.
fn works_or_waits(count: &AtomicUsize) {
    let before = count.load(SeqCst);
    for _ in 0..100 {
        if count.load(SeqCst) > before + 5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the programs also when a check fails.
struct StopAtDrop<'a>(&'a AtomicBool);

impl Drop for StopAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Unmounts when dropped.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new(CHITON).arg("umount").arg(&self.0).status();
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// The first server is stopped during a client's writes and the second takes over; the first continues, and must
/// not answer again. Every acknowledged write survives, whichever server acknowledged it.
#[test]
fn nothing_answered_is_lost_when_a_paused_server_is_taken_over() {
    let moto = Moto::shared();
    let (one, two) = (Site::new(moto), Site::new(moto));
    let bucket = format!("s3://{}/fs", moto.bucket());
    let out = one.run(&["format", &bucket]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let start = |site: &Site<'_>, more: &[&str]| {
        let port = free_port();
        let listen = format!("tcp:127.0.0.1:{port}");
        let args = [&["serve", "--data", &bucket, "--listen", &listen], more].concat();
        let (child, said) = site.serve(&args);
        (child, said, port)
    };
    let (mut first, mut said, port) = start(&one, &[]);
    let to = Arc::new(AtomicU16::new(port));
    let address = format!("tcp:127.0.0.1:{}", forward(to.clone())).parse().expect("an address");
    let user = Some((0, 0, Vec::new()));
    let client = Arc::new(
        Client::connect(&address, ClientOptions { user, ..ClientOptions::default() }).expect("connects"),
    );
    let content = |n: usize| format!("what file {n} holds ").repeat(1 + n * 37 % 900).into_bytes();
    // Writers run all the time: some files are durable when acknowledged, others are not.
    let (answered, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let count = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let (client, answered, stop, count) =
                (client.clone(), answered.clone(), stop.clone(), count.clone());
            std::thread::spawn(move || {
                while !stop.load(SeqCst) {
                    let n = count.fetch_add(1, SeqCst);
                    client
                        .create_file(format!("/file {n}"), &content(n))
                        .unwrap_or_else(|e| panic!("file {n}: {e}"));
                    if n % 4 == 0 {
                        client.sync().unwrap_or_else(|e| panic!("flush after {n}: {e}"));
                    }
                    answered.lock().expect("whole").push(n);
                }
            })
        })
        .collect();
    let reported = || answered.lock().expect("whole").len();
    until("writes", || reported() > 20);
    signal(&first, rustix::process::Signal::STOP);
    let (mut second, _second_said, port) = start(&two, &["--take-over"]);
    to.store(port, SeqCst);
    signal(&first, rustix::process::Signal::CONT);
    let mut why = String::new();
    while !why.contains("taken over") {
        why.clear();
        assert!(said.read_line(&mut why).expect("readable") > 0, "the first ended without saying why");
    }
    assert_eq!(first.wait().expect("ended").code(), Some(3));
    // The clients continue with the second.
    let before = reported();
    until("writes to the second", || reported() > before + 20);
    stop.store(true, SeqCst);
    writers.into_iter().for_each(|writer| writer.join().expect("no writer failed"));
    client.sync().expect("durable");
    drop(client);
    // From the second server's view, and from its leftovers.
    let check = |port: u16| {
        let address = format!("tcp:127.0.0.1:{port}").parse().expect("an address");
        let user = Some((0, 0, Vec::new()));
        let client =
            Client::connect(&address, ClientOptions { user, ..ClientOptions::default() }).expect("connects");
        let answered = answered.lock().expect("whole");
        for &n in answered.iter() {
            let found = client.read_file(format!("/file {n}")).unwrap_or_else(|e| panic!("file {n}: {e}"));
            assert!(found == content(n), "file {n} of {} holds something else", answered.len());
        }
    };
    check(port);
    let out = two.run(&["fsck", &format!("tcp:127.0.0.1:{port}")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    assert!(
        String::from_utf8_lossy(&two.run(&["df", &bucket]).stdout).contains("PiB"),
        "a bucket is not full"
    );
    signal(&second, rustix::process::Signal::KILL);
    second.wait().expect("ended");
    let (mut third, _third_said, port) = start(&one, &[]);
    check(port);
    signal(&third, rustix::process::Signal::TERM);
    assert!(third.wait().expect("ended").success());
}

/// A service that answers every request alike.
fn answers(status: &'static str, code: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let body =
                format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>no</Message></Error>");
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let length = body.len();
            let reply = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    endpoint
}

#[test]
fn wrong_credentials_are_reported_immediately() {
    let moto = Moto::shared();
    let site = Site::new(moto);
    for (status, code) in [
        ("403 Forbidden", "AccessDenied"),
        ("403 Forbidden", "SignatureDoesNotMatch"),
        ("403 Forbidden", "InvalidAccessKeyId"),
    ] {
        let endpoint = answers(status, code);
        for args in [&["format", "s3://bucket/fs"][..], &["serve", "--data", "s3://bucket/fs"]] {
            let out = site.command(args).env("AWS_ENDPOINT_URL", &endpoint).output().expect("runs");
            reported(&out, 1, "check the credentials and their rights");
            reported(&out, 1, code);
        }
    }
}

/// A service that refuses is waited for; a bucket that was deleted is not, whether the server has something to write or not.
#[test]
fn a_server_ends_when_its_bucket_is_gone() {
    let moto = Moto::alone();
    let site = Site::new(&moto);
    for writes in [false, true] {
        let bucket = format!("s3://{}/fs", moto.bucket());
        let out = site.run(&["format", &bucket]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let port = free_port();
        let address = format!("tcp:127.0.0.1:{port}");
        let (mut server, mut said) = site.serve(&["serve", "--data", &bucket, "--listen", &address]);
        let user = Some((0, 0, Vec::new()));
        // A mount that cannot deliver its writes waits no longer.
        let timeout = Some(Duration::from_secs(10));
        let address = address.parse().expect("an address");
        let options = ClientOptions { user, timeout, ..ClientOptions::default() };
        let client = Client::connect(&address, options).expect("connects");
        client.create_file("/before", b"durable").expect("made");
        client.sync().expect("durable");
        moto.remove_all_buckets();
        if writes {
            // The mount does not claim that its writes are durable.
            let _ = client.create_file("/after", &[7; 100_000]);
            client.sync().expect_err("it is not durable");
        }
        let mut text = String::new();
        said.read_to_string(&mut text).expect("readable");
        assert_eq!(server.wait().expect("ended").code(), Some(6), "{text}");
        assert!(text.contains("NoSuchBucket") && text.contains("gone"), "{text}");
        site.refused(&["serve", "--data", &bucket], 1, "there is no bucket");
    }
}

/// The first is stopped, the second takes over, the first wakes up.
#[test]
fn a_paused_server_that_was_taken_over_ends() {
    let moto = Moto::shared();
    let (one, two) = (Site::new(moto), Site::new(moto));
    let bucket = format!("s3://{}/fs", moto.bucket());
    let out = one.run(&["format", &bucket]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (mut first, mut said) = one.serve(&["serve", "--data", &bucket]);
    let status = one.run(&["status", &bucket, "--json"]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    signal(&first, rustix::process::Signal::STOP);
    let holder = format!("process {}", first.id());
    two.refused(&["serve", "--data", &bucket], 3, &holder);
    let (mut second, _said) = two.serve(&["serve", "--data", &bucket, "--take-over"]);
    signal(&first, rustix::process::Signal::CONT);
    let mut why = String::new();
    while !why.contains("taken over") {
        why.clear();
        assert!(said.read_line(&mut why).expect("readable") > 0, "the first ended without saying why");
    }
    assert_eq!(first.wait().expect("ended").code(), Some(3));
    assert!(two.run(&["status", &bucket]).status.success(), "the second goes on");
    signal(&second, rustix::process::Signal::TERM);
    assert!(second.wait().expect("ended").success());
    // No server holds it now.
    let (mut third, _said) = one.serve(&["serve", "--data", &bucket]);
    signal(&third, rustix::process::Signal::TERM);
    assert!(third.wait().expect("ended").success());
}
