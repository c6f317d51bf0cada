//! Repair without guessing: it writes only information that other rows prove, and reports the rest.
//!
//! ```text
//!   check ──▶ findings ──▶ changes of rows, atomic for each finding ──▶ check again, until nothing is left to do
//! ```
//!
//! Invariants:
//! - No content is deleted: an inode without a name gets one in `/lost+found`. Only blocks without a reference are
//!   put on the list of the server's sweeper.
//! - All changes for one finding are in one commit of each plate, so a crash leaves each finding repaired or not, or repaired at some
//!   plates. The next round, or the next run, finds and repairs the consequences of a change (counts, names).
//! - A row that is written on one plate carries no position of another plate's journal.
//! - Nothing is repaired in a store of which rows cannot be read.
//! - After the last round a further check finds nothing that it would repair.

mod patch;

use std::collections::{BTreeMap, BTreeSet};

use chiton_engine::{OwnRow, SWEPT};
use chiton_metastore::Metastore;
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT};
use chiton_namespace::{
    INODE_KEY_BYTES, Node, Share, StoredInode, StoredRow, entry_of_key, entry_row_key, ino_of, inode_row,
    plate_row_key, rest_of_plate_row, tag, tag_of,
};
use chiton_objects::Objects;
use chiton_types::{Ino, Kind, Mode, Name, PlateId, Position, ShardId, Time};

use self::patch::Patch;
use crate::RowsOfPlates;
use crate::fsck::all_rows::AllRows;
use crate::fsck::rows::{each_row, inode};
use crate::fsck::{CheckError, Finding, Options, Problem, Progress, Summary, check_rows};

/// Maximum number of findings that one round repairs.
const ROUND_FINDINGS: usize = 10_000;
/// Maximum number of rounds, for a store that keeps changing.
const ROUNDS: usize = 1_000;
/// How far past the numbers in use a counter is set: numbers that were used and are not any more must not come back.
const MARGIN: u64 = 1 << 32;

/// The result of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    pub repaired: u64,
    pub left: u64,
    /// The summary of the last check.
    pub summary: Summary,
}

/// Repairs all repairable findings of a file system with one plate. `report` gets every finding, and whether it was repaired. `now` is the birth time
/// of `/lost+found`, if it is created.
///
/// No other process may use the stores meanwhile.
///
/// # Errors
/// As [`check`], and if the store cannot be written. Earlier repairs stay.
pub fn repair(
    store: &dyn Metastore,
    objects: &dyn Objects,
    options: &Options,
    now: Time,
    report: &mut dyn FnMut(&Finding, bool),
    progress: &mut dyn FnMut(Progress),
) -> Result<Repaired, CheckError> {
    repair_rows(&AllRows::of_one(store), objects, options, now, report, progress)
}

/// [`repair`] of a file system with several plates. No plate may owe another anything.
///
/// # Errors
/// As [`repair`].
pub fn repair_plates(
    rows: &RowsOfPlates,
    objects: &dyn Objects,
    options: &Options,
    now: Time,
    report: &mut dyn FnMut(&Finding, bool),
    progress: &mut dyn FnMut(Progress),
) -> Result<Repaired, CheckError> {
    repair_rows(&AllRows::of_plates(rows), objects, options, now, report, progress)
}

fn repair_rows(
    rows: &AllRows<'_>,
    objects: &dyn Objects,
    options: &Options,
    now: Time,
    report: &mut dyn FnMut(&Finding, bool),
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
        done.summary = check_rows(rows.clone(), objects, options, &mut collect, progress)?;
        if done.summary.unreadable > 0 {
            // The content of unreadable rows is unknown.
            left.append(&mut todo);
        }
        let whole = todo.len() < ROUND_FINDINGS;
        let gives = if whole { Gives::find(rows, &todo)? } else { Gives::default() };
        let mut patch = Patch { all: rows, rows: BTreeMap::new(), now, gives };
        let mut changed = false;
        // The same again: they cannot be repaired after all.
        if todo != before {
            for finding in &todo {
                if patch.apply(&finding.problem)? {
                    changed = true;
                    done.repaired += 1;
                    report(finding, true);
                }
                if patch.rows.len() >= options.commit_rows {
                    patch.commit()?;
                }
            }
            patch.commit()?;
        }
        if !changed {
            left.append(&mut todo);
            done.left = done.summary.findings;
            left.iter().for_each(|finding| report(finding, false));
            break;
        }
        before = todo;
    }
    Ok(done)
}

/// Entries that do not decode, and inodes that lack just such a name: if a directory has one of each, they belong
/// together.
#[derive(Default)]
struct Gives {
    /// By the key of the entry's row.
    entries: BTreeMap<Vec<u8>, Ino>,
    inodes: BTreeSet<Ino>,
}

impl Gives {
    fn find(rows: &AllRows<'_>, todo: &[Finding]) -> Result<Gives, CheckError> {
        let mut bad: BTreeMap<Ino, Vec<&[u8]>> = BTreeMap::new();
        let mut lacking: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
        for finding in todo {
            match &finding.problem {
                Problem::BadRow { plate, key, .. }
                    if tag_of(key) == Some(tag::ENTRY) && !rows.is_copy(*plate, key) =>
                {
                    if let Some(dir) = finding.problem.ino() {
                        bad.entry(dir).or_default().push(key);
                    }
                }
                Problem::Orphan { ino } | Problem::UnreachableDirectory { ino } => {
                    if let Some(inode) = inode(rows.joint, *ino)? {
                        lacking.entry(inode.parent).or_default().push(*ino);
                    }
                }
                _ => {}
            }
        }
        let mut gives = Gives::default();
        for (dir, keys) in bad {
            if let ([key], Some([ino])) = (&keys[..], lacking.get(&dir).map(Vec::as_slice))
                && entry_of_key(key).is_some()
            {
                gives.entries.insert(key.to_vec(), *ino);
                gives.inodes.insert(*ino);
            }
        }
        Ok(gives)
    }
}

impl Patch<'_> {
    /// True if the problem is taken care of by the rows changed.
    fn apply(&mut self, problem: &Problem) -> Result<bool, CheckError> {
        match problem {
            Problem::BadRow { plate, key, repairable: true, .. } => self.bad_row(*plate, key)?,
            Problem::MissingRoot => {
                let root = made_anew(Ino::ROOT, Kind::Dir, self.now);
                self.put(&StoredRow::Inode(StoredInode { nlink: 2, ..root }));
            }
            Problem::LostInode { ino, kind } => return self.remake(*ino, *kind),
            Problem::WrongHardLinks { ino, is } if is.is_empty() => self.delete(inode_row(tag::LINKED, *ino)),
            Problem::WrongHardLinks { ino, is } => self.put(&StoredRow::Linked(*ino, is.clone())),
            Problem::WrongPolicy { ino, is: None } => {
                self.set_everywhere(&inode_row(tag::POLICY, *ino), None)
            }
            Problem::WrongPolicy { ino, is: Some(version) } => {
                let Some(StoredRow::PolicyChange(_, mut change)) = self.get(&history_key(*version))? else {
                    return Ok(false);
                };
                change.around = self.policy_around(*ino)?;
                let row = StoredRow::Policy(*ino, change);
                self.set_everywhere(&row.key(), Some(&row));
            }
            Problem::StalePolicyHistory { plate, version } => {
                self.copy_policy(*plate, &history_key(*version))?
            }
            Problem::StalePolicy { plate, ino } => self.copy_policy(*plate, &inode_row(tag::POLICY, *ino))?,
            Problem::WrongPolicyHistory { version, is: None } => {
                self.set_everywhere(&history_key(*version), None);
            }
            Problem::WrongPolicyHistory { version, is: Some(ino) } => {
                let Some(StoredRow::Policy(_, change)) = self.get(&inode_row(tag::POLICY, *ino))? else {
                    return Ok(false);
                };
                let row = StoredRow::PolicyChange(*version, change);
                self.set_everywhere(&row.key(), Some(&row));
            }
            Problem::DanglingEntry { dir, name, .. } | Problem::ExtraDirectoryEntry { dir, name, .. } => {
                self.delete(entry_row_key(*dir, name))
            }
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
            Problem::WrongEntryCount { ino, is, .. } => {
                return self.edit(*ino, |i| i.node.set_entries(*is));
            }
            Problem::SizeWithoutBlocks { ino, is, .. } | Problem::WrongAllocation { ino, is, .. } => {
                return self.edit(*ino, |i| i.node.set_bytes(*is));
            }
            Problem::ContentPastEnd { ino, is, .. } => return self.edit(*ino, |i| i.node.set_size(*is)),
            // It has got its name already.
            Problem::Orphan { ino } | Problem::UnreachableDirectory { ino }
                if self.gives.inodes.contains(ino) => {}
            Problem::Orphan { ino } | Problem::UnreachableDirectory { ino } => return self.rescue(*ino),
            Problem::DirectoryLoop { ino, dir, name } => return self.break_loop(*ino, *dir, name),
            Problem::WrongOrphanRow { ino, .. } => self.delete(StoredRow::Orphan(*ino).key()),
            Problem::BadList { ino, default } => return self.remove_list(*ino, *default),
            Problem::StrayRow { ino, adoptable: true, .. }
            | Problem::WrongLists { ino, .. }
            | Problem::MissingContent { ino, xattrs: true } => {
                let found = self.xattrs(*ino)?;
                return self.edit(*ino, |i| found.note(i));
            }
            Problem::WrongReferenceCount { plate, block, is, .. } => match is {
                Some(count) => self.put_at(*plate, &StoredRow::References(*block, *count)),
                None => self.delete_at(*plate, StoredRow::References(*block, 0).key()),
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
            Problem::LeakedBlock { plate, block, .. } => self.put_at(*plate, &StoredRow::Garbage(*block)),
            Problem::GarbageInUse { plate, block, .. } => {
                self.delete_at(*plate, StoredRow::Garbage(*block).key());
            }
            Problem::LowInodeCounter { plate, shard, needs, .. } => {
                self.put_own(*plate, OwnRow::InodeMark(*shard, (needs + MARGIN).min((1 << 48) - 1)));
            }
            Problem::LowSessionCounter { plate, needs, .. } => {
                self.put_own(*plate, OwnRow::SessionMark(needs.saturating_add(MARGIN)));
            }
            Problem::WrongInodeCount { plate, is, .. } => self.put_at(*plate, &StoredRow::InodeCount(*is)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Without an access list the group's bits of the mode, which were its mask, would be the group's rights: they go, too.
    fn remove_list(&mut self, ino: Ino, default: bool) -> Result<bool, CheckError> {
        let name = if default { ACL_DEFAULT } else { ACL_ACCESS };
        let Some(StoredRow::Xattrs(_, mut all)) = self.get(&inode_row(tag::XATTRS, ino))? else {
            return Ok(false);
        };
        all.remove(name);
        match all.is_empty() {
            true => self.delete(inode_row(tag::XATTRS, ino)),
            false => self.put(&StoredRow::Xattrs(ino, all)),
        }
        let left = self.xattrs(ino)?;
        self.edit(ino, |inode| {
            left.note(inode);
            if !default {
                inode.mode = Mode(inode.mode.0 & !0o070);
            }
        })
    }

    /// Repairs an undecodable row whose content other rows have.
    fn bad_row(&mut self, plate: PlateId, row: &[u8]) -> Result<(), CheckError> {
        let kind = tag_of(row).unwrap_or_default();
        if self.all.is_copy(plate, row) {
            match kind {
                tag::POLICY => self.copy_policy(plate, row)?,
                _ => self.delete_at(plate, row.to_vec()),
            }
            return Ok(());
        }
        let changed = self.rows.get(&(plate, row.to_vec()));
        let policy_says = kind == tag::HISTORY && matches!(changed, Some(Some(_)));
        let is_of_inode = row.len() == INODE_KEY_BYTES;
        let of_plate = rest_of_plate_row(row, kind).map(<[u8]>::len);
        let empty = |key: &[u8]| ((plate, key.to_vec()), Some(Vec::new()));
        match kind {
            tag::ENTRY => match (self.gives.entries.get(row).copied(), entry_of_key(row)) {
                (Some(ino), Some((dir, name))) => self.give_back(dir, name, ino)?,
                _ => self.delete_at(plate, row.to_vec()),
            },
            // The entry in its place is another finding, if the inode can be read.
            tag::LINKED if let Some(ino) = ino_of(row).filter(|_| is_of_inode) => {
                if self.inode(ino)?.is_none() {
                    self.delete_at(plate, row.to_vec());
                }
            }
            tag::HISTORY if policy_says => {}
            // The key alone determines these rows.
            tag::ORPHAN if is_of_inode => self.rows.extend([empty(row)]),
            SWEPT if of_plate == Some(8) => self.rows.extend([empty(row)]),
            tag::GARBAGE if of_plate == Some(16) => self.rows.extend([empty(row)]),
            _ => self.delete_at(plate, row.to_vec()),
        }
        Ok(())
    }

    /// Gives a plate a row of policies as the plate of the row has it.
    fn copy_policy(&mut self, plate: PlateId, key: &[u8]) -> Result<(), CheckError> {
        match self.get(key)? {
            Some(row) => self.put_at(plate, &row),
            None => self.delete_at(plate, key.to_vec()),
        }
        Ok(())
    }

    /// Writes an entry that could not be read for the inode that lacks it.
    fn give_back(&mut self, dir: Ino, name: Name, ino: Ino) -> Result<(), CheckError> {
        let Some(StoredInode { node, position, .. }) = self.inode(ino)? else { return Ok(()) };
        let kind = node.kind();
        let position = match self.inode(dir)? {
            Some(parent) => self.position_in(&parent, ino, position),
            None => Position(0),
        };
        self.put(&StoredRow::Entry { dir, name, ino, kind, position });
        if kind != Kind::Dir {
            self.edit(ino, |i| i.nlink = 1)?;
        }
        Ok(())
    }

    /// Makes an inode anew over the rows that are left of it. Its counts are found by the next round.
    fn remake(&mut self, ino: Ino, kind: Kind) -> Result<bool, CheckError> {
        if self.inode(ino)?.is_some() {
            return Ok(false);
        }
        let mut inode = made_anew(ino, kind, self.now);
        self.xattrs(ino)?.note(&mut inode);
        if kind == Kind::Dir {
            inode.nlink = 2;
        } else {
            let prefix = inode_row(tag::CHUNK, ino);
            let (mut size, mut bytes) = (0, 0);
            let end = chiton_metastore::prefix_end(&prefix);
            each_row(self.all.joint, &prefix, end.as_deref(), |(key, value)| {
                inode.mapped = true;
                if let Ok(Some(StoredRow::Chunk(_, _, chunk))) = StoredRow::decode(&key, &value) {
                    size = size.max(chunk.extents().last().map_or(0, |e| e.end()));
                    bytes += chunk.allocated();
                }
                Ok::<_, CheckError>(true)
            })?;
            let content = self.all.joint.get(&inode_row(tag::CONTENT, ino))?.filter(|_| !inode.mapped);
            inode.inline = content.is_some();
            if let Some(content) = content {
                inode.node = Node::new(kind, content.len() as u64, 0);
            } else {
                inode.node = Node::File { size, bytes };
            }
        }
        self.put(&StoredRow::Inode(inode));
        Ok(true)
    }

    /// Gives an inode that no entry names a name in `/lost+found`.
    fn rescue(&mut self, ino: Ino) -> Result<bool, CheckError> {
        let (Some(inode), Some(dir)) = (self.inode(ino)?, self.lost_and_found()?) else { return Ok(false) };
        let Some(name) = self.free_name(dir, &format!("#{ino}"))? else { return Ok(false) };
        let Some(parent) = self.inode(dir)? else { return Ok(false) };
        let (kind, position) = (inode.node.kind(), self.position_in(&parent, ino, inode.position));
        self.put(&StoredRow::Entry { dir, name, ino, kind, position });
        if inode.node.share() != Share::All {
            self.delete(StoredRow::Content(ino, Vec::new()).key());
        }
        self.edit(ino, |i| {
            i.parent = dir;
            if kind != Kind::Dir {
                i.nlink = 1;
            }
            // A part becomes a directory of its own.
            if let Node::Dir { share, .. } = &mut i.node
                && *share != Share::All
            {
                (*share, i.inline) = (Share::All, false);
            }
        })?;
        self.edit(dir, |i| {
            i.node.set_entries(i.node.entries() + 1);
            i.nlink += u32::from(kind == Kind::Dir);
        })
    }

    fn break_loop(&mut self, ino: Ino, dir: Ino, name: &Name) -> Result<bool, CheckError> {
        if !self.rescue(ino)? {
            return Ok(false);
        }
        self.delete(entry_row_key(dir, name));
        self.edit(dir, |i| {
            i.node.set_entries(i.node.entries().saturating_sub(1));
            i.nlink = i.nlink.saturating_sub(1);
        })
    }

    /// `/lost+found`, made if there is none; `None` if there cannot be one.
    fn lost_and_found(&mut self) -> Result<Option<Ino>, CheckError> {
        let there = Name::new(b"lost+found").expect("a name");
        if let Some(StoredRow::Entry { ino, .. }) = self.get(&entry_row_key(Ino::ROOT, &there))?
            && self.inode(ino)?.is_some_and(|i| i.node.kind() == Kind::Dir)
        {
            return Ok(Some(ino));
        }
        let (Some(root), Some(name)) = (self.inode(Ino::ROOT)?, self.free_name(Ino::ROOT, "lost+found")?)
        else {
            return Ok(None);
        };
        let shard = ShardId(0);
        let Some((key, _)) = OwnRow::InodeMark(shard, 0).encode() else { return Ok(None) };
        let value = self.value(&key)?;
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
        self.put_own(self.home(&key), OwnRow::InodeMark(shard, counter + 1));
        let (uid, gid, position) = (root.uid, root.gid, root.position);
        let made = StoredInode { nlink: 2, uid, gid, position, ..made_anew(ino, Kind::Dir, self.now) };
        self.put(&StoredRow::Inode(made));
        self.put(&StoredRow::Entry { dir: Ino::ROOT, name, ino, kind: Kind::Dir, position: root.position });
        self.edit(Ino::ROOT, |i| {
            i.node.set_entries(i.node.entries() + 1);
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
            if self.value(&key)?.is_none() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

/// A recreated inode: for root only, since its owner is unknown.
fn made_anew(ino: Ino, kind: Kind, now: Time) -> StoredInode {
    StoredInode {
        ino,
        node: Node::new(kind, 0, 0),
        mode: Mode(if kind == Kind::Dir { 0o700 } else { 0o600 }),
        parent: Ino::ROOT,
        position: Position(0),
        nlink: 1,
        uid: 0,
        gid: 0,
        btime: now,
        atime: now,
        mtime: now,
        ctime: now,
        inline: false,
        mapped: false,
        xattrs: false,
        access_list: false,
        default_list: false,
        immutable: false,
        append_only: false,
    }
}

/// The key of a change of a policy.
fn history_key(version: u64) -> Vec<u8> {
    plate_row_key(tag::HISTORY, &version.to_be_bytes())
}
