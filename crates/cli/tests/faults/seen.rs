//! Trees as programs see them, and one to look at.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::rig::write_checkable;

/// The results of stat(2), read(2) and listxattr(2) for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, i64),
    /// Of directories it is the file system's own matter.
    pub(crate) size: u64,
    pub(crate) links: u64,
    /// The first path of the same inode.
    pub(crate) same_as: PathBuf,
    pub(crate) content: Vec<u8>,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
}

/// A tree, by path from its root.
pub(crate) fn look(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut seen, mut inodes, mut rest) = (BTreeMap::new(), BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = rest.pop() {
        let meta = fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let kind = meta.file_type();
        let content = match () {
            () if kind.is_dir() || kind.is_fifo() => Vec::new(),
            () if kind.is_symlink() => {
                fs::read_link(&path).expect("a target").into_os_string().into_encoded_bytes()
            }
            () => fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
        };
        if kind.is_dir() {
            rest.extend(fs::read_dir(&path).expect("a listing").map(|entry| entry.expect("an entry").path()));
        }
        let name = path.strip_prefix(root).expect("below it").to_owned();
        let links = if kind.is_dir() { 0 } else { meta.nlink() };
        inodes.entry(meta.ino()).or_insert_with(Vec::new).push(name.clone());
        let xattrs = if kind.is_symlink() || kind.is_fifo() { BTreeMap::new() } else { xattrs(&path) };
        let one = Seen {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            size: if kind.is_dir() { 0 } else { meta.size() },
            links,
            same_as: PathBuf::new(),
            content,
            xattrs,
        };
        seen.insert(name, one);
    }
    for mut names in inodes.into_values() {
        names.sort();
        for name in &names {
            seen.get_mut(name).expect("seen").same_as.clone_from(&names[0]);
        }
    }
    seen
}

/// Whether an extended attribute is of those that programs set.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

/// An access control list: all rights for the owner, read and write for user 1234, read for the group, mask rw,
/// nothing for others.
pub(crate) fn list() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries =
        [(0x01u16, 7u16, NOBODY), (0x02, 6, 1_234), (0x04, 4, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{name} of {}: {e}", path.display()));
}

pub(crate) fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0u8; 4096];
    let len = rustix::fs::listxattr(path, &mut names[..]).expect("names");
    let names = names[..len].split(|byte| *byte == 0).filter(|name| is_ours(name));
    names
        .map(|name| {
            let name = String::from_utf8(name.to_vec()).expect("text");
            let mut value = vec![0u8; 4096];
            let len = rustix::fs::getxattr(path, name.as_str(), &mut value[..]).expect("a value");
            value.truncate(len);
            (name, value)
        })
        .collect()
}

/// Compares two trees; names differences without the content.
pub(crate) fn assert_same(left: &BTreeMap<PathBuf, Seen>, right: &BTreeMap<PathBuf, Seen>) {
    let names = |tree: &BTreeMap<PathBuf, Seen>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right));
    for (name, one) in left {
        let (mut one, mut other) = (one.clone(), right[name].clone());
        assert!(one.content == other.content, "{} has other content", name.display());
        (one.content, other.content) = (Vec::new(), Vec::new());
        assert_eq!(one, other, "{}", name.display());
    }
}

/// A small tree with one of everything.
pub(crate) fn plant(root: &Path) {
    fs::create_dir_all(root.join("dir/deep/deeper")).expect("folders");
    fs::create_dir(root.join("empty")).expect("a folder");
    for (at, len) in [0, 1, 4096, 70_000, 300_000].into_iter().enumerate() {
        write_checkable(&root.join(format!("dir/file{at}")), at as u64, len).expect("a file");
    }
    for at in 0..300 {
        fs::write(root.join(format!("dir/deep/small{at}")), format!("small {at}")).expect("a file");
    }
    fs::hard_link(root.join("dir/file2"), root.join("dir/deep/link")).expect("a link");
    symlink("../dir/file1", root.join("empty/pointer")).expect("a link");
    symlink("nowhere", root.join("dangling")).expect("a link");
    fs::set_permissions(root.join("dir/file3"), fs::Permissions::from_mode(0o4751)).expect("a mode");
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o1777)).expect("a mode");
    set_xattr(&root.join("dir/file0"), "user.of", b"file0");
    set_xattr(&root.join("dir/deep"), "user.of", b"deep");
    set_xattr(&root.join("dir/file4"), "system.posix_acl_access", &list());
    set_xattr(&root.join("empty"), "system.posix_acl_default", &list());
    File::open(root.join("dir/file1"))
        .and_then(|file| {
            let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
            file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time))
        })
        .expect("a time");
}
