//! Problems in words.

use std::fmt;

use chiton_namespace::{ino_of, shard_of, tag, tag_of};

use crate::fsck::Problem;
use crate::fsck::problem::Lists;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::BadRow { key, cause, .. } => write!(f, "row {} does not decode: {cause}", shown(key)),
            Problem::MissingRoot => f.write_str("there is no root directory (inode 1)"),
            Problem::DanglingEntry { dir, name, ino } => {
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
            Problem::LostInode { ino, kind } => {
                write!(f, "rows of inode {ino}, a {kind:?}, are there, but not its own")
            }
            Problem::WrongParent { ino, says, is } => {
                write!(f, "inode {ino} says that it lies in {says}; its entry lies in {is}")
            }
            Problem::WrongHardLinks { ino, is } if is.is_empty() => {
                write!(f, "the directories of inode {ino} are listed, which has at most one name")
            }
            Problem::WrongHardLinks { ino, .. } => {
                write!(f, "the list of the directories of inode {ino} is not where its names are")
            }
            Problem::WrongPolicy { ino, is: Some(version) } => {
                write!(f, "directory {ino} does not carry the policy that change {version} gave it")
            }
            Problem::WrongPolicy { ino, is: None } => {
                write!(f, "inode {ino} carries a policy that it was not given, or cannot carry")
            }
            Problem::WrongPolicyHistory { version, is: Some(ino) } => {
                write!(
                    f,
                    "the history of policies does not say that change {version} gave directory {ino} its policy"
                )
            }
            Problem::WrongPolicyHistory { version, is: None } => {
                write!(f, "the history of policies has another change in the place of {version}")
            }
            Problem::StalePolicyHistory { plate, version } => {
                write!(
                    f,
                    "plate {plate} does not have change {version} in its history of policies as plate 0 has it"
                )
            }
            Problem::StalePolicy { plate, ino } => {
                write!(
                    f,
                    "plate {plate} has another policy of directory {ino} than the directory's own plate"
                )
            }
            Problem::UnreadableRows { after, before, cause, .. } => {
                f.write_str("the metadata store's rows ")?;
                match (after.is_empty(), before.is_empty()) {
                    (true, true) => f.write_str("cannot be read")?,
                    (true, false) => write!(f, "before {} cannot be read", range_words(before))?,
                    (false, true) => write!(f, "behind {} cannot be read", range_words(after))?,
                    (false, false) => write!(
                        f,
                        "between {} and {} cannot be read",
                        range_words(after),
                        range_words(before)
                    )?,
                }
                write!(f, ": {cause}")
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
            Problem::MissingPart { ino, part } => {
                write!(
                    f,
                    "directory {ino} lists part {part}, which does not exist: the names in its range are lost"
                )
            }
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
            Problem::WrongLists { ino, says, is } => {
                write!(f, "inode {ino} says that it has {says}; it has {is}")
            }
            Problem::BadList { ino, default } => {
                let which = if *default { "default" } else { "access" };
                write!(f, "the {which} control list of inode {ino} cannot be one")
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
            Problem::WrongReferenceCount { block, says, is, .. } => {
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
            Problem::LeakedBlock { block, bytes, .. } => {
                write!(f, "nothing names block {} ({bytes} bytes)", block.key())
            }
            Problem::GarbageInUse { block, ino, .. } => {
                write!(f, "block {} is to be deleted, but inode {ino} needs it", block.key())
            }
            Problem::LowInodeCounter { shard, says, needs, .. } => {
                write!(f, "the inode counter of shard {shard} stands at {says}; it must be {needs} or more")
            }
            Problem::LowSessionCounter { says, needs, .. } => {
                write!(f, "the counter of sessions stands at {says}; it must be {needs} or more")
            }
            Problem::WrongInodeCount { says, is, .. } => {
                let says = says.map_or("is missing".to_owned(), |n| format!("says {n}"));
                write!(f, "the number of inodes {says}; there are {is}")
            }
            Problem::JournalDamage { cause } => f.write_str(cause),
        }
    }
}

impl fmt::Display for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.access, self.default) {
            (false, false) => "no access control list",
            (true, false) => "an access list",
            (false, true) => "a default list",
            (true, true) => "an access list and a default list",
        })
    }
}

/// A row's key for people: its shard, its letter, then the rest in hexadecimal.
fn shown(key: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match (shard_of(key), key) {
        (Some(shard), [_, _, tag, rest @ ..]) => {
            format!("{}:{}:{}", hex(&shard.0.to_be_bytes()), tag.escape_ascii(), hex(rest))
        }
        _ => hex(key),
    }
}

/// The part of the store in which a row stands, in words.
fn range_words(key: &[u8]) -> String {
    match (tag_of(key), ino_of(key)) {
        (Some(tag::INODE), Some(ino)) => format!("inode {ino}"),
        (Some(tag::ENTRY), Some(dir)) => match key.get(17..).filter(|name| !name.is_empty()) {
            Some(name) => format!("entry {} of directory {dir}", super::super::rows::shown(name)),
            None => format!("an entry of directory {dir}"),
        },
        (Some(tag::CONTENT), Some(ino)) => format!("the content of inode {ino}"),
        (Some(tag::CHUNK), Some(ino)) => format!("the map of inode {ino}"),
        (Some(tag::XATTRS), Some(ino)) => format!("the extended attributes of inode {ino}"),
        _ => format!("row {}", shown(key)),
    }
}
