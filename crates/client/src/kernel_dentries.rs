//! The names that the kernel may keep in its dentry cache, so that they can be invalidated.
//!
//! The kernel forgets them automatically after their time, so two periods of that time are remembered.
//!
//! Invariants:
//! - The kernel may keep a name only if no lease on its directory was recalled since the question.
//! - Bounded: of a directory with too many names only that fact is remembered.

use std::time::Duration;

use chiton_runtime::sync::Mutex;
use chiton_types::{Ino, Name};
use hashbrown::{HashMap, HashSet};

use crate::{Mark, Recalls};

enum Names {
    These(HashSet<Name>),
    TooMany,
}

#[derive(Default)]
struct Period {
    dirs: HashMap<Ino, Names>,
    count: usize,
}

#[derive(Default)]
struct Inner {
    young: Period,
    old: Period,
    began: Duration,
}

/// The names that the kernel must forget when a directory is recalled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dentries {
    pub(crate) names: Vec<Name>,
    /// There are more, not remembered one by one.
    pub(crate) more: bool,
}

pub(crate) struct KernelDentries {
    inner: Mutex<Inner>,
    names_max: usize,
}

impl KernelDentries {
    /// Remembers at most `names_max` names a period.
    pub(crate) fn new(names_max: usize) -> KernelDentries {
        KernelDentries { inner: Mutex::default(), names_max }
    }

    /// The kernel is about to be given a name for `ttl`. False: it must not keep it, a recall came in between.
    pub(crate) fn record(
        &self,
        recalls: &Recalls,
        mark: Mark,
        parent: Ino,
        name: &Name,
        now: Duration,
        ttl: Duration,
    ) -> bool {
        let mut inner = self.inner.lock();
        if recalls.recalled_since(mark, parent) {
            return false;
        }
        if now.saturating_sub(inner.began) > ttl {
            inner.old = std::mem::take(&mut inner.young);
            inner.began = now;
        }
        let full = inner.young.count >= self.names_max;
        let Period { dirs, count } = &mut inner.young;
        match dirs.entry(parent).or_insert_with(|| Names::These(HashSet::new())) {
            Names::TooMany => {}
            slot @ Names::These(_) if full => {
                if let Names::These(names) = std::mem::replace(slot, Names::TooMany) {
                    *count -= names.len();
                }
            }
            Names::These(names) => {
                // Looked for first: most are known, and a set takes no borrowed name.
                if !names.contains(name) {
                    names.insert(name.clone());
                    *count += 1;
                }
            }
        }
        true
    }

    /// Forgets a directory's names and returns them.
    pub(crate) fn take(&self, dir: Ino) -> Dentries {
        let mut inner = self.inner.lock();
        let mut taken = Dentries::default();
        let Inner { young, old, .. } = &mut *inner;
        for period in [young, old] {
            match period.dirs.remove(&dir) {
                Some(Names::These(names)) => {
                    period.count -= names.len();
                    taken.names.extend(names);
                }
                Some(Names::TooMany) => taken.more = true,
                None => {}
            }
        }
        taken
    }

    /// Directories of which the kernel may keep names.
    pub(crate) fn dirs(&self) -> Vec<Ino> {
        let inner = self.inner.lock();
        let mut dirs: Vec<Ino> = inner.young.dirs.keys().chain(inner.old.dirs.keys()).copied().collect();
        dirs.sort_unstable();
        dirs.dedup();
        dirs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_back_until_their_time_is_over() {
        let (dentries, recalls) = (KernelDentries::new(3), Recalls::default());
        let name = |s: &str| Name::try_from(s).expect("a name");
        let second = Duration::from_secs;
        let record = |dir, s: &str, at| {
            assert!(dentries.record(&recalls, recalls.now(), Ino(dir), &name(s), second(at), second(10)));
        };
        record(1, "a", 1);
        record(1, "b", 12);
        assert_eq!(dentries.dirs(), [Ino(1)]);
        let mut taken = dentries.take(Ino(1));
        taken.names.sort();
        assert_eq!(taken, Dentries { names: vec![name("a"), name("b")], more: false });
        assert_eq!(dentries.take(Ino(1)), Dentries::default());
        record(1, "a", 20);
        record(2, "c", 33);
        record(2, "d", 50);
        assert_eq!(dentries.take(Ino(1)), Dentries::default(), "the kernel has forgotten it by now");
        for s in ["e", "f", "g", "h"] {
            record(3, s, 51);
        }
        assert!(dentries.take(Ino(3)).more);
        let mark = recalls.now();
        recalls.note(Ino(4));
        assert!(!dentries.record(&recalls, mark, Ino(4), &name("x"), second(60), second(10)));
    }
}
