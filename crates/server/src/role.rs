//! The roles of a server.

use std::sync::Arc;
use std::time::Duration;

use chiton_metastore::Metastore;
use chiton_types::{PlateId, Plates};

use crate::decoupled::DecoupledSubtree;
use crate::format::FilesystemInfo;
use crate::options::ServerOptions;
use crate::ownership::Ownership;
use crate::stores::Stores;

/// A time that does not come.
const NEVER: Duration = Duration::from_secs(1 << 40);

/// A server serves a file system, a decoupled subtree, or the preview of a merge. The role is fixed at its start.
pub enum Role {
    /// Serves a file system.
    Serving {
        info: FilesystemInfo,
        /// The plates that it runs, and their stores. Others may run on other servers.
        plates: Vec<(PlateId, Stores)>,
        /// The right to change it, kept until the server ends; `None` if the caller keeps others away.
        ownership: Option<Ownership>,
    },
    /// Serves a subtree to the client that took it from another server.
    Decoupled(DecoupledSubtree),
    /// Shows a merge that is not made, over rows that nobody changes. Changes stay in memory, which grows with the rows that
    /// are changed or looked at. Clients bring the blocks ([`crate::Server::objects`] is empty).
    Preview {
        /// The file system of the rows.
        info: FilesystemInfo,
        /// The rows of one moment.
        rows: Arc<dyn Metastore>,
    },
}

/// The parts from which one plate is built.
pub(crate) enum Part {
    Serving { info: FilesystemInfo, plate: PlateId, stores: Stores },
    Decoupled(DecoupledSubtree),
    Preview { info: FilesystemInfo, rows: Arc<dyn Metastore> },
}

impl Role {
    /// A file system with one plate, in stores that nobody else uses.
    pub fn serving(info: &FilesystemInfo, stores: Stores) -> Role {
        Role::serving_plates(info, vec![stores])
    }

    /// A file system in the stores of its plates, which nobody else uses.
    ///
    /// # Panics
    /// If there are not as many stores as plates.
    pub fn serving_plates(info: &FilesystemInfo, plates: Vec<Stores>) -> Role {
        assert_eq!(plates.len(), usize::from(info.plates), "stores for each plate");
        Role::Serving {
            info: info.clone(),
            plates: info.plates().all().zip(plates).collect(),
            ownership: None,
        }
    }

    /// The file system, in the role that may have plates on several servers.
    pub(crate) fn served(&self) -> Option<&FilesystemInfo> {
        match self {
            Role::Serving { info, .. } => Some(info),
            Role::Decoupled(_) | Role::Preview { .. } => None,
        }
    }

    /// The parts from which each plate is built, in their order; and the right to change the file system.
    pub(crate) fn parts(self) -> (Vec<Part>, Option<Ownership>) {
        match self {
            Role::Serving { info, plates, ownership } => {
                let part = |(plate, stores)| Part::Serving { info: info.clone(), plate, stores };
                (plates.into_iter().map(part).collect(), ownership)
            }
            Role::Decoupled(subtree) => (vec![Part::Decoupled(subtree)], None),
            Role::Preview { info, rows } => (vec![Part::Preview { info, rows }], None),
        }
    }
}

impl Part {
    /// Which plates there are beside it, and itself.
    pub(crate) fn plates(&self) -> Plates {
        match self {
            Part::Serving { info, .. } => info.plates(),
            Part::Decoupled(subtree) => Plates::one(subtree.shards),
            Part::Preview { info, .. } => Plates::one(info.shards),
        }
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
            Part::Serving { .. } => options,
            Part::Decoupled(_) => without_checkpoints(options),
            Part::Preview { .. } => ServerOptions { session_ms: u32::MAX, ..without_checkpoints(options) },
        }
    }
}
