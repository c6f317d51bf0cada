//! A tree by names and inodes, and the entries that a side touched.

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::{Ino, Kind};

use crate::tree::{Node, Tree};

/// A name in a directory.
pub(super) type Entry = (Ino, String);

#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) names: BTreeMap<Entry, Ino>,
    pub(super) nodes: BTreeMap<Ino, Node>,
    pub(super) paths: BTreeMap<Entry, String>,
    pub(super) root: Ino,
}

impl View {
    pub(super) fn new(tree: &Tree) -> View {
        let mut view = View::default();
        for (path, node) in &tree.nodes {
            view.nodes.insert(node.ino, node.clone());
            if path == "/" {
                view.root = node.ino;
                continue;
            }
            let (dir, name) = path.rsplit_once('/').expect("a path");
            let dir = &tree.nodes[if dir.is_empty() { "/" } else { dir }];
            view.names.insert((dir.ino, name.to_owned()), node.ino);
            view.paths.insert((dir.ino, name.to_owned()), path.clone());
        }
        view
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.kind == Kind::Dir)
    }

    /// Whether any file has this content.
    pub(super) fn has_content(&self, content: &[u8]) -> bool {
        self.nodes.values().any(|node| node.kind == Kind::File && node.content == content)
    }
}

/// The part of a tree below `root`, as a tree.
pub(super) fn below(tree: &Tree, root: &str) -> Tree {
    let mut own = Tree::default();
    for (path, node) in &tree.nodes {
        match path.strip_prefix(root) {
            Some("") => drop(own.nodes.insert("/".to_owned(), node.clone())),
            Some(rest) if rest.starts_with('/') => drop(own.nodes.insert(rest.to_owned(), node.clone())),
            _ => {}
        }
    }
    own
}

#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    /// Names that were created, removed, or refer to another inode.
    pub(super) names: BTreeSet<Entry>,
    /// Files of which anything changed; directories of which mode or attributes changed, or which came, went or moved.
    pub(super) inos: BTreeSet<Ino>,
    /// Files whose content changed.
    pub(super) written: BTreeSet<Ino>,
    pub(super) moves_dirs: bool,
    pub(super) removed_dirs: BTreeSet<Ino>,
}

impl Touched {
    /// Adds the differences between two trees.
    pub(super) fn between(&mut self, before: &View, after: &View) {
        for entry in before.names.keys().chain(after.names.keys()) {
            let (was, is) = (before.names.get(entry), after.names.get(entry));
            if was == is {
                continue;
            }
            self.names.insert(entry.clone());
            for ino in [was, is].into_iter().flatten() {
                self.inos.insert(*ino);
                self.moves_dirs |= before.is_dir(*ino) && after.is_dir(*ino);
            }
        }
        for ino in before.nodes.keys().chain(after.nodes.keys()) {
            match (before.nodes.get(ino), after.nodes.get(ino)) {
                (Some(was), Some(is)) => self.changed(*ino, was, is),
                (was, _) => {
                    self.inos.insert(*ino);
                    if before.is_dir(*ino) {
                        self.removed_dirs.insert(*ino);
                    }
                    if was.is_none() {
                        self.written.insert(*ino);
                    }
                }
            }
        }
    }

    fn changed(&mut self, ino: Ino, was: &Node, is: &Node) {
        let differs =
            if is.kind == Kind::Dir { (was.mode, &was.xattrs) != (is.mode, &is.xattrs) } else { was != is };
        if differs {
            self.inos.insert(ino);
        }
        if was.content != is.content {
            self.written.insert(ino);
        }
    }

    /// Adds the touches of another side.
    pub(super) fn add(&mut self, more: &Touched) {
        self.names.extend(more.names.iter().cloned());
        self.inos.extend(&more.inos);
        self.written.extend(&more.written);
        self.removed_dirs.extend(&more.removed_dirs);
        self.moves_dirs |= more.moves_dirs;
    }
}
