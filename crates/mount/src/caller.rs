//! Who asks: from a FUSE request to a [`Caller`].
//!
//! A request carries user, group and thread id. Supplementary groups stand in the thread's entry in `/proc`,
//! which costs some ten microseconds to read, so that is done only when a decision depends on them.

use std::sync::Arc;

use chiton_client::{Caller, Groups};
use chiton_fuse::Request;

use crate::proc_status;

/// Runs `body` as whoever made the request.
pub(crate) fn as_caller<R>(req: &Request, body: impl FnOnce(&Caller<'_>) -> R) -> R {
    let look_up = || groups_of(req.pid());
    body(&Caller { uid: req.uid(), gid: req.gid(), groups: Groups::Lazy(&look_up) })
}

/// Supplementary groups of a thread; none if they cannot be read (it is gone, or in another namespace: 0).
pub(crate) fn groups_of(thread: u32) -> Arc<[u32]> {
    let Some(status) = proc_status::read(thread) else { return Arc::new([]) };
    let Some(line) = proc_status::field(&status, "Groups") else { return Arc::new([]) };
    line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_this_thread_are_found_and_those_of_nobody_are_none() {
        let mut expect: Vec<u32> =
            rustix::process::getgroups().expect("own groups").iter().map(|g| g.as_raw()).collect();
        let mut found = groups_of(std::process::id()).to_vec();
        expect.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expect);
        assert!(groups_of(0).is_empty());
        assert!(groups_of(u32::MAX).is_empty());
    }
}
