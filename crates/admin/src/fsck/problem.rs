//! The problems by name, and their repair.

mod remedy;
mod words;

use chiton_namespace::{ino_of, tag, tag_of};
use chiton_types::{BlockId, Ino, Kind, Name, PlateId, ShardId};

/// Access control lists of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Has an access list.
    pub access: bool,
    /// Has a default list.
    pub default: bool,
}

/// An inconsistency, with the data for its repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A row that does not decode.
    BadRow {
        /// The plate that has the row.
        plate: PlateId,
        key: Vec<u8>,
        cause: String,
        /// Whether other rows have the information, or nothing depends on it.
        repairable: bool,
    },
    /// The root directory is missing.
    MissingRoot,
    /// An entry names an inode that does not exist.
    DanglingEntry { dir: Ino, name: Name, ino: Ino },
    /// An inode has rows of content or entries, but no row of its own.
    LostInode {
        ino: Ino,
        /// The type that its names and rows imply.
        kind: Kind,
    },
    /// Entries exist for an inode that is not a directory.
    EntriesOutsideDirectory { dir: Ino, entries: u64 },
    /// The type in the entry is not the inode's.
    WrongEntryType {
        dir: Ino,
        name: Name,
        ino: Ino,
        /// The inode's type.
        is: Kind,
    },
    /// A directory has a second entry.
    ExtraDirectoryEntry {
        /// The directory that holds the entry too many.
        dir: Ino,
        name: Name,
        ino: Ino,
    },
    /// The parent that an inode names holds no entry of it.
    WrongParent {
        ino: Ino,
        /// The directory that the inode records as its parent.
        says: Ino,
        /// The directory with its entry; the lowest, for a file with several names.
        is: Ino,
    },
    /// The list of directories of a file with several names does not match its entries.
    WrongHardLinks {
        ino: Ino,
        /// One for each name; empty if there should be no list.
        is: Vec<Ino>,
    },
    /// A directory's policy is not the last one in the history, or its inode is not a directory.
    WrongPolicy {
        ino: Ino,
        /// The change that holds; `None`: it has none.
        is: Option<u64>,
    },
    /// The history of policies does not match a directory's policy.
    WrongPolicyHistory {
        /// Number of the change.
        version: u64,
        /// The directory whose policy has the right content; `None`: the row belongs to another.
        is: Option<Ino>,
    },
    /// A plate lacks a change in its history of policies, or has another than plate 0.
    StalePolicyHistory { plate: PlateId, version: u64 },
    /// A plate's copy of a directory's policy differs from the policy that the plate of the directory has.
    StalePolicy {
        /// The plate that has the copy.
        plate: PlateId,
        ino: Ino,
    },
    /// Rows of the metadata store cannot be read, since its files are damaged.
    UnreadableRows {
        /// The plate whose store it is.
        plate: PlateId,
        /// The last row before them; empty if they are the first.
        after: Vec<u8>,
        /// They end before this; empty if there is nothing behind them.
        before: Vec<u8>,
        cause: String,
    },
    /// The number of names does not match the inode's link count.
    WrongLinkCount {
        ino: Ino,
        /// The count in the row.
        says: u32,
        /// The count that the check found.
        is: u32,
    },
    /// The number of entries does not match the directory's count.
    WrongEntryCount {
        ino: Ino,
        /// The count in the row.
        says: u64,
        /// The count that the check found.
        is: u64,
    },
    /// The link count of a directory is not 2 and one for each directory within.
    WrongSubdirectoryCount {
        ino: Ino,
        /// The recorded link count.
        says: u32,
        /// The right link count.
        is: u32,
    },
    /// No entry names an inode, and it is not on the list of those that wait to be removed.
    Orphan { ino: Ino },
    /// No entry names a directory: nothing below it can be reached.
    UnreachableDirectory { ino: Ino },
    /// A directory lists a part that does not exist: the names in its range are lost.
    MissingPart { ino: Ino, part: Ino },
    /// Directories that lie in each other, away from the root.
    DirectoryLoop {
        /// The one with the smallest number.
        ino: Ino,
        /// The directory that holds its entry.
        dir: Ino,
        name: Name,
    },
    /// The list of inodes that wait to be removed names one that does not exist or has a name.
    WrongOrphanRow {
        ino: Ino,
        /// It has names: the server would remove it nevertheless.
        named: bool,
    },
    /// An inode has a row of content, of a map or of extended attributes that it does not know of, or does not exist.
    StrayRow {
        key: Vec<u8>,
        ino: Ino,
        /// The inode exists, and to know of its extended attributes is all that it lacks.
        adoptable: bool,
    },
    /// An inode refers to a row of content or of extended attributes that does not exist.
    MissingContent {
        ino: Ino,
        /// Extended attributes, not content.
        xattrs: bool,
    },
    /// An inode's flags about access control lists are wrong: a list is ignored, or access is refused to all.
    WrongLists {
        ino: Ino,
        /// The lists that the flags of the inode record.
        says: Lists,
        /// The lists that exist.
        is: Lists,
    },
    /// An access control list that cannot be decoded, or a default list of an inode that is not a directory. It
    /// grants no access.
    BadList {
        ino: Ino,
        /// The default list, not the access list.
        default: bool,
    },
    /// An inode has less content than recorded.
    SizeWithoutBlocks {
        ino: Ino,
        /// The recorded bytes of content.
        says: u64,
        /// The actual bytes of content.
        is: u64,
    },
    /// An inode has more content than recorded.
    WrongAllocation {
        ino: Ino,
        /// The recorded bytes of content.
        says: u64,
        /// The actual bytes of content.
        is: u64,
    },
    /// Content past the end of the file.
    ContentPastEnd {
        ino: Ino,
        /// The size in the row.
        says: u64,
        /// The end of the content.
        is: u64,
    },
    /// A block's reference count does not match the maps.
    WrongReferenceCount {
        /// The plate that has the row.
        plate: PlateId,
        block: BlockId,
        /// The recorded count; `None` without a row.
        says: Option<u32>,
        /// How many extents name it; `None` if one that needs no row.
        is: Option<u32>,
    },
    /// Several extents name a block, and one of them does not know.
    UnsharedExtent {
        block: BlockId,
        ino: Ino,
        /// The chunk of the file's map.
        chunk: u32,
        /// How many extents name the block.
        references: u32,
    },
    /// A block that a file needs is not in the object store.
    MissingBlock {
        block: BlockId,
        /// A file that refers to it.
        ino: Ino,
        /// The chunk of the file's map.
        chunk: u32,
    },
    /// A block that a file needs is damaged.
    CorruptBlock {
        block: BlockId,
        /// A file that refers to it.
        ino: Ino,
        cause: String,
    },
    /// A block that nothing names, and that the server will not come across any more.
    LeakedBlock {
        /// The plate of its writer.
        plate: PlateId,
        block: BlockId,
        /// Its object's length in bytes.
        bytes: u64,
    },
    /// A block is on the list of those to be deleted, and a file needs it.
    GarbageInUse {
        /// The plate that has the row.
        plate: PlateId,
        block: BlockId,
        /// A file that refers to it.
        ino: Ino,
    },
    /// The next inode number of a shard is one that is in use.
    LowInodeCounter {
        /// The plate that has the row.
        plate: PlateId,
        shard: ShardId,
        /// The recorded value; 0 without a row.
        says: u64,
        /// The smallest right value.
        needs: u64,
    },
    /// The next session's id is one that is in use.
    LowSessionCounter {
        /// The plate that has the row.
        plate: PlateId,
        /// The recorded value; 0 without a row.
        says: u64,
        /// The smallest right value.
        needs: u64,
    },
    /// The recorded number of inodes is wrong.
    WrongInodeCount {
        /// The plate that has the row.
        plate: PlateId,
        /// The recorded number; `None` without a row.
        says: Option<u64>,
        /// The number that the check counted.
        is: u64,
    },
    /// The journal is damaged, or does not fit the metadata store.
    JournalDamage {
        /// The damage, with segment and offset if they are known.
        cause: String,
    },
}

impl Problem {
    pub fn name(&self) -> &'static str {
        match self {
            Problem::BadRow { .. } => "bad-row",
            Problem::MissingRoot => "missing-root",
            Problem::DanglingEntry { .. } => "dangling-entry",
            Problem::LostInode { .. } => "lost-inode",
            Problem::WrongHardLinks { .. } => "wrong-hard-links",
            Problem::WrongPolicy { .. } => "wrong-policy",
            Problem::WrongPolicyHistory { .. } => "wrong-policy-history",
            Problem::StalePolicyHistory { .. } => "stale-policy-history",
            Problem::StalePolicy { .. } => "stale-policy",
            Problem::UnreadableRows { .. } => "unreadable-rows",
            Problem::EntriesOutsideDirectory { .. } => "entries-outside-directory",
            Problem::WrongEntryType { .. } => "wrong-entry-type",
            Problem::ExtraDirectoryEntry { .. } => "extra-directory-entry",
            Problem::WrongParent { .. } => "wrong-parent",
            Problem::WrongLinkCount { .. } => "wrong-link-count",
            Problem::WrongEntryCount { .. } => "wrong-entry-count",
            Problem::WrongSubdirectoryCount { .. } => "wrong-subdirectory-count",
            Problem::Orphan { .. } => "orphan",
            Problem::UnreachableDirectory { .. } => "unreachable-directory",
            Problem::MissingPart { .. } => "missing-part",
            Problem::DirectoryLoop { .. } => "directory-loop",
            Problem::WrongOrphanRow { .. } => "wrong-orphan-row",
            Problem::StrayRow { .. } => "stray-row",
            Problem::MissingContent { .. } => "missing-content",
            Problem::WrongLists { .. } => "wrong-lists",
            Problem::BadList { .. } => "bad-list",
            Problem::SizeWithoutBlocks { .. } => "size-without-blocks",
            Problem::WrongAllocation { .. } => "wrong-allocation",
            Problem::ContentPastEnd { .. } => "content-past-end",
            Problem::WrongReferenceCount { .. } => "wrong-reference-count",
            Problem::UnsharedExtent { .. } => "unshared-extent",
            Problem::MissingBlock { .. } => "missing-block",
            Problem::CorruptBlock { .. } => "corrupt-block",
            Problem::LeakedBlock { .. } => "leaked-block",
            Problem::GarbageInUse { .. } => "garbage-in-use",
            Problem::LowInodeCounter { .. } => "low-inode-counter",
            Problem::LowSessionCounter { .. } => "low-session-counter",
            Problem::WrongInodeCount { .. } => "wrong-inode-count",
            Problem::JournalDamage { .. } => "journal-damage",
        }
    }

    /// The plate of the row that it is about, if each plate may have such a row.
    pub fn plate(&self) -> Option<PlateId> {
        match self {
            Problem::BadRow { plate, .. }
            | Problem::StalePolicy { plate, .. }
            | Problem::StalePolicyHistory { plate, .. }
            | Problem::UnreadableRows { plate, .. }
            | Problem::WrongReferenceCount { plate, .. }
            | Problem::LeakedBlock { plate, .. }
            | Problem::GarbageInUse { plate, .. }
            | Problem::LowInodeCounter { plate, .. }
            | Problem::LowSessionCounter { plate, .. }
            | Problem::WrongInodeCount { plate, .. } => Some(*plate),
            _ => None,
        }
    }

    /// The inode that it is about, if it is about one.
    pub fn ino(&self) -> Option<Ino> {
        match self {
            Problem::DanglingEntry { dir, .. } | Problem::EntriesOutsideDirectory { dir, .. } => Some(*dir),
            Problem::BadRow { key, .. }
                if matches!(
                    tag_of(key)?,
                    tag::INODE
                        | tag::ENTRY
                        | tag::CONTENT
                        | tag::CHUNK
                        | tag::XATTRS
                        | tag::POLICY
                        | tag::LINKED
                ) =>
            {
                ino_of(key)
            }
            Problem::WrongEntryType { ino, .. }
            | Problem::LostInode { ino, .. }
            | Problem::WrongHardLinks { ino, .. }
            | Problem::WrongPolicy { ino, .. }
            | Problem::StalePolicy { ino, .. }
            | Problem::ExtraDirectoryEntry { ino, .. }
            | Problem::WrongParent { ino, .. }
            | Problem::WrongLinkCount { ino, .. }
            | Problem::WrongEntryCount { ino, .. }
            | Problem::WrongSubdirectoryCount { ino, .. }
            | Problem::Orphan { ino }
            | Problem::UnreachableDirectory { ino }
            | Problem::MissingPart { ino, .. }
            | Problem::DirectoryLoop { ino, .. }
            | Problem::WrongOrphanRow { ino, .. }
            | Problem::StrayRow { ino, .. }
            | Problem::MissingContent { ino, .. }
            | Problem::WrongLists { ino, .. }
            | Problem::BadList { ino, .. }
            | Problem::SizeWithoutBlocks { ino, .. }
            | Problem::WrongAllocation { ino, .. }
            | Problem::ContentPastEnd { ino, .. }
            | Problem::UnsharedExtent { ino, .. }
            | Problem::MissingBlock { ino, .. }
            | Problem::CorruptBlock { ino, .. }
            | Problem::GarbageInUse { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// The entry that it is about, if it is about one.
    pub(crate) fn entry(&self) -> Option<(Ino, &Name)> {
        match self {
            Problem::DanglingEntry { dir, name, .. }
            | Problem::WrongEntryType { dir, name, .. }
            | Problem::ExtraDirectoryEntry { dir, name, .. } => Some((*dir, name)),
            _ => None,
        }
    }

    /// Whether unreadable rows alone may cause this finding.
    pub(crate) fn may_be_absence(&self) -> bool {
        !matches!(
            self,
            Problem::BadRow { .. }
                | Problem::UnreadableRows { .. }
                | Problem::WrongEntryType { .. }
                | Problem::ExtraDirectoryEntry { .. }
                | Problem::MissingBlock { .. }
                | Problem::CorruptBlock { .. }
                | Problem::GarbageInUse { .. }
                | Problem::JournalDamage { .. }
        )
    }
}
