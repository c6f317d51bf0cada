//! What can be wrong, by name, and what repair does about it.

use std::fmt;

use chiton_types::{BlockId, Ino, Kind, Name, ShardId};

/// An inconsistency, with what its repair needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A row that does not decode.
    BadRow {
        /// Its key.
        key: Vec<u8>,
        /// What was expected.
        cause: String,
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
        /// Rows of the inode's content are there, or its row is bad: the entry is kept.
        remains: bool,
    },
    /// Entries lie in what is not a directory, or does not exist.
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
    /// A directory's parent is not the directory that holds its entry.
    WrongParent {
        /// The directory.
        ino: Ino,
        /// What it says.
        says: Ino,
        /// What holds its entry.
        is: Ino,
    },
    /// The number of names is not what the inode says.
    WrongLinkCount {
        /// The inode.
        ino: Ino,
        /// What it says.
        says: u32,
        /// What there is.
        is: u32,
    },
    /// The number of entries is not what the directory says.
    WrongEntryCount {
        /// The directory.
        ino: Ino,
        /// What it says.
        says: u64,
        /// What there is.
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
        /// What there is.
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
            Problem::WrongEntryType { ino, .. }
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

    /// What repair does; `None` if it leaves this alone.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Problem::DanglingEntry { remains: false, .. } => "remove the entry",
            Problem::WrongEntryType { .. } => "write the inode's type into the entry",
            Problem::ExtraDirectoryEntry { .. } => "remove the second entry; the directory keeps the first",
            Problem::WrongParent { .. } => "write the directory that holds the entry into the inode",
            Problem::WrongLinkCount { .. }
            | Problem::WrongEntryCount { .. }
            | Problem::WrongSubdirectoryCount { .. }
            | Problem::WrongInodeCount { .. } => "write the count that there is",
            Problem::Orphan { .. } | Problem::UnreachableDirectory { .. } => {
                "give it the name #INODE in /lost+found"
            }
            Problem::DirectoryLoop { .. } => "move one of the directories to /lost+found",
            Problem::WrongOrphanRow { .. } => "take it off the list",
            Problem::StrayRow { adoptable: true, .. } => "make the inode know of it",
            Problem::MissingContent { xattrs: true, .. } => "note that it has none",
            Problem::SizeWithoutBlocks { .. } => {
                "write the bytes that there are; what is missing reads as zeros"
            }
            Problem::WrongAllocation { .. } => "write the bytes that there are",
            Problem::ContentPastEnd { .. } => "make the file as long as its content",
            Problem::WrongReferenceCount { .. } => "write the number of extents that name it",
            Problem::UnsharedExtent { .. } => "mark the extent as shared, and count",
            Problem::LeakedBlock { .. } => "put it on the list of blocks that the server deletes",
            Problem::GarbageInUse { .. } => "take it off the list of blocks that the server deletes",
            Problem::LowInodeCounter { .. } | Problem::LowSessionCounter { .. } => {
                "raise the counter far past every number in use"
            }
            _ => return None,
        })
    }

    /// What a person can do where repair does nothing.
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Problem::BadRow { .. } | Problem::MissingRoot => {
                "restore the metadata store from a backup; what else can be read can be saved with chiton dump"
            }
            Problem::DanglingEntry { remains: true, .. } => {
                "the entry stays, because rows of the inode are left: restore the metadata store from a backup"
            }
            Problem::EntriesOutsideDirectory { .. } | Problem::StrayRow { adoptable: false, .. } => {
                "nothing is lost by leaving it; restore the metadata store from a backup to have it back"
            }
            Problem::MissingContent { xattrs: false, .. } => "restore the file from a backup, or remove it",
            Problem::MissingBlock { .. } | Problem::CorruptBlock { .. } => {
                "restore the object, or the file from a backup; other parts of the file can be read"
            }
            Problem::JournalDamage { .. } => {
                "look with chiton journal inspect, keep a copy with chiton journal export, then chiton journal reset"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::BadRow { key, cause } => write!(f, "row {} does not decode: {cause}", shown(key)),
            Problem::MissingRoot => f.write_str("there is no root directory (inode 1)"),
            Problem::DanglingEntry { dir, name, ino, .. } => {
                write!(f, "entry {name} of directory {dir} names inode {ino}, which does not exist")
            }
            Problem::EntriesOutsideDirectory { dir, entries } => {
                write!(f, "{entries} entries lie in inode {dir}, which is no directory")
            }
            Problem::WrongEntryType { dir, name, ino, is } => {
                write!(f, "entry {name} of directory {dir} has another type than inode {ino}, a {is:?}")
            }
            Problem::ExtraDirectoryEntry { dir, name, ino } => {
                write!(f, "directory {ino} has a second entry, {name} in directory {dir}")
            }
            Problem::WrongParent { ino, says, is } => {
                write!(f, "directory {ino} says that it lies in {says}; its entry lies in {is}")
            }
            Problem::WrongLinkCount { ino, says, is } => {
                write!(f, "inode {ino} says that it has {says} names; it has {is}")
            }
            Problem::WrongEntryCount { ino, says, is } => {
                write!(f, "directory {ino} says that it has {says} entries; it has {is}")
            }
            Problem::WrongSubdirectoryCount { ino, says, is } => {
                write!(f, "directory {ino} has a link count of {says}; it should be {is}")
            }
            Problem::Orphan { ino } => write!(f, "no entry names inode {ino}"),
            Problem::UnreachableDirectory { ino } => write!(f, "no entry names directory {ino}"),
            Problem::DirectoryLoop { ino, dir, .. } => {
                write!(f, "directory {ino} in directory {dir} lies within itself, away from the root")
            }
            Problem::WrongOrphanRow { ino, named: true } => {
                write!(f, "inode {ino} waits to be removed, but has names")
            }
            Problem::WrongOrphanRow { ino, named: false } => {
                write!(f, "inode {ino} waits to be removed, but does not exist")
            }
            Problem::StrayRow { key, ino, .. } => {
                write!(f, "row {} belongs to inode {ino}, which does not know of it", shown(key))
            }
            Problem::MissingContent { ino, xattrs: false } => {
                write!(f, "the content of inode {ino} is missing")
            }
            Problem::MissingContent { ino, xattrs: true } => {
                write!(f, "the extended attributes of inode {ino} are missing")
            }
            Problem::SizeWithoutBlocks { ino, says, is } => {
                write!(f, "inode {ino} says that it has {says} bytes of content; {is} are there")
            }
            Problem::WrongAllocation { ino, says, is } => {
                write!(f, "inode {ino} says that it has {says} bytes of content; {is} are there")
            }
            Problem::ContentPastEnd { ino, says, is } => {
                write!(f, "inode {ino} has a size of {says} and content up to {is}")
            }
            Problem::WrongReferenceCount { block, says, is } => {
                let count = |n: &Option<u32>| n.map_or("none".to_owned(), |n| n.to_string());
                let (says, is) = (count(says), count(is));
                write!(f, "block {} has a count of references of {says}; it should be {is}", block.key())
            }
            Problem::UnsharedExtent { block, ino, chunk, references } => write!(
                f,
                "{references} extents name block {}; that of inode {ino} in chunk {chunk} says it is the only one",
                block.key()
            ),
            Problem::MissingBlock { block, ino, chunk } => {
                write!(
                    f,
                    "block {}, in chunk {chunk} of inode {ino}, is not in the object store",
                    block.key()
                )
            }
            Problem::CorruptBlock { block, ino, cause } => {
                write!(f, "block {}, of inode {ino}, is corrupt: {cause}", block.key())
            }
            Problem::LeakedBlock { block, bytes } => {
                write!(f, "nothing names block {} ({bytes} bytes)", block.key())
            }
            Problem::GarbageInUse { block, ino } => {
                write!(f, "block {} is to be deleted, but inode {ino} needs it", block.key())
            }
            Problem::LowInodeCounter { shard, says, needs } => {
                write!(f, "the inode counter of shard {shard} stands at {says}; it must be {needs} or more")
            }
            Problem::LowSessionCounter { says, needs } => {
                write!(f, "the counter of sessions stands at {says}; it must be {needs} or more")
            }
            Problem::WrongInodeCount { says, is } => {
                let says = says.map_or("is missing".to_owned(), |n| format!("says {n}"));
                write!(f, "the number of inodes {says}; there are {is}")
            }
            Problem::JournalDamage { cause } => write!(f, "the journal: {cause}"),
        }
    }
}

/// A row's key for people: its letter, then the rest in hexadecimal.
fn shown(key: &[u8]) -> String {
    let (tag, rest) = key.split_at(key.len().min(1));
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{rest}", String::from_utf8_lossy(tag).escape_default())
}
