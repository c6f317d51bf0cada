//! Copies one entry from one tree to another: type, content with its holes, target, owner, mode, times and extended
//! attributes, including access control lists.
//!
//! Invariants:
//! - An inode of the same type stays, with its number and its other names: its content and attributes are replaced. An inode of
//!   another type gives way.
//! - No symbolic link at the end of a path is followed.
//! - The entries of a directory and further names of a file are not copied.

use chiton_client::data::Whence;
use chiton_client::{Client, OpenFlags};
use chiton_model::{AttrChange, SetTime, XattrHow};
use chiton_types::{Attr, Ino, Kind, Mode, Refusal};

/// Bytes in one read.
const CALL_BYTES: usize = 1 << 20;

/// The two trees; paths begin at the root of each client.
pub(crate) struct Copying<'a> {
    pub(crate) from: &'a Client,
    pub(crate) to: &'a Client,
}

impl Copying<'_> {
    /// Creates or changes the file at a path, so that it is as `attr` describes it in the first tree.
    pub(crate) fn copy(&self, at: &[u8], attr: &Attr) -> Result<(), Refusal> {
        let there = match self.to.lstat(at) {
            Ok(there) if self.is_alike(&there, attr)? => Some(there.ino),
            Ok(_) => {
                self.to.remove(at)?;
                None
            }
            Err(Refusal::NotFound) => None,
            Err(refusal) => return Err(refusal),
        };
        let ino = match there {
            Some(ino) => ino,
            None => self.make(at, attr)?,
        };
        if attr.kind == Kind::File {
            self.content(attr.ino, ino)?;
        }
        self.attributes(attr, ino)
    }

    /// Whether changes of attributes and content can make one inode equal to the other.
    fn is_alike(&self, there: &Attr, attr: &Attr) -> Result<bool, Refusal> {
        Ok(match attr.kind {
            kind if kind != there.kind => false,
            Kind::Symlink => self.to.readlink(there.ino)? == self.from.readlink(attr.ino)?,
            Kind::Char | Kind::Block => there.rdev == attr.rdev,
            _ => true,
        })
    }

    fn make(&self, at: &[u8], attr: &Attr) -> Result<Ino, Refusal> {
        let caller = self.to.caller();
        let cut = at.iter().rposition(|b| *b == b'/').ok_or(Refusal::Invalid)?;
        let (dir, name) = (if cut == 0 { &b"/"[..] } else { &at[..cut] }, &at[cut + 1..]);
        let parent = self.to.stat(dir)?.ino;
        let entry = match attr.kind {
            Kind::File => {
                let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
                let (entry, fh) = self.to.create(&caller, parent, name, Mode(0o600), flags)?;
                self.to.release(fh)?;
                entry
            }
            Kind::Dir => self.to.mkdir(&caller, parent, name, Mode(0o700))?,
            Kind::Symlink => self.to.symlink(&caller, parent, name, &self.from.readlink(attr.ino)?)?,
            kind => self.to.mknod(&caller, parent, name, kind, Mode(0o600), attr.rdev)?,
        };
        Ok(entry.attr.ino)
    }

    fn content(&self, from: Ino, to: Ino) -> Result<(), Refusal> {
        let source = self.from.open(&self.from.caller(), from, OpenFlags::READ)?;
        let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
        let copied = self.to.open(&self.to.caller(), to, flags).and_then(|target| {
            let copied = self.data((source, from), (target, to));
            self.to.release(target).and(copied)
        });
        self.from.release(source).and(copied)
    }

    /// Copies data between handles, and leaves out holes.
    fn data(&self, (source, from): (u64, Ino), (target, to): (u64, Ino)) -> Result<(), Refusal> {
        let caller = self.to.caller();
        let mut offset = 0;
        loop {
            offset = match self.from.seek(source, offset, Whence::Data) {
                Ok(data) => data.max(offset),
                Err(Refusal::NoData) => break,
                Err(refusal) => return Err(refusal),
            };
            let hole = self.from.seek(source, offset, Whence::Hole)?;
            let len = hole.saturating_sub(offset).min(CALL_BYTES as u64) as usize;
            let bytes = self.from.read(source, offset, len)?;
            if bytes.is_empty() {
                break;
            }
            self.to.write(&caller, target, offset, &bytes)?;
            offset += bytes.len() as u64;
        }
        let size = self.from.getattr(from, Some(source))?.attr.size;
        if size > offset {
            self.to.setattr(
                &caller,
                to,
                AttrChange { size: Some(size), ..AttrChange::default() },
                Some(target),
            )?;
        }
        self.to.flush(target)
    }

    /// Owner, extended attributes, mode and times, in this order: a change of the owner takes bits of the mode, and a list
    /// changes them.
    pub(crate) fn attributes(&self, attr: &Attr, ino: Ino) -> Result<(), Refusal> {
        let caller = self.to.caller();
        let there = self.to.getattr(ino, None)?.attr;
        if (there.uid, there.gid) != (attr.uid, attr.gid) {
            let owner = AttrChange { uid: Some(attr.uid), gid: Some(attr.gid), ..AttrChange::default() };
            self.to.setattr(&caller, ino, owner, None)?;
        }
        let (have, want) = (xattr_names(self.to, ino)?, xattr_names(self.from, attr.ino)?);
        for name in have.iter().filter(|name| !want.contains(name)) {
            self.to.removexattr(&caller, ino, name)?;
        }
        for name in &want {
            let value = self.from.getxattr(&self.from.caller(), attr.ino, name)?;
            if !have.contains(name) || self.to.getxattr(&caller, ino, name)? != value {
                self.to.setxattr(&caller, ino, name, &value, XattrHow::Set)?;
            }
        }
        let rest = AttrChange {
            mode: (attr.kind != Kind::Symlink).then_some(attr.mode),
            atime: Some(SetTime::At(attr.atime)),
            mtime: Some(SetTime::At(attr.mtime)),
            ..AttrChange::default()
        };
        self.to.setattr(&caller, ino, rest, None).map(drop)
    }
}

/// Names of the extended attributes that an inode has.
pub(crate) fn xattr_names(client: &Client, ino: Ino) -> Result<Vec<Vec<u8>>, Refusal> {
    let list = client.listxattr(&client.caller(), ino)?;
    Ok(list.split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}
