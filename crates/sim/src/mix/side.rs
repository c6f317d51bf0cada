//! One decoupling of a case, as its client knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chiton_decoupled::Realm;
use chiton_types::{Ino, Name};
use chiton_wire::Claim;

use super::case::SideSetup;
use super::stage::Desk;
use super::view::{Entry, Touched, View};
use crate::tree::{Node, Tree};

pub(super) struct Side {
    pub(super) n: usize,
    pub(super) setup: SideSetup,
    pub(super) name: Name,
    pub(super) desk: Option<Desk>,
    pub(super) realm: Option<Arc<Realm>>,
    pub(super) claim: Option<Claim>,
    /// The trees that its client saw, after each change.
    pub(super) saw: Vec<Tree>,
    /// Up to here it is durable.
    pub(super) safe: usize,
    /// A change was under way when the client died.
    pub(super) in_flight: bool,
    /// Since it began, and since it was merged last.
    pub(super) by_ours: [Touched; 2],
    pub(super) by_theirs: [Touched; 2],
    /// Up to here it is merged.
    pub(super) merged: usize,
    /// Its directories that became one with directories of others.
    pub(super) twins: BTreeMap<Ino, Ino>,
    /// Names under which its merges put files that it has elsewhere.
    pub(super) put: BTreeSet<(Entry, Ino)>,
    /// A later life did not find the former tree: others touched the same entries, which were merged.
    pub(super) is_blurred: bool,
    /// Something of it may be merged.
    pub(super) is_merged_partly: bool,
}

impl Side {
    pub(super) fn new(n: usize, setup: &SideSetup) -> Side {
        Side {
            n,
            setup: setup.clone(),
            name: Name::new(format!("try{n}").as_bytes()).expect("a name"),
            desk: None,
            realm: None,
            claim: None,
            saw: Vec::new(),
            safe: 0,
            in_flight: false,
            merged: 0,
            twins: BTreeMap::new(),
            put: BTreeSet::new(),
            is_blurred: false,
            by_ours: Default::default(),
            by_theirs: Default::default(),
            is_merged_partly: false,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.claim.is_some()
    }

    pub(super) fn began(&mut self, realm: Arc<Realm>, tree: Tree) {
        self.claim = Some(realm.claim());
        self.realm = Some(realm);
        self.saw = vec![tree];
        self.safe = 0;
        self.in_flight = false;
        self.merged = 0;
        self.twins.clear();
        self.put.clear();
        self.is_blurred = false;
        self.by_ours = Default::default();
        self.by_theirs = Default::default();
        self.is_merged_partly = self.setup.merges_by_itself();
    }

    pub(super) fn over(&mut self) {
        self.realm = None;
        self.claim = None;
    }

    pub(super) fn sees(&self) -> View {
        self.saw.last().map(View::new).unwrap_or_default()
    }

    pub(super) fn saw_next(&mut self, tree: Tree) {
        let (before, after) = (self.sees(), View::new(&tree));
        self.by_ours.iter_mut().for_each(|touched| touched.between(&before, &after));
        self.saw.push(tree);
    }

    pub(super) fn others_touched(&mut self, by: &Touched) {
        self.by_theirs.iter_mut().for_each(|touched| touched.add(by));
    }

    /// All of it is durable, if its level keeps anything.
    pub(super) fn is_safe(&mut self) {
        if self.setup.durability != "none" {
            self.safe = self.saw.len() - 1;
        }
    }

    /// Later changes are lost.
    fn lost_after(&mut self, at: usize) {
        self.saw.truncate(at + 1);
        let views: Vec<View> = self.saw.iter().map(View::new).collect();
        for (touched, from) in self.by_ours.iter_mut().zip([0, self.merged]) {
            *touched = Touched::default();
            for pair in views.get(from..).unwrap_or_default().windows(2) {
                touched.between(&pair[0], &pair[1]);
            }
        }
    }

    /// The trees that its client saw since the last merge.
    pub(super) fn seen_since_merged(&self) -> Vec<View> {
        self.saw.iter().skip(self.merged).map(View::new).collect()
    }

    /// The changes so far are merged.
    pub(super) fn merged_so_far(&mut self) {
        self.merged = self.saw.len() - 1;
        self.by_ours[1] = Touched::default();
        self.by_theirs[1] = Touched::default();
    }

    /// A later life found this tree.
    pub(super) fn found(&mut self, tree: Tree) -> Result<(), String> {
        let alike = |a: &Tree, b: &Tree| {
            let rest = |tree: &Tree| {
                let mut nodes = tree.nodes.clone();
                nodes.remove("/");
                nodes
            };
            rest(a) == rest(b)
        };
        // Of equal states the last: changes that were undone between them may exist.
        let at = (self.safe..self.saw.len()).rfind(|at| alike(&self.saw[*at], &tree));
        if at.is_none()
            && let Some(next) =
                (self.safe + 1..self.saw.len()).rfind(|at| is_before_write(&tree, &self.saw[*at]))
        {
            self.lost_after(next - 1);
            self.saw_next(tree);
            self.in_flight = false;
            self.is_safe();
            return Ok(());
        }
        // Merged entries are as the merge left them. If others touched the same entries, that need not be what was
        // seen here.
        let contested = self.is_merged_partly && !self.by_theirs[0].inos.is_empty();
        if at.is_none() && !self.in_flight && !contested {
            let last = &self.saw[self.saw.len() - 1];
            let paths = last.nodes.keys().chain(tree.nodes.keys()).filter(|path| *path != "/");
            let mut differs = paths.filter(|path| last.nodes.get(*path) != tree.nodes.get(*path));
            let path = differs.next().cloned().unwrap_or_default();
            return Err(format!(
                "side {} continues with a state that it never saw ({} durable of {}): {path} is {:?}, was {:?}",
                self.n,
                self.safe,
                self.saw.len() - 1,
                tree.nodes.get(&path),
                last.nodes.get(&path)
            ));
        }
        match at {
            Some(at) => self.lost_after(at),
            None => {
                self.is_blurred |= contested;
                self.saw_next(tree);
            }
        }
        self.in_flight = false;
        self.is_safe();
        Ok(())
    }
}

/// Whether a tree is like a later one, but for one file that is empty: a content that is too large for the inode is written
/// after the event that makes or empties its file.
fn is_before_write(tree: &Tree, later: &Tree) -> bool {
    let mut differ = Vec::new();
    for path in tree.nodes.keys().chain(later.nodes.keys()).filter(|path| *path != "/") {
        if tree.nodes.get(path) != later.nodes.get(path) && !differ.contains(path) {
            differ.push(path.clone());
        }
    }
    let [path] = &differ[..] else { return false };
    let (Some(empty), Some(written)) = (tree.nodes.get(path), later.nodes.get(path)) else { return false };
    let (mtime, ctime) = (empty.mtime, empty.ctime);
    empty.size == 0 && *empty == Node { size: 0, content: Vec::new(), mtime, ctime, ..written.clone() }
}
