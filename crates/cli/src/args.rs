//! The words of the command line. Every `--help` ends with examples to paste.

mod changes;
mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::args::Bench;
use crate::commands::auth::AuthArgs;
use crate::commands::branch::BranchArgs;
use crate::commands::cluster::ClusterArgs;
use crate::commands::conformance::ConformanceArgs;
use crate::commands::jobs::JobsArgs;
use crate::commands::journal::JournalArgs;
use crate::commands::policy::PolicyArgs;
use crate::commands::realm;
use crate::commands::trees;
use crate::commands::view::View;
use chiton_etcd::EtcdAddress;
use chiton_server::DataAddress;

use crate::{duration, size};

pub(crate) use watch::{Df, Status, Top};

const EXAMPLES: &str = "\
Examples:
  chiton mount --format --data /srv/chiton /mnt/chiton    a new file system of your own: server inside, kept in /srv/chiton
  chiton status /mnt/chiton                      is it healthy, and what to do if not
  chiton umount /mnt/chiton
  chiton mount --data /srv/chiton /mnt/chiton    the next time

  chiton format /srv/chiton                      or with a server that several mounts share:
  chiton serve --data /srv/chiton --listen tcp:0.0.0.0:7117
  chiton mount --server tcp:server:7117 /mnt/chiton

  chiton run --policy batchfs --path /mnt/chiton/job -- make -C /mnt/chiton/job     a job alone in a directory, merged if it succeeds
  chiton branch create /mnt/chiton/src try1      a copy of a directory in an instant: work in it, then merge or delete it

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 in use, or held by another client, 4 nothing there (no file system, no server, no such
path), 5 stopped by a conflict, 6 a store failed for good: start the server or mount again.";

/// A file system whose subtrees each have their own consistency and durability.
#[derive(Debug, Parser)]
#[command(name = "chiton", version, after_help = EXAMPLES, propagate_version = true)]
pub(crate) struct Chiton {
    /// This process's certificate and key, which chiton auth create makes: connections over TCP then have TLS.
    #[arg(long, global = true, env = crate::identity::VARIABLE, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an empty file system in a directory.
    Format(Format),
    /// Serve a file system to mounts and programs.
    Serve(Serve),
    /// Mount a file system.
    Mount(Mount),
    /// Unmount, and wait until everything is durable.
    Umount(Umount),
    /// Show whether it is healthy, how far everything is durable, which clients are connected, and which directories are decoupled.
    Status(Status),
    /// Show the used and free space.
    Df(Df),
    /// Show live rates, once a second.
    Top(Top),
    /// Make everything that was acknowledged so far durable.
    Flush(Target),
    /// Set and explain the policies of subtrees: consistency, durability and more.
    Policy(PolicyArgs),
    /// Decouple a directory: its mount works in it alone, without the server, until it is merged or discarded.
    Decouple(realm::Decouple),
    /// Merge the changes so far in a decoupled directory, which stays decoupled.
    ///
    /// With on_conflict: merge a sync does as keep_both; texts are merged line by line when the decoupling ends.
    #[command(
        after_help = "PATH is the directory that was decoupled.\n\nExamples:\n  chiton sync /mnt/chiton/job           others see the changes so far; the job continues\n  chiton sync /mnt/chiton/job --json"
    )]
    Sync(realm::Within),
    /// Show the effects that a merge would have.
    #[command(
        after_help = "PATH is the directory that was decoupled, or any path in it. diff shows the conflicts that a merge would report under the policy in force.\n\nExamples:\n  chiton diff /mnt/chiton/job           the effects and conflicts of a merge\n  chiton diff /mnt/chiton/job --json"
    )]
    Diff(realm::Within),
    /// List the conflicts of a decoupled directory, by path.
    #[command(
        after_help = "PATH is the directory that was decoupled, or any path in it. conflicts lists the paths that stop a merge under on_conflict: abort, whatever the policy says.\n\nExamples:\n  chiton conflicts /mnt/chiton/job\n  chiton conflicts /mnt/chiton/job --json"
    )]
    Conflicts(realm::Within),
    /// Choose the version to keep at a path with a conflict; then merge again.
    Resolve(realm::Resolve),
    /// Merge the changes in a decoupled directory, and end the decoupling.
    Merge(realm::Merge),
    /// Drop the changes in a decoupled directory, and end the decoupling.
    Discard(realm::Discard),
    /// End a decoupling as its policy says, also if its client is gone.
    Recouple(realm::Recouple),
    /// List the decoupled directories, and the client that holds each.
    Decoupled(realm::Decoupled),
    /// Merge or drop the changes in decoupled directories whose mounts died.
    Recover(realm::Recover),
    /// Run a command in a decoupled directory: merged if it succeeds, else dropped.
    Run(realm::Run),
    /// Make copies of a directory in an instant; each is mounted, merged or dropped separately.
    Branch(BranchArgs),
    /// Show a directory with unmerged journals merged into it, without merging them.
    View(View),
    /// Make and administer a cluster: several servers of one file system.
    Cluster(ClusterArgs),
    /// Make and revoke the certificates of servers, clients and tools.
    Auth(AuthArgs),
    /// Inspect, export, import or change a journal.
    Journal(JournalArgs),
    /// List a directory, or show files.
    Ls(trees::Ls),
    /// Print the paths of a tree that meet conditions.
    Find(trees::Find),
    /// Show and change which plates have the names of directories.
    Huge(trees::HugeArgs),
    /// Count the files and bytes of trees.
    Du(trees::Du),
    /// Remove files, and with -r whole trees, by many names in a message.
    Rm(trees::Rm),
    /// Copy files, and with -r whole trees: content in blocks is shared, not copied.
    Cp(trees::Cp),
    /// Change modes, with -R of whole trees.
    Chmod(trees::Chmod),
    /// Change owners, with -R of whole trees.
    Chown(trees::Chown),
    /// List, show and cancel the work on whole trees that servers do.
    Jobs(JobsArgs),
    /// Check a file system, served or not; repair one that is not.
    Fsck(Fsck),
    /// Write a whole tree as text.
    Dump(Dump),
    /// Make the tree of a dump in a file system.
    Load(Load),
    /// Check whether a server keeps the rules of the protocol.
    Conformance(ConformanceArgs),
    /// Measure the speed, beside baselines in the same run.
    Bench(Bench),
    /// Print a completion script for a shell.
    Completions(Completions),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton format /srv/chiton\n  chiton format /srv/chiton --shards 256 --json\n  chiton format /srv/chiton --plates 4     a journal and a metadata store for each of four parts\n  chiton format s3://bucket/chiton     credentials as for other S3 tools: AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL …"
)]
pub(crate) struct Format {
    /// An empty directory, or one to make; or s3://BUCKET/PREFIX.
    #[arg(value_name = "DIR|s3://BUCKET/PREFIX")]
    pub(crate) data: DataAddress,
    /// Units of placement, fixed for ever: 64 lets a laptop's file system become a small cluster.
    #[arg(long, default_value_t = chiton_types::SHARDS_DEFAULT, value_parser = clap::value_parser!(u16).range(1..=i64::from(chiton_types::SHARDS_MAX)))]
    pub(crate) shards: u16,
    /// Parts of the file system with a journal and a metadata store of their own, fixed for ever: 1 to the number of shards. With more
    /// than one, several commands do not work yet (docs/administration.md lists them).
    #[arg(long, default_value_t = 1)]
    pub(crate) plates: u16,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of a server in this process.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Memory for the metadata cache.
    #[arg(long, default_value = "1G", value_parser = size::parse)]
    pub(crate) cache: u64,
    /// End the session of a client after this many seconds of silence: its locks and leases are then free.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) session_time: u32,
    /// How long a start after a crash may replay the journal, about (default: 5s; of a plate in a cluster 500ms). The server takes
    /// checkpoints, and lets changes wait, accordingly.
    #[arg(long, value_parser = duration::parse)]
    pub(crate) recovery_target: Option<std::time::Duration>,
    /// Answer EIO after this many seconds to programs that wait for an object store which is away (default: they
    /// wait for ever).
    #[arg(long)]
    pub(crate) store_timeout: Option<u64>,
    /// Space to keep on the disk of the data directory, so that removing files works when it is full (default: a 64th of the
    /// disk, at least 4M, at most 180M; 0: none).
    #[arg(long, value_parser = size::parse)]
    pub(crate) reserve: Option<u64>,
    /// Show the metrics of the server to Prometheus, at http://HOST:PORT/metrics (default: nowhere). Everybody who reaches the address
    /// may read them.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Log each operation that takes so many milliseconds or longer (default: none): its numbers, and why it waited.
    #[arg(long, value_name = "N")]
    pub(crate) slow_ms: Option<u64>,
    /// Serve the readable part of a damaged file system, read-only; reads of the rest get EIO, and the log says
    /// why. Nothing is changed. Try chiton fsck --rebuild and --repair first.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Replace the server that holds this file system: on a directory, end its process; on S3, take its right to write, on
    /// which it ends itself.
    #[arg(long)]
    pub(crate) take_over: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton serve --data /srv/chiton\n  chiton serve --data /srv/chiton --listen tcp:0.0.0.0:7117 --cache 4G\n  chiton serve --data s3://bucket/chiton --listen tcp:0.0.0.0:7117\n  chiton serve --monitor etcd://h1,h2,h3 --data s3://bucket/chiton --listen tcp:h1:7117     one server of a cluster\n\nA Unix socket is always served, in the data directory (chiton mount --server /srv/chiton/socket /mnt), for a bucket in\na directory of this user: its address is printed at the start. A server of a\ncluster listens only where --listen says."
)]
pub(crate) struct Serve {
    /// Made by `chiton format`, or by `chiton cluster init`: a directory or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
    pub(crate) data: DataAddress,
    /// Further addresses: tcp:HOST:PORT or unix:PATH; may be repeated.
    #[arg(long)]
    pub(crate) listen: Vec<chiton_transport::Address>,
    /// In a cluster: speak without TLS over TCP. Everybody who reaches the address may then do everything, in the name of every user.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Join the cluster whose map this etcd has: etcd://HOST:PORT,HOST:PORT, with /PREFIX behind it if several clusters share it. For the
    /// storage of a cluster, CHITON_MONITOR in the environment does the same.
    #[arg(long, requires = "listen", conflicts_with_all = ["salvage", "take_over"])]
    pub(crate) monitor: Option<EtcdAddress>,
    /// In a cluster: an address under which others reach this server, if --listen is none; may be repeated.
    #[arg(long)]
    pub(crate) advertise: Vec<chiton_transport::Address>,
    /// In a cluster: servers with the same failure domain (a rack, a room) may fail together.
    #[arg(long, default_value = "")]
    pub(crate) domain: String,
    /// In a cluster: this server's share of the plates, against 1000 of an ordinary one.
    #[arg(long)]
    pub(crate) weight: Option<u32>,
    /// In a cluster: have no plates until this server replaces a dead one.
    #[arg(long)]
    pub(crate) standby: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// How consistent file content is between mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Data {
    /// As on one machine.
    Linearizable,
    /// A program that opens a file sees all writes of programs that closed it before.
    CloseToOpen,
    /// Readers see a prefix of a writer's changes.
    Lazy,
}

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("source"),
    after_help = "Examples:\n  chiton mount --data /srv/chiton /mnt/chiton\n  chiton mount --format --data /srv/new /mnt/new\n  chiton mount --server tcp:server:7117 /mnt/chiton --content close-to-open\n  chiton mount --data /srv/chiton /mnt/chiton --foreground\n  chiton mount --monitor etcd://h1,h2,h3 /mnt/chiton     a cluster\n\nSQLite: a database in WAL mode may be used through one mount at a time. Its index of the log is shared memory,\nwhich two mounts do not share, and a second mount that writes can damage the database. On several mounts use\nPRAGMA journal_mode=DELETE (S99 in docs/semantics.md)."
)]
pub(crate) struct Mount {
    /// A data directory or s3://BUCKET/PREFIX: the server runs inside this mount.
    #[arg(long, group = "source", value_name = "DIR|s3://BUCKET/PREFIX")]
    pub(crate) data: Option<DataAddress>,
    /// Make a new, empty file system first, as `chiton format` does; refused where there is one already.
    #[arg(long, requires = "data", conflicts_with_all = ["server", "monitor"])]
    pub(crate) format: bool,
    /// The address of a server: tcp:HOST:PORT, unix:PATH or a path. Of a cluster any server will do.
    #[arg(long, group = "source", value_name = "ADDRESS")]
    pub(crate) server: Option<chiton_transport::Address>,
    /// The etcd of a cluster: the mount finds the servers there. Without any of the three, CHITON_MONITOR in the environment names it.
    #[arg(long, group = "source", value_name = "etcd://HOST:PORT,…")]
    pub(crate) monitor: Option<EtcdAddress>,
    /// Where to mount: a directory.
    pub(crate) mountpoint: PathBuf,
    /// Stay in the foreground, with messages on the terminal.
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Nothing can be changed through this mount.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let other users in (default: if root mounts).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_other: Option<bool>,
    /// How consistent file content is between mounts.
    #[arg(long, value_enum, default_value_t = Data::Linearizable)]
    pub(crate) content: Data,
    /// Threads that take requests from the kernel; more come while all of these wait.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Fail operations when the server has not answered for this many seconds (default: wait for ever).
    #[arg(long)]
    pub(crate) timeout: Option<u64>,
    /// When unmounting, end without the server if it has been silent for this many seconds; data that it has not
    /// received are lost.
    #[arg(long, default_value_t = 30)]
    pub(crate) unmount_timeout: u64,
    /// Never decouple: a subtree whose policy asks for that is worked in through the server, as if the policy were strong, and
    /// chiton decouple is refused.
    #[arg(long)]
    pub(crate) no_decouple: bool,
    /// Keep file systems that are mounted inside this mount (bind mounts, volumes of containers), whatever other
    /// clients change: the kernel then looks up each name again. Slower. (Branches that are mounted inside switch
    /// it on automatically.)
    #[arg(long)]
    pub(crate) keep_mounts: bool,
    /// Show inode numbers below 2^32, for programs that fail with EOVERFLOW on larger ones. Takes 16 bytes of memory for each inode
    /// that was shown.
    #[arg(long)]
    pub(crate) ino32: bool,
    /// Send each change to the server before it is acknowledged: a mount that dies then loses none of them. Slower.
    #[arg(long)]
    pub(crate) no_write_behind: bool,
    /// Where the journals of decoupled subtrees are kept (default: /var/lib/chiton of root, else the user's state folder).
    #[arg(long)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Mount although the directory is not empty: its entries are hidden while the mount exists.
    #[arg(long)]
    pub(crate) nonempty: bool,
    /// Run no programs from this mount.
    #[arg(long)]
    pub(crate) no_exec: bool,
    /// Resume decoupled subtrees whose journals have lost durable events at their end, without these events.
    #[arg(long)]
    pub(crate) accept_truncated: bool,
    /// Honour set-user-id bits and device nodes (root only).
    #[arg(long)]
    pub(crate) suid_dev: bool,
    #[command(flatten)]
    pub(crate) inside: ServerArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Announce on standard output that the mount is ready, in one line of JSON (the command passes this to itself
    /// when it goes to the background).
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  chiton umount /mnt/chiton\n  chiton umount --lazy /mnt/chiton")]
pub(crate) struct Umount {
    /// The mount point.
    pub(crate) mountpoint: PathBuf,
    /// Take the mount away now; its process ends when the last program that uses it is gone.
    #[arg(long, short)]
    pub(crate) lazy: bool,
}

/// The file system that a command is about.
#[derive(Debug, Args)]
#[command(
    after_help = "TARGET is a mount point or anything in a mount, the data directory of a server that runs, or a server's address.\n\nExamples:\n  chiton flush /mnt/chiton\n  chiton flush tcp:server:7117 --json"
)]
pub(crate) struct Target {
    /// A mount point (or anything in a mount), a data directory, or a server's address.
    pub(crate) target: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every finding has a stable name, a path or inode, a description, and its repair; docs/administration.md lists them. Repair deletes no content: an inode that lost its name gets one in /lost+found.\n\nExit codes: 0 clean, 1 all findings were repaired, 2 wrong usage, 4 findings remain, 8 the check failed.\n\nExamples:\n  chiton fsck /srv/chiton\n  chiton fsck --content --json /srv/chiton\n  chiton fsck --content --rate 20M /mnt/chiton    scrub a file system that a server runs\n  chiton fsck --repair --yes /srv/chiton\n  chiton fsck --rebuild --yes /srv/chiton    the metadata store does not open\n  chiton fsck etcd://h1,h2,h3    a cluster, beside its servers\n  chiton fsck s3://bucket/chiton    the data of a cluster, through its servers if any lives"
)]
pub(crate) struct Fsck {
    /// A data directory, s3://BUCKET/PREFIX, or running servers: a mount point, a server's address, or the etcd of a cluster. The data of
    /// a cluster can be repaired only while none of its servers lives.
    pub(crate) target: String,
    /// Repair all findings that can be repaired without guessing.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Before the check, make a metadata store that does not open one that does: lists of tables from their copies, and rows as
    /// far as tables and journal hold them.
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Do change the file system; without it nothing is changed.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Read all content and verify its checksums.
    #[arg(long)]
    pub(crate) content: bool,
    /// Read at most this many bytes a second, to leave the disk to others (default: no limit).
    #[arg(long, value_parser = size::parse)]
    pub(crate) rate: Option<u64>,
    /// Memory for sorting; the rest goes to temporary files (TMPDIR).
    #[arg(long, default_value = "256M", value_parser = size::parse)]
    pub(crate) memory: u64,
    /// Of a cluster's data: its etcd, if that has another address than when the cluster was made.
    #[arg(long, value_name = "etcd://HOST:PORT,…")]
    pub(crate) monitor: Option<EtcdAddress>,
    /// Print JSON: a line for each finding, then a summary.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "TARGET is a mount point, a data directory (with or without a server), s3://BUCKET/PREFIX, or a server's address. With a running server, each inode is read at another moment. docs/formats.md has the format.\n\nExamples:\n  chiton dump /srv/chiton -o backup.chiton\n  chiton dump tcp:server:7117 | zstd > backup.chiton.zst\n  chiton dump /mnt/chiton --root /docs --no-content"
)]
pub(crate) struct Dump {
    /// A mount point (or anything in a mount), a data directory, or a server's address.
    pub(crate) target: String,
    /// A new file for the dump (default: standard output).
    #[arg(long, short)]
    pub(crate) output: Option<PathBuf>,
    /// The directory to dump, with all below it.
    #[arg(long, default_value = "/")]
    pub(crate) root: String,
    /// Names and attributes only.
    #[arg(long)]
    pub(crate) no_content: bool,
    /// Of a cluster's data: its etcd, if that has another address than when the cluster was made.
    #[arg(long, value_name = "etcd://HOST:PORT,…")]
    pub(crate) monitor: Option<EtcdAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "No existing file is changed: a name that is taken ends the load with the number of the line. With --resume, existing files with the type, size and time of the dump are skipped.\n\nExamples:\n  chiton load /srv/new backup.chiton\n  zstd -d < backup.chiton.zst | chiton load tcp:server:7117 --into /restored\n  chiton load /srv/new backup.chiton --resume"
)]
pub(crate) struct Load {
    /// A mount point (or anything in a mount), a data directory, or a server's address.
    pub(crate) target: String,
    /// The dump (default: standard input).
    pub(crate) file: Option<PathBuf>,
    /// The directory that becomes the root of the dump; it must be there.
    #[arg(long, default_value = "/")]
    pub(crate) into: String,
    /// Continue a load that was cut off.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Load a dump without content: files of the right size, all zeros.
    #[arg(long)]
    pub(crate) no_content: bool,
    /// Give everything to the user who loads.
    #[arg(long)]
    pub(crate) no_owner: bool,
    /// Of a cluster's data: its etcd, if that has another address than when the cluster was made.
    #[arg(long, value_name = "etcd://HOST:PORT,…")]
    pub(crate) monitor: Option<EtcdAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton completions bash > /etc/bash_completion.d/chiton\n  chiton completions zsh > ~/.zfunc/_chiton"
)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    #[test]
    fn the_words_are_consistent() {
        super::Chiton::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in super::Chiton::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no examples", command.get_name());
        }
    }

    /// All commands below this one, each with its words.
    fn all(command: &Command, words: &str) -> Vec<(String, Command)> {
        let below = command.get_subcommands().map(|sub| (format!("{words} {}", sub.get_name()), sub));
        below
            .flat_map(|(words, sub)| [vec![(words.clone(), sub.clone())], all(sub, &words)].concat())
            .collect()
    }

    #[test]
    fn examples_are_those_of_their_command() {
        for (words, command) in all(&super::Chiton::command(), "chiton") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.contains("Example") || help.contains(&words), "{words} has only others: {help}");
        }
    }

    #[test]
    fn every_value_of_on_conflict_is_in_the_help() {
        for (words, command) in all(&super::Chiton::command(), "chiton") {
            let Some(option) = command.get_arguments().find(|arg| arg.get_id() == "on_conflict") else {
                continue;
            };
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            for value in ["overwrite", "abort", "keep_both", "or merge"] {
                assert!(help.contains(value), "{words} leaves out {value}: {help}");
            }
        }
    }
}
