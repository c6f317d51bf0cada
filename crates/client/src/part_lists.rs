//! Which directories have parts on several plates, and which part has a name, as far as a client knows.
//!
//! Invariants:
//! - A list is a hint: a part carries out nothing outside of its range, and says so.
//! - A list gives way only to one that was asked for after it was learnt. So of one directory the lists follow each other as the servers had
//!   them.
//! - An answer of the server about a name is of the part that [`PartLists::place`] names, if [`PartLists::generation`] is the same
//!   before the question and after the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chiton_model::{Op, PartRange, part_of};
use chiton_runtime::sync::Mutex;
use chiton_types::{Ino, Name};
use hashbrown::HashMap;

/// Directories of which it is remembered whether they have parts.
const REMEMBERED_MAX: usize = 65_536;
/// Parts of which the directory is remembered.
const HOMES_MAX: usize = 4 * REMEMBERED_MAX;

/// The parts of a directory, in the order of their ranges.
pub(crate) type List = Arc<[PartRange]>;

/// The lists of parts that a client has learnt, by directory. A list is a hint: the part itself refuses names outside its range.
#[derive(Default)]
pub struct PartLists {
    /// Any directory has parts.
    any: AtomicBool,
    /// Counts the changes of the known lists.
    generation: AtomicU64,
    /// Counts how often everything was forgotten.
    forgotten: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    dirs: HashMap<Ino, Dir>,
    /// The directory of each part; never forgotten, since kernels keep names that they got from a part.
    homes: HashMap<Ino, Ino>,
}

struct Dir {
    /// `None`: it has no parts.
    list: Option<List>,
    /// The generation in which this was learnt.
    learnt: u64,
}

impl PartLists {
    /// Changes whenever another list is learnt.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Changes whenever all lists are forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// The list of a directory with parts, if it is known.
    pub(crate) fn of(&self, dir: Ino) -> Option<List> {
        match self.any.load(Ordering::Relaxed) {
            true => self.known.lock().dirs.get(&dir).and_then(|dir| dir.list.clone()),
            false => None,
        }
    }

    /// The inode that has a name of a directory, as far as that is known.
    pub(crate) fn place(&self, dir: Ino, name: &Name) -> Ino {
        self.of(dir).and_then(|list| part_of(&list, name.hash64())).unwrap_or(dir)
    }

    /// The directory to which a part belongs; of anything else, the same inode. `None` if that is not known.
    pub(crate) fn home(&self, ino: Ino) -> Option<Ino> {
        if !self.any.load(Ordering::Relaxed) {
            return Some(ino);
        }
        let known = self.known.lock();
        match known.homes.get(&ino) {
            None if known.homes.len() >= HOMES_MAX && !known.dirs.contains_key(&ino) => None,
            home => Some(home.copied().unwrap_or(ino)),
        }
    }

    /// A server has listed the parts of a directory (none: it has none), when it was asked in the generation `asked`.
    pub(crate) fn learn(&self, dir: Ino, list: Vec<PartRange>, asked: u64) {
        let mut known = self.known.lock();
        let before = known.dirs.get(&dir);
        if before.is_some_and(|before| before.learnt > asked) {
            return;
        }
        let before = before.map(|before| before.list.as_deref().unwrap_or_default());
        if before.unwrap_or_default() == list.as_slice() {
            // It may have been unknown whether it has any.
            return known.note_plain(dir, self.generation());
        }
        if known.dirs.len() >= REMEMBERED_MAX {
            known.dirs.clear();
            self.forgotten.fetch_add(1, Ordering::SeqCst);
        }
        let room = HOMES_MAX.saturating_sub(known.homes.len());
        known.homes.extend(list.iter().filter(|part| part.ino != dir).map(|part| (part.ino, dir)).take(room));
        let learnt = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        self.any.fetch_or(!list.is_empty(), Ordering::SeqCst);
        let list = (!list.is_empty()).then(|| list.into());
        known.dirs.insert(dir, Dir { list, learnt });
    }

    /// A directory has no parts, unless a list of them was learnt meanwhile.
    pub(crate) fn note_plain(&self, dir: Ino) {
        self.known.lock().note_plain(dir, self.generation());
    }

    /// Whether it is known if a directory has parts.
    pub(crate) fn knows(&self, dir: Ino) -> bool {
        self.known.lock().dirs.contains_key(&dir)
    }

    /// Puts the names of operations where they belong, as far as that is known.
    pub(crate) fn place_ops(&self, ops: &mut [Op]) {
        if self.has_any() {
            ops.iter_mut().for_each(|op| op.place_names(|dir, name| self.place(dir, name)));
        }
    }

    /// Whether any directory is known to have parts.
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}

impl Known {
    fn note_plain(&mut self, dir: Ino, learnt: u64) {
        if self.dirs.len() < REMEMBERED_MAX {
            self.dirs.entry(dir).or_insert(Dir { list: None, learnt });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_until_another_is_learnt() {
        let (dir, part) = (Ino(1), Ino(2));
        let lists = PartLists::default();
        let high = (0..).map(|n| Name::try_from(format!("f{n}").as_str()).expect("a name"));
        let name = high.into_iter().find(|name| name.hash64() >= 1 << 62).expect("half of them");
        assert!(!lists.knows(dir));
        let start = lists.generation();
        lists.learn(dir, Vec::new(), start);
        assert_eq!((lists.knows(dir), lists.place(dir, &name), lists.generation()), (true, dir, start));
        lists.learn(dir, chiton_model::equal_parts(&[dir, part]), start);
        assert_eq!((lists.knows(dir), lists.place(dir, &name)), (true, part));
        assert_eq!((lists.home(part), lists.home(dir)), (Some(dir), Some(dir)));
        let split = lists.generation();
        assert_ne!(split, start);
        // Answers from before do not count.
        lists.note_plain(dir);
        lists.learn(dir, Vec::new(), start);
        assert_eq!((lists.place(dir, &name), lists.generation()), (part, split));
        // The server has lost the split in a crash.
        lists.learn(dir, Vec::new(), split);
        assert_eq!((lists.knows(dir), lists.place(dir, &name), lists.home(part)), (true, dir, Some(dir)));
        assert_ne!(lists.generation(), split);
    }

    #[test]
    fn forgetting_everything_is_noticed() {
        let lists = PartLists::default();
        for n in 0..=REMEMBERED_MAX as u64 {
            let dir = Ino(2 * n + 2);
            lists.learn(dir, chiton_model::equal_parts(&[dir, Ino(2 * n + 3)]), lists.generation());
        }
        assert_eq!((lists.forgotten(), lists.knows(Ino(2))), (1, false));
        // The kernel may still have names of its parts.
        assert_eq!(lists.home(Ino(3)), Some(Ino(2)));
    }
}
