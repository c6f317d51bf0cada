//! Messages between the plates of a process.

use chiton_types::PlateId;
use chiton_wire::PeerMessage;

use crate::plate::Plate;

impl Plate {
    /// Passes a message to another plate.
    pub(crate) fn send_to_peer(&self, to: PlateId, message: PeerMessage) {
        self.log(&format!("no way to plate {to} for {message:?}"));
    }
}
