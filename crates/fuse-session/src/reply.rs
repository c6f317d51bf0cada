//! Replies. Each is of one shape; dropping it answers EIO.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use crate::attr::{Errno, FileAttr, FileType};
use crate::body::Body;
use crate::device::Device;
use crate::flags::FopenFlags;
use crate::numbers::{FileHandle, Generation};

/// The right, and the duty, to answer one request.
#[derive(Debug)]
pub(crate) struct Pending {
    device: Arc<Device>,
    unique: u64,
    is_answered: bool,
}

impl Pending {
    pub(crate) fn new(device: &Arc<Device>, unique: u64) -> Pending {
        Pending { device: device.clone(), unique, is_answered: false }
    }

    /// `more` follows the fixed part.
    fn answer(&mut self, mut body: Body, more: &[u8]) {
        self.is_answered = true;
        let fixed = body.finish(0, self.unique, more.len());
        let sent =
            if more.is_empty() { self.device.write(&[fixed]) } else { self.device.write(&[fixed, more]) };
        self.noted(sent);
    }

    pub(crate) fn refuse(&mut self, errno: Errno) {
        self.is_answered = true;
        let sent = self.device.write(&[Body::new().finish(-errno.code(), self.unique, 0)]);
        self.noted(sent);
    }

    fn noted(&self, sent: std::io::Result<()>) {
        if let Err(error) = sent {
            // ENOENT: the caller was killed meanwhile; ENODEV: the mount is gone.
            if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) {
                tracing::warn!("the kernel did not take the reply to request {}: {error}", self.unique);
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_answered {
            self.refuse(Errno::EIO);
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            pub(crate) pending: Pending,
        }

        impl $name {
            /// Refuses the request.
            pub fn error(mut self, errno: Errno) {
                self.pending.refuse(errno);
            }
        }
    )*};
}

replies! {
    /// Success without content, or a refusal.
    ReplyEmpty;
    /// The inode of a name.
    ReplyEntry;
    ReplyAttr;
    ReplyData;
    ReplyOpen;
    ReplyWrite;
    ReplyStatfs;
    /// A file was made, and is open.
    ReplyCreate;
    /// A lock that is in the way, or none.
    ReplyLock;
    ReplyLseek;
    /// The value of an extended attribute, or its size.
    ReplyXattr;
}

fn put_duration_secs(out: &mut Body, ttl: &Duration) {
    out.put_u64(ttl.as_secs());
}

/// Appends a `fuse_entry_out`.
fn put_entry(
    out: &mut Body,
    attr_ttl: &Duration,
    name_ttl: &Duration,
    attr: &FileAttr,
    generation: Generation,
) {
    out.put_u64(attr.ino.0);
    out.put_u64(generation.0);
    put_duration_secs(out, name_ttl);
    put_duration_secs(out, attr_ttl);
    out.put_u32(name_ttl.subsec_nanos());
    out.put_u32(attr_ttl.subsec_nanos());
    attr.put(out);
}

fn put_open(out: &mut Body, fh: FileHandle, how: FopenFlags) {
    out.put_u64(fh.0);
    out.put_u32(how.bits());
    out.put_u32(0);
}

impl ReplyEmpty {
    pub fn ok(mut self) {
        self.pending.answer(Body::new(), &[]);
    }
}

impl ReplyEntry {
    /// The inode, and for how long attributes and name may be kept. Inode 0: there is no such name.
    pub fn entry_with_ttls(
        mut self,
        attr_ttl: &Duration,
        name_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) {
        let mut body = Body::new();
        put_entry(&mut body, attr_ttl, name_ttl, attr, generation);
        self.pending.answer(body, &[]);
    }
}

impl ReplyAttr {
    /// The attributes, and for how long they may be kept.
    pub fn attr(mut self, ttl: &Duration, attr: &FileAttr) {
        let mut body = Body::new();
        put_duration_secs(&mut body, ttl);
        body.put_u32(ttl.subsec_nanos());
        body.put_u32(0);
        attr.put(&mut body);
        self.pending.answer(body, &[]);
    }
}

impl ReplyData {
    pub fn data(mut self, bytes: &[u8]) {
        self.pending.answer(Body::new(), bytes);
    }
}

impl ReplyOpen {
    /// The file is open.
    pub fn opened(mut self, fh: FileHandle, how: FopenFlags) {
        let mut body = Body::new();
        put_open(&mut body, fh, how);
        self.pending.answer(body, &[]);
    }
}

impl ReplyWrite {
    /// The number of written bytes.
    pub fn written(mut self, bytes: u32) {
        let mut body = Body::new();
        body.put_u32(bytes);
        body.put_u32(0);
        self.pending.answer(body, &[]);
    }
}

impl ReplyStatfs {
    /// Blocks: all, free, free to users; inodes: all, free; bytes of a block, of a name, of a fragment.
    #[allow(clippy::too_many_arguments)]
    pub fn statfs(
        mut self,
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
    ) {
        let mut body = Body::new();
        for number in [blocks, bfree, bavail, files, ffree] {
            body.put_u64(number);
        }
        for number in [bsize, namelen, frsize] {
            body.put_u32(number);
        }
        body.put(&[0; 28]);
        self.pending.answer(body, &[]);
    }
}

impl ReplyCreate {
    /// It was made and is open.
    pub fn created(
        mut self,
        attr_ttl: &Duration,
        name_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        fh: FileHandle,
        how: FopenFlags,
    ) {
        let mut body = Body::new();
        put_entry(&mut body, attr_ttl, name_ttl, attr, generation);
        put_open(&mut body, fh, how);
        self.pending.answer(body, &[]);
    }
}

impl ReplyLock {
    /// The lock that is in the way; `F_UNLCK`: none. `end` is inclusive.
    pub fn locked(mut self, start: u64, end: u64, kind: i32, pid: u32) {
        let mut body = Body::new();
        body.put_u64(start);
        body.put_u64(end);
        body.put(&kind.to_ne_bytes());
        body.put_u32(pid);
        self.pending.answer(body, &[]);
    }
}

impl ReplyLseek {
    /// The offset that was found, in bytes from the start of the file.
    pub fn offset(mut self, offset: i64) {
        let mut body = Body::new();
        body.put_u64(offset as u64);
        self.pending.answer(body, &[]);
    }
}

impl ReplyXattr {
    /// The length of the value.
    pub fn size(mut self, bytes: u32) {
        let mut body = Body::new();
        body.put_u32(bytes);
        body.put_u32(0);
        self.pending.answer(body, &[]);
    }

    /// The value of an attribute, or the names of all, each ended by NUL.
    pub fn data(mut self, value: &[u8]) {
        self.pending.answer(Body::new(), value);
    }
}

/// Bytes of an inode's number, lifetimes and attributes (a `fuse_entry_out`).
const ENTRY_BYTES: usize = 128;
/// Rows of a listing begin at multiples of this.
const ROW_ALIGN: usize = 8;

/// The room of a listing, which rows fill.
#[derive(Debug)]
struct Rows {
    bytes: Vec<u8>,
    room: usize,
}

impl Rows {
    fn new(room: u32) -> Rows {
        // The kernel asks for whole pages; there is no need to trust it with more memory than a listing takes.
        Rows { bytes: Vec::with_capacity((room as usize).min(64 << 10)), room: room as usize }
    }

    /// How many rows still fit whose names have so many bytes.
    fn left(&self, entry_bytes: usize, name_bytes: usize) -> usize {
        self.room.saturating_sub(self.bytes.len())
            / (entry_bytes + 24 + name_bytes).next_multiple_of(ROW_ALIGN)
    }

    /// Adds an entry. False: it does not fit.
    fn add(&mut self, entry: Option<&Body>, ino: u64, next: u64, kind: FileType, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let before = entry.map_or(0, |entry| entry.payload().len());
        let len = (before + 24 + name.len()).next_multiple_of(ROW_ALIGN);
        if self.bytes.len() + len > self.room {
            return false;
        }
        let end = self.bytes.len() + len;
        if let Some(entry) = entry {
            self.bytes.extend_from_slice(entry.payload());
        }
        self.bytes.extend_from_slice(&ino.to_ne_bytes());
        self.bytes.extend_from_slice(&next.to_ne_bytes());
        self.bytes.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.in_listing().to_ne_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

/// A part of a listing.
#[derive(Debug)]
pub struct ReplyDirectory {
    pending: Pending,
    rows: Rows,
}

impl ReplyDirectory {
    pub(crate) fn new(pending: Pending, room: u32) -> ReplyDirectory {
        ReplyDirectory { pending, rows: Rows::new(room) }
    }

    /// How many rows still fit whose names have so many bytes.
    pub fn rows_left(&self, name_bytes: usize) -> usize {
        self.rows.left(0, name_bytes)
    }

    /// Adds a row, after which a listing is resumed at `next`; true if there was no room for it.
    #[must_use]
    pub fn add(&mut self, shown_ino: u64, next: u64, kind: FileType, name: &OsStr) -> bool {
        !self.rows.add(None, shown_ino, next, kind, name)
    }

    /// The rows that were added; none: the listing ends.
    pub fn ok(mut self) {
        self.pending.answer(Body::new(), &self.rows.bytes);
    }

    /// Refuses the request.
    pub fn error(mut self, errno: Errno) {
        self.pending.refuse(errno);
    }
}

/// A part of a listing with attributes.
#[derive(Debug)]
pub struct ReplyDirectoryPlus {
    pending: Pending,
    rows: Rows,
}

impl ReplyDirectoryPlus {
    pub(crate) fn new(pending: Pending, room: u32) -> ReplyDirectoryPlus {
        ReplyDirectoryPlus { pending, rows: Rows::new(room) }
    }

    /// How many rows still fit whose names have so many bytes.
    pub fn rows_left(&self, name_bytes: usize) -> usize {
        self.rows.left(ENTRY_BYTES, name_bytes)
    }

    /// Adds a row, after which a listing is resumed at `next`; true if there was no room for it.
    #[must_use]
    pub fn add(
        &mut self,
        next: u64,
        name: &OsStr,
        attr_ttl: &Duration,
        name_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) -> bool {
        let mut entry = Body::new();
        put_entry(&mut entry, attr_ttl, name_ttl, attr, generation);
        !self.rows.add(Some(&entry), attr.shown_ino, next, attr.kind, name)
    }

    /// Adds a row without attributes: the kernel looks up the name when it is used. True if there was no room for it.
    #[must_use]
    pub fn add_name(&mut self, next: u64, name: &OsStr, shown_ino: u64, kind: FileType) -> bool {
        // Number 0 stands for an entry that is not given.
        let mut entry = Body::new();
        (0..ENTRY_BYTES / 8).for_each(|_| entry.put_u64(0));
        !self.rows.add(Some(&entry), shown_ino, next, kind, name)
    }

    /// Removes the rows that were added.
    pub fn clear(&mut self) {
        self.rows.bytes.clear();
    }

    /// The rows that were added; none: the listing ends.
    pub fn ok(mut self) {
        self.pending.answer(Body::new(), &self.rows.bytes);
    }

    /// Refuses the request.
    pub fn error(mut self, errno: Errno) {
        self.pending.refuse(errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Timestamp;
    use crate::numbers::INodeNo;

    #[test]
    fn rows_are_aligned_and_end_where_the_room_does() {
        let mut rows = Rows::new(100);
        assert!(rows.add(None, 7, 9, FileType::Directory, OsStr::new("abc")));
        assert_eq!(rows.bytes.len(), 32);
        assert_eq!(rows.bytes[20..24], 4u32.to_ne_bytes());
        assert_eq!(&rows.bytes[24..32], b"abc\0\0\0\0\0");
        assert!(rows.add(None, 7, 9, FileType::Symlink, OsStr::new("01234567")));
        assert!(rows.add(None, 7, 9, FileType::Symlink, OsStr::new("0123")));
        assert_eq!(rows.bytes.len(), 96);
        assert_eq!((Rows::new(4096).left(0, 12), Rows::new(4096).left(ENTRY_BYTES, 12)), (102, 24));
        assert_eq!((rows.left(0, 1), rows.left(ENTRY_BYTES, 1)), (0, 0));
        assert!(!rows.add(None, 7, 9, FileType::Symlink, OsStr::new("0")));
    }

    #[test]
    fn an_entry_has_the_kernel_s_layout() {
        let attr = FileAttr {
            ino: INodeNo(1 << 40),
            shown_ino: 5,
            size: 10,
            blocks: 1,
            atime: Timestamp { secs: -1, nanos: 3 },
            mtime: Timestamp::EPOCH,
            ctime: Timestamp::EPOCH,
            kind: FileType::RegularFile,
            perm: 0o644,
            nlink: 2,
            uid: 11,
            gid: 12,
            rdev: 0,
            blksize: 4096,
        };
        let mut body = Body::new();
        let (attr_ttl, name_ttl) = (Duration::new(2, 3), Duration::new(4, 5));
        put_entry(&mut body, &attr_ttl, &name_ttl, &attr, Generation(6));
        let bytes = body.payload();
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8"));
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4"));
        assert_eq!(bytes.len(), 128);
        assert_eq!([long(0), long(8), long(16), long(24)], [1 << 40, 6, 4, 2]);
        assert_eq!([word(32), word(36)], [5, 3]);
        assert_eq!([long(40), long(48), long(56), long(64)], [5, 10, 1, u64::MAX]);
        assert_eq!(word(88), 3);
        assert_eq!(word(100), libc::S_IFREG | 0o644);
        assert_eq!([word(104), word(108), word(112), word(116), word(120)], [2, 11, 12, 0, 4096]);
    }
}
