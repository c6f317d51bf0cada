//! The storage of a cluster while the file system of one server is copied to it.
//!
//! ```text
//!   growing.json    which file system is copied here: present from the first step to the last
//!   chiton.json     written when everything is there and checked: then it is the storage of a cluster
//!   and in the storage of the old file system:
//!   became-cluster.json    written before that: no server serves the old file system any more
//! ```
//!
//! Invariants:
//! - A repeated copy continues with the identity that the first one chose, and only for the same source and the same plates.
//! - At no moment may both file systems be served: the old one is closed first, then the new one is opened.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use chiton_journal::{Identity, reset};
use chiton_metastore::{Batch, Metastore, StoreError};
use chiton_objects::Objects;
use chiton_runtime::World;
use chiton_types::{Epoch, PlateId, Position, ShardId};
use serde::{Deserialize, Serialize};

use crate::address::DataAddress;
use crate::bucket::Bucket;
use crate::error::{FormatError, StartError};
use crate::format::{
    FilesystemInfo, FormatOptions, INFO_FILE, PLATES_FOLDER, STORES_FOLDER, VERSION, check_options, info_text,
};
use crate::session_ids::{first_session_id, plate_of_session_id};
use crate::stores::Stores;
use chiton_engine::{POSITION_KEY, SESSION_MARK_KEY, mark_key, position_value};

const GROWING_FILE: &str = "growing.json";
/// In the storage of a file system that has become a cluster.
pub const BECAME_FILE: &str = "became-cluster.json";
const PAGE: usize = 1000;

/// The content of `growing.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Growing {
    /// Identity of the file system that is copied.
    source: u64,
    target: FilesystemInfo,
}

/// The cluster that a file system has become: the content of `became-cluster.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Became {
    /// Address of its storage.
    pub data: String,
    /// Address of the monitor that has its map.
    pub monitor: String,
    /// Identity of the file system.
    pub filesystem: u64,
}

impl Became {
    /// The cluster that the file system at this place has become, if any.
    ///
    /// # Errors
    /// [`StartError::Failed`].
    pub fn read(data: &DataAddress) -> Result<Option<Became>, StartError> {
        let failed = |e: &dyn std::fmt::Display| StartError::Failed(format!("{BECAME_FILE} of {data}: {e}"));
        let Some(text) = read_file(data, BECAME_FILE).map_err(|e| failed(&e))? else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|e| failed(&e))
    }

    /// Closes the file system at this place: servers refuse it from now on.
    ///
    /// # Errors
    /// In words.
    pub fn write(&self, data: &DataAddress) -> Result<(), String> {
        write_file(data, BECAME_FILE, &serde_json::to_vec_pretty(self).expect("plain values"))
    }
}

/// The storage of the cluster that the file system becomes.
pub struct GrowthTarget {
    data: DataAddress,
    info: FilesystemInfo,
    stores: Vec<Stores>,
}

impl GrowthTarget {
    /// Begins a copy, or continues one. Rows and journals of an earlier attempt are removed, blocks stay.
    ///
    /// # Errors
    /// [`FormatError::Formatted`] if the copy is complete, or another file system is there. [`FormatError::NotEmpty`] if
    /// something else is.
    pub fn begin(
        data: &DataAddress,
        source: &FilesystemInfo,
        plates: u16,
        monitor: &str,
        world: &dyn World,
    ) -> Result<GrowthTarget, FormatError> {
        let failed = |what: String| FormatError::Failed(format!("{data}: {what}"));
        check_options(&FormatOptions { shards: source.shards, plates, ..FormatOptions::default() })?;
        match data {
            DataAddress::Dir(dir) => fs::create_dir_all(dir).map_err(|e| failed(e.to_string()))?,
            DataAddress::S3(location) => {
                let bucket = Bucket::open(location).map_err(FormatError::Failed)?;
                bucket.s3.probe(world.random()).map_err(FormatError::Failed)?;
            }
        }
        if read_file(data, INFO_FILE).map_err(failed)?.is_some() {
            return Err(FormatError::Formatted(data.clone()));
        }
        let growing = match read_file(data, GROWING_FILE).map_err(failed)? {
            Some(text) => {
                let found: Growing =
                    serde_json::from_slice(&text).map_err(|e| failed(format!("{GROWING_FILE}: {e}")))?;
                check_continues(&found, source, plates, monitor).map_err(failed)?;
                found
            }
            None => {
                if !is_empty(data).map_err(failed)? {
                    return Err(FormatError::NotEmpty(data.clone()));
                }
                let target = FilesystemInfo {
                    version: VERSION,
                    filesystem: world.random() >> 1,
                    shards: source.shards,
                    plates,
                    created: source.created,
                    monitor: Some(monitor.to_owned()),
                };
                let growing = Growing { source: source.filesystem, target };
                let text = serde_json::to_vec_pretty(&growing).expect("plain values");
                write_file(data, GROWING_FILE, &text).map_err(failed)?;
                growing
            }
        };
        remove_stores(data).map_err(failed)?;
        let stores = (0..plates).map(|plate| Stores::open_shared(data, PlateId(plate)));
        let stores = stores.collect::<Result<Vec<_>, _>>().map_err(|e| failed(e.to_string()))?;
        Ok(GrowthTarget { data: data.clone(), info: growing.target, stores })
    }

    /// The description that the new file system will have.
    pub fn info(&self) -> &FilesystemInfo {
        &self.info
    }

    /// The object store that gets its blocks.
    pub fn objects(&self) -> Arc<dyn Objects> {
        self.stores[0].objects.clone()
    }

    /// Opens the metadata store of a plate.
    ///
    /// # Errors
    /// The store's.
    pub fn open_meta(&self, plate: PlateId) -> Result<Arc<dyn Metastore>, StoreError> {
        (self.stores[usize::from(plate.0)].open_meta)()
    }

    /// Makes the journal and the server's own rows of a plate, whose other rows are in `meta`. `position`: of the last change in any
    /// row. `marks`: for each shard, the inode counter that was never given out.
    ///
    /// # Errors
    /// In words.
    pub fn begin_plate(
        &self,
        plate: PlateId,
        meta: &dyn Metastore,
        (position, session_mark): (Position, u64),
        marks: &[u64],
        world: &dyn World,
    ) -> Result<(), String> {
        assert_eq!(plate_of_session_id(session_mark), plate, "session ids of the plate");
        let identity =
            Identity { journal: self.info.journal_of(plate), epoch: Epoch(1), nonce: world.random() };
        let place = &self.stores[usize::from(plate.0)].place;
        reset(&**place, identity, position.next()).map_err(|e| e.to_string())?;
        let mut batch = Batch::new();
        batch.put(POSITION_KEY, position_value(position));
        batch.put(SESSION_MARK_KEY, session_mark.to_le_bytes());
        for (shard, mark) in (0..).map(ShardId).zip(marks) {
            batch.put(mark_key(shard), mark.to_le_bytes());
        }
        meta.commit(&batch).map_err(|e| e.to_string())
    }

    /// Makes it the storage of a cluster.
    ///
    /// # Errors
    /// In words.
    pub fn finish(&self) -> Result<(), String> {
        write_file(&self.data, INFO_FILE, info_text(&self.info).as_bytes())?;
        remove_file(&self.data, GROWING_FILE)
    }
}

/// The session ids of a plate that nobody has used, if the old file system has used those below `marks`.
pub fn next_session_id(plate: PlateId, marks: &[u64]) -> u64 {
    let own = marks.iter().copied().filter(|mark| plate_of_session_id(*mark) == plate);
    own.max().unwrap_or_else(|| first_session_id(plate))
}

fn check_continues(
    found: &Growing,
    source: &FilesystemInfo,
    plates: u16,
    monitor: &str,
) -> Result<(), String> {
    if found.source != source.filesystem {
        return Err(format!(
            "it has an unfinished copy of another file system ({:016x}): remove that, or choose another place",
            found.source
        ));
    }
    let before = (found.target.plates, found.target.monitor.as_deref());
    if before == (plates, Some(monitor)) {
        return Ok(());
    }
    let (before, at) = (before.0, before.1.unwrap_or_default());
    Err(format!(
        "an earlier copy to it began with --plates {before} and --monitor {at}: repeat it with these, or remove it and begin anew"
    ))
}

fn read_file(data: &DataAddress, name: &str) -> Result<Option<Vec<u8>>, String> {
    match data {
        DataAddress::Dir(dir) => match fs::read(dir.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.to_string()),
        },
        DataAddress::S3(location) => {
            let bucket = Bucket::open(location)?;
            match bucket.objects.get(name, None) {
                Ok(text) => Ok(Some(text)),
                Err(e) if e.is_not_found() => Ok(None),
                Err(e) => Err(bucket.s3.explain(&e)),
            }
        }
    }
}

/// Durable when it returns.
fn write_file(data: &DataAddress, name: &str, text: &[u8]) -> Result<(), String> {
    match data {
        DataAddress::Dir(dir) => write_durably(dir, name, text).map_err(|e| format!("{name}: {e}")),
        DataAddress::S3(location) => {
            let bucket = Bucket::open(location)?;
            let put = bucket.objects.put(name, text).and_then(|()| bucket.objects.sync());
            put.map_err(|e| bucket.s3.explain(&e))
        }
    }
}

fn write_durably(dir: &Path, name: &str, text: &[u8]) -> std::io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}

fn remove_file(data: &DataAddress, name: &str) -> Result<(), String> {
    match data {
        DataAddress::Dir(dir) => match fs::remove_file(dir.join(name)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e.to_string()),
            _ => File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| e.to_string()),
        },
        DataAddress::S3(location) => {
            let bucket = Bucket::open(location)?;
            bucket.objects.delete(name).map_err(|e| bucket.s3.explain(&e))
        }
    }
}

/// Whether the place is empty, except for the remains of a write of `growing.json` that was cut off.
fn is_empty(data: &DataAddress) -> Result<bool, String> {
    match data {
        DataAddress::Dir(dir) => {
            let cut_off = format!("{GROWING_FILE}.new");
            for entry in fs::read_dir(dir).map_err(|e| e.to_string())? {
                if entry.map_err(|e| e.to_string())?.file_name() != *cut_off {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        DataAddress::S3(location) => {
            let bucket = Bucket::open(location)?;
            let found = bucket.objects.list("", None, PAGE).map_err(|e| bucket.s3.explain(&e))?;
            Ok(found.iter().all(|object| object.key.starts_with("probe/")))
        }
    }
}

/// Removes the rows and journals of an earlier attempt.
fn remove_stores(data: &DataAddress) -> Result<(), String> {
    match data {
        DataAddress::Dir(dir) => match fs::remove_dir_all(dir.join(STORES_FOLDER)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e.to_string()),
            _ => Ok(()),
        },
        DataAddress::S3(location) => {
            let bucket = Bucket::open(location)?;
            for prefix in ["journal/", "meta/", &format!("{PLATES_FOLDER}/")] {
                loop {
                    let page = bucket.objects.list(prefix, None, PAGE).map_err(|e| bucket.s3.explain(&e))?;
                    if page.is_empty() {
                        break;
                    }
                    for object in page {
                        bucket.objects.delete(&object.key).map_err(|e| bucket.s3.explain(&e))?;
                    }
                }
            }
            Ok(())
        }
    }
}
