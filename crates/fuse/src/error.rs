//! Errors at the start and end of a mount. Each message says what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A failure of a mount as a whole. (A failure of one request is a [`chiton_types::Refusal`], and the caller gets
/// its errno.)
#[derive(Debug)]
pub enum MountError {
    /// The mount point does not exist.
    NotFound(PathBuf),
    /// The mount point is not a directory.
    NotDir(PathBuf),
    NotEmpty(PathBuf),
    /// Something of ours is mounted there already.
    AlreadyMounted(PathBuf),
    /// A mount whose process is gone is in the way.
    Dead(PathBuf),
    /// `/dev/fuse` is missing or closed to us.
    NoDevice(io::Error),
    /// We are not root, and the helper that may mount for us is not installed.
    NoHelper,
    /// The helper's error message.
    Helper(String),
    Refused(PathBuf, io::Error),
    /// Files are open in it, or it is a process's working directory.
    Busy(PathBuf),
    /// The options contradict each other; in words.
    Options(&'static str),
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
                    "the mount point {} is not empty: name an empty directory, or hide its entries with --nonempty",
                    dir.display()
                )
            }
            MountError::AlreadyMounted(dir) => {
                write!(
                    f,
                    "a Chiton file system is already mounted on {}: unmount it first (chiton umount {}), or name another directory",
                    dir.display(),
                    dir.display()
                )
            }
            MountError::Dead(dir) => write!(
                f,
                "the process behind the mount at {} has died: detach the mount (chiton umount --lazy {}), then mount again",
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
            MountError::Helper(message) => {
                write!(f, "cannot mount: fusermount3 reports: {}", message.trim_end())
            }
            MountError::Refused(dir, error) => write!(f, "cannot mount on {}: {error}", dir.display()),
            MountError::Busy(dir) => write!(
                f,
                "cannot unmount {}: a process has a file open there, or works there; find it with fuser -vm {0}, or use chiton umount --lazy {0}",
                dir.display()
            ),
            MountError::Options(what) => f.write_str(what),
            MountError::Failed(error) => write!(f, "cannot serve requests of the kernel: {error}"),
            MountError::Undone(what) => f.write_str(&what.join("\n")),
        }
    }
}

impl std::error::Error for MountError {}
