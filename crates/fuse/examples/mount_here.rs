//! Mounts a file system on a directory and stays until it is unmounted: for test suites and profiles.
//!
//! ```text
//!   mount_here DATA DIR                      serves DATA here and mounts it
//!   mount_here DATA DIR --format             the same, with a new file system
//!   mount_here DATA DIR --socket PATH        the same, and others may connect
//!   mount_here --connect unix:PATH DIR       mounts what is served elsewhere
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_fuse::{Mount, MountOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_wire::Address;
use clap::Parser;

/// Mounts a file system and stays until it is unmounted.
#[derive(Parser)]
struct Arguments {
    /// Data directory and mount point; with --connect only the mount point.
    #[arg(num_args = 1..=2)]
    dirs: Vec<PathBuf>,
    /// Make a new file system first.
    #[arg(long)]
    format: bool,
    /// Also listen at this socket.
    #[arg(long)]
    socket: Option<PathBuf>,
    /// A server's address.
    #[arg(long)]
    connect: Option<String>,
    /// Dispatch threads.
    #[arg(long)]
    threads: Option<usize>,
    /// Treat the file system as shared with others.
    #[arg(long)]
    shared: bool,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let shared = (arguments.shared || arguments.socket.is_some()).then_some(true);
    let options = MountOptions { threads: arguments.threads, shared, ..MountOptions::default() };
    if let Some(address) = &arguments.connect {
        let address: Address = address.parse().map_err(|e| format!("{e:?}"))?;
        let client = Client::connect(&address, ClientOptions::default())?;
        return Ok(Mount::start(Arc::new(client), &arguments.dirs[0], options)?.wait()?);
    }
    let [data, dir] = &arguments.dirs[..] else { return Err("want DATA and DIR".into()) };
    let world: SharedWorld = Arc::new(RealWorld);
    if arguments.format {
        Server::format(data, &FormatOptions::default(), &world).map_err(|e| format!("{e:?}"))?;
    }
    let server = Server::start(data, ServerOptions::default(), world).map_err(|e| format!("{e:?}"))?;
    if let Some(path) = arguments.socket {
        server.serve(&[Address::Unix(path)])?;
    }
    let client = Client::embedded(server.clone(), ClientOptions::default())?;
    Mount::start(Arc::new(client), dir, options)?.wait()?;
    Ok(server.shutdown()?)
}
