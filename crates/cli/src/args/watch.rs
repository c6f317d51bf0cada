//! The words of the commands that watch a file system.

use clap::Args;

use chiton_etcd::EtcdAddress;

/// The file system that is watched.
#[derive(Debug, Args)]
pub(crate) struct Watched {
    /// A mount point (or anything in a mount), a data directory, or a server's address. A target that belongs to a cluster stands for all
    /// of its servers.
    #[arg(required_unless_present = "monitor")]
    pub(crate) target: Option<String>,
    /// Instead of a target: the cluster whose map this etcd has.
    #[arg(long, env = "CHITON_MONITOR", value_name = "etcd://HOST:PORT,…")]
    pub(crate) monitor: Option<EtcdAddress>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "TARGET is a mount point or anything in a mount, a data directory (also without a running server), or a server's address.\nOf a cluster all servers are asked. The exit code is 1 if one that lives does not answer, or a plate has no server.\n\nExamples:\n  chiton status /mnt/chiton                    a few lines: is it healthy, and what to do if not\n  chiton status /mnt/chiton --verbose          then everything that the server counts\n  chiton status tcp:server:7117 --json         all numbers, for machines\n  chiton status --monitor etcd://h1,h2,h3      all servers of a cluster, and their plates"
)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) watched: Watched,
    /// Print everything that the server counts, too.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "TARGET is a mount point or anything in a mount, the data directory of a server that runs, or a server's address.\n\nExamples:\n  chiton df /mnt/chiton\n  chiton df tcp:server:7117 --json\n  chiton df --monitor etcd://h1,h2,h3          all servers of a cluster"
)]
pub(crate) struct Df {
    #[command(flatten)]
    pub(crate) watched: Watched,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton top /mnt/chiton\n  chiton top /mnt/chiton --count 1 --json\n  chiton top --monitor etcd://h1,h2,h3         all servers of a cluster"
)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) watched: Watched,
    /// Seconds between two lines.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// End after this many lines.
    #[arg(long)]
    pub(crate) count: Option<u64>,
}
