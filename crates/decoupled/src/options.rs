//! Settings for decoupled subtrees.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_client::ClientOptions;
use chiton_journal::Place;

/// Settings of [`crate::Realms`].
#[derive(Clone)]
pub struct RealmsOptions {
    /// The directory for the journals of `durability: local` and for the records that let a later process resume
    /// them. Created on first use.
    pub state_dir: PathBuf,
    /// Settings of the clients in the subtrees.
    pub client: ClientOptions,
    /// Resume and merge journals that have lost durable events at their end, without these events.
    pub accept_truncated: bool,
}

/// Memory for unchanged rows of a branch, in bytes; they can be fetched again. A decoupling that is no branch keeps
/// all rows: they show without the server which inodes belong to it.
pub(crate) const BRANCH_ROWS_BYTES: usize = 8 << 20;

/// Gives the place of the journal of a decoupling, by the directory that it has in the state directory.
///
/// # Errors
/// In words: it cannot be opened.
pub type Journals = Arc<dyn Fn(&Path) -> Result<Arc<dyn Place>, String> + Send + Sync>;

/// The default directory for journals of decoupled subtrees: `/var/lib/chiton` for root, and for other users
/// `chiton` in their state folder (`$XDG_STATE_HOME`, else `~/.local/state`). `None`: the user has no such folder.
pub fn default_state_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/chiton"));
    }
    let set = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("chiton"))
}
