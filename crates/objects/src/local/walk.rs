//! Listing a directory tree in the order of its keys.
//!
//! Invariants:
//! - A directory sorts as its name with a slash: `a-b` < `a/…` < `ab`, as the whole keys do.
//! - Only directories that can hold a key of the answer are read; only files of the answer are looked at.
//! - Other files (temporary files, links, invalid names) are skipped.

use std::fs;
use std::io;
use std::path::Path;

use super::sort_read_error;
use crate::key::is_part;
use crate::{ObjectError, ObjectInfo};

/// Lists at most `max` objects under `root` whose keys start with `prefix` and come after `after`.
pub(super) fn list(
    root: &Path,
    prefix: &str,
    after: &str,
    max: usize,
) -> Result<Vec<ObjectInfo>, ObjectError> {
    let mut walk = Walk { root, prefix, after, max, found: Vec::new() };
    let dir = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
    walk.directory(dir)?;
    Ok(walk.found)
}

struct Walk<'a> {
    root: &'a Path,
    prefix: &'a str,
    after: &'a str,
    max: usize,
    found: Vec<ObjectInfo>,
}

impl Walk<'_> {
    /// True if a key, or one below if it ends in a slash, can be in the answer.
    fn is_wanted(&self, key: &str) -> bool {
        let below = key.ends_with('/');
        let in_prefix = key.starts_with(self.prefix) || (below && self.prefix.starts_with(key));
        in_prefix && (key > self.after || (below && self.after.starts_with(key)))
    }

    /// `dir` is "" or ends in a slash.
    fn directory(&mut self, dir: &str) -> Result<(), ObjectError> {
        let failed = |e: io::Error| sort_read_error(dir, "list", &e);
        let mut keys = Vec::new();
        if self.found.len() == self.max {
            return Ok(());
        }
        let entries = match fs::read_dir(self.root.join(dir)) {
            Ok(entries) => entries,
            Err(e) => match failed(e) {
                ObjectError::NotFound { .. } => return Ok(()),
                error => return Err(error),
            },
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_part(name)) else { continue };
            let key = match (kind.is_dir(), kind.is_file()) {
                (true, _) => format!("{dir}{name}/"),
                (_, true) => format!("{dir}{name}"),
                _ => continue,
            };
            if self.is_wanted(&key) {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        for key in keys {
            if self.found.len() == self.max {
                break;
            }
            if key.ends_with('/') {
                self.directory(&key)?;
                continue;
            }
            match fs::symlink_metadata(self.root.join(&key)) {
                Ok(meta) => self.found.push(ObjectInfo { key, bytes: meta.len() }),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(sort_read_error(&key, "stat", &e)),
            }
        }
        Ok(())
    }
}
