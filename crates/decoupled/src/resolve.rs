//! Resolves conflicts that stop a merge (`on_conflict: abort`) one by one: a user compares both sides, chooses one,
//! and merges again.
//!
//! ```text
//!   merge ─▶ stopped: a, b ─▶ resolve a --theirs ─▶ resolve b --ours ─▶ merge
//!                               │ theirs is copied over ours
//!                               └─ records the version of theirs
//! ```
//!
//! Invariants:
//! - A resolution holds for the version of the others that was there when the user chose. If others change the path
//!   again, it is a conflict again.
//! - A merge passes conflicts only when all are resolved. Then ours prevails, which holds the chosen version.
//! - Resolutions survive the process, beside the journal; a decoupling without a directory has them in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use chiton_client::Client;
use chiton_types::{Attr, Ino, Kind, Refusal};
use serde::{Deserialize, Serialize};

use crate::error::RealmError;
use crate::quoted::{if_no_text, quoted};
use crate::realm::Realm;
use crate::report::{Change, ChangeKind, SideVersion};
use crate::take_theirs::Taking;

/// The file beside the journal that records resolutions.
const FILE: &str = "resolved.json";

/// The version to keep where both sides changed a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The version that the decoupled side has now.
    Ours,
    /// The version of the others; it is copied here.
    Theirs,
}

/// A conflict, and whether the user has resolved it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenConflict {
    /// The path, from the subtree's root.
    pub path: String,
    /// The same byte by byte, if it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// The change of the decoupled side.
    pub ours: ChangeKind,
    /// The change of the others.
    pub theirs: SideVersion,
    /// Whether it is resolved.
    pub resolved: bool,
}

/// Resolved paths, each with a fingerprint of the others' version at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved(BTreeMap<Vec<u8>, String>);

/// One of them, as the file has it.
#[derive(Serialize, Deserialize)]
struct Line {
    path: Vec<u8>,
    theirs: String,
}

impl Resolved {
    /// Reads the record of an earlier process. If it cannot be read, no conflict counts as resolved.
    pub(crate) fn read(dir: &Path) -> Resolved {
        let lines: Vec<Line> = fs::read(dir.join(FILE))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Resolved(lines.into_iter().map(|line| (line.path, line.theirs)).collect())
    }

    fn write(&self, dir: &Path) -> Result<(), RealmError> {
        let lines: Vec<Line> =
            self.0.iter().map(|(path, theirs)| Line { path: path.clone(), theirs: theirs.clone() }).collect();
        let (new, path) = (dir.join("resolved.json.new"), dir.join(FILE));
        let written = serde_json::to_vec(&lines)
            .map_err(std::io::Error::from)
            .and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path));
        written.map_err(|e| RealmError::local(format!("{} cannot be written: {e}", path.display())))
    }
}

/// Whether conflicts allow a merge.
pub(crate) enum ConflictState {
    /// There are no conflicts.
    Free,
    /// All conflicts are resolved.
    Resolved,
    /// These conflicts are open.
    Open(Vec<(Change, SideVersion)>),
}

impl Realm {
    /// The conflicts between this client and the others, by path: those that stop a merge if the policy forbids conflicts.
    ///
    /// # Errors
    /// As [`Realm::diff`].
    pub fn conflicts(&self) -> Result<Vec<OpenConflict>, RealmError> {
        let line = |(change, theirs): &(Change, SideVersion)| {
            let path = path_of(change);
            Ok(OpenConflict {
                resolved: self.is_resolved(&path)?,
                path: change.path.clone(),
                path_bytes: if_no_text(&path),
                ours: change.kind,
                theirs: *theirs,
            })
        };
        self.by_path(&self.comparison()?)?.iter().map(line).collect()
    }

    /// The conflicts that prevent a merge whose policy forbids conflicts.
    pub(crate) fn conflict_state(&self) -> Result<ConflictState, RealmError> {
        let conflicts = self.by_path(&self.comparison()?)?;
        if conflicts.is_empty() {
            return Ok(ConflictState::Free);
        }
        let open = self.open_of(conflicts)?;
        Ok(if open.is_empty() { ConflictState::Resolved } else { ConflictState::Open(open) })
    }

    /// Resolves the conflict at `path`, which begins at the subtree's root. To keep a third version, write it at
    /// the path first, then choose [`Choice::Ours`].
    ///
    /// # Errors
    /// There is no conflict; theirs cannot be copied; others have the file that it is about under another name.
    pub fn resolve_conflict(&self, path: &[u8], choice: Choice) -> Result<(), RealmError> {
        let compared = self.comparison()?;
        let conflicts = compared
            .conflicts
            .iter()
            .zip(compared.inos.iter().copied())
            .filter(|((change, _), _)| path_of(change) == path);
        let inos: Vec<Ino> = conflicts.map(|(_, ino)| ino).collect();
        if inos.is_empty() {
            let what = format!("{}: there is no conflict", quoted(path));
            return Err(RealmError::new(Refusal::NotFound, what, "`chiton conflicts` lists them"));
        }
        let theirs = self.theirs_at(path)?;
        if choice == Choice::Theirs {
            self.is_nowhere_else(path, theirs.as_ref(), inos)?;
            let (others, changes) = (self.theirs(), &compared.changes);
            Taking { theirs: &others, ours: self.client(), changes }.take(path, theirs.as_ref())?;
        }
        let mut resolved = self.resolved().lock();
        resolved.0.insert(path.to_vec(), fingerprint(theirs.as_ref()));
        self.state_dir_path().map_or(Ok(()), |dir| resolved.write(dir))
    }

    /// That others do not have what ours has, or had, at the path under another name: the version of the others at the path says nothing of it, and
    /// to remove or replace it here would remove it there.
    fn is_nowhere_else(
        &self,
        path: &[u8],
        theirs: Option<&Attr>,
        mut inos: Vec<Ino>,
    ) -> Result<(), RealmError> {
        let (ours, others) = (self.client(), self.theirs());
        let here = ours.lstat(rooted(path)).ok();
        inos.extend(here.as_ref().map(|here| here.ino));
        for ino in inos.into_iter().filter(|ino| theirs.is_none_or(|theirs| theirs.ino != *ino)) {
            let is_at_path = here.as_ref().is_some_and(|here| here.ino == ino);
            let stays_here = match ours.getattr(ino, None).map(|entry| entry.attr) {
                Ok(attr) if attr.kind == Kind::Dir => attr.nlink > 0 && !is_at_path,
                Ok(attr) => attr.nlink > u32::from(is_at_path),
                Err(_) => false,
            };
            if !stays_here && others.getattr(ino, None).is_ok_and(|entry| entry.attr.nlink > 0) {
                let what = format!("{}: others have this file under another name", quoted(path));
                let next = "give it that name here (if it is removed here, copy it from there); if this path is still a conflict then, resolve it with --ours";
                return Err(RealmError::new(Refusal::Exists, what, next));
            }
        }
        Ok(())
    }

    pub(crate) fn is_resolved(&self, path: &[u8]) -> Result<bool, RealmError> {
        let Some(then) = self.resolved().lock().0.get(path).cloned() else { return Ok(false) };
        Ok(fingerprint(self.theirs_at(path)?.as_ref()) == then)
    }

    /// A client of the directory in the global namespace.
    fn theirs(&self) -> Client {
        self.global().rooted(self.root())
    }

    fn theirs_at(&self, path: &[u8]) -> Result<Option<Attr>, RealmError> {
        match self.theirs().lstat(rooted(path)) {
            Ok(attr) => Ok(Some(attr)),
            Err(Refusal::NotFound | Refusal::NotDir) => Ok(None),
            Err(refusal) => Err(RealmError::refused(
                &format!("the version of the others at {} cannot be read", quoted(path)),
                refusal,
            )),
        }
    }
}

pub(crate) fn path_of(change: &Change) -> Vec<u8> {
    change.path_bytes.clone().unwrap_or_else(|| change.path.clone().into_bytes())
}

pub(crate) fn rooted(path: &[u8]) -> Vec<u8> {
    [b"/", path].concat()
}

/// Identifies a version of theirs.
fn fingerprint(theirs: Option<&Attr>) -> String {
    theirs.map_or("gone".to_owned(), |attr| {
        format!("inode {}, changed at position {}", attr.ino, attr.position)
    })
}
