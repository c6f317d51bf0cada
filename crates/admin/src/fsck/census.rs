//! The first pass decodes every row once, and sorts records for the joins of later passes.

use std::collections::BTreeMap;

use chiton_engine::{MARK, OwnRow, POSITION_KEY, SESSION, SESSION_OVER, SWEPT, mark_key};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT, Acl};
use chiton_namespace::{
    INODE_KEY_BYTES, Share, StoredInode, StoredRow, ino_of, rest_of_plate_row, tag, tag_of,
};
use chiton_types::{Ino, Kind, PlateId, Position, ShardId};

use crate::fsck::policies::Policies;
use crate::fsck::rows::{Gap, each_readable_row};
use crate::fsck::sorter::{Sorter, packed, u64_at};
use crate::fsck::{CheckError, Problem, Run};

/// The kind of an inode whose row does not decode.
pub(crate) const KIND_BAD: u8 = 0;
pub(crate) const INLINE: u8 = 1;
pub(crate) const MAPPED: u8 = 2;
pub(crate) const XATTRS: u8 = 4;
pub(crate) const ACCESS_LIST: u8 = 8;
pub(crate) const DEFAULT_LIST: u8 = 16;
/// A part of a directory.
pub(crate) const PART: u8 = 32;
/// A directory with parts.
pub(crate) const HOME: u8 = 64;
/// With one of these two: the list is none.
pub(crate) const BAD_LIST: u8 = 32;
/// Of a row of extended attributes that does not decode.
pub(crate) const XATTRS_BAD: u8 = 255;
/// In the place of a directory: the list of directories cannot be read.
pub(crate) const LIST_BAD: u64 = u64::MAX;

/// The records that the pass over inodes merges. Each begins with an inode number.
pub(crate) struct ByInode {
    /// ino, kind u8, flags u8, nlink u32, size, bytes of content (directories: entries), parent.
    pub(crate) inodes: Sorter<38>,
    /// named inode, directory, hash, kind u8.
    pub(crate) names: Sorter<25>,
    /// Directory, how many entries, how many of them bad.
    pub(crate) entries: Sorter<24>,
    /// ino, bytes.
    pub(crate) contents: Sorter<16>,
    /// ino, bytes mapped, end, chunk u32.
    pub(crate) chunks: Sorter<28>,
    /// ino, flags u8: of the access list, then of the default list; [`XATTRS_BAD`] in both.
    pub(crate) xattrs: Sorter<10>,
    /// ino.
    pub(crate) orphans: Sorter<8>,
    /// File with several names, a directory that its list names ([`LIST_BAD`]: the list does not decode).
    pub(crate) linked: Sorter<16>,
}

/// The records that the pass over blocks merges. Each begins with a writer; all but the last two with writer and
/// number.
pub(crate) struct ByBlock {
    /// writer, number, plate u16, ino, chunk u32, shared u8, end within the block u32.
    pub(crate) extents: Sorter<35>,
    /// writer, number, plate u16, count u32.
    pub(crate) references: Sorter<22>,
    /// writer, number, plate u16.
    pub(crate) garbage: Sorter<18>,
    /// writer.
    pub(crate) sessions: Sorter<8>,
    /// writer.
    pub(crate) swept: Sorter<8>,
    /// By plate: session ids below may have been given out.
    pub(crate) session_marks: BTreeMap<PlateId, u64>,
    /// All maps were readable, so a block without a reference is not needed.
    pub(crate) maps_whole: bool,
}

pub(crate) struct Census {
    by_inode: ByInode,
    by_block: ByBlock,
    /// The plate whose rows are being read.
    plate: PlateId,
    marks: BTreeMap<(PlateId, ShardId), u64>,
    /// One past the highest counter in use.
    needed: BTreeMap<ShardId, u64>,
    /// By plate: the highest id of an existing session, or of one that wrote a block in use.
    sessions_last: BTreeMap<PlateId, u64>,
    /// The row of the plate's position is there.
    position: bool,
    /// The plate's own count of its inodes.
    inode_count: Option<u64>,
    /// The plate's inodes.
    inodes: u64,
    /// Directory whose entries are being counted, entries, bad ones.
    counting: (u64, u64, u64),
    policies: Policies,
}

pub(crate) fn take(run: &mut Run<'_>) -> Result<Census, CheckError> {
    let mut census = Census {
        by_inode: ByInode {
            inodes: run.sorter(),
            names: run.sorter(),
            entries: run.sorter(),
            contents: run.sorter(),
            chunks: run.sorter(),
            xattrs: run.sorter(),
            orphans: run.sorter(),
            linked: run.sorter(),
        },
        by_block: ByBlock {
            extents: run.sorter(),
            references: run.sorter(),
            garbage: run.sorter(),
            sessions: run.sorter(),
            swept: run.sorter(),
            session_marks: BTreeMap::new(),
            maps_whole: true,
        },
        plate: PlateId(0),
        marks: BTreeMap::new(),
        needed: BTreeMap::new(),
        sessions_last: BTreeMap::new(),
        position: false,
        inode_count: None,
        inodes: 0,
        counting: (0, 0, 0),
        policies: Policies::default(),
    };
    let total = run.rows.joint.stats()?.rows_approx;
    for (plate, store) in run.rows.parts.clone() {
        (census.plate, census.position, census.inode_count, census.inodes) = (plate, false, None, 0);
        let unreadable_before = run.summary.unreadable;
        each_readable_row(store, |row| match row {
            Ok((key, value)) => {
                run.summary.rows += 1;
                run.read((key.len() + value.len()) as u64);
                run.report_progress("rows", run.summary.rows, total);
                census.row(run, &key, &value)
            }
            Err(Gap { after, before, cause }) => {
                census.by_block.maps_whole = false;
                run.summary.unreadable += 1;
                run.report(Problem::UnreadableRows { plate, after, before, cause })
            }
        })?;
        census.entry_of(None, 0)?;
        census.plate_rows(run, run.summary.unreadable == unreadable_before)?;
    }
    census.counters(run)?;
    census.policies.check(run)?;
    Ok(census)
}

impl Census {
    pub(crate) fn part(self) -> (ByInode, ByBlock) {
        (self.by_inode, self.by_block)
    }

    fn row(&mut self, run: &mut Run<'_>, key: &[u8], value: &[u8]) -> Result<(), CheckError> {
        let row = match StoredRow::decode(key, value) {
            Ok(Some(row)) => row,
            Ok(None) => return self.own_row(run, key, value),
            Err(corrupt) => return self.bad_row(run, key, &corrupt.cause),
        };
        let is_copy = run.rows.is_copy(self.plate, key);
        if is_copy && !matches!(row, StoredRow::Policy(..)) {
            // Nothing reads it.
            return Ok(());
        }
        match row {
            StoredRow::Inode(inode) => self.inode(run, &inode)?,
            StoredRow::Entry { dir, name, ino, kind, .. } => {
                run.summary.entries += 1;
                self.entry_of(Some(dir.0), 0)?;
                self.by_inode.names.push(packed![ino.0, dir.0, name.hash64(), (kind as u8)])?;
            }
            StoredRow::Content(ino, bytes) => {
                self.by_inode.contents.push(packed![ino.0, (bytes.len() as u64)])?;
            }
            StoredRow::Chunk(ino, n, chunk) => {
                let end = chunk.extents().last().map_or(0, |e| e.end());
                self.by_inode.chunks.push(packed![ino.0, chunk.allocated(), end, n])?;
                for e in chunk.extents() {
                    let (block, end) = (e.block, e.block_offset + e.len);
                    let shared = u8::from(e.shared);
                    self.use_session(run, block.writer);
                    let extent = packed![block.writer, block.number, self.plate.0, ino.0, n, shared, end];
                    self.by_block.extents.push(extent)?;
                }
            }
            StoredRow::Xattrs(ino, all) => {
                let of = |name, flag| {
                    all.get(name).map_or(0, |value| match Acl::decode(value) {
                        Ok(Some(_)) => flag,
                        _ => flag | BAD_LIST,
                    })
                };
                let (access, default) = (of(ACL_ACCESS, ACCESS_LIST), of(ACL_DEFAULT, DEFAULT_LIST));
                self.by_inode.xattrs.push(packed![ino.0, access, default])?;
            }
            StoredRow::References(block, count) => {
                self.by_block.references.push(packed![block.writer, block.number, self.plate.0, count])?;
            }
            StoredRow::Garbage(block) => {
                self.by_block.garbage.push(packed![block.writer, block.number, self.plate.0])?;
            }
            StoredRow::Orphan(ino) => self.by_inode.orphans.push(packed![ino.0])?,
            StoredRow::Policy(..) | StoredRow::PolicyChange(..) => {
                self.policies.note(self.plate, is_copy, &row);
            }
            StoredRow::Linked(ino, dirs) => {
                for dir in &dirs {
                    self.by_inode.linked.push(packed![ino.0, dir.0])?;
                }
                if dirs.len() < 2 {
                    // No such list is written.
                    self.by_inode.linked.push(packed![ino.0, LIST_BAD])?;
                }
            }
            // Only their decoding is checked; their blocks belong to a writer like any other.
            StoredRow::Decoupling(decoupling) => {
                self.use_session(run, decoupling.map.writer());
            }
            StoredRow::DecouplingLast(_) | StoredRow::Image(..) => {}
            StoredRow::InodeCount(count) => self.inode_count = Some(count),
        }
        Ok(())
    }

    fn inode(&mut self, run: &mut Run<'_>, i: &StoredInode) -> Result<(), CheckError> {
        run.summary.inodes += 1;
        self.inodes += 1;
        let kind = i.node.kind();
        run.summary.directories += u64::from(kind == Kind::Dir);
        self.use_number(i.ino);
        let flag = |on, bit| if on { bit } else { 0u8 };
        let flags = flag(i.inline, INLINE)
            | flag(i.mapped, MAPPED)
            | flag(i.xattrs, XATTRS)
            | flag(i.access_list, ACCESS_LIST)
            | flag(i.default_list, DEFAULT_LIST)
            | flag(i.node.share() == Share::Home, HOME)
            | flag(i.node.share() == Share::Part, PART);
        let counted = if kind == Kind::Dir { i.node.entries() } else { i.node.bytes() };
        let record = packed![i.ino.0, (kind as u8), flags, i.nlink, i.node.size(), counted, i.parent.0];
        Ok(self.by_inode.inodes.push(record)?)
    }

    fn own_row(&mut self, run: &mut Run<'_>, key: &[u8], value: &[u8]) -> Result<(), CheckError> {
        match OwnRow::decode(key, value) {
            Ok(Some(OwnRow::InodeMark(shard, _))) if run.options.shards.is_some_and(|n| shard.0 >= n) => {
                let cause = "a shard of this file system was expected".to_owned();
                let (plate, key) = (self.plate, key.to_vec());
                run.report(Problem::BadRow { plate, key, cause, repairable: true })?;
            }
            Ok(Some(OwnRow::InodeMark(shard, mark))) => {
                self.marks.insert((self.plate, shard), mark);
            }
            Ok(Some(OwnRow::SessionMark(mark))) => {
                self.by_block.session_marks.insert(self.plate, mark);
            }
            Ok(Some(OwnRow::Session(session))) => {
                self.use_session(run, session.0);
                self.by_block.sessions.push(packed![session.0])?;
            }
            Ok(Some(OwnRow::Over(session))) => self.use_session(run, session.0),
            Ok(Some(OwnRow::Swept(writer))) => self.by_block.swept.push(packed![writer])?,
            Ok(Some(OwnRow::Position(_))) => self.position = true,
            Ok(Some(OwnRow::Peer)) => {}
            Ok(None) => {
                let cause = "a kind of row that this version does not know".to_owned();
                let (plate, key) = (self.plate, key.to_vec());
                run.report(Problem::BadRow { plate, key, cause, repairable: false })?;
            }
            Err(cause) => {
                self.position |= key == POSITION_KEY;
                let kind = tag_of(key).unwrap_or_default();
                if let Some(session) = rest_of_plate_row(key, SESSION)
                    && let Ok(session) = session.try_into()
                {
                    // Its blocks are not taken for leaked.
                    self.by_block.sessions.push(session)?;
                }
                // Another finding reports the minimum of a counter.
                let repairable =
                    matches!(kind, SESSION | SESSION_OVER | SWEPT) || kind == MARK && key.len() != 3;
                let (plate, key, cause) = (self.plate, key.to_vec(), cause.to_string());
                run.report(Problem::BadRow { plate, key, cause, repairable })?;
            }
        }
        Ok(())
    }

    /// A row that does not decode still shows that something exists.
    fn bad_row(
        &mut self,
        run: &mut Run<'_>,
        key: &[u8],
        cause: &chiton_types::Malformed,
    ) -> Result<(), CheckError> {
        if run.rows.is_copy(self.plate, key) {
            let (plate, key, cause) = (self.plate, key.to_vec(), cause.to_string());
            return run.report(Problem::BadRow { plate, key, cause, repairable: true });
        }
        let id = ino_of(key).map(|ino| ino.0);
        let is_whole = key.len() == INODE_KEY_BYTES;
        let kind = tag_of(key).unwrap_or_default();
        match (kind, id) {
            (tag::INODE, Some(ino)) if is_whole => {
                self.inodes += 1;
                self.use_number(Ino(ino));
                self.by_inode.inodes.push(packed![ino, KIND_BAD, 0u8, 0u32, 0u64, 0u64, 0u64])?;
            }
            (tag::ENTRY, Some(dir)) => self.entry_of(Some(dir), 1)?,
            // A map that cannot be read may name any block.
            (tag::CHUNK, id) => {
                self.by_block.maps_whole = false;
                if let Some(ino) = id {
                    self.by_inode.chunks.push(packed![ino, u64::MAX, 0u64, 0u32])?;
                }
            }
            (tag::CONTENT, Some(ino)) if is_whole => self.by_inode.contents.push(packed![ino, u64::MAX])?,
            (tag::XATTRS, Some(ino)) if is_whole => {
                self.by_inode.xattrs.push(packed![ino, XATTRS_BAD, XATTRS_BAD])?;
            }
            (tag::LINKED, Some(ino)) if is_whole => self.by_inode.linked.push(packed![ino, LIST_BAD])?,
            // A count that there cannot be.
            (tag::BLOCK, _) if rest_of_plate_row(key, tag::BLOCK).is_some_and(|rest| rest.len() == 16) => {
                self.by_block.references.push(packed![
                    u64_at(key, 3),
                    u64_at(key, 11),
                    self.plate.0,
                    0u32
                ])?;
            }
            (tag::ORPHAN, Some(ino)) if is_whole => self.by_inode.orphans.push(packed![ino])?,
            _ => {}
        }
        let repairable = matches!(kind, tag::ENTRY | tag::LINKED | tag::HISTORY | tag::ORPHAN | tag::GARBAGE);
        let (plate, key, cause) = (self.plate, key.to_vec(), cause.to_string());
        run.report(Problem::BadRow { plate, key, cause, repairable })
    }

    /// Counts an entry of `dir`; `None`: there are no more. Rows come in the order of directories.
    fn entry_of(&mut self, dir: Option<u64>, bad: u64) -> Result<(), CheckError> {
        let (counted, entries, bad_entries) = self.counting;
        if dir != Some(counted) {
            if entries > 0 {
                self.by_inode.entries.push(packed![counted, entries, bad_entries])?;
            }
            self.counting = (dir.unwrap_or(0), 0, 0);
        }
        if dir.is_some() {
            self.counting.1 += 1;
            self.counting.2 += bad;
        }
        Ok(())
    }

    fn use_number(&mut self, ino: Ino) {
        let needed = self.needed.entry(ino.shard()).or_default();
        // The last number of a shard is never given out: its successor could not be noted.
        *needed = (*needed).max((ino.counter() + 1).min((1 << 48) - 1));
    }

    fn use_session(&mut self, run: &Run<'_>, id: u64) {
        if let Some(plate) = run.rows.of_session(id) {
            let last = self.sessions_last.entry(plate).or_default();
            *last = (*last).max(id);
        }
    }

    /// Rows that each plate has of its own. `whole`: all its rows could be read.
    fn plate_rows(&self, run: &mut Run<'_>, whole: bool) -> Result<(), CheckError> {
        let plate = self.plate;
        // It may be among those that cannot be read.
        if !self.position && whole {
            let (key, _) = OwnRow::Position(Position(0)).encode().expect("a row of the server");
            let cause = "it is missing".to_owned();
            run.report(Problem::BadRow { plate, key, cause, repairable: false })?;
        }
        if self.inode_count != Some(self.inodes) {
            run.report(Problem::WrongInodeCount { plate, says: self.inode_count, is: self.inodes })?;
        }
        Ok(())
    }

    fn counters(&self, run: &mut Run<'_>) -> Result<(), CheckError> {
        let shards = self.marks.keys().map(|(_, shard)| shard.0 + 1).max().unwrap_or(0);
        let shards = run.options.shards.unwrap_or(shards);
        for (plate, _) in run.rows.parts.clone() {
            for shard in (0..shards).map(ShardId) {
                let says = self.marks.get(&(plate, shard)).copied().unwrap_or(0);
                // A start needs the marks of other plates' shards, whatever they are.
                let is_copy = run.rows.is_copy(plate, &mark_key(shard));
                let needs = self.needed.get(&shard).copied().filter(|_| !is_copy).unwrap_or(1);
                if says < needs {
                    run.report(Problem::LowInodeCounter { plate, shard, says, needs })?;
                }
            }
            let says = self.by_block.session_marks.get(&plate).copied().unwrap_or(0);
            let last = self.sessions_last.get(&plate).copied().unwrap_or(0);
            let needs = last.saturating_add(1).max(run.rows.first_session(plate));
            if says < needs {
                run.report(Problem::LowSessionCounter { plate, says, needs })?;
            }
        }
        Ok(())
    }
}
