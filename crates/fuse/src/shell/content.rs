//! Open files and their content.

use std::cell::RefCell;

use chiton_client::OpenFlags;
use chiton_client::data::Whence;
use chiton_fuse_session::{FileHandle, FopenFlags, ReplyData, Request};
use chiton_types::{Ino, Refusal};
use chiton_wire::Grown;

use super::Shell;
use crate::attr::errno;
use crate::caller::as_caller;
use crate::router::{CachedByKernel, Handle, Route};

/// Largest write that the kernel sends in one request, in bytes. From a buffer that does not begin with a page it touches one page
/// more than it fills; the kernel sends it in one piece if it allows as many pages (`fs.fuse.max_pages_limit`).
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Largest read: of as many pages.
const READ_BYTES_MAX: u32 = REQUEST_BYTES_MAX + 4096;
/// Most bytes that one copy_file_range request copies; the caller asks again for the rest.
const COPY_BYTES_MAX: u64 = 1 << 30;

thread_local! {
    /// Where a dispatch thread reads file content into on its way to the kernel.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An open file as the kernel speaks of it.
type Open = (FileHandle, Ino);

impl CachedByKernel for (FileHandle, FopenFlags) {}

impl Shell {
    /// The kernel's handle of a file that the client opened by a number, and the flags with which the kernel treats it.
    /// `had_content`: the content that the kernel still caches is valid.
    pub(super) fn open_answer(
        &self,
        route: &Route<'_>,
        ino: Ino,
        (number, flags): (u64, OpenFlags),
        had_content: bool,
    ) -> (FileHandle, FopenFlags) {
        let how = self.treatment(route, ino, flags, had_content);
        let mut handle = route.opened(number, ino, flags);
        if flags.write && !how.contains(FopenFlags::FOPEN_DIRECT_IO) {
            handle = handle.paged();
        }
        (FileHandle(handle.0), how)
    }

    fn treatment(&self, route: &Route<'_>, ino: Ino, flags: OpenFlags, had_content: bool) -> FopenFlags {
        // A buffered write waits for its lease with pages locked, which a recall must invalidate. Two mounts that
        // both write a file that both have read would wait for each other. In a realm there is no other client.
        if flags.direct || (self.is_shared() && flags.write && !route.is_realm()) {
            return FopenFlags::FOPEN_DIRECT_IO;
        }
        // Another client writes the file, and the file's policy does not ask that client at each read (S2a). A
        // cached page up to the former end would show zeros behind it as soon as the kernel learns of a later end.
        if !self.may_keep(route, ino) {
            return FopenFlags::FOPEN_DIRECT_IO;
        }
        if had_content { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
    }

    /// Whether the kernel is notified when cached content of a file becomes invalid.
    fn may_keep(&self, route: &Route<'_>, ino: Ino) -> bool {
        !self.is_shared() || route.is_realm() || route.has_content(ino)
    }

    /// Whether the kernel's cached content of a file is valid: the lease on it existed before this open.
    fn had_content(&self, route: &Route<'_>, ino: Ino) -> bool {
        match route {
            Route::Global(client) => !self.is_shared() || client.has_content(ino),
            Route::Realm(slot) => slot.had_content(ino),
        }
    }

    pub(super) fn open_file(
        &self,
        req: &Request,
        ino: Ino,
        flags: OpenFlags,
    ) -> Result<(FileHandle, FopenFlags), Refusal> {
        as_caller(req, |caller| {
            self.router.on(caller, [ino], |route| {
                let had_content = self.had_content(route, ino);
                let number = route.open(caller, ino, flags)?;
                self.unnamed.opened(ino);
                if flags.read && !route.is_realm() {
                    self.end_known(route, ino, number);
                }
                Ok(self.open_answer(route, ino, (number, flags), had_content))
            })
        })
    }

    /// Another mount was writing the file when the kernel looked it up. The file may be longer than the kernel
    /// knows, and a process that maps it without reading its attributes would see the old end.
    fn end_known(&self, route: &Route<'_>, ino: Ino, number: u64) {
        let Some(known) = self.kernel.take_unsure(ino) else { return };
        let Ok(entry) = route.getattr(ino, None) else { return };
        let size = entry.attr.size;
        let mut last = [0];
        if size > known && matches!(route.read_into(number, size - 1, &mut last), Ok(1)) {
            self.kernel.grown_soon(ino, Grown { size, last: last[0] });
        }
    }

    pub(super) fn read_file(&self, req: &Request, file: Open, offset: u64, size: u32, reply: ReplyData) {
        let mut is_leased = true;
        READ_BUFFER.with_borrow_mut(|buffer| {
            let len = size.min(READ_BYTES_MAX) as usize;
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let read = as_caller(req, |caller| {
                self.router.on_files(caller, [file], |route, [number]| {
                    let read = route.read_into(number, offset, &mut buffer[..len]);
                    is_leased = self.may_keep(route, file.1);
                    read
                })
            });
            match read {
                Ok(n) => reply.data(&buffer[..n]),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
        if !is_leased {
            // The lease was recalled while this was answered: no later notification will invalidate these pages.
            self.kernel.inval_inode_later(file.1);
        }
    }

    /// `is_back`: the kernel writes back a page of a mapping, for no particular caller.
    pub(super) fn write_file(
        &self,
        req: &Request,
        file: Open,
        offset: u64,
        data: &[u8],
        is_back: bool,
    ) -> Result<u32, Refusal> {
        as_caller(req, |caller| {
            self.router.on_files(caller, [file], |route, [number]| {
                if is_back {
                    return route.write_back(caller, number, offset, data);
                }
                let written = route.write(caller, number, offset, data);
                if Handle(file.0.0).is_paged() && self.is_shared() && !route.is_realm() {
                    // The kernel put the bytes into its pages before it sent them. If it dropped a page since and
                    // read it again, the page has the old content, and nothing else will invalidate it.
                    self.kernel.inval_range_later(file.1, offset..offset + data.len() as u64);
                }
                written
            })
        })
    }

    pub(super) fn flush_file(&self, req: &Request, file: Open) -> Result<(), Refusal> {
        as_caller(req, |caller| {
            self.router.on_files(caller, [file], |route, [number]| {
                let flushed = route.flush(number);
                if let Route::Realm(slot) = route {
                    slot.note_flushed(number);
                }
                flushed
            })
        })
    }

    pub(super) fn sync_file(&self, req: &Request, file: Open, data_only: bool) -> Result<(), Refusal> {
        as_caller(req, |caller| {
            self.router.on_files(caller, [file], |route, [number]| route.fsync(number, data_only))
        })
    }

    pub(super) fn reserve(
        &self,
        req: &Request,
        file: Open,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<(), Refusal> {
        as_caller(req, |caller| {
            self.router.on_files(caller, [file], |route, [number]| {
                route.fallocate(caller, number, mode, offset, length)
            })
        })
    }

    pub(super) fn seek(
        &self,
        req: &Request,
        file: Open,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Refusal> {
        as_caller(req, |caller| {
            self.router.on_files(caller, [file], |route, [number]| route.seek(number, offset, whence))
        })
    }

    pub(super) fn copy_range(
        &self,
        req: &Request,
        files: [Open; 2],
        offsets: [u64; 2],
        len: u64,
    ) -> Result<u64, Refusal> {
        let len = len.min(COPY_BYTES_MAX);
        as_caller(req, |caller| {
            self.router.on_files(caller, files, |route, [from, to]| {
                route.copy_range(caller, from, offsets[0], to, offsets[1], len)
            })
        })
    }
}
