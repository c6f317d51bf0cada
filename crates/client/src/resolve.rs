//! From a path to an inode: as far as it is cached, and then by one question.
//!
//! ```text
//!   /a/b/link/c ── a, b, link known here ──▶ its target, known here ──▶ … all known: no message
//!                            └ b is not known ──▶ one message: the servers carry the path on, and list all that it passes
//! ```
//!
//! Invariants:
//! - The client believes its cache name by name: each under a lease, and only where the caller may search the directory.
//! - If links were followed here and something behind them is not known, the whole path is asked for: the servers count its links.

use chiton_types::{Attr, Ino, Kind, Name, PATH_BYTES_MAX, Refusal};
use chiton_wire::{Answer, Call, Query, Resolved};

use crate::client::Client;

/// Most symbolic links on the way.
pub(crate) const LINKS_MAX: usize = 40;

/// How far the cache knows a path.
enum Known {
    /// Its end is this inode.
    End(Ino),
    Absent,
    /// It is known to lead to this directory. The rest is not known.
    UpTo(Ino, Vec<u8>),
}

/// The kind of end that a caller wants of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Anything, with its attributes. Its own, if it is a symbolic link and not followed.
    Attributes { follow: bool },
    /// A directory, whatever its attributes are.
    Directory,
}

impl Client {
    /// The attributes of the inode that a path leads to.
    pub(crate) fn resolve(&self, path: &[u8], follow: bool) -> Result<Attr, Refusal> {
        check(path)?;
        let (from, rest) = match self.resolve_in_cache(path, Wanted::Attributes { follow }) {
            Some(Known::Absent) => return Err(Refusal::NotFound),
            Some(Known::End(ino)) => match self.core.cache.attr(ino) {
                Some(mut attr) => {
                    self.files.overlay(&mut attr);
                    return Ok(attr);
                }
                None => (self.root, self.below_root(path)),
            },
            Some(Known::UpTo(dir, rest)) => (dir, rest),
            None => (self.root, self.below_root(path)),
        };
        self.ask_path(from, rest, follow)
    }

    /// The directory that a path leads to.
    pub(crate) fn resolve_dir(&self, path: &[u8]) -> Result<Ino, Refusal> {
        check(path)?;
        let (from, rest) = match self.resolve_in_cache(path, Wanted::Directory) {
            Some(Known::Absent) => return Err(Refusal::NotFound),
            Some(Known::End(dir)) => return Ok(dir),
            Some(Known::UpTo(dir, rest)) => (dir, rest),
            None => (self.root, self.below_root(path)),
        };
        let attr = self.ask_path(from, rest, true)?;
        if attr.kind == Kind::Dir { Ok(attr.ino) } else { Err(Refusal::NotDir) }
    }

    fn ask_path(&self, from: Ino, path: Vec<u8>, follow: bool) -> Result<Attr, Refusal> {
        let since = self.since();
        // Which sessions there are, the service knows.
        let query = Query::Resolve { from, path, follow, sessions: Vec::new() };
        let Answer::Resolved(resolved) = self.ask(&self.caller(), Call::Query(query))? else {
            return Err(Refusal::Io);
        };
        self.learn(since, &resolved);
        match resolved.end() {
            Some((attr, lease)) => Ok(self.entry(since, None, attr.clone(), *lease).attr),
            None => Err(Refusal::NotFound),
        }
    }

    fn learn(&self, since: crate::cache::Since, resolved: &Resolved) {
        self.core.cache.learn_path(self.service.recalls(), since, resolved);
    }

    /// A path as the server is to see it, for which `/` is the root of the file system.
    fn below_root(&self, path: &[u8]) -> Vec<u8> {
        if self.root == Ino::ROOT {
            return path.to_vec();
        }
        let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
        if start == path.len() { b".".to_vec() } else { path[start..].to_vec() }
    }

    /// Follows a path in the cache. `None`: the cache does not help.
    fn resolve_in_cache(&self, path: &[u8], wanted: Wanted) -> Option<Known> {
        let cache = &self.core.cache;
        let (mut at, mut links, mut must_be_dir) = (self.root, 0, path.ends_with(b"/"));
        let mut todo = components(path);
        while let Some(part) = todo.last() {
            if let Some(next) = self.dots_in_cache(at, part) {
                at = next;
                todo.pop();
                continue;
            }
            let name = Name::new(part).ok().filter(|_| part != b"." && part != b"..");
            let found = name.and_then(|name| self.name_in_cache(at, &name));
            let is_last = todo.len() == 1;
            let next = match found {
                Some(None) => return Some(Known::Absent),
                Some(Some(next)) => next,
                None => return up_to(at, &todo, must_be_dir, links),
            };
            let attr = cache.attr(next).filter(|_| self.is_fresh(next));
            let kind = match &attr {
                Some(attr) => attr.kind,
                None if self.is_fresh(next) && cache.is_dir(next) => Kind::Dir,
                None => return up_to(at, &todo, must_be_dir, links),
            };
            if is_last && attr.is_none() && wanted != Wanted::Directory {
                return up_to(at, &todo, must_be_dir, links);
            }
            let is_followed = !is_last || must_be_dir || wanted != Wanted::Attributes { follow: false };
            if kind == Kind::Symlink && is_followed {
                links += 1;
                let target = cache.target(next).filter(|_| links <= LINKS_MAX)?;
                todo.pop();
                must_be_dir |= is_last && target.ends_with(b"/");
                todo.extend(components(&target));
                if target.starts_with(b"/") {
                    at = self.core.top();
                }
                continue;
            }
            if kind != Kind::Dir && (!is_last || must_be_dir || wanted == Wanted::Directory) {
                // The server says so.
                return None;
            }
            todo.pop();
            at = next;
        }
        let is_known = match wanted {
            Wanted::Directory => true,
            Wanted::Attributes { .. } => cache.attr(at).is_some() && self.is_fresh(at),
        };
        (is_known && !self.core.embedded).then_some(Known::End(at))
    }

    /// Where `.` or `..` leads, if that is cached and the caller may search the directory.
    fn dots_in_cache(&self, dir: Ino, part: &[u8]) -> Option<Ino> {
        if part != b"." && part != b".." {
            return None;
        }
        let attr = self.core.cache.attr(dir).filter(|attr| attr.kind == Kind::Dir && self.is_fresh(dir))?;
        let may_search = self.core.cache.is_open(dir) || self.may_search_cached(&self.caller(), dir)?;
        may_search.then_some(if part == b"." { dir } else { attr.parent })
    }

    /// The inode that bears a name (`None` inside: there is none), if that is cached and the caller may search the directory.
    fn name_in_cache(&self, dir: Ino, name: &Name) -> Option<Option<Ino>> {
        let cache = &self.core.cache;
        if !self.is_fresh(cache.place(dir, name)) {
            return None;
        }
        let (ino, open) = cache.name(dir, name)?;
        (open || self.may_search_cached(&self.caller(), dir)?).then_some(ino)
    }
}

fn check(path: &[u8]) -> Result<(), Refusal> {
    match path.len() {
        0 => Err(Refusal::NotFound),
        PATH_BYTES_MAX.. => Err(Refusal::NameTooLong),
        _ => Ok(()),
    }
}

/// The parts between slashes, last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|b| *b == b'/').filter(|part| !part.is_empty()).rev().map(<[u8]>::to_vec).collect()
}

fn up_to(dir: Ino, todo: &[Vec<u8>], must_be_dir: bool, links: usize) -> Option<Known> {
    let parts: Vec<&[u8]> = todo.iter().rev().map(|part| &part[..]).collect();
    let mut rest = parts.join(&b'/');
    if must_be_dir {
        rest.push(b'/');
    }
    (links == 0).then_some(Known::UpTo(dir, rest))
}
