//! Turns a target of a user (mount point, data directory, address) into a client.

use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_etcd::EtcdAddress;
use chiton_server::DataAddress;
use chiton_transport::Address;
use chiton_wire::TOOL_IDENTITY;

use crate::commands::cluster;
use crate::failure::{Failure, Outcome};
use crate::identity;
use crate::reach::{self, Mount, answering, mount_around};

/// The file that marks a data directory.
pub(crate) const FORMAT_FILE: &str = "chiton.json";
/// Socket in a data directory on which its server listens.
pub(crate) const SOCKET: &str = "socket";

/// The data address with a directory's full name, which is the same from everywhere.
pub(crate) fn absolute(data: &DataAddress) -> Outcome<DataAddress> {
    match data {
        DataAddress::Dir(dir) => std::path::absolute(dir)
            .map(DataAddress::Dir)
            .map_err(|e| Failure::failed(format!("cannot find the full name of {}: {e}", dir.display()))),
        DataAddress::S3(_) => Ok(data.clone()),
    }
}

/// Where the server of this file system listens on this machine: in the data directory, or, for a bucket, in a directory
/// that only this user may enter, which is made.
pub(crate) fn socket(data: &DataAddress) -> Outcome<PathBuf> {
    let location = match data {
        DataAddress::Dir(dir) => return Ok(dir.join(SOCKET)),
        DataAddress::S3(location) => location,
    };
    let dir = own_dir()?;
    // A socket's name must be short; the hash covers the whole location.
    let name = location.to_string();
    let hash = xxhash_rust::xxh3::xxh3_64(name.as_bytes());
    Ok(dir.join(format!("{hash:016x}.socket")))
}

/// A directory that only this user may enter, which is made.
pub(crate) fn own_dir() -> Outcome<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("chiton"),
        _ => std::env::temp_dir().join(format!("chiton-{uid}")),
    };
    made(dir, 0o700, "remove it, or set XDG_RUNTIME_DIR")
}

/// The directory, created with this mode if it is absent. It must belong to this user, and grant other users no
/// more than the mode.
pub(crate) fn made(dir: PathBuf, mode: u32, hint: &str) -> Outcome<PathBuf> {
    let failed = |e: std::io::Error| {
        Failure::failed(format!("cannot make the directory {}: {e}; {hint}", dir.display()))
    };
    match std::fs::DirBuilder::new().mode(mode).create(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(e)),
        _ => {}
    }
    let meta = std::fs::symlink_metadata(&dir).map_err(failed)?;
    let uid = rustix::process::getuid().as_raw();
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o777 & !mode != 0 {
        return Err(Failure::failed(format!(
            "{} is not a directory that this user owns and others cannot change: {hint}",
            dir.display()
        )));
    }
    Ok(dir)
}

/// Where a mount of this process is asked about decoupled subtrees. `for_others`: other users may come near; whether
/// they are heard is the mount's to decide.
pub(crate) fn control_socket(for_others: bool) -> Outcome<PathBuf> {
    let run = Path::new("/run");
    let dir = match for_others && rustix::process::geteuid().is_root() && run.is_dir() {
        true => made(run.join("chiton"), 0o711, "remove it")?,
        false => own_dir()?,
    };
    Ok(dir.join(chiton_fuse::control_name()))
}

/// The address of the server behind `target`: a mount point or anything in a mount, a data directory, an address.
pub(crate) fn address(target: &str) -> Outcome<Address> {
    if has_scheme(target) && !target.starts_with(EtcdAddress::SCHEME) {
        return parse(target);
    }
    let path = Path::new(target);
    let around = mount_around(path)?;
    if let Some(mount) = around.as_ref().filter(|mount| mount.is_its_root()) {
        return from_source(&mount.source, target);
    }
    if target.starts_with(EtcdAddress::SCHEME) {
        return cluster::server_that_answers(target);
    }
    if let Ok(data @ DataAddress::S3(_)) = target.parse() {
        return Ok(Address::Unix(socket(&data)?));
    }
    answering(path)?;
    if path.join(FORMAT_FILE).is_file() {
        // A socket's address is absolute.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        return parse(&format!("unix:{}", path.join(SOCKET).display()));
    }
    if let Some(mount) = around.filter(Mount::is_ours) {
        if !path.exists() {
            return Err(Failure::absent(format!("{target} does not exist; name an existing path")));
        }
        return from_source(&mount.source, target);
    }
    if path.is_dir() {
        return Err(Failure::absent(format!(
            "{target} is neither a mount point of Chiton nor a data directory; chiton format {target} creates a file system in an \
             empty directory"
        )));
    }
    if is_place(target) && !path.exists() {
        return Err(Failure::absent(format!(
            "{target} does not exist; name a mount point, a data directory, or a server's address (tcp:HOST:PORT or unix:PATH)"
        )));
    }
    parse(target)
}

/// Whether a word names a place for data: a bucket, or a directory that exists or could be created. Other words are
/// addresses.
pub(crate) fn is_place(target: &str) -> bool {
    !reads_as_address(target) && !is_socket(Path::new(target))
}

/// Whether a target reads as a path, not as an address or a bucket. Nothing is looked at.
pub(crate) fn is_path(target: &str) -> bool {
    !matches!(target.parse(), Ok(DataAddress::S3(_))) && !reads_as_address(target)
}

fn has_scheme(target: &str) -> bool {
    ["unix:", "tcp:", EtcdAddress::SCHEME].iter().any(|scheme| target.starts_with(scheme))
}

fn reads_as_address(target: &str) -> bool {
    has_scheme(target) || (!target.contains('/') && target.parse::<Address>().is_ok())
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// A client of the server behind `target`, for a question or two.
pub(crate) fn client(target: &str) -> Outcome<Client> {
    if is_path(target) {
        answering(Path::new(target))?;
    }
    let address = address(target)?;
    reach::probe(&address, target)?;
    let options = ClientOptions {
        identity: format!("{TOOL_IDENTITY}process {}", std::process::id()),
        timeout: Some(Duration::from_secs(5)),
        ..ClientOptions::default()
    };
    Client::connect(&address, identity::with(options)?)
        .map_err(|e| Failure::absent(format!("no server answers for {target}: {e}")))
}

/// Parses JSON that a server answered.
pub(crate) fn admin(client: &Client, what: &str) -> Outcome<serde_json::Value> {
    let bytes = client
        .admin(what)
        .map_err(|r| Failure::failed(format!("the server does not report its {what}: {r}")))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Failure::failed(format!("the server's {what} is not JSON: {e}")))
}

fn parse(text: &str) -> Outcome<Address> {
    text.parse().map_err(|e| Failure::absent(format!("{text}: {e}")))
}

/// The separator between the source of a mount and its branch.
const BRANCH: &str = "#branch=";

/// The source of a mount of a branch.
pub(crate) fn source_of_branch(address: &Address, name: &str) -> String {
    let name: String = name.chars().map(|c| if c == ',' || c.is_control() { '_' } else { c }).collect();
    format!("chiton:{}{BRANCH}{name}", address.to_string().replace(',', "_"))
}

/// Whether a mount is one of a branch.
pub(crate) fn is_of_branch(source: &str) -> bool {
    source.contains(BRANCH)
}

/// The monitor of the cluster behind the source of a mount; `None` if the source is something else.
pub(crate) fn monitor_of_source(source: &str) -> Option<String> {
    let source = source.split_once(BRANCH).map_or(source, |(source, _)| source);
    let monitor = source.strip_prefix("chiton:")?;
    monitor.starts_with(EtcdAddress::SCHEME).then(|| monitor.to_owned())
}

/// The address of the server behind the source of a mount, which is at `target`.
pub(crate) fn from_source(source: &str, target: &str) -> Outcome<Address> {
    let source = source.split_once(BRANCH).map_or(source, |(source, _)| source);
    match source.strip_prefix("chiton:") {
        Some(at) if at.starts_with("unix:") || at.starts_with("tcp:") => parse(at),
        Some(monitor) if monitor.starts_with(EtcdAddress::SCHEME) => cluster::server_behind_mount(monitor),
        Some(data) => match data.parse() {
            Ok(data) => Ok(Address::Unix(socket(&data)?)),
            Err(e) => Err(Failure::absent(format!("{target}: {e}"))),
        },
        None => Err(Failure::absent(format!(
            "{target} is a mount of {source}, which is not Chiton: name a mount of Chiton"
        ))),
    }
}
