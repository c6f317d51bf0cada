//! Mounts the trivial in-memory file system and stays until it is unmounted.

use std::path::PathBuf;

use chiton_bench::trivial_fs::Answers;
use chiton_bench::trivial_mount::{MountSettings, TrivialMount};
use clap::Parser;

/// The floor of FUSE: an in-memory file system. Ends when unmounted (`umount DIR`).
#[derive(Parser)]
#[command(after_help = "Example:\n  trivial-fs /mnt/floor &\n  mdtest --dir /mnt/floor\n  umount /mnt/floor")]
struct Arguments {
    /// Where to mount.
    mountpoint: PathBuf,
    /// Dispatch threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// All threads share one descriptor.
    #[arg(long)]
    shared_fd: bool,
    /// The kernel checks permissions.
    #[arg(long)]
    default_permissions: bool,
    /// Let other users in.
    #[arg(long)]
    allow_other: bool,
    /// Ask the kernel at each open to send no FLUSH at close.
    #[arg(long)]
    noflush: bool,
}

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let settings = MountSettings {
        threads: arguments.threads.max(1),
        clone_fd: !arguments.shared_fd,
        default_permissions: arguments.default_permissions,
        allow_other: arguments.allow_other,
        answers: Answers { noflush: arguments.noflush },
    };
    TrivialMount::spawn_with(&arguments.mountpoint, &settings)?.wait()
}
