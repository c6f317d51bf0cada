//! How a mount is set up.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Users other than the mounting one may come in. `None`: if root mounts.
    pub allow_other: Option<bool>,
    /// Threads that take requests from the kernel, at least 1; more come while all of these wait. `None`: 2 if the server is in this process (more
    /// only fight over its lock), else 8 (each may have to wait for an answer).
    pub threads: Option<usize>,
    /// Mount over a directory that has entries, which are hidden meanwhile.
    pub over_entries: bool,
    /// Honour set-user-id bits of files (root only).
    pub suid: bool,
    /// Let device nodes be devices (root only).
    pub devices: bool,
    /// Let no program be run from this mount.
    pub no_exec: bool,
    /// Whether other clients use the server at the same time. `None`: yes while the server is not in this process,
    /// or has other sessions. Files that are opened for writing then bypass the kernel's page cache (see
    /// `docs/semantics.md`).
    pub shared: Option<bool>,
    /// File systems that are mounted inside stay, whatever other clients change: the kernel caches no names and
    /// looks up each again, which is slower. A running mount can be switched with
    /// [`crate::ControlRequest::KeepMounts`].
    pub keep_mounts: bool,
    /// Show inode numbers below 2^32, for programs that know no larger ones. The table takes about 16 bytes for each inode that was
    /// shown, as long as the mount lives.
    pub ino32: bool,
    /// At the end of the mount, how long to wait for a silent server before data that it has not received are given
    /// up.
    pub unmount_timeout: Duration,
    /// Path of the control socket for requests about decoupled subtrees ([`crate::ask_control`]). Only this user
    /// may change its directory. `getfattr -n chiton.control` returns the path.
    pub control: Option<PathBuf>,
    /// The source that `mount` and `df` show. No commas.
    pub fs_name: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            allow_other: None,
            threads: None,
            over_entries: false,
            suid: false,
            devices: false,
            no_exec: false,
            shared: None,
            keep_mounts: false,
            ino32: false,
            unmount_timeout: Duration::from_secs(30),
            control: None,
            fs_name: "chiton".to_owned(),
        }
    }
}
