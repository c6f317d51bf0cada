//! The files by which the library distinguishes a store from an unfinished one.
//!
//! ```text
//!   DIR/rows/version  DIR/rows/keyspaces/0/current  DIR/rows/keyspaces/N/current
//! ```
//!
//! If one of them is missing, the library takes the directory for a store whose creation a crash interrupted: it
//! deletes the tables and begins anew. So Chiton lets it open only a store that has all of them. Until the first
//! commit is acknowledged there is nothing to lose, and the library may begin anew.

use std::fs;
use std::io;
use std::path::Path;

use crate::StoreError;

use super::acked;
use super::fault::sort_error;
use super::lists;

/// The library's keyspace for its own rows: the names of the others.
const OWN_KEYSPACE: &str = "0";

/// Refuses a store with acknowledged commits that lacks one of them. Nothing is changed.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    let failed = |e: io::Error| sort_error(path, e.into());
    if !acked::has_commits(path).map_err(failed)? {
        return Ok(());
    }
    match missing(&path.join("rows")).map_err(failed)? {
        None => match lists::damaged(path).map_err(failed)? {
            None => Ok(()),
            Some(what) => Err(StoreError::Corrupt {
                path: path.to_owned(),
                cause: format!(
                    "{what}: opened with it, the store would lose tables, so nothing was touched; chiton fsck --rebuild \
                     restores such a list from its copy"
                ),
            }),
        },
        Some(name) => Err(StoreError::Corrupt {
            path: path.to_owned(),
            cause: format!(
                "its file rows/{name} is missing; opened without it, the store would be emptied, so nothing was touched; chiton \
                 fsck --rebuild restores it from its copy"
            ),
        }),
    }
}

/// The first that is not there, by its name below `rows`.
fn missing(rows: &Path) -> io::Result<Option<String>> {
    let is_missing = |name: &str| rows.join(name).try_exists().map(|there| !there);
    let keyspaces = rows.join("keyspaces");
    let mut names = Vec::new();
    if keyspaces.try_exists()? {
        for entry in fs::read_dir(&keyspaces)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    if !names.iter().any(|name| name == OWN_KEYSPACE) {
        names.insert(0, OWN_KEYSPACE.to_owned());
    }
    if names.len() == 1 {
        // The keyspace of the rows has the first number that is free.
        names.push("1".to_owned());
    }
    let files = names.iter().map(|name| format!("keyspaces/{name}/current"));
    for name in std::iter::once("version".to_owned()).chain(files) {
        if is_missing(&name)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
