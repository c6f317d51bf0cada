//! Calls by path, for programs. The user is the client's ([`crate::ClientOptions::user`]); every path starts at
//! the root ([`crate::ClientOptions::root`]), with or without a `/`. Symbolic links are followed, at most 40; absolute
//! targets begin at the root of this file system.
//!
//! A path that is not cached is resolved by the servers in one message, however deep it is (`resolve.rs`).

use chiton_model::{AttrChange, INLINE_BYTES_MAX, Make, Op, RenameHow};
use chiton_types::{Attr, Ino, Kind, Mode, Refusal};

use crate::OpenFlags;
use crate::batch::{Each, NewFile};
use crate::client::{Client, Listed};
use crate::resolve::LINKS_MAX;
use crate::service::Caller;

/// Entries asked for at once.
const PAGE: u32 = 1_000;
/// Bytes read or written at once.
const CALL_BYTES: usize = 4 << 20;

impl Client {
    // ---- resolving ----------------------------------------------------------------------------------

    /// Attributes of the inode that a path leads to.
    ///
    /// # Errors
    /// As stat(2).
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attr, Refusal> {
        self.resolve(path.as_ref(), true)
    }

    /// Attributes of the inode that a path names; of a symbolic link, its own.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Attr, Refusal> {
        self.resolve(path.as_ref(), false)
    }

    /// The directory that holds the last component of a path, and that component.
    fn parent_of<'a>(&self, path: &'a [u8]) -> Result<(Ino, &'a [u8]), Refusal> {
        if path.is_empty() {
            return Err(Refusal::NotFound);
        }
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
        let path = &path[..end];
        let start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (dir, name) = path.split_at(start);
        if dir.iter().all(|&b| b == b'/') {
            return Ok((self.root, name));
        }
        Ok((self.resolve_dir(dir)?, name))
    }

    // ---- files --------------------------------------------------------------------------------------

    /// Makes a new file with its content: if it is small, by one operation, and nobody sees it without.
    /// Permissions 0644.
    ///
    /// # Errors
    /// [`Refusal::Exists`], as open(2), as write(2).
    pub fn create_file(&self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<Attr, Refusal> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        let caller = self.caller();
        if content.len() <= INLINE_BYTES_MAX {
            let make = Make::File { content: content.to_vec() };
            let op = Op::Make { parent, name: crate::names::new_name(name)?, make, mode: Mode(0o644) };
            return self.operate(&caller, op, false)?.0.attr.ok_or(Refusal::Io);
        }
        self.create_with(&caller, &NewFile { parent, name, mode: Mode(0o644), content })
    }

    /// Makes a file, and writes its content through a handle.
    pub(crate) fn create_with(&self, caller: &Caller<'_>, file: &NewFile<'_>) -> Result<Attr, Refusal> {
        let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
        let (entry, fh) = self.create(caller, file.parent, file.name, file.mode, flags)?;
        self.write_all(fh, file.content)?;
        self.getattr(entry.attr.ino, None).map(|entry| entry.attr)
    }

    /// All content of a file.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read_file(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Refusal> {
        let fh = self.open_path(path, OpenFlags::READ)?;
        let read = || {
            let mut content = Vec::new();
            loop {
                let more = self.read(fh, content.len() as u64, CALL_BYTES)?;
                if more.is_empty() {
                    return Ok(content);
                }
                content.extend_from_slice(&more);
            }
        };
        let content = read();
        self.release(fh)?;
        content
    }

    /// Makes a file or empties it, and writes the content.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write_file(&self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<(), Refusal> {
        let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
        let fh = self.open_or_create(path.as_ref(), Mode(0o644), flags)?;
        self.write_all(fh, content)
    }

    /// Writes everything and ends the handle.
    fn write_all(&self, fh: u64, content: &[u8]) -> Result<(), Refusal> {
        let write = || {
            let mut offset = 0u64;
            for part in content.chunks(CALL_BYTES) {
                self.write(&self.caller(), fh, offset, part)?;
                offset += part.len() as u64;
            }
            self.flush(fh)
        };
        let written = write();
        self.release(fh).and(written)
    }

    /// Opens a file that is there; the handle is for [`Client::read`], [`Client::write`] … [`Client::release`].
    ///
    /// # Errors
    /// As open(2).
    pub fn open_path(&self, path: impl AsRef<[u8]>, flags: OpenFlags) -> Result<u64, Refusal> {
        let attr = self.stat(path)?;
        match attr.kind {
            Kind::File => self.open(&self.caller(), attr.ino, flags),
            Kind::Dir => Err(Refusal::IsDir),
            _ => Err(Refusal::Invalid),
        }
    }

    /// open(2) with O_CREAT: a link at the end is followed, also to a name that is not there yet.
    fn open_or_create(&self, path: &[u8], mode: Mode, flags: OpenFlags) -> Result<u64, Refusal> {
        let mut path = path.to_vec();
        for _ in 0..LINKS_MAX {
            let (parent, name) = self.parent_of(&path)?;
            let refusal = match self.create(&self.caller(), parent, name, mode, flags) {
                Ok((_, fh)) => return Ok(fh),
                Err(refusal) => refusal,
            };
            if refusal != Refusal::Loop || flags.exclusive {
                return Err(refusal);
            }
            let target = self.readlink(self.lstat(&path)?.ino)?;
            path = match target.first() {
                Some(b'/') => target,
                _ => {
                    let mut joined = path[..path.len() - name_len(&path)].to_vec();
                    joined.extend_from_slice(&target);
                    joined
                }
            };
        }
        Err(Refusal::Loop)
    }

    // ---- directories --------------------------------------------------------------------------------

    /// All entries of a directory, with attributes.
    ///
    /// # Errors
    /// As opendir(3).
    pub fn list(&self, path: impl AsRef<[u8]>) -> Result<Vec<Listed>, Refusal> {
        let dir = self.resolve_dir(path.as_ref())?;
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let (page, end) = self.readdir(&self.caller(), dir, cookie, PAGE, true)?;
            cookie = page.last().map_or(cookie, |last| last.cookie);
            let stuck = page.is_empty();
            entries.extend(page);
            if end || stuck {
                return Ok(entries);
            }
        }
    }

    /// Makes a directory and all that lead to it, as far as they are missing. Permissions 0755.
    ///
    /// # Errors
    /// As mkdir(2); [`Refusal::NotDir`] if something else is in the way.
    pub fn mkdir_all(&self, path: impl AsRef<[u8]>) -> Result<Attr, Refusal> {
        let path = path.as_ref();
        match self.resolve(path, true) {
            Ok(attr) if attr.kind == Kind::Dir => return Ok(attr),
            Ok(_) => return Err(Refusal::NotDir),
            Err(Refusal::NotFound) => {}
            Err(refusal) => return Err(refusal),
        }
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
        let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (dir, name) = path[..end].split_at(start);
        let parent = match dir.iter().all(|&b| b == b'/') {
            true => self.root,
            false => self.mkdir_all(dir)?.ino,
        };
        match self.mkdir(&self.caller(), parent, name, Mode(0o755)) {
            Ok(entry) => Ok(entry.attr),
            // Another client was faster.
            Err(Refusal::Exists) => self.resolve(path, true),
            Err(refusal) => Err(refusal),
        }
    }

    /// Removes a file, a symbolic link or an empty directory.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2).
    pub fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Refusal> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        match self.unlink(&self.caller(), parent, name) {
            Err(Refusal::IsDir) => self.rmdir(&self.caller(), parent, name),
            result => result,
        }
    }

    /// Moves what a path names; replaces what has the new name.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename_path(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), Refusal> {
        let (from, from_name) = self.parent_of(from.as_ref())?;
        let (to, to_name) = self.parent_of(to.as_ref())?;
        self.rename(&self.caller(), from, from_name, to, to_name, RenameHow::Replace)
    }

    /// Changes attributes by path.
    ///
    /// # Errors
    /// As [`Client::setattr`].
    pub fn set_attr_path(&self, path: impl AsRef<[u8]>, change: AttrChange) -> Result<Attr, Refusal> {
        let ino = self.stat(path)?.ino;
        self.setattr(&self.caller(), ino, change, None).map(|entry| entry.attr)
    }

    // ---- batches ------------------------------------------------------------------------------------

    /// Makes an empty file for each name, in one directory. Permissions 0644.
    ///
    /// # Errors
    /// If the directory cannot be found; else the results are each name's.
    pub fn create_many(
        &self,
        dir: impl AsRef<[u8]>,
        names: &[impl AsRef<[u8]>],
    ) -> Result<Each<Attr>, Refusal> {
        Ok(self.create_in(&self.caller(), self.resolve_dir(dir.as_ref())?, names, Mode(0o644)))
    }

    /// Attributes of each name in one directory.
    ///
    /// # Errors
    /// As [`Client::create_many`].
    pub fn stat_many(
        &self,
        dir: impl AsRef<[u8]>,
        names: &[impl AsRef<[u8]>],
    ) -> Result<Each<Attr>, Refusal> {
        Ok(self.stat_in(&self.caller(), self.resolve_dir(dir.as_ref())?, names))
    }

    /// Removes each name (not a directory's) in one directory.
    ///
    /// # Errors
    /// As [`Client::create_many`].
    pub fn unlink_many(
        &self,
        dir: impl AsRef<[u8]>,
        names: &[impl AsRef<[u8]>],
    ) -> Result<Each<()>, Refusal> {
        Ok(self.unlink_in(&self.caller(), self.resolve_dir(dir.as_ref())?, names))
    }
}

/// Length of the last component, with the slashes behind it.
fn name_len(path: &[u8]) -> usize {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    path.len() - path[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1)
}
