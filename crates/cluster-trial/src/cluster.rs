//! The processes.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chiton_etcd_process::Etcd;
use chiton_moto::Moto;
use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::network::Network;

/// How long something may take that takes seconds on an idle machine.
const DEADLINE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// How many of each.
pub(crate) struct Shape {
    pub(crate) servers: usize,
    pub(crate) standbys: usize,
    pub(crate) etcd: usize,
    pub(crate) plates: u16,
    pub(crate) mounts: usize,
    /// Or in a directory.
    pub(crate) is_on_s3: bool,
    /// Servers have networks of their own.
    pub(crate) has_networks: bool,
}

pub(crate) struct Cluster {
    chiton: PathBuf,
    dir: PathBuf,
    // Ended in this order.
    mounts: Vec<Process>,
    pub(crate) servers: Vec<Server>,
    pub(crate) etcd: Etcd,
    monitor: String,
    data: String,
    /// Ended after all that use it.
    pub(crate) network: Option<Network>,
    /// The S3 service, and the environment variables by which programs use it.
    _s3: Option<Moto>,
    environment: Vec<(&'static str, String)>,
    identities: Identities,
}

/// The files of the identities, of an authority of the trial's own.
struct Identities {
    server: PathBuf,
    client: PathBuf,
    admin: PathBuf,
}

/// The program, and the environment in which it finds the cluster.
pub(crate) struct Tool {
    program: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Tool {
    /// The program where this process finds it, in the environment of this process.
    pub(crate) fn here(program: PathBuf) -> Tool {
        Tool { program, environment: Vec::new() }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// A command that runs another program in the same environment.
    pub(crate) fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment.iter().cloned());
        command
    }

    /// Runs a command to its end; its output.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        let out = self
            .command_of(&self.program)
            .args(words)
            .output()
            .map_err(|e| format!("cannot run {}: {e}", self.program.display()))?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
            false => {
                Err(format!("chiton {}: {}", words.join(" "), String::from_utf8_lossy(&out.stderr).trim()))
            }
        }
    }
}

/// A process in the foreground; killed when dropped.
struct Process {
    child: Child,
    /// Mount point, for a process that is a mount.
    place: PathBuf,
}

pub(crate) struct Server {
    address: String,
    is_standby: bool,
    process: Option<Process>,
    log: PathBuf,
}

impl Process {
    fn start(command: &mut Command, log: &Path, place: &Path) -> Result<Process> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(|e| format!("{}: {e}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|e| format!("cannot run chiton: {e}"))?;
        Ok(Process { child, place: place.to_owned() })
    }

    fn signal(&self, signal: Signal) {
        // A process that has ended already is noticed where its plates or its mount are missed.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn end(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let began = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("a process ended with {status}")),
                Ok(None) if began.elapsed() < DEADLINE => std::thread::sleep(PAUSE),
                Ok(None) => return Err("a process does not end".to_owned()),
                Err(e) => return Err(format!("a process: {e}")),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.place.as_os_str().is_empty() {
            let _ = rustix::mount::unmount(&self.place, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Cluster {
    pub(crate) fn start(chiton: &Path, dir: &Path, shape: &Shape) -> Result<Cluster> {
        let etcd_dir = dir.join("etcd");
        std::fs::create_dir_all(&etcd_dir).map_err(|e| format!("{}: {e}", etcd_dir.display()))?;
        let count = shape.servers + shape.standbys;
        let network = shape.has_networks.then(|| Network::new(count)).transpose()?;
        let host = network.as_ref().map_or("127.0.0.1".to_owned(), Network::etcd);
        let etcd = Etcd::start_at(&etcd_dir, shape.etcd, &host)?;
        let monitor = etcd.address();
        // They stay taken until all are known, so that none is given twice.
        let taken = (0..count)
            .map(|_| TcpListener::bind(("127.0.0.1", 0)))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(|e| format!("no free port: {e}"))?;
        let servers = taken
            .iter()
            .enumerate()
            .map(|(number, listener)| {
                let port = listener.local_addr().map_err(|e| format!("a port: {e}"))?.port();
                let host = network.as_ref().map_or("127.0.0.1".to_owned(), |network| network.server(number));
                Ok(Server {
                    address: format!("tcp:{host}:{port}"),
                    is_standby: number >= shape.servers,
                    process: None,
                    log: dir.join(format!("server-{number}.log")),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        drop(taken);
        // If it cannot be installed, it panics with the name of the missing package.
        let s3 = shape.is_on_s3.then(Moto::alone);
        let data = match &s3 {
            Some(s3) => format!("s3://{}/trial", s3.bucket()),
            None => dir.join("data").display().to_string(),
        };
        let mut cluster = Cluster {
            data: data.clone(),
            environment: s3.iter().flat_map(Moto::environment).collect(),
            _s3: s3,
            chiton: chiton.to_owned(),
            dir: dir.to_owned(),
            mounts: Vec::new(),
            identities: Identities {
                server: dir.join("server.pem"),
                client: dir.join("client.pem"),
                admin: dir.join("admin.pem"),
            },
            servers,
            etcd,
            monitor,
            network,
        };
        cluster.make_identities()?;
        let plates = shape.plates.to_string();
        cluster.chiton(&["cluster", "init", "--plates", &plates, "--data", &data])?;
        for number in 0..cluster.servers.len() {
            cluster.start_server(number)?;
        }
        cluster.await_members()?;
        cluster.await_health()?;
        cluster.chiton(&["cluster", "rebalance"])?;
        for _ in 0..shape.mounts {
            cluster.mount_another()?;
        }
        Ok(cluster)
    }

    fn make_identities(&self) -> Result<()> {
        let authority = self.dir.join("authority").display().to_string();
        self.chiton(&["auth", "init", "--dir", &authority])?;
        let Identities { server, client, admin } = &self.identities;
        let all = [
            (server, "server", &["--server"][..]),
            (client, "client", &["--allow", "rw:/"][..]),
            (admin, "admin", &["--admin"][..]),
        ];
        for (file, name, role) in all {
            let file = file.display().to_string();
            let words = [&["auth", "create", name, "--dir", &authority, "--out", &file][..], role].concat();
            self.chiton(&words)?;
        }
        Ok(())
    }

    /// Runs a command to its end; its output.
    pub(crate) fn chiton(&self, words: &[&str]) -> Result<String> {
        self.tool().run(words)
    }

    /// The program, as an administrator runs it.
    pub(crate) fn tool(&self) -> Tool {
        let identity = self.identities.admin.to_string_lossy().into_owned();
        let own = [("CHITON_MONITOR", self.monitor.clone()), ("CHITON_IDENTITY", identity)];
        let environment = own.into_iter().chain(self.environment.iter().cloned()).collect();
        Tool { program: self.chiton.clone(), environment }
    }

    /// The output of `chiton cluster status`; its error message if plates have no server.
    pub(crate) fn status(&self) -> String {
        self.chiton(&["cluster", "status"]).unwrap_or_else(|why| why)
    }

    pub(crate) fn start_server(&mut self, number: usize) -> Result<()> {
        let server = &mut self.servers[number];
        let mut command = match &self.network {
            Some(network) => network.command(number, &self.chiton),
            None => Command::new(&self.chiton),
        };
        command.args([
            "serve",
            "--monitor",
            &self.monitor,
            "--data",
            &self.data,
            "--listen",
            &server.address,
        ]);
        command.env("CHITON_IDENTITY", &self.identities.server);
        command.envs(self.environment.iter().cloned());
        if server.is_standby {
            command.arg("--standby");
        }
        server.process = Some(Process::start(&mut command, &server.log, Path::new(""))?);
        Ok(())
    }

    /// Kills a server as `kill -9` does.
    pub(crate) fn kill_server(&mut self, number: usize) {
        drop(self.servers[number].process.take());
    }

    /// A kill -9 of the last mount.
    pub(crate) fn kill_mount(&mut self) {
        drop(self.mounts.pop());
    }

    /// The number of a server in the map.
    pub(crate) fn id_of(&self, number: usize) -> Result<u64> {
        let status = self.status_of_all()?;
        let is_it =
            |server: &&serde_json::Value| server["addresses"][0] == self.servers[number].address.as_str();
        let known = status["servers"].as_array().and_then(|servers| servers.iter().find(is_it));
        let id = known.and_then(|server| server["id"].as_u64());
        id.ok_or_else(|| format!("the status lacks the server at {}", self.servers[number].address))
    }

    /// The etcd, as programs name it.
    pub(crate) fn monitor(&self) -> &str {
        &self.monitor
    }

    /// The identity of a client that may change everything.
    pub(crate) fn client_identity(&self) -> &Path {
        &self.identities.client
    }

    pub(crate) fn signal_server(&self, number: usize, signal: Signal) {
        self.servers[number].process.iter().for_each(|process| process.signal(signal));
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|number| self.servers[*number].process.is_some()).collect()
    }

    fn status_of_all(&self) -> Result<serde_json::Value> {
        let said = self.chiton(&["cluster", "status", "--json"])?;
        serde_json::from_str(&said).map_err(|e| format!("the status: {e}"))
    }

    /// Epoch of the cluster map.
    pub(crate) fn epoch(&self) -> Result<u64> {
        self.status_of_all()?["epoch"].as_u64().ok_or_else(|| "the status has no epoch".to_owned())
    }

    /// How many plates each server has, by its place here.
    pub(crate) fn plates(&self) -> Result<Vec<u64>> {
        let status = self.status_of_all()?;
        let of = |address: &str| {
            let known =
                status["servers"].as_array()?.iter().find(|server| server["addresses"][0] == address)?;
            known["plates"].as_u64()
        };
        Ok(self.servers.iter().map(|server| of(&server.address).unwrap_or(0)).collect())
    }

    /// Waits until all servers are in the map.
    fn await_members(&self) -> Result<()> {
        let began = Instant::now();
        while !self.servers.iter().all(|server| self.status().contains(&server.address)) {
            if began.elapsed() >= DEADLINE {
                return Err(format!("a server does not join: {}", self.status()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until a server that was started again lives, and hands plates over until each server has its share.
    pub(crate) fn balance_after_restart(&self, number: usize) -> Result<()> {
        let began = Instant::now();
        let lives = || -> Result<bool> {
            let status = self.status_of_all()?;
            let is_it =
                |server: &&serde_json::Value| server["addresses"][0] == self.servers[number].address.as_str();
            let known = status["servers"].as_array().and_then(|servers| servers.iter().find(is_it));
            Ok(known.is_some_and(|server| server["up"] == true))
        };
        while !lives()? {
            self.check_deadline(began)?;
            std::thread::sleep(PAUSE);
        }
        self.chiton(&["cluster", "rebalance"])?;
        self.await_health()
    }

    fn check_deadline(&self, began: Instant) -> Result<()> {
        match began.elapsed() < DEADLINE {
            true => Ok(()),
            false => Err(format!("the servers do not settle: {}", self.status())),
        }
    }

    /// Waits until each plate has a server.
    pub(crate) fn await_health(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.chiton(&["cluster", "status"]) {
                Ok(_) => return Ok(()),
                Err(why) if began.elapsed() >= DEADLINE => return Err(why),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// One more mount; where it is.
    pub(crate) fn mount_another(&mut self) -> Result<PathBuf> {
        let number = self.mounts.len();
        let place = self.dir.join(format!("mnt-{number}"));
        let (log, state) =
            (self.dir.join(format!("mount-{number}.log")), self.dir.join(format!("state-{number}")));
        for dir in [&place, &state] {
            std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        let mut command = Command::new(&self.chiton);
        command
            .env("CHITON_IDENTITY", &self.identities.client)
            .args(["mount", "--foreground", "--monitor", &self.monitor, "--state-dir"])
            .arg(state)
            .arg(&place);
        let mut process = Process::start(&mut command, &log, &place)?;
        let began = Instant::now();
        while !std::fs::read_to_string(&log).unwrap_or_default().contains("mounted on") {
            let ended = process.child.try_wait().map_err(|e| format!("a mount: {e}"))?.is_some();
            if ended || began.elapsed() >= DEADLINE {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("the mount does not come: {said}"));
            }
            std::thread::sleep(PAUSE);
        }
        self.mounts.push(process);
        Ok(place)
    }

    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        self.mounts.iter().map(|mount| mount.place.clone()).collect()
    }

    pub(crate) fn mounts_as_text(&self) -> String {
        self.mounts().iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(" and ")
    }

    pub(crate) fn pids_as_text(&self) -> String {
        let pid = |server: &Server| server.process.as_ref().map(|process| process.child.id().to_string());
        self.servers.iter().filter_map(pid).collect::<Vec<_>>().join(", ")
    }

    /// Lines of the logs of servers and mounts that report a panic or a bug.
    pub(crate) fn suspicious_logs(&self) -> Vec<String> {
        let mounts = (0..self.mounts.len()).map(|number| self.dir.join(format!("mount-{number}.log")));
        let logs = self.servers.iter().map(|server| server.log.clone()).chain(mounts);
        logs.flat_map(|log| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let is_bad = |line: &&str| line.contains("panicked") || line.contains("bug:");
            let bad: Vec<String> =
                said.lines().filter(is_bad).map(|line| format!("{}: {line}", log.display())).collect();
            bad
        })
        .collect()
    }

    /// Unmounts, then ends the servers in order.
    pub(crate) fn end(mut self) -> Result<()> {
        for mut mount in self.mounts.drain(..) {
            let began = Instant::now();
            while let Err(e) = rustix::mount::unmount(&mount.place, rustix::mount::UnmountFlags::empty()) {
                if began.elapsed() >= DEADLINE {
                    return Err(format!("cannot unmount {}: {e}", mount.place.display()));
                }
                std::thread::sleep(PAUSE);
            }
            let place = std::mem::take(&mut mount.place);
            mount.end().map_err(|why| format!("the mount of {}: {why}", place.display()))?;
        }
        for server in &mut self.servers {
            if let Some(process) = server.process.take() {
                process.end().map_err(|why| format!("the server at {}: {why}", server.address))?;
            }
        }
        Ok(())
    }
}
