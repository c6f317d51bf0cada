//! Files and directories by path.

use std::ffi::{CString, c_char, c_int, c_void};

use chiton_client::{Client, OpenFlags};
use chiton_types::{Kind, Refusal};

use crate::border::{DONE, FAILED, bytes, carry_out, check_buffer, handle};
use crate::handle::Chiton;
use crate::last::Failure;

/// Bytes read at once.
const PIECE_BYTES: usize = 4 << 20;

/// `struct chiton_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last change of content: nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Type and permissions, as `st_mode` has them.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owning group.
    pub gid: u32,
}

impl From<&chiton_types::Attr> for Attr {
    fn from(attr: &chiton_types::Attr) -> Attr {
        let kind = match attr.kind {
            Kind::Fifo => 0o010_000,
            Kind::Char => 0o020_000,
            Kind::Dir => 0o040_000,
            Kind::Block => 0o060_000,
            Kind::File => 0o100_000,
            Kind::Symlink => 0o120_000,
            Kind::Socket => 0o140_000,
        };
        Attr {
            ino: attr.ino.0,
            size: attr.size,
            mtime_ns: attr.mtime.0,
            mode: kind | u32::from(attr.mode.0),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
        }
    }
}

/// `chiton_entry_fn`: anything but 0 ends the listing.
pub type EntryFn = unsafe extern "C" fn(arg: *mut c_void, name: *const c_char, attr: *const Attr) -> c_int;

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `path` is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_mkdir(chiton: *const Chiton, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(chiton, "chiton_mkdir", path, |client, path| client.mkdir_all(path).map(drop)) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_mkdir`]; `content` is null or `len` bytes may be read there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_write(
    chiton: *const Chiton,
    path: *const c_char,
    content: *const c_void,
    len: usize,
) -> c_int {
    carry_out(FAILED, || {
        check_buffer(content, len)?;
        let content = match len {
            0 => &[],
            // SAFETY: the caller's promise; it is not null and not too long.
            _ => unsafe { std::slice::from_raw_parts(content.cast::<u8>(), len) },
        };
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        chiton.ask("chiton_write", path, |client| match client.create_file(path, content) {
            Err(Refusal::Exists) => client.write_file(path, content),
            made => made.map(drop),
        })?;
        Ok(DONE)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_mkdir`]; `buffer` is null or `capacity` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_read(
    chiton: *const Chiton,
    path: *const c_char,
    offset: u64,
    buffer: *mut c_void,
    capacity: usize,
) -> i64 {
    carry_out(i64::from(FAILED), || {
        check_buffer(buffer, capacity)?;
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        chiton.ask("chiton_read", path, |client| {
            let fh = client.open_path(path, OpenFlags::READ)?;
            let read = read(client, fh, offset, buffer.cast(), capacity);
            client.release(fh).and(read)
        })
    })
}

/// Up to `capacity` bytes to `buffer`, which nobody has promised to hold anything: so it is only written to.
pub(crate) fn read(
    client: &Client,
    fh: u64,
    offset: u64,
    buffer: *mut u8,
    capacity: usize,
) -> Result<i64, Refusal> {
    let mut done = 0;
    while done < capacity {
        let at = offset.checked_add(done as u64).ok_or(Refusal::Invalid)?;
        let piece = client.read(fh, at, PIECE_BYTES.min(capacity - done))?;
        if piece.is_empty() {
            break;
        }
        // SAFETY: the buffer has room for `capacity` bytes, `done` plus the piece is no more, and nothing of ours is in it.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), buffer.add(done), piece.len()) };
        done += piece.len();
    }
    Ok(done as i64)
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_mkdir`]; `attr` is null or one may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_stat(chiton: *const Chiton, path: *const c_char, attr: *mut Attr) -> c_int {
    carry_out(FAILED, || {
        check_buffer(attr, 1)?;
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        let found = chiton.ask("chiton_stat", path, |client| client.stat(path))?;
        // SAFETY: it is not null, and the caller promises the rest.
        unsafe { attr.write(Attr::from(&found)) };
        Ok(DONE)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_mkdir`]; `entry` is null or may be called with `arg`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_list(
    chiton: *const Chiton,
    path: *const c_char,
    entry: Option<EntryFn>,
    arg: *mut c_void,
) -> c_int {
    carry_out(FAILED, || {
        let entry = entry.ok_or_else(|| Failure::new(Refusal::Invalid, "the function is NULL"))?;
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        let entries = chiton.ask("chiton_list", path, |client| {
            let entries = client.list(path)?.into_iter().map(|listed| {
                let attr = match listed.entry {
                    Some(entry) => entry.attr,
                    None => client.getattr(listed.ino, None)?.attr,
                };
                Ok((listed.name, Attr::from(&attr)))
            });
            entries.collect::<Result<Vec<_>, Refusal>>()
        })?;
        // Nothing is held by now: the function may call the library.
        for (name, attr) in entries {
            let name = CString::new(name.as_bytes()).expect("no name has a NUL");
            // SAFETY: the caller's promise; both pointers are good for the time of the call.
            let stop = unsafe { entry(arg, name.as_ptr(), &attr) };
            if stop != 0 {
                break;
            }
        }
        Ok(DONE)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_mkdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_remove(chiton: *const Chiton, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(chiton, "chiton_remove", path, |client, path| client.remove(path)) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_mkdir`], for both paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_rename(
    chiton: *const Chiton,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let (chiton, from, to) =
            unsafe { (handle(chiton)?, bytes(from, "the path")?, bytes(to, "the new path")?) };
        chiton.ask("chiton_rename", from, |client| client.rename_path(from, to))?;
        Ok(DONE)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_flush(chiton: *const Chiton) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let chiton = unsafe { handle(chiton) }?;
        chiton.ask("chiton_flush", b"", |client| client.sync())?;
        Ok(DONE)
    })
}

/// A call with one path.
///
/// # Safety
/// As [`chiton_mkdir`].
unsafe fn on_path(
    chiton: *const Chiton,
    asked: &str,
    path: *const c_char,
    call: impl FnOnce(&Client, &[u8]) -> Result<(), Refusal>,
) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        chiton.ask(asked, path, |client| call(client, path))?;
        Ok(DONE)
    })
}
