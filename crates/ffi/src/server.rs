//! A server inside the library: the feature `embedded`.

use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatError, FormatOptions, Server, ServerOptions, StartError};
use chiton_types::Refusal;

use crate::last::Failure;

/// A server of the handle's own.
pub(crate) struct Inside(Arc<Server>);

/// Starts a server on a data directory or a place in a bucket.
pub(crate) fn open(data: &str) -> Result<(Client, Inside), Failure> {
    let data = parsed(data)?;
    let server = Server::start(data, ServerOptions::default(), Arc::new(RealWorld))?;
    let client = chiton_embedded::client(&server, ClientOptions::default())?;
    Ok((client, Inside(server)))
}

/// Makes a file system that belongs to this process's user and group.
pub(crate) fn format(data: &str) -> Result<(), Failure> {
    let data = parsed(data)?;
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let options = FormatOptions { uid: owner.0, gid: owner.1, ..FormatOptions::default() };
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(data, &options, &world)?;
    Ok(())
}

fn parsed(data: &str) -> Result<DataAddress, Failure> {
    data.parse().map_err(|e| Failure::new(Refusal::Invalid, format!("{data}: {e}")))
}

impl Inside {
    /// Makes everything durable and ends.
    pub(crate) fn shut_down(&self) -> Result<(), Failure> {
        let ended = self.0.shutdown();
        ended.map_err(|why| Failure::new(Refusal::Io, format!("the server did not end in order: {why}")))
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Failure {
        let refusal = match error {
            FormatError::Formatted(_) | FormatError::NotEmpty(_) => Refusal::NotEmpty,
            FormatError::Shards(_) | FormatError::Plates { .. } => Refusal::Invalid,
            FormatError::Failed(_) => Refusal::Io,
        };
        Failure::new(refusal, error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let refusal = match error {
            StartError::NotFormatted(_) | StartError::NoPlate { .. } => Refusal::NotFound,
            StartError::Foreign(..) => Refusal::NotEmpty,
            StartError::Held { .. } => Refusal::Busy,
            StartError::Newer { .. }
            | StartError::Plates { .. }
            | StartError::Clustered { .. }
            | StartError::Became { .. } => Refusal::Unsupported,
            StartError::Damaged(..) | StartError::Corrupt(_) | StartError::Failed(_) => Refusal::Io,
        };
        Failure::new(refusal, error.to_string())
    }
}
