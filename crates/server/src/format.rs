//! The data directory: its files, and how they come to be.
//!
//! ```text
//!   chiton.json   version, identity, numbers of shards and plates      written last: its presence means "formatted"
//!   lock          who serves it
//!   journal/  meta/                  of plate 0
//!   plates/1/journal  plates/1/meta  of plate 1, and so on
//!   objects/                         of all plates
//!   stores/                          instead of journal/, meta/ and plates/ if several servers share the directory: the same as objects
//! ```

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use chiton_journal::{Identity, Journal};
use chiton_metastore::{Batch, FjallOptions};
use chiton_namespace::{Namespace, StoredRow};
use chiton_runtime::World;
use chiton_types::{Epoch, Ino, PlateId, Plates, Position, SHARDS_DEFAULT, SHARDS_MAX, ShardId};
use serde::{Deserialize, Serialize};

use crate::address::DataAddress;
use crate::error::{FormatError, StartError};
use crate::session_ids::first_session_id;
use crate::stores::{Stores, plate_dir};
use chiton_engine::{POSITION_KEY, SESSION_MARK_KEY, mark_key, position_value};

/// The one version of the data directory so far.
pub(crate) const VERSION: u32 = 1;
pub(crate) const INFO_FILE: &str = "chiton.json";
/// Most plates of a file system: each has threads and files of its own, and a part of the session ids.
pub const PLATES_MAX: u16 = 1024;
/// The folder of all plates but plate 0.
pub(crate) const PLATES_FOLDER: &str = "plates";
/// The folder of journals and rows in a directory that several servers share.
pub(crate) const STORES_FOLDER: &str = "stores";

/// The choices at the format of storage, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Number of shards, 1 to [`SHARDS_MAX`].
    pub shards: u16,
    /// Number of plates, 1 to the number of shards and at most [`PLATES_MAX`].
    pub plates: u16,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions { shards: SHARDS_DEFAULT, plates: 1, uid: 0, gid: 0 }
    }
}

/// The properties of a file system that never change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemInfo {
    /// Version of the data directory.
    pub version: u32,
    /// Identity of the file system.
    pub filesystem: u64,
    /// Number of shards, fixed when the file system is created.
    pub shards: u16,
    /// Number of plates, which share the shards evenly.
    pub plates: u16,
    /// When it was formatted, in seconds since the Unix epoch.
    pub created: i64,
    /// The monitor of the cluster that serves it, as it was when that was made; `None` if one server serves it at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,
}

/// The text of a `chiton.json`.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    info: FilesystemInfo,
    /// Of what stands before it, as [`checksum`] has it.
    checksum: String,
}

/// CRC32C of the values as JSON in one line, in hexadecimal.
fn checksum(info: &FilesystemInfo) -> String {
    format!("{:08x}", crc32c::crc32c(&serde_json::to_vec(info).expect("plain values")))
}

/// The text of `chiton.json`.
pub(crate) fn info_text(info: &FilesystemInfo) -> String {
    let stored = Stored { info: info.clone(), checksum: checksum(info) };
    serde_json::to_string_pretty(&stored).expect("plain values")
}

impl FilesystemInfo {
    /// The plates, and which shards they own.
    ///
    /// # Panics
    /// If the numbers do not fit: those that were read from storage do.
    pub fn plates(&self) -> Plates {
        Plates::new(self.shards, self.plates).expect("each plate has a shard")
    }

    /// Refuses what one server, or one tool, would do alone with the file system of a cluster.
    ///
    /// # Errors
    /// [`StartError::Clustered`] if it is one.
    pub fn check_alone(&self, data: &DataAddress) -> Result<(), StartError> {
        match &self.monitor {
            None => Ok(()),
            Some(monitor) => Err(StartError::Clustered { data: data.clone(), monitor: monitor.clone() }),
        }
    }

    /// Refuses `what`, which works only for a file system with one plate.
    ///
    /// # Errors
    /// [`StartError::Plates`] if it has more.
    pub fn check_one_plate(&self, data: &DataAddress, what: &'static str) -> Result<(), StartError> {
        match self.plates {
            1 => Ok(()),
            plates => Err(StartError::Plates { data: data.clone(), plates, what }),
        }
    }

    /// The identity of a plate's journal: the journals of two plates are never taken for each other.
    pub(crate) fn journal_of(&self, plate: PlateId) -> u64 {
        self.filesystem + u64::from(plate.0)
    }
}

/// Makes a new file system in the stores of its plates. They must be empty.
pub(crate) fn format_stores(
    stores: &[Stores],
    options: &FormatOptions,
    world: &dyn World,
) -> Result<FilesystemInfo, FormatError> {
    check_options(options)?;
    assert_eq!(stores.len(), usize::from(options.plates), "stores for each plate");
    let info = FilesystemInfo {
        version: VERSION,
        filesystem: world.random() >> 1,
        shards: options.shards,
        plates: options.plates,
        created: world.now().secs(),
        monitor: None,
    };
    for (plate, stores) in info.plates().all().zip(stores) {
        format_plate(&info, plate, stores, options, world).map_err(FormatError::Failed)?;
    }
    Ok(info)
}

pub(crate) fn check_options(options: &FormatOptions) -> Result<(), FormatError> {
    if !(1..=SHARDS_MAX).contains(&options.shards) {
        return Err(FormatError::Shards(options.shards));
    }
    let plates_max = options.shards.min(PLATES_MAX);
    if !(1..=plates_max).contains(&options.plates) {
        return Err(FormatError::Plates { plates: options.plates, plates_max });
    }
    Ok(())
}

/// Makes the journal and the rows of a plate. The root is in plate 0.
fn format_plate(
    info: &FilesystemInfo,
    plate: PlateId,
    stores: &Stores,
    options: &FormatOptions,
    world: &dyn World,
) -> Result<(), String> {
    let identity = Identity { journal: info.journal_of(plate), epoch: Epoch(1), nonce: world.random() };
    let journal = Journal::create(stores.place.clone(), identity, chiton_journal::Options::default())
        .map_err(|e| e.to_string())?;
    journal.close().map_err(|e| e.to_string())?;
    let mut batch = Batch::new();
    if info.plates().of(Ino::ROOT) == Some(plate) {
        batch.extend(Namespace::format_rows(world.now(), options.uid, options.gid));
    } else {
        let no_inodes = StoredRow::InodeCount(0);
        batch.put(no_inodes.key(), no_inodes.value());
    }
    batch.put(POSITION_KEY, position_value(Position(0)));
    batch.put(SESSION_MARK_KEY, first_session_id(plate).to_le_bytes());
    // Those of other plates' shards are there, too, and never change.
    for shard in 0..info.shards {
        // The root has the first number of its shard; 0 is nobody's.
        let first = if ShardId(shard) == Ino::ROOT.shard() { Ino::ROOT.counter() + 1 } else { 1u64 };
        batch.put(mark_key(ShardId(shard)), first.to_le_bytes());
    }
    let meta = (stores.open_meta)().map_err(|e| e.to_string())?;
    meta.commit(&batch).map_err(|e| e.to_string())?;
    // No journal holds these rows. So they must not rest on one of the store, which a damaged byte may cost.
    meta.reclaim(u64::MAX, 1).map_err(|e| e.to_string())?;
    meta.close().map_err(|e| e.to_string())
}

/// Makes a new file system in a directory, which is made if it is missing. `monitor`: of the cluster that is to serve it.
pub(crate) fn format_dir(
    dir: &Path,
    options: &FormatOptions,
    monitor: Option<&str>,
    world: &dyn World,
) -> Result<FilesystemInfo, FormatError> {
    let failed = |e: std::io::Error| FormatError::Failed(format!("{}: {e}", dir.display()));
    check_options(options)?;
    fs::create_dir_all(dir).map_err(failed)?;
    if dir.join(INFO_FILE).exists() {
        return Err(FormatError::Formatted(dir.into()));
    }
    // The entries of a format that did not finish are ours; all others belong to someone else.
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let ours = ["journal", "meta", "objects", PLATES_FOLDER, STORES_FOLDER, "chiton.json.new"];
        if !ours.iter().any(|our| name == *our) {
            return Err(FormatError::NotEmpty(dir.into()));
        }
    }
    for part in ["journal", "meta", "objects", PLATES_FOLDER, STORES_FOLDER] {
        match fs::remove_dir_all(dir.join(part)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
    }
    let info = match monitor {
        Some(monitor) => {
            let stores = Stores::shared(dir, options.plates).map_err(FormatError::Failed)?;
            let info = format_stores(&stores, options, world)?;
            FilesystemInfo { monitor: Some(monitor.to_owned()), ..info }
        }
        None => {
            for plate in (0..options.plates).map(PlateId) {
                fs::create_dir_all(plate_dir(dir, plate).join("meta")).map_err(failed)?;
            }
            let stores =
                Stores::local(dir, options.plates, FjallOptions::default()).map_err(FormatError::Failed)?;
            let info = format_stores(&stores, options, world)?;
            sync_folders(dir, options.plates).map_err(failed)?;
            info
        }
    };
    let new = dir.join("chiton.json.new");
    let text = info_text(&info);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, dir.join(INFO_FILE))?;
        File::open(dir)?.sync_all()
    };
    write().map_err(failed)?;
    Ok(info)
}

/// Makes the folders of the plates durable.
fn sync_folders(dir: &Path, plates: u16) -> std::io::Result<()> {
    if plates == 1 {
        return Ok(());
    }
    for plate in (1..plates).map(PlateId) {
        File::open(plate_dir(dir, plate))?.sync_all()?;
    }
    File::open(dir.join(PLATES_FOLDER))?.sync_all()
}

/// The file system that a data directory contains.
pub(crate) fn read_info(dir: &Path) -> Result<FilesystemInfo, StartError> {
    let data: DataAddress = dir.into();
    let text = match fs::read(dir.join(INFO_FILE)) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let empty = fs::read_dir(dir).map(|mut entries| entries.next().is_none()).unwrap_or(true);
            // A server that served it has left a lock.
            let was_ours = ["lock", "journal", "meta"].iter().all(|part| dir.join(part).exists());
            return Err(match (empty, was_ours) {
                (true, _) => StartError::NotFormatted(data),
                (_, true) => StartError::Damaged(data, "it is missing, although its stores exist".to_owned()),
                _ => StartError::Foreign(data, format!("it has files but no {INFO_FILE}")),
            });
        }
        Err(e) => return Err(StartError::Failed(format!("{}: {e}", dir.display()))),
    };
    parse_info(&text, &data)
}

/// Reads the content of `chiton.json`.
pub(crate) fn parse_info(text: &[u8], data: &DataAddress) -> Result<FilesystemInfo, StartError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |what: String| StartError::Damaged(data.clone(), what);
    let unread = |e: serde_json::Error| damaged(e.to_string());
    let Version { version } = serde_json::from_slice(text).map_err(unread)?;
    if version > VERSION {
        return Err(StartError::Newer { data: data.clone(), found: version, known: VERSION });
    }
    let stored: Stored = serde_json::from_slice(text).map_err(unread)?;
    let expected = checksum(&stored.info);
    if stored.checksum != expected {
        return Err(damaged(format!("its checksum is {}, that of its values {expected}", stored.checksum)));
    }
    if !(1..=SHARDS_MAX).contains(&stored.info.shards) {
        return Err(damaged(format!("{} shards", stored.info.shards)));
    }
    if stored.info.plates > PLATES_MAX || Plates::new(stored.info.shards, stored.info.plates).is_none() {
        let FilesystemInfo { shards, plates, .. } = stored.info;
        return Err(damaged(format!("{plates} plates for {shards} shards")));
    }
    Ok(stored.info)
}

#[cfg(test)]
mod tests {
    use chiton_runtime::SeededWorld;

    use super::*;

    #[test]
    fn directories_are_told_apart() {
        let tmp = tempfile::tempdir().expect("a directory");
        let dir = tmp.path().join("fs");
        let world = SeededWorld::new(1);
        assert!(matches!(read_info(&dir), Err(StartError::NotFormatted(_))));
        // A format that was interrupted can be repeated.
        fs::create_dir_all(dir.join("meta/rows")).expect("made");
        let info = format_dir(&dir, &FormatOptions { shards: 3, ..FormatOptions::default() }, None, &world)
            .expect("formats");
        assert_eq!(read_info(&dir).expect("reads"), info);
        let again = format_dir(&dir, &FormatOptions::default(), None, &world);
        assert!(matches!(again, Err(FormatError::Formatted(_))));
        let check = |text: &str, expect: &str| {
            fs::write(dir.join(INFO_FILE), text).expect("written");
            let error = read_info(&dir).expect_err("refused").to_string();
            assert!(error.contains(expect), "{error}");
        };
        check("{\"version\": 9}", "version 9");
        check("hello", "damaged");
        check(&info_text(&FilesystemInfo { shards: 0, ..info.clone() }), "0 shards");
        check(&info_text(&FilesystemInfo { plates: 0, ..info.clone() }), "0 plates for 3 shards");
        check(&info_text(&FilesystemInfo { plates: 4, ..info.clone() }), "4 plates for 3 shards");
        // Any byte that differs: the file is not accepted.
        let text = info_text(&info);
        for (at, byte) in text.bytes().enumerate() {
            for other in (0..8).map(|bit| byte ^ (1 << bit)) {
                let mut bytes = text.clone().into_bytes();
                bytes[at] = other;
                fs::write(dir.join(INFO_FILE), bytes).expect("written");
                // A blank may become another blank.
                assert!(read_info(&dir).is_err() || byte.is_ascii_whitespace(), "byte {at} as {other}");
            }
        }
        fs::remove_file(dir.join(INFO_FILE)).expect("removed");
        assert!(matches!(read_info(&dir), Err(StartError::Foreign(..))));
        // Once it was served, it is known without, and not made anew.
        fs::write(dir.join("lock"), "").expect("written");
        assert!(matches!(read_info(&dir), Err(StartError::Damaged(..))));
        let again = format_dir(&dir, &FormatOptions::default(), None, &world);
        assert!(matches!(again, Err(FormatError::NotEmpty(_))));
        fs::remove_file(dir.join("lock")).expect("removed");
        fs::write(dir.join("thesis.tex"), "precious").expect("written");
        assert!(matches!(
            format_dir(&dir, &FormatOptions::default(), None, &world),
            Err(FormatError::NotEmpty(_))
        ));
    }
}
