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
//!   What is promised to be durable is so on all plates.
//! - An action is in the history from the moment when it begins: an unfinished one may exist or not.
//! - Content that a client has buffered (written, not closed, fsynced or pushed) may exist from the write on, must
//!   exist from the push on, and is lost with the client before that (S27).
//! - Content that could not be stored and was given up (S23) is lost except for the part that was pushed before:
//!   some of the oldest writes of that file. Nothing else is lost, neither of other files nor later writes.

use std::collections::BTreeSet;

use chiton_types::{Ino, Plates, Time};

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
    plates: Plates,
}

/// Most files with buffered changes at a crash: each may be there or not.
const BUFFERED_FILES_MAX: usize = 10;
/// Most states that losses may have left.
const BRANCHES_MAX: usize = 4096;

impl History {
    /// Nothing happened yet; the state is durable. All happens in one order.
    pub fn new(start: Model) -> History {
        History::over(Plates::one(1), start)
    }

    /// The same with these plates, each of which has an order of its own.
    pub fn over(plates: Plates, start: Model) -> History {
        History { start, entries: Vec::new(), plates }
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
            if !self.decider(entry).is_none_or(lives) {
                continue;
            }
            if let Err(refused) = replay.step(entry, &|ino| lives(self.plate(ino))) {
                // What rests on what another plate has lost is lost, too.
                assert!(ends.ends.iter().any(Option::is_some), "{refused}");
                return None;
            }
        }
        None
    }

    /// Whether the entries of a plate that have effects may end before the entry `n`. Each state is met once.
    fn may_end(&self, plate: usize, n: usize, floor: usize) -> bool {
        let is_own = |entry: &Entry| match self.decider(entry) {
            Some(decider) => decider == plate,
            None => *entry != Entry::Durable,
        };
        n == floor || n > floor && is_own(&self.entries[n - 1])
    }

    /// The plate that decides an entry; `None` of those that concern all.
    fn decider(&self, entry: &Entry) -> Option<usize> {
        match entry {
            Entry::Act(change, _) => Some(self.plate(change.place())),
            Entry::Buffered(ino, ..) | Entry::Pushed(Some(ino)) | Entry::Lost(ino) => Some(self.plate(*ino)),
            Entry::Pushed(None) | Entry::Durable => None,
        }
    }

    fn plate(&self, ino: Ino) -> usize {
        match self.plates.count() {
            1 => 0,
            _ => self.plates.of(ino).map_or(0, |plate| usize::from(plate.0)),
        }
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

/// The model on its way through a history: in more than one state once something was lost.
#[derive(Clone)]
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

    /// `lives` says which files' plates have not ended.
    fn step(&mut self, entry: &Entry, lives: &dyn Fn(Ino) -> bool) -> Result<(), String> {
        let Entry::Lost(ino) = entry else {
            return self.branches.iter_mut().try_for_each(|branch| branch.step(entry, lives));
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
        Ok(())
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

    fn step(&mut self, entry: &Entry, lives: &dyn Fn(Ino) -> bool) -> Result<(), String> {
        match entry {
            Entry::Act(action, time) => {
                let refused =
                    |refusal| format!("the model refuses {action:?}, which was carried out: {refusal:?}");
                self.model.apply(action, *time).map_err(refused)?;
            }
            Entry::Buffered(ino, action, time) => self.buffered.push((*ino, action.clone(), *time)),
            Entry::Pushed(which) => {
                let (due, rest) = std::mem::take(&mut self.buffered)
                    .into_iter()
                    .partition(|(ino, ..)| which.map_or_else(|| lives(*ino), |which| which == *ino));
                self.buffered = rest;
                apply_buffered(&mut self.model, &due);
            }
            Entry::Lost(_) | Entry::Durable => {}
        }
        Ok(())
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
        entries[..n].iter().for_each(|entry| replay.step(entry, &|_| true).unwrap());
        let mut model = replay.branches[0].model.clone();
        model.close_all();
        model.to_tree()
    }

    fn history(entries: &[Entry]) -> History {
        History { entries: entries.to_vec(), ..History::new(start()) }
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

    /// Two shards, two plates: /d lives on the second one, and with it the names in it.
    fn over_plates() -> (History, Vec<Entry>) {
        let d = Ino::new(chiton_types::ShardId(1), 1);
        let name = |name: &str| Name::try_from(name).unwrap();
        let act = |n: i64, change| Entry::Act(change, Time(n));
        let dir = Change::Make {
            parent: Ino::ROOT,
            name: name("d"),
            ino: d,
            what: NewInode::Dir,
            birth: Birth::of_root(0o755),
        };
        let below = |file: &str, counter| Change::Make {
            parent: d,
            name: name(file),
            ino: Ino::new(chiton_types::ShardId(1), counter),
            what: NewInode::File(b"x".to_vec()),
            birth: Birth::of_root(0o644),
        };
        let moved = Change::Rename {
            from: Ino::ROOT,
            from_name: name("d"),
            to: Ino::ROOT,
            to_name: name("e"),
            how: chiton_model::RenameHow::Replace,
            whiteout: crate::model::unknown(0),
            owner: (0, 0),
        };
        let entries = vec![
            act(1, dir),           // plate 0
            act(2, below("f", 2)), // plate 1
            Entry::Durable,
            make("a", 3, b""),     // plate 0
            act(4, below("g", 3)), // plate 1
            act(5, moved),         // plate 0, and the inode is of plate 1
            act(6, below("h", 4)), // plate 1
        ];
        let plates = Plates::new(2, 2).unwrap();
        (History { entries: entries.clone(), ..History::over(plates, start()) }, entries)
    }

    #[test]
    fn each_plate_has_a_prefix_of_its_own_no_shorter_than_the_last_promise() {
        let (history, entries) = over_plates();
        let judge = |kept: &[usize]| {
            let kept: Vec<Entry> = kept.iter().map(|n| entries[*n].clone()).collect();
            history.judge(entries.len(), &after(&kept, kept.len()))
        };
        let prefixes = |own: [usize; 3]| (0..=3).map(move |n| own[..n].to_vec());
        for zero in prefixes([0, 3, 5]) {
            for one in prefixes([1, 4, 6]) {
                let mut kept = [zero.clone(), one.clone()].concat();
                kept.sort_unstable();
                let is_possible = !zero.is_empty() || one.is_empty();
                if is_possible {
                    let is_right = !zero.is_empty() && !one.is_empty();
                    assert_eq!(judge(&kept).is_ok(), is_right, "{kept:?}: {:?}", judge(&kept));
                }
            }
        }
        // A hole in the order of one plate.
        assert!(judge(&[0, 1, 5]).is_err());
        assert!(judge(&[0, 1, 3, 6]).is_err());
        // The same history of one plate has one order.
        let one = History { entries: entries.clone(), ..History::new(start()) };
        assert!(judge(&[0, 1, 4]).is_ok());
        let without_a: Vec<Entry> = [0, 1, 4].iter().map(|n| entries[*n].clone()).collect();
        assert!(one.judge(entries.len(), &after(&without_a, 3)).is_err());
    }

    #[test]
    fn a_plate_that_lives_keeps_all_that_it_has_answered() {
        let (history, entries) = over_plates();
        let kept: Vec<Entry> = [0, 1, 3, 4].iter().map(|n| entries[*n].clone()).collect();
        let found = after(&kept, kept.len());
        assert!(history.judge_plates(&[2, 2], 7, &found).is_ok());
        assert!(history.judge_plates(&[2, 5], 7, &found).is_ok());
        assert!(history.judge_plates(&[2, 7], 7, &found).is_err(), "plate 1 has lost h");
        assert!(history.judge_plates(&[7, 2], 7, &found).is_err(), "plate 0 has lost the rename");
    }

    #[test]
    fn half_an_operation_over_plates_is_seen() {
        let (history, entries) = over_plates();
        let all = after(&entries, entries.len());
        assert!(history.judge(7, &all).is_ok());
        let d = Ino::new(chiton_types::ShardId(1), 1);
        // The name is another, and the inode does not know it.
        let mut half = all.clone();
        half.nodes.get_mut("/e").unwrap().ctime = Time(4);
        assert!(history.judge(7, &half).is_err());
        // The inode knows it, and the directory does not.
        let before: Vec<Entry> = entries[..5].to_vec();
        let mut half = after(&before, 5);
        let dir = half.nodes.values_mut().find(|node| node.ino == d).unwrap();
        dir.ctime = Time(5);
        assert!(history.judge(7, &half).is_err());
    }
}
