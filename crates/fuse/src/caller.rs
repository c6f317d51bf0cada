//! From a FUSE request to the credentials of its [`Caller`].
//!
//! A request carries user, group and thread id. Supplementary groups and capabilities are in the thread's entry in
//! `/proc`, which takes some ten microseconds to read. So they are read only when a decision depends on them, and
//! at most once per request: between two requests a thread may change its capabilities, and its number may go to
//! another thread.
//!
//! | the thread | groups | capabilities |
//! |---|---|---|
//! | has the request's user and group | its own | its own: everywhere, if it is in the mount's user namespace; else over the inodes of its namespace |
//! | has others: the kernel acts for it (overlayfs, nfsd) | none | all for user 0, none for others |
//! | cannot be seen: another PID namespace (0) | none | all for user 0, none for others |
//! | is gone | none | none |
//!
//! Capabilities that the kernel checks before it sends the request (CAP_SYS_ADMIN for `trusted.`, CAP_MKNOD for
//! devices) are taken as given.

use std::cell::OnceCell;
use std::sync::Arc;

use chiton_client::{Caller, Groups, LookUp, Standing};
use chiton_fuse_session::Request;
use chiton_types::{Capabilities, Privileges};

use crate::proc_status;

/// A thread that asks for something.
pub(crate) struct RequestCredentials {
    thread: u32,
    uid: u32,
    gid: u32,
    /// Capabilities that the kernel has checked.
    vouched: Capabilities,
    protects_hardlinks: bool,
    umask: u16,
    standing: OnceCell<Standing>,
}

impl RequestCredentials {
    pub(crate) fn new(thread: u32, uid: u32, gid: u32) -> RequestCredentials {
        let (vouched, protects_hardlinks) = (Capabilities::NONE, false);
        RequestCredentials {
            thread,
            uid,
            gid,
            vouched,
            protects_hardlinks,
            umask: 0,
            standing: OnceCell::new(),
        }
    }

    fn of(req: &Request) -> RequestCredentials {
        RequestCredentials::new(req.pid(), req.uid(), req.gid())
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { uid: self.uid, gid: self.gid, groups: Groups::Lazy(self) }
    }
}

impl LookUp for RequestCredentials {
    fn standing(&self) -> Standing {
        let look = || {
            let mut standing = standing_of(self.thread, self.uid, self.gid);
            let privileges = &mut standing.privileges;
            privileges.capabilities = privileges.capabilities.and(self.vouched);
            standing
        };
        self.standing.get_or_init(look).clone()
    }

    fn protects_hardlinks(&self) -> bool {
        self.protects_hardlinks
    }

    fn umask(&self) -> u16 {
        self.umask
    }
}

/// Runs `body` with the credentials of the request's caller.
pub(crate) fn as_caller<R>(req: &Request, body: impl FnOnce(&Caller<'_>) -> R) -> R {
    body(&RequestCredentials::of(req).caller())
}

/// The same where the kernel has checked capabilities before.
pub(crate) fn as_vouched<R>(req: &Request, vouched: Capabilities, body: impl FnOnce(&Caller<'_>) -> R) -> R {
    body(&RequestCredentials { vouched, ..RequestCredentials::of(req) }.caller())
}

/// The same for requests that create an inode, with their umask. The kernel has checked CAP_MKNOD for devices.
pub(crate) fn as_maker<R>(req: &Request, umask: u32, body: impl FnOnce(&Caller<'_>) -> R) -> R {
    let umask = (umask & 0o777) as u16;
    body(&RequestCredentials { umask, vouched: Capabilities::MKNOD, ..RequestCredentials::of(req) }.caller())
}

/// The same for link(2), where this machine may protect links to files of other users.
pub(crate) fn as_linker<R>(req: &Request, body: impl FnOnce(&Caller<'_>) -> R) -> R {
    let setting = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks");
    let protects_hardlinks = setting.is_ok_and(|setting| setting.trim() != "0");
    body(&RequestCredentials { protects_hardlinks, ..RequestCredentials::of(req) }.caller())
}

fn standing_of(thread: u32, uid: u32, gid: u32) -> Standing {
    let none = || Arc::from([]);
    if thread == 0 {
        return Standing { groups: none(), privileges: Privileges::of_user(uid) };
    }
    let Some(status) = proc_status::read(thread) else {
        return Standing { groups: none(), privileges: Privileges::NONE };
    };
    if proc_status::acting_ids(&status) != Some((uid, gid)) {
        return Standing { groups: none(), privileges: Privileges::of_user(uid) };
    }
    let capabilities = Capabilities(proc_status::mask(&status, "CapEff"));
    let privileges = match capabilities {
        Capabilities::NONE => Privileges::NONE,
        capabilities => Privileges { capabilities, scope: proc_status::scope(thread) },
    };
    Standing { groups: proc_status::groups(&status), privileges }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_those_of_the_thread() {
        let mut expect: Vec<u32> =
            rustix::process::getgroups().expect("own groups").iter().map(|g| g.as_raw()).collect();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let this = standing_of(std::process::id(), uid, gid);
        let mut found = this.groups.to_vec();
        expect.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expect);
        let status = std::fs::read_to_string("/proc/self/status").expect("of this process");
        let mask = proc_status::field(&status, "CapEff").expect("a line");
        let own = u64::from_str_radix(mask, 16).expect("a mask");
        let expect = Privileges { capabilities: Capabilities(own), ..Privileges::ALL };
        assert_eq!(this.privileges, expect);
        // Gone.
        let gone = standing_of(u32::MAX, 0, 0);
        assert!(gone.groups.is_empty() && gone.privileges == Privileges::NONE);
        // Where nothing is seen, or the thread shows other credentials than those that the request has.
        for (thread, uid) in [(0, 0), (std::process::id(), uid + 1)] {
            let unseen = standing_of(thread, uid, gid);
            assert!(unseen.groups.is_empty());
            assert_eq!(unseen.privileges, Privileges::of_user(uid), "{thread} {uid}");
        }
    }
}
