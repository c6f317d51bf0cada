//! Renames that are under way between plates, by their directories.
//!
//! The plate that decides a rename leaves the client its lease on the other directory. Until the answer comes, names and attributes that the
//! client has of that directory, or asks for, may be those from before the rename. A rename that its caller gave up counts as under way for
//! ever: it may be carried out at any time, and the client will not learn of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use chiton_model::Op;
use chiton_runtime::sync::Mutex;
use chiton_types::Ino;
use hashbrown::HashMap;

/// Counts renames by directory; of a directory with parts, by the directory and not by the part.
#[derive(Default)]
pub(crate) struct Renames {
    count: AtomicUsize,
    dirs: Mutex<HashMap<Ino, usize>>,
}

impl Renames {
    /// An operation is about to be asked for.
    pub(crate) fn begins(&self, op: &Op) {
        for dir in dirs(op) {
            self.count.fetch_add(1, Ordering::SeqCst);
            *self.dirs.lock().entry(dir).or_default() += 1;
        }
    }

    /// The server has answered the rename.
    pub(crate) fn ended(&self, op: &Op) {
        for dir in dirs(op) {
            let mut counts = self.dirs.lock();
            if let Some(count) = counts.get_mut(&dir) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&dir);
                }
                self.count.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Whether one is under way in a directory.
    pub(crate) fn any_in(&self, dir: impl FnOnce() -> Option<Ino>) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && dir().is_none_or(|dir| self.dirs.lock().contains_key(&dir))
    }
}

fn dirs(op: &Op) -> impl Iterator<Item = Ino> {
    let both = if let Op::Rename { from, to, .. } = op { Some([*from, *to]) } else { None };
    both.into_iter().flatten()
}
