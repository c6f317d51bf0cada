//! Reads the journals of unmerged decouplings.
//!
//! ```text
//!   RealmInfo ─ where? ─┬─ Disk: a directory of this machine      ─▶ Place ─▶ read
//!                       ├─ Store: the server's object store
//!                       └─ Memory: the process that has it
//! ```
//!
//! Invariants:
//! - Nothing is claimed, locked, created, trimmed or changed, so a client that works in the decoupling does not
//!   notice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_client::Client;
use chiton_journal::{FilePlace, MemoryPlace, Place, Shape};
use chiton_policy::Durability;
use chiton_types::{Position, RealmId, Refusal};
use chiton_wire::RealmInfo;

use crate::calls::Calls;
use crate::durable_mark::DurableMark;
use crate::error::RealmError;
use crate::realm::policy_of;
use crate::realms::host;
use crate::state_dir::{StateDir, User};

/// The location of the journal of a decoupling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalAt {
    /// In its directory on this machine ([`journal_on_disk`]).
    Disk(PathBuf),
    /// In the server's object store, below [`chiton_server::realm_prefix`] and `journal`.
    Store,
    /// In the memory of the process that has it.
    Memory,
}

/// A journal for readers.
#[derive(Clone)]
pub struct Unmerged {
    /// The decoupling's number.
    pub realm: RealmId,
    /// The branch's name, or the decoupling's number.
    pub name: String,
    /// The location, for messages.
    pub at: String,
    /// The segments of the journal.
    pub place: Arc<dyn Place>,
    /// How far it was durable, if that is known ([`durable_upto`]): a journal that ends before is cut off.
    pub durable: Option<Position>,
}

/// How far the journal in the directory of a decoupling was durable, if that is known. To be asked before the journal is read,
/// which may grow meanwhile.
pub fn durable_upto(dir: &Path) -> Option<Position> {
    DurableMark::read(dir)
}

/// All decouplings that the server of `client` knows, in the order of their numbers.
///
/// # Errors
/// The server does not answer.
pub fn decouplings(client: &Client) -> Result<Vec<RealmInfo>, RealmError> {
    let mut all = Calls { service: client.service().clone() }.list()?;
    all.sort_by_key(|info| info.claim.realm);
    Ok(all)
}

/// The location of a decoupling's journal. `state_dir`: the state directory, if it is not the one that the client
/// reported to the server.
///
/// # Errors
/// It is not on this machine.
pub fn journal_at(
    info: &RealmInfo,
    filesystem: u64,
    state_dir: Option<&Path>,
) -> Result<JournalAt, RealmError> {
    let realm = info.claim.realm;
    match policy_of(&info.policy)?.durability() {
        Durability::None => return Ok(JournalAt::Memory),
        Durability::Global => return Ok(JournalAt::Store),
        Durability::Local | Durability::Geo => {}
    }
    let reported = info.journal_at.split_once(':').filter(|(machine, _)| *machine == host());
    let Some(state_dir) = state_dir.or(reported.map(|(_, dir)| Path::new(dir))) else {
        let what = format!("the journal of decoupling {realm} is on another machine: {}", info.journal_at);
        let next = format!(
            "run the command there; or copy {filesystem:016x}-{realm} in that directory here, and name the copy as a journal"
        );
        return Err(RealmError::new(Refusal::NotFound, what, next));
    };
    let dir = StateDir::dir_of(state_dir, filesystem, realm);
    match StateDir::is_at(&dir) {
        true => Ok(JournalAt::Disk(dir)),
        false => {
            let what = format!("the journal of decoupling {realm} is not in {}", dir.display());
            let next = "name the state directory of the mount that made it, which this user may read (--state-dir), or the \
                        directory itself as a journal";
            Err(RealmError::new(Refusal::NotFound, what, next))
        }
    }
}

/// The journal in the folder of a decoupling. A journal that no client has opened yet is empty.
///
/// # Errors
/// It cannot be read.
pub fn journal_on_disk(dir: &Path) -> Result<Arc<dyn Place>, RealmError> {
    let segments = dir.join("journal");
    if !segments.is_dir() {
        return Ok(Arc::new(MemoryPlace::new(Shape::Grows)));
    }
    Ok(Arc::new(FilePlace::open(&segments).map_err(RealmError::journal)?))
}

/// Which decoupling of which file system has its journal in this directory.
///
/// # Errors
/// None has, or it cannot be read.
pub fn decoupling_at(dir: &Path) -> Result<(u64, RealmId), RealmError> {
    if !StateDir::is_at(dir) {
        let what = format!("{} is not the directory of a decoupling", dir.display());
        let next = "`chiton recover` lists those of a state directory";
        return Err(RealmError::new(Refusal::NotFound, what, next));
    }
    let record = StateDir::peek(dir)?;
    Ok((record.filesystem, RealmId(record.realm)))
}

/// The process that has noted that it works in the decoupling of this directory; it may be gone.
pub fn user_at(dir: &Path) -> Option<User> {
    StateDir::user(dir)
}
