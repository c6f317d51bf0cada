//! A map as bytes, in the event and in the row of its decoupling.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Position, ShardId};

use super::{InodeRange, MergeMap};
use crate::codec::take_name;
use crate::merge::conflict::OnConflict;
use crate::merge::contested::ContestedNames;
use crate::merge::settled::Settled;

impl MergeMap {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.root.0);
        out.put_u64(self.base.0);
        out.put_u64(self.writer);
        out.put_u8(self.on_conflict as u8);
        out.put_varint(self.inodes.len() as u64);
        for (ours, theirs) in &self.inodes {
            out.put_u64(ours.0);
            out.put_u64(theirs.0);
        }
        out.put_varint(self.own.len() as u64);
        for (start, end) in &self.own {
            out.put_u64(start.0);
            out.put_u64(end.0);
        }
        out.put_varint(self.ranges.len() as u64);
        for range in &self.ranges {
            out.put_u64(range.first.0);
            out.put_u64(range.next.0);
            out.put_u64(range.end.0);
        }
        self.contested.encode(out);
        for set in [&self.vouched, &self.standing] {
            out.put_varint(set.len() as u64);
            for ino in set {
                out.put_u64(ino.0);
            }
        }
        out.put_varint(self.born_after.len() as u64);
        for (shard, counter) in &self.born_after {
            out.put_u16(shard.0);
            out.put_u64(*counter);
        }
        out.put_varint(self.unborn.len() as u64);
        for (first, end) in &self.unborn {
            out.put_u64(first.0);
            out.put_u64(end.0);
        }
        out.put_varint(self.settled.len() as u64);
        for (ino, (position, how)) in &self.settled {
            out.put_u64(ino.0);
            out.put_u64(position.0);
            out.put_u8(*how as u8);
        }
        out.put_varint(self.gone.len() as u64);
        for (dir, name) in &self.gone {
            out.put_u64(dir.0);
            out.put_bytes(name.as_bytes());
        }
    }

    /// Reads a map.
    ///
    /// # Errors
    /// If the bytes are not one; everything must be in order.
    pub fn decode(from: &mut Take<'_>) -> Result<MergeMap, Malformed> {
        let (root, base, writer) = (Ino(from.u64()?), Position(from.u64()?), from.u64()?);
        let on_conflict =
            OnConflict::from_u8(from.u8()?).ok_or(Malformed { expected: "what to do with conflicts" })?;
        let mut map = MergeMap::new(root, base, writer, on_conflict);
        // As `encode` goes through maps and sets: each key once, in ascending order.
        fn next<K: Ord + Copy>(last: Option<K>, key: K) -> Result<K, Malformed> {
            match last {
                Some(last) if last >= key => Err(Malformed { expected: "keys in order" }),
                _ => Ok(key),
            }
        }
        for _ in 0..from.count(16)? {
            let ours = next(map.inodes.last_key_value().map(|(last, _)| *last), Ino(from.u64()?))?;
            map.bind(ours, Ino(from.u64()?));
        }
        for _ in 0..from.count(16)? {
            let (start, end) = (from.u64()?, from.u64()?);
            if start >= end || map.own.last().is_some_and(|(_, last)| last.0 > start) {
                return Err(Malformed { expected: "intervals of positions in order" });
            }
            map.own.push((Position(start), Position(end)));
        }
        for _ in 0..from.count(24)? {
            let (first, next, end) = (from.u64()?, from.u64()?, from.u64()?);
            let after_last = map.ranges.last().is_none_or(|last| last.end.0 <= first);
            if first > next || next > end || !after_last {
                return Err(Malformed { expected: "ranges of inode numbers in order" });
            }
            map.ranges.push(InodeRange { first: Ino(first), next: Ino(next), end: Ino(end) });
        }
        map.contested = ContestedNames::decode(from)?;
        for set in [&mut map.vouched, &mut map.standing] {
            for _ in 0..from.count(8)? {
                set.insert(next(set.last().copied(), Ino(from.u64()?))?);
            }
        }
        for _ in 0..from.count(10)? {
            let shard = next(map.born_after.last_key_value().map(|(last, _)| *last), ShardId(from.u16()?))?;
            map.born_after.insert(shard, from.u64()?);
        }
        for _ in 0..from.count(16)? {
            let (first, end) = (Ino(from.u64()?), Ino(from.u64()?));
            if first >= end || map.unborn.last().is_some_and(|(_, last)| *last > first) {
                return Err(Malformed { expected: "ranges of inode numbers in order" });
            }
            map.unborn.push((first, end));
        }
        for _ in 0..from.count(17)? {
            let ino = next(map.settled.last_key_value().map(|(last, _)| *last), Ino(from.u64()?))?;
            let (position, how) = (Position(from.u64()?), Settled::from_u8(from.u8()?)?);
            map.settled.insert(ino, (position, how));
        }
        for _ in 0..from.count(9)? {
            let place = (Ino(from.u64()?), take_name(from)?);
            if map.gone.last().is_some_and(|last| *last >= place) {
                return Err(Malformed { expected: "names in order" });
            }
            map.gone.insert(place);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::Name;

    use super::*;

    #[test]
    fn maps_round_trip_and_hostile_ones_are_refused() {
        let mut map = MergeMap::new(Ino(5), Position(10), 77, OnConflict::KeepBoth);
        map.grant(Ino(100), Ino(110));
        map.bind(Ino(101), Ino(6));
        map.bind(Ino(101), Ino(7));
        map.note_own(Position(12));
        map.note_own(Position(19));
        map.made(Ino(103));
        map.vouch(Ino(6));
        map.note_standing(Ino(9));
        map.note_born_after(ShardId(1), 300);
        let mut other = MergeMap::new(Ino(5), Position(9), 78, OnConflict::Overwrite);
        other.grant(Ino(140), Ino(150));
        other.grant(Ino(120), Ino(130));
        map.note_unborn(&other);
        map.settle(Ino(9), Position(11), Settled::Merged);
        map.settle(Ino(7), Position(10), Settled::Same);
        for name in ["gone", "gone too"] {
            map.note_contested(Ino(8), Ino(5), &Name::try_from(name).expect("a name"), Position(3), false);
        }
        map.note_gone((Ino(5), Name::new(b"stands").expect("a name")));
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        let mut take = Take::new(&bytes);
        assert_eq!(MergeMap::decode(&mut take), Ok(map));
        assert!(take.is_empty());
        for n in 0..bytes.len() {
            assert!(MergeMap::decode(&mut Take::new(&bytes[..n])).is_err(), "{n}");
        }
        // One pair twice: two bindings of one inode.
        let at = bytes.windows(8).position(|w| w == 101u64.to_le_bytes()).expect("the pair");
        assert_eq!(bytes[at - 1], 1, "how many pairs follow");
        let mut twice = bytes.clone();
        twice[at - 1] = 2;
        twice.splice(at..at, bytes[at..at + 16].to_vec());
        assert_eq!(MergeMap::decode(&mut Take::new(&twice)), Err(Malformed { expected: "keys in order" }));
    }
}
