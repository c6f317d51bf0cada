//! Chiton embedded: a client's calls over a server in the same process.
//!
//! ```text
//!   Client (chiton-client) ── Service ──▶ Embedded ──▶ EmbeddedSession (chiton-server)
//!                     recalls ◀── RecallInbox ◀──┘
//! ```
//!
//! # Getting started
//!
//! A file system in a directory of this machine, used within this process:
//!
//! ```
//! use std::sync::Arc;
//!
//! use chiton_client::{ClientOptions, OpenFlags};
//! use chiton_server::{FormatOptions, Server, ServerOptions};
//! use chiton_types::Refusal;
//! use chiton_runtime::{RealWorld, SharedWorld};
//!
//! let dir = tempfile::tempdir()?;
//! let world: SharedWorld = Arc::new(RealWorld);
//! // The root directory is ours.
//! let owner = FormatOptions { uid: rustix::process::geteuid().as_raw(), ..FormatOptions::default() };
//! Server::format(&dir.path().join("data"), &owner, &world)?;
//! let server = Server::start(&dir.path().join("data"), ServerOptions::default(), world)?;
//! let client = chiton_embedded::client(&server, ClientOptions::default())?;
//! # let refused = |refusal: Refusal| refusal.to_string();
//!
//! // By path, as std::fs has it. A small file is one operation with its content.
//! client.mkdir_all("/results/run-1").map_err(refused)?;
//! client.create_file("/results/run-1/score", b"42").map_err(refused)?;
//! assert_eq!(client.read_file("/results/run-1/score"), Ok(b"42".to_vec()));
//! assert_eq!(client.stat("/results/run-2").map(drop), Err(Refusal::NotFound));
//!
//! // Many names of one directory at once: a result each, in order.
//! let made = client.create_many("/results", &["a", "b", "run-1"]).map_err(refused)?;
//! assert_eq!(made[2].as_ref().map(drop), Err(&Refusal::Exists));
//!
//! // Parts of a file, through a handle.
//! let fh = client.open_path("/results/a", OpenFlags::READ_WRITE).map_err(refused)?;
//! client.write(&client.caller(), fh, 1 << 20, b"far away").map_err(refused)?;
//! assert_eq!(client.read(fh, (1 << 20) + 4, 100), Ok(b"away".to_vec()));
//! client.release(fh).map_err(refused)?;
//!
//! // The server keeps what it has answered; after `sync` it also survives a crash.
//! client.sync().map_err(refused)?;
//! drop(client);
//! server.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! - [`client`], [`client_with_blocks`]: the two ways to make such a client.
//! - `service`: the calls, on the calling thread. Each plate of the file system has a session of its own.
//!
//! Nothing is cached in the client, since asking costs less than a cache, and nothing is sent again: a session ends with the
//! server.

mod service;

use std::sync::Arc;

use chiton_client::data::{BlockIo, DirectBlocks};
use chiton_client::{Client, ClientOptions, ConnectError, RecallInbox, Routed, Service};
use chiton_server::Server;
use chiton_types::PlateId;
use service::Embedded;

/// A client of a server in this process. Calls are carried out on the calling thread.
///
/// # Errors
/// In words: too many sessions, the server stops.
pub fn client(server: &Arc<Server>, options: ClientOptions) -> Result<Client, ConnectError> {
    client_with_blocks(server, Arc::new(DirectBlocks::new(server.objects())), options)
}

/// The same, with blocks in a store of the caller's choice.
///
/// # Errors
/// As [`client`].
pub fn client_with_blocks(
    server: &Arc<Server>,
    blocks: Arc<dyn BlockIo>,
    options: ClientOptions,
) -> Result<Client, ConnectError> {
    let (plates, inbox) = (server.plates(), Arc::new(RecallInbox::default()));
    let begin = |plate| -> Result<Arc<dyn Service>, ConnectError> {
        let embedded = Embedded::begin(server, plate, &options.identity, &inbox)?;
        if options.decouples {
            embedded.decouple_first();
        }
        Ok(Arc::new(embedded))
    };
    let service = match plates.count() {
        1 => begin(PlateId(0))?,
        _ => Arc::new(Routed::new(plates, plates.all().map(begin).collect::<Result<_, _>>()?)),
    };
    let filesystem = server.filesystem().filesystem;
    Ok(Client::over(service, &inbox, Some(blocks), filesystem, options))
}
