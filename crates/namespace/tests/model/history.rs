//! Runs a history through the model and the namespace side by side.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{
    AttrChange, Body, CHUNK_BYTES, Event, Extent, INLINE_BYTES_MAX, Op, RenameHow, SetTime,
    XATTR_VALUE_BYTES_MAX, XattrHow,
};
use chiton_namespace::{Namespace, Need};
use chiton_types::{Attr, BlockId, Cred, Ino, Kind, Mode, Name, Position, ShardId, Time};

use crate::compare;
use crate::pools::{PLACES, SIZES, XATTRS, cred, make, pooled_name, xattr_value};
use crate::state::{Ask, Content, Model};
use crate::step::{Paging, Piece, Step};
use crate::subject::Subject;

pub(crate) struct History {
    pub(crate) model: Model,
    pub(crate) subject: Subject,
    /// Applies the encoded events of `subject`, if the history asks for it.
    replica: Option<Subject>,
    now: Time,
    made: u64,
    blocks_made: u64,
    ever: BTreeSet<Ino>,
    swept: BTreeSet<BlockId>,
}

impl History {
    pub(crate) fn new(replica: bool) -> History {
        let start = Time(1_000);
        let new = || Subject::new(start, 0, 0);
        let mut history = History {
            model: Model::new(start, 0, 0),
            subject: new(),
            replica: replica.then(new),
            now: start,
            made: 1,
            blocks_made: 0,
            ever: BTreeSet::from([Ino::ROOT]),
            swept: BTreeSet::new(),
        };
        // Everybody may write to the root, else most steps would be refused.
        let open_to_all = AttrChange { mode: Some(Mode(0o777)), ..AttrChange::default() };
        history.run_op(&Op::SetAttr { ino: Ino::ROOT, change: open_to_all }, 0);
        for name in 0..3 {
            history.step(&Step::Make { by: 8 * name, dir: 1, name, what: 4, mode: 0o777 });
        }
        history
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Open { ino } => drop(self.model.open.insert(self.live(*ino))),
            Step::Close { nth } => self.close(usize::from(*nth)),
            Step::Ask { by, ino, name, want } => self.ask(*by, self.any(*ino), *name, *want),
            Step::Paging(paging) => self.paging(paging),
            _ => {
                if let Some((op, by)) = self.op(step) {
                    self.run_op(&op, by);
                }
            }
        }
    }

    fn run_op(&mut self, op: &Op, by: u8) {
        self.now.0 += i64::from(by % 3) * 10;
        self.made += 1;
        let offered = Ino::new(ShardId((self.made % 3) as u16), self.made);
        let cred = cred(by);
        let ask = Ask { cred: &cred, now: self.now, offered };
        let open = self.model.open.clone();
        let before: BTreeMap<Ino, Attr> = self.model.nodes.keys().map(|&i| (i, self.model.attr(i))).collect();
        let expect = self.model.run(op, &ask);
        let found = self.subject.run(op, &ask, &|ino| open.contains(&ino));
        let context = || format!("{op:?} by {cred:?}");
        match (expect, found) {
            (Err(expect), found) => {
                assert_eq!(found.map(|(outcome, _)| outcome), Err(expect), "{}", context());
                // The blocks that it would have written are nowhere.
                new_blocks(op).for_each(|block| drop(self.model.blocks.remove(&block)));
            }
            (Ok(expect), Err(found)) => panic!("{} is refused as {found:?}, not {expect:?}", context()),
            (Ok(expect), Ok((outcome, events))) => {
                let subject = expect.subject.filter(|ino| self.model.nodes.contains_key(ino));
                let attr = subject.map(|ino| self.model.attr(ino));
                assert_eq!(outcome.attr.map(compare::without_position), attr, "{}", context());
                assert_eq!(outcome.gone, expect.gone, "{}", context());
                self.check_touched(&before, &events);
                self.replicate(&events);
                self.ever.extend(expect.subject);
                if let Op::Rename { how, .. } = op
                    && how.leaves_whiteout()
                {
                    self.ever.extend(self.model.nodes.contains_key(&offered).then_some(offered));
                }
                if let Op::MakeUnnamed { .. } = op {
                    // Its maker has it open.
                    self.model.open.insert(offered);
                }
            }
        }
    }

    /// Every inode that looks different now is among those that the events report as touched.
    fn check_touched(&self, before: &BTreeMap<Ino, Attr>, events: &[Event]) {
        let mut touched = Vec::new();
        Namespace::touched(events, &mut touched);
        for (ino, attr) in before {
            let same = self.model.nodes.contains_key(ino) && self.model.attr(*ino) == *attr;
            let freed = matches!(events, [Event::Reclaim { .. }]);
            assert!(same || freed || touched.contains(ino), "{events:?} change {ino:?} and do not say so");
        }
    }

    fn replicate(&mut self, events: &[Event]) {
        let Some(replica) = &mut self.replica else { return };
        for event in events {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            replica.journal.push(bytes.clone());
            replica.replay(&bytes, Position(replica.journal.len() as u64));
        }
    }

    fn apply(&mut self, event: &Event) {
        self.subject.apply(event);
        self.replicate(std::slice::from_ref(event));
    }

    fn close(&mut self, nth: usize) {
        let Some(&ino) = self.model.open.iter().nth(nth % self.model.open.len().max(1)) else { return };
        self.model.open.remove(&ino);
        if self.model.nodes.contains_key(&ino) && self.model.is_orphan(ino) {
            self.run_op(&Op::Reclaim { ino }, 0);
        }
    }

    fn ask(&mut self, by: u8, ino: Ino, name: u8, want: u8) {
        let cred = cred(by);
        let node = self.model.node(ino);
        let access = node.and_then(|node| node.may(&cred, want));
        assert_eq!(self.subject.ask(&cred, |ns, cred| ns.access(cred, ino, want)), access, "{ino:?} {want}");
        let wanted = self.name(ino, name);
        let bears = self.model.searched(ino, &cred).map(|dir| dir.entries.get(&wanted).copied());
        assert_eq!(
            self.subject.ask(&cred, |ns, cred| ns.lookup(cred, ino, &wanted)),
            bears,
            "{wanted} in {ino:?}"
        );
        let xattr = XATTRS[usize::from(name) % XATTRS.len()];
        let value = self.model.get_xattr(ino, xattr, &cred);
        assert_eq!(
            self.subject.ask(&cred, |ns, cred| ns.xattr(cred, ino, xattr)),
            value,
            "{ino:?} {xattr:?}"
        );
        if self.model.nodes.contains_key(&ino) {
            let names = self.model.xattr_names(ino, &cred);
            assert_eq!(self.subject.ask(&cred, |ns, cred| ns.xattr_names(cred, ino)), Ok(names), "{ino:?}");
        }
    }

    fn paging(&mut self, paging: &Paging) {
        match paging {
            Paging::Begin => self.subject.checkpoint_begin(),
            Paging::Take { rows } => self.subject.checkpoint_take(usize::from(*rows)),
            Paging::Store => self.subject.checkpoint_store(),
            Paging::Done => self.subject.checkpoint_done(),
            Paging::Evict => self.subject.ns.evict(0),
            Paging::FetchEarly { ino, what } => {
                let ino = self.any(*ino);
                let chunk = u32::from(what / 8) % 3;
                // A runtime fetches the rows asked for, which fit the type of the inode.
                let need = match (what % 5, self.model.nodes.get(&ino).map(|n| n.kind)) {
                    (0, _) | (_, None) => Need::Inode(ino),
                    (1, _) => Need::Xattrs(ino),
                    (2, Some(Kind::Dir)) => Need::Entry(ino, self.name(ino, *what)),
                    (_, Some(Kind::Dir)) => Need::Dir(ino),
                    (2, Some(Kind::File)) => Need::Chunk(ino, chunk),
                    (3, Some(Kind::File)) => Need::Chunks(ino),
                    _ => Need::Content(ino),
                };
                self.subject.fetch_early(&need);
            }
            Paging::InstallLate => self.subject.install_late(),
            Paging::Crash => self.subject.crash(),
            Paging::Sweep { max } => self.sweep(usize::from(*max)),
        }
    }

    fn sweep(&mut self, max: usize) {
        let blocks = self.subject.ns.garbage(max);
        for block in &blocks {
            // From here on a map that still names it cannot be resolved.
            assert!(
                self.model.blocks.remove(block).is_some(),
                "{block:?} is garbage, and was never there or is swept"
            );
            self.swept.insert(*block);
        }
        if !blocks.is_empty() {
            self.apply(&Event::Swept { blocks });
        }
    }

    /// Compares the whole namespace with the model.
    pub(crate) fn check(&mut self) {
        let dead: BTreeSet<Ino> =
            self.ever.iter().copied().filter(|i| !self.model.nodes.contains_key(i)).collect();
        compare::whole(&mut self.subject, &self.model, &dead);
        if let Some(replica) = &mut self.replica {
            compare::whole(replica, &self.model, &dead);
            for &ino in self.model.nodes.keys() {
                assert_eq!(
                    replica.ask(&Cred::ROOT, |ns, _| ns.attr(ino)),
                    self.subject.ask(&Cred::ROOT, |ns, _| ns.attr(ino)),
                    "with positions"
                );
            }
        }
    }

    /// Closes and frees all that can be, and asks whether exactly the blocks that nobody uses are garbage.
    pub(crate) fn finish(mut self) {
        while !self.model.open.is_empty() {
            self.close(0);
        }
        let orphans: Vec<Ino> =
            self.model.nodes.keys().copied().filter(|&i| self.model.is_orphan(i)).collect();
        for ino in orphans {
            self.run_op(&Op::Reclaim { ino }, 0);
        }
        self.check();
        let dead = BTreeSet::new();
        let in_use = compare::whole(&mut self.subject, &self.model, &dead);
        for _ in 0..2 {
            self.subject.checkpoint_begin();
            self.subject.checkpoint_done();
        }
        let garbage: BTreeSet<BlockId> = self.subject.ns.garbage(usize::MAX).into_iter().collect();
        let unused: BTreeSet<BlockId> =
            self.model.blocks.keys().copied().filter(|b| !in_use.contains(b)).collect();
        assert_eq!(garbage, unused, "garbage is what nobody uses");
        self.subject.ns.evict(0);
        self.check();
        self.subject.crash();
        self.check();
    }

    fn op(&mut self, step: &Step) -> Option<(Op, u8)> {
        Some(match step.clone() {
            Step::Make { by, dir, name, what, mode } => {
                let parent = self.dir(dir);
                let make = make(what);
                (Op::Make { parent, name: pooled_name(name), make, mode: Mode(mode) }, by)
            }
            Step::MakeUnnamed { by, dir, mode } => {
                (Op::MakeUnnamed { parent: self.dir(dir), mode: Mode(mode) }, by)
            }
            Step::LinkUnnamed { by, open, dir, name } => {
                let ino = *self.model.open.iter().nth(usize::from(open) % self.model.open.len().max(1))?;
                (Op::LinkUnnamed { ino, parent: self.dir(dir), name: pooled_name(name) }, by)
            }
            Step::Link { by, ino, dir, name } => {
                (Op::Link { ino: self.any(ino), parent: self.dir(dir), name: pooled_name(name) }, by)
            }
            Step::Unlink { by, dir, name } => {
                let parent = self.dir(dir);
                (Op::Unlink { parent, name: self.name(parent, name) }, by)
            }
            Step::Rmdir { by, dir, name } => {
                let parent = self.dir(dir);
                (Op::Rmdir { parent, name: self.name(parent, name) }, by)
            }
            Step::Rename { by, from, from_name, to, to_name, how } => {
                let (from, to) = (self.dir(from), self.dir(to));
                let how = match how % 7 {
                    0 => RenameHow::NoReplace,
                    1 => RenameHow::Exchange,
                    2 => RenameHow::Whiteout,
                    3 => RenameHow::NoReplaceWhiteout,
                    _ => RenameHow::Replace,
                };
                let (from_name, to_name) = (self.name(from, from_name), self.name(to, to_name));
                (Op::Rename { from, from_name, to, to_name, how }, by)
            }
            Step::Chmod { by, ino, mode } => {
                (set(self.any(ino), AttrChange { mode: Some(Mode(mode)), ..AttrChange::default() }), by)
            }
            Step::Chown { by, ino, uid, gid } => {
                let ino = self.any(ino);
                let uid = (uid % 3 > 0).then_some(u32::from(uid / 3 % 4));
                let gid = (gid % 3 > 0).then_some(u32::from(gid / 3 % 5));
                (set(ino, AttrChange { uid, gid, ..AttrChange::default() }), by)
            }
            Step::Truncate { by, ino, size, by_handle, kill_setid } => {
                let size = Some(SIZES[usize::from(size) % SIZES.len()]);
                let change =
                    AttrChange { size, size_by_handle: by_handle, kill_setid, ..AttrChange::default() };
                (set(self.file(ino), change), by)
            }
            Step::Times { by, ino, atime, mtime } => {
                let time = |n: u8| match n % 3 {
                    0 => None,
                    1 => Some(SetTime::Now),
                    _ => Some(SetTime::At(Time(i64::from(n) * 1_000_003 - 77_000_000))),
                };
                let change = AttrChange { atime: time(atime), mtime: time(mtime), ..AttrChange::default() };
                (set(self.any(ino), change), by)
            }
            Step::WriteInline { ino, len, room, kill_setid } => {
                let len = match len % 64 {
                    60 => INLINE_BYTES_MAX,
                    61 => INLINE_BYTES_MAX + 1,
                    n => usize::from(n),
                };
                let body = Body::Inline((0..len).map(|n| (n * 7) as u8 ^ room).collect());
                let size = (len as u64 + u64::from(room % 4)).saturating_sub(u64::from(room == 255));
                (
                    Op::Write {
                        ino: self.file(ino),
                        body,
                        size,
                        mtime: self.now,
                        kill_setid,
                        hold: Default::default(),
                    },
                    0,
                )
            }
            Step::WriteExtents { ino, place, pieces, room, kill_setid } => {
                let ino = self.file(ino);
                let place = PLACES[usize::from(place) % PLACES.len()];
                let extents = self.extents(place, &pieces);
                let data = extents.iter().filter(|e| !e.block.is_hole()).map(Extent::end).max().unwrap_or(0);
                let least = self.model.nodes.get(&ino).map_or(0, |n| n.size).max(data);
                let size = match room % 16 {
                    15 => least.saturating_sub(1),
                    14 => least + 100,
                    _ => least,
                };
                (
                    Op::Write {
                        ino,
                        body: Body::Extents(extents),
                        size,
                        mtime: self.now,
                        kill_setid,
                        hold: Default::default(),
                    },
                    0,
                )
            }
            Step::Clone { from, from_place, to, to_place, len } => {
                let (from, to) = (self.file(from), self.file(to));
                let from_offset = PLACES[usize::from(from_place) % PLACES.len()];
                let to_offset = PLACES[usize::from(to_place) % PLACES.len()];
                let left = self.model.nodes.get(&from).map_or(0, |n| n.size).saturating_sub(from_offset);
                let len = if len % 3 == 0 { left } else { u64::from(len % 90).min(left) };
                (Op::Clone { from, from_offset, to, to_offset, len }, 0)
            }
            Step::Remap { ino, place, stale } => self.remap(self.file(ino), place, stale)?,
            Step::SetXattr { by, ino, name, len, how } => {
                let ino = self.any(ino);
                let len = match len % 32 {
                    30 => XATTR_VALUE_BYTES_MAX,
                    31 => XATTR_VALUE_BYTES_MAX + 1,
                    n => usize::from(n),
                };
                let how = match how % 4 {
                    0 => XattrHow::Create,
                    1 => XattrHow::Replace,
                    _ => XattrHow::Set,
                };
                let name = XATTRS[usize::from(name) % XATTRS.len()].to_vec();
                let value = xattr_value(&name, by, len);
                (Op::SetXattr { ino, name, value, how }, by)
            }
            Step::RemoveXattr { by, ino, name } => {
                let name = XATTRS[usize::from(name) % XATTRS.len()].to_vec();
                (Op::RemoveXattr { ino: self.any(ino), name }, by)
            }
            Step::Reclaim { ino } => {
                let ino = self.any(ino);
                if self.model.open.contains(&ino) {
                    return None;
                }
                (Op::Reclaim { ino }, 0)
            }
            Step::Open { .. } | Step::Close { .. } | Step::Ask { .. } | Step::Paging(_) => return None,
        })
    }

    /// Extents of one write, their blocks new, parted at the borders of chunks.
    fn extents(&mut self, place: u64, pieces: &[Piece]) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut at = place;
        let mut block: Option<(BlockId, u32)> = None;
        for piece in pieces {
            at += u64::from(piece.gap);
            let end = at + u64::from(piece.len);
            let border = (at / CHUNK_BYTES + 1) * CHUNK_BYTES;
            for (start, stop) in [(at, end.min(border)), (border, end)] {
                if start >= stop {
                    continue;
                }
                let len = (stop - start) as u32;
                let mut e =
                    Extent { offset: start, len, block: BlockId::HOLE, block_offset: 0, shared: false };
                if !piece.is_hole {
                    let continues = piece.same_block || start == border;
                    let (id, used) = block.filter(|_| continues).unwrap_or_else(|| (self.new_block(), 0));
                    (e.block, e.block_offset) = (id, used);
                    block = Some((id, used + len));
                    self.fill(id, used + len);
                }
                extents.push(e);
            }
            at = end;
        }
        extents
    }

    fn new_block(&mut self) -> BlockId {
        self.blocks_made += 1;
        BlockId { writer: 1 + self.blocks_made % 2, number: self.blocks_made }
    }

    fn fill(&mut self, id: BlockId, len: u32) {
        let bytes = (0..len).map(|n| (id.number as u32).wrapping_mul(31).wrapping_add(n) as u8).collect();
        self.model.blocks.insert(id, bytes);
    }

    /// A run of mapped bytes moves to a new block.
    fn remap(&mut self, ino: Ino, place: u8, stale: bool) -> Option<(Op, u8)> {
        let Content::Blocks(bytes) = &self.model.nodes.get(&ino)?.content else { return None };
        let (&start, _) = bytes.range(PLACES[usize::from(place) % PLACES.len()]..).next()?;
        let border = (start / CHUNK_BYTES + 1) * CHUNK_BYTES;
        let run: Vec<u8> = (start..border).take(50).map_while(|o| bytes.get(&o).copied()).collect();
        let block = self.new_block();
        let e = Extent { offset: start, len: run.len() as u32, block, block_offset: 0, shared: false };
        let current = self.subject.ask(&Cred::ROOT, |ns, _| ns.attr(ino)).expect("a live inode").position;
        let expected = if stale { Position(0) } else { current };
        self.model.blocks.insert(block, run);
        Some((Op::Remap { ino, expected, extents: vec![e] }, 0))
    }

    /// Mostly a directory; now and then anything that ever was.
    fn dir(&self, n: u16) -> Ino {
        if n.is_multiple_of(32) {
            return self.any(n / 32);
        }
        self.nth(n, |m, ino| m.nodes[&ino].kind == Kind::Dir)
    }

    fn file(&self, n: u16) -> Ino {
        if n.is_multiple_of(32) {
            return self.any(n / 32);
        }
        self.nth(n, |m, ino| m.nodes[&ino].kind == Kind::File)
    }

    fn live(&self, n: u16) -> Ino {
        self.nth(n, |_, _| true)
    }

    /// An inode of the model, mostly; else one that is no more.
    fn any(&self, n: u16) -> Ino {
        if !n.is_multiple_of(16) {
            return self.live(n);
        }
        *self.ever.iter().nth(usize::from(n / 16) % self.ever.len()).expect("at least the root")
    }

    fn nth(&self, n: u16, wanted: impl Fn(&Model, Ino) -> bool) -> Ino {
        let all: Vec<Ino> =
            self.model.nodes.keys().copied().filter(|&ino| wanted(&self.model, ino)).collect();
        all.get(usize::from(n) % all.len().max(1)).copied().unwrap_or(Ino::ROOT)
    }

    /// Mostly a name that is there.
    fn name(&self, dir: Ino, n: u8) -> Name {
        let entries = self.model.nodes.get(&dir).map(|d| &d.entries);
        let there = entries.filter(|e| !n.is_multiple_of(4) && !e.is_empty());
        match there.and_then(|e| e.keys().nth(usize::from(n / 4) % e.len())) {
            Some(name) => name.clone(),
            None => pooled_name(n / 4),
        }
    }
}

fn new_blocks(op: &Op) -> impl Iterator<Item = BlockId> {
    let extents = match op {
        Op::Write { body: Body::Extents(extents), .. } | Op::Remap { extents, .. } => extents.as_slice(),
        _ => &[],
    };
    extents.iter().map(|e| e.block)
}

fn set(ino: Ino, change: AttrChange) -> Op {
    Op::SetAttr { ino, change }
}
