//! Which names of its directory an inode has: a directory may have parts on other plates (`docs/decisions`, 2026-11-27).
//!
//! Invariant: an inode that does not own a name says [`Refusal::OtherPart`], never that there is no such name.

use chiton_model::{PartRange, decode_parts, home_range};
use chiton_types::{Ino, Name, Refusal};

use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::node::Share;

impl Namespace {
    /// All parts of a directory, its own inode among them; none of a directory that has all its names, or is a part.
    ///
    /// # Errors
    /// As [`Namespace::inode`]; `Io` if the list cannot be read.
    pub fn parts(&self, dir: Ino) -> Result<Vec<PartRange>, Fault> {
        let inode = self.inode(dir)?;
        match inode.node.share() {
            Share::All | Share::Part => Ok(Vec::new()),
            Share::Home => Ok(decode_parts(self.content(inode)?).map_err(|_| Refusal::Io)?),
        }
    }

    /// Whether a directory has parts or is one, as far as it is in memory.
    #[inline]
    pub fn is_parted(&self, dir: Ino) -> bool {
        self.inodes.get(dir).is_some_and(|inode| inode.node.share() != Share::All)
    }

    /// Whether a name, if there is one, is this part's.
    ///
    /// # Errors
    /// As [`Namespace::parts`].
    pub fn has_name_of(&self, dir: Ino, name: &Name) -> Result<bool, Fault> {
        match self.has_hash(self.inode(dir)?, name) {
            Err(Fault::Refused(Refusal::OtherPart)) => Ok(false),
            has => has.map(|()| true),
        }
    }

    /// The lowest and the highest hash of the names that an inode of a directory has.
    ///
    /// # Errors
    /// As [`Namespace::parts`].
    pub fn hash_range(&self, dir: Ino) -> Result<(u64, u64), Fault> {
        let inode = self.inode(dir)?;
        Ok(match inode.node.share() {
            Share::All => (0, u64::MAX),
            Share::Home => home_range(self.content(inode)?).map_err(|_| Refusal::Io)?,
            Share::Part => part_range(self.content(inode)?).ok_or(Refusal::Io)?,
        })
    }

    /// Refuses unless names with this hash are this inode's.
    pub(crate) fn has_hash(&self, dir: &Inode, name: &Name) -> Result<(), Fault> {
        let (first, last) = match dir.node.share() {
            Share::All => return Ok(()),
            Share::Home => home_range(self.content(dir)?).map_err(|_| Refusal::Io)?,
            Share::Part => part_range(self.content(dir)?).ok_or(Refusal::Io)?,
        };
        let is_own = (first..=last).contains(&name.hash64());
        if is_own { Ok(()) } else { Err(Refusal::OtherPart.into()) }
    }
}

/// The lowest and the highest hash in a part's content row.
pub(crate) fn part_range(content: &[u8]) -> Option<(u64, u64)> {
    let (first, last) = content.split_first_chunk::<8>()?;
    let last: &[u8; 8] = last.try_into().ok()?;
    Some((u64::from_le_bytes(*first), u64::from_le_bytes(*last)))
}
