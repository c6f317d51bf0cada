//! Why a mount does not start or end. The messages say what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What went wrong with a mount as a whole. (What goes wrong with one request is a
/// [`chiton_types::Refusal`], and the caller gets its errno.)
#[derive(Debug)]
pub enum MountError {
    /// The mount point does not exist.
    NotFound(PathBuf),
    /// The mount point is not a directory.
    NotDir(PathBuf),
    /// The mount point has entries.
    NotEmpty(PathBuf),
    /// Something of ours is mounted there already.
    AlreadyMounted(PathBuf),
    /// A mount whose process is gone is in the way.
    Dead(PathBuf),
    /// `/dev/fuse` is missing or closed to us.
    NoDevice(io::Error),
    /// We are not root, and the helper that may mount for us is not installed.
    NoHelper,
    /// The helper refused; what it said.
    Helper(String),
    /// The system refused.
    Refused(PathBuf, io::Error),
    /// Files are open, or someone's working directory is in there.
    Busy(PathBuf),
    /// The options contradict each other; in words.
    Options(&'static str),
    /// The dispatch threads failed.
    Failed(io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::NotFound(dir) => {
                write!(f, "mount point {} does not exist: mkdir it first", dir.display())
            }
            MountError::NotDir(dir) => write!(f, "mount point {} is not a directory", dir.display()),
            MountError::NotEmpty(dir) => {
                write!(
                    f,
                    "mount point {} is not empty: choose another, or allow it (over_entries)",
                    dir.display()
                )
            }
            MountError::AlreadyMounted(dir) => {
                write!(
                    f,
                    "{} is mounted already: umount it first, or choose another directory",
                    dir.display()
                )
            }
            MountError::Dead(dir) => write!(
                f,
                "the process behind the mount at {} is gone: `umount -l {}` (or `fusermount3 -uz`, `chiton umount --lazy`) first",
                dir.display(),
                dir.display()
            ),
            MountError::NoDevice(error) => {
                write!(
                    f,
                    "open /dev/fuse: {error}: is the kernel module `fuse` loaded, and open to this user?"
                )
            }
            MountError::NoHelper => {
                f.write_str("mounting without being root needs `fusermount3`: install the package fuse3")
            }
            MountError::Helper(said) => write!(f, "fusermount3: {}", said.trim_end()),
            MountError::Refused(dir, error) => write!(f, "mount {}: {error}", dir.display()),
            MountError::Busy(dir) => write!(
                f,
                "{} is in use (open files, or someone's working directory): `fuser -vm {}` shows by whom",
                dir.display(),
                dir.display()
            ),
            MountError::Options(what) => f.write_str(what),
            MountError::Failed(error) => write!(f, "serve the mount: {error}"),
        }
    }
}

impl std::error::Error for MountError {}
