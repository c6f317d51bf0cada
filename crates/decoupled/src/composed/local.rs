//! The tree in an ordinary directory of this machine: names, content, modes, owners, times, links, extended attributes.
//!
//! Invariants:
//! - The target must be absent or an empty directory. Other users cannot enter it before it is complete.
//! - Attributes that an unprivileged user, or the local file system, cannot set (owners, device nodes, extended attributes) is left out,
//!   and counted.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chiton_client::OpenFlags;
use chiton_client::data::Whence;
use chiton_namespace::permission::ACL_ACCESS;
use chiton_types::{Attr, Ino, Kind, Refusal, Time};
use hashbrown::HashMap;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use serde::Serialize;

use super::{Composed, Node, Step};
use crate::copied::xattr_names;
use crate::error::RealmError;
use crate::quoted::quoted;

/// Bytes in one read.
const CALL_BYTES: usize = 1 << 20;
/// Mode of a directory that is not complete yet: other users have no access.
const UNFINISHED: u32 = 0o700;
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
const GROUP: u32 = 0o070;

/// Counts of a written tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Files, directories and other inodes, the top not counted.
    pub inodes: u64,
    /// Bytes of content, holes not counted.
    pub bytes: u64,
    /// Things that this user, or the file system there, cannot set: owners, device nodes, extended attributes.
    pub left_out: u64,
}

struct Writing<'a> {
    composed: &'a Composed,
    to: &'a Path,
    /// First names of files with several.
    linked: HashMap<Ino, PathBuf>,
    done: Written,
    /// Called regularly during the work.
    meanwhile: &'a mut dyn FnMut() -> Result<(), RealmError>,
    is_root: bool,
}

impl Composed {
    /// Writes all below the directory `top` into the directory `to`. `meanwhile` is called after each piece of content and each
    /// entry.
    ///
    /// # Errors
    /// `to` exists and is not empty; a file cannot be read or written; or the error of `meanwhile`. The part that
    /// was written stays.
    pub fn write_to(
        &self,
        top: &[u8],
        to: &Path,
        meanwhile: &mut dyn FnMut() -> Result<(), RealmError>,
    ) -> Result<Written, RealmError> {
        begin(to)?;
        let is_root = rustix::process::geteuid().is_root();
        let linked = HashMap::new();
        let mut writing =
            Writing { composed: self, to, linked, done: Written::default(), meanwhile, is_root };
        self.walk(top, &mut |step| writing.step(&step))?;
        Ok(writing.done)
    }
}

/// Makes the directory, or finds it empty.
fn begin(to: &Path) -> Result<(), RealmError> {
    let failed = |e: io::Error| RealmError::local(format!("cannot write to {}: {e}", to.display()));
    match DirBuilder::new().mode(UNFINISHED).create(to) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(failed),
    }
    if fs::read_dir(to).map_err(failed)?.next().is_some() {
        let what = format!("{} is not empty", to.display());
        return Err(RealmError::new(Refusal::NotEmpty, what, "name a directory that is empty, or not there"));
    }
    fs::set_permissions(to, fs::Permissions::from_mode(UNFINISHED)).map_err(failed)
}

impl Writing<'_> {
    fn step(&mut self, step: &Step<'_>) -> Result<(), RealmError> {
        (self.meanwhile)()?;
        match step {
            Step::Leave(path, attr) => {
                let at = self.at(path);
                self.finish(&at, attr).map_err(|e| failed(&at, &e))
            }
            Step::Entry(node) => {
                let at = self.at(node.path);
                self.done.inodes += 1;
                self.entry(node, &at)
            }
        }
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.to.to_owned() } else { self.to.join(OsStr::from_bytes(path)) }
    }

    fn entry(&mut self, node: &Node<'_>, at: &Path) -> Result<(), RealmError> {
        let attr = node.attr;
        if attr.kind != Kind::Dir && attr.nlink > 1 {
            if let Some(first) = self.linked.get(&attr.ino) {
                self.done.inodes -= 1;
                return fs::hard_link(first, at).map_err(|e| failed(at, &e));
            }
            self.linked.insert(attr.ino, at.to_owned());
        }
        let of_kind = match attr.kind {
            Kind::Dir => {
                // Its attributes come when all is in it.
                return DirBuilder::new().mode(UNFINISHED).create(at).map_err(|e| failed(at, &e));
            }
            Kind::File => {
                self.file(node, at)?;
                return self.finish(at, attr).map_err(|e| failed(at, &e));
            }
            Kind::Symlink => {
                let target = OsStr::from_bytes(node.target.unwrap_or_default());
                std::os::unix::fs::symlink(target, at).map_err(|e| failed(at, &e))?;
                return self.finish(at, attr).map_err(|e| failed(at, &e));
            }
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::Char => FileType::CharacterDevice,
            Kind::Block => FileType::BlockDevice,
        };
        match rustix::fs::mknodat(CWD, at, of_kind, Mode::from_raw_mode(0o600), u64::from(attr.rdev)) {
            Err(rustix::io::Errno::PERM) if !self.is_root => {
                self.done.left_out += 1;
                self.linked.remove(&attr.ino);
                Ok(())
            }
            made => {
                made.map_err(io::Error::from).and_then(|()| self.finish(at, attr)).map_err(|e| failed(at, &e))
            }
        }
    }

    fn file(&mut self, node: &Node<'_>, at: &Path) -> Result<(), RealmError> {
        let composed = self.composed;
        let client = &composed.client;
        let unread = |refusal: Refusal| {
            let what = format!("the content of {} cannot be read: {refusal}", quoted(node.path));
            RealmError::new(
                refusal,
                what,
                "view it again: the client that has the file may have changed it since",
            )
        };
        let file = File::options().write(true).create_new(true).mode(0o600).open(at);
        let file = file.map_err(|e| failed(at, &e))?;
        let size = node.attr.size;
        file.set_len(size).map_err(|e| failed(at, &e))?;
        if size == 0 {
            return Ok(());
        }
        let fh = client.open(&client.caller(), node.attr.ino, OpenFlags::READ).map_err(unread)?;
        let mut copy = || {
            let mut offset = 0;
            while offset < size {
                match client.seek(fh, offset, Whence::Data) {
                    Ok(data) => offset = data.max(offset),
                    Err(Refusal::NoData) => break,
                    Err(refusal) => return Err(unread(refusal)),
                }
                let len = (size.saturating_sub(offset)).min(CALL_BYTES as u64) as usize;
                let bytes = client.read(fh, offset, len).map_err(unread)?;
                if bytes.is_empty() {
                    break;
                }
                file.write_all_at(&bytes, offset).map_err(|e| failed(at, &e))?;
                self.done.bytes += bytes.len() as u64;
                offset += bytes.len() as u64;
                (self.meanwhile)()?;
            }
            Ok(())
        };
        let copied = copy();
        // Nothing was written through it.
        let _ = client.release(fh);
        copied
    }

    /// Owner, extended attributes, mode and times, in this order: a change of the owner takes bits of the mode, and an access
    /// control list changes them.
    fn finish(&mut self, at: &Path, attr: &Attr) -> io::Result<()> {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
        let mut mode = u32::from(attr.mode.0);
        match rustix::fs::chownat(CWD, at, Some(uid), Some(gid), nofollow) {
            Err(rustix::io::Errno::PERM) if !self.is_root => {
                self.done.left_out += 1;
                // A program must not run with this user's identity instead of the owner's.
                mode &= !SET_ID;
            }
            owned => owned?,
        }
        if !self.xattrs(at, attr.ino)? {
            // With an access control list, the mode's group bits show the mask, not the group's own permissions.
            mode &= !GROUP;
        }
        if attr.kind != Kind::Symlink {
            fs::set_permissions(at, fs::Permissions::from_mode(mode))?;
        }
        let times = Timestamps { last_access: timespec(attr.atime), last_modification: timespec(attr.mtime) };
        Ok(rustix::fs::utimensat(CWD, at, &times, nofollow)?)
    }

    /// Sets the extended attributes; whether the access control list is among them, if there is one.
    fn xattrs(&mut self, at: &Path, ino: Ino) -> io::Result<bool> {
        use rustix::io::Errno;
        let client = &self.composed.client;
        let mut is_listed = true;
        let unread =
            |refusal: Refusal| io::Error::other(format!("its extended attributes cannot be read: {refusal}"));
        for name in xattr_names(client, ino).map_err(unread)? {
            let value = client.getxattr(&client.caller(), ino, &name).map_err(unread)?;
            match rustix::fs::lsetxattr(at, &name[..], &value, XattrFlags::empty()) {
                // Not every file system has them, nor room for all; some are root's.
                Err(Errno::NOTSUP | Errno::NOSPC | Errno::TOOBIG | Errno::PERM | Errno::ACCESS) => {
                    self.done.left_out += 1;
                    is_listed &= name != ACL_ACCESS;
                }
                set => set?,
            }
        }
        Ok(is_listed)
    }
}

fn timespec(time: Time) -> Timespec {
    Timespec { tv_sec: time.0.div_euclid(1_000_000_000), tv_nsec: time.0.rem_euclid(1_000_000_000) as _ }
}

fn failed(at: &Path, error: &io::Error) -> RealmError {
    let refusal = if error.kind() == io::ErrorKind::StorageFull { Refusal::NoSpace } else { Refusal::Io };
    RealmError::new(refusal, format!("{}: {error}", quoted(at.as_os_str().as_bytes())), "")
}
