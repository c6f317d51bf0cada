//! The data of a cluster in the hands of one tool, while no server of the cluster lives.
//!
//! Invariants:
//! - A store is opened only if no server lives, and is not used if one lived right after: opening takes it from its server.

use std::sync::Arc;

use chiton_metastore::StoreError;
use chiton_types::PlateId;

use crate::address::DataAddress;
use crate::error::StartError;
use crate::format::FilesystemInfo;
use crate::server::Server;
use crate::stores::Stores;

/// Finds out that no server of a cluster lives.
#[derive(Clone)]
pub struct AtRest(Arc<dyn Fn() -> Result<(), StartError> + Send + Sync>);

impl AtRest {
    /// `check` fails if a server lives, or if that cannot be found out.
    pub fn new(check: impl Fn() -> Result<(), StartError> + Send + Sync + 'static) -> AtRest {
        AtRest(Arc::new(check))
    }

    /// Asks now.
    ///
    /// # Errors
    /// As the function does that was given to [`AtRest::new`].
    pub fn check(&self) -> Result<(), StartError> {
        (self.0)()
    }
}

impl Server {
    /// The description of a file system that a tool may take hold of: one that no server serves, and a cluster's only with
    /// `at_rest`.
    ///
    /// # Errors
    /// As [`Server::info`], and as [`AtRest::check`].
    pub fn info_at_rest(data: &DataAddress, at_rest: Option<&AtRest>) -> Result<FilesystemInfo, StartError> {
        let info = Server::info_of_any(data)?;
        match (&info.monitor, at_rest) {
            (Some(_), Some(at_rest)) => at_rest.check().map(|()| info),
            (Some(_), None) | (None, _) => Server::info(data),
        }
    }
}

impl Stores {
    /// The stores of a plate for a tool that has taken hold of the file system: of a cluster's with `at_rest`.
    ///
    /// # Errors
    /// [`StartError::Failed`].
    pub fn open_at_rest(
        data: &DataAddress,
        plate: PlateId,
        at_rest: Option<&AtRest>,
    ) -> Result<Stores, StartError> {
        let Some(at_rest) = at_rest.cloned() else { return Stores::open(data, plate) };
        let mut stores = Stores::open_shared(data, plate)?;
        let path = std::path::PathBuf::from(data.to_string());
        stores.guard(move || {
            at_rest.check().map_err(|e| StoreError::Io { path: path.clone(), cause: e.to_string() })
        });
        Ok(stores)
    }
}
