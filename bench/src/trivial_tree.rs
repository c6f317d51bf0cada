//! The table of inodes behind the trivial file system.
//!
//! Invariants:
//! - An inode lives while it has a name or an open descriptor; numbers are never used twice.
//! - A refused call has changed nothing.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chiton_runtime::{RealWorld, World};
use fuser::{Errno, FileAttr, FileType, INodeNo, RenameFlags};
use hashbrown::HashMap;
use parking_lot::RwLock;

const BLOCK_BYTES: u64 = 512;

pub(crate) type Content = Arc<RwLock<Vec<u8>>>;
pub(crate) type Listing = Arc<Vec<(OsString, FileAttr)>>;

/// The content of an inode.
pub(crate) enum Body {
    File(Option<Content>),
    Directory(HashMap<Box<OsStr>, u64>),
    Symlink(Box<[u8]>),
}

/// A file, directory or symbolic link.
pub(crate) struct Inode {
    pub(crate) attr: FileAttr,
    pub(crate) opens: u32,
    pub(crate) body: Body,
}

impl Inode {
    pub(crate) fn entries(&mut self) -> Result<&mut HashMap<Box<OsStr>, u64>, Errno> {
        match &mut self.body {
            Body::Directory(entries) => Ok(entries),
            Body::File(_) | Body::Symlink(_) => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn content(&mut self) -> Result<Content, Errno> {
        match &mut self.body {
            Body::File(content) => Ok(content.get_or_insert_default().clone()),
            Body::Directory(_) => Err(Errno::EISDIR),
            Body::Symlink(_) => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn resized(&mut self, bytes: u64) {
        self.attr.size = bytes;
        self.attr.blocks = bytes.div_ceil(BLOCK_BYTES);
        let at = now();
        (self.attr.mtime, self.attr.ctime) = (at, at);
    }
}

pub(crate) struct Tree {
    inodes: HashMap<u64, Inode>,
    next: u64,
}

impl Tree {
    pub(crate) fn with_root(attr: FileAttr) -> Tree {
        let root = Inode { attr, opens: 0, body: Body::Directory(HashMap::new()) };
        Tree { inodes: HashMap::from_iter([(attr.ino.0, root)]), next: attr.ino.0 + 1 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// One descriptor less; the last one of an inode without a name ends it.
    pub(crate) fn closed(&mut self, ino: INodeNo) {
        let Some(inode) = self.inodes.get_mut(&ino.0) else { return };
        inode.opens = inode.opens.saturating_sub(1);
        if inode.opens == 0 && inode.attr.nlink == 0 {
            self.inodes.remove(&ino.0);
        }
    }

    pub(crate) fn inode(&mut self, ino: INodeNo) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino.0).ok_or(Errno::ENOENT)
    }

    pub(crate) fn child(&mut self, parent: INodeNo, name: &OsStr) -> Result<INodeNo, Errno> {
        self.inode(parent)?.entries()?.get(name).map(|&ino| INodeNo(ino)).ok_or(Errno::ENOENT)
    }

    fn touch(&mut self, directory: INodeNo, nlink_change: i32) -> Result<(), Errno> {
        let attr = &mut self.inode(directory)?.attr;
        let at = now();
        (attr.mtime, attr.ctime) = (at, at);
        attr.nlink = attr.nlink.saturating_add_signed(nlink_change);
        Ok(())
    }

    pub(crate) fn add(
        &mut self,
        parent: INodeNo,
        name: &OsStr,
        attr: FileAttr,
        body: Body,
    ) -> Result<&mut Inode, Errno> {
        let (ino, is_directory) = (self.next, attr.kind == FileType::Directory);
        let entries = self.inode(parent)?.entries()?;
        if entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        entries.insert(name.into(), ino);
        self.touch(parent, i32::from(is_directory))?;
        self.next += 1;
        let attr = FileAttr { ino: INodeNo(ino), ..attr };
        Ok(self.inodes.entry(ino).insert(Inode { attr, opens: 0, body }).into_mut())
    }

    /// Drops one name of an inode. The inode is freed when it has no name and is not open.
    fn unlinked(&mut self, ino: INodeNo) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        let is_directory = inode.attr.kind == FileType::Directory;
        inode.attr.nlink = if is_directory { 0 } else { inode.attr.nlink - 1 };
        inode.attr.ctime = now();
        if inode.attr.nlink == 0 && inode.opens == 0 {
            self.inodes.remove(&ino.0);
        }
        Ok(())
    }

    pub(crate) fn remove(
        &mut self,
        parent: INodeNo,
        name: &OsStr,
        want_directory: bool,
    ) -> Result<(), Errno> {
        let ino = self.child(parent, name)?;
        match (&self.inode(ino)?.body, want_directory) {
            (Body::Directory(entries), true) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
            (Body::Directory(_), false) => return Err(Errno::EISDIR),
            (Body::File(_) | Body::Symlink(_), true) => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.inode(parent)?.entries()?.remove(name);
        self.touch(parent, -i32::from(want_directory))?;
        self.unlinked(ino)
    }

    pub(crate) fn rename(
        &mut self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return Err(Errno::EINVAL);
        }
        let ino = self.child(from.0, from.1)?;
        let is_directory = self.inode(ino)?.attr.kind == FileType::Directory;
        match self.child(to.0, to.1) {
            Ok(_) if flags.contains(RenameFlags::RENAME_NOREPLACE) => return Err(Errno::EEXIST),
            Ok(replaced) if replaced == ino => return Ok(()),
            Ok(_) => self.remove(to.0, to.1, is_directory)?,
            Err(Errno::ENOENT) => {}
            Err(other) => return Err(other),
        }
        self.inode(to.0)?.entries()?.insert(to.1.into(), ino.0);
        self.inode(from.0)?.entries()?.remove(from.1);
        self.touch(to.0, i32::from(is_directory))?;
        self.touch(from.0, -i32::from(is_directory))?;
        self.inode(ino)?.attr.ctime = now();
        Ok(())
    }

    pub(crate) fn listing(&mut self, directory: INodeNo) -> Result<Listing, Errno> {
        let inode = self.inode(directory)?;
        let own = inode.attr;
        let names: Vec<(OsString, u64)> =
            inode.entries()?.iter().map(|(n, &i)| (n.to_os_string(), i)).collect();
        let mut rows = vec![(".".into(), own), ("..".into(), own)];
        for (name, ino) in names {
            rows.push((name, self.inode(INodeNo(ino))?.attr));
        }
        Ok(Arc::new(rows))
    }
}

pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(RealWorld.now().0).unwrap_or(0))
}

pub(crate) fn fresh(kind: FileType, perm: u32) -> FileAttr {
    let at = now();
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: at,
        mtime: at,
        ctime: at,
        crtime: at,
        kind,
        perm: (perm & 0o7777) as u16,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
