//! Networks of the servers' own, so that faults can cut a server off while its process lives.
//!
//! ```text
//!   mounts, tools ─ .1 ┐
//!                      ├─ bridge ─ veth ─ network namespace of server n: .10 + n
//!   etcd ────────── .2 ┘
//! ```
//!
//! A server that is cut off receives nothing, not even an end: no connection to it is closed. Nothing outside of these networks is changed,
//! and they end with the trial.

use std::path::Path;
use std::process::Command;

use crate::Result;

/// The networks of the servers.
pub(crate) struct Network {
    name: String,
    /// The first three numbers of all addresses.
    subnet: String,
    servers: usize,
}

/// Whom a server does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Everybody,
    Etcd,
    Servers,
}

fn ip(words: &str) -> Result<()> {
    let out = Command::new("ip").args(words.split(' ')).output();
    let out = out.map_err(|e| format!("cannot run ip (Debian: iproute2): {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

impl Network {
    /// Networks for so many servers.
    pub(crate) fn new(servers: usize) -> Result<Network> {
        let number = std::process::id();
        let name = format!("ct{number}");
        // Trials at the same time have different ones.
        let subnet = format!("10.{}.{}", 200 + number % 50, number / 50 % 250);
        let network = Network { name, subnet, servers };
        network.make()?;
        Ok(network)
    }

    fn make(&self) -> Result<()> {
        let Network { name, subnet, .. } = self;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("address add {subnet}.1/24 dev {name}"))?;
        ip(&format!("address add {subnet}.2/24 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        for n in 0..self.servers {
            let own = self.of(n);
            ip(&format!("netns add {own}"))?;
            ip(&format!("link add {own} type veth peer name eth0 netns {own}"))?;
            ip(&format!("link set {own} master {name}"))?;
            ip(&format!("link set {own} up"))?;
            ip(&format!("-n {own} address add {}/24 dev eth0", self.server(n)))?;
            ip(&format!("-n {own} link set lo up"))?;
            ip(&format!("-n {own} link set eth0 up"))?;
        }
        Ok(())
    }

    /// The name of the namespace of a server, and of its link.
    fn of(&self, server: usize) -> String {
        format!("{}-{server}", self.name)
    }

    /// The address of an etcd.
    pub(crate) fn etcd(&self) -> String {
        format!("{}.2", self.subnet)
    }

    /// The address of a server.
    pub(crate) fn server(&self, server: usize) -> String {
        format!("{}.{}", self.subnet, 10 + server)
    }

    /// A command that runs a program in the network of a server.
    pub(crate) fn command(&self, server: usize, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.of(server))).arg("--").arg(program);
        command
    }

    /// From now on nothing reaches the server from these, nor them from it.
    pub(crate) fn cut(&self, server: usize, from: Cut) -> Result<()> {
        let own = self.of(server);
        match from {
            Cut::Everybody => ip(&format!("link set {own} down")),
            Cut::Etcd | Cut::Servers => self.routes(server, from, "add"),
        }
    }

    /// Ends a [`Network::cut`].
    pub(crate) fn mend(&self, server: usize, from: Cut) -> Result<()> {
        let own = self.of(server);
        match from {
            Cut::Everybody => ip(&format!("link set {own} up")),
            Cut::Etcd | Cut::Servers => self.routes(server, from, "del"),
        }
    }

    fn routes(&self, server: usize, from: Cut, what: &str) -> Result<()> {
        let own = self.of(server);
        let others: Vec<String> = match from {
            Cut::Etcd => vec![self.etcd()],
            _ => (0..self.servers).filter(|n| *n != server).map(|n| self.server(n)).collect(),
        };
        others.iter().try_for_each(|other| ip(&format!("-n {own} route {what} blackhole {other}/32")))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Interfaces that were not made cannot be removed; the rest goes with its owners.
        for n in 0..self.servers {
            let _ = ip(&format!("link del {}", self.of(n)));
            let _ = ip(&format!("netns del {}", self.of(n)));
        }
        let _ = ip(&format!("link del {}", self.name));
    }
}
