//! What a caller chooses about decoupled subtrees.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_client::ClientOptions;
use chiton_journal::Place;

/// Settings of [`crate::Realms`].
#[derive(Clone)]
pub struct RealmsOptions {
    /// Where the journals of `durability: local` are, and what a later process needs to go on with them. Made when it
    /// is first needed.
    pub state_dir: PathBuf,
    /// Settings of the clients in the subtrees.
    pub client: ClientOptions,
    /// Resume, and merge, journals of which an end that was durable is missing: without what was in it.
    pub accept_truncated: bool,
}

/// Memory for rows of a branch that nobody changed there: they can be fetched again. (Of another decoupling all stay, which tell
/// without the server what belongs to it.)
pub(crate) const BRANCH_ROWS_BYTES: usize = 8 << 20;

/// Gives the place of the journal of a decoupling, by the directory that it has in the state directory.
///
/// # Errors
/// In words: it cannot be opened.
pub type Journals = Arc<dyn Fn(&Path) -> Result<Arc<dyn Place>, String> + Send + Sync>;

/// Where journals of decoupled subtrees are, unless somebody says otherwise: of root `/var/lib/chiton`, of others `chiton` in
/// their state folder (`$XDG_STATE_HOME`, else `~/.local/state`). `None`: the user has none.
pub fn default_state_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/chiton"));
    }
    let set = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("chiton"))
}
