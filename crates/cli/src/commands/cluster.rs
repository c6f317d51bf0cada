//! `chiton cluster`: several servers of one file system.
//!
//! The commands read and change the map in the monitor. The servers watch the map and follow its changes.

mod ask;
mod change;
mod grow;
mod init;
mod reach;
mod servers;
mod show;

use chiton_etcd::{EtcdAddress, EtcdMonitor};
use chiton_monitor::{ChangeError, MonitorError};
use chiton_server::DataAddress;
use clap::{Args, Subcommand};

use crate::duration;
use crate::failure::{Class, Failure, Outcome};

pub(crate) use reach::{client, server_behind_mount, server_that_answers, while_absent};
pub(crate) use servers::{Round, Seen, Servers, Watched, monitor_of, watched};

#[derive(Debug, Args)]
#[command(
    after_help = "A cluster is a file system with several servers. It needs an etcd (Debian: etcd-server), which has the map of its servers and\nplates, and storage that all servers reach: a bucket, or a directory on a file system that they share.\ndocs/cluster.md leads from one machine to many.\n\nExamples:\n  chiton cluster init --monitor etcd://h1,h2,h3 --data s3://bucket/chiton\n  chiton cluster init --monitor etcd://h1,h2,h3 --data s3://bucket/chiton --from /srv/chiton    of a file system that one server has served\n  chiton auth init --dir /root/authority                                                     then chiton auth create, for each server and client\n  chiton serve --identity h1.pem --monitor etcd://h1,h2,h3 --data s3://bucket/chiton --listen tcp:h1:7117      on each server\n  chiton mount --identity alice.pem --monitor etcd://h1,h2,h3 /mnt/chiton                    on each client\n  chiton cluster status --monitor etcd://h1,h2,h3\n  chiton cluster server drain 2 --monitor etcd://h1,h2,h3                                    before server 2 is switched off\n  chiton cluster rebalance --dry-run --monitor etcd://h1,h2,h3"
)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: Command,
}

/// Where the map is.
#[derive(Debug, Args)]
pub(crate) struct Monitored {
    /// The etcd of the cluster: etcd://HOST:PORT,HOST:PORT, with /PREFIX behind it if several clusters share it.
    #[arg(long, env = "CHITON_MONITOR", value_name = "etcd://HOST:PORT,…")]
    monitor: EtcdAddress,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Monitored {
    fn open(&self) -> Outcome<EtcdMonitor> {
        EtcdMonitor::open(&self.monitor).map_err(|e| failed(&e))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a file system for a cluster, and its map: an empty one, or of one that a single server has served.
    #[command(
        after_help = "Examples:\n  chiton cluster init --monitor etcd://h1,h2,h3 --data s3://bucket/chiton\n  chiton cluster init --monitor etcd://h1,h2,h3 --data /shared/chiton --plates 8\n  chiton cluster init --monitor etcd://h1,h2,h3 --data s3://bucket/chiton --from /srv/chiton\n\nWith --from, rows and blocks are copied and compared, and the old file system stays until all is there. An interrupted copy is\ncontinued by the same command."
    )]
    Init(Init),
    /// Show the servers, and whether every plate has one that lives.
    Status(Monitored),
    /// Print the map as JSON.
    Map(Monitored),
    /// Show the server that has each plate.
    Plates(Monitored),
    /// Show the last changes of the map, and the servers and users that made them.
    History(History),
    /// Add, drain or remove a server.
    #[command(subcommand)]
    Server(Server),
    /// Hand plates over until equal servers have equally many.
    Rebalance(Rebalance),
}

#[derive(Debug, Args)]
struct Init {
    #[command(flatten)]
    monitored: Monitored,
    /// An empty directory that all servers see, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
    data: DataAddress,
    /// Copy this file system, which a single server has served, instead of making an empty one. No server may run on it.
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", conflicts_with = "shards")]
    from: Option<DataAddress>,
    /// End the server that runs on the file system of --from, in order.
    #[arg(long, requires = "from")]
    take_over: bool,
    /// Parts of the file system, which the servers share: some for each server that there will ever be.
    #[arg(long, default_value_t = 16)]
    plates: u16,
    /// Units of placement, fixed for ever; at least as many as plates.
    #[arg(long, default_value_t = chiton_types::SHARDS_DEFAULT, value_parser = clap::value_parser!(u16).range(1..=i64::from(chiton_types::SHARDS_MAX)))]
    shards: u16,
    /// How long a server counts as living without a word from it. etcd grants whole seconds, and with its usual settings at least 2.
    #[arg(long, default_value = "2s", value_parser = duration::parse)]
    lease: std::time::Duration,
}

#[derive(Debug, Args)]
struct History {
    #[command(flatten)]
    monitored: Monitored,
    /// So many, the newest first.
    #[arg(long, default_value_t = 20)]
    count: usize,
}

#[derive(Debug, Subcommand)]
enum Server {
    /// Enter a server into the map before it runs.
    Add(Add),
    /// Give no more plates to a server.
    Out(Named),
    /// Give plates to a server again.
    In(Named),
    /// Give no more plates to a server, and hand over those that it has.
    Drain(Named),
    /// Remove a server that has no plates and does not run.
    Rm(Named),
}

#[derive(Debug, Args)]
struct Add {
    #[command(flatten)]
    monitored: Monitored,
    /// The first address that the server will advertise: tcp:HOST:PORT.
    address: chiton_transport::Address,
    /// Its share of the plates, against 1000 of an ordinary one.
    #[arg(long, default_value_t = chiton_monitor::WEIGHT_ORDINARY)]
    weight: u32,
    /// Servers with the same failure domain may fail together.
    #[arg(long, default_value = "")]
    domain: String,
}

#[derive(Debug, Args)]
struct Named {
    #[command(flatten)]
    monitored: Monitored,
    /// The number of the server, as `chiton cluster status` shows it.
    id: u64,
}

#[derive(Debug, Args)]
struct Rebalance {
    #[command(flatten)]
    monitored: Monitored,
    /// Show the hand-overs, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &ClusterArgs) -> Outcome {
    match &args.command {
        Command::Init(args) => init::run(args),
        Command::Status(args) => show::status(args),
        Command::Map(args) => show::map(args),
        Command::Plates(args) => show::plates(args),
        Command::History(args) => show::history(args),
        Command::Server(Server::Add(args)) => change::add(args),
        Command::Server(Server::Out(args)) => change::set_in(args, false),
        Command::Server(Server::In(args)) => change::set_in(args, true),
        Command::Server(Server::Drain(args)) => change::drain(args),
        Command::Server(Server::Rm(args)) => change::remove(args),
        Command::Rebalance(args) => change::rebalance(args),
    }
}

pub(crate) fn failed(error: &MonitorError) -> Failure {
    let class = match error {
        MonitorError::Uninitialized | MonitorError::Unavailable(_) => Class::Absent,
        MonitorError::Initialized { .. } | MonitorError::Registered { .. } => Class::Busy,
        _ => Class::Failed,
    };
    Failure::new(class, error.to_string())
}

pub(crate) fn not_changed(error: &ChangeError) -> Failure {
    match error {
        ChangeError::Failed(error) => failed(error),
        other => Failure::new(Class::Busy, format!("nothing was changed: {other}; run the command again")),
    }
}

/// The author of changes, for the history.
pub(crate) fn who() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let who = format!("uid {} on {host}", rustix::process::geteuid().as_raw());
    // A character has up to four bytes.
    who.chars().take(chiton_monitor::TEXT_BYTES_MAX / 4).collect()
}
