//! The source of a view's rows: a running server, or the stores of a file system without a server.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chiton_admin::View as Rows;
use chiton_admin::fsck::Offline;
use chiton_client::data::{BlockIo, DirectBlocks};
use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{JournalAt, decouplings, journal_at, user_at};
use chiton_metastore::Metastore;
use chiton_objects::Objects;
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, FilesystemInfo, StartError};
use chiton_transport::Address;
use chiton_types::Refusal;
use chiton_wire::RealmInfo;

use super::View;
use super::journals::is_about;
use crate::commands::realm::MountedPath;
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;
use crate::reach::{self, Mount};
use crate::{identity, target};

/// A server that is silent for this long is given up.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The source of a view's rows.
pub(super) struct Source {
    /// The directory, in the file system.
    pub(super) path: PathBuf,
    /// The target as the user gave it.
    pub(super) said: String,
    pub(super) info: FilesystemInfo,
    pub(super) rows: Arc<dyn Metastore>,
    pub(super) objects: Arc<dyn Objects>,
    pub(super) blocks: Arc<dyn BlockIo>,
    /// The mount that the path is in, if it can be asked.
    pub(super) mount: Option<MountedPath>,
    live: Option<(Arc<Client>, Arc<Rows>)>,
    /// Decouplings in the rows.
    seen: RefCell<Vec<RealmInfo>>,
    /// Holds the lock of the stores.
    _offline: Option<Offline>,
}

impl Source {
    /// Opens the source: makes mounts write out their data, and takes the rows of that moment.
    pub(super) fn find(args: &View) -> Outcome<Source> {
        let said = args.path.display().to_string();
        if args.server.is_some() || args.data.is_some() {
            if !args.path.is_absolute() {
                return Err(Failure::failed(format!(
                    "{said} is not a path in the file system: with --server or --data it begins with /"
                )));
            }
            return match (&args.server, &args.data) {
                (Some(address), _) => Source::served(args, address, args.path.clone(), None),
                (_, Some(data)) => Source::of_data(args, &target::absolute(data)?),
                _ => unreachable!("one of them is there"),
            };
        }
        let mount = reach::mount_around(&args.path)?.filter(Mount::is_ours);
        let Some(mount) = mount else {
            return Err(Failure::absent(format!(
                "{said} is not in a mount of Chiton: name a path of one, or --server or --data and a path in the file system"
            )));
        };
        if target::is_of_branch(&mount.source) {
            return Err(Failure::failed(format!(
                "{said} is in the mount of a branch: name the directory that it is a branch of, and the branch with --journal"
            )));
        }
        reach::answering(&args.path)?;
        let address = target::from_source(&mount.source, &said)?;
        Source::served(args, &address, mount.within(), Some(&mount))
    }

    fn of_data(args: &View, data: &DataAddress) -> Outcome<Source> {
        let work = Work::begin("replaying the journal");
        let mut report = |bytes_done, bytes_total| work.count(bytes_done, bytes_total);
        let offline = match Offline::open(data, Arc::new(RealWorld), &mut report) {
            Ok(offline) => offline,
            Err(StartError::Held { .. }) => {
                let address = Address::Unix(target::socket(data)?);
                return Source::served(args, &address, args.path.clone(), None);
            }
            Err(error) => return Err(error.into()),
        };
        offline.info().check_one_plate(data, "chiton view")?;
        if let Some(damage) = offline.journal_damage() {
            return Err(Failure::failed(format!(
                "the file system's own journal is damaged: {damage}; `chiton journal inspect` shows the damage"
            )));
        }
        Ok(Source {
            path: args.path.clone(),
            said: args.path.display().to_string(),
            info: offline.info().clone(),
            rows: offline.rows(),
            blocks: Arc::new(DirectBlocks::new(offline.objects())),
            objects: offline.objects(),
            mount: None,
            live: None,
            seen: RefCell::default(),
            _offline: Some(offline),
        })
    }

    fn served(args: &View, address: &Address, path: PathBuf, mount: Option<&Mount>) -> Outcome<Source> {
        let said = args.path.display().to_string();
        reach::probe(address, &said)?;
        let options = ClientOptions {
            identity: format!("chiton view, process {}", std::process::id()),
            timeout: Some(TIMEOUT),
            ..ClientOptions::default()
        };
        let client = Client::connect(address, identity::with(options)?)
            .map_err(|e| Failure::absent(format!("no server answers for {said}: {e}")))?;
        let client = Arc::new(client);
        let place = mount.and_then(|mount| MountedPath::find(&mount.dir).ok());
        flush(args, &client, &path, mount, place.as_ref());
        let rows = Arc::new(Rows::open(&client).map_err(|error| {
            let class = if error.refusal == Refusal::Busy { Class::Busy } else { Class::Failed };
            Failure::new(class, error.to_string())
        })?);
        if rows.plates() > 1 {
            return Err(Failure::failed(format!(
                "the file system of {said} has {} plates, and chiton view works only with one so far",
                rows.plates()
            )));
        }
        let shards = rows.shards().ok_or_else(|| Failure::failed("the server's view has no shards"))?;
        Ok(Source {
            path,
            said,
            info: FilesystemInfo {
                version: 1,
                filesystem: client.filesystem(),
                shards,
                plates: 1,
                created: 0,
                monitor: None,
            },
            rows: rows.clone(),
            objects: rows.clone(),
            blocks: client.blocks().clone(),
            mount: place,
            live: Some((client, rows)),
            seen: RefCell::default(),
            _offline: None,
        })
    }

    /// These decouplings are in the rows.
    pub(super) fn note(&self, all: &[RealmInfo]) {
        *self.seen.borrow_mut() = all.to_vec();
    }

    /// Whether decouplings have ended, changed hands or been merged further since.
    pub(super) fn has_moved(&self) -> bool {
        let Some((client, _)) = &self.live else { return false };
        let version = |info: &RealmInfo| (info.claim.realm, info.claim.generation, info.state);
        let seen: Vec<_> = self.seen.borrow().iter().map(version).collect();
        decouplings(client).is_ok_and(|now| now.iter().map(version).collect::<Vec<_>>() != seen)
    }

    /// Keeps the server from deleting viewed blocks, for a minute.
    pub(super) fn keep(&self) -> Outcome {
        let Some((_, rows)) = &self.live else { return Ok(()) };
        rows.keep().map_err(|refusal| {
            Failure::failed(format!("the server has ended the view ({refusal}): run the command again"))
        })
    }
}

/// Makes mounts of this machine write buffered data into their journals, and push it to the server. A mount that
/// cannot be asked is viewed as it is.
fn flush(args: &View, client: &Client, path: &Path, mount: Option<&Mount>, place: Option<&MountedPath>) {
    let mut dirs: Vec<PathBuf> = mount.iter().map(|mount| mount.dir.clone()).collect();
    let all = decouplings(client).unwrap_or_default();
    for info in all.iter().filter(|info| info.is_attached && is_about(info, path.as_os_str().as_bytes())) {
        let at = journal_at(info, client.filesystem(), args.state_dir.as_deref());
        match (&info.branch, at, mount, place) {
            (Some(_), Ok(JournalAt::Disk(dir)), ..) => dirs.extend(user_at(&dir).map(|user| user.mountpoint)),
            (None, _, Some(mount), Some(place)) if place.has(info.claim.realm.0) => {
                let below = info.path.strip_prefix(b"/").unwrap_or(&info.path);
                dirs.push(mount.dir.join(OsStr::from_bytes(below)));
            }
            _ => {}
        }
    }
    for dir in dirs {
        let synced = reach::answering(&dir).map_err(|failure| failure.message).and_then(|()| {
            File::open(&dir).and_then(|dir| dir.sync_all()).map_err(|error| error.to_string())
        });
        if let Err(why) = synced {
            let at = dir.display();
            chiton_runtime::log_line!(
                "chiton: the view lacks changes that {at} has not written out yet: {why}"
            );
        }
    }
}
