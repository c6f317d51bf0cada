//! Reads the table of mounts from `/proc/self/mountinfo`, without touching the directories.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The type under which the system knows our mounts.
pub(crate) const KIND: &str = "fuse.chiton";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Device number, `major:minor`.
    pub(crate) device: String,
    pub(crate) kind: String,
}

/// The table, to wait for its changes with poll(2).
pub(crate) const PATH: &str = "/proc/self/mountinfo";

/// Whether the mount with this device number is still in the table.
pub(crate) fn is_there(device: &str) -> bool {
    let Ok(table) = std::fs::read(PATH) else { return true };
    table.split(|&b| b == b'\n').any(|line| line.split(|&b| b == b' ').nth(2) == Some(device.as_bytes()))
}

/// Where else the file system that is mounted at `dir` (canonical) is mounted, as by a bind mount.
pub fn also_mounted_at(dir: &Path) -> Option<PathBuf> {
    let table = std::fs::read(PATH).ok()?;
    also_at(&table, dir)
}

fn also_at(table: &[u8], dir: &Path) -> Option<PathBuf> {
    let device = last_in(table, dir)?.device;
    // One line is that of `dir` itself; it may bear the file system twice.
    let mut all: Vec<PathBuf> = table
        .split(|&b| b == b'\n')
        .filter_map(|line| {
            let mut words = line.split(|&b| b == b' ');
            let same = words.nth(2)? == device.as_bytes();
            let at = unescaped(words.nth(1)?);
            same.then(|| PathBuf::from(at))
        })
        .collect();
    let own = all.iter().rposition(|at| at == dir)?;
    all.remove(own);
    all.into_iter().next()
}

/// The file system mounted at `dir` (canonical); the topmost of several.
pub(crate) fn last_at(dir: &Path) -> Option<Mounted> {
    last_in(&std::fs::read("/proc/self/mountinfo").ok()?, dir)
}

fn last_in(table: &[u8], dir: &Path) -> Option<Mounted> {
    table.split(|&b| b == b'\n').rev().find_map(|line| {
        // id parent major:minor root mountpoint options … - type source options
        let mut words = line.split(|&b| b == b' ');
        let device = words.nth(2)?;
        let at = unescaped(words.nth(1)?);
        if at.as_bytes() != dir.as_os_str().as_bytes() {
            return None;
        }
        let kind = words.skip_while(|word| *word != b"-").nth(1)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Some(Mounted { device: text(device), kind: text(kind) })
    })
}

/// Replaces escapes such as `\040`.
fn unescaped(word: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_is_found() {
        let table = b"36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw\n\
            40 36 0:50 / /mnt/a\\040b rw shared:3 - fuse.chiton chiton rw\n\
            41 36 0:51 / /mnt rw - tmpfs none rw\nmalformed\n";
        let check = |dir: &str, expect: Option<(&str, &str)>| {
            let found = last_in(table, Path::new(dir));
            assert_eq!(found.as_ref().map(|m| (m.device.as_str(), m.kind.as_str())), expect, "{dir}");
        };
        check("/mnt", Some(("0:51", "tmpfs")));
        check("/mnt/a b", Some(("0:50", "fuse.chiton")));
        check("/mnt/a", None);
    }

    #[test]
    fn bind_mounts_of_a_file_system_are_found() {
        let table = b"40 36 0:50 / /mnt/a\\040b rw - fuse.chiton chiton rw\n\
            41 36 0:50 /dir /bound rw - fuse.chiton chiton rw\n42 36 0:51 / /mnt/c rw - fuse.chiton chiton rw\n\
            43 36 0:52 / /twice rw - fuse.chiton chiton rw\n44 43 0:52 / /twice rw - fuse.chiton chiton rw\n";
        let check = |dir: &str, expect: Option<&str>| {
            assert_eq!(also_at(table, Path::new(dir)), expect.map(PathBuf::from), "{dir}");
        };
        check("/mnt/a b", Some("/bound"));
        check("/bound", Some("/mnt/a b"));
        check("/mnt/c", None);
        check("/twice", Some("/twice"));
        check("/nothing", None);
    }
}
