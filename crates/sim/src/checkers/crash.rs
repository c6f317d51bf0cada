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
//! Invariants:
//! - An action is in the history from the moment when it begins: an unfinished one may exist or not.
//! - Content that a client has buffered (written, not closed, fsynced or pushed) may exist from the write on, must
//!   exist from the push on, and is lost with the client before that (S27).
//! - Content that could not be stored and was given up (S23) is lost except for the part that was pushed before:
//!   some of the oldest writes of that file. Nothing else is lost, neither of other files nor later writes.

use std::collections::BTreeSet;

use chiton_types::{Ino, Time};

use crate::checkers::compare::difference;
use crate::checkers::violation;
use crate::history::Violation;
use crate::model::{Change, Model};
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
}

/// Most files with buffered changes at a crash: each may be there or not.
const BUFFERED_FILES_MAX: usize = 10;
/// Most states that losses may have left.
const BRANCHES_MAX: usize = 4096;

impl History {
    /// Nothing happened yet; the state is durable.
    pub fn new(start: Model) -> History {
        History { start, entries: Vec::new() }
    }

    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
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
    /// of entries with effects.
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
        // Buffers seldom matter, and have many choices: first without them.
        if let Some(n) = self.walk(floor, begun, |n, replay| replay.fits_plainly(found).then_some(n)) {
            return Ok(n);
        }
        let mut differences = Vec::new();
        let fits = |n, replay: &Replay| match replay.fits(found) {
            None => Some(n),
            Some(difference) => {
                differences.push((n, difference));
                None
            }
        };
        if let Some(n) = self.walk(floor, begun, fits) {
            return Ok(n);
        }
        let mut said = format!("the tree equals no state from entry {floor} (durable) to {begun} (begun):");
        for (n, difference) in differences {
            said.push_str(&format!("\n  after {n}: {difference}"));
        }
        Err(violation("crash oracle", said))
    }

    /// Asks about the state after each number of entries that may be there, until there is an answer.
    fn walk<T>(
        &self,
        floor: usize,
        begun: usize,
        mut ask: impl FnMut(usize, &Replay) -> Option<T>,
    ) -> Option<T> {
        let mut replay = Replay::new(&self.start);
        for n in 0..=begun {
            if n >= floor && (n == floor || self.entries[n - 1] != Entry::Durable) {
                let answer = ask(n, &replay);
                if answer.is_some() {
                    return answer;
                }
            }
            if n < begun {
                replay.step(&self.entries[n]);
            }
        }
        None
    }
}

/// The model on its way through a history: in more than one state once something was lost.
struct Replay {
    branches: Vec<Branch>,
}

/// One of the states in which the model may be.
#[derive(Clone, PartialEq)]
struct Branch {
    model: Model,
    buffered: Vec<(Ino, Change, Time)>,
}

impl Replay {
    fn new(start: &Model) -> Replay {
        Replay { branches: vec![Branch { model: start.clone(), buffered: Vec::new() }] }
    }

    fn step(&mut self, entry: &Entry) {
        let Entry::Lost(ino) = entry else {
            return self.branches.iter_mut().for_each(|branch| branch.step(entry));
        };
        let mut after: Vec<Branch> = Vec::new();
        for branch in self.branches.drain(..) {
            for left in branch.losses(*ino) {
                if !after.contains(&left) {
                    after.push(left);
                }
            }
        }
        assert!(after.len() <= BRANCHES_MAX, "{} states that losses may have left", after.len());
        self.branches = after;
    }

    /// Whether a state without any buffered content fits.
    fn fits_plainly(&self, found: &Tree) -> bool {
        self.branches.iter().any(|branch| {
            let mut closed = branch.model.clone();
            closed.close_all();
            difference(&closed, found).is_none()
        })
    }

    /// The difference to the first state, unless some state fits.
    fn fits(&self, found: &Tree) -> Option<String> {
        let mut first = None;
        for branch in &self.branches {
            let difference = branch.fits(found)?;
            first.get_or_insert(difference);
        }
        first
    }
}

impl Branch {
    /// The possible states after buffered content of a file is given up, with some of the oldest writes pushed.
    fn losses(&self, ino: Ino) -> Vec<Branch> {
        let (of_file, rest): (Vec<_>, Vec<_>) =
            self.buffered.iter().cloned().partition(|(of, ..)| *of == ino);
        let left = |pushed: usize| {
            let mut branch = Branch { model: self.model.clone(), buffered: rest.clone() };
            apply_buffered(&mut branch.model, &of_file[..pushed]);
            branch
        };
        (0..=of_file.len()).map(left).collect()
    }

    fn step(&mut self, entry: &Entry) {
        match entry {
            Entry::Act(action, time) => {
                let done = self.model.apply(action, *time);
                assert_eq!(done, Ok(()), "the model refuses {action:?}, which was carried out");
            }
            Entry::Buffered(ino, action, time) => self.buffered.push((*ino, action.clone(), *time)),
            Entry::Pushed(which) => {
                let (due, rest) = std::mem::take(&mut self.buffered)
                    .into_iter()
                    .partition(|(ino, ..)| which.is_none_or(|which| which == *ino));
                self.buffered = rest;
                apply_buffered(&mut self.model, &due);
            }
            Entry::Lost(_) | Entry::Durable => {}
        }
    }

    /// The difference to the state without buffered content, unless some choice of it fits.
    fn fits(&self, found: &Tree) -> Option<String> {
        let mut closed = self.model.clone();
        closed.close_all();
        let plain = difference(&closed, found)?;
        let files: BTreeSet<Ino> = self.buffered.iter().map(|(ino, ..)| *ino).collect();
        assert!(files.len() <= BUFFERED_FILES_MAX, "{} files with buffered changes", files.len());
        for chosen in 1..1u32 << files.len() {
            let is_chosen =
                |ino: &Ino| files.iter().position(|file| file == ino).is_some_and(|n| chosen & (1 << n) != 0);
            let early: Vec<_> = self.buffered.iter().filter(|(ino, ..)| is_chosen(ino)).cloned().collect();
            // A push takes all that is buffered at its time: of each file, some of the oldest.
            for count in (1..=early.len()).rev() {
                let mut model = self.model.clone();
                apply_buffered(&mut model, &early[..count]);
                model.close_all();
                difference(&model, found)?;
            }
        }
        Some(plain)
    }
}

/// Applies buffered content; files that are gone are skipped.
fn apply_buffered(model: &mut Model, buffered: &[(Ino, Change, Time)]) {
    for (ino, action, time) in buffered {
        if model.node(*ino).is_some() {
            let done = model.apply(action, *time);
            assert_eq!(done, Ok(()), "the model refuses {action:?}, which was buffered");
        }
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::Name;

    use super::*;
    use crate::model::{Birth, NewInode};

    fn make(name: &str, ino: u64, content: &[u8]) -> Entry {
        let name = Name::try_from(name).unwrap();
        let what = NewInode::File(content.to_vec());
        let action =
            Change::Make { parent: Ino::ROOT, name, ino: Ino(ino), what, birth: Birth::of_root(0o644) };
        Entry::Act(action, Time(ino as i64))
    }

    fn write(ino: u64, bytes: &[u8]) -> Change {
        Change::Write { ino: Ino(ino), pieces: vec![(0, bytes.to_vec())], size: 0 }
    }

    fn start() -> Model {
        Model::new(Time(0))
    }

    /// The tree after a crash that loses all entries from `n` on.
    fn after(entries: &[Entry], n: usize) -> Tree {
        let mut replay = Replay::new(&start());
        entries[..n].iter().for_each(|entry| replay.step(entry));
        let mut model = replay.branches[0].model.clone();
        model.close_all();
        model.to_tree()
    }

    fn history(entries: &[Entry]) -> History {
        History { start: start(), entries: entries.to_vec() }
    }

    #[test]
    fn every_prefix_from_the_last_promise_on_is_right_and_no_shorter_one() {
        let entries =
            [make("a", 2, b""), make("b", 3, b""), Entry::Durable, make("c", 4, b""), make("d", 5, b"")];
        let history = history(&entries);
        for n in 0..=entries.len() {
            let judged = history.judge(entries.len(), &after(&entries, n));
            assert_eq!(judged.is_ok(), n >= 2, "a prefix of {n} entries: {judged:?}");
        }
        // Before the promise was made, anything goes.
        assert_eq!(history.judge(2, &after(&entries, 0)), Ok(0));
        // An entry that had not begun cannot have an effect.
        assert!(history.judge(3, &after(&entries, 4)).is_err());
    }

    #[test]
    fn holes_in_the_order_half_actions_and_changed_times_are_seen() {
        let entries = [make("a", 2, b"one"), make("b", 3, b"two"), make("c", 4, b"three")];
        let history = history(&entries);
        let all = after(&entries, 3);
        assert_eq!(history.judge(3, &all), Ok(3));
        let without_b = after(&[entries[0].clone(), entries[2].clone()], 2);
        assert!(history.judge(3, &without_b).is_err(), "the second is missing, the third is there");
        let mut half = all.clone();
        half.nodes.get_mut("/c").unwrap().content = b"thr".to_vec();
        half.nodes.get_mut("/c").unwrap().size = 3;
        assert!(history.judge(3, &half).is_err(), "half of the content");
        let mut late = all.clone();
        late.nodes.get_mut("/").unwrap().mtime = Time(99);
        let said = history.judge(3, &late).unwrap_err().what;
        assert!(said.contains("after 3: /: the mtime is"), "{said}");
    }

    #[test]
    fn buffered_content_may_exist_early_and_must_exist_once_pushed() {
        let buffered = Entry::Buffered(Ino(2), write(2, b"xyz"), Time(7));
        let entries = [
            make("a", 2, b"abc"),
            Entry::Durable,
            buffered,
            make("b", 3, b""),
            Entry::Pushed(None),
            Entry::Durable,
        ];
        let history = history(&entries);
        // Lost with the client, although a later action survived.
        assert_eq!(history.judge(4, &after(&entries, 4)), Ok(4));
        // Pushed automatically.
        let early = [entries[0].clone(), Entry::Act(write(2, b"xyz"), Time(7))];
        assert_eq!(history.judge(3, &after(&early, 2)), Ok(3));
        assert!(history.judge(2, &after(&early, 2)).is_err(), "before it was written");
        // After the promise it must be there.
        assert!(history.judge(6, &after(&entries, 4)).is_err());
        assert_eq!(history.judge(6, &after(&entries, 6)), Ok(6));
    }

    #[test]
    fn only_content_that_was_given_up_may_be_lost() {
        let at = |ino, offset, byte: u8| {
            let change = Change::Write { ino: Ino(ino), pieces: vec![(offset, vec![byte])], size: 0 };
            Entry::Buffered(Ino(ino), change, Time(9))
        };
        let acts = |entries: &[&Entry]| -> Vec<Entry> {
            let act = |entry: &&Entry| match *entry {
                Entry::Buffered(_, change, time) => Entry::Act(change.clone(), *time),
                entry => entry.clone(),
            };
            entries.iter().map(act).collect()
        };
        let [a, b] = [make("a", 2, b"...."), make("b", 3, b"....")];
        let [first, second, third, other] = [at(2, 0, 1), at(2, 1, 2), at(2, 2, 3), at(3, 0, 4)];
        let entries = [&a, &b, &first, &second, &other, &Entry::Lost(Ino(2)), &third, &Entry::Pushed(None)]
            .map(Clone::clone);
        let history = history(&[&entries[..], &[Entry::Durable]].concat());
        let judge = |left: &[&Entry]| history.judge(history.len(), &after(&acts(left), left.len())).is_ok();
        // Of the content that was given up, none, the oldest, or all had been pushed.
        assert!(judge(&[&a, &b, &other, &third]));
        assert!(judge(&[&a, &b, &first, &other, &third]));
        assert!(judge(&[&a, &b, &first, &second, &other, &third]));
        assert!(!judge(&[&a, &b, &second, &other, &third]), "the younger without the older");
        assert!(!judge(&[&a, &b, &first, &second, &other]), "what was written afterwards is not lost");
        assert!(!judge(&[&a, &b, &first, &second, &third]), "nor is what was written to other files");
        // Without the loss it is wrong that an older write is missing.
        let kept: Vec<Entry> =
            entries.iter().filter(|entry| **entry != Entry::Lost(Ino(2))).cloned().collect();
        let kept = self::history(&[&kept[..], &[Entry::Durable]].concat());
        let left = acts(&[&a, &b, &other, &third]);
        assert!(kept.judge(kept.len(), &after(&left, left.len())).is_err());
    }
}
