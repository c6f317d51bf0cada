//! Ownership: one server, or one tool that changes the file system, has it at a time.

mod directory;
mod objects;

use std::sync::Arc;

use chiton_metastore::StoreError;
use chiton_runtime::World;

use crate::address::DataAddress;
use crate::bucket::Bucket;
use crate::error::StartError;
use crate::stores::Stores;
use directory::DirectoryHold;
use objects::{Keeper, ObjectHold};
pub(crate) use objects::{Lost, OnLost};

/// The right to change a file system, until dropped.
pub struct Ownership {
    data: DataAddress,
    _directory: Option<DirectoryHold>,
    objects: Option<ObjectHold>,
}

impl Ownership {
    /// Takes it. `take_over` ends the present holder: on this machine's directory the process, in an object store its
    /// right to write.
    ///
    /// # Errors
    /// [`StartError::Held`] names the holder.
    pub fn take(data: &DataAddress, take_over: bool, world: &dyn World) -> Result<Ownership, StartError> {
        let (mut directory, mut objects) = (None, None);
        match data {
            DataAddress::Dir(dir) => directory = Some(DirectoryHold::take(dir, take_over, world)?),
            DataAddress::S3(location) => {
                let bucket = Bucket::open(location).map_err(StartError::Failed)?;
                objects = Some(ObjectHold::take(bucket.objects, data, take_over, world)?);
            }
        }
        Ok(Ownership { data: data.clone(), _directory: directory, objects })
    }

    /// Lets the metadata store be opened only while this hold is not lost: opening takes it from its holder.
    pub fn guard(&self, stores: &mut Stores) {
        let Some(objects) = &self.objects else { return };
        let (keeper, path) = (objects.keeper(), std::path::PathBuf::from(self.data.to_string()));
        let check = move |keeper: &Arc<Keeper>| match keeper.lost_to() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(StoreError::Fenced { path: path.clone() }),
            Err(e) => Err(StoreError::Io { path: path.clone(), cause: e.to_string() }),
        };
        stores.guard(move || check(&keeper));
    }

    /// Calls `on_lost` if another holder takes over and this process lives on, or if the object store is gone.
    pub(crate) fn on_lost(&self, on_lost: OnLost) {
        if let Some(objects) = &self.objects {
            objects.keeper().on_lost(on_lost);
        }
    }
}
