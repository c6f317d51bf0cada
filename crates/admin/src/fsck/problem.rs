//! What can be wrong, by name, and what repair does about it.

mod remedy;
mod words;

use chiton_types::{BlockId, Ino, Kind, Name, ShardId};

use crate::fsck::sorter::u64_at;

/// Access control lists of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    /// There is an access list.
    pub access: bool,
    /// There is a default list.
    pub default: bool,
}

/// An inconsistency, with what its repair needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A row that does not decode.
    BadRow {
        /// Its key.
        key: Vec<u8>,
        /// What was expected.
        cause: String,
        /// Whether other rows say what it should be, or nothing rests on it.
        repairable: bool,
    },
    /// There is no root directory.
    MissingRoot,
    /// An entry names an inode that does not exist.
    DanglingEntry {
        /// Directory.
        dir: Ino,
        /// Name.
        name: Name,
        /// The missing inode.
        ino: Ino,
    },
    /// Rows of an inode's content or entries are there, and its own row is not.
    LostInode {
        /// The inode.
        ino: Ino,
        /// What its names and rows say it was.
        kind: Kind,
    },
    /// Entries lie in what is not a directory.
    EntriesOutsideDirectory {
        /// What they lie in.
        dir: Ino,
        /// How many.
        entries: u64,
    },
    /// The type in the entry is not the inode's.
    WrongEntryType {
        /// Directory.
        dir: Ino,
        /// Name.
        name: Name,
        /// The inode.
        ino: Ino,
        /// The inode's type.
        is: Kind,
    },
    /// A directory has a second entry.
    ExtraDirectoryEntry {
        /// The directory that holds the entry too many.
        dir: Ino,
        /// Its name.
        name: Name,
        /// The directory that it names.
        ino: Ino,
    },
    /// The parent that an inode names holds no entry of it.
    WrongParent {
        /// The inode.
        ino: Ino,
        /// The recorded flags.
        says: Ino,
        /// What holds its entry; the lowest, of files with several names.
        is: Ino,
    },
    /// The list of the directories of a file with several names is not what the entries say.
    WrongHardLinks {
        /// The file.
        ino: Ino,
        /// One for each name; empty if there should be no list.
        is: Vec<Ino>,
    },
    /// The policy that a directory carries is not the last that the history says was given to it, or it is no directory.
    WrongPolicy {
        /// The directory.
        ino: Ino,
        /// The change that holds; `None`: it has none.
        is: Option<u64>,
    },
    /// The history of policies does not say what a directory carries.
    WrongPolicyHistory {
        /// Number of the change.
        version: u64,
        /// The directory whose policy says what it should be; `None`: the row is another's.
        is: Option<Ino>,
    },
    /// Rows of the metadata store cannot be read, since its files are damaged.
    UnreadableRows {
        /// The last row before them; empty if they are the first.
        after: Vec<u8>,
        /// They end before this; empty if there is nothing behind them.
        before: Vec<u8>,
        /// What the store says.
        cause: String,
    },
    /// The number of names is not what the inode says.
    WrongLinkCount {
        /// The inode.
        ino: Ino,
        /// The recorded flags.
        says: u32,
        /// The lists that exist.
        is: u32,
    },
    /// The number of entries is not what the directory says.
    WrongEntryCount {
        /// The directory.
        ino: Ino,
        /// The recorded flags.
        says: u64,
        /// The lists that exist.
        is: u64,
    },
    /// The link count of a directory is not 2 and one for each directory within.
    WrongSubdirectoryCount {
        /// The directory.
        ino: Ino,
        /// What its link count says.
        says: u32,
        /// What it should be.
        is: u32,
    },
    /// No entry names an inode, and it is not on the list of those that wait to be removed.
    Orphan {
        /// The inode.
        ino: Ino,
    },
    /// No entry names a directory: nothing below it can be reached.
    UnreachableDirectory {
        /// The directory.
        ino: Ino,
    },
    /// Directories that lie in each other, away from the root.
    DirectoryLoop {
        /// The one with the smallest number.
        ino: Ino,
        /// The directory that holds its entry.
        dir: Ino,
        /// Its name there.
        name: Name,
    },
    /// The list of inodes that wait to be removed names one that does not exist or has a name.
    WrongOrphanRow {
        /// The inode.
        ino: Ino,
        /// It has names: the server would remove it nevertheless.
        named: bool,
    },
    /// An inode has a row of content, of a map or of extended attributes that it does not know of, or does not exist.
    StrayRow {
        /// Key of the row.
        key: Vec<u8>,
        /// The inode.
        ino: Ino,
        /// The inode exists, and to know of its extended attributes is all that it lacks.
        adoptable: bool,
    },
    /// An inode says that it has a row of content or of extended attributes, and there is none.
    MissingContent {
        /// The inode.
        ino: Ino,
        /// Of extended attributes, not content.
        xattrs: bool,
    },
    /// An inode says that it has an access control list and has none, or the other way round: the list is not asked, or everybody
    /// is kept out.
    WrongLists {
        /// The inode.
        ino: Ino,
        /// The recorded flags.
        says: Lists,
        /// The lists that exist.
        is: Lists,
    },
    /// An access control list that cannot be decoded, or a default list of an inode that is no directory. It gives nobody access.
    BadList {
        /// The inode.
        ino: Ino,
        /// The default list, not the access list.
        default: bool,
    },
    /// Less content than the inode says.
    SizeWithoutBlocks {
        /// The inode.
        ino: Ino,
        /// Bytes of content that it says.
        says: u64,
        /// Bytes that there are.
        is: u64,
    },
    /// More content than the inode says.
    WrongAllocation {
        /// The inode.
        ino: Ino,
        /// Bytes of content that it says.
        says: u64,
        /// Bytes that there are.
        is: u64,
    },
    /// Content past the end of the file.
    ContentPastEnd {
        /// The inode.
        ino: Ino,
        /// Its size.
        says: u64,
        /// Where the content ends.
        is: u64,
    },
    /// The count of references of a block is not what the maps say.
    WrongReferenceCount {
        /// The block.
        block: BlockId,
        /// What its row says; `None` without one.
        says: Option<u32>,
        /// How many extents name it; `None` if one that needs no row.
        is: Option<u32>,
    },
    /// Several extents name a block, and one of them does not know.
    UnsharedExtent {
        /// The block.
        block: BlockId,
        /// The file.
        ino: Ino,
        /// The chunk of its map.
        chunk: u32,
        /// How many extents name the block.
        references: u32,
    },
    /// A block that a file needs is not in the object store.
    MissingBlock {
        /// The block.
        block: BlockId,
        /// A file that needs it.
        ino: Ino,
        /// The chunk of its map.
        chunk: u32,
    },
    /// A block that a file needs is damaged.
    CorruptBlock {
        /// The block.
        block: BlockId,
        /// A file that needs it.
        ino: Ino,
        /// What does not fit.
        cause: String,
    },
    /// A block that nothing names, and that the server will not come across any more.
    LeakedBlock {
        /// The block.
        block: BlockId,
        /// Its object's length in bytes.
        bytes: u64,
    },
    /// A block is on the list of those to be deleted, and a file needs it.
    GarbageInUse {
        /// The block.
        block: BlockId,
        /// A file that needs it.
        ino: Ino,
    },
    /// The next inode number of a shard is one that is in use.
    LowInodeCounter {
        /// The shard.
        shard: ShardId,
        /// What its row says; 0 without one.
        says: u64,
        /// What it has to be at least.
        needs: u64,
    },
    /// The next session's id is one that is in use.
    LowSessionCounter {
        /// What the row says; 0 without one.
        says: u64,
        /// What it has to be at least.
        needs: u64,
    },
    /// The number of inodes is not what its row says.
    WrongInodeCount {
        /// What it says; `None` without a row.
        says: Option<u64>,
        /// The lists that exist.
        is: u64,
    },
    /// The journal is damaged, or does not fit the metadata store.
    JournalDamage {
        /// What is wrong, with segment and offset if they are known.
        cause: String,
    },
}

impl Problem {
    /// The stable name.
    pub fn name(&self) -> &'static str {
        match self {
            Problem::BadRow { .. } => "bad-row",
            Problem::MissingRoot => "missing-root",
            Problem::DanglingEntry { .. } => "dangling-entry",
            Problem::LostInode { .. } => "lost-inode",
            Problem::WrongHardLinks { .. } => "wrong-hard-links",
            Problem::WrongPolicy { .. } => "wrong-policy",
            Problem::WrongPolicyHistory { .. } => "wrong-policy-history",
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

    /// The inode that it is about, if it is about one.
    pub fn ino(&self) -> Option<Ino> {
        match self {
            Problem::DanglingEntry { dir, .. } | Problem::EntriesOutsideDirectory { dir, .. } => Some(*dir),
            Problem::BadRow { key, .. }
                if matches!(key[0], b'I' | b'E' | b'C' | b'M' | b'X' | b'P' | b'L') =>
            {
                key.get(1..9).map(|ino| Ino(u64_at(ino, 0)))
            }
            Problem::WrongEntryType { ino, .. }
            | Problem::LostInode { ino, .. }
            | Problem::WrongHardLinks { ino, .. }
            | Problem::WrongPolicy { ino, .. }
            | Problem::ExtraDirectoryEntry { ino, .. }
            | Problem::WrongParent { ino, .. }
            | Problem::WrongLinkCount { ino, .. }
            | Problem::WrongEntryCount { ino, .. }
            | Problem::WrongSubdirectoryCount { ino, .. }
            | Problem::Orphan { ino }
            | Problem::UnreachableDirectory { ino }
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

    /// Where rows cannot be read, this may be said only because of what they hold.
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
