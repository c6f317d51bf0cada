//! The whole tree of a file system, as a reader finds it.

use std::collections::BTreeMap;

use chiton_types::{Attr, Ino, Kind, Time};

/// An inode with all that can be asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub ino: Ino,
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Number of names, as in `stat`.
    pub nlink: u32,
    /// Size in bytes, as in `stat`.
    pub size: u64,
    pub atime: Time,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of any kind.
    pub ctime: Time,
    /// Content of a file, target of a symbolic link; empty for directories.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    /// A node from attributes, and the parts that they lack.
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
    pub nodes: BTreeMap<String, Node>,
}
