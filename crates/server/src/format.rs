//! The data directory: what is in it, and how it comes to be.
//!
//! ```text
//!   chiton.json   version, identity, number of shards      written last: its presence means "formatted"
//!   lock          who serves it
//!   journal/  meta/  objects/
//! ```

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use chiton_journal::{Identity, Journal};
use chiton_metastore::{Batch, FjallOptions};
use chiton_namespace::Namespace;
use chiton_runtime::World;
use chiton_types::{Epoch, Ino, Position, SHARDS_DEFAULT, SHARDS_MAX, ShardId};
use serde::{Deserialize, Serialize};

use crate::address::DataAddress;
use crate::error::{FormatError, StartError};
use crate::stores::Stores;
use chiton_engine::{POSITION_KEY, SESSION_MARK_KEY, mark_key, position_value};

/// The one version of the data directory so far.
const VERSION: u32 = 1;
pub(crate) const INFO_FILE: &str = "chiton.json";

/// What is chosen when storage is formatted, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Number of shards, 1 to [`SHARDS_MAX`].
    pub shards: u16,
    /// Number of plates, 1 to the number of shards.
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

/// What a file system is, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemInfo {
    /// Version of the data directory.
    pub version: u32,
    /// Identity of the file system.
    pub filesystem: u64,
    /// Number of shards.
    pub shards: u16,
    /// Number of plates, which share the shards evenly.
    pub plates: u16,
    /// When it was formatted, in seconds since the Unix epoch.
    pub created: i64,
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

/// What stands in `chiton.json`.
pub(crate) fn info_text(info: &FilesystemInfo) -> String {
    let stored = Stored { info: info.clone(), checksum: checksum(info) };
    serde_json::to_string_pretty(&stored).expect("plain values")
}

/// Makes a new file system in the stores. They must be empty.
pub(crate) fn format_stores(
    stores: &Stores,
    options: &FormatOptions,
    world: &dyn World,
) -> Result<FilesystemInfo, FormatError> {
    if !(1..=SHARDS_MAX).contains(&options.shards) {
        return Err(FormatError::Shards(options.shards));
    }
    let failed = |what: String| FormatError::Failed(what);
    let info = FilesystemInfo {
        version: VERSION,
        filesystem: world.random() >> 1,
        shards: options.shards,
        plates: options.plates,
        created: world.now().secs(),
    };
    let identity = Identity { journal: info.filesystem, epoch: Epoch(1), nonce: world.random() };
    let journal = Journal::create(stores.place.clone(), identity, chiton_journal::Options::default())
        .map_err(|e| failed(e.to_string()))?;
    journal.close().map_err(|e| failed(e.to_string()))?;
    let mut batch = Batch::new();
    batch.extend(Namespace::format_rows(world.now(), options.uid, options.gid));
    batch.put(POSITION_KEY, position_value(Position(0)));
    batch.put(SESSION_MARK_KEY, 1u64.to_le_bytes());
    for shard in 0..options.shards {
        // The root has the first number of its shard; 0 is nobody's.
        let first = if ShardId(shard) == Ino::ROOT.shard() { Ino::ROOT.counter() + 1 } else { 1u64 };
        batch.put(mark_key(ShardId(shard)), first.to_le_bytes());
    }
    let meta = (stores.open_meta)().map_err(|e| failed(e.to_string()))?;
    meta.commit(&batch).map_err(|e| failed(e.to_string()))?;
    // No journal holds these rows. So they must not rest on one of the store, which a damaged byte may cost.
    meta.reclaim(u64::MAX, 1).map_err(|e| failed(e.to_string()))?;
    meta.close().map_err(|e| failed(e.to_string()))?;
    Ok(info)
}

/// Makes a new file system in a directory, which is made if it is missing.
pub(crate) fn format_dir(
    dir: &Path,
    options: &FormatOptions,
    world: &dyn World,
) -> Result<FilesystemInfo, FormatError> {
    let failed = |e: std::io::Error| FormatError::Failed(format!("{}: {e}", dir.display()));
    fs::create_dir_all(dir).map_err(failed)?;
    if dir.join(INFO_FILE).exists() {
        return Err(FormatError::Formatted(dir.into()));
    }
    // What a format that did not come to its end has left is ours; everything else is somebody's.
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let ours = ["journal", "meta", "objects", "chiton.json.new"];
        if !ours.iter().any(|our| name == *our) {
            return Err(FormatError::NotEmpty(dir.into()));
        }
    }
    for part in ["journal", "meta", "objects"] {
        match fs::remove_dir_all(dir.join(part)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
    }
    fs::create_dir(dir.join("meta")).map_err(failed)?;
    let stores = Stores::local(dir, FjallOptions::default()).map_err(FormatError::Failed)?;
    let info = format_stores(&stores, options, world)?;
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

/// What a data directory says about itself.
pub(crate) fn read_info(dir: &Path) -> Result<FilesystemInfo, StartError> {
    let data: DataAddress = dir.into();
    let text = match fs::read(dir.join(INFO_FILE)) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let empty = fs::read_dir(dir).map(|mut entries| entries.next().is_none()).unwrap_or(true);
            // Who has served it has left a lock.
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

/// What `chiton.json` of a place says.
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
        let info = format_dir(&dir, &FormatOptions { shards: 3, ..FormatOptions::default() }, &world)
            .expect("formats");
        assert_eq!(read_info(&dir).expect("reads"), info);
        let again = format_dir(&dir, &FormatOptions::default(), &world);
        assert!(matches!(again, Err(FormatError::Formatted(_))));
        let check = |text: &str, expect: &str| {
            fs::write(dir.join(INFO_FILE), text).expect("written");
            let error = read_info(&dir).expect_err("refused").to_string();
            assert!(error.contains(expect), "{error}");
        };
        check("{\"version\": 9}", "version 9");
        check("hello", "damaged");
        check(&info_text(&FilesystemInfo { shards: 0, ..info.clone() }), "0 shards");
        // Whatever byte is another: it is not read as if it were right.
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
        let again = format_dir(&dir, &FormatOptions::default(), &world);
        assert!(matches!(again, Err(FormatError::NotEmpty(_))));
        fs::remove_file(dir.join("lock")).expect("removed");
        fs::write(dir.join("thesis.tex"), "precious").expect("written");
        assert!(matches!(format_dir(&dir, &FormatOptions::default(), &world), Err(FormatError::NotEmpty(_))));
    }
}
