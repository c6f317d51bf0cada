//! The shell: every FUSE request becomes one call of the client, every answer one reply. It decides nothing but
//! what only FUSE knows (flags, offsets, time-outs).
//!
//! Invariants:
//! - Handlers run on the dispatch threads; what may wait without end (locks) does so elsewhere.
//! - FLUSH is always answered: one ENOSYS would switch it off for the whole mount, and with it the errors of
//!   close(2) and the release of POSIX locks.
//! - Without `default_permissions` the kernel does not check search rights on names that it holds, so it holds
//!   names only of directories that everybody may search (the client's `ttl`), and forgets all of them when a
//!   directory stops being one.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chiton_client::data::Whence;
use chiton_client::{Client, Entry, Lookup};
use chiton_namespace::{AttrChange, RenameHow, XattrHow};
use chiton_proto::{LockKind, StatFs};
use chiton_types::{Attr, Ino, NAME_BYTES_MAX, Refusal, access};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use parking_lot::Mutex;

use crate::MountOptions;
use crate::attr::{GENERATION, errno, file_attr, kind_of_mode, mode, set_time};
use crate::caller::as_caller;
use crate::guard::{self, IMPATIENT, NOBODY, guarded};
use crate::kernel::Kernel;
use crate::listing;
use crate::lock_waits::LockWaits;
use crate::range_lock;
use crate::reply;

/// Largest read or write that the kernel sends in one request, in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel lets run in the background (read-ahead, asynchronous I/O).
const BACKGROUND_MAX: u16 = 64;
/// Most bytes that one copy_file_range request copies; the caller asks again for the rest.
const COPY_BYTES_MAX: u64 = 1 << 30;
const STATFS_BLOCK_BYTES: u32 = 4096;
/// Directories are known by number, not by handle.
const NO_HANDLE: FileHandle = FileHandle(0);

/// What a mount says that ends and leaves something undone; `chiton umount` looks for it.
pub const NOT_DURABLE: &str = "unmount: not everything could be made durable";

thread_local! {
    /// Where a dispatch thread reads file content into on its way to the kernel.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One mounted client.
pub(crate) struct Shell {
    client: Arc<Client>,
    kernel: Arc<Kernel>,
    locks: Arc<LockWaits>,
    is_shared: bool,
    unmount_timeout: Duration,
    /// The last that was heard, for when the server is away: umount(8) asks for both.
    totals: Mutex<Option<StatFs>>,
    root: Mutex<Option<Attr>>,
}

impl Shell {
    pub(crate) fn new(client: Arc<Client>, kernel: Arc<Kernel>, options: &MountOptions) -> Shell {
        let is_shared = options.shared.unwrap_or(!client.is_embedded());
        client.set_interrupted(Box::new(guard::caller_is_signalled));
        Shell {
            locks: LockWaits::new(client.clone()),
            client,
            kernel,
            is_shared,
            unmount_timeout: options.unmount_timeout,
            totals: Mutex::default(),
            root: Mutex::default(),
        }
    }

    /// Totals of the file system; those heard last if the server is away.
    fn totals(&self) -> Result<StatFs, Refusal> {
        match self.client.statfs() {
            Ok(totals) => {
                *self.totals.lock() = Some(totals);
                Ok(totals)
            }
            Err(Refusal::Interrupted) => Ok(self.totals.lock().unwrap_or_default()),
            Err(refusal) => Err(refusal),
        }
    }

    fn capabilities(&self) -> impl Iterator<Item = InitFlags> {
        // Who shares files believes cached pages as long as the attributes under a lease; who is alone, always.
        let invalidation = if self.is_shared {
            InitFlags::FUSE_AUTO_INVAL_DATA
        } else {
            InitFlags::FUSE_EXPLICIT_INVAL_DATA
        };
        // Not FUSE_ATOMIC_O_TRUNC: the kernel would have the open empty a file before it sees that it is being
        // executed, and refuses the open.
        [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_CACHE_SYMLINKS,
            invalidation,
        ]
        .into_iter()
    }

    /// How the kernel is to treat an open file. `had_content`: the lease on it was there before this open, so what
    /// the kernel still has of it is true.
    fn open_answer(&self, flags: chiton_client::OpenFlags, had_content: bool) -> FopenFlags {
        // A buffered write waits for its lease with pages locked, which a recall has to invalidate: two mounts that
        // both want to write what both have read would wait for each other.
        if flags.direct || (self.is_shared && flags.write) {
            return FopenFlags::FOPEN_DIRECT_IO;
        }
        if had_content { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
    }

    fn had_content(&self, ino: Ino) -> bool {
        !self.is_shared || self.client.has_content(ino)
    }

    /// Names may be kept only as long as they can be taken back at once.
    fn bounded(&self, ttl: Duration) -> Duration {
        ttl.min(self.kernel.name_ttl_max(self.is_shared))
    }

    fn reply_entry(&self, reply: ReplyEntry, result: Result<Entry, Refusal>) {
        match result {
            Ok(entry) => {
                let ttl = self.bounded(entry.ttl);
                reply.entry_with_ttls(&entry.attr_ttl, &ttl, &file_attr(&entry.attr), GENERATION);
            }
            Err(refusal) => reply.error(errno(refusal)),
        }
    }
}

impl Filesystem for Shell {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in self.capabilities() {
            // One by one: of several none is taken if one is missing. What is missing is slower, or answered
            // differently (docs/semantics.md).
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        guarded("unmount", NOBODY, || {
            self.locks.close();
            self.kernel.close();
            self.client.leave(self.unmount_timeout);
            let Err(refusal) = self.client.sync() else { return };
            eprintln!("chiton: {NOT_DURABLE}: {refusal}");
            let (bytes, operations) = self.client.at_stake();
            if refusal == Refusal::NotConnected {
                eprintln!(
                    "chiton: the server has not answered for {} s and is waited for no longer: {bytes} bytes that were \
                     written and not handed over are lost; {operations} operations are there if the server had them \
                     on its disk, else they are lost",
                    self.unmount_timeout.as_secs()
                );
            }
        });
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        guarded("lookup", req.pid(), || {
            match as_caller(req, |caller| self.client.lookup(caller, Ino(parent.0), name.as_bytes())) {
                Ok(Lookup::Found { attr, ttl, attr_ttl }) => {
                    reply.entry_with_ttls(&attr_ttl, &self.bounded(ttl), &file_attr(&attr), GENERATION);
                }
                Ok(Lookup::Absent { ttl }) => reply::absent(reply, self.bounded(ttl)),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    // Inodes are known by number, however long the kernel remembers them.
    fn forget(&self, _req: &Request, _ino: INodeNo, _nlookup: u64) {}

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let is_root = ino == INodeNo::ROOT;
        guarded("getattr", if is_root { IMPATIENT } else { req.pid() }, || {
            let entry = self.client.getattr(Ino(ino.0), fh.map(|fh| fh.0));
            match &entry {
                Ok(entry) if is_root => *self.root.lock() = Some(entry.attr.clone()),
                Err(Refusal::Interrupted) if is_root => {
                    if let Some(attr) = &*self.root.lock() {
                        return reply.attr(&Duration::ZERO, &file_attr(attr));
                    }
                }
                _ => {}
            }
            reply::attr(reply, entry);
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        new_mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        guarded("setattr", req.pid(), || {
            let owned = uid.is_some() || gid.is_some();
            let change = AttrChange {
                mode: new_mode.map(mode),
                uid,
                gid,
                size,
                size_by_handle: fh.is_some(),
                atime: atime.map(set_time),
                mtime: mtime.map(set_time),
                // fuser drops the kernel's word for it (FATTR_KILL_SUIDGID).
                kill_setid: owned || (size.is_some() && req.uid() != 0),
            };
            let result =
                as_caller(req, |caller| self.client.setattr(caller, Ino(ino.0), change, fh.map(|fh| fh.0)));
            reply::attr(reply, result);
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        guarded("readlink", req.pid(), || match self.client.readlink(Ino(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        guarded("mknod", req.pid(), || {
            let result = kind_of_mode(new_mode).ok_or(Refusal::Invalid).and_then(|kind| {
                as_caller(req, |caller| {
                    self.client.mknod(caller, Ino(parent.0), name.as_bytes(), kind, mode(new_mode), rdev)
                })
            });
            self.reply_entry(reply, result);
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        guarded("mkdir", req.pid(), || {
            let result = as_caller(req, |caller| {
                self.client.mkdir(caller, Ino(parent.0), name.as_bytes(), mode(new_mode))
            });
            self.reply_entry(reply, result);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("unlink", req.pid(), || {
            reply::empty(
                reply,
                as_caller(req, |caller| self.client.unlink(caller, Ino(parent.0), name.as_bytes())),
            );
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("rmdir", req.pid(), || {
            reply::empty(
                reply,
                as_caller(req, |caller| self.client.rmdir(caller, Ino(parent.0), name.as_bytes())),
            );
        });
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        guarded("symlink", req.pid(), || {
            let target = target.as_os_str().as_bytes();
            let result =
                as_caller(req, |caller| self.client.symlink(caller, Ino(parent.0), name.as_bytes(), target));
            self.reply_entry(reply, result);
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        guarded("rename", req.pid(), || {
            let how = match flags {
                RenameFlags::RENAME_NOREPLACE => RenameHow::NoReplace,
                RenameFlags::RENAME_EXCHANGE => RenameHow::Exchange,
                flags if flags.is_empty() => RenameHow::Replace,
                _ => return reply.error(errno(Refusal::Invalid)),
            };
            let (from, to) = (Ino(parent.0), Ino(newparent.0));
            let result = as_caller(req, |caller| {
                self.client.rename(caller, from, name.as_bytes(), to, newname.as_bytes(), how)
            });
            reply::empty(reply, result);
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        guarded("link", req.pid(), || {
            let result = as_caller(req, |caller| {
                self.client.link(caller, Ino(ino.0), Ino(newparent.0), newname.as_bytes())
            });
            self.reply_entry(reply, result);
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        guarded("create", req.pid(), || {
            let flags = chiton_client::OpenFlags::from_linux(flags);
            let result = as_caller(req, |caller| {
                self.client.create(caller, Ino(parent.0), name.as_bytes(), mode(new_mode), flags)
            });
            match result {
                Ok((entry, fh)) => {
                    // fuser has one time-out for both here.
                    let ttl = self.bounded(entry.ttl.min(entry.attr_ttl));
                    let answer = self.open_answer(flags, !self.is_shared);
                    reply.created(&ttl, &file_attr(&entry.attr), GENERATION, FileHandle(fh), answer);
                }
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        guarded("open", req.pid(), || {
            let ino = Ino(ino.0);
            let flags = chiton_client::OpenFlags::from_linux(flags.0);
            let had_content = self.had_content(ino);
            match as_caller(req, |caller| self.client.open(caller, ino, flags)) {
                Ok(fh) => reply.opened(FileHandle(fh), self.open_answer(flags, had_content)),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        guarded("read", req.pid(), || {
            READ_BUFFER.with_borrow_mut(|buffer| {
                let len = size.min(REQUEST_BYTES_MAX) as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                match self.client.read_into(fh.0, offset, &mut buffer[..len]) {
                    Ok(n) => reply.data(&buffer[..n]),
                    Err(refusal) => reply.error(errno(refusal)),
                }
            });
            if self.is_shared && !self.client.has_content(Ino(ino.0)) {
                // Answered while the lease was being taken back: nobody else will tell the kernel when these pages
                // are no longer true.
                self.kernel.inval_inode_later(Ino(ino.0));
            }
        });
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        guarded("write", req.pid(), || {
            let result = as_caller(req, |caller| match write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                true => self.client.write_back(caller, fh.0, offset, data),
                false => self.client.write(caller, fh.0, offset, data),
            });
            match result {
                Ok(n) => reply.written(n),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        guarded("flush", req.pid(), || {
            self.locks.drop_owner(Ino(ino.0), lock_owner.0);
            reply::empty(reply, self.client.flush(fh.0));
        });
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        guarded("release", NOBODY, || {
            if let Some(owner) = lock_owner {
                self.locks.drop_owner(Ino(ino.0), owner.0);
            }
            reply::empty(reply, self.client.release(fh.0));
        });
    }

    fn fsync(&self, req: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        guarded("fsync", req.pid(), || reply::empty(reply, self.client.fsync(fh.0, datasync)));
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        guarded("opendir", req.pid(), || {
            match as_caller(req, |caller| self.client.opendir(caller, Ino(ino.0))) {
                Ok(()) => reply.opened(NO_HANDLE, FopenFlags::empty()),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn readdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        guarded("readdir", req.pid(), || {
            let result = listing::read(&self.client, req, Ino(ino.0), offset, false, |row| {
                reply.add(INodeNo(row.ino.0), row.offset, row.kind, OsStr::from_bytes(row.name))
            });
            match result {
                Ok(()) => reply.ok(),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        guarded("readdirplus", req.pid(), || {
            let result = listing::read(&self.client, req, Ino(ino.0), offset, true, |row| {
                let (attr, ttl) = row.plus();
                // The kernel stamps what a listing tells when it takes it in, not when it asked (as for a lookup): a name
                // that was taken back in between would be believed.
                let ttl = if self.is_shared { Duration::ZERO } else { self.bounded(ttl) };
                let name = OsStr::from_bytes(row.name);
                reply.add(attr.ino, row.offset, name, &ttl, &attr, GENERATION)
            });
            match result {
                Ok(()) => reply.ok(),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        guarded("releasedir", NOBODY, || {
            self.client.closedir(Ino(ino.0));
            reply.ok();
        });
    }

    fn fsyncdir(&self, req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        guarded("fsyncdir", req.pid(), || reply::empty(reply, self.client.fsyncdir()));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        guarded("statfs", IMPATIENT, || match self.totals() {
            Ok(totals) => {
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
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        guarded("setxattr", req.pid(), || {
            let how = match flags {
                0 => XattrHow::Set,
                libc::XATTR_CREATE => XattrHow::Create,
                libc::XATTR_REPLACE => XattrHow::Replace,
                _ => return reply.error(errno(Refusal::Invalid)),
            };
            let result = xattr_name(name).and_then(|name| {
                as_caller(req, |caller| self.client.setxattr(caller, Ino(ino.0), name, value, how))
            });
            reply::empty(reply, result);
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        guarded("getxattr", req.pid(), || {
            let result = xattr_name(name)
                .and_then(|name| as_caller(req, |caller| self.client.getxattr(caller, Ino(ino.0), name)));
            reply::xattr(reply, size, result);
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        guarded("listxattr", req.pid(), || {
            reply::xattr(reply, size, as_caller(req, |caller| self.client.listxattr(caller, Ino(ino.0))));
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("removexattr", req.pid(), || {
            let result = xattr_name(name)
                .and_then(|name| as_caller(req, |caller| self.client.removexattr(caller, Ino(ino.0), name)));
            reply::empty(reply, result);
        });
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        guarded("access", req.pid(), || {
            let want = [
                (AccessFlags::R_OK, access::READ),
                (AccessFlags::W_OK, access::WRITE),
                (AccessFlags::X_OK, access::EXEC),
            ];
            let want = want.iter().filter(|(bit, _)| mask.contains(*bit)).fold(0, |all, (_, bit)| all | bit);
            reply::empty(reply, as_caller(req, |caller| self.client.access(caller, Ino(ino.0), want)));
        });
    }

    fn getlk(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        guarded("getlk", req.pid(), || {
            let result = range_lock::of(Ino(ino.0), lock_owner.0, start, end, typ, pid)
                .and_then(|lock| self.client.getlk(lock));
            match result {
                Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
                Ok(Some(held)) => {
                    reply.locked(
                        held.start,
                        range_lock::kernel_end(held.end),
                        range_lock::kernel_kind(held.kind),
                        held.pid,
                    );
                }
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        guarded("setlk", req.pid(), || {
            match range_lock::of(Ino(ino.0), lock_owner.0, start, end, typ, pid) {
                Ok(lock) => self.locks.set(lock, sleep && lock.kind != LockKind::Unlock, req.pid(), reply),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        guarded("fallocate", req.pid(), || {
            let result = as_caller(req, |caller| self.client.fallocate(caller, fh.0, mode, offset, length));
            reply::empty(reply, result);
        });
    }

    fn lseek(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        guarded("lseek", req.pid(), || {
            let whence = match whence {
                libc::SEEK_DATA => Whence::Data,
                libc::SEEK_HOLE => Whence::Hole,
                _ => return reply.error(errno(Refusal::Invalid)),
            };
            let offset = u64::try_from(offset).map_err(|_| Refusal::NoData);
            match offset.and_then(|offset| self.client.seek(fh.0, offset, whence)) {
                Ok(found) => reply.offset(found as i64),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        guarded("copy_file_range", req.pid(), || {
            if !flags.is_empty() {
                return reply.error(errno(Refusal::Invalid));
            }
            let len = len.min(COPY_BYTES_MAX);
            let result = as_caller(req, |caller| {
                self.client.copy_range(caller, fh_in.0, offset_in, fh_out.0, offset_out, len)
            });
            match result {
                Ok(copied) => reply.written(copied as u32),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }
}

/// Access control lists are not supported; saying so makes tools fall back to the mode.
fn xattr_name(name: &OsStr) -> Result<&[u8], Refusal> {
    let name = name.as_bytes();
    if name.starts_with(b"system.") { Err(Refusal::Unsupported) } else { Ok(name) }
}
