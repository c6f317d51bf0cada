//! From the paths of a command line to places of a file system.
//!
//! Invariants:
//! - A path of a mount means what it means to every program: the kernel resolves all of it but its last name.
//! - No path leads into the mount of a branch, whose files no server has.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_trees::Place;
use chiton_types::{Name, Refusal};

use super::At;
use crate::commands::realm;
use crate::failure::{Class, Failure, Outcome};
use crate::reach::{self, Mount};
use crate::{identity, target};

/// A server that is silent for this long is given up.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A path of the command line.
#[derive(Debug)]
pub(super) struct Said {
    /// As the user wrote it.
    pub(super) path: PathBuf,
    /// From the root of the file system on.
    pub(super) within: PathBuf,
    /// Its full name in the mount, if it is in one.
    at: Option<PathBuf>,
}

/// A client of the file system that all these paths are in.
pub(super) fn open(at: &At, paths: &[PathBuf], command: &str) -> Outcome<(Client, Vec<Said>)> {
    let (address, said) = match &at.server {
        Some(server) => {
            reach::answering(Path::new(server))?;
            let said = paths.iter().map(|path| on_server(path)).collect::<Outcome<_>>()?;
            (target::address(server)?, said)
        }
        None => {
            let mut all: Vec<(String, Said)> = Vec::new();
            for path in paths {
                let (source, said) = in_mount(path)?;
                if let Some((other, before)) = all.first().filter(|(other, _)| *other != source) {
                    return Err(Failure::failed(format!(
                        "{} and {} are in two file systems ({other}, {source}): name paths of one",
                        before.path.display(),
                        path.display()
                    )));
                }
                all.push((source, said));
            }
            let first = all.first().map(|(source, said)| (source.clone(), said.path.display().to_string()));
            let (source, shown) = first.ok_or_else(|| Failure::failed("no path is named"))?;
            (target::from_source(&source, &shown)?, all.into_iter().map(|(_, said)| said).collect())
        }
    };
    let shown = at.server.clone().unwrap_or_else(|| paths[0].display().to_string());
    reach::probe(&address, &shown)?;
    let options = ClientOptions {
        identity: format!("chiton {command}, process {}", std::process::id()),
        timeout: Some(TIMEOUT),
        // Operations go in batches, each with its result.
        write_behind_after: None,
        ..ClientOptions::default()
    };
    let client = Client::connect(&address, identity::with(options)?)
        .map_err(|e| Failure::absent(format!("no server answers for {shown}: {e}")))?;
    Ok((client, said))
}

fn on_server(path: &Path) -> Outcome<Said> {
    if !path.is_absolute() {
        return Err(Failure::failed(format!(
            "{} is not a path in the file system: with --server it begins with /",
            path.display()
        )));
    }
    Ok(Said { path: path.to_owned(), within: path.to_owned(), at: None })
}

/// The source of the mount that a path is in, and the path in it.
fn in_mount(path: &Path) -> Outcome<(String, Said)> {
    let shown = path.display();
    ours(reach::mount_around(path)?, path)?;
    reach::answering(path)?;
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::absent(format!("{shown} does not exist: the directory that would hold it is not there"))
        }
        std::io::ErrorKind::ResourceBusy => realm::held(path),
        _ => Failure::failed(format!("cannot look at {shown}: {e}")),
    };
    let absolute = std::path::absolute(path).map_err(failed)?;
    let full = match (absolute.components().next_back(), absolute.parent()) {
        (Some(Component::Normal(name)), Some(parent)) => {
            std::fs::canonicalize(parent).map_err(failed)?.join(name)
        }
        _ => std::fs::canonicalize(&absolute).map_err(failed)?,
    };
    // A slash behind a link means the directory that it leads to; rm(1) refuses that, too.
    if path.as_os_str().as_bytes().ends_with(b"/") && full.is_symlink() {
        return Err(Failure::failed(format!(
            "{shown} is a symbolic link with a slash behind it: name the link without the slash, or the directory that it leads to"
        )));
    }
    // A link on the way may have led elsewhere.
    let mount = ours(reach::mount_around(&full)?, path)?;
    let within = Path::new("/").join(full.strip_prefix(&mount.dir).map_err(Failure::failed)?);
    Ok((mount.source, Said { path: path.to_owned(), within, at: Some(full) }))
}

fn ours(mount: Option<Mount>, path: &Path) -> Outcome<Mount> {
    let shown = path.display();
    let mount = mount.filter(Mount::is_ours).ok_or_else(|| {
        Failure::absent(format!(
            "{shown} is not in a mount of Chiton: name a path of one, or --server and a path in the file system"
        ))
    })?;
    match target::is_of_branch(&mount.source) {
        false => Ok(mount),
        true => Err(Failure::failed(format!(
            "{shown} is in the mount of a branch, and the server does not have the branch's changes: use the system's commands there"
        ))),
    }
}

impl Said {
    /// The inode that it names in the file system.
    pub(super) fn place(&self, client: &Client) -> Result<Place, Failure> {
        let found = Place::find(client, self.within.as_os_str().as_bytes(), self.path.as_os_str().as_bytes());
        found.map_err(|refusal| self.failure(refusal))
    }

    /// The directory and name of a place that need not be there.
    pub(super) fn new_name(&self, client: &Client) -> Result<Option<(chiton_types::Ino, Name)>, Failure> {
        let found = Place::new_name(client, self.within.as_os_str().as_bytes());
        found.map_err(|refusal| self.failure(refusal))
    }

    pub(super) fn failure(&self, refusal: Refusal) -> Failure {
        let shown = self.path.display();
        match refusal {
            Refusal::NotFound => Failure::absent(format!("{shown} does not exist; name a path that does")),
            Refusal::Busy if self.at.is_some() => realm::held(&self.path),
            Refusal::Busy => Failure::new(
                Class::Busy,
                format!(
                    "{shown} is in a subtree that another client has decoupled; chiton decoupled names it"
                ),
            ),
            Refusal::NotConnected => {
                Failure::absent(format!("the server does not answer any more ({shown})"))
            }
            _ => Failure::failed(format!("cannot look at {shown}: {refusal}")),
        }
    }

    /// Refuses if another file system is mounted at the path or below it: its mount point must stay.
    pub(super) fn holds_no_mount(&self) -> Outcome {
        let Some(at) = &self.at else { return Ok(()) };
        match reach::mount_points()?.into_iter().find(|mount| mount.starts_with(at)) {
            None => Ok(()),
            Some(mount) => Err(Failure::new(
                Class::Busy,
                format!(
                    "a file system is mounted on {}: unmount it first, or name paths beside it",
                    mount.display()
                ),
            )),
        }
    }
}
