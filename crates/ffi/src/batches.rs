//! Many operations and questions in a message, each with a result of its own.
//!
//! Invariants:
//! - Results come in the order asked. Behind the first that failed they are ECANCELED if the batch was to stop there.
//! - A call fails as a whole only if its arguments cannot be used, and then nothing was sent.

use std::ffi::{c_char, c_int, c_void};

use chiton_client::{Client, FileToOpen, OnRefusal, OpenFlags};
use chiton_model::{AttrChange, Op, SetTime};
use chiton_types::{Attr as Attributes, Ino, Mode, Name, Refusal, Time};
use chiton_wire::{Stat, StatTarget};

use crate::border::{FAILED, bytes, carry_out, check_buffer, handle};
use crate::files::{Attr, read};
use crate::handle::Chiton;
use crate::last::Failure;

/// `CHITON_STOP_ON_FAILURE`; 0 is `CHITON_PERFORM_ALL`.
const STOP_ON_FAILURE: c_int = 1;
/// ECANCELED: not tried, since one before it failed.
const NOT_TRIED: c_int = 125;

/// Flags of [`FileToBeOpened`].
const READ: u32 = 1;
const WRITE: u32 = 2;
const CREATE: u32 = 4;
const EXCLUSIVE: u32 = 8;
const TRUNCATE: u32 = 16;
const OPEN_FLAGS: u32 = 31;

/// The attributes that [`Change`] sets.
const SET_MODE: u32 = 1;
const SET_UID: u32 = 2;
const SET_GID: u32 = 4;
const SET_MTIME: u32 = 8;
const SET_ATIME: u32 = 16;
const SET_SIZE: u32 = 32;
const SET_FLAGS: u32 = 63;

/// `struct chiton_name`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NameIn {
    /// Inode number of the directory.
    pub dir: u64,
    /// One component without `/`, ended by NUL.
    pub name: *const c_char,
}

/// `struct chiton_result`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BatchResult {
    /// Attributes, of calls that have some.
    pub attr: Attr,
    /// The file that `chiton_openv` has opened.
    pub file: u64,
    /// 0, or a number of errno.h.
    pub error: c_int,
}

/// `struct chiton_open_file`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FileToBeOpened {
    /// The directory and the name in it.
    pub at: NameIn,
    /// `CHITON_READ` and the others.
    pub flags: u32,
    /// Permissions of a new file.
    pub mode: u32,
    /// Content of a new file.
    pub content: *const c_void,
    /// Bytes in `data`.
    pub len: usize,
}

/// `struct chiton_change`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Change {
    /// Inode number of the file or directory to change.
    pub ino: u64,
    /// The new time of the last change of content: nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The new time of the last access.
    pub atime_ns: i64,
    /// The new size in bytes.
    pub size: u64,
    /// `CHITON_SET_MODE` and the others.
    pub set: u32,
    /// The new permissions, if `set` has CHITON_SET_MODE.
    pub mode: u32,
    /// The new owner.
    pub uid: u32,
    /// The new group.
    pub gid: u32,
}

/// `struct chiton_link`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Link {
    /// The inode that gets a further name.
    pub ino: u64,
    /// The directory and the new name.
    pub at: NameIn,
}

/// A result in the caller's words, before it is written.
type One = Result<(Option<Attributes>, u64), Refusal>;

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `files` is null or has `count` elements, whose pointers are null or good for reading; `results` is null or
/// `count` elements may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_openv(
    chiton: *const Chiton,
    files: *const FileToBeOpened,
    count: usize,
    how: c_int,
    results: *mut BatchResult,
) -> i64 {
    let open = |client: &Client, files: &[FileToBeOpened], how| {
        let opened = |files: &[FileToBeOpened]| {
            // SAFETY: the caller's promise.
            let read: Vec<_> = files.iter().map(|file| unsafe { to_open(file) }).collect();
            let good: Vec<FileToOpen<'_>> =
                read.iter().filter_map(|file| file.as_ref().ok().copied()).collect();
            let mut opened = client.open_each(&client.caller(), &good).into_iter();
            let one = |file: &Result<FileToOpen<'_>, Refusal>| match file {
                Ok(_) => opened.next().unwrap_or(Err(Refusal::Io)).map(|(attr, file)| (Some(attr), file)),
                Err(refusal) => Err(*refusal),
            };
            read.iter().map(one).collect::<Vec<One>>()
        };
        match how {
            OnRefusal::PerformAll => opened(files),
            // None may be opened behind the first that is refused.
            OnRefusal::StopOnFailure => {
                one_by_one(files, |file| opened(std::slice::from_ref(file)).remove(0))
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { batch(chiton, "chiton_openv", (files, count), how, results, open) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_openv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_closev(
    chiton: *const Chiton,
    files: *const u64,
    count: usize,
    how: c_int,
    results: *mut BatchResult,
) -> i64 {
    let close = |client: &Client, files: &[u64], how| match how {
        OnRefusal::PerformAll => {
            client.close_each(files).into_iter().map(|one| one.map(|()| (None, 0))).collect()
        }
        OnRefusal::StopOnFailure => one_by_one(files, |file| client.release(*file).map(|()| (None, 0))),
    };
    // SAFETY: the caller's promise.
    unsafe { batch(chiton, "chiton_closev", (files, count), how, results, close) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_openv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_statv(
    chiton: *const Chiton,
    inodes: *const u64,
    count: usize,
    how: c_int,
    results: *mut BatchResult,
) -> i64 {
    let look = |client: &Client, inodes: &[u64], how| {
        stats(client, inodes.iter().map(|ino| Ok(StatTarget::Inode(Ino(*ino)))).collect(), how)
    };
    // SAFETY: the caller's promise.
    unsafe { batch(chiton, "chiton_statv", (inodes, count), how, results, look) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_openv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_lookupv(
    chiton: *const Chiton,
    names: *const NameIn,
    count: usize,
    how: c_int,
    results: *mut BatchResult,
) -> i64 {
    let look = |client: &Client, names: &[NameIn], how| {
        // SAFETY: the caller's promise.
        let target =
            |at: &NameIn| unsafe { name(at) }.map(|(parent, name)| StatTarget::Name { parent, name });
        stats(client, names.iter().map(target).collect(), how)
    };
    // SAFETY: the caller's promise.
    unsafe { batch(chiton, "chiton_lookupv", (names, count), how, results, look) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_openv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_setattrv(
    chiton: *const Chiton,
    changes: *const Change,
    count: usize,
    how: c_int,
    results: *mut BatchResult,
) -> i64 {
    let set = |client: &Client, changes: &[Change], how| {
        let is_alone = |change: &Change| change.set & SET_SIZE != 0;
        let mut all: Vec<One> = Vec::with_capacity(changes.len());
        // New sizes go alone, since content that is open here changes with them.
        for some in changes.chunk_by(|one, next| !is_alone(one) && !is_alone(next)) {
            all.extend(match some {
                [change] if is_alone(change) => vec![resized(client, change)],
                some => operations(client, some.iter().map(changed).collect(), how),
            });
            if how == OnRefusal::StopOnFailure && all.last().is_some_and(Result::is_err) {
                break;
            }
        }
        all
    };
    // SAFETY: the caller's promise.
    unsafe { batch(chiton, "chiton_setattrv", (changes, count), how, results, set) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_openv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_unlinkv(
    chiton: *const Chiton,
    names: *const NameIn,
    count: usize,
    how: c_int,
    results: *mut BatchResult,
) -> i64 {
    let unlink = |client: &Client, names: &[NameIn], how| {
        // SAFETY: the caller's promise.
        let op = |at: &NameIn| unsafe { name(at) }.map(|(parent, name)| Op::Unlink { parent, name });
        operations(client, names.iter().map(op).collect(), how)
    };
    // SAFETY: the caller's promise.
    unsafe { batch(chiton, "chiton_unlinkv", (names, count), how, results, unlink) }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_openv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_linkv(
    chiton: *const Chiton,
    links: *const Link,
    count: usize,
    how: c_int,
    results: *mut BatchResult,
) -> i64 {
    let link = |client: &Client, links: &[Link], how| {
        let op = |link: &Link| {
            // SAFETY: the caller's promise.
            let (parent, name) = unsafe { name(&link.at) }?;
            Ok(Op::Link { ino: Ino(link.ino), parent, name })
        };
        operations(client, links.iter().map(op).collect(), how)
    };
    // SAFETY: the caller's promise.
    unsafe { batch(chiton, "chiton_linkv", (links, count), how, results, link) }
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `buffer` is null or `capacity` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_pread(
    chiton: *const Chiton,
    file: u64,
    offset: u64,
    buffer: *mut c_void,
    capacity: usize,
) -> i64 {
    carry_out(i64::from(FAILED), || {
        check_buffer(buffer, capacity)?;
        // SAFETY: the caller's promise.
        let chiton = unsafe { handle(chiton)? };
        chiton.ask("chiton_pread", b"", |client| read(client, file, offset, buffer.cast(), capacity))
    })
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `content` is null or `len` bytes may be read there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_pwrite(
    chiton: *const Chiton,
    file: u64,
    offset: u64,
    content: *const c_void,
    len: usize,
) -> i64 {
    carry_out(i64::from(FAILED), || {
        // SAFETY: the caller's promise.
        let (chiton, content) = unsafe { (handle(chiton)?, slice(content.cast::<u8>(), len)?) };
        chiton.ask("chiton_pwrite", b"", |client| {
            let mut done = 0;
            while done < len {
                let at = offset.checked_add(done as u64).ok_or(Refusal::TooBig)?;
                done += client.write(&client.caller(), file, at, &content[done..])? as usize;
            }
            Ok(done as i64)
        })
    })
}

/// A call with a list: how many succeeded.
///
/// # Safety
/// As [`chiton_openv`].
unsafe fn batch<T>(
    chiton: *const Chiton,
    asked: &str,
    (items, count): (*const T, usize),
    how: c_int,
    results: *mut BatchResult,
    work: impl FnOnce(&Client, &[T], OnRefusal) -> Vec<One>,
) -> i64 {
    carry_out(i64::from(FAILED), || {
        // SAFETY: the caller's promise.
        let (chiton, items) = unsafe { (handle(chiton)?, slice(items, count)?) };
        check_buffer(results, count.saturating_mul(size_of::<BatchResult>()))?;
        let how = match how {
            0 => OnRefusal::PerformAll,
            STOP_ON_FAILURE => OnRefusal::StopOnFailure,
            _ => {
                return Err(Failure::new(
                    Refusal::Invalid,
                    format!("{asked}: {how} is no way to perform a batch"),
                ));
            }
        };
        let all = chiton.ask(asked, b"", |client| Ok(work(client, items, how)))?;
        let mut succeeded = 0;
        for at in 0..count {
            let result = match all.get(at) {
                None => failed(NOT_TRIED),
                Some(Err(refusal)) => failed(refusal.errno().0),
                Some(Ok((attr, file))) => {
                    succeeded += 1;
                    BatchResult { attr: attr.as_ref().map_or(NO_ATTR, Attr::from), file: *file, error: 0 }
                }
            };
            // SAFETY: it is not null, and the caller promises room for `count`.
            unsafe { results.add(at).write(result) };
        }
        Ok(succeeded)
    })
}

const NO_ATTR: Attr = Attr { ino: 0, size: 0, mtime_ns: 0, mode: 0, nlink: 0, uid: 0, gid: 0 };

fn failed(error: c_int) -> BatchResult {
    BatchResult { attr: NO_ATTR, file: 0, error }
}

/// A list of the caller's.
///
/// # Safety
/// `items` is null or has `count` elements that nobody changes for `'a`.
unsafe fn slice<'a, T>(items: *const T, count: usize) -> Result<&'a [T], Failure> {
    check_buffer(items, count.saturating_mul(size_of::<T>().max(1)))?;
    match count {
        0 => Ok(&[]),
        // SAFETY: it is not null and not too long; the caller promises the rest.
        _ => Ok(unsafe { std::slice::from_raw_parts(items, count) }),
    }
}

/// A directory and a name.
///
/// # Safety
/// Its pointer is null or leads to bytes that end with NUL.
unsafe fn name(at: &NameIn) -> Result<(Ino, Name), Refusal> {
    // SAFETY: the caller's promise.
    let name = unsafe { bytes(at.name, "the name") }.map_err(|_| Refusal::Invalid)?;
    Ok((Ino(at.dir), Name::new(name)?))
}

/// A file to be opened.
///
/// # Safety
/// Its pointers are null or good for reading, for `'a`.
unsafe fn to_open<'a>(file: &FileToBeOpened) -> Result<FileToOpen<'a>, Refusal> {
    let has = |flag| file.flags & flag != 0;
    if file.flags & !OPEN_FLAGS != 0 || !(has(READ) || has(WRITE)) {
        return Err(Refusal::Invalid);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { bytes(file.at.name, "the name") }.map_err(|_| Refusal::Invalid)?;
    Name::new(name)?;
    // SAFETY: the caller's promise.
    let content = unsafe { slice(file.content.cast::<u8>(), file.len) }.map_err(|_| Refusal::Invalid)?;
    let flags = OpenFlags {
        read: has(READ),
        write: has(WRITE),
        exclusive: has(EXCLUSIVE),
        truncate: has(TRUNCATE),
        ..OpenFlags::default()
    };
    let create = has(CREATE).then_some((Mode(file.mode as u16 & 0o7777), content));
    Ok(FileToOpen { parent: Ino(file.at.dir), name, flags, create })
}

fn changed(change: &Change) -> Result<Op, Refusal> {
    let has = |flag| change.set & flag != 0;
    if change.set & !SET_FLAGS != 0 {
        return Err(Refusal::Invalid);
    }
    let wanted = AttrChange {
        mode: has(SET_MODE).then_some(Mode(change.mode as u16 & 0o7777)),
        uid: has(SET_UID).then_some(change.uid),
        gid: has(SET_GID).then_some(change.gid),
        mtime: has(SET_MTIME).then_some(SetTime::At(Time(change.mtime_ns))),
        atime: has(SET_ATIME).then_some(SetTime::At(Time(change.atime_ns))),
        size: has(SET_SIZE).then_some(change.size),
        ..AttrChange::default()
    };
    Ok(Op::SetAttr { ino: Ino(change.ino), change: wanted })
}

/// Changes an inode that gets another size, too.
fn resized(client: &Client, change: &Change) -> One {
    let Op::SetAttr { ino, change } = changed(change)? else { return Err(Refusal::Invalid) };
    let entry = client.setattr(&client.caller(), ino, change, None)?;
    Ok((Some(entry.attr), 0))
}

fn operations(client: &Client, ops: Vec<Result<Op, Refusal>>, how: OnRefusal) -> Vec<One> {
    in_place(ops, how, |ops| {
        let performed = client.perform(&client.caller(), ops, how).into_iter();
        performed.map(|one| one.map(|attr| (attr, 0))).collect()
    })
}

fn stats(client: &Client, targets: Vec<Result<StatTarget, Refusal>>, how: OnRefusal) -> Vec<One> {
    let found = |stat| match stat {
        Stat::Attr { attr, .. } => Ok((Some(attr), 0)),
        Stat::Absent => Err(Refusal::NotFound),
        Stat::Elsewhere(_) => Err(Refusal::Io),
    };
    in_place(targets, how, |targets| {
        let stats = client.stat_targets(&client.caller(), targets, how).into_iter();
        stats.map(|one| one.and_then(found)).collect()
    })
}

/// Results with those in their places that could not even be asked for.
fn in_place<A>(
    asked: Vec<Result<A, Refusal>>,
    how: OnRefusal,
    ask: impl FnOnce(Vec<A>) -> Vec<One>,
) -> Vec<One> {
    let stops = how == OnRefusal::StopOnFailure;
    let (mut places, mut good) = (Vec::with_capacity(asked.len()), Vec::with_capacity(asked.len()));
    for one in asked {
        let refusal = one.as_ref().err().copied();
        places.push(refusal);
        good.extend(one.ok());
        if stops && refusal.is_some() {
            break;
        }
    }
    let (mut results, mut all) = (ask(good).into_iter(), Vec::<One>::with_capacity(places.len()));
    for place in places {
        if stops && all.last().is_some_and(Result::is_err) {
            break;
        }
        all.push(match place {
            Some(refusal) => Err(refusal),
            None => results.next().unwrap_or(Err(Refusal::Io)),
        });
    }
    all
}

/// One after the other, up to the first that fails.
fn one_by_one<T>(items: &[T], mut work: impl FnMut(&T) -> One) -> Vec<One> {
    let mut all: Vec<One> = Vec::with_capacity(items.len());
    for item in items {
        all.push(work(item));
        if all.last().is_some_and(Result::is_err) {
            break;
        }
    }
    all
}
