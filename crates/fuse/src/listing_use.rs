//! Whether the programs that list a directory use the attributes that come with its names.
//!
//! A kernel does not say so: it keeps the attributes of a listing, and looks up only those that it was not given. So of
//! some entries a listing gives no attributes, which is a probe: a LOOKUP of that name means that attributes are used.
//!
//! ```text
//!   READDIRPLUS ─▶ 16,384 names with attributes ─▶ one without ─▶ … ─▶ 131,072 without a LOOKUP of a probe ─▶ names alone
//!                            ▲                                                                                   │
//!                            └────────────────────── a LOOKUP of a probe ────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - A listing shows every name, with attributes or without.
//! - `find`, `du` and `rm -r` read 100,000 names before they look at the first (fts(3)): they are noticed before the attributes end.

use std::sync::atomic::{AtomicBool, Ordering};

use chiton_types::{Ino, Name};
use hashbrown::HashMap;
use parking_lot::Mutex;

/// Names of a listing from one probe to the next.
const PROBE_NAMES: usize = 16_384;
/// Names of a listing without a LOOKUP of a probe, after which attributes are not read any more.
const UNUSED_MAX: usize = 131_072;
/// Open directories that are followed; others always get attributes.
const HANDLES_MAX: usize = 256;

/// The content of the next reply to an open directory beside names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The attributes of each.
    Attributes,
    /// The attributes of each but the first, which is a probe.
    Probe,
    /// Nothing: each name is a probe, of which one is remembered now and then.
    Nothing,
}

impl Beside {
    /// Whether the entry at this place of the reply comes without attributes.
    pub(crate) fn leaves_out(self, at: usize) -> bool {
        match self {
            Beside::Attributes => false,
            Beside::Probe => at == 0,
            Beside::Nothing => true,
        }
    }
}

/// Of all open directories, by the number of the handle.
#[derive(Debug, Default)]
pub(crate) struct ListingUse {
    handles: Mutex<HashMap<u64, Use>>,
    /// There are probes: to be read without the lock.
    has_probes: AtomicBool,
}

#[derive(Debug)]
struct Use {
    dir: Ino,
    /// Names since the last probe.
    unprobed: usize,
    /// Names since the last LOOKUP of a probe.
    unused: usize,
    /// The last ones.
    probes: Vec<Name>,
}

impl ListingUse {
    /// The content of the next reply to a handle.
    pub(crate) fn next(&self, handle: u64) -> Beside {
        match self.handles.lock().get(&handle) {
            Some(used) if used.unused >= UNUSED_MAX => Beside::Nothing,
            Some(used) if used.unprobed >= PROBE_NAMES => Beside::Probe,
            _ => Beside::Attributes,
        }
    }

    /// A reply had so many names, the first of them without attributes if it is given.
    pub(crate) fn replied(&self, handle: u64, dir: Ino, names: usize, bare: Option<Name>) {
        let mut handles = self.handles.lock();
        if handles.len() >= HANDLES_MAX && !handles.contains_key(&handle) {
            return;
        }
        let used =
            handles.entry(handle).or_insert_with(|| Use { dir, unprobed: 0, unused: 0, probes: Vec::new() });
        used.unused = used.unused.saturating_add(names);
        used.unprobed += names;
        let Some(name) = bare.filter(|_| used.unprobed >= PROBE_NAMES) else { return };
        used.unprobed = 0;
        if used.probes.len() >= UNUSED_MAX / PROBE_NAMES {
            used.probes.remove(0);
        }
        used.probes.push(name);
        self.has_probes.store(true, Ordering::Relaxed);
    }

    /// The kernel looks up a name.
    pub(crate) fn looked_up(&self, dir: Ino, name: &[u8]) {
        if !self.has_probes.load(Ordering::Relaxed) {
            return;
        }
        for used in self.handles.lock().values_mut() {
            if used.dir == dir && used.probes.iter().any(|probe| probe.as_bytes() == name) {
                used.unused = 0;
            }
        }
    }

    /// The handle is closed.
    pub(crate) fn over(&self, handle: u64) {
        let mut handles = self.handles.lock();
        handles.remove(&handle);
        let has_probes = handles.values().any(|used| !used.probes.is_empty());
        self.has_probes.store(has_probes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(7);
    const HANDLE: u64 = 1;
    const REPLY_NAMES: usize = 128;

    fn name(n: usize) -> Name {
        Name::try_from(format!("n{n}").as_str()).expect("a name")
    }

    /// Lists so many names from one on, each reply of 128; probes are looked up if the program does so. Returns the content of the replies.
    fn list(uses: &ListingUse, from: usize, names: usize, looks: bool) -> Vec<Beside> {
        let mut replies = Vec::new();
        for first in (from..from + names).step_by(REPLY_NAMES) {
            let beside = uses.next(HANDLE);
            let bare = (beside != Beside::Attributes).then(|| name(first));
            uses.replied(HANDLE, DIR, REPLY_NAMES, bare);
            if looks && beside != Beside::Attributes {
                uses.looked_up(DIR, name(first).as_bytes());
            }
            replies.push(beside);
        }
        replies
    }

    fn count(replies: &[Beside], beside: Beside) -> usize {
        replies.iter().filter(|reply| **reply == beside).count()
    }

    #[test]
    fn attributes_end_where_nobody_uses_them() {
        let uses = ListingUse::default();
        let first = list(&uses, 0, UNUSED_MAX, false);
        assert_eq!(count(&first, Beside::Nothing), 0);
        assert!(count(&first, Beside::Probe) >= 6, "{first:?}");
        let rest = list(&uses, UNUSED_MAX, 10 * UNUSED_MAX, false);
        assert_eq!(count(&rest, Beside::Nothing), rest.len());
    }

    #[test]
    fn attributes_go_on_where_they_are_used() {
        let uses = ListingUse::default();
        let all = list(&uses, 0, 10 * UNUSED_MAX, true);
        assert_eq!(count(&all, Beside::Nothing), 0);
        // A probe in 16,384 names.
        let probes = count(&all, Beside::Probe);
        assert!((70..=80).contains(&probes), "{probes}");
    }

    #[test]
    fn attributes_return_when_a_name_is_looked_up() {
        let uses = ListingUse::default();
        list(&uses, 0, 2 * UNUSED_MAX, false);
        assert_eq!(uses.next(HANDLE), Beside::Nothing);
        // Others, and the same name elsewhere, do not count.
        uses.looked_up(DIR, b"other");
        let probe = uses.handles.lock()[&HANDLE].probes[0].clone();
        uses.looked_up(Ino(8), probe.as_bytes());
        assert_eq!(uses.next(HANDLE), Beside::Nothing);
        uses.looked_up(DIR, probe.as_bytes());
        assert_ne!(uses.next(HANDLE), Beside::Nothing);
    }

    #[test]
    fn a_closed_handle_begins_anew_and_leaves_nothing() {
        let uses = ListingUse::default();
        list(&uses, 0, 2 * UNUSED_MAX, false);
        uses.over(HANDLE);
        assert_eq!(uses.next(HANDLE), Beside::Attributes);
        assert!(uses.handles.lock().is_empty() && !uses.has_probes.load(Ordering::Relaxed));
        // Beyond the limit, others are not followed.
        (0..2 * HANDLES_MAX as u64).for_each(|handle| uses.replied(handle, DIR, 1, None));
        assert_eq!(uses.handles.lock().len(), HANDLES_MAX);
    }
}
