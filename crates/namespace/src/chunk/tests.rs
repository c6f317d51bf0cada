//! Chunks against a map of single bytes, over several files that share blocks.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{CHUNK_BYTES, Extent};
use chiton_types::BlockId;
use chiton_types::codec::Take;
use proptest::prelude::*;

use super::{Chunk, Effects, share_repeated};

/// Bytes of each file that the histories touch: the last of its chunk, so that the border is among them.
const WINDOW: u64 = 48;
const FILES: usize = 3;

fn base(file: usize) -> u64 {
    (file as u64 * 7 + 1) * CHUNK_BYTES - WINDOW
}

fn block(number: u64) -> BlockId {
    BlockId { writer: 9, number }
}

fn at(offset: u64, len: u32, number: u64, block_offset: u32, shared: bool) -> Extent {
    Extent { offset, len, block: block(number), block_offset, shared }
}

fn hole(offset: u64, len: u32) -> Extent {
    Extent { offset, len, block: BlockId::HOLE, block_offset: 0, shared: false }
}

/// Files, rows of references and garbage as a namespace would keep them, beside the naive byte map.
#[derive(Default)]
struct World {
    chunks: [Chunk; FILES],
    bytes: [BTreeMap<u64, (BlockId, u32)>; FILES],
    rows: BTreeMap<BlockId, u32>,
    garbage: BTreeSet<BlockId>,
    allocated: [i64; FILES],
    blocks_made: u64,
}

impl World {
    /// Applies the effects of one event on one file as the namespace does.
    fn settle(&mut self, file: usize, mut fx: Effects) {
        self.allocated[file] += fx.allocated_delta;
        for b in fx.dropped.drain(..) {
            assert!(!self.rows.contains_key(&b), "{b:?} is shared and was reported as dropped");
            assert!(self.garbage.insert(b), "{b:?} is garbage twice");
        }
        for (b, count) in fx.became_shared.drain(..) {
            assert_eq!(self.rows.insert(b, count), None, "{b:?} became shared twice");
        }
        fx.settle_refs();
        for (b, change) in fx.refs {
            let row = self.rows.entry(b).or_insert(0);
            *row = row.checked_add_signed(change).expect("fewer than no references");
            if *row == 0 {
                self.rows.remove(&b);
                assert!(self.garbage.insert(b), "{b:?} is garbage twice");
            }
        }
    }

    fn write(&mut self, file: usize, mut extents: Vec<Extent>) {
        share_repeated(&mut extents);
        let mut fx = Effects::default();
        for e in extents {
            self.chunks[file].overlay(e, &mut fx);
            for n in 0..e.len {
                if e.block.is_hole() {
                    self.bytes[file].remove(&(e.offset + u64::from(n)));
                } else {
                    self.bytes[file].insert(e.offset + u64::from(n), (e.block, e.block_offset + n));
                }
            }
        }
        self.settle(file, fx);
    }

    fn clone_range(&mut self, from: usize, from_at: u64, to: usize, to_at: u64, len: u64) {
        let (start, dest) = (base(from) + from_at, base(to) + to_at);
        let len = len.min(WINDOW - from_at).min(WINDOW - to_at);
        if len == 0 || (from == to && start < dest + len && dest < start + len) {
            return;
        }
        let mut fx = Effects::default();
        self.chunks[from].share(start, start + len, &mut fx);
        let copies = self.chunks[from].slice(start, start + len);
        self.chunks[to].overlay(hole(dest, len as u32), &mut fx);
        for mut e in copies {
            e.offset = e.offset - start + dest;
            self.chunks[to].overlay(e, &mut fx);
        }
        self.settle(to, fx);
        for n in 0..len {
            match self.bytes[from].get(&(start + n)).copied() {
                Some(byte) => self.bytes[to].insert(dest + n, byte),
                None => self.bytes[to].remove(&(dest + n)),
            };
        }
    }

    fn truncate(&mut self, file: usize, from: u64) {
        let mut fx = Effects::default();
        self.chunks[file].truncate(base(file) + from, &mut fx);
        self.settle(file, fx);
        self.bytes[file].split_off(&(base(file) + from));
    }

    /// A block of its own for each new write.
    fn fresh(&mut self) -> u64 {
        self.blocks_made += 1;
        self.blocks_made
    }

    fn check(&self) {
        let mut of_block: BTreeMap<BlockId, (u32, bool)> = BTreeMap::new();
        for (file, chunk) in self.chunks.iter().enumerate() {
            let mut bytes = BTreeMap::new();
            for pair in chunk.extents().windows(2) {
                assert!(pair[0].end() <= pair[1].offset, "{pair:?}");
                assert!(!super::continues(&pair[0], &pair[1]), "could be one: {pair:?}");
            }
            for e in chunk.extents() {
                bytes.extend((0..e.len).map(|n| (e.offset + u64::from(n), (e.block, e.block_offset + n))));
                let (count, shared) = of_block.entry(e.block).or_insert((0, e.shared));
                *count += 1;
                assert_eq!(*shared, e.shared, "{:?} is shared here and not there", e.block);
            }
            assert_eq!(bytes, self.bytes[file]);
            assert_eq!(chunk.allocated(), bytes.len() as u64);
            assert_eq!(self.allocated[file], bytes.len() as i64);
            self.check_queries(file);
        }
        for number in 1..=self.blocks_made {
            let b = block(number);
            match of_block.get(&b) {
                None => {
                    assert!(self.garbage.contains(&b), "{b:?} vanished without a word");
                    assert!(!self.rows.contains_key(&b));
                }
                Some(&(count, shared)) => {
                    assert!(!self.garbage.contains(&b), "{b:?} is in use and reported as garbage");
                    assert_eq!(self.rows.get(&b).copied(), shared.then_some(count), "{b:?}");
                    assert!(shared || count == 1, "{b:?} has {count} references and is not shared");
                }
            }
        }
    }

    fn check_queries(&self, file: usize) {
        let (chunk, bytes, start) = (&self.chunks[file], &self.bytes[file], base(file));
        for o in (start..start + WINDOW).step_by(5) {
            let end = (o + 11).min(start + WINDOW);
            let sliced: Vec<(u64, (BlockId, u32))> = chunk
                .slice(o, end)
                .iter()
                .flat_map(|e| (0..e.len).map(|n| (e.offset + u64::from(n), (e.block, e.block_offset + n))))
                .collect();
            let expect: Vec<_> = bytes.range(o..end).map(|(&o, &b)| (o, b)).collect();
            assert_eq!(sliced, expect);
        }
        let mut row = Vec::new();
        chunk.encode(&mut row);
        let mut take = Take::new(&row);
        assert_eq!(Chunk::decode(&mut take).as_ref(), Ok(chunk));
        assert!(take.is_empty());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        file: usize,
        at: u64,
        len: u32,
        block_offset: u32,
    },
    /// Pieces of one new block in several places.
    Scatter {
        file: usize,
        at: u64,
        piece: u32,
        gap: u32,
        times: u32,
    },
    /// A new block that continues the one before it, as an appending writer maps a block bit by bit.
    Append {
        file: usize,
        at: u64,
        len: u32,
        more: u32,
    },
    Punch {
        file: usize,
        at: u64,
        len: u32,
    },
    Truncate {
        file: usize,
        from: u64,
    },
    Clone {
        from: usize,
        from_at: u64,
        to: usize,
        to_at: u64,
        len: u64,
    },
}

fn steps() -> impl Strategy<Value = Step> {
    let (file, at) = (|| 0..FILES, || 0..WINDOW);
    prop_oneof![
        4 => (file(), at(), 1..20u32, 0..9u32)
            .prop_map(|(file, at, len, block_offset)| Step::Write { file, at, len, block_offset }),
        1 => (file(), at(), 1..4u32, 0..3u32, 1..5u32)
            .prop_map(|(file, at, piece, gap, times)| Step::Scatter { file, at, piece, gap, times }),
        1 => (file(), at(), 1..9u32, 1..9u32)
            .prop_map(|(file, at, len, more)| Step::Append { file, at, len, more }),
        2 => (file(), at(), 1..24u32).prop_map(|(file, at, len)| Step::Punch { file, at, len }),
        1 => (file(), 0..=WINDOW).prop_map(|(file, from)| Step::Truncate { file, from }),
        4 => (file(), at(), file(), at(), 1..WINDOW)
            .prop_map(|(from, from_at, to, to_at, len)| Step::Clone { from, from_at, to, to_at, len }),
    ]
}

fn run(world: &mut World, step: Step) {
    let cut = |at: u64, len: u32| len.min((WINDOW - at) as u32);
    match step {
        Step::Write { file, at: o, len, block_offset } => {
            let n = world.fresh();
            world.write(file, vec![at(base(file) + o, cut(o, len), n, block_offset, false)]);
        }
        Step::Scatter { file, at: o, piece, gap, times } => {
            let n = world.fresh();
            let places = (0..times).map(|t| (o + u64::from(t * (piece + gap)), t * piece));
            let fit = places.filter(|(o, _)| o + u64::from(piece) <= WINDOW);
            let extents: Vec<Extent> =
                fit.map(|(o, from)| at(base(file) + o, piece, n, from, false)).collect();
            if extents.is_empty() {
                world.blocks_made -= 1;
            }
            world.write(file, extents);
        }
        Step::Append { file, at: o, len, more } => {
            let n = world.fresh();
            let len = cut(o, len);
            world.write(file, vec![at(base(file) + o, len, n, 3, false)]);
            let more = more.min((WINDOW - o) as u32 - len);
            if more > 0 {
                world.write(file, vec![at(base(file) + o + u64::from(len), more, n, 3 + len, false)]);
            }
        }
        Step::Punch { file, at, len } => world.write(file, vec![hole(base(file) + at, cut(at, len))]),
        Step::Truncate { file, from } => world.truncate(file, from),
        Step::Clone { from, from_at, to, to_at, len } => world.clone_range(from, from_at, to, to_at, len),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn content_references_and_garbage_are_those_of_a_byte_map(
        history in proptest::collection::vec(steps(), 1..80),
    ) {
        let mut world = World::default();
        for step in history {
            run(&mut world, step);
            world.check();
        }
    }

    #[test]
    fn hostile_rows_do_not_panic(bytes in proptest::collection::vec(0u8..9, 0..60)) {
        if let Ok(chunk) = Chunk::decode(&mut Take::new(&bytes)) {
            prop_assert!(chunk.extents().windows(2).all(|p| p[0].end() <= p[1].offset));
        }
    }
}

#[test]
fn effects_of_single_changes() {
    let check = |before: &[Extent], e: Extent, after: &[Extent], mut expect: Effects| {
        let mut chunk = Chunk::default();
        for &b in before {
            chunk.overlay(b, &mut Effects::default());
        }
        let mut fx = Effects::default();
        chunk.overlay(e, &mut fx);
        fx.settle_refs();
        expect.settle_refs();
        assert_eq!((chunk.extents(), fx), (after, expect), "{e:?} over {before:?}");
    };
    let fx = |allocated_delta, dropped: &[u64], became: &[(u64, u32)], refs: &[(u64, i32)]| Effects {
        allocated_delta,
        dropped: dropped.iter().map(|&n| block(n)).collect(),
        became_shared: became.iter().map(|&(n, count)| (block(n), count)).collect(),
        refs: refs.iter().map(|&(n, change)| (block(n), change)).collect(),
    };
    let a = at(0, 30, 1, 0, false);
    check(&[a], at(0, 30, 2, 0, false), &[at(0, 30, 2, 0, false)], fx(0, &[1], &[], &[]));
    check(
        &[a],
        at(0, 10, 2, 0, false),
        &[at(0, 10, 2, 0, false), at(10, 20, 1, 10, false)],
        fx(0, &[], &[], &[]),
    );
    check(
        &[a],
        hole(10, 10),
        &[at(0, 10, 1, 0, true), at(20, 10, 1, 20, true)],
        fx(-10, &[], &[(1, 2)], &[]),
    );
    let s = at(0, 30, 1, 0, true);
    check(
        &[s],
        hole(10, 10),
        &[at(0, 10, 1, 0, true), at(20, 10, 1, 20, true)],
        fx(-10, &[], &[], &[(1, 1)]),
    );
    check(&[s], hole(0, 40), &[], fx(-30, &[], &[], &[(1, -1)]));
    // The gap of a shared block is filled by the extent that was cut out: three become one.
    let (left, right) = (at(0, 10, 1, 0, true), at(20, 10, 1, 20, true));
    check(&[left, right], at(10, 10, 1, 10, true), &[s], fx(10, &[], &[], &[(1, -1)]));
    // A block over itself is not garbage, and the rest of it counts.
    check(&[a], a, &[s], fx(0, &[], &[(1, 1)], &[]));
    check(
        &[a],
        at(10, 10, 1, 0, false),
        &[at(0, 10, 1, 0, true), at(10, 10, 1, 0, true), at(20, 10, 1, 20, true)],
        fx(0, &[], &[(1, 1)], &[(1, 2)]),
    );
}

#[test]
fn rows_with_holes_disorder_or_two_chunks_are_refused() {
    let check = |extents: &[Extent], fine: bool| {
        let mut row = vec![extents.len() as u8];
        extents.iter().for_each(|e| e.encode(&mut row));
        assert_eq!(Chunk::decode(&mut Take::new(&row)).is_ok(), fine, "{extents:?}");
    };
    let first = at(CHUNK_BYTES - 10, 10, 1, 0, false);
    check(&[first], true);
    check(&[at(0, 5, 2, u32::MAX - 5, false), first], true);
    check(&[first, at(CHUNK_BYTES, 1, 2, 0, false)], false);
    check(&[first, at(0, 5, 2, 0, false)], false);
    check(&[at(0, 5, 2, 0, false), at(4, 5, 3, 0, false)], false);
    check(&[hole(0, 5)], false);
    check(&[at(0, 5, 2, u32::MAX - 4, false)], false);
    assert!(Chunk::decode(&mut Take::new(&[200, 200, 200, 200, 15, 1, 2, 3])).is_err());
}
