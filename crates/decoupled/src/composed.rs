//! The tree of a composition: each entry with the journal that it comes from, and the conflicts.

mod local;

use std::sync::Arc;
use std::vec::IntoIter;

use chiton_client::{Client, Listed};
use chiton_server::Server;
use chiton_types::{Attr, Kind, Refusal};

use crate::error::RealmError;
use crate::provenance::Provenance;
use crate::quoted::quoted;
use crate::report::ConflictLine;

pub use local::Written;

/// Entries in one request for a directory.
const PAGE: u32 = 1_000;

/// The tree of a composition, and its conflicts.
pub struct Composed {
    pub(crate) client: Arc<Client>,
    pub(crate) names: Vec<String>,
    pub(crate) provenance: Provenance,
    pub(crate) conflicts: Vec<JournalConflict>,
    pub(crate) conflict_count: u64,
    pub(crate) lost: Vec<(String, String)>,
    pub(crate) lost_count: u64,
    pub(crate) events: Vec<u64>,
    /// Serves the client while this value lives.
    pub(crate) _preview: Arc<Server>,
}

/// A conflict between a journal and an earlier change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConflict {
    /// The journal: `ours` of the line is its side.
    pub journal: String,
    /// The earlier journal, whose change is `theirs` in the line; `None` for a change in the global namespace.
    pub against: Option<String>,
    /// The path, from the root of the file system.
    pub path: Vec<u8>,
    /// Both changes and the resolution. Its path begins at the decoupled directory.
    pub line: ConflictLine,
}

impl JournalConflict {
    pub(crate) fn new(
        journal: String,
        against: Option<String>,
        root: &[u8],
        line: ConflictLine,
    ) -> JournalConflict {
        let below = line.path_bytes.as_deref().unwrap_or(line.path.as_bytes());
        JournalConflict { path: joined(root, below), journal, against, line }
    }

    /// Its path from a directory on, if it is at or below that.
    pub fn below(&self, dir: &[u8]) -> Option<&[u8]> {
        let dir = dir.strip_suffix(b"/").unwrap_or(dir);
        let rest = self.path.strip_prefix(dir)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
    }
}

/// An entry of the tree.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// Where, from the top on, without a `/` before it.
    pub path: &'a [u8],
    /// Attributes as the journals leave them.
    pub attr: &'a Attr,
    /// The journal that gave it this name, or changed it last; none: it is in the global namespace as it is.
    pub journal: Option<&'a str>,
    /// Where it points to, if it is a symbolic link.
    pub target: Option<&'a [u8]>,
}

/// A step of a walk over the tree.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// An entry. If it is a directory, its entries follow.
    Entry(Node<'a>),
    /// The end of the directory of this path.
    Leave(&'a [u8], &'a Attr),
}

/// A directory that is being walked: its entries are sorted by name.
struct Level {
    attr: Attr,
    path_len: usize,
    entries: IntoIter<Listed>,
}

impl Composed {
    /// The journals that were merged into it, in this order: name, and how many of its events were not merged.
    pub fn journals(&self) -> impl Iterator<Item = (&str, u64)> {
        self.names.iter().map(String::as_str).zip(self.events.iter().copied())
    }

    /// The first 10,000 conflicts.
    pub fn conflicts(&self) -> &[JournalConflict] {
        &self.conflicts
    }

    /// The number of conflicts.
    pub fn conflict_count(&self) -> u64 {
        self.conflict_count
    }

    /// Changes of journals that could not be carried out, for example because of a limit of the file system:
    /// journal and reason. At most 10,000.
    pub fn lost(&self) -> &[(String, String)] {
        &self.lost
    }

    /// The number of changes that could not be carried out.
    pub fn lost_count(&self) -> u64 {
        self.lost_count
    }

    /// A client that reads the tree. Whatever a caller writes through it is lost.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Visits everything below a directory, in the order of names. Memory grows with the depth and with the largest
    /// directory, and with the rows that the preview caches.
    ///
    /// # Errors
    /// It is not there, or no directory; something cannot be read; the visitor's.
    pub fn walk(
        &self,
        top: &[u8],
        visit: &mut dyn FnMut(Step<'_>) -> Result<(), RealmError>,
    ) -> Result<(), RealmError> {
        let failed =
            |path: &[u8], refusal| RealmError::new(refusal, format!("{}: {refusal}", quoted(path)), "");
        let attr = self.client.stat(top).map_err(|refusal| failed(top, refusal))?;
        if attr.kind != Kind::Dir {
            return Err(RealmError::new(
                Refusal::NotDir,
                format!("{} is no directory", quoted(top)),
                "name a directory",
            ));
        }
        let mut path = Vec::new();
        let mut levels = vec![self.enter(attr, 0).map_err(|refusal| failed(top, refusal))?];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.path_len);
            let Some(listed) = level.entries.next() else {
                visit(Step::Leave(&path, &level.attr))?;
                levels.pop();
                continue;
            };
            let dir = level.attr.ino;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(listed.name.as_bytes());
            let attr = self.client.getattr(listed.ino, None).map_err(|refusal| failed(&path, refusal))?.attr;
            let target = match attr.kind {
                Kind::Symlink => Some(self.client.readlink(attr.ino).map_err(|r| failed(&path, r))?),
                _ => None,
            };
            let layer = self.provenance.of(dir, &listed.name, attr.ino);
            let journal = layer.map(|layer| &*self.names[layer as usize]);
            visit(Step::Entry(Node { path: &path, attr: &attr, journal, target: target.as_deref() }))?;
            if attr.kind == Kind::Dir {
                let len = path.len();
                levels.push(self.enter(attr, len).map_err(|refusal| failed(&path, refusal))?);
            }
        }
        Ok(())
    }

    fn enter(&self, attr: Attr, path_len: usize) -> Result<Level, Refusal> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let (page, end) = self.client.readdir(&self.client.caller(), attr.ino, cookie, PAGE, false)?;
            let is_stuck = page.is_empty();
            cookie = page.last().map_or(cookie, |last| last.cookie);
            entries.extend(page);
            if end || is_stuck {
                break;
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Level { attr, path_len, entries: entries.into_iter() })
    }
}

fn joined(root: &[u8], below: &[u8]) -> Vec<u8> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    if below.is_empty() { root.to_vec() } else { [root, below].join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_and_taken_apart_at_borders_of_names() {
        for (root, below, expect) in [("/", "a", "/a"), ("/job", "a/b", "/job/a/b"), ("/job", "", "/job")] {
            assert_eq!(joined(root.as_bytes(), below.as_bytes()), expect.as_bytes());
        }
        let at = |path: &str| JournalConflict {
            journal: String::new(),
            against: None,
            path: path.as_bytes().to_vec(),
            line: ConflictLine::default(),
        };
        for (path, dir, expect) in [
            ("/job/a", "/job", Some("a")),
            ("/job/a", "/", Some("job/a")),
            ("/job", "/job", Some("")),
            ("/jobs/a", "/job", None),
            ("/a", "/job", None),
        ] {
            assert_eq!(at(path).below(dir.as_bytes()), expect.map(str::as_bytes), "{path} from {dir}");
        }
    }
}
