//! What a server can be there for.

use std::sync::Arc;
use std::time::Duration;

use chiton_metastore::Metastore;

use crate::decoupled::DecoupledSubtree;
use crate::format::FilesystemInfo;
use crate::options::ServerOptions;
use crate::ownership::Ownership;
use crate::stores::Stores;

/// A time that does not come.
const NEVER: Duration = Duration::from_secs(1 << 40);

/// See the module.
pub enum Role {
    /// Serves a file system.
    Serving {
        /// What it is.
        info: FilesystemInfo,
        /// Where it is.
        stores: Stores,
        /// The right to change it, kept until the server ends; `None` if the caller keeps others away.
        ownership: Option<Ownership>,
    },
    /// Serves a subtree to the client that took it from another server.
    Decoupled(DecoupledSubtree),
    /// Shows what would be, over rows that nobody changes: what is changed then is in memory only. Memory grows with what
    /// is changed and with what is looked at. Clients bring the blocks ([`crate::Server::objects`] is empty).
    Preview {
        /// What the rows are of.
        info: FilesystemInfo,
        /// The rows of one moment.
        rows: Arc<dyn Metastore>,
    },
}

impl Role {
    /// A file system in stores that nobody else uses.
    pub fn serving(info: &FilesystemInfo, stores: Stores) -> Role {
        Role::Serving { info: info.clone(), stores, ownership: None }
    }

    /// The settings in this role: only a serving plate has checkpoints, and a preview waits for no session.
    pub(crate) fn options(&self, options: ServerOptions) -> ServerOptions {
        let without_checkpoints = |options| ServerOptions {
            checkpoint_rows: usize::MAX,
            checkpoint_journal_bytes: u64::MAX,
            checkpoint_age: NEVER,
            recovery_target: NEVER,
            dirty_bytes_max: usize::MAX,
            grace_ms: 0,
            ..options
        };
        match self {
            Role::Serving { .. } => options,
            Role::Decoupled(_) => without_checkpoints(options),
            Role::Preview { .. } => ServerOptions { session_ms: u32::MAX, ..without_checkpoints(options) },
        }
    }
}
