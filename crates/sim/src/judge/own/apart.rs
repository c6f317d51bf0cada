//! Judges a decoupled directory: the part that other clients must find in the end.
//!
//! | end | the tree equals |
//! |---|---|
//! | merged | the client's tree |
//! | discarded | the changes merged before; more only with automatic merges |
//! | resumed, and merged | the tree found then |
//! | the client is gone, and the decoupling has ended | a prefix, no shorter than the merged changes |
//!
//! The tree that is found on resuming is a prefix, no shorter than the last fsync, if the policy keeps that.

use super::{Life, violation};
use crate::checkers::crash::Entry;
use crate::history::{Action, Violation};
use crate::tree::{Node, Tree};

/// Bytes that an entry of a directory counts (S9).
const ENTRY_BYTES: u64 = 32;

/// How far a taken directory is merged, and how it ended.
pub(super) struct Apart {
    /// Data of a returned fsync survive the client.
    pub(super) kept: bool,
    /// It is also merged automatically.
    merges: bool,
    /// Number of merged entries.
    merged: usize,
    /// The requested end: a merge, or a discard.
    asked: Option<Ending>,
    ended: bool,
    /// The tree that was found on resuming.
    found: Option<Tree>,
}

/// The end of a decoupling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Merged,
    Discarded,
}

impl Apart {
    pub(super) fn new(kept: bool, merges: bool, merged: usize) -> Apart {
        Apart { kept, merges, merged, asked: None, ended: false, found: None }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }
}

impl Life {
    /// Everything so far is merged.
    pub(super) fn merged_so_far(&mut self) {
        if !self.is_over {
            self.entries.push(Entry::Pushed(None));
            self.entries.push(Entry::Durable);
            let now = self.entries.len();
            self.apart_mut().merged = now;
        }
    }

    pub(super) fn asked_to_end(&mut self, ending: Ending) {
        self.apart_mut().asked = Some(ending);
    }

    /// The decoupling has ended. `again`: a later life had resumed it.
    pub(super) fn ended(&mut self, ending: Ending, again: bool) {
        if ending == Ending::Merged && !again {
            self.merged_so_far();
        }
        self.apart_mut().ended = true;
    }

    fn apart_mut(&mut self) -> &mut Apart {
        self.apart.as_mut().expect("asked of what is taken")
    }

    /// A later life resumes it.
    pub(super) fn gone_on_with(&mut self, tree: &Tree) -> Result<(), Violation> {
        let own = own_part(tree, "");
        let apart = self.apart.as_ref().expect("asked of what is taken");
        let wrong = match &apart.found {
            Some(before) => same(before, &own, &self.root),
            None => self.prefix(self.least(), self.entries.len(), &own),
        };
        self.apart_mut().found = Some(own);
        wrong
    }

    /// Entries that must be there, if it was not discarded.
    fn least(&self) -> usize {
        let apart = self.apart.as_ref().expect("asked of what is taken");
        if apart.kept { self.entries.floor(self.entries.len()) } else { apart.merged }
    }

    fn prefix(&self, least: usize, most: usize, own: &Tree) -> Result<(), Violation> {
        let judged = self.entries.judge_from(least, most, own);
        judged
            .map(drop)
            .map_err(|found| Violation { what: format!("in {}: {}", self.root, found.what), ..found })
    }

    /// Judges the tree that others find in the end.
    pub(super) fn judge_apart(&self, apart: &Apart, own: &Tree) -> Result<(), Violation> {
        let all = self.entries.len();
        match (apart.asked, &apart.found) {
            (Some(Ending::Merged), Some(found)) => same(found, own, &self.root),
            (Some(Ending::Discarded), None) if apart.ended && !apart.merges && !self.is_over => {
                self.prefix(apart.merged, apart.merged, own)
            }
            (Some(Ending::Discarded), _) => self.prefix(apart.merged, all, own),
            _ => self.prefix(self.least(), all, own),
        }
    }
}

/// The part of a tree below `root`, without the files of other clients.
pub(crate) fn own_part(tree: &Tree, root: &str) -> Tree {
    let mut own = Tree::default();
    for (path, node) in &tree.nodes {
        let Some(rest) = path.strip_prefix(root) else { continue };
        if rest.is_empty() || rest == "/" {
            let top = Node { ino: chiton_types::Ino::ROOT, ..node.clone() };
            own.nodes.insert("/".to_owned(), top);
        } else if rest.starts_with('/') && rest != "/theirs" && !rest.starts_with("/theirs/") {
            own.nodes.insert(rest.to_owned(), node.clone());
        }
    }
    if tree.nodes.contains_key(&format!("{root}/theirs"))
        && let Some(top) = own.nodes.get_mut("/")
    {
        top.nlink -= 1;
        top.size -= ENTRY_BYTES;
    }
    own
}

fn same(before: &Tree, after: &Tree, root: &str) -> Result<(), Violation> {
    let paths = before.nodes.keys().chain(after.nodes.keys()).filter(|path| *path != "/");
    let mut differs = paths.filter(|path| before.nodes.get(*path) != after.nodes.get(*path));
    match differs.next() {
        None => Ok(()),
        Some(path) => Err(violation(format!(
            "{root}{path} is {:?}, was {:?} when it was resumed",
            after.nodes.get(path),
            before.nodes.get(path)
        ))),
    }
}

/// How an action ends a directory that was taken.
pub(super) fn ending_of(action: &Action) -> Option<Ending> {
    match action {
        Action::MergeAll => Some(Ending::Merged),
        Action::Discard => Some(Ending::Discarded),
        _ => None,
    }
}
