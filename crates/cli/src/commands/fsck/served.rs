//! The running servers of the file system that a check is about.
//!
//! ```text
//!   etcd://…, a mount or the data of a cluster ─ its monitor ─▶ the servers of all plates
//!   a server's address ─ does it belong to a cluster? ─ yes ───▶ the same
//!                                                     └ no ────▶ that server
//!   data that no server serves ──────────────────────────────▶ none: they are opened
//! ```

use std::path::Path;
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_etcd::EtcdAddress;
use chiton_server::{DataAddress, StartError};

use crate::args::Fsck;
use crate::commands::cluster;
use crate::failure::{Failure, Outcome};
use crate::{at_rest, reach, target};

/// A plate whose server is silent for so long is given up. Others take the plates of a dead server over sooner.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of the servers; `None` if the target is data to be opened by the command itself.
pub(super) fn client(args: &Fsck) -> Outcome<Option<Client>> {
    let said = &args.target;
    reach::answering(Path::new(said))?;
    if let Some(recorded) = cluster::monitor_of(said) {
        return of_cluster(args, &recorded);
    }
    let failure = match target::client(said) {
        Ok(client) => return Ok(Some(with_the_others(client))),
        Err(failure) => failure,
    };
    // A path in a mount is no data directory: the failure to reach the server is the whole message.
    match reach::mount_around(Path::new(said)) {
        Ok(Some(mount)) if mount.is_ours() => Err(failure),
        _ => Ok(None),
    }
}

/// `recorded`: where the cluster's map was when the target was made.
fn of_cluster(args: &Fsck, recorded: &str) -> Outcome<Option<Client>> {
    let monitor = match &args.monitor {
        Some(monitor) => monitor.clone(),
        None => recorded.parse().map_err(|e| Failure::absent(format!("{recorded}: {e}")))?,
    };
    if is_data(&args.target)? {
        let data: DataAddress = args.target.parse().map_err(Failure::failed)?;
        let Some(at_rest) = at_rest::of(&data, args.monitor.as_ref())? else { return Ok(None) };
        match at_rest.check() {
            Ok(()) => return Ok(None),
            // The data are opened to be changed, which is refused while a server lives.
            Err(StartError::Held { .. }) if args.repair || args.rebuild => return Ok(None),
            Err(StartError::Held { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    cluster::client(&monitor, &options()).map(Some)
}

/// Whether a target of a cluster is its storage, and not its monitor or a mount.
fn is_data(said: &str) -> Outcome<bool> {
    let is_mounted = reach::mount_around(Path::new(said))?.is_some_and(|mount| mount.is_ours());
    Ok(!is_mounted && !said.starts_with(EtcdAddress::SCHEME))
}

/// If the server of a client belongs to a cluster whose monitor can be asked: a client that finds the other servers even if this one dies.
fn with_the_others(client: Client) -> Client {
    let said = target::admin(&client, "cluster").unwrap_or_default();
    let Some(monitor) = said["monitor"].as_str().and_then(|monitor| monitor.parse().ok()) else {
        return client;
    };
    cluster::client(&monitor, &options()).unwrap_or(client)
}

fn options() -> ClientOptions {
    ClientOptions {
        identity: format!("chiton fsck, process {}", std::process::id()),
        timeout: Some(TIMEOUT),
        ..ClientOptions::default()
    }
}
