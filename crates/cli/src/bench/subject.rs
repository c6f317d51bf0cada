//! A server with a new file system for a measurement.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_fuse::{Mount, MountOptions};
use chiton_runtime::{RealWorld, SharedWorld, World};
use chiton_server::{FormatOptions, Server, ServerOptions, Trust};
use chiton_transport::Address;

use super::Plan;
use crate::failure::{Failure, Outcome};

/// A server on a fresh data directory.
pub(super) struct Subject {
    pub(super) server: Arc<Server>,
    data: PathBuf,
}

impl Subject {
    pub(super) fn start(plan: &Plan, name: &str) -> Outcome<Subject> {
        Subject::start_with(plan, name, &FormatOptions::default())
    }

    pub(super) fn start_with(plan: &Plan, name: &str, format: &FormatOptions) -> Outcome<Subject> {
        Subject::open(&formatted(plan, name, format)?)
    }

    pub(super) fn start_as(plan: &Plan, name: &str, options: ServerOptions) -> Outcome<Subject> {
        Subject::open_with(&formatted(plan, name, &FormatOptions::default())?, options)
    }

    pub(super) fn open(data: &Path) -> Outcome<Subject> {
        Subject::open_with(data, ServerOptions::default())
    }

    pub(super) fn open_with(data: &Path, options: ServerOptions) -> Outcome<Subject> {
        let server = Server::start(data, options, Arc::new(RealWorld)).map_err(Failure::from)?;
        Ok(Subject { server, data: data.to_path_buf() })
    }

    /// One whose connections over TCP have TLS, if there is a `trust`.
    pub(super) fn start_trusting(plan: &Plan, name: &str, trust: Option<Arc<Trust>>) -> Outcome<Subject> {
        let data = plan.dir.join(name);
        let world: SharedWorld = Arc::new(RealWorld);
        Server::format(&data, &FormatOptions::default(), &world).map_err(Failure::from)?;
        Subject::open_with(&data, ServerOptions { trust, ..ServerOptions::default() })
    }

    /// Where it listens over TCP, on this machine.
    pub(super) fn listen_on_tcp(&self) -> Outcome<Address> {
        let any = Address::Tcp("127.0.0.1:0".to_owned());
        let mut bound = self.server.serve(&[any]).map_err(Failure::failed)?;
        Ok(bound.remove(0))
    }

    /// Mounted in this process, as `chiton mount --data` does.
    pub(super) fn mount(&self, dir: &Path) -> Outcome<Mount> {
        make_dir(dir)?;
        let client =
            chiton_embedded::client(&self.server, ClientOptions::default()).map_err(Failure::failed)?;
        Mount::start(Arc::new(client), dir, MountOptions::default()).map_err(Failure::from)
    }

    /// A client over a Unix socket that asks the server for each operation.
    pub(super) fn over_socket(&self) -> Outcome<Client> {
        let asking = ClientOptions { write_behind_after: None, ..ClientOptions::default() };
        let address = Address::Unix(self.data.join("bench-socket"));
        self.server.serve(std::slice::from_ref(&address)).map_err(Failure::failed)?;
        Client::connect(&address, asking).map_err(Failure::failed)
    }

    /// Another client over the same socket.
    pub(super) fn beside(&self, write_behind_after: Option<u32>) -> Outcome<Client> {
        let address = Address::Unix(self.data.join("bench-socket"));
        let options = ClientOptions { write_behind_after, ..ClientOptions::default() };
        Client::connect(&address, options).map_err(Failure::failed)
    }

    pub(super) fn end(self) -> Outcome {
        self.server.shutdown().map_err(Failure::failed)?;
        std::fs::remove_dir_all(&self.data).map_err(Failure::failed)
    }
}

/// A new data directory.
pub(super) fn formatted(plan: &Plan, name: &str, format: &FormatOptions) -> Outcome<PathBuf> {
    let data = plan.dir.join(name);
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(&data, format, &world).map_err(Failure::from)?;
    Ok(data)
}

pub(super) fn make_dir(dir: &Path) -> Outcome {
    std::fs::create_dir_all(dir).map_err(|e| Failure::failed(format!("cannot make {}: {e}", dir.display())))
}

pub(super) fn unmount(mount: Mount) -> Outcome {
    mount.unmount().map_err(|(e, _)| Failure::from(e))
}

/// Runs `f`; also returns the seconds.
pub(super) fn timed<T>(f: impl FnOnce() -> Outcome<T>) -> Outcome<(T, f64)> {
    let start = RealWorld.monotonic();
    let value = f()?;
    Ok((value, (RealWorld.monotonic() - start).as_secs_f64()))
}

/// A name that no other call of this run gives.
pub(super) fn name(i: u64) -> Vec<u8> {
    format!("file.{i:08}").into_bytes()
}
