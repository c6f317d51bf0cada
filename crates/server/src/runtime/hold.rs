//! Who has a file system: one server, or one tool that changes it, at a time.

mod directory;

use chiton_world::World;

use crate::runtime::address::DataAddress;
use crate::runtime::error::StartError;
use directory::DirectoryHold;

/// The right to change a file system, until dropped.
#[derive(Debug)]
pub struct Hold {
    _directory: DirectoryHold,
}

impl Hold {
    /// Takes it. `take_over` ends the one who has it.
    ///
    /// # Errors
    /// [`StartError::Held`] names the holder.
    pub fn take(data: &DataAddress, take_over: bool, world: &dyn World) -> Result<Hold, StartError> {
        match data {
            DataAddress::Dir(dir) => Ok(Hold { _directory: DirectoryHold::take(dir, take_over, world)? }),
            DataAddress::S3(_) => Err(StartError::Failed("S3 is not there yet".to_owned())),
        }
    }
}
