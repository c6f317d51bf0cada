//! A naive tree: a file system without anything that makes one fast or durable. It applies the changes that real
//! engines acknowledged, and is then compared with the engines.
//!
//! Invariants:
//! - It keeps nothing derived: link counts and sizes are counted on demand, so no bookkeeping can be wrong.
//! - Content is whole bytes in memory, holes are zeros. Files of simulated worlds are small.
//! - A refused change changes nothing.

mod change;
mod rights;

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_model::RenameHow;
use chiton_types::{Ino, Kind, Name, Refusal, Time};

use crate::tree::{self, Tree};

pub use change::{Change, NewInode, TIME_UNKNOWN, is_unknown, unknown};
pub use rights::{Birth, List, READ, SEARCH, WRITE};

/// Largest file of a simulated world, in bytes.
pub const CONTENT_BYTES_MAX: u64 = 256 << 20;

/// The later of two times; not known if one of them is not.
fn later(a: Time, b: Time) -> Time {
    a.max(b)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// The access list, unless the mode has all of it.
    pub access: Option<List>,
    /// Default list, of a directory.
    pub default: Option<List>,
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// Of a file, all its bytes; of a symbolic link, its target.
    pub content: Arc<Vec<u8>>,
    /// Extended attributes, without lists.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// The entries of a directory.
    pub entries: BTreeMap<Name, Ino>,
}

/// A tree with open files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    nodes: BTreeMap<Ino, Node>,
    opens: BTreeMap<Ino, u32>,
}

impl Model {
    /// A root directory, made at `now`.
    pub fn new(now: Time) -> Model {
        Model::rooted(0o755, now)
    }

    /// The same, with the root directory's mode.
    pub fn rooted(mode: u16, now: Time) -> Model {
        let root = Node::new(&NewInode::Dir, Birth::of_root(mode), now);
        Model { nodes: BTreeMap::from([(Ino::ROOT, root)]), opens: BTreeMap::new() }
    }

    /// An inode, with or without names.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    pub fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    /// Where a path leads; symbolic links are not followed.
    pub fn find(&self, path: &str) -> Option<Ino> {
        path.split('/').filter(|part| !part.is_empty()).try_fold(Ino::ROOT, |at, part| {
            self.nodes.get(&at)?.entries.get(&Name::try_from(part).ok()?).copied()
        })
    }

    /// The directory of a path's last component, and that component.
    pub fn find_parent(&self, path: &str) -> Option<(Ino, Name)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.find(dir)?, Name::try_from(name).ok()?))
    }

    /// Names of an inode, anywhere (the root has none).
    pub fn names(&self, ino: Ino) -> u32 {
        self.nodes.values().flat_map(|node| node.entries.values()).filter(|i| **i == ino).count() as u32
    }

    /// The directories above a directory, the nearest first.
    pub fn above(&self, dir: Ino) -> Vec<Ino> {
        let parent = |ino: Ino| {
            let holds = |(_, node): &(&Ino, &Node)| node.entries.values().any(|child| *child == ino);
            self.nodes.iter().find(holds).map(|(parent, _)| *parent)
        };
        std::iter::successors(parent(dir), |ino| parent(*ino)).collect()
    }

    /// Link count: names; of a directory 2 and its subdirectories (S9).
    pub fn nlink(&self, ino: Ino) -> u32 {
        let node = &self.nodes[&ino];
        if node.kind != Kind::Dir {
            return self.names(ino);
        }
        if ino != Ino::ROOT && self.names(ino) == 0 {
            return 0;
        }
        2 + node.entries.values().filter(|child| self.nodes[child].kind == Kind::Dir).count() as u32
    }

    /// Size as stat shows it.
    pub fn size(&self, ino: Ino) -> u64 {
        self.nodes[&ino].size()
    }

    /// The tree that a reader would find.
    pub fn to_tree(&self) -> Tree {
        let mut tree = Tree::default();
        let mut to_do = vec![(String::new(), Ino::ROOT)];
        while let Some((path, ino)) = to_do.pop() {
            let node = &self.nodes[&ino];
            to_do.extend(node.entries.iter().map(|(name, child)| (format!("{path}/{name}"), *child)));
            let found = tree::Node {
                ino,
                kind: node.kind,
                mode: node.mode,
                uid: node.uid,
                gid: node.gid,
                nlink: self.nlink(ino),
                size: node.size(),
                atime: node.atime,
                mtime: node.mtime,
                ctime: node.ctime,
                content: node.content.to_vec(),
                xattrs: node.shown_xattrs(),
            };
            tree.nodes.insert(if path.is_empty() { "/".to_owned() } else { path }, found);
        }
        tree
    }

    /// All clients died, so no file is open: inodes without a name are freed.
    pub fn close_all(&mut self) {
        let open = std::mem::take(&mut self.opens);
        open.into_keys().for_each(|ino| self.end_if_unnamed(ino));
    }

    /// Carries a change out at a time.
    ///
    /// # Errors
    /// Why the state forbids it. [`rights`] has the permissions.
    pub fn apply(&mut self, action: &Change, now: Time) -> Result<(), Refusal> {
        match action {
            Change::Make { parent, name, ino, what, birth } => {
                self.vacant(*parent, name)?;
                // A number that is used twice is a fault of the judged engine.
                if self.nodes.contains_key(ino) {
                    return Err(Refusal::Exists);
                }
                self.nodes.insert(*ino, Node::new(what, birth.clone(), now));
                self.enter(*parent, name, *ino, now);
            }
            Change::MakeUnnamed { parent, ino, mode } => {
                if *parent != Ino::ROOT && self.names(*parent) == 0 {
                    return Err(Refusal::NotFound);
                }
                self.dir(*parent)?;
                // A number that is used twice is a fault of the judged engine.
                if self.nodes.contains_key(ino) {
                    return Err(Refusal::Exists);
                }
                self.nodes.insert(*ino, Node::new(&NewInode::File(Vec::new()), Birth::of_root(*mode), now));
                self.opens.insert(*ino, 1);
                // It is made as if in the directory (S97).
                self.get(*parent).changed(now);
            }
            Change::LinkUnnamed { ino, parent, name } => {
                self.vacant(*parent, name)?;
                if !self.nodes.contains_key(ino) || self.names(*ino) > 0 {
                    return Err(Refusal::Invalid);
                }
                self.get(*ino).ctime = now;
                self.enter(*parent, name, *ino, now);
            }
            Change::Link { ino, parent, name } => {
                self.vacant(*parent, name)?;
                let node = self.nodes.get(ino).ok_or(Refusal::Stale)?;
                if node.kind == Kind::Dir {
                    return Err(Refusal::NotPermitted);
                }
                if self.names(*ino) == 0 {
                    return Err(Refusal::NotFound);
                }
                self.get(*ino).ctime = now;
                self.enter(*parent, name, *ino, now);
            }
            Change::Unlink { parent, name } => {
                let ino = self.entry(*parent, name)?;
                if self.nodes[&ino].kind == Kind::Dir {
                    return Err(Refusal::IsDir);
                }
                self.leave(*parent, name, now);
            }
            Change::Rmdir { parent, name } => {
                let dir = &self.nodes[&self.entry(*parent, name)?];
                if dir.kind != Kind::Dir {
                    return Err(Refusal::NotDir);
                }
                if !dir.entries.is_empty() {
                    return Err(Refusal::NotEmpty);
                }
                self.leave(*parent, name, now);
            }
            Change::RemoveTree { parent, name } => {
                let top = self.entry(*parent, name)?;
                if self.nodes[&top].kind != Kind::Dir {
                    return Err(Refusal::NotDir);
                }
                self.empty(top, now);
                self.leave(*parent, name, now);
            }
            Change::Rename { from, from_name, to, to_name, how, whiteout, owner } => {
                self.rename((*from, from_name), (*to, to_name), *how, (*whiteout, *owner), now)?;
            }
            Change::Write { ino, pieces, size } => {
                let content = self.content(*ino)?;
                let end = pieces.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap_or(0);
                resize(content, end.max(*size).max(content.len() as u64));
                for (at, bytes) in pieces {
                    content[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
                }
                self.get(*ino).written(now);
            }
            Change::Punch { ino, offset, len } => {
                let content = self.content(*ino)?;
                let size = content.len() as u64;
                if *offset >= size {
                    return Ok(());
                }
                content[*offset as usize..size.min(offset + len) as usize].fill(0);
                self.get(*ino).written(now);
            }
            Change::Copy { from, from_offset, to, to_offset, len } => {
                let source = self.content(*from)?.clone();
                let end = (*from_offset + len).min(source.len() as u64);
                let bytes = source.get(*from_offset as usize..end as usize).unwrap_or_default().to_vec();
                if bytes.is_empty() {
                    return Ok(());
                }
                let write = Change::Write { ino: *to, pieces: vec![(*to_offset, bytes)], size: 0 };
                return self.apply(&write, now);
            }
            Change::Truncate { ino, size } => {
                resize(self.content(*ino)?, *size);
                let node = self.get(*ino);
                node.mtime = now;
                node.ctime = later(node.ctime, now);
            }
            Change::Set { ino, mode, uid, gid, atime, mtime } => {
                let node = self.nodes.get_mut(ino).ok_or(Refusal::Stale)?;
                node.chmod(mode.unwrap_or(node.mode));
                node.uid = uid.unwrap_or(node.uid);
                node.gid = gid.unwrap_or(node.gid);
                node.atime = atime.unwrap_or(node.atime);
                node.mtime = mtime.unwrap_or(node.mtime);
                node.ctime = later(node.ctime, now);
            }
            Change::Xattr { ino, name, value } => {
                let node = self.nodes.get_mut(ino).ok_or(Refusal::Stale)?;
                match value {
                    Some(value) => drop(node.xattrs.insert(name.clone(), value.clone())),
                    None => drop(node.xattrs.remove(name).ok_or(Refusal::NoXattr)?),
                }
                node.ctime = later(node.ctime, now);
            }
            Change::List { ino, default, list } => {
                let node = self.nodes.get_mut(ino).ok_or(Refusal::Stale)?;
                match (default, list) {
                    (true, list) if node.kind == Kind::Dir || list.is_none() => node.default = list.clone(),
                    (true, _) => return Err(Refusal::Access),
                    (false, None) => node.access = None,
                    (false, Some(list)) => {
                        node.access = list.clone().unless_plain();
                        node.chmod(node.mode & !0o777 | list.bits());
                    }
                }
                node.ctime = later(node.ctime, now);
            }
            Change::Open { ino } => {
                self.nodes.get(ino).ok_or(Refusal::Stale)?;
                *self.opens.entry(*ino).or_default() += 1;
            }
            Change::Close { ino } => {
                let count = self.opens.get_mut(ino).ok_or(Refusal::BadHandle)?;
                *count -= 1;
                if *count == 0 {
                    self.opens.remove(ino);
                    self.end_if_unnamed(*ino);
                }
            }
        }
        Ok(())
    }

    fn rename(
        &mut self,
        (from, from_name): (Ino, &Name),
        (to, to_name): (Ino, &Name),
        how: RenameHow,
        (whiteout, (uid, gid)): (Ino, (u32, u32)),
        now: Time,
    ) -> Result<(), Refusal> {
        let ino = self.entry(from, from_name)?;
        let over = match self.entry(to, to_name) {
            Ok(over) => Some(over),
            Err(Refusal::NotFound) => None,
            Err(refusal) => return Err(refusal),
        };
        match (how, over) {
            (how, Some(_)) if how.refuses() => return Err(Refusal::Exists),
            (RenameHow::Exchange, None) => return Err(Refusal::NotFound),
            _ => {}
        }
        let exchange = how == RenameHow::Exchange;
        if self.is_within(to, ino) {
            return Err(Refusal::Invalid);
        }
        if over.is_some_and(|over| self.is_within(from, over)) {
            return Err(if exchange { Refusal::Invalid } else { Refusal::NotEmpty });
        }
        if over == Some(ino) {
            return Ok(());
        }
        let is_dir = |ino: Ino| self.nodes[&ino].kind == Kind::Dir;
        if let Some(over) = over.filter(|_| !exchange) {
            match (is_dir(ino), is_dir(over)) {
                (true, false) => return Err(Refusal::NotDir),
                (false, true) => return Err(Refusal::IsDir),
                _ if !self.nodes[&over].entries.is_empty() => return Err(Refusal::NotEmpty),
                _ => {}
            }
            self.leave(to, to_name, now);
        }
        self.get(from).entries.remove(from_name);
        self.get(from).changed(now);
        self.get(to).entries.insert(to_name.clone(), ino);
        self.get(to).changed(now);
        self.get(ino).ctime = now;
        if let Some(over) = over.filter(|_| exchange) {
            self.get(from).entries.insert(from_name.clone(), over);
            self.get(over).ctime = now;
        }
        if how.leaves_whiteout() {
            assert!(!self.nodes.contains_key(&whiteout), "inode {whiteout} is made twice");
            let birth = Birth { uid, gid, ..Birth::of_root(0) };
            self.nodes.insert(whiteout, Node::new(&NewInode::Whiteout, birth, now));
            self.enter(from, from_name, whiteout, now);
        }
        Ok(())
    }

    /// True if `below` is the directory `above` or lies under it.
    fn is_within(&self, below: Ino, above: Ino) -> bool {
        below == above
            || self.nodes[&above]
                .entries
                .values()
                .any(|&child| self.nodes[&child].kind == Kind::Dir && self.is_within(below, child))
    }

    fn dir(&self, ino: Ino) -> Result<&Node, Refusal> {
        let node = self.nodes.get(&ino).ok_or(Refusal::Stale)?;
        if node.kind == Kind::Dir { Ok(node) } else { Err(Refusal::NotDir) }
    }

    fn entry(&self, dir: Ino, name: &Name) -> Result<Ino, Refusal> {
        self.dir(dir)?.entries.get(name).copied().ok_or(Refusal::NotFound)
    }

    fn vacant(&self, dir: Ino, name: &Name) -> Result<(), Refusal> {
        if self.dir(dir)?.entries.contains_key(name) {
            return Err(Refusal::Exists);
        }
        if dir != Ino::ROOT && self.names(dir) == 0 {
            return Err(Refusal::NotFound);
        }
        Ok(())
    }

    fn get(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("it was looked up before")
    }

    fn content(&mut self, ino: Ino) -> Result<&mut Vec<u8>, Refusal> {
        let node = self.nodes.get_mut(&ino).ok_or(Refusal::Stale)?;
        match node.kind {
            Kind::File => Ok(Arc::make_mut(&mut node.content)),
            Kind::Dir => Err(Refusal::IsDir),
            _ => Err(Refusal::Invalid),
        }
    }

    fn enter(&mut self, dir: Ino, name: &Name, ino: Ino, now: Time) {
        self.get(dir).entries.insert(name.clone(), ino);
        self.get(dir).changed(now);
    }

    fn leave(&mut self, dir: Ino, name: &Name, now: Time) {
        let ino = self.get(dir).entries.remove(name).expect("it was looked up before");
        self.get(dir).changed(now);
        self.get(ino).ctime = now;
        self.end_if_unnamed(ino);
    }

    /// Takes everything out of a directory.
    fn empty(&mut self, dir: Ino, now: Time) {
        for (name, ino) in self.nodes[&dir].entries.clone() {
            if self.nodes[&ino].kind == Kind::Dir {
                self.empty(ino, now);
            }
            self.leave(dir, &name, now);
        }
    }

    fn end_if_unnamed(&mut self, ino: Ino) {
        if ino != Ino::ROOT && self.names(ino) == 0 && !self.opens.contains_key(&ino) {
            self.nodes.remove(&ino);
        }
    }
}

impl Node {
    fn new(what: &NewInode, birth: Birth, now: Time) -> Node {
        let Birth { uid, gid, mode, access, default } = birth;
        let (kind, content) = match what {
            NewInode::File(bytes) => (Kind::File, bytes.clone()),
            NewInode::Dir => (Kind::Dir, Vec::new()),
            NewInode::Symlink(target) => (Kind::Symlink, target.clone()),
            NewInode::Whiteout => (Kind::Char, Vec::new()),
        };
        Node {
            kind,
            mode: if kind == Kind::Symlink { 0o777 } else { mode },
            uid,
            gid,
            access,
            default,
            atime: now,
            mtime: now,
            ctime: now,
            content: Arc::new(content),
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
        }
    }

    /// Size as stat shows it (S9 for directories).
    pub fn size(&self) -> u64 {
        if self.kind == Kind::Dir { self.entries.len() as u64 * 32 } else { self.content.len() as u64 }
    }

    /// Extended attributes as they are listed: lists are among them.
    pub fn shown_xattrs(&self) -> BTreeMap<String, Vec<u8>> {
        let mut shown = self.xattrs.clone();
        for (name, list) in [("access", &self.access), ("default", &self.default)] {
            shown.extend(list.iter().map(|list| (format!("system.posix_acl_{name}"), list.to_bytes())));
        }
        shown
    }

    fn chmod(&mut self, mode: u16) {
        self.mode = mode;
        self.access = self.access.take().map(|list| list.under(mode));
    }

    fn changed(&mut self, now: Time) {
        (self.mtime, self.ctime) = (now, now);
    }

    fn written(&mut self, now: Time) {
        self.mtime = now;
        self.ctime = later(self.ctime, now);
    }
}

fn resize(content: &mut Vec<u8>, size: u64) {
    assert!(size <= CONTENT_BYTES_MAX, "a file of {size} bytes in a simulated world");
    content.resize(size as usize, 0);
}

#[cfg(test)]
mod tests;
