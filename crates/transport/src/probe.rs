//! Whether a server answers at an address.

use std::time::Duration;

use chiton_auth::Credentials;
use chiton_types::PlateId;
use chiton_wire::{Channel, Hello, PROTOCOL_VERSION, RefuseReason};

use crate::address::Address;
use crate::handshake::{OpenError, greet};

/// Checks that a server answers at `address` within `limit`. It begins no session, and waits for no disk: the server is greeted
/// in a way that it refuses at once.
///
/// # Errors
/// Why no server answers. [`std::io::ErrorKind::TimedOut`]: a process accepts the connection and does not answer.
pub fn probe(address: &Address, credentials: Option<&Credentials>, limit: Duration) -> Result<(), OpenError> {
    // A recall channel of no session.
    let hello = Hello {
        version: PROTOCOL_VERSION,
        channel: Channel::Recall,
        resume: None,
        identity: String::new(),
        resend_count: 0,
        decouples: false,
        plate: PlateId(0),
        client: 0,
        filesystem: 0,
    };
    let connecting = limit / 4;
    match greet(address.secure(credentials, connecting)?, address, &hello, limit - connecting) {
        // One of a cluster that has other plates answers, too.
        Err(OpenError::Refused { reason: RefuseReason::SessionGone, .. } | OpenError::Elsewhere { .. }) => {
            Ok(())
        }
        other => other.map(drop),
    }
}
