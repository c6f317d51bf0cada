//! Questions of administrators.

use chiton_types::{Ino, PlateId, Refusal};
use chiton_wire::{Answer, Call};

use crate::Client;
use crate::service::CallError;

impl Client {
    /// Asks an administrator's question (`status`, `df`, `top`, `metrics`); the answer is JSON.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] if the server does not know it.
    pub fn admin(&self, what: &str) -> Result<Vec<u8>, Refusal> {
        self.admin_at(PlateId(0), what)
    }

    /// As [`Client::admin`], asked at the server that has a plate.
    ///
    /// # Errors
    /// The same, also if there is no such plate.
    pub fn admin_at(&self, plate: PlateId, what: &str) -> Result<Vec<u8>, Refusal> {
        let call = Call::Admin { what: what.to_owned() };
        match self.service.call_at(plate, &self.caller().full_cred(), call) {
            Ok(Answer::Bytes(bytes)) => Ok(bytes),
            Ok(_) => Err(Refusal::Io),
            Err(CallError::Refused(refusal)) => Err(refusal),
            // The groups of a path call's user are known.
            Err(CallError::NeedGroups) => Err(Refusal::Access),
        }
    }

    /// The number of plates of the file system.
    pub fn plates(&self) -> u16 {
        self.service.plates()
    }

    /// The plate that has an inode.
    pub fn plate_of(&self, ino: Ino) -> PlateId {
        self.service.plate_of(ino)
    }
}
