//! Is a metadata store consistent with itself and with the object store? In bounded memory, by passes over sorted rows.
//!
//! ```text
//!   census   all rows once: decode, sort names by inode, extents by block
//!   inodes   merge by inode number: row, names, content, map, extended attributes, orphans
//!   tree     merge by directory: subdirectories; then every directory must lead up to the root
//!   blocks   merge by block: extents, counts, garbage, objects
//! ```
//!
//! Invariants:
//! - [`check`] changes nothing. Its memory does not grow with the tree: sorted records spill into temporary files.
//! - Rows are decoded by `chiton_namespace` and `chiton_server`, nowhere else.
//! - No bytes of a store make it panic. If files are damaged, the check continues behind the damage, and reports
//!   only findings that do not result from it.
//! - [`repair`] deletes no content, commits atomically, and ends where a further check finds nothing that it repairs.

mod all_rows;
mod blocks;
mod census;
pub(crate) mod cursor;
mod inodes;
mod offline;
mod online;
mod owed;
mod pace;
mod plate_histories;
mod policies;
mod problem;
mod repair;
pub(crate) mod rows;
pub(crate) mod sorter;
mod tree;

use std::path::PathBuf;

use chiton_metastore::{Metastore, StoreError};
use chiton_objects::{ObjectError, Objects};
use chiton_runtime::{RealWorld, World, thread};
use chiton_types::PlateId;
use serde::Serialize;

use crate::fsck::all_rows::AllRows;
use crate::fsck::pace::Pace;
use crate::{Lost, RowsOfPlates};

pub use offline::{Offline, rebuild};
pub use online::check_online;
pub use problem::{Lists, Problem};
pub use repair::{Repaired, repair, repair_plates};

/// Findings whose path is looked for.
const PATHS_MAX: u64 = 1_000;

/// Settings of a check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Read every block and verify its checksums, instead of only its existence and length.
    pub content: bool,
    /// Most bytes to read in a second, rows and blocks together; `None`: as fast as it goes.
    pub rate: Option<u64>,
    /// About how much memory sorting may take, in bytes.
    pub memory_bytes: usize,
    /// Directory for temporary files.
    pub temp_dir: PathBuf,
    /// A server is running: sessions that began after the rows were read may have blocks.
    pub live: bool,
    /// Changed rows in one commit of a repair, at least.
    pub commit_rows: usize,
    /// How many shards there are, if that is known: each has a row.
    pub shards: Option<u16>,
}

impl Default for Options {
    fn default() -> Options {
        let temp_dir = std::env::temp_dir();
        Options {
            content: false,
            rate: None,
            memory_bytes: 256 << 20,
            temp_dir,
            live: false,
            commit_rows: 512,
            shards: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub problem: Problem,
    /// Where, if it has a place that could be found.
    pub path: Option<String>,
    /// Of a file system with several plates: the plate, if it is about a row of which each plate may have one.
    pub plate: Option<PlateId>,
}

impl Finding {
    /// JSON with name, inode, path, description and repair.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "problem": self.problem.name(),
            "inode": self.problem.ino().map(|ino| ino.0),
            "path": self.path,
            "plate": self.plate.map(|plate| plate.0),
            "what": self.problem.to_string(),
            "repair": self.problem.remedy(),
            "advice": self.problem.advice(),
        })
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.problem.name())?;
        if let Some(plate) = &self.plate {
            write!(f, "plate {plate}: ")?;
        }
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        write!(f, "{}", self.problem)?;
        match (self.problem.remedy(), self.problem.advice()) {
            (Some(remedy), _) => write!(f, " (repair: {remedy})"),
            (None, Some(advice)) => write!(f, " (not repaired: {advice})"),
            (None, None) => Ok(()),
        }
    }
}

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub rows: u64,
    pub inodes: u64,
    pub directories: u64,
    pub entries: u64,
    /// Inodes without a name that the server frees: those that clients have open, and the tops of removed trees.
    pub removed_but_open: u64,
    /// Number of block objects.
    pub blocks: u64,
    /// Bytes of the block objects.
    pub block_bytes: u64,
    /// Blocks that nothing names, of sessions that are not over.
    pub blocks_of_sessions: u64,
    /// Blocks that nothing names, which the server deletes at its next start.
    pub blocks_to_sweep: u64,
    pub findings: u64,
    /// Ranges of rows that cannot be read.
    pub unreadable: u64,
    /// Possible findings that may only result from unreadable parts.
    pub doubtful: u64,
    /// Findings that repair does something about.
    pub repairable: u64,
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Name of the current pass.
    pub pass: &'static str,
    /// Units of work done.
    pub done: u64,
    /// Estimated units in all.
    pub total: u64,
}

/// Why a check did not come to its end.
#[derive(Debug)]
pub enum CheckError {
    Store(StoreError),
    Objects(ObjectError),
    /// A temporary file failed.
    Temporary(std::io::Error),
    /// A server gives no view of its rows.
    View(String),
    /// A view of rows ended while they were read.
    Lost(Lost),
    /// A change that one plate owes another cannot be carried out, so the plates do not fit each other.
    Unsettled(String),
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CheckError::Store(e) => write!(f, "{e}"),
            CheckError::Objects(e) => write!(f, "{e}"),
            CheckError::View(what) => f.write_str(what),
            CheckError::Lost(lost) if lost.has_moved => write!(f, "{lost}: run the check again"),
            CheckError::Lost(lost) => write!(f, "{lost}: run the check again when it has one"),
            CheckError::Unsettled(cause) => write!(
                f,
                "changes that one plate has decided cannot be carried out by another, because of {cause}: start the server and end it in \
                 order (chiton mount, then chiton umount), then check again"
            ),
            CheckError::Temporary(e) => {
                write!(f, "a temporary file: {e}; set TMPDIR to a directory with more space")
            }
        }
    }
}

impl std::error::Error for CheckError {}

impl From<StoreError> for CheckError {
    fn from(e: StoreError) -> CheckError {
        CheckError::Store(e)
    }
}

impl From<ObjectError> for CheckError {
    fn from(e: ObjectError) -> CheckError {
        CheckError::Objects(e)
    }
}

impl From<std::io::Error> for CheckError {
    fn from(e: std::io::Error) -> CheckError {
        CheckError::Temporary(e)
    }
}

/// The state that all passes share.
pub(crate) struct Run<'a> {
    rows: AllRows<'a>,
    objects: &'a dyn Objects,
    options: &'a Options,
    summary: Summary,
    pace: Option<Pace>,
    found: &'a mut dyn FnMut(Finding),
    progress: &'a mut dyn FnMut(Progress),
}

impl Run<'_> {
    fn sorter<const N: usize>(&self) -> sorter::Sorter<N> {
        // Up to six sorters are filled at the same time, and up to six read.
        sorter::Sorter::new(self.options.memory_bytes / 12, &self.options.temp_dir)
    }

    fn report(&mut self, problem: Problem) -> Result<(), CheckError> {
        if self.summary.unreadable > 0 && problem.may_be_absence() {
            self.summary.doubtful += 1;
            return Ok(());
        }
        self.summary.findings += 1;
        self.summary.repairable += u64::from(problem.remedy().is_some());
        let mut path = None;
        if self.summary.findings <= PATHS_MAX {
            path = match (problem.entry(), problem.ino()) {
                (Some((dir, name)), _) => rows::path_of(self.rows.joint, dir)?
                    .map(|dir| format!("{}/{}", dir.trim_end_matches('/'), rows::shown(name.as_bytes()))),
                (None, Some(ino)) => rows::path_of(self.rows.joint, ino)?,
                (None, None) => None,
            };
        }
        let plate = problem.plate().filter(|_| !self.rows.is_one());
        (self.found)(Finding { problem, path, plate });
        Ok(())
    }

    /// Accounts for a read, and sleeps if the rate is too high.
    fn read(&mut self, bytes: u64) {
        if let Some(pace) = &mut self.pace {
            let rest = pace.spend(bytes, RealWorld.monotonic());
            if !rest.is_zero() {
                thread::sleep(rest);
            }
        }
    }

    fn report_progress(&mut self, pass: &'static str, done: u64, total: u64) {
        if done.is_multiple_of(8192) {
            (self.progress)(Progress { pass, done, total: total.max(done) });
        }
    }
}

/// Checks a file system with one plate; reports each finding immediately.
///
/// The rows must not change meanwhile: use a store without a server, or a snapshot.
///
/// # Errors
/// If a store cannot be read, or there is no space for temporary files.
pub fn check(
    store: &dyn Metastore,
    objects: &dyn Objects,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, CheckError> {
    check_rows(AllRows::of_one(store), objects, options, found, progress)
}

/// [`check`] of a file system with several plates. No plate may owe another anything.
///
/// # Errors
/// As [`check`].
pub fn check_plates(
    rows: &RowsOfPlates,
    objects: &dyn Objects,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, CheckError> {
    check_rows(AllRows::of_plates(rows), objects, options, found, progress)
}

fn check_rows(
    rows: AllRows<'_>,
    objects: &dyn Objects,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, CheckError> {
    let summary = Summary::default();
    let pace = options.rate.map(|rate| Pace::new(rate, RealWorld.monotonic()));
    let mut run = Run { rows, objects, options, summary, pace, found, progress };
    let census = census::take(&mut run)?;
    let (by_inode, by_block) = census.part();
    let tree = inodes::check(&mut run, by_inode)?;
    tree::check(&mut run, tree)?;
    blocks::check(&mut run, by_block)?;
    Ok(run.summary)
}

/// [`check`] with all findings at once, for tests and simulation.
///
/// # Errors
/// As [`check`].
pub fn findings(store: &dyn Metastore, objects: &dyn Objects) -> Result<Vec<Finding>, CheckError> {
    let mut all = Vec::new();
    check(store, objects, &Options::default(), &mut |finding| all.push(finding), &mut |_| {})?;
    Ok(all)
}
