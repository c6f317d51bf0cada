//! Files with keys and certificates.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::AuthError;

/// Longest file that is read: an identity has about 2 KB.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Makes a directory that only its owner may enter.
pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Writes a new file, for its owner only if it is `private`. A file that exists is an error.
pub(crate) fn write_new(path: &Path, text: &str, private: bool) -> Result<(), AuthError> {
    let mode = if private { 0o600 } else { 0o644 };
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => AuthError::new(format!(
            "{} exists already; choose another name, or remove it first",
            path.display()
        )),
        _ => AuthError::new(format!("cannot write {}: {e}", path.display())),
    })
}

/// Reads a file. One with a private key must be closed to others.
pub(crate) fn read(path: &Path, private: bool) -> Result<String, AuthError> {
    let fail = |e: &dyn std::fmt::Display| AuthError::new(format!("cannot read {}: {e}", path.display()));
    let meta = fs::metadata(path).map_err(|e| fail(&e))?;
    if meta.len() > FILE_BYTES_MAX {
        return Err(fail(&format_args!(
            "it has more than {FILE_BYTES_MAX} bytes, and cannot be an identity"
        )));
    }
    if private && meta.mode() & 0o077 != 0 {
        return Err(AuthError::new(format!(
            "{} holds a private key that others may read (mode {:04o}): chmod 600 {}",
            path.display(),
            meta.mode() & 0o7777,
            path.display()
        )));
    }
    fs::read_to_string(path).map_err(|e| fail(&e))
}
