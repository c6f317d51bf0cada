//! Paths over several plates: component by component, as a server resolves them within one.
//!
//! Invariants: search permission is asked for in every directory on the way; at most 40 symbolic links.

use chiton_types::{Attr, Cred, Ino, Kind, Name, PATH_BYTES_MAX, Refusal, access};
use chiton_wire::{Answer, Call, LeaseMode, Query};

use super::Each;
use crate::service::CallError;

const LINKS_MAX: usize = 40;

impl Each {
    /// What a path leads to.
    pub(super) fn walk(
        &self,
        cred: &Cred,
        from: Ino,
        path: &[u8],
        follow: bool,
    ) -> Result<Answer, CallError> {
        if path.is_empty() {
            return Err(Refusal::NotFound.into());
        }
        let mut todo = components(path)?;
        let mut at = self.attr(cred, if path[0] == b'/' { Ino::ROOT } else { from })?;
        let mut must_be_dir = path.ends_with(b"/");
        let mut links = 0;
        while let Some(part) = todo.pop() {
            if part == b"." || part == b".." {
                self.may_search(cred, &at.0)?;
                if part == b".." {
                    at = self.attr(cred, at.0.parent)?;
                }
                continue;
            }
            let name = Name::new(&part)?;
            let parent = at.0.ino;
            let call = Call::Query(Query::Lookup { parent, name });
            let next = match self.look_up(self.index(parent), cred, call)? {
                Answer::Attr { attr, lease, .. } => (attr, lease),
                Answer::Absent { .. } => return Err(Refusal::NotFound.into()),
                _ => return Err(Refusal::Io.into()),
            };
            let is_last = todo.is_empty();
            if next.0.kind != Kind::Symlink || (is_last && !follow && !must_be_dir) {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Refusal::Loop.into());
            }
            let target = self.target(cred, next.0.ino)?;
            if target.starts_with(b"/") {
                at = self.attr(cred, Ino::ROOT)?;
            }
            must_be_dir |= is_last && target.ends_with(b"/");
            todo.extend(components(&target)?);
            if todo.iter().map(|part| part.len() + 1).sum::<usize>() > PATH_BYTES_MAX {
                return Err(Refusal::NameTooLong.into());
            }
        }
        let (attr, lease) = at;
        if must_be_dir && attr.kind != Kind::Dir {
            return Err(Refusal::NotDir.into());
        }
        Ok(Answer::Attr { attr, lease, parent_leased: false, parent_open: false })
    }

    fn ask(&self, cred: &Cred, ino: Ino, query: Query) -> Result<Answer, CallError> {
        self.services[self.index(ino)].call(cred, Call::Query(query))
    }

    fn attr(&self, cred: &Cred, ino: Ino) -> Result<(Attr, LeaseMode), CallError> {
        match self.ask(cred, ino, Query::GetAttr { ino })? {
            Answer::Attr { attr, lease, .. } => Ok((attr, lease)),
            _ => Err(Refusal::Io.into()),
        }
    }

    fn may_search(&self, cred: &Cred, dir: &Attr) -> Result<(), CallError> {
        if dir.kind != Kind::Dir {
            return Err(Refusal::NotDir.into());
        }
        self.ask(cred, dir.ino, Query::Access { ino: dir.ino, want: access::EXEC }).map(drop)
    }

    fn target(&self, cred: &Cred, ino: Ino) -> Result<Vec<u8>, CallError> {
        match self.ask(cred, ino, Query::ReadLink { ino })? {
            Answer::Bytes(target) => Ok(target),
            _ => Err(Refusal::Io.into()),
        }
    }
}

/// The parts between slashes, last one first.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, CallError> {
    if path.len() >= PATH_BYTES_MAX {
        return Err(Refusal::NameTooLong.into());
    }
    Ok(path.split(|b| *b == b'/').filter(|part| !part.is_empty()).rev().map(<[u8]>::to_vec).collect())
}
