//! Cleans up after killed mounts of branches: the dead mount, and the record of its process.

use std::path::Path;
use std::process::Command;

use rustix::mount::UnmountFlags;

use super::tree::Tree;

/// Detaches mounts of this file system's branches whose process is dead. A mount that cannot be detached stays, and
/// fails later with a message.
pub(super) fn sweep(tree: &Tree) {
    for user in tree.realms.dead_users() {
        if chiton_fuse::is_dead(&user.mountpoint) && take_away(&user.mountpoint) {
            chiton_runtime::log_line!(
                "chiton: detached the mount at {}, whose process {} has died",
                user.mountpoint.display(),
                user.pid
            );
        }
    }
}

fn take_away(dir: &Path) -> bool {
    if rustix::process::geteuid().is_root() {
        return rustix::mount::unmount(dir, UnmountFlags::DETACH).is_ok();
    }
    let taken = Command::new("fusermount3").arg("-uz").arg(dir).status();
    taken.is_ok_and(|status| status.success())
}
