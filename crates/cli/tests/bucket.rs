//! A file system in a bucket, by real processes on a real service.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

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
        told(&self.run(args), code, words);
    }

    /// A server that says that it serves.
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

fn told(out: &Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "it does not say {words:?}: {said}");
}

#[test]
fn what_cannot_be_used_is_found_at_once() {
    let moto = Moto::shared();
    let site = Site::new(moto);
    let bucket = format!("s3://{}/fs", moto.bucket());
    site.refused(&["format", "s3://no-such-bucket/fs"], 1, "there is no bucket");
    site.refused(&["serve", "--data", "s3://no-such-bucket/fs"], 1, "there is no bucket");
    site.refused(&["serve", "--data", &bucket], 4, "format it first");
    let out = site.run(&["format", &bucket]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    site.refused(&["format", &bucket], 3, "holds a file system already");
    let mut unreachable = site.command(&["serve", "--data", &bucket]);
    let out = unreachable.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").output().expect("runs");
    told(&out, 1, "cannot be reached");
    let careless = Moto::start_ignoring_conditions();
    let site = Site::new(&careless);
    site.refused(&["format", &format!("s3://{}/fs", careless.bucket())], 1, "conditional");
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
    let signal = |child: &Child, signal| {
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).expect("signalled");
    };
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
    // Nobody holds it now.
    let (mut third, _said) = one.serve(&["serve", "--data", &bucket]);
    signal(&third, rustix::process::Signal::TERM);
    assert!(third.wait().expect("ended").success());
}
