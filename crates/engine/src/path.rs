//! Whole paths, resolved for clients that have nothing cached.
//!
//! ```text
//!   a/b/link/c      a, b on this plate         link: followed on its plate, its target before the rest
//!     └─ b is another plate's ──▶ the rest goes there (peers/carrying.rs)
//! ```
//!
//! Invariants:
//! - Search permission is asked for in every directory on the way, on its plate; at most 40 symbolic links.
//! - All that is passed on one plate is passed at one moment. Over plates each step is true at a moment of its own, while the
//!   question is under way: as if the client had looked up name by name.
//! - The answer lists every name and inode that was passed, with leases, so that the client need not ask for them again.

use chiton_model::part_of;
use chiton_types::{Attr, Ino, Kind, Name, PATH_BYTES_MAX, Position, Refusal, access};
use chiton_wire::{Answer, LeaseMode, PASSED_MAX, Resolved, Walk};

use crate::query::QueryHandler;
use crate::sessions::Slot;
use crate::step::Stop;

const LINKS_MAX: u8 = 40;

/// A path on its way, and the directories that it has passed.
#[derive(Clone, Debug)]
pub(crate) struct Going {
    /// Components, the last one first.
    todo: Vec<Vec<u8>>,
    /// The inode that it has led to. It is not looked at yet.
    pub(crate) at: Ino,
    /// The directory in which that was found by its name.
    below: Option<Ino>,
    follow: bool,
    must_be_dir: bool,
    links: u8,
    /// The directory at which absolute paths begin.
    root: Ino,
    /// `..` of the root leads to itself: to no directory above it, if the client is limited to it.
    ends_at_root: bool,
    /// The client asked another plate. Its operations that are pending here by write-behind did not come before the question.
    is_carried: bool,
    pub(crate) passed: Resolved,
}

/// How far a plate has carried a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    ToTheEnd,
    /// It continues at this inode of another plate.
    To(Ino),
}

impl Going {
    /// `limit`: the directory that is the root of a client that is limited to it.
    pub(crate) fn begin(
        (root, limit): (Ino, Option<Ino>),
        from: Ino,
        path: &[u8],
        follow: bool,
    ) -> Result<Going, Refusal> {
        let root = limit.unwrap_or(root);
        if path.is_empty() {
            return Err(Refusal::NotFound);
        }
        Ok(Going {
            todo: components(path)?,
            at: if path[0] == b'/' { root } else { from },
            below: None,
            follow,
            must_be_dir: path.ends_with(b"/"),
            links: 0,
            root,
            ends_at_root: limit.is_some(),
            is_carried: false,
            passed: Resolved::default(),
        })
    }

    /// One that another plate has begun.
    pub(crate) fn onward(walk: &Walk) -> Result<Going, Refusal> {
        let Walk { at, below, ref rest, follow, must_be_dir, links, root } = *walk;
        let below = Some(below).filter(|dir| *dir != Ino(0));
        let todo = components(rest)?;
        let passed = Resolved::default();
        let ends_at_root = true;
        let is_carried = true;
        Ok(Going { todo, at, below, follow, must_be_dir, links, root, ends_at_root, is_carried, passed })
    }

    /// The state that another plate needs in order to continue.
    pub(crate) fn walk(&self) -> Walk {
        let rest: Vec<&[u8]> = self.todo.iter().rev().map(|part| &part[..]).collect();
        Walk {
            at: self.at,
            below: self.below.unwrap_or(Ino(0)),
            rest: rest.join(&b'/'),
            follow: self.follow,
            must_be_dir: self.must_be_dir,
            links: self.links,
            root: self.root,
        }
    }

    /// Another plate has followed the path further. False if the path ended there.
    pub(crate) fn went(&mut self, passed: Resolved, onward: Option<&Walk>) -> Result<bool, Refusal> {
        let before = std::mem::take(&mut self.passed);
        let mut passed = passed;
        passed.names.splice(0..0, before.names);
        passed.inodes.splice(0..0, before.inodes);
        passed.targets.splice(0..0, before.targets);
        passed.names.truncate(PASSED_MAX);
        if let Some(walk) = onward {
            *self = Going { is_carried: self.is_carried, ..Going::onward(walk)? };
        }
        self.passed = passed;
        Ok(onward.is_some())
    }

    /// The session that must wait for pending operations of others: of a carried path, any, for then the client's own may be pending
    /// here too.
    fn looks_as(&self, slot: Slot) -> Slot {
        if self.is_carried { Slot::SERVER } else { slot }
    }

    /// The last change of anything that was passed on one plate.
    pub(crate) fn last_change(&self) -> Position {
        self.passed.inodes.iter().map(|(attr, _)| attr.position).max().unwrap_or_default()
    }

    fn pass(&mut self, attr: Attr, lease: LeaseMode) {
        // The end is always listed. Of the inodes before it so many are listed that a path without links has room.
        if self.passed.inodes.len() > PASSED_MAX {
            self.passed.inodes.pop();
        }
        self.passed.inodes.push((attr, lease));
    }

    fn name(&mut self, dir: Ino, name: &Name, ino: Ino) {
        if self.passed.names.len() < PASSED_MAX {
            self.passed.names.push((dir, name.clone(), ino));
        }
    }
}

impl QueryHandler<'_> {
    /// Follows a path as far as this plate has it.
    pub(crate) fn walk(&mut self, going: &mut Going) -> Result<Carried, Stop> {
        loop {
            let at = going.at;
            if !self.shards.ns.owns(at) {
                return Ok(Carried::To(at));
            }
            self.await_unguarded(at)?;
            let attr = self.shards.ns.attr(at)?;
            let below = going.below.take();
            let ends_here = going.todo.is_empty();
            if let Some(dir) = below
                && attr.kind == Kind::Symlink
                && (!ends_here || going.follow || going.must_be_dir)
            {
                going.links += 1;
                if going.links > LINKS_MAX {
                    return Err(Refusal::Loop.into());
                }
                let target = self.shards.ns.readlink(at)?;
                going.at = if target.starts_with(b"/") { going.root } else { dir };
                going.must_be_dir |= ends_here && target.ends_with(b"/");
                going.todo.extend(components(&target)?);
                if going.todo.iter().map(|part| part.len() + 1).sum::<usize>() > PATH_BYTES_MAX {
                    return Err(Refusal::NameTooLong.into());
                }
                if going.passed.targets.len() < usize::from(LINKS_MAX) {
                    going.passed.targets.push((at, target));
                }
                let lease = self.clients.lease_looked_at(&attr, self.slot, self.m);
                going.pass(attr, lease);
                continue;
            }
            let Some(part) = going.todo.pop() else {
                if going.must_be_dir && attr.kind != Kind::Dir {
                    return Err(Refusal::NotDir.into());
                }
                self.end_at(going, attr)?;
                return Ok(Carried::ToTheEnd);
            };
            if attr.kind != Kind::Dir {
                return Err(Refusal::NotDir.into());
            }
            self.step(going, attr, &part)?;
            if going.passed.absent.is_some() {
                return Ok(Carried::ToTheEnd);
            }
        }
    }

    /// Looks one component up in a directory.
    fn step(&mut self, going: &mut Going, dir: Attr, part: &[u8]) -> Result<(), Stop> {
        let at = dir.ino;
        if dir.is_parted()
            && let Some(other) = self.part_for(&dir, part)?
        {
            going.todo.push(part.to_vec());
            going.at = other;
            return Ok(());
        }
        if part == b"." || part == b".." {
            self.shards.ns.access(self.cred, at, access::EXEC)?;
            if part == b".." && !(going.ends_at_root && at == going.root) {
                going.at = dir.parent;
            }
            return Ok(());
        }
        let name = Name::new(part)?;
        if self.shards.ns.has_decouplings() {
            // The answer does not say whether there is such a name.
            match self.shards.leads_on(at)? {
                true => self.shards.may_look_up(at, &name)?,
                false => self.shards.meets(at, false)?,
            }
        }
        self.clients.see_names(at, going.looks_as(self.slot), self.m)?;
        let named = self.shards.ns.lookup(self.cred, at, &name)?;
        let lease = self.clients.lease_names_looked_at(&dir, self.slot, self.m);
        going.pass(dir, lease);
        match named {
            Some(next) => {
                going.name(at, &name, next);
                (going.at, going.below) = (next, Some(at));
            }
            None if going.todo.is_empty() => going.passed.absent = Some(name),
            None => return Err(Refusal::NotFound.into()),
        }
        Ok(())
    }

    /// The inode at which the next component of a path is looked up, if it is not this part of the directory.
    pub(crate) fn part_for(&self, dir: &Attr, part: &[u8]) -> Result<Option<Ino>, Stop> {
        let is_part = dir.flags & Attr::PART != 0;
        if part == b"." || part == b".." {
            return Ok(is_part.then_some(dir.parent));
        }
        let name = Name::new(part)?;
        let owner = match is_part {
            true if self.shards.ns.has_name_of(dir.ino, &name)? => Some(dir.ino),
            true => Some(dir.parent),
            false => part_of(&self.shards.ns.parts(dir.ino)?, name.hash64()),
        };
        Ok(owner.filter(|owner| *owner != dir.ino))
    }

    fn end_at(&mut self, going: &mut Going, attr: Attr) -> Result<(), Stop> {
        if !self.shards.leads_on(attr.ino)? {
            self.shards.meets(attr.ino, false)?;
        }
        let looks_as = going.looks_as(self.slot);
        self.clients.see_names(attr.ino, looks_as, self.m)?;
        if attr.kind != Kind::Dir && attr.nlink == 1 && self.shards.ns.owns(attr.parent) {
            // Its only name may be gone.
            self.clients.see_names(attr.parent, looks_as, self.m)?;
        }
        match self.attr_answer(attr)? {
            Answer::Attr { attr, lease, .. } => going.pass(attr, lease),
            _ => unreachable!("attributes are answered with attributes"),
        }
        Ok(())
    }
}

/// The parts between slashes, last one first.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
    if path.len() >= PATH_BYTES_MAX {
        return Err(Refusal::NameTooLong);
    }
    Ok(path.split(|b| *b == b'/').filter(|part| !part.is_empty()).rev().map(<[u8]>::to_vec).collect())
}
