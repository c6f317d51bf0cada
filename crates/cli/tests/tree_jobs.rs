//! `chiton jobs`, and the commands that have the server work, as users and scripts see them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod program;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use program::{chiton, done, json, refused};

/// A server that listens on a port of this machine, too.
struct Site {
    dir: TempDir,
    server: Child,
    tcp: String,
}

impl Site {
    fn start() -> Site {
        let dir = tempfile::tempdir().expect("a folder");
        done(&["format", &dir.path().join("data").display().to_string(), "--plates", "3"]);
        let (server, tcp) = serve(dir.path());
        Site { dir, server, tcp }
    }

    fn data(&self) -> String {
        self.dir.path().join("data").display().to_string()
    }

    fn end(&mut self, signal: Signal) {
        send(&self.server, signal);
        self.server.wait().expect("it ends");
    }

    /// The program as another user runs it: a copy that this user can reach, wherever the program was built.
    fn as_user(&self, uid: u32, args: &[&str]) -> Output {
        let copy = self.dir.path().join("chiton");
        if !copy.exists() {
            fs::copy(env!("CARGO_BIN_EXE_chiton"), &copy).expect("copied");
            fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).expect("changed");
        }
        Command::new(copy).args(args).uid(uid).gid(uid).current_dir("/").output().expect("the program runs")
    }

    fn again(&mut self) {
        (self.server, self.tcp) = serve(self.dir.path());
    }

    /// Directories of a hundred files, made without a mount.
    fn fill(&self, dirs: usize) {
        let from = self.dir.path().join("from");
        for dir in 0..dirs {
            let dir = from.join(format!("dir-{dir}"));
            fs::create_dir_all(&dir).expect("made");
            (0..100).for_each(|n| fs::write(dir.join(format!("file-{n}")), "content").expect("written"));
        }
        let mount = self.dir.path().join("mnt");
        fs::create_dir_all(&mount).expect("made");
        let at = mount.display().to_string();
        done(&["mount", "--server", &self.data_socket(), &at]);
        let copied = Command::new("cp").arg("-r").args([&from, &mount.join("tree")]).status();
        done(&["umount", &at]);
        assert!(copied.expect("cp runs").success());
    }

    fn data_socket(&self) -> String {
        format!("unix:{}/socket", self.data())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = chiton(&["umount", "--lazy", &self.dir.path().join("mnt").display().to_string()]);
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(dir: &Path) -> (Child, String) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port");
    let tcp = format!("tcp:{free}");
    let mut server = Command::new(env!("CARGO_BIN_EXE_chiton"))
        .args(["serve", "--listen", &tcp, "--data"])
        .arg(dir.join("data"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("chiton runs");
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("on tcp:")), "the server says where it serves");
    std::thread::spawn(move || lines.for_each(drop));
    (server, tcp)
}

fn send(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).expect("it lives");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_server_works_for_its_clients_and_remembers_it() {
    let mut site = Site::start();
    site.fill(10);
    let data = site.data();
    done(&["chmod", "-R", "u+rwX,go=", "/tree", "--server", &data]);
    let copied = json(&["cp", "-r", "--json", "--server", &data, "/tree", "/copy"]);
    assert_eq!((&copied["files"], &copied["refused"]), (&1_000.into(), &0.into()), "{copied}");
    // These work in their own processes.
    done(&["chown", "-R", "--here", "12:34", "/copy", "--server", &data]);
    done(&["chmod", "700", "/copy", "--server", &data]);
    let (by_job, by_hand) = (
        json(&["du", "--json", "--server", &data, "/copy"]),
        json(&["du", "--json", "--here", "--server", &data, "/copy"]),
    );
    assert_eq!(by_job, by_hand);
    let listed = json(&["jobs", "--json", &data]);
    let jobs = listed["jobs"].as_array().expect("a list");
    let kinds: Vec<_> = jobs.iter().map(|job| job["kind"].as_str().expect("a word")).collect();
    assert_eq!(kinds, ["chmod", "cp", "du"], "{listed}");
    assert!(jobs.iter().all(|job| job["state"] == "done" && job["uid"] == 0), "{listed}");
    let id = jobs[1]["id"].to_string();
    let shown = done(&["jobs", "show", &id, &data]);
    assert!(shown.contains("cp /tree for user") && shown.contains("1000 files"), "{shown}");
    assert!(done(&["jobs", "list", &data]).contains(&id));
    assert_eq!(json(&["jobs", "cancel", &id, &data, "--json"])["state"], "done", "it is over already");
    refused(&["jobs", "show", "7", &data], 4, "has a job 7");
    refused(&["jobs"], 2, "name a mount point");

    // A job ends with its server, which the next one does not know.
    site.end(Signal::TERM);
    site.again();
    refused(&["jobs", "show", &id, &data], 4, "with its server");
    assert_eq!(done(&["jobs", &data]), "no jobs\n");
}

/// The output of a command whose server is killed as soon as the job runs, and starts again.
fn over_a_kill(site: &mut Site, args: &[&str]) -> Output {
    let data = site.data();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
    let child =
        command.args(args).args(["--server", &data]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("chiton runs");
    let began = Instant::now();
    let is_running = || {
        let listed = json(&["jobs", "--json", &data]);
        let newest = listed["jobs"].as_array().and_then(|jobs| jobs.last()).cloned().unwrap_or_default();
        newest["kind"] == args[0] && newest["state"] == "running"
    };
    while !is_running() && began.elapsed() < Duration::from_secs(2) {}
    site.end(Signal::KILL);
    site.again();
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_command_whose_server_dies_begins_again_at_the_next() {
    let mut site = Site::start();
    site.fill(50);
    let data = site.data();
    let trees = ["/tree", "/a", "/b", "/c", "/d"];
    trees[1..].iter().for_each(|to| drop(done(&["cp", "-r", "/tree", to, "--server", &data])));

    // It cannot end before all is read.
    let out = over_a_kill(&mut site, &["find", "/", "-0"]);
    assert!(out.status.success() && said(&out).contains("a server begins again"), "{}", said(&out));
    let mut paths: Vec<&[u8]> = out.stdout.split(|&b| b == 0).collect();
    paths.sort_unstable();
    assert_eq!(paths.len(), 1 + 1 + 5 * (1 + 50 + 5_000));
    assert!(paths.windows(2).all(|pair| pair[0] != pair[1]), "a path is printed twice");

    let mut has_begun_again = false;
    for mode in ["u+x", "u-x", "g+x", "g-x", "o+x"] {
        let words = [&["chmod", "-R", mode][..], &trees[..]].concat();
        let out = over_a_kill(&mut site, &words);
        assert!(out.status.success(), "{}", said(&out));
        let found = done(&["find", "/", "--type", "f", "--json", "--server", &data]);
        let bits = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            u32::from_str_radix(line["mode"].as_str().expect("a mode"), 8).expect("octal")
        };
        let wanted = match mode {
            "u+x" => 0o100,
            "g+x" => 0o010,
            "o+x" => 0o001,
            _ => 0,
        };
        assert!(found.lines().all(|line| bits(line) & 0o111 == wanted), "{mode}");
        has_begun_again |= said(&out).contains("a server begins again");
        if has_begun_again && mode.contains('-') {
            break;
        }
    }
    assert!(has_begun_again, "no job was under way when its server died");

    // Names that the first job removed are gone, and no failure.
    let words = [&["rm", "-r", "--each"][..], &trees[..]].concat();
    let out = over_a_kill(&mut site, &words);
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(done(&["find", "/", "--server", &data]), "/\n");
    site.end(Signal::TERM);
    done(&["fsck", &data]);
}

#[test]
fn other_users_have_jobs_of_their_own() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::start();
    site.fill(2);
    let tcp = &site.tcp[..];
    done(&["du", "--server", tcp, "/tree"]);
    let refused = site.as_user(1000, &["chmod", "-R", "777", "/tree", "--server", tcp, "--json"]);
    let totals: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert_eq!((refused.status.code(), &totals["refused"]), (Some(1), &203.into()), "{totals}");
    assert_eq!(totals["refusals"].as_array().map(Vec::len), Some(203));
    let all = json(&["jobs", "--json", tcp]);
    let own: serde_json::Value =
        serde_json::from_slice(&site.as_user(1000, &["jobs", "--json", tcp]).stdout).expect("JSON");
    assert_eq!(
        (all["jobs"].as_array().map(Vec::len), own["jobs"].as_array().map(Vec::len)),
        (Some(2), Some(1))
    );
    assert_eq!((&own["jobs"][0]["uid"], &own["jobs"][0]["kind"]), (&1000.into(), &"chmod".into()));
    let of_root = all["jobs"][0]["id"].to_string();
    for word in ["show", "cancel"] {
        let out = site.as_user(1000, &["jobs", word, &of_root, tcp]);
        assert_eq!(out.status.code(), Some(1));
        assert!(said(&out).contains("another user's"), "{}", said(&out));
    }
}

#[test]
fn ctrl_c_cancels_the_job_and_a_copy_outlives_its_server() {
    let mut site = Site::start();
    site.fill(100);
    let data = site.data();
    let start = |to: &str| {
        Command::new(env!("CARGO_BIN_EXE_chiton"))
            .args(["cp", "-r", "--server", &data, "/tree", to])
            .stderr(Stdio::piped())
            .spawn()
            .expect("chiton runs")
    };
    let newest = |state: &str| {
        let began = Instant::now();
        loop {
            let listed = json(&["jobs", "--json", &data]);
            if let Some(job) = listed["jobs"].as_array().and_then(|jobs| jobs.last())
                && job["state"] == state
            {
                return job.clone();
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{listed}");
        }
    };
    let cp = start("/first");
    newest("running");
    send(&cp, Signal::INT);
    let out = cp.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(1));
    assert!(
        said(&out).contains("interrupted") && said(&out).contains("remove the copy first"),
        "{}",
        said(&out)
    );
    assert!(newest("cancelled")["totals"]["files"].as_u64() < Some(10_000));

    let cp = start("/second");
    newest("running");
    site.end(Signal::KILL);
    site.again();
    let out = cp.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", said(&out));
    assert!(said(&out).contains("a server begins again"), "{}", said(&out));
    let lines = |path: &str| {
        let found = done(&["find", path, "--json", "--server", &data]);
        let whole = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let name = line["path"].as_str().expect("a path")[path.len()..].to_owned();
            (name, line["mode"].clone(), line["bytes"].clone(), line["mtime_ns"].clone())
        };
        let mut lines: Vec<String> = found.lines().map(|line| format!("{:?}", whole(line))).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines("/tree"), lines("/second"));

    // A user who ends the command meanwhile learns how much is there.
    let cp = start("/third");
    newest("running");
    site.end(Signal::KILL);
    send(&cp, Signal::INT);
    site.again();
    let out = cp.wait_with_output().expect("it ends");
    let words = said(&out);
    assert_eq!(out.status.code(), Some(1), "{words}");
    assert!(words.contains("interrupted: job") && words.contains("has ended with its server"), "{words}");
    match words.contains("/third is not there") {
        true => assert!(words.contains("run the command again"), "{words}"),
        false => assert!(
            words.contains("/third has ") && words.contains("remove the copy (chiton rm -r)"),
            "{words}"
        ),
    }
    // The changes that it had made are there, and fsck finds nothing wrong.
    site.end(Signal::TERM);
    done(&["fsck", &data]);
}
