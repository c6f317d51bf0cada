//! Names of trees that meet conditions: from here, and as jobs of the server.

use std::ffi::{CString, c_char, c_int, c_void};

use chiton_trees::{Conditions, Found, Job, JobState, Place, Refused, Subject, Task, Watch};
use chiton_types::{Kind, Refusal, Time};

use crate::border::{DONE, FAILED, bytes, carry_out, check_buffer, handle};
use crate::files::Attr;
use crate::handle::Chiton;
use crate::last::Failure;
use crate::tree_jobs::{NO_JOB, TreeJob, ended_early, start};

/// `chiton_found_fn`: anything but 0 ends the search.
pub type FoundFn = unsafe extern "C" fn(arg: *mut c_void, path: *const c_char, attr: *const Attr) -> c_int;

/// Bits of [`FindConditions::by`].
const NAME: u32 = 1;
const TYPE: u32 = 2;
const SIZE_MIN: u32 = 4;
const SIZE_MAX: u32 = 8;
const MTIME_MIN: u32 = 16;
const MTIME_MAX: u32 = 32;
const DEPTH_MAX: u32 = 64;
const ALL: u32 = 127;

/// `struct chiton_conditions`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FindConditions {
    /// A pattern of names.
    pub name: *const c_char,
    /// The least size in bytes.
    pub size_min: u64,
    /// Largest size in bytes.
    pub size_max: u64,
    /// The first time of the last change of content: nanoseconds since 1970.
    pub mtime_min_ns: i64,
    /// Latest modification time, in nanoseconds since 1970.
    pub mtime_max_ns: i64,
    /// `CHITON_FIND_NAME` and the others.
    pub by: u32,
    /// A type as `st_mode` has it.
    pub r#type: u32,
    /// Directories are entered down to this depth.
    pub depth_max: u32,
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `path` is null or ends with NUL; `conditions` is null or good for reading, with a pattern that is null or ends
/// with NUL; `found` is null or may be called with `arg`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_find(
    chiton: *const Chiton,
    path: *const c_char,
    conditions: *const FindConditions,
    found: Option<FoundFn>,
    arg: *mut c_void,
) -> c_int {
    let asked = "chiton_find";
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let (chiton, path, conditions) =
            unsafe { (handle(chiton)?, bytes(path, "the path")?, read(conditions)?) };
        let mut taker = Taker::new(found, arg);
        chiton.ask(asked, path, |client| {
            let place = Place::find(client, path, path)?;
            chiton_trees::find(client, &[place], &conditions, &mut taker);
            Ok(())
        })?;
        taker.result(asked, path)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_find`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_start_find(
    chiton: *const Chiton,
    path: *const c_char,
    conditions: *const FindConditions,
) -> u64 {
    carry_out(NO_JOB, || {
        // SAFETY: the caller's promise.
        let (chiton, path, conditions) =
            unsafe { (handle(chiton)?, bytes(path, "the path")?, read(conditions)?) };
        chiton.whole()?;
        let task = |subject: Subject| Task::Find { subjects: vec![subject], conditions };
        start(chiton, "chiton_start_find", path, |place| Some(task(Subject::from(place))))
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_find`]; `job` is null or one may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_wait_find(
    chiton: *const Chiton,
    id: u64,
    job: *mut TreeJob,
    found: Option<FoundFn>,
    arg: *mut c_void,
) -> c_int {
    let asked = "chiton_wait_find";
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let chiton = unsafe { handle(chiton)? };
        chiton.whole()?;
        let mut taker = Taker::new(found, arg);
        let status = chiton.ask(asked, id.to_string().as_bytes(), |client| {
            Job::find_to_take(client, id)?.wait(&mut taker)
        })?;
        if !job.is_null() {
            // SAFETY: the caller's promise.
            unsafe { job.write(TreeJob::from(&status)) };
        }
        match status.state {
            JobState::Running | JobState::Done => taker.result(asked, status.path.as_bytes()),
            JobState::Failed | JobState::Stopped | JobState::Cancelled => {
                Err(ended_early(asked, id, &status))
            }
        }
    })
}

/// The conditions of a program; none are those that every name meets.
///
/// # Safety
/// As [`chiton_find`].
unsafe fn read(conditions: *const FindConditions) -> Result<Conditions, Failure> {
    if conditions.is_null() {
        return Ok(Conditions::default());
    }
    check_buffer(conditions, 1)?;
    // SAFETY: it is not null, and the caller promises the rest.
    let given = unsafe { conditions.read() };
    if given.by & !ALL != 0 {
        return Err(Failure::new(
            Refusal::Invalid,
            format!("{:#x} is no sum of CHITON_FIND_NAME and the others", given.by),
        ));
    }
    let by = |flag| given.by & flag != 0;
    let name = match by(NAME) {
        false => None,
        true => {
            // SAFETY: the caller's promise.
            let pattern = unsafe { bytes(given.name, "the pattern")? };
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::new(Refusal::Invalid, format!("the pattern cannot be used: {why}"))
            };
            let pattern = std::str::from_utf8(pattern).map_err(|why| wrong(&why))?;
            Some(pattern.parse().map_err(|why| wrong(&why))?)
        }
    };
    let kind = match by(TYPE) {
        false => None,
        true => Some(kind_of(given.r#type).ok_or_else(|| {
            Failure::new(Refusal::Invalid, format!("{:#o} is no type as st_mode has it", given.r#type))
        })?),
    };
    Ok(Conditions {
        name,
        kind,
        size_min: by(SIZE_MIN).then_some(given.size_min),
        size_max: by(SIZE_MAX).then_some(given.size_max),
        mtime_min: by(MTIME_MIN).then_some(Time(given.mtime_min_ns)),
        mtime_max: by(MTIME_MAX).then_some(Time(given.mtime_max_ns)),
        depth_max: by(DEPTH_MAX).then_some(given.depth_max as usize),
    })
}

/// The type of `S_IFREG` and the others.
fn kind_of(bits: u32) -> Option<Kind> {
    Some(match bits {
        0o100_000 => Kind::File,
        0o040_000 => Kind::Dir,
        0o120_000 => Kind::Symlink,
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        0o020_000 => Kind::Char,
        0o060_000 => Kind::Block,
        _ => return None,
    })
}

/// Gives a program what is found.
struct Taker {
    found: Option<FoundFn>,
    arg: *mut c_void,
    is_stopped: bool,
    first: Option<Refused>,
}

impl Taker {
    fn new(found: Option<FoundFn>, arg: *mut c_void) -> Taker {
        Taker { found, arg, is_stopped: false, first: None }
    }

    /// The result of the call as a whole.
    fn result(self, asked: &str, path: &[u8]) -> Result<c_int, Failure> {
        match self.first {
            Some(refused) => Err(Failure::new(
                refused.refusal,
                format!("{asked}: {refused}; the rest was looked at, as far as it could be"),
            )),
            None if self.is_stopped => Err(Failure::refused(asked, path, Refusal::Interrupted)),
            None => Ok(DONE),
        }
    }
}

impl Watch for Taker {
    fn refused(&mut self, refused: Refused) {
        self.first.get_or_insert(refused);
    }

    fn found(&mut self, found: Found) {
        let Some(take) = self.found.filter(|_| !self.is_stopped) else { return };
        let path = CString::new(found.path).expect("no path has a NUL");
        // SAFETY: the program promises that it may be called; both are good for the time of the call.
        self.is_stopped = unsafe { take(self.arg, path.as_ptr(), &Attr::from(&found.attr)) } != 0;
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}
