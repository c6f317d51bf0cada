//! What mounts of branches leave whose process was killed: a mount that answers nobody, and a note of who has the branch.

use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::tree::Tree;

/// Takes away mounts of branches of this file system whose process is gone. What cannot be taken away stays, and says so when
/// it is met.
pub(super) fn sweep(tree: &Tree) {
    for user in tree.realms.dead_users() {
        if is_dead(&user.mountpoint) && take_away(&user.mountpoint) {
            chiton_runtime::log_line!(
                "chiton: took away the mount at {}, whose process {} is gone",
                user.mountpoint.display(),
                user.pid
            );
        }
    }
}

/// Whether the process behind a mount is gone: the system says so.
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
