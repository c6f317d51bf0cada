//! The model's state: a map of inodes and nothing derived. Link counts, sizes and allocation are counted anew
//! whenever they are asked for, so that there is no bookkeeping that could be wrong.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{Extent, Gone, Op};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT};
use chiton_types::{
    Attr, BlockId, Capabilities, Cred, Ino, Kind, Mode, Name, Position, Refusal, Scope, Time, access,
};

/// Content of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Within the inode; may be shorter than the size.
    Inline(Vec<u8>),
    /// The bytes that are mapped, by offset. A missing offset is a hole.
    Blocks(BTreeMap<u64, u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
    pub(crate) parent: Ino,
    pub(crate) entries: BTreeMap<Name, Ino>,
    pub(crate) content: Content,
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The caller, the time, and the number offered for a new inode.
pub(crate) struct Ask<'a> {
    pub(crate) cred: &'a Cred,
    pub(crate) now: Time,
    pub(crate) offered: Ino,
}

/// The answer that the model expects from an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) subject: Option<Ino>,
    /// The inode that lost its last name.
    pub(crate) gone: Option<Gone>,
}

impl Done {
    pub(crate) fn about(ino: Ino) -> Done {
        Done { subject: Some(ino), gone: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) nodes: BTreeMap<Ino, Node>,
    /// Payload of every block that was ever written.
    pub(crate) blocks: BTreeMap<BlockId, Vec<u8>>,
    pub(crate) open: BTreeSet<Ino>,
}

impl Model {
    pub(crate) fn new(now: Time, uid: u32, gid: u32) -> Model {
        let mut root = Node::new(Kind::Dir, 0o755, now, Ino::ROOT);
        (root.uid, root.gid) = (uid, gid);
        Model { nodes: BTreeMap::from([(Ino::ROOT, root)]), blocks: BTreeMap::new(), open: BTreeSet::new() }
    }

    pub(crate) fn run(&mut self, op: &Op, ask: &Ask<'_>) -> Result<Done, Refusal> {
        match op {
            Op::Make { parent, name, make, mode } => self.make(*parent, name, make, mode.0, ask),
            Op::MakeUnnamed { parent, mode } => self.make_unnamed(*parent, mode.0, ask),
            Op::LinkUnnamed { ino, parent, name } => self.link_unnamed(*ino, *parent, name, ask),
            Op::Link { ino, parent, name } => self.link(*ino, *parent, name, ask),
            Op::Unlink { parent, name } => self.remove(*parent, name, false, ask),
            Op::Rmdir { parent, name } => self.remove(*parent, name, true, ask),
            Op::RemoveTree { .. } => {
                unreachable!("histories remove names: `tests/removed_trees.rs` removes trees")
            }
            Op::Split { .. } | Op::Fold { .. } => unreachable!("histories have one plate"),
            Op::Rename { from, from_name, to, to_name, how } => {
                self.rename((*from, from_name), (*to, to_name), *how, ask)
            }
            Op::SetAttr { ino, change } => self.set_attr(*ino, change, ask),
            Op::Write { ino, body, size, mtime, kill_setid, .. } => {
                self.write(*ino, body, *size, *mtime, *kill_setid)
            }
            Op::Clone { from, from_offset, to, to_offset, len } => {
                self.clone_range(*from, *from_offset, *to, *to_offset, *len, ask)
            }
            Op::Remap { ino, expected, extents } => self.remap(*ino, *expected, extents),
            Op::SetXattr { ino, name, value, how } => self.set_xattr(*ino, name, value, *how, ask),
            Op::RemoveXattr { ino, name } => self.remove_xattr(*ino, name, ask),
            Op::Reclaim { ino } => self.reclaim(*ino),
            Op::SetFlags { .. } => unreachable!("histories set no flags: `tests/flags.rs` does"),
        }
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<&Node, Refusal> {
        self.nodes.get(&ino).ok_or(Refusal::Stale)
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("the inode was checked before")
    }

    pub(crate) fn dir(&self, ino: Ino) -> Result<&Node, Refusal> {
        let node = self.node(ino)?;
        if node.kind == Kind::Dir { Ok(node) } else { Err(Refusal::NotDir) }
    }

    /// A directory in which the caller may search.
    pub(crate) fn searched(&self, dir: Ino, cred: &Cred) -> Result<&Node, Refusal> {
        let node = self.dir(dir)?;
        node.may(cred, access::EXEC)?;
        Ok(node)
    }

    /// Nothing new is put in a directory that is removed and still open.
    pub(crate) fn not_removed(&self, dir: Ino) -> Result<(), Refusal> {
        if self.is_orphan(dir) { Err(Refusal::NotFound) } else { Ok(()) }
    }

    /// Names of a file, anywhere (1 for a directory, also the root).
    pub(crate) fn names(&self, ino: Ino) -> u32 {
        self.nodes.values().flat_map(|n| n.entries.values()).filter(|&&i| i == ino).count() as u32
    }

    pub(crate) fn nlink(&self, ino: Ino) -> u32 {
        let node = &self.nodes[&ino];
        if node.kind != Kind::Dir {
            return self.names(ino);
        }
        if self.is_orphan(ino) {
            return 0;
        }
        2 + node.entries.values().filter(|child| self.nodes[child].kind == Kind::Dir).count() as u32
    }

    pub(crate) fn is_orphan(&self, ino: Ino) -> bool {
        ino != Ino::ROOT && self.names(ino) == 0
    }

    /// True if `below` is `above` or lies under it.
    pub(crate) fn within(&self, below: Ino, above: Ino) -> bool {
        let mut at = below;
        while at != above && at != Ino::ROOT && !self.is_orphan(at) {
            at = self.nodes[&at].parent;
        }
        at == above
    }

    /// The attributes that `stat` shows; the position is not the model's to know.
    pub(crate) fn attr(&self, ino: Ino) -> Attr {
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
            flags: node.lists(),
            position: Position(0),
        }
    }

    /// The bytes that an extent stands for.
    pub(crate) fn resolve(&self, e: &Extent) -> Vec<(u64, u8)> {
        let payload = &self.blocks[&e.block];
        (0..e.len).map(|n| (e.offset + u64::from(n), payload[(e.block_offset + n) as usize])).collect()
    }

    /// An inode that is open, or has content in blocks, stays without a name.
    fn stays(&self, ino: Ino) -> bool {
        self.open.contains(&ino) || matches!(self.nodes[&ino].content, Content::Blocks(_))
    }

    /// After a name of `ino` is gone: removes the inode, or makes it an orphan, if that was the last.
    pub(crate) fn lost_a_name(&mut self, ino: Ino, now: Time) -> Option<Gone> {
        self.node_mut(ino).ctime = now;
        if self.names(ino) > 0 {
            let holders: Vec<Ino> = self
                .nodes
                .iter()
                .filter(|(_, n)| n.entries.values().any(|e| *e == ino))
                .map(|(i, _)| *i)
                .collect();
            if !holders.contains(&self.nodes[&ino].parent) {
                self.node_mut(ino).parent = holders.into_iter().min().expect("it has a name");
            }
            return None;
        }
        let orphan = self.stays(ino);
        if !orphan {
            self.nodes.remove(&ino);
        }
        Some(Gone { ino, orphan })
    }
}

impl Node {
    pub(crate) fn new(kind: Kind, mode: u16, now: Time, parent: Ino) -> Node {
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

    pub(crate) fn may(&self, cred: &Cred, want: u8) -> Result<(), Refusal> {
        let class = match () {
            () if cred.uid == self.uid => self.mode >> 6,
            () if self.xattrs.contains_key(ACL_ACCESS) => self.by_list(cred, want),
            () if cred.in_group(self.gid) == Some(true) => self.mode >> 3,
            () => self.mode,
        };
        let is_dir = self.kind == Kind::Dir;
        let overrides = match is_dir || want & access::EXEC == 0 || self.mode & 0o111 != 0 {
            true => self.can(cred, Capabilities::DAC_OVERRIDE),
            false => false,
        };
        let reads = want == access::READ || is_dir && want & access::WRITE == 0;
        let searches = reads && self.can(cred, Capabilities::DAC_READ_SEARCH);
        if class as u8 & want == want || overrides || searches { Ok(()) } else { Err(Refusal::Access) }
    }

    /// By the access list, as acl(5) says it: all rights, or none.
    fn by_list(&self, cred: &Cred, want: u8) -> u16 {
        let entries = self.list(ACL_ACCESS).expect("there is one");
        let mask = self.mode >> 3 & 7;
        let gives = |rights: u16| if rights & mask & u16::from(want) == u16::from(want) { 7 } else { 0 };
        if let Some((_, rights, _)) = entries.iter().find(|(tag, _, id)| (*tag, *id) == (2, cred.uid)) {
            return gives(*rights);
        }
        let mine = entries.iter().filter(|(tag, _, id)| match tag {
            4 => cred.in_group(self.gid) == Some(true),
            8 => cred.in_group(*id) == Some(true),
            _ => false,
        });
        mine.map(|(_, rights, _)| gives(*rights)).max().unwrap_or(self.mode & 7)
    }

    /// The entries of a list: tag, rights, who.
    pub(crate) fn list(&self, name: &[u8]) -> Option<Vec<(u16, u16, u32)>> {
        self.xattrs.get(name).map(|bytes| entries_of(bytes))
    }

    pub(crate) fn lists(&self) -> u8 {
        let flag = |name, flag| if self.xattrs.contains_key(name) { flag } else { 0 };
        let any = if self.xattrs.is_empty() { 0 } else { Attr::XATTRS };
        any | flag(ACL_ACCESS, Attr::ACCESS_LIST) | flag(ACL_DEFAULT, Attr::DEFAULT_LIST)
    }

    /// Whether a capability counts over it.
    pub(crate) fn can(&self, cred: &Cred, wanted: Capabilities) -> bool {
        let privileges = cred.privileges.as_ref().expect("the model is asked with all that is known");
        let is_mapped = match &privileges.scope {
            Scope::Everywhere => true,
            Scope::Mapped(maps) => {
                maps.users.iter().any(|range| range.has(self.uid))
                    && (maps.groups.iter().any(|range| range.has(self.gid)) || wanted == Capabilities::FOWNER)
            }
        };
        is_mapped && privileges.capabilities.0 & wanted.0 != 0
    }

    pub(crate) fn owned_by(&self, cred: &Cred) -> bool {
        cred.uid == self.uid || self.can(cred, Capabilities::FOWNER)
    }

    pub(crate) fn in_group(&self, cred: &Cred) -> bool {
        cred.in_group(self.gid) == Some(true)
    }

    pub(crate) fn has(&self, bits: u16) -> bool {
        self.mode & bits == bits
    }

    pub(crate) fn changed(&mut self, now: Time) {
        (self.mtime, self.ctime) = (now, now);
    }
}

/// Of the bytes of a list.
pub(crate) fn entries_of(bytes: &[u8]) -> Vec<(u16, u16, u32)> {
    let entry = |e: &[u8]| {
        let short = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
        (short(0), short(2), u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
    };
    bytes.get(4..).unwrap_or_default().chunks_exact(8).map(entry).collect()
}
