//! The repair of each problem, and advice where there is none.

use chiton_engine::{POSITION_KEY, SESSION, SESSION_OVER};
use chiton_namespace::{tag, tag_of};

use crate::fsck::Problem;

impl Problem {
    /// The repair; `None` if there is none.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Problem::BadRow { key, repairable: true, .. } => match tag_of(key)? {
                tag::ENTRY => {
                    "give its name back to the inode that lacks one there; if that is not certain, remove it"
                }
                SESSION => "end the session; operations that its client has not heard of are refused",
                SESSION_OVER => {
                    "remove it: a client of that session counts all that it had not settled as lost"
                }
                tag::LINKED => "list the directories anew",
                tag::HISTORY => "remove it; no policy changes",
                _ => "write it as the other rows say",
            },
            Problem::MissingRoot => "make it anew, for root only; its entries stay",
            Problem::DanglingEntry { .. } => "remove the entry",
            Problem::LostInode { .. } => "make it anew, for root only, with the content that there is",
            Problem::WrongHardLinks { is, .. } if is.is_empty() => "remove the list",
            Problem::WrongHardLinks { .. } => "list the directories anew",
            Problem::WrongPolicy { is: Some(_), .. } => "give the directory the policy of that change",
            Problem::WrongPolicy { is: None, .. } => "remove the policy; the history keeps it",
            Problem::WrongPolicyHistory { is: Some(_), .. } => "write the policy that the directory carries",
            Problem::WrongPolicyHistory { is: None, .. } => "remove the row",
            Problem::StalePolicyHistory { .. } => "write the change that plate 0 has",
            Problem::StalePolicy { .. } => "write the policy that the plate of the directory has",
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
            Problem::WrongLists { .. } => "make the inode know which lists it has",
            Problem::BadList { default: true, .. } => "remove the list",
            Problem::BadList { default: false, .. } => "remove the list, and take the group's rights away",
            Problem::SizeWithoutBlocks { .. } => {
                "write the bytes that there are; missing bytes read as zeros"
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

    /// Advice for a problem without a repair.
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Problem::BadRow { key, .. } if key == POSITION_KEY => {
                "chiton journal header set DATA expire_pos POSITION --rows finds and writes it"
            }
            Problem::UnreadableRows { .. } => {
                "restore the metadata store from a backup; without one, chiton dump saves what can be read, for chiton \
                 load into a new file system"
            }
            Problem::BadRow { .. } => {
                "restore the metadata store from a backup; all other readable files can be saved with chiton dump"
            }
            Problem::EntriesOutsideDirectory { .. } | Problem::StrayRow { adoptable: false, .. } => {
                "nothing is lost by leaving it; restore the metadata store from a backup to have it back"
            }
            Problem::MissingPart { .. } => {
                "move the other files of the directory to a new one, and restore the lost names from a backup"
            }
            Problem::MissingContent { xattrs: false, .. } => "restore the file from a backup, or remove it",
            Problem::MissingBlock { .. } | Problem::CorruptBlock { .. } => {
                "restore the object, or the file from a backup; other parts of the file can be read"
            }
            Problem::JournalDamage { .. } => {
                "look with chiton journal inspect, keep a copy with chiton journal export, then chiton journal reset; if a \
                 server is at work, end it in order first: it has everything in memory and writes a last checkpoint"
            }
            _ => return None,
        })
    }
}
