//! Attaching a `/dev/fuse` descriptor to a directory, and detaching it.
//!
//! The end of a session unmounts nothing by path: another file system may have been mounted there meanwhile.
//!
//! ```text
//!   root ── open /dev/fuse ── mount(2) ─────────────────┐
//!   else ── fusermount3 ── passes a descriptor back ────┴▶ descriptor
//! ```

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::mount_table;
use crate::{MountError, MountOptions};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// A directory that a descriptor is attached to.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) dir: PathBuf,
    by_helper: bool,
}

/// # Errors
/// All that [`MountError`] knows but `Busy` and `Failed`.
pub(crate) fn attach(
    dir: &Path,
    options: &MountOptions,
    allow_other: bool,
) -> Result<(OwnedFd, Attached), MountError> {
    if options.fs_name.is_empty() || options.fs_name.contains([',', '\0', '\n']) {
        return Err(MountError::Options("fs_name must not be empty or contain commas"));
    }
    let dir = checked(dir, options)?;
    if rustix::process::geteuid().is_root() {
        let fd = by_system_call(&dir, options, allow_other)?;
        return Ok((fd, Attached { dir, by_helper: false }));
    }
    let fd = by_helper(&dir, options, allow_other)?;
    Ok((fd, Attached { dir, by_helper: true }))
}

impl Attached {
    /// Detaches. With `lazily` also if it is in use: it then ends when the last user is gone.
    ///
    /// # Errors
    /// [`MountError::Busy`]; or the error of the system or the helper.
    pub(crate) fn detach(&self, lazily: bool) -> Result<(), MountError> {
        if self.by_helper {
            let mode = if lazily { "-uz" } else { "-u" };
            let message = run_helper(Command::new(HELPER).arg(mode).arg("--").arg(&self.dir))?;
            return match message {
                None => Ok(()),
                Some(message) if message.contains("busy") => Err(MountError::Busy(self.dir.clone())),
                Some(message) => Err(MountError::Helper(message)),
            };
        }
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
        match rustix::mount::unmount(&self.dir, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(MountError::Busy(self.dir.clone())),
            Err(error) => Err(MountError::Refused(self.dir.clone(), error.into())),
        }
    }

    /// Lets the kernel read ahead further than a FUSE mount may ask for itself. Not permitted: stays as it is.
    pub(crate) fn raise_read_ahead(&self, kib: u32) {
        if let Some(found) = mount_table::last_at(&self.dir) {
            let setting = format!("/sys/class/bdi/{}/read_ahead_kb", found.device);
            // Only a matter of speed.
            let _ = std::fs::write(setting, kib.to_string());
        }
    }
}

/// Whether something can be mounted at `dir`: before anything is started for it.
///
/// # Errors
/// The errors of [`crate::Mount::start`] that concern the mount point.
pub fn check_mount_point(dir: &Path, over_entries: bool) -> Result<(), MountError> {
    checked(dir, &MountOptions { over_entries, ..MountOptions::default() }).map(drop)
}

/// Whether the process behind a mount at `dir` is dead. The kernel asks it for statfs(2) each time; attributes of a mount whose process
/// died a moment ago it may still answer itself.
pub fn is_dead(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_err_and(|errno| errno == Errno::NOTCONN)
}

fn checked(dir: &Path, options: &MountOptions) -> Result<PathBuf, MountError> {
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT) => MountError::NotFound(dir.to_owned()),
        Some(libc::ENOTCONN) => MountError::Dead(dir.to_owned()),
        _ => MountError::Refused(dir.to_owned(), error),
    };
    let dir = dir.canonicalize().map_err(refused)?;
    // Looked up before the directory is touched: a mount of ours that hangs must not hang us.
    if mount_table::last_at(&dir).is_some_and(|found| found.kind == mount_table::KIND) {
        return Err(if is_dead(&dir) { MountError::Dead(dir) } else { MountError::AlreadyMounted(dir) });
    }
    if !dir.metadata().map_err(refused)?.is_dir() {
        return Err(MountError::NotDir(dir));
    }
    if !options.over_entries && dir.read_dir().map_err(refused)?.next().is_some() {
        return Err(MountError::NotEmpty(dir));
    }
    Ok(dir)
}

fn by_system_call(dir: &Path, options: &MountOptions, allow_other: bool) -> Result<OwnedFd, MountError> {
    let device = File::options().read(true).write(true).open(DEVICE).map_err(MountError::NoDevice)?;
    let root_mode = dir.metadata().map_err(|e| MountError::Refused(dir.to_owned(), e))?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let others = if allow_other { ",allow_other" } else { "" };
    let data =
        format!("fd={},rootmode={root_mode:o},user_id={uid},group_id={gid}{others}\0", device.as_raw_fd());
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).expect("numbers hold no NUL");
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.devices);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    rustix::mount::mount(options.fs_name.as_str(), dir, mount_table::KIND, flags, Some(data))
        .map_err(|error| MountError::Refused(dir.to_owned(), error.into()))?;
    Ok(device.into())
}

fn by_helper(dir: &Path, options: &MountOptions, allow_other: bool) -> Result<OwnedFd, MountError> {
    let mut words = vec![format!("fsname={},subtype=chiton,nosuid,nodev,noatime", options.fs_name)];
    if options.read_only {
        words.push("ro".to_owned());
    }
    if options.no_exec {
        words.push("noexec".to_owned());
    }
    if allow_other {
        words.push("allow_other".to_owned());
    }
    let refused = |error: io::Error| MountError::Refused(dir.to_owned(), error);
    let (ours, theirs) = UnixStream::pair().map_err(refused)?;
    let number = theirs.as_raw_fd();
    let mut command = Command::new(HELPER);
    command.args(["-o", &words.join(","), "--"]).arg(dir).env("_FUSE_COMMFD", number.to_string());
    // SAFETY: between fork and exec only one system call is made, on a descriptor that `theirs` keeps open.
    unsafe {
        command.pre_exec(move || {
            let fd = rustix::fd::BorrowedFd::borrow_raw(number);
            rustix::io::fcntl_setfd(fd, FdFlags::empty()).map_err(io::Error::from)
        });
    }
    let message = run_helper(&mut command)?;
    drop(theirs);
    match message {
        Some(message) => Err(MountError::Helper(message)),
        None => passed_descriptor(&ours).map_err(refused),
    }
}

/// Runs the helper to its end. `Some`: its error message.
fn run_helper(command: &mut Command) -> Result<Option<String>, MountError> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::Helper(error.to_string()),
    })?;
    let mut message = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.take(64 << 10).read_to_string(&mut message);
    }
    let status = child.wait().map_err(|error| MountError::Helper(error.to_string()))?;
    Ok((!status.success()).then_some(message))
}

fn passed_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| io::Error::other("fusermount3 passed no descriptor"))
}
