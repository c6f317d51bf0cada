//! One server of a cluster, for questions about it and its plates.

use std::time::Duration;

use chiton_transport::{Address, Connection, OpenError};
use chiton_types::{Cred, Epoch, PlateId, Seq};
use chiton_wire::{Answer, Call, Channel, Failure, Hello, PROTOCOL_VERSION, Request, TOOL_IDENTITY, Welcome};
use serde_json::Value;

use crate::identity;

/// A session with one plate of a server, which answers for all plates of that server.
pub(super) struct Asked {
    connection: Connection,
}

impl Asked {
    /// A session with the first of these plates that runs at the server.
    ///
    /// # Errors
    /// In words: the server does not answer, or none of the plates runs there.
    pub(super) fn open(addresses: &[String], plates: &[PlateId], limit: Duration) -> Result<Asked, String> {
        let mut failure = "it has no address that this version understands".to_owned();
        let credentials = identity::credentials().map_err(|failure| failure.to_string())?;
        for address in addresses.iter().filter_map(|address| address.parse::<Address>().ok()) {
            for plate in plates {
                match Connection::open(&address, credentials.as_ref(), &hello(*plate), limit) {
                    Ok((connection, Welcome::Accepted { .. })) => return Ok(Asked { connection }),
                    Ok(_) => failure = format!("{address} does not begin a session"),
                    Err(error @ (OpenError::Refused { .. } | OpenError::Elsewhere { .. })) => {
                        failure = format!("plate {plate} does not run there yet: {error}");
                    }
                    Err(error) => {
                        failure = format!("{address}: {error}");
                        break;
                    }
                }
            }
        }
        Err(failure)
    }

    /// Asks for a report.
    ///
    /// # Errors
    /// In words.
    pub(super) fn report(&self, what: &str) -> Result<Value, String> {
        let call = Call::Admin { what: what.to_owned() };
        let reply = self.connection.call(&self.request(call)).map_err(|lost| lost.to_string())?;
        match reply.result {
            Ok(Answer::Bytes(json)) => {
                serde_json::from_slice(&json).map_err(|e| format!("its {what} is not JSON: {e}"))
            }
            Ok(_) => Err(format!("its answer is no {what}")),
            Err(Failure::Refused(refusal)) => Err(format!("it does not report its {what}: {refusal}")),
            Err(failure) => Err(format!("it does not report its {what}: {failure:?}")),
        }
    }

    /// Ends the session.
    pub(super) fn end(self) {
        // Lost: the server ends the session when its time is over.
        let _ = self.connection.call(&self.request(Call::Bye));
    }

    fn request(&self, call: Call) -> Request {
        let id = self.connection.next_id();
        let user = (rustix::process::geteuid(), rustix::process::getegid());
        let cred = Cred::new(user.0.as_raw(), user.1.as_raw(), &[]);
        Request { id, seq: Seq(0), settled: Seq(0), epoch: Epoch(0), again: None, cred, call }
    }
}

fn hello(plate: PlateId) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        channel: Channel::Main,
        resume: None,
        identity: format!("{TOOL_IDENTITY}process {}", std::process::id()),
        resend_count: 0,
        decouples: false,
        plate,
        client: 0,
        filesystem: 0,
    }
}
