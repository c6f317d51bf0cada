//! Whole trees, by path: the work of `chiton rm -r`, `cp -r`, `chmod -R`, `chown -R` and `du`.

use std::ffi::{CString, c_char, c_int, c_void};

use chiton_client::Client;
use chiton_model::AttrChange;
use chiton_trees::{Place, Refused, Watch};
use chiton_types::{Kind, Mode, Refusal};

use crate::border::{DONE, FAILED, bytes, carry_out, check_buffer, handle};
use crate::handle::Chiton;
use crate::last::Failure;

/// Owner or group that stays as it is: `(uid_t)-1`, as chown(2) has it.
pub(crate) const SAME: u32 = u32::MAX;

/// `chiton_tree_fn`: anything but 0 ends the call.
pub type TreeFn =
    unsafe extern "C" fn(arg: *mut c_void, names: u64, refused: *const c_char, errno: c_int) -> c_int;

/// `struct chiton_usage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Usage {
    /// Sizes of files, and lengths of the targets of symbolic links.
    pub bytes: u64,
    /// Bytes of content that are stored.
    pub allocated: u64,
    /// Inodes that are no directories.
    pub files: u64,
    /// Number of directories.
    pub dirs: u64,
}

impl Usage {
    pub(crate) fn and(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes + other.bytes,
            allocated: self.allocated + other.allocated,
            files: self.files + other.files,
            dirs: self.dirs + other.dirs,
        }
    }
}

impl From<&chiton_trees::Usage> for Usage {
    fn from(line: &chiton_trees::Usage) -> Usage {
        Usage { bytes: line.bytes, allocated: line.allocated, files: line.files, dirs: line.dirs }
    }
}

/// Follows the work for a program.
pub(crate) struct Follower {
    follow: Option<TreeFn>,
    arg: *mut c_void,
    is_stopped: bool,
    first: Option<Refused>,
}

impl Follower {
    pub(crate) fn new(follow: Option<TreeFn>, arg: *mut c_void) -> Follower {
        Follower { follow, arg, is_stopped: false, first: None }
    }

    fn notify(&mut self, names: u64, refused: *const c_char, errno: c_int) {
        if let Some(follow) = self.follow.filter(|_| !self.is_stopped) {
            // SAFETY: the program promises that it may be called; the path is good for the time of the call.
            self.is_stopped = unsafe { follow(self.arg, names, refused, errno) } != 0;
        }
    }

    /// The result of the call as a whole.
    pub(crate) fn result(self, asked: &str, path: &[u8]) -> Result<c_int, Failure> {
        match self.first {
            Some(Refused { path, doing, refusal }) => {
                let path = String::from_utf8_lossy(&path);
                Err(Failure::new(
                    refusal,
                    format!(
                        "{asked}: cannot {doing} {path}: {refusal}; the rest was done, as far as it could be"
                    ),
                ))
            }
            None if self.is_stopped => Err(Failure::refused(asked, path, Refusal::Interrupted)),
            None => Ok(DONE),
        }
    }
}

impl Watch for Follower {
    fn refused(&mut self, refused: Refused) {
        let path = CString::new(refused.path.clone()).expect("no path has a NUL");
        self.notify(0, path.as_ptr(), refused.refusal.errno().0);
        self.first.get_or_insert(refused);
    }

    fn progress(&mut self, names: u64) {
        self.notify(names, std::ptr::null(), 0);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `path` is null or ends with NUL; `follow` is null or may be called with `arg`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_remove_tree(
    chiton: *const Chiton,
    path: *const c_char,
    follow: Option<TreeFn>,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_tree(chiton, "chiton_remove_tree", path, (follow, arg), |client, place, follower| {
            chiton_trees::remove(client, &[place], follower);
        })
    }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_remove_tree`], for both paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_copy_tree(
    chiton: *const Chiton,
    from: *const c_char,
    to: *const c_char,
    follow: Option<TreeFn>,
    arg: *mut c_void,
) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let (chiton, from, to) =
            unsafe { (handle(chiton)?, bytes(from, "the path")?, bytes(to, "the new path")?) };
        let (asked, mut follower) = ("chiton_copy_tree", Follower::new(follow, arg));
        let target = chiton.ask(asked, to, |client| Place::new_name(client, to))?;
        let (into, name) = target.ok_or_else(|| Failure::refused(asked, to, Refusal::Exists))?;
        chiton.ask(asked, from, |client| {
            let place = Place::find(client, from, from)?;
            chiton_trees::copy(client, &place, into, &name, &mut follower);
            Ok(())
        })?;
        follower.result(asked, from)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_remove_tree`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_chmod_tree(
    chiton: *const Chiton,
    path: *const c_char,
    mode: u32,
    follow: Option<TreeFn>,
    arg: *mut c_void,
) -> c_int {
    let wanted = move |attr: &chiton_types::Attr| {
        // Symbolic links have no permissions of their own.
        let mode = Mode(mode as u16 & 0o7777);
        let is_wanted = attr.kind != Kind::Symlink && attr.mode != mode;
        is_wanted.then(|| AttrChange { mode: Some(mode), ..AttrChange::default() })
    };
    // SAFETY: the caller's promise.
    unsafe {
        on_tree(chiton, "chiton_chmod_tree", path, (follow, arg), |client, place, follower| {
            chiton_trees::change(client, &[place], true, "chmod", &wanted, follower);
        })
    }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_remove_tree`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_chown_tree(
    chiton: *const Chiton,
    path: *const c_char,
    uid: u32,
    gid: u32,
    follow: Option<TreeFn>,
    arg: *mut c_void,
) -> c_int {
    let wanted = move |attr: &chiton_types::Attr| {
        let new = |id: u32, old: u32| Some(id).filter(|id| *id != SAME && *id != old);
        let (uid, gid) = (new(uid, attr.uid), new(gid, attr.gid));
        (uid.is_some() || gid.is_some()).then(|| AttrChange { uid, gid, ..AttrChange::default() })
    };
    // SAFETY: the caller's promise.
    unsafe {
        on_tree(chiton, "chiton_chown_tree", path, (follow, arg), |client, place, follower| {
            chiton_trees::change(client, &[place], true, "chown", &wanted, follower);
        })
    }
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_remove_tree`]; `usage` is null or one may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_usage(
    chiton: *const Chiton,
    path: *const c_char,
    usage: *mut Usage,
    follow: Option<TreeFn>,
    arg: *mut c_void,
) -> c_int {
    let mut total = Usage::default();
    carry_out(FAILED, || {
        check_buffer(usage, 1)?;
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        let (asked, mut follower) = ("chiton_usage", Follower::new(follow, arg));
        chiton.ask(asked, path, |client| {
            let place = Place::find(client, path, path)?;
            let lines = chiton_trees::usage(client, &[place], 0, &mut follower);
            total = lines.iter().map(Usage::from).fold(Usage::default(), Usage::and);
            Ok(())
        })?;
        // SAFETY: it is not null, and the caller promises the rest.
        unsafe { usage.write(total) };
        follower.result(asked, path)
    })
}

/// A call with a tree at a path.
///
/// # Safety
/// As [`chiton_remove_tree`].
unsafe fn on_tree(
    chiton: *const Chiton,
    asked: &str,
    path: *const c_char,
    (follow, arg): (Option<TreeFn>, *mut c_void),
    work: impl FnOnce(&Client, Place, &mut Follower),
) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        let mut follower = Follower::new(follow, arg);
        chiton.ask(asked, path, |client| {
            work(client, Place::find(client, path, path)?, &mut follower);
            Ok(())
        })?;
        follower.result(asked, path)
    })
}
