//! The memory of a decoupling between its merges: where its inodes are on the server, which positions are
//! its own, the numbers that it may still use for inodes, and the names that others removed meanwhile.

mod codec;

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::{Ino, Name, Position, ShardId};

use super::conflict::OnConflict;
use super::contested::{ContestedNames, Place};
use super::settled::Settled;

/// Numbers that only the decoupling may make inodes with, in ascending order: those from `next` on are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRange {
    /// The first of all.
    pub first: Ino,
    /// The first that is left.
    pub next: Ino,
    /// The first past the range.
    pub end: Ino,
}

/// The decoupling's map. Invariants:
/// - A key of `inodes` never was an inode of the server, a value always was: translating twice changes nothing.
/// - `own` are the positions of events that merges of this decoupling emitted, as half-open intervals in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeMap {
    pub root: Ino,
    pub base: Position,
    pub writer: u64,
    pub on_conflict: OnConflict,
    inodes: BTreeMap<Ino, Ino>,
    /// The values of `inodes`.
    bound: BTreeSet<Ino>,
    own: Vec<(Position, Position)>,
    ranges: Vec<InodeRange>,
    /// Names that ours has of inodes and that others took from them, or gave them as well.
    pub contested: ContestedNames,
    /// Names that ours gave up where the server did something else about it: ours does not see them any more.
    gone: BTreeSet<Place>,
    /// Counters of each shard from which on inodes were born after the base.
    born_after: BTreeMap<ShardId, u64>,
    /// Lower numbers that other decouplings of the directory held at the base and had made nothing with: an inode that has
    /// one was born after the base, too. Half-open, in order.
    unborn: Vec<(Ino, Ino)>,
    /// Changes of others stand here although the last change of the row is ours: directories that ours removed and that are
    /// still there, because others put something into them; files that others changed, of which ours moved, added or took
    /// names since. Ours has not seen the changes.
    standing: BTreeSet<Ino>,
    /// Files of others, as they were when the decoupled side looked at them. Its own versions contain the result.
    settled: BTreeMap<Ino, (Position, Settled)>,
    /// Files of the subtree with several names: their rows' place may be a directory that is gone.
    vouched: BTreeSet<Ino>,
    /// Directories that are known to be in the subtree. They stay there: no name crosses its border.
    inside: BTreeSet<Ino>,
    inside_last: Ino,
}

impl MergeMap {
    /// The map of a decoupling of `root` that saw the server's state at `base` and names its blocks as `writer`.
    pub fn new(root: Ino, base: Position, writer: u64, on_conflict: OnConflict) -> MergeMap {
        MergeMap {
            root,
            base,
            writer,
            on_conflict,
            inodes: BTreeMap::new(),
            bound: BTreeSet::new(),
            own: Vec::new(),
            ranges: Vec::new(),
            contested: ContestedNames::default(),
            gone: BTreeSet::new(),
            born_after: BTreeMap::new(),
            unborn: Vec::new(),
            standing: BTreeSet::new(),
            settled: BTreeMap::new(),
            vouched: BTreeSet::new(),
            inside: BTreeSet::new(),
            inside_last: Ino(0),
        }
    }

    /// The root of the decoupled subtree.
    pub fn root(&self) -> Ino {
        self.root
    }

    /// The server's position that the decoupled side saw.
    pub fn base(&self) -> Position {
        self.base
    }

    /// Numbers that the decoupled side may make inodes with, from now on too. They must be reserved durably.
    ///
    /// # Panics
    /// If the range overlaps another.
    pub fn grant(&mut self, first: Ino, end: Ino) {
        assert!(first <= end, "inode range {first}..{end} is reversed");
        let at = self.ranges.partition_point(|r| r.end <= first);
        assert!(self.ranges.get(at).is_none_or(|r| end <= r.first), "inode range {first}..{end} overlaps");
        self.ranges.insert(at, InodeRange { first, next: first, end });
    }

    /// Whether one of these numbers was granted already, or the range is reversed.
    pub fn overlaps(&self, first: Ino, end: Ino) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= first);
        first > end || self.ranges.get(at).is_some_and(|r| r.first < end)
    }

    /// How conflicts are treated.
    pub fn on_conflict(&self) -> OnConflict {
        self.on_conflict
    }

    /// Conflicts are treated otherwise from now on.
    pub fn set_on_conflict(&mut self, on_conflict: OnConflict) {
        self.on_conflict = on_conflict;
    }

    /// Another base from now on; returns the one before. Past everything: nothing counts as a change of others.
    pub fn set_base(&mut self, base: Position) -> Position {
        std::mem::replace(&mut self.base, base)
    }

    /// Whether the decoupled side may know an inode: it was there at the base, has one of its numbers, or became one with one
    /// that has.
    pub fn may_know(&self, ino: Ino) -> bool {
        let is_own = self.is_of_ranges(ino) || self.bound.contains(&ino);
        is_own || !self.is_born_after(ino)
    }

    /// Whether it is known that no inode had this number at the base.
    fn is_born_after(&self, ino: Ino) -> bool {
        let is_late = self.born_after.get(&ino.shard()).is_some_and(|&from| ino.counter() >= from);
        let at = self.unborn.partition_point(|&(_, end)| end <= ino);
        is_late || self.unborn.get(at).is_some_and(|&(first, _)| first <= ino)
    }

    /// Ours does not see a name any more, whatever stands under it.
    pub fn note_gone(&mut self, place: Place) {
        self.gone.insert(place);
    }

    /// The inode of ours under a contested name is at `now` from here on.
    pub fn note_placed(&mut self, ino: Ino, contested: &Place, now: &Place) {
        self.contested.forget(ino, contested);
        if contested != now {
            self.gone.insert(contested.clone());
        }
    }

    /// Ours has something under this name.
    pub fn note_gained(&mut self, place: &Place) {
        self.gone.remove(place);
    }

    /// Whether ours knows some names otherwise than by changes that others made since the base, and ours itself.
    pub fn has_names_apart(&self) -> bool {
        !(self.gone.is_empty() && self.bound.is_empty() && self.contested.is_empty())
    }

    /// Whether ours gave up a name that stands on the server, or stood there at the base.
    pub fn is_gone(&self, dir: Ino, name: &Name) -> bool {
        self.gone.contains(&(dir, name.clone()))
    }

    /// Whether ours has this inode under this name, that others gave it as well, or took from it.
    pub fn has_at(&self, ino: Ino, dir: Ino, name: &Name) -> bool {
        self.contested.knows(ino, &(dir, name.clone()))
    }

    /// Whether any directory of others became one with one of ours.
    pub fn has_bound(&self) -> bool {
        !self.bound.is_empty()
    }

    /// The decoupled side's number of an inode of the server: of several the last.
    pub fn ours(&self, ino: Ino) -> Ino {
        if !self.bound.contains(&ino) {
            return ino;
        }
        self.inodes.iter().rfind(|(_, theirs)| **theirs == ino).map_or(ino, |(ours, _)| *ours)
    }

    /// Whether this is a directory of others that became one with one of ours.
    pub fn is_bound(&self, ino: Ino) -> bool {
        self.bound.contains(&ino)
    }

    /// The writer whose blocks the decoupled side may name.
    pub fn writer(&self) -> u64 {
        self.writer
    }

    /// Numbers granted, and how many of them are behind those that inodes were made with.
    pub fn numbers(&self) -> (u64, u64) {
        let sum = |to: fn(&InodeRange) -> Ino| self.ranges.iter().map(|r| to(r).0 - r.first.0).sum();
        (sum(|r| r.end), sum(|r| r.next))
    }

    /// Becomes another state of the same map, and keeps what is known of directories.
    pub fn replace(&mut self, with: &MergeMap) {
        let inside = (std::mem::take(&mut self.inside), self.inside_last);
        *self = MergeMap { inside: inside.0, inside_last: inside.1, ..with.without_inside() };
    }

    fn without_inside(&self) -> MergeMap {
        MergeMap {
            inodes: self.inodes.clone(),
            bound: self.bound.clone(),
            own: self.own.clone(),
            ranges: self.ranges.clone(),
            contested: self.contested.clone(),
            gone: self.gone.clone(),
            born_after: self.born_after.clone(),
            unborn: self.unborn.clone(),
            standing: self.standing.clone(),
            settled: self.settled.clone(),
            vouched: self.vouched.clone(),
            ..MergeMap::new(self.root, self.base, self.writer, self.on_conflict)
        }
    }

    /// The ranges as they are now.
    pub fn ranges(&self) -> &[InodeRange] {
        &self.ranges
    }

    /// The server's number of an inode of the decoupled side.
    #[inline]
    pub fn translate(&self, ino: Ino) -> Ino {
        if self.inodes.is_empty() { ino } else { self.inodes.get(&ino).copied().unwrap_or(ino) }
    }

    /// Whether a row that changed last at `position` was changed by others after the base.
    #[inline]
    pub fn is_foreign(&self, position: Position) -> bool {
        position > self.base && !self.is_own(position)
    }

    /// Whether the event at `position` is this decoupling's own.
    pub fn is_own(&self, position: Position) -> bool {
        // Most rows that a merge meets were changed last by the merge itself, a moment ago.
        match self.own.last() {
            Some(&(start, end)) if position >= start => return position < end,
            None => return false,
            Some(_) => {}
        }
        let at = self.own.partition_point(|&(_, end)| end <= position);
        self.own.get(at).is_some_and(|&(start, _)| start <= position)
    }

    /// The event at `position` is this decoupling's own.
    #[inline]
    pub fn note_own(&mut self, position: Position) {
        match self.own.last_mut() {
            Some((_, end)) if *end == position => *end = position.next(),
            _ => self.own.push((position, position.next())),
        }
    }

    /// Others took this name of an inode below the root, which got it at `position`. If it was its last, the inode must
    /// stay as an orphan until the decoupling ends.
    pub fn note_contested(&mut self, ino: Ino, parent: Ino, name: &Name, position: Position, is_last: bool) {
        let place = (parent, name.clone());
        if !self.is_foreign(position) {
            self.contested.note(ino, place);
        } else if is_last && !self.contested.has_any(ino) {
            self.contested.note_unknown(ino, place);
        }
    }

    /// Both sides have an inode under a name that theirs gave it.
    pub fn note_agreed(&mut self, ino: Ino, parent: Ino, name: &Name, position: Position) {
        if self.is_foreign(position) {
            self.contested.note(ino, (parent, name.clone()));
        }
    }

    /// A file was found by a name in the subtree, and it has several, or its row names another directory as its
    /// place: that may go before the file does, and then nothing leads from it to the root.
    pub fn vouch(&mut self, ino: Ino) {
        if !self.is_of_ranges(ino) {
            self.vouched.insert(ino);
        }
    }

    /// Whether a file is of the subtree although nothing leads from it to the root.
    pub fn is_vouched(&self, ino: Ino) -> bool {
        self.is_of_ranges(ino) || self.vouched.contains(&ino)
    }

    #[inline]
    pub fn is_inside(&self, dir: Ino) -> bool {
        dir == self.inside_last || self.inside.contains(&dir)
    }

    pub fn note_inside(&mut self, dir: Ino) {
        if self.inside.len() >= INSIDE_MAX {
            self.inside.clear();
        }
        self.inside.insert(dir);
        self.inside_last = dir;
    }

    #[inline]
    pub fn may_make(&self, ino: Ino) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= ino);
        self.ranges.get(at).is_some_and(|r| r.next <= ino)
    }

    #[inline]
    pub fn made(&mut self, ino: Ino) {
        let at = self.ranges.partition_point(|r| r.end <= ino);
        if let Some(range) = self.ranges.get_mut(at).filter(|r| r.next <= ino) {
            range.next = Ino(ino.0 + 1);
        }
    }

    /// Inodes of the shard with a counter of at least `counter` were born after the base. Without it, none is known to
    /// be: then directories that both sides made are kept apart.
    pub fn note_born_after(&mut self, shard: ShardId, counter: u64) {
        self.born_after.insert(shard, counter);
    }

    /// At the base another decoupling of the directory (its map is `other`) had made nothing with the numbers
    /// that it had left. Files that it makes with them are as new to this one as those of any other client.
    pub fn note_unborn(&mut self, other: &MergeMap) {
        let left = other.ranges.iter().filter(|range| range.next < range.end);
        self.unborn.extend(left.map(|range| (range.next, range.end)));
        self.unborn.sort_unstable();
    }

    /// The change of others to this stands, although the last change of its row is, or becomes, ours.
    pub fn note_standing(&mut self, ino: Ino) {
        self.standing.insert(ino);
    }

    /// Whether what others did to this stands.
    pub fn stands(&self, ino: Ino) -> bool {
        self.standing.contains(&ino)
    }

    /// The change of others to this was met.
    pub fn met(&mut self, ino: Ino) {
        self.standing.remove(&ino);
    }

    /// Ours looked at a file of others when its last change was at `position`, and has in its own what came of it. Of what both
    /// removed the position is [`Settled::REMOVED`].
    pub fn settle(&mut self, theirs: Ino, position: Position, how: Settled) {
        self.settled.insert(theirs, (position, how));
    }

    /// Whether both sides removed it, and no trace is left of the changes that ours made before.
    pub fn is_agreed_gone(&self, ino: Ino) -> bool {
        self.settled.get(&ino) == Some(&(Settled::REMOVED, Settled::Same))
    }

    /// The outcome for a file of others, if it is as ours saw it.
    pub fn settled(&self, theirs: Ino, changed: Position) -> Option<Settled> {
        let (position, how) = self.settled.get(&theirs)?;
        (*position == changed).then_some(*how)
    }

    /// Whether both sides made the same of an inode, and nobody else changed anything of its own after ours looked.
    pub fn is_same(&self, theirs: Ino, changed: Position) -> bool {
        let is_as_seen = |position: Position| position >= changed || self.is_own(changed);
        let settled = self.settled.get(&theirs);
        settled.is_some_and(|&(position, how)| {
            how == Settled::Same && position != Settled::REMOVED && is_as_seen(position)
        })
    }

    /// Whether a directory of the server is none that ours has already, under whatever name: only then can one that
    /// ours makes be the same.
    pub fn may_bind(&self, theirs: Ino) -> bool {
        if self.standing.contains(&theirs) {
            return true;
        }
        self.is_born_after(theirs) && !self.is_of_ranges(theirs) && !self.bound.contains(&theirs)
    }

    fn is_of_ranges(&self, ino: Ino) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= ino);
        self.ranges.get(at).is_some_and(|r| r.first <= ino)
    }

    pub fn bind(&mut self, ours: Ino, theirs: Ino) {
        self.standing.remove(&theirs);
        let before = self.inodes.insert(ours, theirs);
        self.bound.insert(theirs);
        // As it would be after decoding: the values, no others.
        if let Some(before) = before
            && before != theirs
            && !self.inodes.values().any(|bound| *bound == before)
        {
            self.bound.remove(&before);
        }
    }
}

/// Most directories whose place is remembered.
const INSIDE_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_positions_are_told_from_those_of_others() {
        let mut map = MergeMap::new(Ino(5), Position(10), 1, OnConflict::Overwrite);
        for position in [11, 12, 13, 20, 21, 30] {
            map.note_own(Position(position));
        }
        assert_eq!(map.own.len(), 3);
        let foreign: Vec<u64> = (0..35).filter(|&p| map.is_foreign(Position(p))).collect();
        let expect: Vec<u64> = (14..20).chain(22..30).chain(31..35).collect();
        assert_eq!(foreign, expect);
    }

    #[test]
    fn numbers_are_made_once_and_in_order() {
        let mut map = MergeMap::new(Ino(5), Position(10), 1, OnConflict::Overwrite);
        map.grant(Ino(200), Ino(202));
        map.grant(Ino(100), Ino(110));
        assert!(!map.may_make(Ino(99)) && !map.may_make(Ino(110)) && !map.may_make(Ino(202)));
        for ino in [103, 200, 104, 201] {
            assert!(map.may_make(Ino(ino)));
            map.made(Ino(ino));
            assert!(!map.may_make(Ino(ino)));
        }
        assert!(!map.may_make(Ino(102)), "a number below one that was made");
        assert!(map.may_make(Ino(109)) && !map.may_make(Ino(202)));
    }

    #[test]
    fn only_directories_that_are_new_to_ours_become_one_with_ours() {
        let mut map = MergeMap::new(Ino(5), Position(10), 1, OnConflict::Overwrite);
        map.grant(Ino(100), Ino(110));
        assert!(!map.may_bind(Ino(200)));
        map.note_born_after(ShardId(0), 90);
        assert!(map.may_bind(Ino(200)) && !map.may_bind(Ino(89)) && !map.may_bind(Ino(105)));
        map.bind(Ino(101), Ino(200));
        assert!(!map.may_bind(Ino(200)), "two directories of ours in one");
        assert!(map.may_know(Ino(200)) && !map.may_know(Ino(201)), "what others do to it is noted");
        map.note_standing(Ino(200));
        assert!(map.may_bind(Ino(200)));
    }

    #[test]
    fn numbers_that_others_held_unused_at_the_base_were_no_inodes_then() {
        let mut other = MergeMap::new(Ino(5), Position(3), 2, OnConflict::Overwrite);
        other.grant(Ino(50), Ino(60));
        other.made(Ino(52));
        let mut map = MergeMap::new(Ino(5), Position(10), 1, OnConflict::Overwrite);
        map.note_born_after(ShardId(0), 90);
        map.note_unborn(&other);
        for (ino, existed) in [(49, true), (52, true), (53, false), (59, false), (60, true), (90, false)] {
            assert_eq!(map.may_know(Ino(ino)), existed, "{ino}");
            assert_eq!(map.may_bind(Ino(ino)), !existed, "{ino}");
        }
    }
}
