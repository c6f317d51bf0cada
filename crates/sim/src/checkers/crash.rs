//! The crash oracle: after a crash the tree, with content, links, attributes and times, equals a prefix of the
//! acknowledged operations, in one order for the whole realm. The prefix is no shorter than the last fsync,
//! fsyncdir, sync or write that is durable when acknowledged (S18 to S27).
//!
//! ```text
//!   entries:   act   act   buffered   act   pushed   durable   act   act │ crash
//!                                                       ▲                 ▲
//!                       accepted: the states from here ─┴──── to here ────┘
//! ```
//!
//! With several plates each has a journal of its own. The tree equals a prefix of the operations of *each* plate, and an operation over
//! plates, which one of them decides, is there whole or not at all:
//!
//! ```text
//!   plate 0:   act         buffered   act          durable   act │
//!   plate 1:         act                   pushed  durable       act │     (one of the accepted vectors)
//! ```
//!
//! Invariants:
//! - An operation belongs to the plate that decides it: that of the directory whose name is given (or taken), or else that of the inode.
//!   A name in a directory with parts belongs to the plate of its part. A promise of durability holds for all plates.
//! - An action is in the history from the moment when it begins: an unfinished one may exist or not.
//! - Content that a client has buffered (written, not closed, fsynced or pushed) may exist from the write on, must
//!   exist from the push on, and is lost with the client before that (S27).
//! - Content that could not be stored and was given up (S23) is lost except for the part that was pushed before:
//!   some of the oldest writes of that file. Nothing else is lost, neither of other files nor later writes.

mod replay;

use std::collections::BTreeMap;

use chiton_model::{PartRange, part_of};
use chiton_types::{Ino, Name, Plates, Time};

use crate::checkers::crash::replay::Replay;
use crate::checkers::violation;
use crate::history::Violation;
use crate::model::{Change, Model, is_unknown};
use crate::tree::Tree;

/// One thing that happened, in the order in which it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An action that takes effect when it is answered.
    Act(Change, Time),
    /// A change of a file's content that is answered, and stays with its client for now.
    Buffered(Ino, Change, Time),
    /// Buffered content of this file, or of all, takes effect here.
    Pushed(Option<Ino>),
    /// Buffered content of this file is given up here, except for the part that was pushed before.
    Lost(Ino),
    /// Everything before this was promised to be durable.
    Durable,
}

/// The events since a known state.
#[derive(Clone, Debug)]
pub struct History {
    start: Model,
    entries: Vec<Entry>,
    plates: Plates,
    /// The inode that the model's root stands for.
    root: Ino,
    /// Of each entry, the plate that decides it; `None` of those that concern all.
    deciders: Vec<Option<usize>>,
    /// Of inodes whose numbers are not known, the plate that made them: files are born there.
    born_on: BTreeMap<Ino, usize>,
    /// The parts of directories, from the next entry on.
    parts: BTreeMap<Ino, Vec<PartRange>>,
}

impl History {
    /// Nothing happened yet; the state is durable. All happens in one order.
    pub fn new(start: Model) -> History {
        History::over(Plates::one(1), start)
    }

    /// The same with these plates, each of which has an order of its own.
    pub fn over(plates: Plates, start: Model) -> History {
        History {
            start,
            entries: Vec::new(),
            plates,
            root: Ino::ROOT,
            deciders: Vec::new(),
            born_on: BTreeMap::new(),
            parts: BTreeMap::new(),
        }
    }

    /// The root of the model stands for this directory.
    pub fn set_root(&mut self, root: Ino) {
        self.root = root;
    }

    /// From the next entry on, a directory has these parts.
    pub fn set_parts(&mut self, dir: Ino, parts: Vec<PartRange>) {
        self.parts.insert(dir, parts);
    }

    pub fn push(&mut self, entry: Entry) {
        let decider = self.decider(&entry);
        self.deciders.push(decider);
        self.entries.push(entry);
        self.note_birth(self.entries.len() - 1);
    }

    /// The plate with this number has decided an entry, which changes a name.
    ///
    /// # Panics
    /// If there is no such entry, or plate.
    pub fn decided(&mut self, at: usize, plate: usize) {
        assert!(plate < usize::from(self.plates.count()), "a plate of the file system");
        self.deciders[at] = Some(plate);
        self.note_birth(at);
    }

    /// The plate that has decided the last entry.
    pub fn last_decider(&self) -> Option<usize> {
        self.deciders.last().copied().flatten()
    }

    /// Files whose numbers are not known are on the plate that made them.
    fn note_birth(&mut self, at: usize) {
        let born = match &self.entries[at] {
            Entry::Act(Change::Make { ino, .. }, _) => self.deciders[at].map(|plate| (*ino, plate)),
            Entry::Act(Change::Rename { from, from_name, whiteout, .. }, _) => {
                Some((*whiteout, self.plate_of_name(*from, from_name)))
            }
            _ => None,
        };
        self.born_on.extend(born.filter(|(ino, _)| is_unknown(*ino)));
    }

    /// Replaces the last entry, which is known better now.
    ///
    /// # Panics
    /// If there is no entry.
    pub fn replace_last(&mut self, entry: Entry) {
        *self.entries.last_mut().expect("something has begun") = entry;
    }

    /// Number of entries; pass it to [`History::judge`] for a crash at this moment.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The plates of the file system.
    pub fn plates(&self) -> Plates {
        self.plates
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Numbers of the inodes that the first `begun` entries made.
    pub fn made(&self, begun: usize) -> impl Iterator<Item = Ino> {
        self.entries[..begun].iter().filter_map(|entry| match entry {
            Entry::Act(Change::Make { ino, .. }, _) => Some(*ino),
            _ => None,
        })
    }

    /// Least number of entries whose effects a crash after `begun` of them must leave.
    pub fn floor(&self, begun: usize) -> usize {
        self.entries[..begun].iter().rposition(|entry| *entry == Entry::Durable).map_or(0, |at| at + 1)
    }

    /// Judges the tree after a crash of all parties, when the first `begun` entries had begun. Returns the number
    /// of entries with effects; of several plates the highest of their numbers.
    ///
    /// # Errors
    /// The tree is none of those that it may be: with the difference to each of them.
    ///
    /// # Panics
    /// If the model refuses an action of the history, which was acknowledged.
    pub fn judge(&self, begun: usize, found: &Tree) -> Result<usize, Violation> {
        self.judge_from(self.floor(begun), begun, found)
    }

    /// The same where the effects of at least `floor` entries must exist in any case.
    ///
    /// # Errors
    /// As [`History::judge`].
    ///
    /// # Panics
    /// As [`History::judge`].
    pub fn judge_from(&self, floor: usize, begun: usize, found: &Tree) -> Result<usize, Violation> {
        self.judge_plates(&vec![floor; usize::from(self.plates.count())], begun, found)
    }

    /// The same where each plate has a number of its own: of the first `floors[p]` entries those of plate p must have their effects.
    ///
    /// # Errors
    /// As [`History::judge`].
    ///
    /// # Panics
    /// As [`History::judge`]; and unless each plate has a number.
    pub fn judge_plates(&self, floors: &[usize], begun: usize, found: &Tree) -> Result<usize, Violation> {
        assert_eq!(floors.len(), usize::from(self.plates.count()), "a number of each plate");
        // Buffers seldom matter, and have many choices: first without them.
        let mut plainly =
            |ends: &[usize], replay: &Replay| replay.fits_plainly(found).then(|| ends.iter().copied().max());
        if let Some(n) = self.walk(floors, begun, &mut plainly) {
            return Ok(n.unwrap_or(0));
        }
        let mut differences = Vec::new();
        let mut fits = |ends: &[usize], replay: &Replay| match replay.fits(found) {
            None => Some(ends.iter().copied().max()),
            Some(difference) => {
                differences.push((shown(ends), difference));
                None
            }
        };
        if let Some(n) = self.walk(floors, begun, &mut fits) {
            return Ok(n.unwrap_or(0));
        }
        let floor = shown(floors);
        let mut said = format!("the tree equals no state from entry {floor} (durable) to {begun} (begun):");
        for (ends, difference) in differences {
            said.push_str(&format!("\n  after {ends}: {difference}"));
        }
        Err(violation("crash oracle", said))
    }

    /// Asks about the state after each vector of prefixes that may be there, until there is an answer.
    fn walk<T>(&self, floors: &[usize], begun: usize, ask: Ask<'_, T>) -> Option<T> {
        let ends = Ends { floors, ends: vec![None; floors.len()] };
        self.walk_on(0, begun, (ends, 0), Replay::new(&self.start), ask)
    }

    /// From the state after `first` entries on. There, plates below `from` do not end.
    fn walk_on<T>(
        &self,
        first: usize,
        begun: usize,
        (mut ends, from): (Ends<'_>, usize),
        mut replay: Replay,
        ask: Ask<'_, T>,
    ) -> Option<T> {
        for n in first..=begun {
            let from = if n == first { from } else { 0 };
            for plate in from..ends.ends.len() {
                if ends.ends[plate].is_some() || !self.may_end(plate, n, ends.floors[plate]) {
                    continue;
                }
                ends.ends[plate] = Some(n);
                let all: Option<Vec<usize>> = ends.ends.iter().copied().collect();
                let answer = match all {
                    Some(all) => ask(&all, &replay),
                    None => self.walk_on(n, begun, (ends.clone(), plate + 1), replay.clone(), ask),
                };
                if answer.is_some() {
                    return answer;
                }
                ends.ends[plate] = None;
            }
            let Some(entry) = self.entries[..begun].get(n) else { continue };
            let lives = |plate: usize| ends.ends[plate].is_none();
            if !self.deciders[n].is_none_or(lives) {
                continue;
            }
            if let Err(refused) = replay.step(entry, &|ino| lives(self.plate(ino))) {
                // A change that rests on one that another plate has lost is lost, too.
                assert!(ends.ends.iter().any(Option::is_some), "{refused}");
                return None;
            }
        }
        None
    }

    /// Whether the entries of a plate that have effects may end before the entry `n`. Each state is met once.
    fn may_end(&self, plate: usize, n: usize, floor: usize) -> bool {
        let is_own = |at: usize| match self.deciders[at] {
            Some(decider) => decider == plate,
            None => self.entries[at] != Entry::Durable,
        };
        n == floor || n > floor && is_own(n - 1)
    }

    /// The plate that decides an entry; `None` of those that concern all.
    fn decider(&self, entry: &Entry) -> Option<usize> {
        match entry {
            Entry::Act(change, _) => Some(match change.name() {
                Some((dir, name)) => self.plate_of_name(dir, name),
                None => self.plate(change.place()),
            }),
            Entry::Buffered(ino, ..) | Entry::Pushed(Some(ino)) | Entry::Lost(ino) => Some(self.plate(*ino)),
            Entry::Pushed(None) | Entry::Durable => None,
        }
    }

    /// The plate that owns an inode.
    pub fn plate(&self, ino: Ino) -> usize {
        if self.plates.count() == 1 {
            return 0;
        }
        if let Some(plate) = self.born_on.get(&ino) {
            return *plate;
        }
        let ino = if ino == Ino::ROOT { self.root } else { ino };
        self.plates.of(ino).map_or(0, |plate| usize::from(plate.0))
    }

    /// The plate that has a name of a directory now.
    pub fn plate_of_name(&self, dir: Ino, name: &Name) -> usize {
        let part = self.parts.get(&dir).and_then(|parts| part_of(parts, name.hash64()));
        self.plate(part.unwrap_or(dir))
    }
}

/// Asked about the ends of the plates' prefixes, and the state.
type Ask<'a, T> = &'a mut dyn FnMut(&[usize], &Replay) -> Option<T>;

/// Where the prefix of each plate ends, as far as that is chosen.
#[derive(Clone)]
struct Ends<'a> {
    floors: &'a [usize],
    ends: Vec<Option<usize>>,
}

fn shown(ends: &[usize]) -> String {
    match ends {
        [only] => only.to_string(),
        ends => format!("{ends:?}"),
    }
}

#[cfg(test)]
mod tests;
