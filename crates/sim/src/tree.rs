//! The whole tree of a file system, as a reader finds it.

use std::collections::BTreeMap;

use chiton_types::{Attr, Ino, Kind, Time};

/// An inode with all that can be asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number.
    pub ino: Ino,
    /// Type.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names, as `stat` says.
    pub nlink: u32,
    /// Size, as `stat` says.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Content of a file, target of a symbolic link; empty for directories.
    pub content: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    /// Of attributes, and what they do not hold.
    pub fn new(attr: &Attr, content: Vec<u8>, xattrs: BTreeMap<String, Vec<u8>>) -> Node {
        Node {
            ino: attr.ino,
            kind: attr.kind,
            mode: attr.mode.0,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            size: attr.size,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            content,
            xattrs,
        }
    }
}

/// Nodes by path; the root is `/`. Several names of one inode are several paths with equal nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// All of them.
    pub nodes: BTreeMap<String, Node>,
}
