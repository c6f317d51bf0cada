//! Inode numbers: a counter for each shard, reserved durably ahead in chunks.
//!
//! ```text
//!   given out │ next … usable_end │ asked for … reserved_end
//!             └ reservation durable ┘└ its event is in the journal, not yet durable ┘
//! ```
//!
//! Invariants:
//! - A number is given out only below a mark whose reservation is durable; a restart begins at the mark. So no
//!   number is used twice, whatever was lost.
//! - The next chunk is asked for when half of the last one is used, long before it is needed.

use chiton_types::{Ino, Position, ShardId};

/// Numbers of one reservation.
pub(crate) const CHUNK_NUMBERS: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Counter {
    next: u64,
    usable_end: u64,
    /// The latest reservation and its event's position; equal to `usable_end` when there is none on its way.
    reserved_end: u64,
    reserved_at: Position,
}

/// Allocator of all shards.
#[derive(Debug)]
pub(crate) struct Inodes {
    shards: Vec<Counter>,
}

impl Inodes {
    /// `marks`: for each shard the end of the numbers that were ever reserved.
    pub(crate) fn new(marks: &[u64]) -> Inodes {
        let counter = |&mark: &u64| Counter {
            next: mark,
            usable_end: mark,
            reserved_end: mark,
            reserved_at: Position(0),
        };
        Inodes { shards: marks.iter().map(counter).collect() }
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The next number of a shard, without using it up; or the position that must be durable first.
    pub(crate) fn offer(&mut self, shard: ShardId, durable: Position) -> Result<Ino, Position> {
        let c = &mut self.shards[usize::from(shard.0)];
        if c.next >= c.usable_end {
            if c.reserved_end == c.usable_end || durable < c.reserved_at {
                return Err(c.reserved_at);
            }
            c.usable_end = c.reserved_end;
        }
        Ok(Ino::new(shard, c.next))
    }

    /// The number just offered was used. Returns the mark to reserve next, if it is time.
    pub(crate) fn take(&mut self, shard: ShardId) -> Option<u64> {
        let c = &mut self.shards[usize::from(shard.0)];
        c.next += 1;
        self.wanted(shard)
    }

    /// The next counter of a shard: inodes made from now on have at least this one.
    pub(crate) fn next_counter(&self, shard: ShardId) -> u64 {
        self.shards[usize::from(shard.0)].next
    }

    /// Takes many numbers of a shard at once: the first, the first past them, and the mark that must be reserved with
    /// them. They may be used once all that is reserved so far is durable. `None` if the shard has not so many left.
    pub(crate) fn take_range(&mut self, shard: ShardId, count: u64) -> Option<(Ino, Ino, Option<u64>)> {
        let end = self.end_of_range(shard, count)?;
        let c = &mut self.shards[usize::from(shard.0)];
        let first = std::mem::replace(&mut c.next, end);
        let mark = (c.reserved_end < end + CHUNK_NUMBERS / 2).then_some(end + CHUNK_NUMBERS);
        Some((Ino::new(shard, first), Ino::new(shard, end), mark))
    }

    /// Whether a shard has so many left.
    pub(crate) fn has_range(&self, shard: ShardId, count: u64) -> bool {
        self.end_of_range(shard, count).is_some()
    }

    fn end_of_range(&self, shard: ShardId, count: u64) -> Option<u64> {
        let end = self.shards[usize::from(shard.0)].next.checked_add(count)?;
        (end.checked_add(2 * CHUNK_NUMBERS)? < 1 << 48).then_some(end)
    }

    /// Takes numbers of a shard that may be used at once: up to `count` of them, the first and the first past them; or the
    /// position that must be durable first.
    pub(crate) fn take_usable(
        &mut self,
        shard: ShardId,
        count: u64,
        durable: Position,
    ) -> Result<(Ino, Ino), Position> {
        self.offer(shard, durable)?;
        let c = &mut self.shards[usize::from(shard.0)];
        let (first, end) = (c.next, c.usable_end.min(c.next.saturating_add(count)));
        c.next = end;
        Ok((Ino::new(shard, first), Ino::new(shard, end)))
    }

    /// The mark to reserve for a shard now, if any.
    pub(crate) fn wanted(&self, shard: ShardId) -> Option<u64> {
        let c = &self.shards[usize::from(shard.0)];
        (c.reserved_end.saturating_sub(c.next) < CHUNK_NUMBERS / 2).then_some(c.reserved_end + CHUNK_NUMBERS)
    }

    /// A reservation was put into the journal at this position.
    pub(crate) fn reserved(&mut self, shard: ShardId, counter_end: u64, at: Position) {
        let c = &mut self.shards[usize::from(shard.0)];
        // At most one reservation is on its way: the next is wanted only once numbers of this one are in use.
        c.reserved_end = c.reserved_end.max(counter_end);
        c.reserved_at = at;
    }

    /// Ends of the numbers that were ever reserved, for a checkpoint.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (ShardId, u64)> + '_ {
        self.shards.iter().enumerate().map(|(n, c)| (ShardId(n as u16), c.reserved_end))
    }

    /// True if a number was below the mark with which this server began: it may have been given out before.
    pub(crate) fn is_former(&self, ino: Ino, marks_at_start: &[u64]) -> bool {
        marks_at_start.get(usize::from(ino.shard().0)).is_some_and(|&mark| ino.counter() < mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_out_of_the_same_numbers() {
        let mut inodes = Inodes::new(&[2, 7]);
        let shard = ShardId(1);
        let end = inodes.wanted(shard).expect("a chunk is wanted at once");
        inodes.reserved(shard, end, Position(5));
        let small = inodes.take_range(shard, 10).expect("there are numbers");
        assert_eq!(small, (Ino::new(shard, 7), Ino::new(shard, 17), None));
        assert_eq!(inodes.offer(shard, Position(5)), Ok(Ino::new(shard, 17)));
        let (first, past, mark) = inodes.take_range(shard, 5 * CHUNK_NUMBERS).expect("there are numbers");
        assert_eq!((first, past), (Ino::new(shard, 17), Ino::new(shard, 17 + 5 * CHUNK_NUMBERS)));
        let mark = mark.expect("more than is reserved");
        inodes.reserved(shard, mark, Position(9));
        assert_eq!(inodes.offer(shard, Position(8)), Err(Position(9)));
        assert_eq!(inodes.offer(shard, Position(9)), Ok(past));
        assert_eq!(inodes.marks().nth(1), Some((shard, mark)));
        assert_eq!(inodes.take_range(shard, 1 << 48), None);
        assert_eq!(inodes.take_range(shard, u64::MAX), None);
    }

    #[test]
    fn what_is_taken_for_use_at_once_is_durably_reserved_and_nobody_elses() {
        let mut inodes = Inodes::new(&[7]);
        let shard = ShardId(0);
        assert_eq!(inodes.take_usable(shard, 10, Position(9)), Err(Position(0)), "nothing is reserved yet");
        let end = inodes.wanted(shard).expect("a chunk is wanted at once");
        inodes.reserved(shard, end, Position(5));
        assert_eq!(inodes.take_usable(shard, 10, Position(4)), Err(Position(5)));
        let ino = |counter| Ino::new(shard, counter);
        assert_eq!(inodes.take_usable(shard, 10, Position(5)), Ok((ino(7), ino(17))));
        assert_eq!(inodes.offer(shard, Position(5)), Ok(ino(17)));
        let all = inodes.take_usable(shard, u64::MAX, Position(5));
        assert_eq!(all, Ok((ino(17), ino(7 + CHUNK_NUMBERS))), "no more than there are");
        let end = inodes.wanted(shard).expect("the next chunk is wanted");
        inodes.reserved(shard, end, Position(8));
        assert_eq!(inodes.take_usable(shard, 1, Position(7)), Err(Position(8)));
    }

    #[test]
    fn numbers_wait_for_their_reservation_and_never_repeat() {
        let mut inodes = Inodes::new(&[2, 7]);
        let shard = ShardId(0);
        assert_eq!(inodes.offer(shard, Position(100)), Err(Position(0)), "nothing is reserved yet");
        let end = inodes.wanted(shard).expect("a chunk is wanted at once");
        inodes.reserved(shard, end, Position(5));
        assert_eq!(inodes.offer(shard, Position(4)), Err(Position(5)));
        let mut last = None;
        let mut asked = 0;
        for _ in 0..CHUNK_NUMBERS {
            let ino = inodes.offer(shard, Position(5)).expect("the chunk is durable");
            assert!(last.is_none_or(|last| ino > last));
            last = Some(ino);
            if let Some(end) = inodes.take(shard)
                && asked == 0
            {
                asked = end;
                inodes.reserved(shard, end, Position(9));
            }
        }
        assert_eq!(asked, 2 + 2 * CHUNK_NUMBERS);
        assert_eq!(inodes.offer(shard, Position(8)), Err(Position(9)), "the second chunk is not durable");
        assert_eq!(inodes.offer(shard, Position(9)), Ok(Ino::new(shard, 2 + CHUNK_NUMBERS)));
        assert!(inodes.is_former(Ino(1), &[2, 7]) && !inodes.is_former(Ino(2), &[2, 7]));
        assert!(!inodes.is_former(Ino::new(ShardId(9), 1), &[2, 7]));
    }
}
