//! A server in a directory of its own, trees in it, and what they look like.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_model::{AttrChange, XattrHow};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_trees::{Place, Refused, Watch};
use chiton_types::{Attr, Kind, Mode, Refusal};
use tempfile::TempDir;

pub(crate) const PLATES: [u16; 2] = [1, 3];

pub(crate) struct Site {
    dir: TempDir,
    _server: Arc<Server>,
}

impl Site {
    pub(crate) fn new(plates: u16) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let user = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid: user, plates, ..FormatOptions::default() };
        Server::format(&dir.path().join("data"), &options, &world).expect("formatted");
        let server =
            Server::start(&dir.path().join("data"), ServerOptions::default(), world).expect("started");
        let site = Site { dir, _server: server };
        site._server.serve(&[site.address()]).expect("listening");
        site
    }

    fn address(&self) -> chiton_transport::Address {
        format!("unix:{}", self.dir.path().join("socket").display()).parse().expect("an address")
    }

    /// A client of root, whoever runs the test.
    pub(crate) fn client(&self) -> Client {
        let options = ClientOptions {
            user: Some((0, 0, Vec::new())),
            write_behind_after: None,
            ..ClientOptions::default()
        };
        Client::connect(&self.address(), options).expect("connected")
    }
}

/// Keeps what is refused, and ends the work after so many names.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) refused: Vec<(String, &'static str, Refusal)>,
    pub(crate) ends_after: Option<u64>,
    pub(crate) names: u64,
}

impl Watch for Kept {
    fn refused(&mut self, refused: Refused) {
        let path = String::from_utf8_lossy(&refused.path).into_owned();
        let Cow::Borrowed(doing) = refused.doing else { panic!("{refused} comes from elsewhere") };
        self.refused.push((path, doing, refused.refusal));
    }

    fn progress(&mut self, names: u64) {
        self.names = names;
    }

    fn is_stopped(&self) -> bool {
        self.ends_after.is_some_and(|most| self.names > most)
    }
}

pub(crate) fn place(client: &Client, path: &str) -> Place {
    Place::find(client, path.as_bytes(), path.as_bytes())
        .unwrap_or_else(|refusal| panic!("{path}: {refusal}"))
}

pub(crate) fn chmod(client: &Client, path: &str, mode: u16) {
    let change = AttrChange { mode: Some(Mode(mode)), ..AttrChange::default() };
    client.set_attr_path(path, change).expect("changed");
}

/// A tree with everything that can be in one: content in inodes and in blocks, links of both kinds that lead round and out, attributes,
/// closed directories, a deep path.
pub(crate) fn grow(client: &Client, root: &str) {
    let caller = client.caller();
    for dir in 0..12 {
        let dir = format!("{root}/dir-{dir}");
        let ino = client.mkdir_all(&dir).expect("made").ino;
        client.create_file(format!("{dir}/small"), dir.as_bytes()).expect("made");
        client.create_file(format!("{dir}/empty"), b"").expect("made");
        client.create_file(format!("{dir}/large"), &dir.as_bytes().repeat(4_000)).expect("made");
        client.symlink(&caller, ino, b"loop", b"../dir-0").expect("made");
        client.symlink(&caller, ino, b"out", b"/kept").expect("made");
        client.symlink(&caller, ino, b"self", b".").expect("made");
        client.mknod(&caller, ino, b"fifo", Kind::Fifo, Mode(0o600), 0).expect("made");
        let small = client.stat(format!("{dir}/small")).expect("there").ino;
        client.setxattr(&caller, small, b"user.of", dir.as_bytes(), XattrHow::Set).expect("set");
        client.setxattr(&caller, ino, b"user.dir", b"x", XattrHow::Set).expect("set");
    }
    let shared = client.stat(format!("{root}/dir-0/large")).expect("there").ino;
    for dir in 1..12 {
        let parent = client.stat(format!("{root}/dir-{dir}")).expect("there").ino;
        client.link(&caller, shared, parent, b"shared").expect("linked");
    }
    let deep: String = (0..60).map(|n| format!("/deep-{n}")).collect();
    client.mkdir_all(format!("{root}{deep}")).expect("made");
    client.create_file(format!("{root}{deep}/end"), b"end").expect("made");
    let change = AttrChange { uid: Some(1000), gid: Some(1001), ..AttrChange::default() };
    client.set_attr_path(format!("{root}/dir-3"), change).expect("changed");
    chmod(client, &format!("{root}/dir-3"), 0o2750);
    chmod(client, &format!("{root}/dir-4/small"), 0o4755);
    chmod(client, &format!("{root}/dir-5"), 0o555);
    // A hole at the end.
    let longer = AttrChange { size: Some(100_000), ..AttrChange::default() };
    client.set_attr_path(format!("{root}/dir-6/small"), longer).expect("longer");
}

/// Makes this many small files, in directories of a hundred.
pub(crate) fn fill(client: &Client, root: &str, files: usize) {
    for dir in 0..files.div_ceil(100) {
        let dir = format!("{root}/many-{dir}");
        client.mkdir_all(&dir).expect("made");
        let names: Vec<String> = (0..100).map(|n| format!("file-{n}")).collect();
        assert!(client.create_many(&dir, &names).expect("asked").iter().all(Result::is_ok));
    }
}

/// An inode as callers see it, without the attributes that a copy does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    kind: Kind,
    mode: Mode,
    owner: (u32, u32),
    nlink: u32,
    mtime: i64,
    size: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path with the same inode.
    same_as: String,
}

impl Look {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Whether no path before this one has the same inode.
    pub(crate) fn is_first(&self, path: &str) -> bool {
        self.same_as == path
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.size
    }

    pub(crate) fn bits(&self) -> u16 {
        self.mode.0
    }

    pub(crate) fn uid(&self) -> u32 {
        self.owner.0
    }
}

/// All of a tree, by path from its root.
pub(crate) fn look(client: &Client, root: &str) -> BTreeMap<String, Look> {
    let (mut all, mut todo, mut firsts) = (BTreeMap::new(), vec![String::new()], BTreeMap::new());
    let mut see = |path: &str, attr: &Attr| {
        let caller = client.caller();
        let content = match attr.kind {
            Kind::File => client.read_file(format!("{root}{path}")).expect("read"),
            Kind::Symlink => client.readlink(attr.ino).expect("read"),
            _ => Vec::new(),
        };
        let names = client.listxattr(&caller, attr.ino).expect("listed");
        let names = names.split(|&b| b == 0).filter(|name| !name.is_empty() && !name.starts_with(b"chiton."));
        let xattr = |name: &[u8]| (name.to_vec(), client.getxattr(&caller, attr.ino, name).expect("read"));
        let look = Look {
            kind: attr.kind,
            mode: attr.mode,
            owner: (attr.uid, attr.gid),
            nlink: attr.nlink,
            mtime: attr.mtime.0,
            size: if attr.kind == Kind::Dir { 0 } else { attr.size },
            content,
            xattrs: names.map(xattr).collect(),
            same_as: firsts.entry(attr.ino).or_insert_with(|| path.to_owned()).clone(),
        };
        all.insert(path.to_owned(), look);
    };
    see("", &client.lstat(root).expect("there"));
    while let Some(dir) = todo.pop() {
        let mut entries = client.list(format!("{root}{dir}/")).expect("listed");
        entries.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        for entry in entries {
            let path = format!("{dir}/{}", entry.name);
            // A listing leaves out the attributes of an inode that an operation over plates is changing.
            see(&path, &client.start_stat(entry.ino).wait().expect("there"));
            if entry.kind == Kind::Dir {
                todo.push(path);
            }
        }
    }
    all
}
