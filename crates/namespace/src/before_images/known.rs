//! A file as a decoupled client knows it, where others changed it meanwhile. A merge restores it
//! before it applies the client's own changes, so that no content mixes the bytes of two sides.

use std::collections::BTreeMap;

use chiton_model::CHUNK_BYTES;
use chiton_model::{OldContent, Reverted};
use chiton_types::codec::Take;
use chiton_types::{Attr, Kind, RealmId};

use crate::chunk::Chunk;
use crate::fault::Fault;
use crate::inode::{INLINE, Inode, MAPPED};
use crate::namespace::Namespace;
use crate::row;
use crate::values::Xattrs;

/// A file as a decoupled client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownFile {
    /// No images are kept for it (nothing is merged, or others made the file): so it is not known.
    Unknown,
    /// As it is now: others changed at most its names.
    AsItIs,
    /// It was so, and others changed it.
    Was(Box<Reverted>),
}

impl Namespace {
    /// How the decoupling that is merged knows a file.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn file_as_known(&self, inode: &Inode) -> Result<KnownFile, Fault> {
        match self.merging {
            Some(id) => self.file_as_known_by(inode, id),
            None => Ok(KnownFile::Unknown),
        }
    }

    pub(crate) fn file_as_known_by(&self, inode: &Inode, id: RealmId) -> Result<KnownFile, Fault> {
        if inode.kind() != Kind::File {
            return Ok(KnownFile::Unknown);
        }
        let image = self.dirty.before_images.get(id.0, &row::inode_key(inode.ino)).flatten();
        let Some(Ok(was)) = image.map(|image| Inode::decode(inode.ino, image)) else {
            return Ok(KnownFile::Unknown);
        };
        let content = self.content_as_known(inode, &was, id)?;
        let xattrs = self.dirty.before_images.get(id.0, &row::xattrs_key(inode.ino));
        let xattrs = xattrs.map(|image| {
            let decoded = image.and_then(|image| Xattrs::decode(image).ok());
            decoded.unwrap_or_default().0
        });
        let now = self.xattrs_of(inode)?.map(|xattrs| &xattrs.0);
        let xattrs = xattrs.filter(|was| now.unwrap_or(&BTreeMap::new()) != was);
        let attributes =
            |inode: &Inode| (inode.mode, inode.attr_flags(), inode.uid, inode.gid, inode.size(), inode.mtime);
        if content == OldContent::Same && xattrs.is_none() && attributes(inode) == attributes(&was) {
            return Ok(KnownFile::AsItIs);
        }
        Ok(KnownFile::Was(Box::new(Reverted {
            mode: was.mode,
            flags: was.attr_flags() & Attr::SETTABLE,
            uid: was.uid,
            gid: was.gid,
            size: was.size(),
            atime: was.atime,
            mtime: was.mtime,
            ctime: was.ctime,
            xattrs,
            content,
            temporary: false,
        })))
    }

    fn content_as_known(&self, inode: &Inode, was: &Inode, id: RealmId) -> Result<OldContent, Fault> {
        let images = &self.dirty.before_images;
        if was.has(MAPPED) {
            let prefix = row::chunks_prefix(inode.ino);
            let mut chunks = Vec::new();
            for (key, image) in images.of(id.0, &prefix) {
                let number = key.get(9..13).and_then(|n| n.try_into().ok()).map_or(0, u32::from_be_bytes);
                let chunk = image.and_then(|image| Chunk::decode(&mut Take::new(image)).ok());
                chunks.push((number, chunk.map_or(Vec::new(), |chunk| chunk.extents().to_vec())));
            }
            let is_same = chunks.is_empty() && inode.has(MAPPED);
            return Ok(if is_same { OldContent::Same } else { OldContent::Chunks(chunks) });
        }
        let bytes = match images.get(id.0, &row::content_key(inode.ino)) {
            Some(image) => image.unwrap_or_default().to_vec(),
            None if was.has(INLINE) => self.content(inode)?.to_vec(),
            None => Vec::new(),
        };
        let is_same = !inode.has(MAPPED) && inode.size() == was.size() && self.content(inode)? == bytes;
        Ok(if is_same { OldContent::Same } else { OldContent::Inline(bytes) })
    }

    /// The inverse of a change of a file's content: the chunks, or the inline content, that `to` replaces.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn content_as_it_is(&self, inode: &Inode, to: &Reverted) -> Result<Reverted, Fault> {
        let content = match &to.content {
            OldContent::Same => OldContent::Same,
            _ if !inode.has(MAPPED) => OldContent::Inline(self.content(inode)?.to_vec()),
            OldContent::Inline(_) => OldContent::Chunks(
                self.chunks_in(inode.ino, 0, u64::MAX).map(|(n, c)| (n, c.extents().to_vec())).collect(),
            ),
            OldContent::Chunks(chunks) => {
                let now = |number: u32| {
                    let start = u64::from(number) * CHUNK_BYTES;
                    let found = self.chunks_in(inode.ino, start, start + CHUNK_BYTES).next();
                    found.map_or(Vec::new(), |(_, chunk)| chunk.extents().to_vec())
                };
                OldContent::Chunks(chunks.iter().map(|(number, _)| (*number, now(*number))).collect())
            }
        };
        Ok(Reverted {
            mode: inode.mode,
            flags: inode.attr_flags() & Attr::SETTABLE,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size(),
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            xattrs: None,
            content,
            temporary: true,
        })
    }
}
