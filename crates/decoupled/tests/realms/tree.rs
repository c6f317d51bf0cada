//! A tree as other clients see it, for comparison.

use std::collections::BTreeMap;

use chiton_client::Client;
use chiton_types::{Ino, Kind};

/// The compared properties of an inode: neither its number nor its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    kind: Kind,
    mode: u16,
    nlink: u32,
    size: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All below a directory, by path; which paths are one inode is in the link counts and contents.
pub(crate) fn tree(client: &Client, path: &str) -> BTreeMap<String, Node> {
    let root = client.stat(path).expect("there").ino;
    let mut found = BTreeMap::new();
    walk(client, root, String::new(), &mut found);
    found
}

fn walk(client: &Client, dir: Ino, at: String, found: &mut BTreeMap<String, Node>) {
    let (mut cookie, mut entries) = (0, Vec::new());
    loop {
        let (page, end) = client.readdir(&client.caller(), dir, cookie, 1_000, true).expect("listed");
        cookie = page.last().map_or(cookie, |last| last.cookie);
        entries.extend(page);
        if end {
            break;
        }
    }
    for listed in entries {
        let path = format!("{at}/{}", String::from_utf8_lossy(listed.name.as_bytes()));
        let attr = client.getattr(listed.ino, None).expect("there").attr;
        let content = match attr.kind {
            Kind::File => content(client, listed.ino, attr.size),
            Kind::Symlink => client.readlink(listed.ino).expect("a target"),
            _ => Vec::new(),
        };
        let names = client.listxattr(&client.caller(), listed.ino).expect("names");
        let value = |name: &[u8]| client.getxattr(&client.caller(), listed.ino, name).expect("a value");
        let names = names.split(|b| *b == 0).filter(|name| !name.is_empty());
        let xattrs = names.map(|name| (name.to_vec(), value(name))).collect();
        let node =
            Node { kind: attr.kind, mode: attr.mode.0, nlink: attr.nlink, size: attr.size, content, xattrs };
        found.insert(path.clone(), node);
        if attr.kind == Kind::Dir {
            walk(client, listed.ino, path, found);
        }
    }
}

fn content(client: &Client, ino: Ino, size: u64) -> Vec<u8> {
    let fh = client.open(&client.caller(), ino, chiton_client::OpenFlags::READ).expect("opened");
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        let more = client.read(fh, bytes.len() as u64, 1 << 20).expect("read");
        assert!(!more.is_empty(), "a file ends before its size");
        bytes.extend(more);
    }
    client.release(fh).expect("released");
    bytes
}
