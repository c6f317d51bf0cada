//! The vocabulary: operations with fixed arguments on a small tree.
//!
//! ```text
//!   /a/s    100 bytes, in its inode          /a/d/      empty
//!   /a/l    40,000 bytes, in blocks          /b/h       another name of /a/s
//!   /b/e/   empty                            /n, /b/n   not there: new names
//! ```
//!
//! Where directories are split from two names on, the root, `/a` and `/b` have parts, and `/c` is there, too: with one name.

use std::fmt;
use std::sync::LazyLock;

/// One step of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A new file with content, in one operation.
    Create(&'static str, usize),
    Write {
        path: &'static str,
        offset: u64,
        bytes: usize,
    },
    /// The same with O_SYNC: durable when it is answered.
    WriteSync {
        path: &'static str,
        offset: u64,
        bytes: usize,
    },
    /// Open, write, and leave it open: the client buffers the write.
    Hold {
        path: &'static str,
        offset: u64,
        bytes: usize,
    },
    /// Open with O_APPEND, write, close.
    Append(&'static str, usize),
    /// Open, punch a hole, close.
    Punch {
        path: &'static str,
        offset: u64,
        bytes: u64,
    },
    /// copy_file_range of a whole file into a new one.
    Copy(&'static str, &'static str),
    Truncate(&'static str, u64),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    /// Make a directory with a file and another directory, which holds a file, too, and remove it as a whole.
    RemoveTree(&'static str),
    /// Open, unlink, write, and leave it open.
    UnlinkOpen(&'static str),
    /// Open with O_TMPFILE, write, link, close.
    Unnamed(&'static str, usize),
    /// Open with O_TMPFILE, write, and leave it open.
    HoldUnnamed(&'static str, usize),
    Whiteout(&'static str, &'static str),
    Mkdir(&'static str),
    Rmdir(&'static str),
    Symlink(&'static str, &'static str),
    SetXattr(&'static str),
    RemoveXattr(&'static str),
    Chmod(&'static str, u16),
    Times(&'static str),
    /// An administrator brings the names of a directory back to one plate.
    Fold(&'static str),
    Fsync(&'static str),
    FsyncDir,
    Sync,
    /// The server's periodic work: free orphans, write a checkpoint, trim the journal, sweep garbage.
    Checkpoint,
}

/// The steps of workloads, whatever the number of plates.
const VOCABULARY: &[Step] = &[
    Step::Create("/n", 0),
    Step::Create("/b/n", 3_000),
    Step::Create("/b/n", 30_000),
    Step::Write { path: "/a/s", offset: 20, bytes: 50 },
    Step::Write { path: "/a/s", offset: 50, bytes: 20_000 },
    Step::Write { path: "/a/l", offset: 10_000, bytes: 20_000 },
    Step::WriteSync { path: "/a/s", offset: 0, bytes: 10 },
    Step::WriteSync { path: "/a/l", offset: 39_000, bytes: 9_000 },
    Step::Hold { path: "/a/s", offset: 90, bytes: 40 },
    Step::Hold { path: "/a/l", offset: 0, bytes: 20_000 },
    Step::Append("/a/s", 30),
    Step::Append("/a/l", 10_000),
    Step::Punch { path: "/a/s", offset: 10, bytes: 40 },
    Step::Punch { path: "/a/l", offset: 5_000, bytes: 15_000 },
    Step::Copy("/a/l", "/b/n"),
    Step::Truncate("/a/s", 10),
    Step::Truncate("/a/s", 20_000),
    Step::Truncate("/a/l", 10_000),
    Step::Truncate("/a/l", 70_000),
    Step::Truncate("/a/l", 0),
    Step::Rename("/a/s", "/b/n"),
    Step::Rename("/a/s", "/a/l"),
    Step::Rename("/a/l", "/b/h"),
    Step::Rename("/b/n", "/a/s"),
    Step::Rename("/a", "/b/e"),
    Step::Rename("/a/d", "/b/e"),
    Step::Exchange("/a/s", "/a/l"),
    Step::Exchange("/a/d", "/a/l"),
    Step::Link("/a/l", "/b/n"),
    Step::Link("/a/s", "/n"),
    Step::Unlink("/a/s"),
    Step::Unlink("/a/l"),
    Step::Unlink("/b/n"),
    Step::UnlinkOpen("/a/l"),
    Step::UnlinkOpen("/a/s"),
    Step::Mkdir("/b/n"),
    Step::Rmdir("/b/e"),
    Step::RemoveTree("/b/n"),
    Step::Symlink("a/s", "/n"),
    Step::SetXattr("/a/l"),
    Step::SetXattr("/a"),
    Step::RemoveXattr("/a/s"),
    Step::Chmod("/a/l", 0o600),
    Step::Times("/a/s"),
    Step::Fsync("/a/s"),
    Step::Fsync("/a/l"),
    Step::FsyncDir,
    Step::Sync,
    Step::Checkpoint,
    Step::Unnamed("/b/n", 3_000),
    Step::Unnamed("/n", 30_000),
    Step::HoldUnnamed("/a/n", 20_000),
    Step::Whiteout("/a/s", "/b/n"),
    Step::Whiteout("/a/l", "/b/h"),
];

/// The plates on which the directories of the small tree lie, of two.
pub(crate) const PLACES: [(&str, u16); 5] = [("/", 0), ("/a", 1), ("/a/d", 0), ("/b", 0), ("/b/e", 0)];

/// Steps that only a file system with several plates adds: names in directories whose own plate is another than that of their parent.
/// `/b/e/m` is born on plate 1 and `/a/m` on plate 1, too.
const OVER_PLATES: &[Step] = &[
    Step::Mkdir("/a/m"),
    Step::Mkdir("/b/e/m"),
    Step::Rmdir("/a/d"),
    Step::Rmdir("/b/e/m"),
    Step::Rename("/a/d", "/a/m"),
    Step::Rename("/a/m", "/a/d"),
    Step::Rename("/a/d", "/a/l"),
    Step::Rename("/b/e/m", "/b/e/n"),
    Step::Rename("/a", "/n"),
    Step::Exchange("/a", "/b"),
    Step::Create("/a/d/n", 100),
    Step::Create("/b/e/m/n", 3_000),
    Step::Unlink("/a/d/n"),
    Step::Write { path: "/a/d/n", offset: 50, bytes: 20_000 },
    Step::Chmod("/a/d", 0o700),
    Step::Times("/a/d"),
    Step::SetXattr("/b"),
];

/// The directory that splits add, with its file.
pub(crate) const GROWING: [Step; 2] = [Step::Mkdir("/c"), Step::Create("/c/k", 100)];

/// Steps of split directories: a second name in `/c` splits it. A change of a name in a directory that was folded splits it again, if it
/// has two names then.
const OF_SPLITS: &[Step] = &[
    Step::Fold("/"),
    Step::Fold("/a"),
    Step::Fold("/b"),
    Step::Fold("/c"),
    Step::Create("/c/n", 100),
    Step::Create("/c/o", 30_000),
    Step::Mkdir("/c/m"),
    Step::Symlink("k", "/c/n"),
    Step::Link("/a/l", "/c/n"),
    Step::Rename("/a/s", "/c/n"),
    Step::Rename("/a/d", "/c/m"),
    Step::Rename("/c/k", "/c/o"),
    Step::Rename("/c/k", "/b/n"),
    Step::Rename("/c/n", "/c/k"),
    Step::Rename("/c/m", "/a/d"),
    Step::Exchange("/c/k", "/c/n"),
    Step::Rename("/c", "/b/e"),
    Step::Unlink("/c/k"),
    Step::Unlink("/c/n"),
    Step::Rmdir("/c/m"),
    Step::Rmdir("/c"),
    Step::Chmod("/c", 0o700),
    Step::Times("/c"),
    Step::SetXattr("/c"),
    Step::Unnamed("/c/o", 3_000),
];

/// Everything that workloads are made of.
pub(crate) fn vocabulary(plates: u16, splits: bool) -> &'static [Step] {
    static OVER: LazyLock<Vec<Step>> = LazyLock::new(|| [VOCABULARY, OVER_PLATES].concat());
    static ALL: LazyLock<Vec<Step>> = LazyLock::new(|| [OF_SPLITS, VOCABULARY, OVER_PLATES].concat());
    match (plates, splits) {
        (1, _) => VOCABULARY,
        (_, false) => &OVER,
        (_, true) => &ALL,
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Create(path, bytes) => write!(f, "create {path} with {bytes} bytes"),
            Step::Write { path, offset, bytes } => write!(f, "write {bytes} bytes at {offset} of {path}"),
            Step::WriteSync { path, offset, bytes } => {
                write!(f, "write {bytes} bytes at {offset} of {path} with O_SYNC")
            }
            Step::Hold { path, offset, bytes } => {
                write!(f, "write {bytes} bytes at {offset} of {path} and keep it open")
            }
            Step::Append(path, bytes) => write!(f, "append {bytes} bytes to {path}"),
            Step::Punch { path, offset, bytes } => write!(f, "punch {bytes} bytes at {offset} of {path}"),
            Step::Copy(from, to) => write!(f, "copy_file_range {from} to {to}"),
            Step::Truncate(path, size) => write!(f, "truncate {path} to {size}"),
            Step::Rename(from, to) => write!(f, "rename {from} to {to}"),
            Step::Exchange(from, to) => write!(f, "exchange {from} and {to}"),
            Step::Link(from, to) => write!(f, "link {from} as {to}"),
            Step::Unlink(path) => write!(f, "unlink {path}"),
            Step::UnlinkOpen(path) => write!(f, "unlink {path} while it is open and written to"),
            Step::Unnamed(path, bytes) => {
                write!(f, "write {bytes} bytes to a file without a name and link it as {path}")
            }
            Step::HoldUnnamed(path, bytes) => {
                write!(f, "write {bytes} bytes to a file without a name beside {path} and keep it open")
            }
            Step::Whiteout(from, to) => write!(f, "rename {from} to {to} and leave a whiteout"),
            Step::Mkdir(path) => write!(f, "mkdir {path}"),
            Step::Rmdir(path) => write!(f, "rmdir {path}"),
            Step::RemoveTree(path) => write!(f, "make the tree {path} and remove it as a whole"),
            Step::Symlink(target, path) => write!(f, "symlink {path} to {target}"),
            Step::SetXattr(path) => write!(f, "setxattr of {path}"),
            Step::RemoveXattr(path) => write!(f, "removexattr of {path}"),
            Step::Chmod(path, mode) => write!(f, "chmod {path} to {mode:o}"),
            Step::Times(path) => write!(f, "set the times of {path}"),
            Step::Fold(path) => write!(f, "fold {path}"),
            Step::Fsync(path) => write!(f, "fsync {path}"),
            Step::FsyncDir => write!(f, "fsync a directory"),
            Step::Sync => write!(f, "sync"),
            Step::Checkpoint => write!(f, "checkpoint"),
        }
    }
}
