//! Whole paths, resolved for clients that have nothing cached.
//!
//! Invariants: search permission is asked for in every directory on the way; at most 40 symbolic links.

use chiton_types::{Ino, Kind, Name, PATH_BYTES_MAX, Refusal};

use crate::parts::Shards;
use crate::query::QueryHandler;
use crate::step::Stop;

const LINKS_MAX: usize = 40;

impl QueryHandler<'_> {
    /// The inode at the end of `path`.
    pub(crate) fn resolve(&mut self, from: Ino, path: &[u8], follow: bool) -> Result<Ino, Stop> {
        let cred = self.cred;
        if path.is_empty() {
            return Err(Refusal::NotFound.into());
        }
        let mut todo = components(path)?;
        let mut at = if path[0] == b'/' { self.root } else { from };
        let mut must_be_dir = path.ends_with(b"/");
        let mut links = 0;
        while let Some(part) = todo.pop() {
            match &part[..] {
                b"." => {
                    self.shards.ns.access(cred, self.shards.directory(at)?, chiton_types::access::EXEC)?
                }
                b".." => {
                    self.shards.ns.access(cred, self.shards.directory(at)?, chiton_types::access::EXEC)?;
                    at = self.shards.ns.attr(at)?.parent;
                }
                name => {
                    let name = Name::new(name)?;
                    if self.shards.ns.has_decouplings() {
                        // The answer does not say whether there is such a name.
                        match self.shards.leads_on(at)? {
                            true => self.shards.may_look_up(at, &name)?,
                            false => self.shards.meets(at, false)?,
                        }
                    }
                    self.clients.see_names(at, self.slot, self.m)?;
                    let next = self.shards.ns.lookup(cred, at, &name)?.ok_or(Refusal::NotFound)?;
                    let last = todo.is_empty();
                    let kind = self.shards.ns.attr(next)?.kind;
                    if kind != Kind::Symlink || (last && !follow && !must_be_dir) {
                        at = next;
                        continue;
                    }
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Refusal::Loop.into());
                    }
                    let target = self.shards.ns.readlink(next)?;
                    if target.starts_with(b"/") {
                        at = self.root;
                    }
                    must_be_dir |= last && target.ends_with(b"/");
                    todo.extend(components(&target)?);
                    if todo.iter().map(|part| part.len() + 1).sum::<usize>() > PATH_BYTES_MAX {
                        return Err(Refusal::NameTooLong.into());
                    }
                }
            }
        }
        if must_be_dir {
            self.shards.directory(at)?;
        }
        Ok(at)
    }
}

impl Shards {
    fn directory(&self, ino: Ino) -> Result<Ino, Stop> {
        if self.ns.attr(ino)?.kind == Kind::Dir { Ok(ino) } else { Err(Refusal::NotDir.into()) }
    }
}

/// The parts between slashes, last one first.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, Stop> {
    if path.len() >= PATH_BYTES_MAX {
        return Err(Refusal::NameTooLong.into());
    }
    Ok(path.split(|b| *b == b'/').filter(|part| !part.is_empty()).rev().map(<[u8]>::to_vec).collect())
}
