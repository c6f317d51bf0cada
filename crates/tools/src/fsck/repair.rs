//! Repair without guessing: what the rest of the rows prove is written, what nobody can know is left and told.
//!
//! ```text
//!   check ──▶ findings ──▶ changes of rows, atomic for each finding ──▶ check again, until nothing is left to do
//! ```
//!
//! Invariants:
//! - No content is deleted: what has lost its name gets one in `/lost+found`. A block that nothing names is put on the
//!   list of the server's sweeper, nothing else.
//! - All changes for one finding are in one commit, so a crash leaves each repaired or not.
//! - After the last round a further check finds nothing that it would repair.

use std::collections::BTreeMap;

use chiton_metastore::{Batch, Metastore};
use chiton_namespace::{StoredInode, StoredRow, entry_row_key, inode_row_key};
use chiton_objects::Objects;
use chiton_server::OwnRow;
use chiton_types::{Ino, Kind, Mode, Name, Position, ShardId, Time};

use crate::fsck::{CheckError, Finding, Options, Problem, Progress, Summary, check};

/// Findings that one round repairs.
const ROUND_FINDINGS: usize = 10_000;
/// Rounds, which a store that changes by itself would never end.
const ROUNDS: usize = 1_000;
/// How far past the numbers in use a counter is set: numbers that were used and are not any more must not come back.
const MARGIN: u64 = 1 << 32;
/// Changed rows in one commit, at least.
const COMMIT_ROWS: usize = 512;

/// What a repair did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Findings that were repaired.
    pub repaired: u64,
    /// Findings that are left.
    pub left: u64,
    /// The last check.
    pub summary: Summary,
}

/// Repairs what can be repaired. `tell` gets every finding, and whether it was repaired. `now` is the birth time of
/// `/lost+found`, if it has to be made.
///
/// Nobody else may use the stores meanwhile.
///
/// # Errors
/// As [`check`], and if the store cannot be written. What was repaired so far stays so.
pub fn repair(
    store: &dyn Metastore,
    objects: &dyn Objects,
    options: &Options,
    now: Time,
    tell: &mut dyn FnMut(&Finding, bool),
    progress: &mut dyn FnMut(Progress),
) -> Result<Repaired, CheckError> {
    let mut done = Repaired::default();
    let mut before: Vec<Finding> = Vec::new();
    for _ in 0..ROUNDS {
        let mut todo = Vec::new();
        let mut left = Vec::new();
        let mut collect = |finding: Finding| {
            let list = if finding.problem.remedy().is_some() { &mut todo } else { &mut left };
            if list.len() < ROUND_FINDINGS {
                list.push(finding);
            }
        };
        done.summary = check(store, objects, options, &mut collect, progress)?;
        let mut patch = Patch { store, rows: BTreeMap::new(), now };
        let mut changed = false;
        // The same again: they cannot be repaired after all.
        if todo != before {
            for finding in &todo {
                if patch.apply(&finding.problem)? {
                    changed = true;
                    done.repaired += 1;
                    tell(finding, true);
                }
                if patch.rows.len() >= COMMIT_ROWS {
                    patch.commit()?;
                }
            }
            patch.commit()?;
        }
        if !changed {
            left.append(&mut todo);
            done.left = done.summary.findings;
            left.iter().for_each(|finding| tell(finding, false));
            break;
        }
        before = todo;
    }
    Ok(done)
}

/// Changes of rows that are not committed yet, over a store.
struct Patch<'a> {
    store: &'a dyn Metastore,
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    now: Time,
}

impl Patch<'_> {
    fn commit(&mut self) -> Result<(), CheckError> {
        let rows: Vec<_> = std::mem::take(&mut self.rows).into_iter().collect();
        if !rows.is_empty() {
            self.store.commit(Batch { rows })?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<StoredRow>, CheckError> {
        let value = match self.rows.get(key) {
            Some(value) => value.clone(),
            None => self.store.get(key)?,
        };
        Ok(value.and_then(|value| StoredRow::decode(key, &value).ok().flatten()))
    }

    fn put(&mut self, row: &StoredRow) {
        self.rows.insert(row.key(), Some(row.value()));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.rows.insert(key, None);
    }

    fn put_own(&mut self, row: OwnRow) {
        self.rows.extend(row.encode().map(|(key, value)| (key, Some(value))));
    }

    fn inode(&self, ino: Ino) -> Result<Option<StoredInode>, CheckError> {
        Ok(match self.get(&inode_row_key(ino))? {
            Some(StoredRow::Inode(inode)) => Some(inode),
            _ => None,
        })
    }

    /// Changes an inode; false if there is none.
    fn edit(&mut self, ino: Ino, f: impl FnOnce(&mut StoredInode)) -> Result<bool, CheckError> {
        let Some(mut inode) = self.inode(ino)? else { return Ok(false) };
        f(&mut inode);
        self.put(&StoredRow::Inode(inode));
        Ok(true)
    }

    /// True if the problem is taken care of by the rows changed.
    fn apply(&mut self, problem: &Problem) -> Result<bool, CheckError> {
        match problem {
            Problem::DanglingEntry { dir, name, remains: false, .. }
            | Problem::ExtraDirectoryEntry { dir, name, .. } => self.delete(entry_row_key(*dir, name)),
            Problem::WrongEntryType { dir, name, is, .. } => {
                let Some(StoredRow::Entry { dir, name, ino, position, .. }) =
                    self.get(&entry_row_key(*dir, name))?
                else {
                    return Ok(false);
                };
                self.put(&StoredRow::Entry { dir, name, ino, kind: *is, position });
            }
            Problem::WrongParent { ino, is, .. } => return self.edit(*ino, |i| i.parent = *is),
            Problem::WrongLinkCount { ino, is, .. } | Problem::WrongSubdirectoryCount { ino, is, .. } => {
                return self.edit(*ino, |i| i.nlink = *is);
            }
            Problem::WrongEntryCount { ino, is, .. }
            | Problem::SizeWithoutBlocks { ino, is, .. }
            | Problem::WrongAllocation { ino, is, .. } => return self.edit(*ino, |i| i.extra = *is),
            Problem::ContentPastEnd { ino, is, .. } => return self.edit(*ino, |i| i.size = *is),
            Problem::Orphan { ino } | Problem::UnreachableDirectory { ino } => return self.rescue(*ino),
            Problem::DirectoryLoop { ino, dir, name } => return self.break_loop(*ino, *dir, name),
            Problem::WrongOrphanRow { ino, .. } => self.delete(StoredRow::Orphan(*ino).key()),
            Problem::StrayRow { ino, adoptable: true, .. } => return self.edit(*ino, |i| i.xattrs = true),
            Problem::MissingContent { ino, xattrs: true } => return self.edit(*ino, |i| i.xattrs = false),
            Problem::WrongReferenceCount { block, is, .. } => match is {
                Some(count) => self.put(&StoredRow::References(*block, *count)),
                None => self.delete(StoredRow::References(*block, 0).key()),
            },
            Problem::UnsharedExtent { block, ino, chunk, .. } => {
                let key = StoredRow::Chunk(*ino, *chunk, Default::default()).key();
                let Some(StoredRow::Chunk(ino, n, mut map)) = self.get(&key)? else { return Ok(false) };
                let theirs: Vec<_> = map.extents().iter().filter(|e| e.block == *block).copied().collect();
                for e in theirs {
                    map.share(e.offset, e.end(), &mut Default::default());
                }
                self.put(&StoredRow::Chunk(ino, n, map));
            }
            Problem::LeakedBlock { block, .. } => self.put(&StoredRow::Garbage(*block)),
            Problem::GarbageInUse { block, .. } => self.delete(StoredRow::Garbage(*block).key()),
            Problem::LowInodeCounter { shard, needs, .. } => {
                self.put_own(OwnRow::InodeMark(*shard, (needs + MARGIN).min((1 << 48) - 1)));
            }
            Problem::LowSessionCounter { needs, .. } => {
                self.put_own(OwnRow::SessionMark(needs.saturating_add(MARGIN)));
            }
            Problem::WrongInodeCount { is, .. } => self.put(&StoredRow::InodeCount(*is)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Gives an inode that no entry names a name in `/lost+found`.
    fn rescue(&mut self, ino: Ino) -> Result<bool, CheckError> {
        let (Some(inode), Some(dir)) = (self.inode(ino)?, self.lost_and_found()?) else { return Ok(false) };
        let Some(name) = self.free_name(dir, &format!("#{ino}"))? else { return Ok(false) };
        let (kind, position) = (inode.kind, inode.position);
        self.put(&StoredRow::Entry { dir, name, ino, kind, position });
        self.edit(ino, |i| {
            i.parent = dir;
            if kind != Kind::Dir {
                i.nlink = 1;
            }
        })?;
        self.edit(dir, |i| {
            i.extra += 1;
            i.nlink += u32::from(kind == Kind::Dir);
        })
    }

    fn break_loop(&mut self, ino: Ino, dir: Ino, name: &Name) -> Result<bool, CheckError> {
        if !self.rescue(ino)? {
            return Ok(false);
        }
        self.delete(entry_row_key(dir, name));
        self.edit(dir, |i| {
            i.extra = i.extra.saturating_sub(1);
            i.nlink = i.nlink.saturating_sub(1);
        })
    }

    /// `/lost+found`, made if there is none; `None` if there cannot be one.
    fn lost_and_found(&mut self) -> Result<Option<Ino>, CheckError> {
        let there = Name::new(b"lost+found").expect("a name");
        if let Some(StoredRow::Entry { ino, .. }) = self.get(&entry_row_key(Ino::ROOT, &there))?
            && self.inode(ino)?.is_some_and(|i| i.kind == Kind::Dir)
        {
            return Ok(Some(ino));
        }
        let (Some(root), Some(name)) = (self.inode(Ino::ROOT)?, self.free_name(Ino::ROOT, "lost+found")?)
        else {
            return Ok(None);
        };
        let shard = ShardId(0);
        let Some((key, _)) = OwnRow::InodeMark(shard, 0).encode() else { return Ok(None) };
        let value = match self.rows.get(&key) {
            Some(value) => value.clone(),
            None => self.store.get(&key)?,
        };
        let mark = value.and_then(|value| OwnRow::decode(&key, &value).ok().flatten());
        let Some(OwnRow::InodeMark(_, counter)) = mark.filter(|mark| match mark {
            OwnRow::InodeMark(_, counter) => *counter + 1 < 1 << 48,
            _ => false,
        }) else {
            return Ok(None);
        };
        let ino = Ino::new(shard, counter);
        if self.inode(ino)?.is_some() {
            return Ok(None);
        }
        self.put_own(OwnRow::InodeMark(shard, counter + 1));
        self.put(&StoredRow::Inode(lost_inode(ino, &root, self.now)));
        self.put(&StoredRow::Entry { dir: Ino::ROOT, name, ino, kind: Kind::Dir, position: root.position });
        self.edit(Ino::ROOT, |i| {
            i.extra += 1;
            i.nlink += 1;
        })?;
        if let Some(StoredRow::InodeCount(count)) = self.get(&StoredRow::InodeCount(0).key())? {
            self.put(&StoredRow::InodeCount(count + 1));
        }
        Ok(Some(ino))
    }

    /// `wish`, or `wish.1` and so on if that is taken.
    fn free_name(&self, dir: Ino, wish: &str) -> Result<Option<Name>, CheckError> {
        for n in 0..1_000 {
            let text = if n == 0 { wish.to_owned() } else { format!("{wish}.{n}") };
            let Ok(name) = Name::new(text.as_bytes()) else { return Ok(None) };
            let key = entry_row_key(dir, &name);
            let taken = match self.rows.get(&key) {
                Some(value) => value.is_some(),
                None => self.store.get(&key)?.is_some(),
            };
            if !taken {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

/// What `/lost+found` is when it is made: for root only, since nobody knows who may see what comes there.
fn lost_inode(ino: Ino, root: &StoredInode, now: Time) -> StoredInode {
    StoredInode {
        ino,
        kind: Kind::Dir,
        mode: Mode(0o700),
        parent: Ino::ROOT,
        position: Position(root.position.0),
        nlink: 2,
        uid: root.uid,
        gid: root.gid,
        rdev: 0,
        size: 0,
        extra: 0,
        btime: now,
        atime: now,
        mtime: now,
        ctime: now,
        inline: false,
        mapped: false,
        xattrs: false,
    }
}
