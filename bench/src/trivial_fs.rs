//! The floor of FUSE: an in-memory file system that does as little as a correct one can.
//!
//! One lock for the table of inodes; file content has another, so that a large read does not hold the table. On two
//! dispatch threads the critical sections (well under a microsecond) are short beside the ten microseconds and more
//! of a FUSE round trip, so sharding would gain nothing.
//!
//! Invariants:
//! - No permission checks, neither here nor in the kernel.
//! - FLUSH is answered with success, as Chiton must (unless [`Answers::noflush`] asks the kernel not to send it).
//! - A directory stream sees the directory as it was when it was last at its beginning.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::trivial_tree::{Body, Inode, Listing, Tree, fresh, now};

/// How long the kernel may cache entries and attributes: nothing else changes them.
const KERNEL_CACHE: Duration = Duration::from_secs(24 * 3600);
const GENERATION: Generation = Generation(0);
/// Largest content that a write or truncation may make: the memory of a small machine, not an address space.
const FILE_BYTES_MAX: u64 = 64 << 30;

/// How the file system answers, where the kernel gives a choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Opens carry `FOPEN_NOFLUSH`: the kernel sends no FLUSH at close.
    pub noflush: bool,
}

/// The file system. Mount it with [`crate::trivial_mount::TrivialMount`].
pub struct TrivialFs {
    tree: Mutex<Tree>,
    listings: Mutex<HashMap<u64, Listing>>,
    next_listing: AtomicU64,
    open_flags: FopenFlags,
}

impl TrivialFs {
    /// An empty file system whose root belongs to `uid` and `gid`.
    pub fn new(uid: u32, gid: u32, answers: Answers) -> TrivialFs {
        let attr = FileAttr { ino: INodeNo::ROOT, uid, gid, ..fresh(FileType::Directory, 0o755) };
        let noflush = if answers.noflush { FopenFlags::FOPEN_NOFLUSH } else { FopenFlags::empty() };
        TrivialFs {
            tree: Mutex::new(Tree::with_root(attr)),
            listings: Mutex::new(HashMap::new()),
            next_listing: AtomicU64::new(1),
            open_flags: FopenFlags::FOPEN_KEEP_CACHE | noflush,
        }
    }

    fn make(&self, req: &Request, parent: INodeNo, name: &OsStr, new: New) -> Result<FileAttr, Errno> {
        let attr = FileAttr { uid: req.uid(), gid: req.gid(), ..fresh(new.kind, new.perm) };
        let attr = FileAttr { size: new.bytes, ..attr };
        let mut tree = self.tree.lock();
        let inode = tree.add(parent, name, attr, new.body)?;
        inode.opens = new.opens;
        Ok(inode.attr)
    }

    /// The rows of an open directory from `offset` on; offset 0 reads the directory anew.
    fn rows(&self, ino: INodeNo, fh: FileHandle, offset: u64) -> Result<(Listing, usize), Errno> {
        if offset == 0 {
            let listing = self.tree.lock().listing(ino)?;
            self.listings.lock().insert(fh.0, listing.clone());
            return Ok((listing, 0));
        }
        let listing = self.listings.lock().get(&fh.0).cloned().ok_or(Errno::EBADF)?;
        let skip = usize::try_from(offset).map_or(listing.len(), |o| o.min(listing.len()));
        Ok((listing, skip))
    }

    fn write_at(&self, ino: INodeNo, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end =
            offset.checked_add(data.len() as u64).filter(|&e| e <= FILE_BYTES_MAX).ok_or(Errno::EFBIG)?;
        let content = self.tree.lock().inode(ino)?.content()?;
        {
            let mut bytes = content.write();
            if offset as usize == bytes.len() {
                bytes.extend_from_slice(data);
            } else {
                if bytes.len() < end as usize {
                    bytes.resize(end as usize, 0);
                }
                bytes[offset as usize..end as usize].copy_from_slice(data);
            }
        }
        let mut tree = self.tree.lock();
        let inode = tree.inode(ino)?;
        inode.resized(inode.attr.size.max(end));
        Ok(())
    }
}

struct New {
    kind: FileType,
    perm: u32,
    bytes: u64,
    opens: u32,
    body: Body,
}

impl New {
    fn file(mode: u32, opens: u32) -> New {
        New { kind: FileType::RegularFile, perm: mode, bytes: 0, opens, body: Body::File(None) }
    }

    fn directory(mode: u32) -> New {
        New {
            kind: FileType::Directory,
            perm: mode,
            bytes: 0,
            opens: 0,
            body: Body::Directory(HashMap::new()),
        }
    }

    fn symlink(target: &[u8]) -> New {
        let bytes = target.len() as u64;
        New { kind: FileType::Symlink, perm: 0o777, bytes, opens: 0, body: Body::Symlink(target.into()) }
    }
}

fn given(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(at) => at,
        TimeOrNow::Now => now(),
    }
}

fn reply_entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.entry(&KERNEL_CACHE, &attr, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

fn reply_attr(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.attr(&KERNEL_CACHE, &attr),
        Err(errno) => reply.error(errno),
    }
}

fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

// Missing operations (xattr, locks, access, fallocate, lseek …) answer ENOSYS by the trait's default; the kernel
// asks once and then never again.
impl Filesystem for TrivialFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            // An older kernel without it is only slower.
            let _ = config.add_capabilities(wanted);
        }
        if let Err(most) = config.set_max_readahead(1 << 20) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = {
            let mut tree = self.tree.lock();
            tree.child(parent, name).and_then(|ino| Ok(tree.inode(ino)?.attr))
        };
        reply_entry(reply, found);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.tree.lock().inode(ino).map(|inode| inode.attr);
        reply_attr(reply, found);
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = || {
            if size.is_some_and(|bytes| bytes > FILE_BYTES_MAX) {
                return Err(Errno::EFBIG);
            }
            let mut tree = self.tree.lock();
            let inode = tree.inode(ino)?;
            if let Some(bytes) = size {
                inode.content()?.write().resize(bytes as usize, 0);
                inode.resized(bytes);
            }
            let attr = &mut inode.attr;
            attr.perm = mode.map_or(attr.perm, |m| (m & 0o7777) as u16);
            attr.uid = uid.unwrap_or(attr.uid);
            attr.gid = gid.unwrap_or(attr.gid);
            attr.atime = atime.map_or(attr.atime, given);
            attr.mtime = mtime.map_or(attr.mtime, given);
            attr.ctime = now();
            Ok(*attr)
        };
        reply_attr(reply, change());
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.tree.lock().inode(ino).map(|inode| &inode.body) {
            Ok(Body::Symlink(target)) => reply.data(target),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        reply_entry(reply, self.make(req, parent, name, New::directory(mode)));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        reply_entry(reply, self.make(req, parent, link_name, New::symlink(target.as_os_str().as_bytes())));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(req, parent, name, New::file(mode, 1)) {
            Ok(attr) => reply.created(&KERNEL_CACHE, &attr, GENERATION, FileHandle(0), self.open_flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.tree.lock().remove(parent, name, false);
        reply_empty(reply, result);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.tree.lock().remove(parent, name, true);
        reply_empty(reply, result);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let result = self.tree.lock().rename((parent, name), (newparent, newname), flags);
        reply_empty(reply, result);
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.tree.lock().inode(ino).map(|inode| inode.opens += 1);
        match opened {
            Ok(()) => reply.opened(FileHandle(0), self.open_flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let content = self.tree.lock().inode(ino).and_then(Inode::content);
        match content {
            Ok(content) => {
                let bytes = content.read();
                let start = (offset as usize).min(bytes.len());
                let end = start.saturating_add(size as usize).min(bytes.len());
                reply.data(&bytes[start..end]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_at(ino, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.tree.lock().closed(ino);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let fh = self.next_listing.fetch_add(1, Ordering::Relaxed);
        reply.opened(FileHandle(fh), FopenFlags::empty());
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.rows(ino, fh, offset) {
            Ok((listing, skip)) => {
                for (at, (name, attr)) in listing.iter().enumerate().skip(skip) {
                    if reply.add(attr.ino, at as u64 + 1, attr.kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.rows(ino, fh, offset) {
            Ok((listing, skip)) => {
                for (at, (name, attr)) in listing.iter().enumerate().skip(skip) {
                    if reply.add(attr.ino, at as u64 + 1, name, &KERNEL_CACHE, attr, GENERATION) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.lock().remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let files = self.tree.lock().len();
        let blocks = FILE_BYTES_MAX / 4096;
        reply.statfs(blocks, blocks, blocks, files, u64::MAX - files, 4096, 255, 4096);
    }
}
