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
    /// The mount has ended, and not everything that was done in it is safe; in words.
    Undone(Vec<String>),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::NotFound(dir) => {
                write!(
                    f,
                    "the mount point {} does not exist: make the directory first (mkdir)",
                    dir.display()
                )
            }
            MountError::NotDir(dir) => {
                write!(f, "the mount point {} is not a directory: name a directory", dir.display())
            }
            MountError::NotEmpty(dir) => {
                write!(
                    f,
                    "the mount point {} is not empty: name an empty directory, or hide what is in it with --nonempty",
                    dir.display()
                )
            }
            MountError::AlreadyMounted(dir) => {
                write!(
                    f,
                    "a file system of Chiton is mounted on {} already: unmount it first (chiton umount {}), or name another directory",
                    dir.display(),
                    dir.display()
                )
            }
            MountError::Dead(dir) => write!(
                f,
                "the process behind the mount at {} is gone: take the mount away (chiton umount --lazy {}), then mount again",
                dir.display(),
                dir.display()
            ),
            MountError::NoDevice(error) => {
                write!(
                    f,
                    "cannot open /dev/fuse: {error}: load the kernel module (modprobe fuse); in a container, allow the device"
                )
            }
            MountError::NoHelper => f.write_str(
                "cannot run fusermount3, which mounts for users who are not root: install the package fuse3",
            ),
            MountError::Helper(said) => write!(f, "cannot mount: fusermount3 says: {}", said.trim_end()),
            MountError::Refused(dir, error) => write!(f, "cannot mount on {}: {error}", dir.display()),
            MountError::Busy(dir) => write!(
                f,
                "cannot unmount {}: a process has a file open there, or works there; name it with fuser -vm {0}, or use chiton umount --lazy {0}",
                dir.display()
            ),
            MountError::Options(what) => f.write_str(what),
            MountError::Failed(error) => write!(f, "cannot answer the kernel: {error}"),
            MountError::Undone(what) => f.write_str(&what.join("\n")),
        }
    }
}

impl std::error::Error for MountError {}
