//! The directory that branches are of, and the server that has it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chiton_client::data::FilesOptions;
use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Branch, RealmError, Realms, RealmsOptions};
use chiton_transport::Address;
use chiton_types::{Ino, Name};

use super::Where;
use crate::commands::realm::{self, state_dir};
use crate::failure::{Class, Failure, Outcome};
use crate::{identity, reach, target};

/// A directory with its branches.
pub(super) struct Tree {
    pub(super) client: Arc<Client>,
    pub(super) realms: Arc<Realms>,
    pub(super) root: Ino,
    /// The path in the file system.
    pub(super) path: PathBuf,
    pub(super) address: Address,
    /// The path as the user gave it.
    pub(super) said: String,
    /// Settings of the clients in its branches.
    clients: ClientOptions,
}

/// Settings of a client of which a process, or a machine, has many.
fn small() -> ClientOptions {
    let files = FilesOptions {
        dirty_bytes_max: 16 << 20,
        cache_bytes_max: 8 << 20,
        read_ahead_bytes_max: 4 << 20,
        idle_files_max: 256,
        upload_threads: 1,
        read_ahead_threads: 1,
        ..FilesOptions::default()
    };
    ClientOptions { cache_entries_max: 10_000, kept_bytes_max: 8 << 20, files, ..ClientOptions::default() }
}

impl Tree {
    /// Finds it. `who`: the name of this client for the server; `timeout` in seconds, for a server that is away.
    pub(super) fn find(at: &Where, who: &str, timeout: Option<u64>) -> Outcome<Tree> {
        Tree::find_with(at, who, timeout, ClientOptions::default())
    }

    /// The same, for a process that serves one of many branches.
    pub(super) fn find_small(at: &Where, who: &str, timeout: Option<u64>) -> Outcome<Tree> {
        Tree::find_with(at, who, timeout, small())
    }

    fn find_with(at: &Where, who: &str, timeout: Option<u64>, clients: ClientOptions) -> Outcome<Tree> {
        let said = at.path.display().to_string();
        let (address, path, known) = match &at.server {
            Some(address) => (address.clone(), at.path.clone(), None),
            None => of_mount(&at.path)?,
        };
        reach::probe(&address, &said)?;
        let options = ClientOptions {
            identity: format!("{who}, process {}", std::process::id()),
            timeout: timeout.map(Duration::from_secs),
            decouples: true,
            ..clients.clone()
        };
        let client = Client::connect(&address, identity::with(options)?)
            .map_err(|e| Failure::absent(format!("no server answers for {said}: {e}")))?;
        let client = Arc::new(client);
        let root = match known {
            Some(root) => root,
            None => {
                let path = path.to_str().filter(|path| path.starts_with('/'));
                let path = path.ok_or_else(|| {
                    Failure::failed(format!(
                        "{said} is not a path in the file system: with --server it begins with /"
                    ))
                })?;
                let attr = client.stat(path);
                attr.map_err(|refusal| Failure::absent(format!("cannot look at {said}: {refusal}")))?.ino
            }
        };
        let realms = realms(&client, at.state_dir.as_ref(), at.accept_truncated, clients.clone())?;
        Ok(Tree { client, realms, root, path, address, said, clients })
    }

    /// A branch of the directory. Its state directory becomes the default of this tree.
    pub(super) fn branch(&mut self, at: &Where, name: &Name) -> Outcome<Branch> {
        let branch = self.realms.branch(self.root, name).map_err(failure)?;
        if let (None, Some(dir)) = (&at.state_dir, branch.state_dir()) {
            self.realms = realms(&self.client, Some(&dir), at.accept_truncated, self.clients.clone())?;
            return self.realms.branch(self.root, name).map_err(failure);
        }
        Ok(branch)
    }

    /// Closes this process's branches, and makes everything durable.
    pub(super) fn close(self) -> Outcome {
        let first = self.realms.close().into_iter().next();
        let synced = self.client.sync();
        synced.map_err(|r| {
            Failure::failed(format!("not everything could be made durable: {r}; chiton status says why"))
        })?;
        first.map_or(Ok(()), |error| Err(failure(error)))
    }
}

fn realms(
    client: &Arc<Client>,
    dir: Option<&PathBuf>,
    accept_truncated: bool,
    clients: ClientOptions,
) -> Outcome<Arc<Realms>> {
    let options = RealmsOptions { state_dir: state_dir(dir)?, client: clients, accept_truncated };
    Ok(Realms::new(client.clone(), options))
}

/// Server, path in the file system and inode of a directory of a mount.
fn of_mount(path: &Path) -> Outcome<(Address, PathBuf, Option<Ino>)> {
    let said = path.display();
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::absent(format!("{said} does not exist; name an existing directory"))
        }
        std::io::ErrorKind::ResourceBusy => realm::held(path),
        _ => Failure::failed(format!("cannot look at {said}: {e}")),
    };
    reach::answering(path)?;
    let path = std::fs::canonicalize(path).map_err(failed)?;
    let Some(reach::Mount { dir: mountpoint, source, .. }) = reach::mount_around(&path)? else {
        return Err(Failure::absent(format!(
            "{said} is not in a mount of Chiton; name a directory in one, or use --server"
        )));
    };
    if target::is_of_branch(&source) {
        return Err(Failure::failed(format!(
            "{said} is in a mount of a branch, which has no branches itself: name the original directory"
        )));
    }
    let address = target::from_source(&source, &said.to_string())?;
    let within = Path::new("/").join(path.strip_prefix(&mountpoint).unwrap_or(Path::new("")));
    let meta = std::fs::metadata(&path).map_err(failed)?;
    Ok((address, within, Some(Ino(meta.ino()))))
}

/// Parses the name of a branch.
pub(super) fn name(text: &str) -> Outcome<Name> {
    Name::new(text.as_bytes()).map_err(|_| {
        Failure::failed(format!("{text:?} is not a valid branch name: use 1 to 255 bytes without /"))
    })
}

pub(super) fn failure(error: RealmError) -> Failure {
    Failure::new(Class::of(error.exit_code()), error.to_string())
}
