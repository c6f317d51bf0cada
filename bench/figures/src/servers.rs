//! One server, or a cluster of several on this machine: an etcd, and a process for each server.
//!
//! Servers of a cluster listen at Unix sockets, which need no certificates. All store into one directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_etcd_process::Etcd;
use chiton_transport::Address;
use tempfile::TempDir;

use crate::gauge::{Used, seconds};
use crate::mount::done;
use crate::setting::now;
use crate::site::{Shape, Site};
use crate::{Result, Setting};

/// Plates of a cluster, however many servers it has.
pub(crate) const PLATES: u16 = 8;
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// The numbers of servers that can be measured here: one only, without etcd or the command.
pub(crate) fn counts(setting: &Setting) -> &'static [usize] {
    match tools(setting) {
        Some(_) => setting.scale.pick(&[1, 2], &[1, 2], &[1, 2, 4]),
        None => &[1],
    }
}

/// The command, if there is an etcd too.
fn tools(setting: &Setting) -> Option<PathBuf> {
    let chiton = setting.program.with_file_name("chiton");
    let etcd = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    (chiton.exists() && etcd.is_ok_and(|status| status.success())).then_some(chiton)
}

pub(crate) enum Servers {
    One(Site),
    Cluster(Cluster),
}

/// Ended in the order of its fields.
pub(crate) struct Cluster {
    servers: Vec<Ended>,
    addresses: Vec<Address>,
    _etcd: Etcd,
    dir: TempDir,
}

/// A process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Servers {
    /// With a new file system. One server is a cluster, too, if others of the figure are.
    pub(crate) fn start(setting: &Setting, count: usize) -> Result<Servers> {
        setting.policy("posix")?;
        match tools(setting) {
            Some(chiton) => Ok(Servers::Cluster(Cluster::start(setting, &chiton, count)?)),
            None => {
                Ok(Servers::One(Site::start(setting, Shape { plates: Some(PLATES), ..Shape::default() })?))
            }
        }
    }

    /// One server with one plate, for figures that do not vary their number.
    pub(crate) fn start_one(setting: &Setting) -> Result<Servers> {
        setting.policy("posix")?;
        Ok(Servers::One(Site::start(setting, Shape::default())?))
    }

    /// A client that sends its operations one by one.
    pub(crate) fn connect(&self) -> Result<Client> {
        match self {
            Servers::One(site) => site.client(),
            Servers::Cluster(cluster) => cluster.connect(),
        }
    }

    /// Processor time of each server so far, in seconds.
    pub(crate) fn processor_time(&self) -> Result<Vec<f64>> {
        let pids: Vec<u32> = match self {
            Servers::One(site) => vec![site.pid()],
            Servers::Cluster(cluster) => cluster.servers.iter().map(|server| server.0.id()).collect(),
        };
        pids.into_iter().map(processor_time_of).collect()
    }
}

impl Cluster {
    fn start(setting: &Setting, chiton: &Path, count: usize) -> Result<Cluster> {
        let dir = setting.scratch()?;
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(path("etcd"))?;
        let etcd = Etcd::start(Path::new(&path("etcd")), 1)?;
        let (monitor, data) = (etcd.address(), path("data"));
        let command = |words: &[&str]| {
            let mut command = Command::new(chiton);
            command.args(words).env("CHITON_MONITOR", &monitor).stdin(Stdio::null());
            command
        };
        done(&mut command(&["cluster", "init", "--plates", &PLATES.to_string(), "--data", &data]))?;
        let mut cluster = Cluster { servers: Vec::new(), addresses: Vec::new(), _etcd: etcd, dir };
        for number in 0..count {
            let address = format!("unix:{}", path_in(&cluster, &format!("server-{number}")));
            let log = std::fs::File::create(path_in(&cluster, &format!("server-{number}.log")))?;
            let mut serve = command(&["serve", "--data", &data, "--listen", &address]);
            cluster.servers.push(Ended(serve.stdout(Stdio::null()).stderr(log).spawn()?));
            cluster.addresses.push(address.parse().map_err(|e| format!("{address}: {e}"))?);
        }
        cluster.until(|| is_whole(&mut command(&["cluster", "status", "--json"]), count, false))?;
        if count > 1 {
            done(&mut command(&["cluster", "rebalance"]))?;
            cluster.until(|| is_whole(&mut command(&["cluster", "status", "--json"]), count, true))?;
        }
        Ok(cluster)
    }

    fn connect(&self) -> Result<Client> {
        let begun = now();
        loop {
            let addresses = self.addresses.clone();
            let options = ClientOptions { write_behind_after: None, ..ClientOptions::default() };
            match Client::connect_to_any(Box::new(move || addresses.clone()), true, options) {
                Ok(client) => return Ok(client),
                // A plate that was handed over is still starting.
                Err(_) if now() - begun < PATIENCE => std::thread::sleep(PAUSE),
                Err(e) => return Err(e.to_string().into()),
            }
        }
    }

    fn until(&mut self, mut is_so: impl FnMut() -> bool) -> Result<()> {
        let begun = now();
        while !is_so() {
            for (number, server) in self.servers.iter_mut().enumerate() {
                if let Some(status) = server.0.try_wait()? {
                    let log = std::fs::read_to_string(self.dir.path().join(format!("server-{number}.log")))?;
                    return Err(format!("a server ended with {status}: {log}").into());
                }
            }
            if now() - begun > PATIENCE {
                return Err("the servers of the cluster do not come up".into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn path_in(cluster: &Cluster, name: &str) -> String {
    cluster.dir.path().join(name).display().to_string()
}

/// Of a process so far, in seconds.
pub(crate) fn processor_time_of(pid: u32) -> Result<f64> {
    Ok(seconds(Used::by(pid)?.ticks))
}

/// Whether all servers are up, and have equally many plates.
fn is_whole(status: &mut Command, count: usize, is_even: bool) -> bool {
    let Ok(out) = status.output() else { return false };
    let Ok(said) = serde_json::from_slice::<serde_json::Value>(&out.stdout) else { return false };
    let Some(servers) = said["servers"].as_array() else { return false };
    let has_its_share = |server: &serde_json::Value| !is_even || server["plates"] != 0;
    out.status.success()
        && servers.len() == count
        && said["plates_moving"] == 0
        && servers.iter().all(has_its_share)
}
