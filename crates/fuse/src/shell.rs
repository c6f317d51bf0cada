//! The shell: every FUSE request becomes one call of a client, and every answer one reply. It decides only matters that only FUSE
//! knows (flags, offsets, time-outs). This file decodes requests and sends replies; the files of the folder call the client, by topic.
//!
//! Invariants:
//! - Handlers run on the dispatch threads; waits without a limit (locks) run elsewhere.
//! - FLUSH is always answered: one ENOSYS would switch it off for the whole mount, and with it the errors of
//!   close(2) and the release of POSIX locks.
//! - Without `default_permissions` the kernel does not check search rights on names that it caches. So it caches
//!   only names of directories that every user may search (the client's `ttl`), and drops all of them when a
//!   directory stops to be one.

mod attrs;
mod content;
mod dirs;
mod flags;
mod init;
mod names;
mod on_the_way;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiton_client::data::Whence;
use chiton_client::{Entry, Lookup};
use chiton_fuse_session::{
    AccessFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig,
    LockAsked, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, SetAttr, WriteFlags,
};
use chiton_model::{AttrChange, RenameHow};
use chiton_types::{Attr, Ino, Kind, Refusal, access};
use chiton_wire::{LockKind, StatFs};
use parking_lot::Mutex;

use crate::attr::{GENERATION, errno, file_attr, mode, set_time};
use crate::end_notice::EndNotice;
use crate::kernel::{Kernel, NameReply};
use crate::lock_waits::LockWaits;
use crate::panic_guard::{IMPATIENT, NOBODY, guarded};
use crate::range_lock;
use crate::reply;
use crate::router::Router;
use crate::shown_inodes::ShownInodes;
use crate::unnamed::Unnamed;

pub use self::init::NOT_DURABLE;

pub(crate) struct Shell {
    router: Arc<Router>,
    kernel: Arc<Kernel>,
    locks: Arc<LockWaits>,
    shared: Option<bool>,
    unmount_timeout: Duration,
    /// Path of the control socket.
    control: Option<Vec<u8>>,
    end_notice: EndNotice,
    shown: ShownInodes,
    unnamed: Unnamed,
    /// The last that was heard, for when the server is away: umount(8) asks for both.
    totals: Mutex<Option<StatFs>>,
    root: Mutex<Option<Attr>>,
    /// The number of the next handle of a directory.
    directory_handles: AtomicU64,
}

impl Shell {
    /// The inode that the kernel speaks of.
    fn ino(&self, number: INodeNo) -> Ino {
        if number == INodeNo::ROOT { self.kernel.root() } else { Ino(number.0) }
    }

    /// Whether other clients may now change what this mount shows.
    fn is_shared(&self) -> bool {
        self.shared.unwrap_or_else(|| self.router.global().is_shared())
    }

    /// Names may be kept only as long as they can be taken back at once.
    fn bounded(&self, ttl: Duration) -> NameReply<'_> {
        self.kernel.reply_with_name(ttl, self.is_shared())
    }

    /// Attributes in the kernel's form.
    fn shown_attr(&self, attr: &Attr) -> FileAttr {
        let ino = self.kernel.number(attr.ino);
        FileAttr { ino, shown_ino: self.shown.of(attr.ino), ..file_attr(attr) }
    }

    /// Records that the kernel gets these attributes, and may cache them for `attr_ttl`.
    fn note_cached(&self, attr: &Attr, attr_ttl: Duration) {
        if self.is_shared() && attr_ttl.is_zero() && attr.kind == Kind::File {
            self.kernel.note_unsure(attr.ino, attr.size);
        }
    }

    fn reply_entry(&self, reply: ReplyEntry, result: Result<Entry, Refusal>) {
        match result {
            Ok(entry) => {
                let name = self.bounded(entry.ttl);
                reply.entry_with_ttls(&entry.attr_ttl, &name.ttl, &self.shown_attr(&entry.attr), GENERATION);
            }
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn reply_attr(&self, reply: ReplyAttr, result: Result<Entry, Refusal>) {
        match result {
            Ok(entry) => reply.attr(&entry.attr_ttl, &self.shown_attr(&entry.attr)),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }
}

impl Filesystem for Shell {
    fn init(&mut self, config: &mut KernelConfig) -> io::Result<()> {
        self.greet(config);
        Ok(())
    }

    fn destroy(&self) {
        guarded("unmount", NOBODY, || self.end());
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        guarded("lookup", req.pid(), || match self.look_up(req, self.ino(parent), name.as_bytes()) {
            Ok(Lookup::Found { attr, ttl, attr_ttl }) => {
                self.note_cached(&attr, attr_ttl);
                let name = self.bounded(ttl);
                reply.entry_with_ttls(&attr_ttl, &name.ttl, &self.shown_attr(&attr), GENERATION);
            }
            Ok(Lookup::Absent { ttl }) => {
                let name = self.bounded(ttl);
                reply::absent(reply, name.ttl);
            }
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    // Inodes are known by number, however long the kernel remembers them.
    fn forget(&self, ino: INodeNo, _nlookup: u64) {
        self.kernel.moves.forgotten(self.ino(ino));
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let is_root = ino == INodeNo::ROOT;
        guarded("getattr", if is_root { IMPATIENT } else { req.pid() }, || {
            let entry = self.attributes(req, self.ino(ino));
            match &entry {
                Ok(entry) if is_root => *self.root.lock() = Some(entry.attr.clone()),
                Ok(entry) => self.note_cached(&entry.attr, entry.attr_ttl),
                Err(Refusal::Interrupted) if is_root => {
                    if let Some(attr) = &*self.root.lock() {
                        return reply.attr(&Duration::ZERO, &self.shown_attr(attr));
                    }
                }
                _ => {}
            }
            self.reply_attr(reply, entry);
        });
    }

    fn setattr(&self, req: &Request, ino: INodeNo, asked: &SetAttr, reply: ReplyAttr) {
        guarded("setattr", req.pid(), || {
            let owned = asked.uid.is_some() || asked.gid.is_some();
            let change = AttrChange {
                mode: asked.mode.map(mode),
                uid: asked.uid,
                gid: asked.gid,
                size: asked.size,
                size_by_handle: asked.fh.is_some(),
                atime: asked.atime.map(set_time),
                mtime: asked.mtime.map(set_time),
                kill_setid: owned || asked.kill_suidgid,
            };
            self.reply_attr(reply, self.set_attributes(req, self.ino(ino), &change, asked.fh));
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        guarded("readlink", req.pid(), || match self.link_target(req, self.ino(ino)) {
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
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        guarded("mknod", req.pid(), || {
            let made = self.make_node((req, umask), self.ino(parent), name.as_bytes(), new_mode, rdev);
            self.reply_entry(reply, made);
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        guarded("mkdir", req.pid(), || {
            let made = self.make_dir((req, umask), self.ino(parent), name.as_bytes(), mode(new_mode));
            self.reply_entry(reply, made);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("unlink", req.pid(), || {
            reply::empty(reply, self.remove(req, self.ino(parent), name.as_bytes(), false));
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("rmdir", req.pid(), || {
            reply::empty(reply, self.remove(req, self.ino(parent), name.as_bytes(), true));
        });
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        guarded("symlink", req.pid(), || {
            let target = target.as_os_str().as_bytes();
            self.reply_entry(reply, self.make_symlink(req, self.ino(parent), name.as_bytes(), target));
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
            const NOREPLACE_WHITEOUT: u32 = libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT;
            let how = match flags.bits() {
                0 => RenameHow::Replace,
                libc::RENAME_NOREPLACE => RenameHow::NoReplace,
                libc::RENAME_EXCHANGE => RenameHow::Exchange,
                libc::RENAME_WHITEOUT => RenameHow::Whiteout,
                NOREPLACE_WHITEOUT => RenameHow::NoReplaceWhiteout,
                _ => return reply.error(errno(Refusal::Invalid)),
            };
            let (from, to) = ((self.ino(parent), name.as_bytes()), (self.ino(newparent), newname.as_bytes()));
            reply::empty(reply, self.rename_name(req, from, to, how));
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        guarded("link", req.pid(), || {
            let result = self.make_link(req, self.ino(ino), self.ino(newparent), newname.as_bytes());
            self.reply_entry(reply, result);
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        guarded("create", req.pid(), || {
            let flags = chiton_client::OpenFlags::from_linux(flags);
            match self.make_file((req, umask), self.ino(parent), name.as_bytes(), mode(new_mode), flags) {
                Ok((entry, fh, how)) => {
                    let name = self.bounded(entry.ttl);
                    let attr = self.shown_attr(&entry.attr);
                    reply.created(&entry.attr_ttl, &name.ttl, &attr, GENERATION, fh, how);
                }
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn tmpfile(
        &self,
        req: &Request,
        parent: INodeNo,
        new_mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        guarded("tmpfile", req.pid(), || {
            let flags = chiton_client::OpenFlags::from_linux(flags);
            match self.make_unnamed((req, umask), self.ino(parent), mode(new_mode), flags) {
                Ok((entry, fh, how)) => {
                    let attr = self.shown_attr(&entry.attr);
                    reply.created(&entry.attr_ttl, &Duration::ZERO, &attr, GENERATION, fh, how);
                }
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        guarded("open", req.pid(), || {
            match self.open_file(req, self.ino(ino), chiton_client::OpenFlags::from_linux(flags.0)) {
                Ok((fh, how)) => reply.opened(fh, how),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn read(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        guarded("read", req.pid(), || self.read_file(req, (fh, self.ino(ino)), offset, size, reply));
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        reply: ReplyWrite,
    ) {
        guarded("write", req.pid(), || {
            let is_back = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
            match self.write_file(req, (fh, self.ino(ino)), offset, data, is_back) {
                Ok(n) => reply.written(n),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        guarded("flush", req.pid(), || {
            self.locks.drop_ranges(self.ino(ino), lock_owner.0);
            reply::empty(reply, self.flush_file(req, (fh, self.ino(ino))));
        });
    }

    fn release(&self, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        guarded("release", NOBODY, || {
            self.unnamed.closed(self.ino(ino));
            self.locks.drop_handle(self.ino(ino), fh);
            reply::empty(reply, self.router.release(fh));
        });
    }

    fn fsync(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        guarded("fsync", req.pid(), || {
            reply::empty(reply, self.sync_file(req, (fh, self.ino(ino)), datasync));
        });
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        guarded("opendir", req.pid(), || match self.open_dir(req, self.ino(ino)) {
            Ok(()) => {
                let handle = self.directory_handles.fetch_add(1, Ordering::Relaxed);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.kernel.listings.over(fh.0);
        guarded("readdir", req.pid(), || match self.list(req, self.ino(ino), offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = (self.ino(ino), fh.0);
        guarded("readdirplus", req.pid(), || match self.list_plus(req, listed, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn releasedir(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        self.kernel.listings.over(fh.0);
        self.kernel.listing_pages.over(fh.0);
        self.kernel.listing_use.over(fh.0);
        guarded("releasedir", NOBODY, || {
            self.close_dir(req, self.ino(ino));
            reply.ok();
        });
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        guarded("fsyncdir", req.pid(), || reply::empty(reply, self.sync_dir(req, self.ino(ino))));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        guarded("statfs", IMPATIENT, || match self.totals() {
            Ok(totals) => reply::totals(reply, &totals),
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
        reply: ReplyEmpty,
    ) {
        guarded("setxattr", req.pid(), || {
            reply::empty(reply, self.set_xattr(req, self.ino(ino), name.as_bytes(), value, flags));
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        guarded("getxattr", req.pid(), || {
            reply::xattr(reply, size, self.xattr(req, self.ino(ino), name.as_bytes()));
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        guarded("listxattr", req.pid(), || reply::xattr(reply, size, self.xattrs(req, self.ino(ino))));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("removexattr", req.pid(), || {
            reply::empty(reply, self.remove_xattr(req, self.ino(ino), name.as_bytes()));
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        command: u32,
        argument: &[u8],
        out_bytes: u32,
        reply: ReplyData,
    ) {
        guarded("ioctl", req.pid(), || match self.flags(req, self.ino(ino), command, argument) {
            Ok(flags) => {
                let mut out = vec![0; 16 + out_bytes as usize];
                out.iter_mut().skip(16).zip(flags.to_ne_bytes()).for_each(|(to, byte)| *to = byte);
                reply.data(&out);
            }
            Err(error) => reply.error(error),
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
            reply::empty(reply, self.may(req, self.ino(ino), want));
            if want == access::EXEC {
                self.note_entered(req, self.ino(ino));
            }
        });
    }

    fn getlk(&self, req: &Request, ino: INodeNo, fh: FileHandle, asked: &LockAsked, reply: ReplyLock) {
        guarded("getlk", req.pid(), || {
            match range_lock::of(self.ino(ino), fh, asked).and_then(|lock| self.locks.held(lock)) {
                Ok(None) => reply.locked(asked.start, asked.end, libc::F_UNLCK, 0),
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
        fh: FileHandle,
        asked: &LockAsked,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        guarded("setlk", req.pid(), || match range_lock::of(self.ino(ino), fh, asked) {
            Ok(lock) => {
                self.locks.set(lock, fh, sleep && lock.kind != LockKind::Unlock, req.pid(), reply);
            }
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        guarded("fallocate", req.pid(), || {
            reply::empty(reply, self.reserve(req, (fh, self.ino(ino)), mode, offset, length));
        });
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
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
            match offset.and_then(|offset| self.seek(req, (fh, self.ino(ino)), offset, whence)) {
                Ok(found) => reply.offset(found as i64),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
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
            let files = [(fh_in, self.ino(ino_in)), (fh_out, self.ino(ino_out))];
            match self.copy_range(req, files, [offset_in, offset_out], len) {
                Ok(copied) => reply.written(copied as u32),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }
}
