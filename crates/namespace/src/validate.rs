//! Consistency of the rows in memory, for tests and simulation; `fsck` checks the same in the store.

use std::collections::BTreeMap;

use chiton_types::{Ino, Kind, Name};

use crate::inode::{COMPLETE, INLINE, MAPPED, OF_XATTRS, xattr_flags};
use crate::namespace::Namespace;
use crate::values::{ChunkKey, ContentKey, OrphanKey, XattrsKey};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inconsistency {
    /// An entry names an inode that does not exist.
    DanglingEntry {
        dir: Ino,
        name: Name,
        /// The inode that the entry names and that does not exist.
        ino: Ino,
    },
    /// The type in the entry is not the inode's.
    WrongKind { dir: Ino, name: Name, ino: Ino },
    /// The number of names is not what the inode says.
    WrongLinkCount {
        ino: Ino,
        /// The value in the row.
        says: u32,
        /// The value counted from other rows.
        is: u32,
    },
    /// The number of entries is not what the directory says.
    WrongEntryCount {
        ino: Ino,
        /// The value in the row.
        says: u64,
        /// The value counted from other rows.
        is: u64,
    },
    /// No name, and not on the list of orphans.
    LostOrphan { ino: Ino },
    /// A directory's parent is not the directory that holds its entry.
    WrongParent {
        ino: Ino,
        /// The parent that the row of the inode names.
        says: Ino,
    },
    /// Bytes of content are not what the inode says.
    WrongAllocation {
        ino: Ino,
        /// The value in the row.
        says: u64,
        /// The value counted from other rows.
        is: u64,
    },
    /// Content past the end of the file.
    PastEnd { ino: Ino },
    /// The inode's flags about its extended attributes and access control lists do not match them.
    WrongAttributes { ino: Ino },
    /// The number of inodes is not what the namespace says.
    WrongInodeCount {
        /// The value in the row.
        says: u64,
        /// The value counted from other rows.
        is: u64,
    },
}

impl Namespace {
    /// Checks everything that can be judged from the rows in memory; evicted rows are not judged. Takes time in
    /// proportion to the rows in memory.
    pub fn validate(&self) -> Vec<Inconsistency> {
        let mut found = Vec::new();
        let resident = self.resident();
        let whole = resident.values().all(|i| i.kind() != Kind::Dir || i.has(COMPLETE));
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut subdirs: BTreeMap<Ino, u32> = BTreeMap::new();
        for (&dir, inode) in resident.iter().filter(|(_, i)| i.kind() == Kind::Dir) {
            let mut entries = 0;
            for (name, slot) in self.dirs.get(&dir).into_iter().flat_map(|d| d.iter_after(0)) {
                let Some(kind) = slot.kind() else { continue };
                let name = Name::new(name).expect("names in memory were checked");
                let ino = slot.ino;
                entries += 1;
                *names.entry(ino).or_default() += 1;
                match resident.get(&ino) {
                    Some(target) if target.kind() != kind => {
                        found.push(Inconsistency::WrongKind { dir, name, ino })
                    }
                    Some(target) if kind == Kind::Dir => {
                        *subdirs.entry(dir).or_default() += 1;
                        if target.parent != dir {
                            found.push(Inconsistency::WrongParent { ino, says: target.parent });
                        }
                    }
                    Some(_) => {}
                    None if kind == Kind::Dir => *subdirs.entry(dir).or_default() += 1,
                    None if self.inodes.dead.contains_key(&ino) => {
                        found.push(Inconsistency::DanglingEntry { dir, name, ino });
                    }
                    None => {}
                }
            }
            if inode.has(COMPLETE) && entries != inode.entries() {
                found.push(Inconsistency::WrongEntryCount { ino: dir, says: inode.entries(), is: entries });
            }
        }
        for (&ino, inode) in &resident {
            let is = match inode.kind() {
                Kind::Dir if inode.nlink == 0 => 0,
                Kind::Dir => 2 + subdirs.get(&ino).copied().unwrap_or(0),
                _ => names.get(&ino).copied().unwrap_or(0),
            };
            let judged = if inode.kind() == Kind::Dir { inode.has(COMPLETE) } else { whole };
            if judged && is != inode.nlink {
                found.push(Inconsistency::WrongLinkCount { ino, says: inode.nlink, is });
            }
            if inode.nlink == 0 && self.orphans.value(OrphanKey(ino)).is_none() {
                found.push(Inconsistency::LostOrphan { ino });
            }
            let says = inode.flags & OF_XATTRS;
            let is = self.xattrs.get(XattrsKey(ino)).map(|xattrs| xattrs.map_or(0, xattr_flags));
            if is.is_some_and(|is| is != says) {
                found.push(Inconsistency::WrongAttributes { ino });
            }
            self.validate_content(ino, &mut found);
        }
        if whole && resident.len() as u64 != self.inode_count && self.all_names_resident(&names, &resident) {
            found.push(Inconsistency::WrongInodeCount { says: self.inode_count, is: resident.len() as u64 });
        }
        found
    }

    fn all_names_resident(
        &self,
        names: &BTreeMap<Ino, u32>,
        resident: &BTreeMap<Ino, &crate::inode::Inode>,
    ) -> bool {
        names.keys().all(|ino| resident.contains_key(ino))
            && self.orphans().iter().all(|i| resident.contains_key(i))
    }

    fn validate_content(&self, ino: Ino, found: &mut Vec<Inconsistency>) {
        let Some(inode) = self.inodes.get(ino).filter(|i| i.kind() == Kind::File) else { return };
        let (is, end) = if inode.has(MAPPED) {
            if !inode.has(COMPLETE) {
                return;
            }
            let chunks = || self.chunks.range(ChunkKey(ino, 0)..=ChunkKey(ino, u32::MAX)).map(|(_, c)| c);
            let end = chunks().filter_map(|c| c.extents().last()).map(|e| e.end()).max().unwrap_or(0);
            (chunks().map(|c| c.allocated()).sum(), end)
        } else if inode.has(INLINE) {
            let Some(Some(content)) = self.contents.get(ContentKey(ino)) else { return };
            (content.len() as u64, content.len() as u64)
        } else {
            (0, 0)
        };
        if is != inode.content_bytes() {
            found.push(Inconsistency::WrongAllocation { ino, says: inode.content_bytes(), is });
        }
        if end > inode.size() {
            found.push(Inconsistency::PastEnd { ino });
        }
    }
}
