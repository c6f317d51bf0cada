//! The model's state: a map of inodes and nothing derived. Link counts, sizes and allocation are counted anew
//! whenever somebody asks, so that there is no bookkeeping that could be wrong.

use std::collections::{BTreeMap, BTreeSet};

use chiton_namespace::{Extent, Op};
use chiton_types::{Attr, BlockId, Cred, Ino, Kind, Mode, Name, Position, Refusal, Time, access};

/// Content of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Within the inode; may be shorter than the size.
    Inline(Vec<u8>),
    /// The bytes that are mapped, by offset. What is not here is a hole.
    Blocks(BTreeMap<u64, u8>),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    pub parent: Ino,
    pub entries: BTreeMap<Name, Ino>,
    pub content: Content,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Who asks, when, and the number offered for a new inode.
pub struct Ask<'a> {
    pub cred: &'a Cred,
    pub now: Time,
    pub offered: Ino,
}

/// What the model expects an operation to answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub subject: Option<Ino>,
    /// The inode that lost its last name; `None` in it: whether it stays as an orphan is not the model's to say.
    pub gone: Option<(Ino, Option<bool>)>,
}

impl Done {
    pub fn about(ino: Ino) -> Done {
        Done { subject: Some(ino), gone: None }
    }
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Ino, Node>,
    /// Payload of every block that was ever written.
    pub blocks: BTreeMap<BlockId, Vec<u8>>,
    pub open: BTreeSet<Ino>,
}

impl Model {
    pub fn new(now: Time, uid: u32, gid: u32) -> Model {
        let mut root = Node::new(Kind::Dir, 0o755, now, Ino::ROOT);
        (root.uid, root.gid) = (uid, gid);
        Model { nodes: BTreeMap::from([(Ino::ROOT, root)]), blocks: BTreeMap::new(), open: BTreeSet::new() }
    }

    pub fn run(&mut self, op: &Op, ask: &Ask<'_>) -> Result<Done, Refusal> {
        match op {
            Op::Make { parent, name, make, mode } => self.make(*parent, name, make, mode.0, ask),
            Op::Link { ino, parent, name } => self.link(*ino, *parent, name, ask),
            Op::Unlink { parent, name } => self.remove(*parent, name, false, ask),
            Op::Rmdir { parent, name } => self.remove(*parent, name, true, ask),
            Op::Rename { from, from_name, to, to_name, how } => {
                self.rename((*from, from_name), (*to, to_name), *how, ask)
            }
            Op::SetAttr { ino, change } => self.set_attr(*ino, change, ask),
            Op::Write { ino, body, size, mtime, kill_setid } => {
                self.write(*ino, body, *size, *mtime, *kill_setid)
            }
            Op::Clone { from, from_offset, to, to_offset, len } => {
                self.clone_range(*from, *from_offset, *to, *to_offset, *len, ask)
            }
            Op::Remap { ino, expected, extents } => self.remap(*ino, *expected, extents),
            Op::SetXattr { ino, name, value, how } => self.set_xattr(*ino, name, value, *how, ask),
            Op::RemoveXattr { ino, name } => self.remove_xattr(*ino, name, ask),
            Op::Reclaim { ino } => self.reclaim(*ino),
        }
    }

    pub fn node(&self, ino: Ino) -> Result<&Node, Refusal> {
        self.nodes.get(&ino).ok_or(Refusal::Stale)
    }

    pub fn node_mut(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("the inode was checked before")
    }

    pub fn dir(&self, ino: Ino) -> Result<&Node, Refusal> {
        let node = self.node(ino)?;
        if node.kind == Kind::Dir { Ok(node) } else { Err(Refusal::NotDir) }
    }

    /// A directory in which the caller may search.
    pub fn searched(&self, dir: Ino, cred: &Cred) -> Result<&Node, Refusal> {
        let node = self.dir(dir)?;
        node.may(cred, access::EXEC)?;
        Ok(node)
    }

    /// Nothing new is put in a directory that is removed and still open.
    pub fn not_removed(&self, dir: Ino) -> Result<(), Refusal> {
        if self.is_orphan(dir) { Err(Refusal::NotFound) } else { Ok(()) }
    }

    /// Names of a file, anywhere (1 for a directory, also the root).
    pub fn names(&self, ino: Ino) -> u32 {
        self.nodes.values().flat_map(|n| n.entries.values()).filter(|&&i| i == ino).count() as u32
    }

    pub fn nlink(&self, ino: Ino) -> u32 {
        let node = &self.nodes[&ino];
        if node.kind != Kind::Dir {
            return self.names(ino);
        }
        if self.is_orphan(ino) {
            return 0;
        }
        2 + node.entries.values().filter(|child| self.nodes[child].kind == Kind::Dir).count() as u32
    }

    pub fn is_orphan(&self, ino: Ino) -> bool {
        ino != Ino::ROOT && self.names(ino) == 0
    }

    /// True if `below` is `above` or lies under it.
    pub fn within(&self, below: Ino, above: Ino) -> bool {
        let mut at = below;
        while at != above && at != Ino::ROOT && !self.is_orphan(at) {
            at = self.nodes[&at].parent;
        }
        at == above
    }

    /// What `stat` shows; the position is not the model's to know.
    pub fn attr(&self, ino: Ino) -> Attr {
        let node = &self.nodes[&ino];
        let allocated = match (&node.content, node.kind) {
            (Content::Inline(_), Kind::Symlink) => node.target.len() as u64,
            (Content::Inline(bytes), _) => bytes.len() as u64,
            (Content::Blocks(bytes), _) => bytes.len() as u64,
        };
        Attr {
            ino,
            kind: node.kind,
            mode: Mode(node.mode),
            nlink: self.nlink(ino),
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            size: match node.kind {
                Kind::Dir => node.entries.len() as u64 * 32,
                Kind::Symlink => node.target.len() as u64,
                _ => node.size,
            },
            allocated,
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
            btime: node.btime,
            parent: node.parent,
            position: Position(0),
        }
    }

    /// The bytes that an extent stands for.
    pub fn resolve(&self, e: &Extent) -> Vec<(u64, u8)> {
        let payload = &self.blocks[&e.block];
        (0..e.len).map(|n| (e.offset + u64::from(n), payload[(e.block_offset + n) as usize])).collect()
    }

    /// What is open or has content in blocks stays without a name. (Of blocks that are all cut off again the model
    /// does not know whether the namespace still remembers them.)
    pub fn orphan_if_last(&self, ino: Ino) -> (Ino, Option<bool>) {
        let stays = match &self.nodes[&ino].content {
            _ if self.open.contains(&ino) => Some(true),
            Content::Inline(_) => Some(false),
            Content::Blocks(bytes) => (!bytes.is_empty()).then_some(true),
        };
        (ino, stays)
    }

    /// The name is gone; `orphan` says what the namespace decided where the model leaves it open.
    pub fn settle_gone(&mut self, ino: Ino, orphan: bool) {
        if !orphan {
            self.nodes.remove(&ino);
        }
    }
}

impl Node {
    pub fn new(kind: Kind, mode: u16, now: Time, parent: Ino) -> Node {
        Node {
            kind,
            mode,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent,
            entries: BTreeMap::new(),
            content: Content::Inline(Vec::new()),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
        }
    }

    pub fn may(&self, cred: &Cred, want: u8) -> Result<(), Refusal> {
        match access::check(cred, self.kind, Mode(self.mode), self.uid, self.gid, want) {
            Some(true) => Ok(()),
            Some(false) => Err(Refusal::Access),
            None => panic!("the model is asked with known groups only"),
        }
    }

    pub fn owned_by(&self, cred: &Cred) -> bool {
        cred.is_root() || cred.uid == self.uid
    }

    pub fn in_group(&self, cred: &Cred) -> bool {
        cred.is_root() || cred.in_group(self.gid) == Some(true)
    }

    pub fn has(&self, bits: u16) -> bool {
        self.mode & bits == bits
    }

    pub fn changed(&mut self, now: Time) {
        (self.mtime, self.ctime) = (now, now);
    }
}
