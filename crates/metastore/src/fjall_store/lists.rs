//! The library's lists of tables, checked before it reads them, and copies of the last good ones.
//!
//! ```text
//!   DIR/rows/version                     which format
//!   DIR/rows/keyspaces/N/current         number and checksum (XXH3, 128 bits) of the list that counts
//!   DIR/rows/keyspaces/N/vNUMBER         that list: the tables of the keyspace
//!   DIR/lists/version  DIR/lists/N       copies: `current`, then the list
//! ```
//!
//! The library does not verify the checksum, and deletes the tables that the list does not name: one damaged byte of a list
//! would cost all tables. So a store with a damaged list is not opened, and the error names the file.
//!
//! Invariants:
//! - A copy is replaced only by a list that fits its checksum.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a `current`: number, checksum, kind of checksum.
const CURRENT_BYTES: usize = 25;
const XXH3: u8 = 0;

/// The keyspaces of a store, by their names.
fn keyspaces(rows: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(rows.join("keyspaces"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Number and checksum of a `current`.
fn parse(current: &[u8]) -> Option<(u64, u128)> {
    let bytes: &[u8; CURRENT_BYTES] = current.get(..CURRENT_BYTES)?.try_into().ok()?;
    let number = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let checksum = u128::from_le_bytes(bytes[8..24].try_into().ok()?);
    (bytes[24] == XXH3).then_some((number, checksum))
}

/// `current` and the list that it names.
type List = (Vec<u8>, Vec<u8>);

/// The list of a keyspace; else the name of the file that is damaged, and how.
fn read(keyspace: &Path) -> io::Result<Result<List, String>> {
    let current = fs::read(keyspace.join("current"))?;
    let Some((number, checksum)) = parse(&current) else {
        return Ok(Err("current is not a number and a checksum".to_owned()));
    };
    let name = format!("v{number}");
    Ok(match fs::read(keyspace.join(&name)) {
        Ok(list) if xxh3_128(&list) == checksum => Ok((current, list)),
        Ok(_) => Err(format!("{name} does not fit the checksum in current")),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(format!("{name}, which current names, is missing")),
        Err(e) => return Err(e),
    })
}

/// The first list below `path` that is damaged, and how. Nothing is changed.
pub(super) fn damaged(path: &Path) -> io::Result<Option<String>> {
    let rows = path.join("rows");
    for name in keyspaces(&rows)? {
        match read(&rows.join("keyspaces").join(&name)) {
            Ok(Ok(_)) => {}
            Ok(Err(what)) => return Ok(Some(format!("rows/keyspaces/{name}/{what}"))),
            // A missing file is reported elsewhere, or belongs to a keyspace that is being created.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// Replaces a file by these bytes, durably.
fn replace(file: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut writer = File::create(&new)?;
    for part in parts {
        writer.write_all(part)?;
    }
    writer.sync_all()?;
    fs::rename(&new, file)?;
    File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Copies the lists that have changed since they were copied.
pub(super) fn keep(path: &Path) -> io::Result<()> {
    let (rows, lists) = (path.join("rows"), path.join("lists"));
    // Not those above it: a data directory that is gone is not begun anew.
    if !lists.is_dir() {
        fs::create_dir(&lists)?;
    }
    let version = fs::read(rows.join("version"))?;
    if fs::read(lists.join("version")).ok().as_ref() != Some(&version) {
        replace(&lists.join("version"), &[&version])?;
    }
    for name in keyspaces(&rows)? {
        let keyspace = rows.join("keyspaces").join(&name);
        let copied = fs::read(lists.join(&name)).unwrap_or_default();
        if fs::read(keyspace.join("current"))? == copied.get(..CURRENT_BYTES).unwrap_or_default() {
            continue;
        }
        if let Ok((current, list)) = read(&keyspace)? {
            replace(&lists.join(&name), &[&current, &list])?;
        }
    }
    Ok(())
}

/// Replaces damaged or missing files by their copies; returns a description of each step.
pub(super) fn restore(path: &Path) -> io::Result<Vec<String>> {
    let (rows, lists) = (path.join("rows"), path.join("lists"));
    let mut done = Vec::new();
    if !rows.join("lock").try_exists()? {
        File::create(rows.join("lock"))?.sync_all()?;
        done.push("made rows/lock again, which is empty".to_owned());
    }
    let version = fs::read(lists.join("version")).unwrap_or_default();
    if !version.is_empty() && fs::read(rows.join("version")).ok().as_ref() != Some(&version) {
        replace(&rows.join("version"), &[&version])?;
        done.push("restored rows/version from its copy".to_owned());
    }
    for entry in fs::read_dir(&lists).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<u64>().is_err() {
            continue;
        }
        let keyspace: PathBuf = rows.join("keyspaces").join(&name);
        if matches!(read(&keyspace), Ok(Ok(_))) {
            continue;
        }
        let copy = fs::read(entry.path())?;
        let Some((number, checksum)) = parse(&copy) else { continue };
        let (current, list) = copy.split_at(CURRENT_BYTES);
        if xxh3_128(list) != checksum {
            continue;
        }
        replace(&keyspace.join(format!("v{number}")), &[list])?;
        replace(&keyspace.join("current"), &[current])?;
        done.push(format!("restored rows/keyspaces/{name}/current and v{number} from their copy"));
    }
    Ok(done)
}

/// Makes `to` a copy of the directory `from` that shares its files, for the way back.
pub(super) fn link_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link_tree(&entry.path(), &target)?,
            // The library replaces lists, removes tables, and appends to its journal: only that is copied.
            false if entry.path().extension().is_some_and(|e| e == "jnl") => {
                fs::copy(entry.path(), &target)?;
            }
            false => fs::hard_link(entry.path(), &target)?,
        }
    }
    Ok(())
}
