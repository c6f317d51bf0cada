//! The words of `chiton bench`.

use std::path::PathBuf;

use chiton_etcd::EtcdAddress;
use chiton_transport::Address;
use clap::{Args, Subcommand, ValueEnum};

use crate::size;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton bench mdtest --dir /mnt/chiton --tasks 4 --easy --hard --runs 5 --ci 95\n  chiton bench mdtest --server tcp:server:7117 --tasks 16 -F -n 10000 --batch 1000\n  chiton bench all --quick\n  chiton bench all --only mount --only socket --json"
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) what: BenchKind,
}

/// The measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchKind {
    /// All measurements, beside their baselines, on new file systems.
    All(BenchAll),
    /// The benchmark mdtest: create, stat, read and remove many files and directories, on any file system or by the library.
    Mdtest(Mdtest),
    /// The benchmark metarates: create and close, stat, and set the times of many files.
    Metarates(Metarates),
    /// Replay a trace of operations on metadata, or one that is made with the mix of the HP trace.
    HpTrace(HpTrace),
    /// Write and read one large file in a directory of any file system.
    Seqio(Seqio),
}

#[derive(Debug, Args)]
pub(crate) struct BenchAll {
    /// Do a tenth of the work.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these groups; may be repeated.
    #[arg(long, value_enum)]
    pub(crate) only: Vec<Group>,
    /// Where to work: a directory on the disk to be measured.
    #[arg(long, default_value = "/var/tmp")]
    pub(crate) dir: PathBuf,
    /// Rounds; baseline and Chiton take turns, the median counts.
    #[arg(long, visible_alias = "runs", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// Also show the mean ratio with its interval for this confidence, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) ci: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Creates and removes through mounts.
    Mount,
    /// The library over a Unix socket.
    Socket,
    /// Creates, stats and unlinks by batches of a thousand, beside one at a time.
    Batches,
    /// The library over TCP, with TLS and without.
    Tls,
    /// Creates by write-behind: by library and mount, alone and beside another client that creates files in the same
    /// directory.
    WriteBehind,
    /// Durable creates.
    Durable,
    /// The pure engine: events a second, bytes an entry.
    Engine,
    /// One large file.
    Seqio,
    /// Restart with many files.
    Restart,
    /// Decoupled creates on a mount, creates elsewhere while a subtree is merged, branches.
    Subtrees,
    /// Creates in different directories with two plates, beside one; directories made and removed over plates.
    Plates,
    /// One directory that many clients share beside one for each, splits, a million names, listings with attributes.
    Huge,
    /// Calls to a server that measures them, beside one that does not.
    Metrics,
    /// rm -r, cp -r and du of many small files by batches, beside one call for each name; as jobs of the server; beside a mount.
    Trees,
    /// Appends to a file that other processes follow on another mount, under two policies.
    Readers,
    /// Creates and stats by eight clients, with 1, 2, 4 and 8 threads of the server.
    Workers,
}

/// How often a measurement is repeated, and how its result is printed.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Repeat everything so often.
    #[arg(long, short = 'i', visible_alias = "iterations", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// The confidence of the intervals, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = percent)]
    pub(crate) ci: f64,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if (1.0..100.0).contains(&percent) {
        Ok(percent)
    } else {
        Err("a percentage from 1 to below 100".to_owned())
    }
}

/// Where a load works, and by how many tasks.
#[derive(Debug, Args)]
pub(crate) struct Tasks {
    /// An existing directory of any file system; with --server or --monitor, of theirs (default there: the root).
    #[arg(long, short = 'd')]
    pub(crate) dir: Option<PathBuf>,
    /// Use the library instead of a mount: tcp:HOST:PORT, unix:PATH or a path. Each task has a connection of its own.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "monitor")]
    pub(crate) server: Option<Address>,
    /// The same for a cluster.
    #[arg(long, value_name = "etcd://HOST:PORT,…")]
    pub(crate) monitor: Option<EtcdAddress>,
    /// With the library: change names before the server knows of it, as a mount does that is alone in a directory. Else each change is
    /// sent at once.
    #[arg(long)]
    pub(crate) write_behind: bool,
    /// Number of concurrent tasks: processes in a directory, else connections.
    #[arg(long, visible_alias = "processes", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) tasks: u16,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton bench metarates -d /mnt/chiton --tasks 16 --files 640000 --runs 5\n  chiton bench metarates --server tcp:server:7117 --tasks 16 --dirs 1 -N 1"
)]
pub(crate) struct Metarates {
    #[command(flatten)]
    pub(crate) place: Tasks,
    /// Files of all tasks together.
    #[arg(long, short = 'n', default_value_t = 64_000)]
    pub(crate) files: u64,
    /// So many directories, which the tasks share (default: one for each task).
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub(crate) dirs: u16,
    /// Stat the files of the task so many ranks further, and touch those of the one twice as far: this keeps a client from answering
    /// out of its cache.
    #[arg(long, short = 'N', default_value_t = 0)]
    pub(crate) stride: u16,
    /// Make, examine and remove files so many in a call (with the library: in few messages).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    #[command(flatten)]
    pub(crate) runs: Runs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A trace is text: an operation a line, its fields parted by tabs. OP is lookup, stat, open, create, unlink, mkdir or rmdir, with a\npath; rename (of a file) and renamedir have a second one, the new path. Lines that begin with # are comments. Only operations\nthat succeeded belong there. The tree that they need is made before, and the rest of it is removed after.\n\nExamples:\n  chiton bench hp-trace -d /mnt/chiton --tasks 16 --operations 1944000\n  chiton bench hp-trace --server tcp:server:7117 --tasks 16 --trace hp.txt\n  chiton bench hp-trace --print --operations 1000 > trace.txt"
)]
pub(crate) struct HpTrace {
    #[command(flatten)]
    pub(crate) place: Tasks,
    /// A trace. Without it one is made.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Operations to make; the original has 19,439,388.
    #[arg(long, short = 'n', default_value_t = 194_394, conflicts_with = "trace", value_parser = clap::value_parser!(u64).range(20..))]
    pub(crate) operations: u64,
    /// The same seed makes the same trace.
    #[arg(long, default_value_t = 1, conflicts_with = "trace")]
    pub(crate) seed: u64,
    /// Print the trace instead of replaying it.
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) runs: Runs,
}

/// The options of the original have its letters.
#[derive(Debug, Args)]
#[command(
    after_help = "Without -C, -T, -E and -r all phases run. Without -F and -D both files and directories are made. Files of runs of single\nphases stay in DIR/test-dir.0-RUN for the runs that follow.\n\nExamples:\n  chiton bench mdtest -d /mnt/chiton --tasks 4 -n 10000 --easy --hard -i 5 --ci 95\n  chiton bench mdtest -d /mnt/chiton --tasks 4 -F -z 2 -b 10 -I 100 -w 4k -e 4k -N 1\n  chiton bench mdtest --server tcp:server:7117 --tasks 16 -F -n 10000 --batch 1000"
)]
pub(crate) struct Mdtest {
    #[command(flatten)]
    pub(crate) place: Tasks,
    /// Files, and as many directories, of each task (default: 10000, or -I for each directory).
    #[arg(long, short = 'n')]
    pub(crate) items: Option<u64>,
    /// Items of a task in each directory of the tree that holds some.
    #[arg(long, short = 'I', conflicts_with = "items")]
    pub(crate) items_per_dir: Option<u64>,
    /// A tree for each task, instead of one that all share.
    #[arg(long, short = 'u')]
    pub(crate) unique_dirs: bool,
    /// Files only.
    #[arg(long, short = 'F', conflicts_with = "directories_only")]
    pub(crate) files_only: bool,
    /// Directories only.
    #[arg(long, short = 'D')]
    pub(crate) directories_only: bool,
    /// Create (and whatever else of -C, -T, -E, -r is there).
    #[arg(long, short = 'C')]
    pub(crate) create: bool,
    /// Stat.
    #[arg(long, short = 'T')]
    pub(crate) stat: bool,
    /// Read.
    #[arg(long, short = 'E')]
    pub(crate) read: bool,
    /// Remove.
    #[arg(long, short = 'r')]
    pub(crate) remove: bool,
    /// Levels of directories below the root of a tree.
    #[arg(long, short = 'z', default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=32))]
    pub(crate) depth: u32,
    /// Directories in each directory of a tree.
    #[arg(long, short = 'b', default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) branch: u64,
    /// Put items into the lowest directories only.
    #[arg(long, short = 'L')]
    pub(crate) leaf_only: bool,
    /// Bytes written to each file when it is made, at most 64M.
    #[arg(long, short = 'w', visible_alias = "bytes", default_value = "0", value_parser = size::parse)]
    pub(crate) write_bytes: u64,
    /// Bytes read of each file, at most 64M.
    #[arg(long, short = 'e', default_value = "0", value_parser = size::parse)]
    pub(crate) read_bytes: u64,
    /// Make each file durable after its writes.
    #[arg(long, short = 'y')]
    pub(crate) fsync: bool,
    /// Stat what the task so many ranks further made, read what the one twice as far made, remove what the one three times as far
    /// made: this keeps a client from answering out of its cache.
    #[arg(long, short = 'N', default_value_t = 0)]
    pub(crate) stride: u16,
    /// Make empty files, and examine and remove files, so many in a call (with the library: in few messages).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    /// As IO500's mdtest-easy (-F -u -L -N 1): empty files in directories of each task's own. With --hard: both, and the ratio.
    #[arg(long, conflicts_with_all = PRESET)]
    pub(crate) easy: bool,
    /// As IO500's mdtest-hard (-F -w 3901 -e 3901 -N 1): small files in one directory.
    #[arg(long, conflicts_with_all = PRESET)]
    pub(crate) hard: bool,
    #[command(flatten)]
    pub(crate) runs: Runs,
}

/// Options that --easy and --hard set.
const PRESET: [&str; 10] = [
    "items_per_dir",
    "unique_dirs",
    "files_only",
    "directories_only",
    "depth",
    "branch",
    "leaf_only",
    "write_bytes",
    "read_bytes",
    "stride",
];

#[derive(Debug, Args)]
pub(crate) struct Seqio {
    /// An existing directory.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Size of the file.
    #[arg(long, default_value = "1G", value_parser = size::parse)]
    pub(crate) size: u64,
    #[command(flatten)]
    pub(crate) runs: Runs,
}
