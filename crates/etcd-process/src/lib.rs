//! An etcd on this machine, for tests and trials: some members, each a process that ends with this one.
//!
//! ```text
//!   Etcd::start(dir, 3) ─▶ sh ─▶ etcd (member 0) on ports that the system chose, data in dir/member-0
//!                     ─▶ …                                 and so on
//! ```
//!
//! Invariants: a member ends when its shell's standard input does, also if this process is killed.

#![allow(clippy::disallowed_methods, reason = "real processes: nothing here runs in a simulation")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Looks at whether a member answers, and the time between two.
const LOOKS: usize = 600;
const PAUSE: Duration = Duration::from_millis(50);
/// Runs the rest of its arguments until standard input ends, and says their process id.
const UNTIL_INPUT_ENDS: &str = r#""$@" </dev/null & echo $!; cat >/dev/null; kill -9 $! 2>/dev/null; wait"#;

/// The members that were started. Dropping the value kills those that run; their data stays.
#[derive(Debug)]
pub struct Etcd {
    dir: PathBuf,
    /// The address at which all listen.
    host: String,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    client_port: u16,
    peer_port: u16,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    shell: Child,
    pid: Pid,
}

impl Etcd {
    /// Starts so many members, with data in a directory, and waits until all answer.
    ///
    /// # Errors
    /// In words: `etcd` is not installed, or does not start.
    pub fn start(dir: &Path, members: usize) -> Result<Etcd, String> {
        Etcd::start_at(dir, members, "127.0.0.1")
    }

    /// As [`Etcd::start`], at an address of this machine.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn start_at(dir: &Path, members: usize, host: &str) -> Result<Etcd, String> {
        // They stay taken until all are known, so that none is given twice.
        let taken = (0..members * 2)
            .map(|_| TcpListener::bind((host, 0)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("no free port: {e}"))?;
        let ports: Vec<u16> = taken
            .iter()
            .filter_map(|listener| listener.local_addr().ok())
            .map(|address| address.port())
            .collect();
        drop(taken);
        let member = |ports: &[u16]| Member { client_port: ports[0], peer_port: ports[1], running: None };
        let members = ports.chunks_exact(2).map(member).collect::<Vec<_>>();
        let count = members.len();
        let mut etcd = Etcd { dir: dir.to_owned(), host: host.to_owned(), members };
        for number in 0..count {
            etcd.spawn(number)?;
        }
        (0..count).try_for_each(|number| etcd.await_health(number))?;
        Ok(etcd)
    }

    /// `etcd://HOST:PORT,…`.
    pub fn address(&self) -> String {
        let members: Vec<_> =
            self.members.iter().map(|member| format!("{}:{}", self.host, member.client_port)).collect();
        format!("etcd://{}", members.join(","))
    }

    /// How many members it has.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The process of a member that runs.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pid(&self, member: usize) -> u32 {
        self.running(member).pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub fn kill(&mut self, member: usize) {
        drop(self.members[member].running.take());
    }

    /// Starts a member again that was killed, and waits until it answers.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn restart(&mut self, member: usize) -> Result<(), String> {
        self.spawn(member)?;
        self.await_health(member)
    }

    /// Starts several members again that were killed: alone none of them may be able to answer.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn restart_all(&mut self, members: &[usize]) -> Result<(), String> {
        members.iter().try_for_each(|member| self.spawn(*member))?;
        members.iter().try_for_each(|member| self.await_health(*member))
    }

    /// Stops a member, as if its machine hung.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pause(&self, member: usize) {
        kill_process(self.running(member).pid, Signal::STOP).expect("our own process");
    }

    /// Resumes a member.
    ///
    /// # Panics
    /// If it does not run.
    pub fn resume(&self, member: usize) {
        kill_process(self.running(member).pid, Signal::CONT).expect("our own process");
    }

    fn running(&self, member: usize) -> &Running {
        self.members[member].running.as_ref().expect("the member runs")
    }

    fn spawn(&mut self, number: usize) -> Result<(), String> {
        let url = |port: u16| format!("http://{}:{port}", self.host);
        let names: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(n, member)| format!("m{n}={}", url(member.peer_port)))
            .collect();
        let member = &self.members[number];
        let (client, peer) = (url(member.client_port), url(member.peer_port));
        let log = std::fs::File::create(self.dir.join(format!("member-{number}.log")))
            .map_err(|e| format!("a log in {}: {e}", self.dir.display()))?;
        let mut shell = Command::new("sh")
            .args(["-c", UNTIL_INPUT_ENDS, "etcd", "etcd", "--name", &format!("m{number}")])
            .arg("--data-dir")
            .arg(self.dir.join(format!("member-{number}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &names.join(",")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("cannot run sh: {e}"))?;
        let mut line = String::new();
        let said = shell.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| format!("the shell of an etcd said {said:?}: {line:?}"))?;
        self.members[number].running = Some(Running { shell, pid });
        Ok(())
    }

    fn await_health(&mut self, number: usize) -> Result<(), String> {
        let port = self.members[number].client_port;
        for _ in 0..LOOKS {
            if is_healthy(&self.host, port) {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        let log = std::fs::read_to_string(self.dir.join(format!("member-{number}.log"))).unwrap_or_default();
        let last = log.lines().last().unwrap_or("nothing; is it installed (Debian: etcd-server)?");
        Err(format!("etcd does not answer; its last words: {last}"))
    }
}

fn is_healthy(host: &str, port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((host, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(r#""health":"true""#))
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its shell waits for it, so the number is still its own.
        let _ = kill_process(self.pid, Signal::KILL);
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
