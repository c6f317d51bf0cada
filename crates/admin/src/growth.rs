//! A file system that one server has served becomes the file system of a cluster: a copy of its rows and blocks, with other plates.
//!
//! ```text
//!   rows of the source ──examine──▶ what a cluster cannot hold yet
//!          │ check: the source is whole
//!          ├──map extents──▶ sorted by block ──▶ blocks of the target, references of each plate
//!          ├──rows─────────▶ the plate that owns the shard of each row
//!          └──policies─────▶ every plate, with their history
//!   rows of each plate ──compare──▶ rows of the source, then check of the target with all content
//! ```
//!
//! Invariants:
//! - Nothing of the source is changed. Its journal is replayed in memory ([`crate::fsck::Offline`]).
//! - Inodes keep their numbers, and numbers and session ids that the source may have given out are not given out again.
//! - Every plate has all policies and their whole history, so all plates agree on the version of the policies.
//! - All references to a block are of one plate, so a block that files of several plates share is copied once for each further plate.
//! - Every block of an earlier writer that the target has is named by a map, so no plate looks for unnamed ones among them.

mod blocks;
mod compare;
mod copy;
mod policies;
mod removed;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::path::PathBuf;

use chiton_engine::OwnRow;
use chiton_metastore::{Metastore, StoreError};
use chiton_namespace::chunk::Chunk;
use chiton_namespace::{CorruptRow, StoredRow, shard_of, start_rows};
use chiton_objects::ObjectError;
use chiton_runtime::RealWorld;
use chiton_server::{GrowthTarget, next_session_id};
use chiton_types::{BlockId, Malformed, PlateId, Plates};

use crate::RowsOfPlates;
use crate::fsck::rows::shown;
use crate::fsck::{self, CheckError, Offline, Progress, Summary};
use crate::growth::blocks::Census;
use crate::growth::policies::{Policies, path_of_dir};

const PAGE_ROWS: usize = 4096;

/// Resources and limits of a copy.
#[derive(Clone, Debug)]
pub struct Options {
    /// About how much memory sorting may take, in bytes.
    pub memory_bytes: usize,
    /// Directory for temporary files.
    pub temp_dir: PathBuf,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory_bytes: 256 << 20, temp_dir: std::env::temp_dir() }
    }
}

/// Obstacles and sessions that a look at the source has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Obstacles: parts of the source that a cluster cannot hold yet, each with the step that removes it.
    pub obstacles: Vec<String>,
    /// Paths of subtrees which clients may decouple here and which get several plates, so that clients cannot decouple them there.
    pub parted: Vec<String>,
    /// Sessions that have not ended: of mounts that still wait for the server, or that died.
    pub sessions: u64,
}

/// Figures of a finished copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The check of the target.
    pub summary: Summary,
    /// Blocks that this run copied; the others were there.
    pub copied: u64,
    pub copied_bytes: u64,
    /// Of these, further copies for plates that share a block with others.
    pub parted: u64,
}

/// Why a copy did not come to its end. It can be repeated.
#[derive(Debug)]
pub enum GrowError {
    Check(CheckError),
    Row(CorruptRow),
    /// The source is damaged: so many findings.
    Source(u64),
    /// The target does not equal the source: where.
    Differs(String),
    /// The target is damaged: so many findings, and the first.
    Target(u64, String),
    /// Any other failure, in words.
    Failed(String),
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrowError::Check(error) => write!(f, "{error}"),
            GrowError::Row(row) => write!(f, "{row}"),
            GrowError::Source(findings) => write!(
                f,
                "the file system has {findings} inconsistencies, and a damaged one is not copied: look at them with chiton fsck, and \
                 repair them first (chiton fsck --repair --yes)"
            ),
            GrowError::Differs(what) => write!(
                f,
                "the copy differs from the file system: {what}; the file system itself is unchanged. Remove the copy and repeat the \
                 command; if it differs again, this is a bug"
            ),
            GrowError::Target(findings, first) => write!(
                f,
                "the copy has {findings} inconsistencies, the first: {first}; the file system itself is unchanged. Remove the copy \
                 and repeat the command"
            ),
            GrowError::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for GrowError {}

impl From<CheckError> for GrowError {
    fn from(error: CheckError) -> GrowError {
        GrowError::Check(error)
    }
}

impl From<StoreError> for GrowError {
    fn from(error: StoreError) -> GrowError {
        GrowError::Check(error.into())
    }
}

impl From<ObjectError> for GrowError {
    fn from(error: ObjectError) -> GrowError {
        GrowError::Check(error.into())
    }
}

impl From<std::io::Error> for GrowError {
    fn from(error: std::io::Error) -> GrowError {
        GrowError::Check(error.into())
    }
}

impl From<CorruptRow> for GrowError {
    fn from(error: CorruptRow) -> GrowError {
        GrowError::Row(error)
    }
}

/// Looks for policies and states that a cluster cannot hold yet. Everything that a cluster of several plates refuses stands here. `plates`: how many it
/// will have.
///
/// # Errors
/// If rows cannot be read.
pub fn examine(source: &Offline, plates: u16) -> Result<Examined, GrowError> {
    let (rows, mut examined) = (source.rows(), Examined::default());
    let (mut decouplings, mut orphans) = (Vec::new(), Vec::new());
    let (start, end) = start_rows();
    each_row(&*rows, (&start, Some(&end)), &mut |key, value| {
        match StoredRow::decode(key, value)? {
            Some(StoredRow::Decoupling(decoupling)) => decouplings.push(*decoupling),
            Some(StoredRow::Orphan(ino)) => orphans.push(ino),
            Some(_) => {}
            None => {
                let own = OwnRow::decode(key, value);
                examined.sessions += u64::from(matches!(own, Ok(Some(OwnRow::Session(_)))));
            }
        }
        Ok(())
    })?;
    let names = removed::names_left(&*rows, &orphans)?;
    if plates > 1 && names > 0 {
        examined.obstacles.push(format!(
            "the server has not freed {names} names of removed trees yet: start it, wait until chiton status reports no orphans, stop it \
             and repeat the command"
        ));
    }
    for decoupling in decouplings {
        let root = decoupling.root();
        let at =
            path_of_dir(&*rows, root)?.map_or_else(|| format!("/…/inode {}", root.0), |path| shown(&path));
        examined.obstacles.push(match &decoupling.branch {
            Some(name) => {
                let name = shown(name.as_bytes());
                format!(
                    "{at} has the branch {name}, whose journal belongs to the old file system: mount that, and merge the branch (chiton \
                     branch merge MOUNT{at} {name}) or delete it (chiton branch delete MOUNT{at} {name})"
                )
            }
            None => format!(
                "{at} is decoupled by {}, whose journal belongs to the old file system: mount that, and merge the changes (chiton merge \
                 MOUNT{at}) or discard them (chiton discard MOUNT{at}); if its client is gone: chiton recouple --force MOUNT{at}",
                decoupling.identity
            ),
        });
    }
    let policies = Policies::read(&*rows, source.info().shards)?;
    examined.obstacles.extend(policies.obstacles(plates));
    // A number of plates that does not fit is refused when the copy begins.
    if let Some(plates) = Plates::new(source.info().shards, plates).filter(|_| examined.obstacles.is_empty())
    {
        examined.parted = policies.parted(&*rows, plates)?;
    }
    Ok(examined)
}

/// Copies everything and checks the copy. The caller closes the source and opens the target afterwards.
///
/// # Errors
/// See [`GrowError`]; the source is as before, and the copy can be repeated.
pub fn grow(
    source: &Offline,
    target: &GrowthTarget,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Grown, GrowError> {
    let check_options = fsck::Options {
        memory_bytes: options.memory_bytes,
        temp_dir: options.temp_dir.clone(),
        ..fsck::Options::default()
    };
    let found = source.check(&check_options, &mut |_| {}, &mut |p| {
        progress(Progress { pass: "checking the file system", ..p });
    })?;
    if found.findings > 0 || found.unreadable > 0 {
        return Err(GrowError::Source(found.findings + found.unreadable));
    }
    let plan = Plan::new(source, target)?;
    let census = Census::take(&plan, &*source.rows(), options, found.rows, progress)?;
    let copied = census.copy(&plan, (source.objects(), target.objects()), options, progress)?;
    let stores = copy::Stores::open(target)?;
    copy::rows(&plan, &*source.rows(), &copied, &stores, found.rows, progress)?;
    copy::own_rows(&plan, &*source.rows(), target, &copied, &stores, &RealWorld)?;
    stores.close()?;

    let stores = copy::Stores::open(target)?;
    compare::rows(&plan, &*source.rows(), &stores, &copied.parted, found.rows, progress)?;
    let rows = RowsOfPlates::new(plan.plates, stores.all());
    let mut first = None;
    let check_options = fsck::Options { content: true, shards: Some(target.info().shards), ..check_options };
    let summary = fsck::check(
        &rows,
        &*target.objects(),
        &check_options,
        &mut |finding| {
            first.get_or_insert_with(|| finding.to_string());
        },
        &mut |p| progress(Progress { pass: "checking the copy", ..p }),
    )?;
    stores.close()?;
    if let Some(first) = first {
        return Err(GrowError::Target(summary.findings, first));
    }
    let same = |a: &Summary| (a.inodes, a.directories, a.entries, a.removed_but_open);
    if same(&summary) != same(&found) {
        return Err(GrowError::Differs(format!(
            "{:?} of {:?} inodes and entries",
            same(&summary),
            same(&found)
        )));
    }
    Ok(Grown {
        summary,
        copied: copied.blocks,
        copied_bytes: copied.bytes,
        parted: copied.parted.len() as u64,
    })
}

/// Decisions that precede the copy.
struct Plan {
    plates: Plates,
    /// Session ids that the plates may give out begin behind these, which name the blocks that are copied for further plates.
    writers: Vec<u64>,
    policies: Policies,
}

/// Names of the further copies of blocks, by the name of the first and the plate.
type Parted = BTreeMap<(BlockId, PlateId), BlockId>;

impl Plan {
    fn new(source: &Offline, target: &GrowthTarget) -> Result<Plan, GrowError> {
        let marks = source.session_marks()?;
        let plates = target.info().plates();
        let writers = plates.all().map(|plate| next_session_id(plate, &marks)).collect();
        let policies = Policies::read(&*source.rows(), source.info().shards)?;
        Ok(Plan { plates, writers, policies })
    }

    fn owner(&self, key: &[u8]) -> Result<PlateId, GrowError> {
        let malformed = || corrupt(key, "a shard of the file system");
        Ok(shard_of(key).and_then(|shard| self.plates.of_shard(shard)).ok_or_else(malformed)?)
    }
}

fn corrupt(key: &[u8], expected: &'static str) -> CorruptRow {
    CorruptRow { key: key.to_vec(), cause: Malformed { expected } }
}

/// The chunk as the plate has it.
fn renamed(chunk: Chunk, plate: PlateId, parted: &Parted) -> Chunk {
    if parted.is_empty() {
        return chunk;
    }
    chunk.with_blocks(|block| parted.get(&(block, plate)).copied().unwrap_or(block))
}

/// A visitor of keys and their values.
type WithRow<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), GrowError> + 'a;

/// Calls `with` for each row of a range.
fn each_row(
    rows: &dyn Metastore,
    (start, end): (&[u8], Option<&[u8]>),
    with: &mut WithRow<'_>,
) -> Result<(), GrowError> {
    let mut from = Bound::Included(start.to_vec());
    loop {
        let page = rows.scan(from.as_ref().map(Vec::as_slice), end, PAGE_ROWS)?;
        for (key, value) in &page {
            with(key, value)?;
        }
        match page.into_iter().last() {
            Some((last, _)) => from = Bound::Excluded(last),
            None => return Ok(()),
        }
    }
}
