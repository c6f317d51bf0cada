//! The way to a decoupled root: the directories above it, as they were when the subtree was decoupled.
//!
//! They are neither renamed nor removed while the subtree is decoupled (S59). So while the server is away they
//! still lead to the root, and processes that use absolute paths below it do not wait.

use std::sync::Arc;

use chiton_client::{Caller, Client, Groups, Lookup};
use chiton_types::{Attr, Ino, Refusal};

/// From the root of the file system down.
#[derive(Debug, Default)]
pub(crate) struct RootPath(Vec<Step>);

#[derive(Debug)]
struct Step {
    dir: Attr,
    /// The name of the next directory in `dir`.
    name: Vec<u8>,
}

/// A name on the path.
#[derive(Debug)]
pub(crate) struct PathStep {
    /// The directory that it is in.
    pub(crate) dir: Attr,
    /// The directory that it leads to; none: the decoupled root.
    pub(crate) next: Option<Attr>,
    /// Root of the decoupled subtree.
    pub(crate) root: Ino,
}

impl RootPath {
    /// Walks a path from the root of the file system on, as root.
    ///
    /// # Errors
    /// The error of the lookup.
    pub(super) fn find(client: &Client, path: &[u8]) -> Result<RootPath, Refusal> {
        let groups: Arc<[u32]> = Arc::new([]);
        let root = Caller { uid: 0, gid: 0, groups: Groups::Known(&groups) };
        let (mut at, mut steps) = (Ino::ROOT, Vec::new());
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            steps.push(Step { dir: client.getattr(at, None)?.attr, name: name.to_vec() });
            if names.peek().is_none() {
                break;
            }
            match client.lookup(&root, at, name)? {
                Lookup::Found { attr, .. } => at = attr.ino,
                Lookup::Absent { .. } => return Err(Refusal::NotFound),
            }
        }
        Ok(RootPath(steps))
    }

    /// Whether a name is the last of the path: the root's.
    pub(super) fn ends_with(&self, parent: Ino, name: &[u8]) -> bool {
        self.0.last().is_some_and(|step| step.dir.ino == parent && step.name == name)
    }

    /// The directories above the root, from the root of the file system down.
    pub(super) fn dirs(&self) -> impl Iterator<Item = &Attr> {
        self.0.iter().map(|step| &step.dir)
    }

    /// A directory above the root.
    pub(super) fn dir(&self, ino: Ino) -> Option<&Attr> {
        self.dirs().find(|dir| dir.ino == ino)
    }

    /// The step that a name takes towards `root`, if it is on the path.
    pub(super) fn step(&self, root: Ino, parent: Ino, name: &[u8]) -> Option<PathStep> {
        let at = self.0.iter().position(|step| step.dir.ino == parent && step.name == name)?;
        let next = self.0.get(at + 1).map(|step| step.dir.clone());
        Some(PathStep { dir: self.0[at].dir.clone(), next, root })
    }
}
