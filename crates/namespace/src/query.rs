//! Questions that change nothing.

use chiton_model::CHUNK_BYTES;
use chiton_model::FILE_BYTES_MAX;
use chiton_types::{Cred, Ino, Kind, Name, Position, Refusal};

use crate::dir::Dir;
use crate::fault::{Fault, Need};
use crate::inode::{COMPLETE, INLINE, Inode, MAPPED, XATTRS};
use crate::namespace::{Known, Listing, Mapped, Namespace};
use crate::permission::{self, ACL_ACCESS};
use crate::values::{ChunkKey, ContentKey, Xattrs, XattrsKey};

/// Names that a listing of a directory fetches at a time, however few the caller has room for: the next pages need the others.
pub(crate) const SLICE_ROWS: u32 = 4096;

impl Namespace {
    /// The inode that bears a name; `None` if there is none. Asks search permission.
    pub fn lookup(&self, cred: &Cred, parent: Ino, name: &Name) -> Result<Option<Ino>, Fault> {
        let dir = self.dir_inode(parent)?;
        permission::may_search(self, cred, &dir.facts())?;
        Ok(match self.entry(dir, name)? {
            Known::Present(slot) => Some(slot.ino),
            Known::Absent => None,
        })
    }

    /// Permission check of the bits `want`.
    pub fn access(&self, cred: &Cred, ino: Ino, want: u8) -> Result<(), Fault> {
        permission::may(self, cred, &self.inode(ino)?.facts(), want)
    }

    /// How many names are in a directory; 0 of anything else.
    pub fn entries_of(&self, ino: Ino) -> Result<u64, Fault> {
        Ok(self.inode(ino)?.entries())
    }

    /// A page of a directory: entries with a cookie above `after`, about `entries_max` of them. Entries with the
    /// same cookie are never parted. Permission was checked at open. A directory in which an entry cannot be read has
    /// no end: behind its last entry stands a refusal.
    pub fn readdir(&self, dir: Ino, after: u64, entries_max: usize) -> Result<Listing, Fault> {
        let inode = self.dir_inode(dir)?;
        let held = self.dirs.get(&dir);
        let mut listing = Listing { entries: Vec::new(), end: true };
        // Cookies come from callers; no name has one of 64 bits.
        if after >= 1 << 63 {
            return Ok(listing);
        }
        let until = if inode.has(COMPLETE) {
            u64::MAX
        } else if inode.entries() <= crate::namespace::DIR_WHOLE_ENTRIES_MAX {
            return Err(self.need_dir(dir));
        } else {
            match held.and_then(|d| d.known.until(after)) {
                Some(to) => to,
                None => {
                    return Err(Need::Slice { dir, after, rows: SLICE_ROWS }.into());
                }
            }
        };
        let torn = self.torn_dirs.contains(&dir);
        let none = Dir::default();
        for (name, slot) in held.unwrap_or(&none).iter_after(after) {
            if slot.hash > until {
                break;
            }
            let Some(kind) = slot.kind() else { continue };
            if listing.entries.len() >= entries_max.max(1)
                && listing.entries.last().is_some_and(|e| e.3 != slot.hash)
            {
                listing.end = false;
                return Ok(listing);
            }
            let name = Name::new(name).expect("names in memory were checked");
            listing.entries.push((name, slot.ino, kind, slot.hash));
        }
        listing.end = until == u64::MAX;
        if listing.end && torn {
            // The caller gets all names that can be read, and then an error for the rest.
            if listing.entries.is_empty() {
                return Err(Refusal::Io.into());
            }
            listing.end = false;
        } else if listing.entries.is_empty() && !listing.end {
            // Everything in the known range is deleted: continue behind it.
            return Err(Need::Slice { dir, after: until, rows: SLICE_ROWS }.into());
        }
        Ok(listing)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Fault> {
        let inode = self.inode(ino)?;
        if inode.kind() != Kind::Symlink {
            return Err(Refusal::Invalid.into());
        }
        Ok(self.content(inode)?.to_vec())
    }

    /// Inline content; empty if there is none.
    ///
    /// # Errors
    /// [`Fault::Missing`]; `Io` if its row cannot be read.
    pub fn content(&self, inode: &Inode) -> Result<&[u8], Fault> {
        if !inode.has(INLINE) {
            return Ok(&[]);
        }
        match self.contents.get(ContentKey(inode.ino)) {
            Some(content) => Ok(content.map_or(&[], |c| c)),
            None => Err(Need::Content(inode.ino).into()),
        }
    }

    /// The position at which a name got the inode that it bears; `None` if it bears none.
    ///
    /// # Errors
    /// As [`Namespace::named`].
    pub fn name_changed(&self, dir: Ino, name: &Name) -> Result<Option<Position>, Fault> {
        Ok(match self.entry(self.dir_inode(dir)?, name)? {
            Known::Present(slot) => Some(slot.position),
            Known::Absent => None,
        })
    }

    /// The names that an inode has in a directory, and the position at which it got each. Looks through all entries.
    ///
    /// # Errors
    /// [`Fault::Missing`] unless all entries of the directory are in memory; as [`Namespace::dir_inode`].
    pub fn names_in(&self, dir: Ino, ino: Ino) -> Result<Vec<(Name, Position)>, Fault> {
        let inode = self.dir_inode(dir)?;
        if !inode.has(COMPLETE) {
            return Err(self.need_dir(dir));
        }
        let slots = self.dirs.get(&dir).into_iter().flat_map(|d| d.iter_after(0));
        let found = slots.into_iter().filter(|(_, slot)| slot.ino == ino && slot.kind().is_some());
        let named = |name: &[u8]| Name::new(name).expect("names in memory were checked");
        Ok(found.map(|(name, slot)| (named(name), slot.position)).collect())
    }

    /// All extended attributes of an inode; `None` if it has none.
    ///
    /// # Errors
    /// [`Fault::Missing`]; `Io` if their row cannot be read.
    pub fn xattrs_of(&self, inode: &Inode) -> Result<Option<&Xattrs>, Fault> {
        if !inode.has(XATTRS) {
            return Ok(None);
        }
        self.xattrs.get(XattrsKey(inode.ino)).ok_or(Need::Xattrs(inode.ino).into())
    }

    /// Value of an extended attribute.
    pub fn xattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Fault> {
        let inode = self.inode(ino)?;
        permission::may_read_xattr(self, cred, &inode.facts(), name)?;
        if name == ACL_ACCESS {
            let list = permission::access_list(self, &inode.facts())?;
            return list.map(|list| list.with_mode(inode.mode).encode()).ok_or(Refusal::NoXattr.into());
        }
        let value = self.xattrs_of(inode)?.and_then(|x| x.0.get(name));
        value.cloned().ok_or(Refusal::NoXattr.into())
    }

    /// Names of extended attributes, each ended by NUL (`trusted.` only for administrators).
    pub fn xattr_names(&self, cred: &Cred, ino: Ino) -> Result<Vec<u8>, Fault> {
        let inode = self.inode(ino)?;
        let mut out = Vec::new();
        for name in self.xattrs_of(inode)?.into_iter().flat_map(|x| x.0.keys()) {
            if permission::may_list_xattr(cred, name)? {
                out.extend_from_slice(name);
                out.push(0);
            }
        }
        Ok(out)
    }

    /// Content, or mapping of the chunks that cover a range. Permission was checked at open.
    pub fn map(&self, ino: Ino, offset: u64, len: u64) -> Result<Mapped, Fault> {
        let inode = self.inode(ino)?;
        match inode.kind() {
            Kind::File => {}
            Kind::Dir => return Err(Refusal::IsDir.into()),
            _ => return Err(Refusal::Invalid.into()),
        }
        if !inode.has(MAPPED) {
            return Ok(Mapped::Inline(self.content(inode)?.to_vec()));
        }
        if offset > FILE_BYTES_MAX {
            return Err(Refusal::TooBig.into());
        }
        let end = inode.size().max(offset + 1);
        let last = offset.saturating_add(len.max(1)).min(end) - 1;
        let (from, to) = (offset / CHUNK_BYTES, last / CHUNK_BYTES);
        u32::try_from(from).map_err(|_| Refusal::TooBig)?;
        let mut extents = Vec::new();
        if inode.has(COMPLETE) {
            let mut left = CHUNKS_PER_MAP;
            for (n, chunk) in self.chunks_in(ino, from * CHUNK_BYTES, end) {
                // The hole before this chunk is known as far as it goes.
                if u64::from(n) > to || left == 0 {
                    return Ok(Mapped::Extents(from * CHUNK_BYTES, u64::from(n) * CHUNK_BYTES, extents));
                }
                extents.extend_from_slice(chunk.extents());
                left -= 1;
            }
            return Ok(Mapped::Extents(from * CHUNK_BYTES, end.div_ceil(CHUNK_BYTES) * CHUNK_BYTES, extents));
        }
        if to - from >= CHUNKS_PER_MAP && inode.node.bytes() <= WHOLE_MAP_BYTES_MAX {
            return Err(Need::Chunks(ino).into());
        }
        let to = to.min(from + CHUNKS_PER_MAP - 1);
        let mut missing = Vec::new();
        for n in from..=to {
            let n = u32::try_from(n).map_err(|_| Refusal::TooBig)?;
            match self.chunks.get(ChunkKey(ino, n)) {
                Some(Some(chunk)) => extents.extend_from_slice(chunk.extents()),
                Some(None) => {}
                None => missing.push(Need::Chunk(ino, n)),
            }
        }
        if !missing.is_empty() {
            return Err(Fault::Missing(missing));
        }
        Ok(Mapped::Extents(from * CHUNK_BYTES, (to + 1) * CHUNK_BYTES, extents))
    }
}

/// Most chunks with extents that one answer covers.
const CHUNKS_PER_MAP: u64 = 64;
/// The whole map of a file is fetched for a question about more chunks than that if the file has no more bytes than these in blocks:
/// it shows how far a hole goes. The map of a larger file takes too much memory, and is fetched chunk by chunk.
const WHOLE_MAP_BYTES_MAX: u64 = 1 << 40;
