//! Replies of the few shapes that most handlers share.

use std::time::Duration;

use chiton_fuse_session::{
    FileAttr, FileType, INodeNo, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyXattr, Timestamp,
};
use chiton_types::{NAME_BYTES_MAX, Refusal};
use chiton_wire::StatFs;

use crate::attr::{GENERATION, errno};

const STATFS_BLOCK_BYTES: u32 = 4096;

pub(crate) fn empty(reply: ReplyEmpty, result: Result<(), Refusal>) {
    match result {
        Ok(()) => reply.ok(),
        Err(refusal) => reply.error(errno(refusal)),
    }
}

/// There is no such name, and the kernel may remember that for a while.
pub(crate) fn absent(reply: ReplyEntry, ttl: Duration) {
    if ttl.is_zero() {
        return reply.error(errno(Refusal::NotFound));
    }
    // Inode 0 marks a negative entry; the kernel ignores the other fields.
    reply.entry_with_ttls(&Duration::ZERO, &ttl, &NOTHING, GENERATION);
}

const NOTHING: FileAttr = FileAttr {
    ino: INodeNo(0),
    shown_ino: 0,
    size: 0,
    blocks: 0,
    atime: Timestamp::EPOCH,
    mtime: Timestamp::EPOCH,
    ctime: Timestamp::EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
};

/// A value for a caller with room for `size` bytes; 0 asks how many there are.
pub(crate) fn xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Refusal>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Refusal::Range)),
        Ok(value) => reply.data(&value),
        Err(refusal) => reply.error(errno(refusal)),
    }
}

pub(crate) fn totals(reply: ReplyStatfs, totals: &StatFs) {
    let block = u64::from(STATFS_BLOCK_BYTES);
    let (all, free) = (totals.bytes_total / block, totals.bytes_free / block);
    // Inodes are limited by memory and disk alone.
    let free_inodes = (1 << 48) - totals.inodes_used.min(1 << 48);
    let inodes = totals.inodes_used + free_inodes;
    let name_bytes_max = NAME_BYTES_MAX as u32;
    reply.statfs(
        all,
        free,
        free,
        inodes,
        free_inodes,
        STATFS_BLOCK_BYTES,
        name_bytes_max,
        STATFS_BLOCK_BYTES,
    );
}
