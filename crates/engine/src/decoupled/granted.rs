//! Inode numbers of a decoupled client: ranges that the server has reserved for it, and more on demand.
//!
//! ```text
//!   used │ next … end │ … │ next … end │     less than half a step left ──▶ ask for another step
//! ```
//!
//! Invariants:
//! - Within a range numbers are used in order: a merge takes a number that is below one it has seen for a second use.
//! - A step is as much as there was before, so that few questions serve a job of any size.

use std::collections::{BTreeMap, VecDeque};

use chiton_types::{Ino, Refusal, ShardId};

/// Most numbers asked for at a time.
const STEP_MAX: u64 = 1 << 20;
/// Fewest numbers asked for at a time.
const STEP_MIN: u64 = 100;

/// Whether more numbers are coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum More {
    /// The server has not been asked, or has answered.
    Idle,
    /// The server is being asked.
    Asked,
    /// Refused, a moment ago.
    Refused,
}

/// The rest of the granted ranges.
#[derive(Debug)]
pub(crate) struct Granted {
    /// By shard: next, end.
    left: BTreeMap<ShardId, VecDeque<(Ino, Ino)>>,
    /// By shard: the last number that was used.
    last_used: BTreeMap<ShardId, Ino>,
    /// The shard of the first range: of the plate that grants more.
    first_shard: ShardId,
    left_count: u64,
    total: u64,
    more: More,
}

impl Granted {
    pub(crate) fn new(ranges: &[(Ino, Ino)]) -> Granted {
        let mut granted = Granted {
            first_shard: ranges.first().map_or(ShardId(0), |(first, _)| first.shard()),
            left: BTreeMap::new(),
            last_used: BTreeMap::new(),
            left_count: 0,
            total: 0,
            more: More::Idle,
        };
        granted.add(ranges);
        granted
    }

    /// The server gave further ranges.
    pub(crate) fn add(&mut self, ranges: &[(Ino, Ino)]) {
        self.more = More::Idle;
        for &(first, end) in ranges.iter().filter(|(first, end)| first < end) {
            self.left.entry(first.shard()).or_default().push_back((first, end));
            self.left_count += end.0 - first.0;
            self.total += end.0 - first.0;
        }
    }

    /// The server gives no more, or cannot be asked.
    pub(crate) fn refuse(&mut self) {
        self.more = More::Refused;
    }

    /// It may be asked again.
    pub(crate) fn forgive(&mut self) {
        if self.more == More::Refused {
            self.more = More::Idle;
        }
    }

    /// A number, without using it up: of this shard if there is one. `None`: wait for more.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`] if there is none and none is coming.
    #[inline]
    pub(crate) fn offer(&self, shard: ShardId) -> Result<Option<Ino>, Refusal> {
        let of_shard = self.left.get(&shard).or_else(|| self.left.values().next());
        match of_shard.and_then(VecDeque::front) {
            Some((next, _)) => Ok(Some(*next)),
            None if self.more == More::Refused => Err(Refusal::NoSpace),
            None => Ok(None),
        }
    }

    /// The shard in which a directory may be born, of so many as there are numbers in; by the hash of its birth.
    pub(crate) fn pick(&self, hash: u64) -> ShardId {
        let count = self.left.len().max(1) as u64;
        self.left.keys().nth((hash % count) as usize).copied().unwrap_or_default()
    }

    /// The number just offered was used.
    #[inline]
    pub(crate) fn take(&mut self, ino: Ino) {
        if self.left.get(&ino.shard()).and_then(VecDeque::front).is_some_and(|(next, _)| *next == ino) {
            self.skip(ino.shard(), 1);
        }
    }

    /// A journal says that this number was used: so were those before it in its shard.
    pub(crate) fn used(&mut self, ino: Ino) {
        let Some(ranges) = self.left.get(&ino.shard()) else { return };
        let Some(at) = ranges.iter().position(|(next, end)| (*next..*end).contains(&ino)) else { return };
        let before: u64 = ranges.iter().take(at).map(|(next, end)| end.0 - next.0).sum();
        self.skip(ino.shard(), before + ino.0 + 1 - ranges[at].0.0);
    }

    fn skip(&mut self, shard: ShardId, count: u64) {
        self.left_count -= count;
        let Some(ranges) = self.left.get_mut(&shard) else { return };
        let mut count = count;
        while let Some((next, end)) = ranges.front_mut() {
            let here = count.min(end.0 - next.0);
            next.0 += here;
            self.last_used.insert(shard, Ino(next.0 - 1));
            count -= here;
            if next < end {
                break;
            }
            ranges.pop_front();
        }
        if ranges.is_empty() {
            self.left.remove(&shard);
        }
    }

    /// Of each shard the last number that was used, if any was.
    pub(crate) fn used_up_to(&self) -> Vec<Ino> {
        self.last_used.values().copied().collect()
    }

    /// How many to ask for now, and where; once.
    #[inline]
    pub(crate) fn wanted(&mut self) -> Option<(ShardId, u64)> {
        if !self.is_short() {
            return None;
        }
        self.more = More::Asked;
        Some((self.left.keys().next().copied().unwrap_or(self.first_shard), self.step()))
    }

    /// True if it is time to ask for more.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.left_count < self.step() / 2 && self.more == More::Idle
    }

    fn step(&self) -> u64 {
        self.total.clamp(STEP_MIN, STEP_MAX)
    }

    /// Numbers left, and all that were ever granted.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.left_count, self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(shard: u16, counter: u64) -> Ino {
        Ino::new(ShardId(shard), counter)
    }

    #[test]
    fn numbers_come_in_order_of_the_shard_if_it_has_any_and_more_are_asked_for_in_time() {
        let mut granted = Granted::new(&[(ino(2, 10), ino(2, 60)), (ino(5, 7), ino(5, 57))]);
        assert_eq!(granted.wanted(), None);
        for n in 0..50 {
            assert_eq!(granted.offer(ShardId(5)), Ok(Some(ino(5, 7 + n))));
            granted.take(ino(5, 7 + n));
        }
        assert_eq!(granted.offer(ShardId(5)), Ok(Some(ino(2, 10))), "another shard's");
        assert_eq!(granted.wanted(), None, "half is left");
        granted.take(ino(2, 10));
        assert_eq!(granted.wanted(), Some((ShardId(2), 100)));
        assert_eq!(granted.wanted(), None, "asked for once");
        granted.add(&[(ino(2, 100), ino(2, 200))]);
        assert_eq!(granted.figures(), (149, 200));
        granted.used(ino(2, 120));
        assert_eq!(granted.offer(ShardId(0)), Ok(Some(ino(2, 121))));
        assert_eq!(granted.figures(), (79, 200));
    }

    #[test]
    fn without_numbers_one_waits_until_there_are_none_to_come() {
        let mut granted = Granted::new(&[(ino(1, 3), ino(1, 4))]);
        granted.take(ino(1, 3));
        assert_eq!(granted.offer(ShardId(1)), Ok(None));
        assert!(granted.wanted().is_some());
        granted.refuse();
        assert_eq!(granted.offer(ShardId(1)), Err(Refusal::NoSpace));
        assert_eq!(granted.wanted(), None);
        granted.forgive();
        assert_eq!((granted.offer(ShardId(1)), granted.wanted()), (Ok(None), Some((ShardId(1), 100))));
    }
}
