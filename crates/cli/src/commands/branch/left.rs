//! Cleans up after killed mounts of branches: the dead mount, and the record of its process.

use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::tree::Tree;

/// Detaches mounts of this file system's branches whose process is dead. A mount that cannot be detached stays, and
/// fails later with a message.
pub(super) fn sweep(tree: &Tree) {
    for user in tree.realms.dead_users() {
        if is_dead(&user.mountpoint) && take_away(&user.mountpoint) {
            chiton_runtime::log_line!(
                "chiton: detached the mount at {}, whose process {} has died",
                user.mountpoint.display(),
                user.pid
            );
        }
    }
}

/// Whether the process behind a mount is dead, as the kernel reports.
fn is_dead(dir: &Path) -> bool {
    std::fs::metadata(dir).is_err_and(|e| e.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

fn take_away(dir: &Path) -> bool {
    if rustix::process::geteuid().is_root() {
        return rustix::mount::unmount(dir, UnmountFlags::DETACH).is_ok();
    }
    let taken = Command::new("fusermount3").arg("-uz").arg(dir).status();
    taken.is_ok_and(|status| status.success())
}
