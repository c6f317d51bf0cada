//! A server as a separate process, with the settings that a figure varies. `chiton serve` has those that users
//! vary.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use chiton_journal::{ObjectPlace, Place};
use chiton_metastore::{FjallMetastore, FjallOptions, Metastore};
use chiton_objects::{LocalObjects, MemoryObjects, Objects};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, OpenMeta, Role, Server, ServerOptions, Stores};
use chiton_transport::Address;
use clap::Args;

use crate::Result;

/// Settings of the server.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// An empty folder.
    #[arg(long)]
    pub data: PathBuf,
    /// Where clients come: unix:PATH or tcp:HOST:PORT (port 0: any).
    #[arg(long)]
    pub listen: Address,
    /// The journal is made of objects, as in a bucket, rather than of files.
    #[arg(long)]
    pub objects: bool,
    /// The objects are in memory: blocks are lost at the end.
    #[arg(long, requires = "objects")]
    pub in_memory: bool,
    /// Length of a segment of the journal, in bytes.
    #[arg(long, default_value_t = 4 << 20)]
    pub segment_bytes: usize,
    /// Segments on their way to the object store at a time.
    #[arg(long, default_value_t = 8)]
    pub dispatch: usize,
    /// Plates of the file system.
    #[arg(long, default_value_t = 1)]
    pub plates: u16,
}

/// Formats and serves until standard input ends. Prints the address, with its port, when clients may come.
///
/// # Errors
/// A message.
pub fn serve(args: &ServeArgs) -> Result<()> {
    let world: SharedWorld = Arc::new(RealWorld);
    let uid = rustix::process::geteuid().as_raw();
    let format = FormatOptions { uid, plates: args.plates, ..FormatOptions::default() };
    let journal = chiton_journal::Options {
        segment_bytes: args.segment_bytes,
        dispatch_size: args.dispatch,
        ..chiton_journal::Options::default()
    };
    let options = ServerOptions { journal, ..ServerOptions::default() };
    let server = if args.objects {
        let stores = stores(args)?;
        let info =
            Server::format_with(std::slice::from_ref(&stores), &format, &world).map_err(|e| e.to_string())?;
        Server::start_as(Role::serving(&info, stores), options, world).map_err(|e| e.to_string())?
    } else {
        Server::format(&args.data, &format, &world).map_err(|e| e.to_string())?;
        Server::start(&args.data, options, world).map_err(|e| e.to_string())?
    };
    let bound = server.serve(std::slice::from_ref(&args.listen))?;
    let mut out = io::stdout();
    writeln!(out, "{}", bound[0])?;
    out.flush()?;
    // The parent wants the server to end, or has died.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(server.shutdown()?)
}

/// A data directory whose journal is a prefix of its object store, which may be in memory.
fn stores(args: &ServeArgs) -> Result<Stores> {
    let (objects, objects_address): (Arc<dyn Objects>, String) = if args.in_memory {
        (Arc::new(MemoryObjects::new()), String::new())
    } else {
        let dir = args.data.join("objects");
        (Arc::new(LocalObjects::open(&dir)?), format!("local:{}", dir.display()))
    };
    let place: Arc<dyn Place> = Arc::new(ObjectPlace::new(objects.clone(), "journal"));
    std::fs::create_dir_all(&args.data)?;
    let meta = args.data.join("meta");
    let open_meta: OpenMeta = Box::new(move || {
        Ok(Arc::new(FjallMetastore::open(&meta, FjallOptions::default())?) as Arc<dyn Metastore>)
    });
    Ok(Stores { objects, open_meta, place, objects_address })
}
