//! `chiton resolve --merged`: reads a file as the user who runs the command, and puts it at the path of the
//! conflict.
//!
//! ```text
//!   FILE ─┬─ regular ──────┬─ over a regular file: its content; the attributes that are there stay
//!         │                └─ else: a new file with content, owner, mode, times and extended attributes of FILE
//!         └─ symbolic link ── a symbolic link with its target, owner and times
//! ```
//!
//! Invariant: no symbolic link is followed, neither at FILE nor at the path of the conflict.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use chiton_client::Client;
use chiton_model::{AttrChange, SetTime, XattrHow};
use chiton_types::{Kind, Mode, Refusal, Time};
use rustix::fs::{AtFlags, CWD, Gid, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::failure::{Failure, Outcome};

/// Most bytes that the kernel gives of extended attributes: of the names, and of one value.
const XATTR_BYTES_MAX: usize = 65_536;
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// The merged version of a file.
pub(crate) struct Merged {
    meta: Metadata,
    /// Content of a file, or target of a symbolic link.
    content: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Merged {
    pub(crate) fn read(file: &Path) -> Outcome<Merged> {
        Merged::read_io(file).map_err(|e| Failure::failed(format!("cannot read {}: {e}", file.display())))
    }

    fn read_io(file: &Path) -> io::Result<Merged> {
        let meta = fs::symlink_metadata(file)?;
        let content = match meta.file_type() {
            kind if kind.is_symlink() => fs::read_link(file)?.into_os_string().into_vec(),
            kind if kind.is_file() => fs::read(file)?,
            _ => return Err(io::Error::other("the path is neither a regular file nor a symbolic link")),
        };
        Ok(Merged { meta, content, xattrs: xattrs(file)? })
    }

    fn is_link(&self) -> bool {
        self.meta.file_type().is_symlink()
    }

    /// Creates or changes the file at a path of a mount, so that it is as both sides are to have it.
    pub(crate) fn put(&self, path: &Path) -> Outcome {
        self.put_io(path).map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
    }

    fn put_io(&self, path: &Path) -> io::Result<()> {
        let is_file = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
        if is_file && !self.is_link() {
            let nofollow = OFlags::NOFOLLOW.bits() as i32;
            let file = File::options().write(true).truncate(true).custom_flags(nofollow).open(path);
            return file.and_then(|mut file| file.write_all(&self.content));
        }
        let name = format!(".chiton-merged-{}", std::process::id());
        let new = path.with_file_name(name);
        let made = self.make(&new).and_then(|()| fs::rename(&new, path));
        if made.is_err() {
            // A leftover temporary file is harmless.
            let _ = fs::remove_file(&new);
        }
        made
    }

    fn make(&self, new: &Path) -> io::Result<()> {
        if self.is_link() {
            symlink(OsStr::from_bytes(&self.content), new)?;
        } else {
            let file = File::options().write(true).create_new(true).mode(0o600).open(new);
            file.and_then(|mut file| file.write_all(&self.content))?;
        }
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let (uid, gid) = (Uid::from_raw(self.meta.uid()), Gid::from_raw(self.meta.gid()));
        let mut mode = self.meta.mode() & 0o7777;
        match rustix::fs::chownat(CWD, new, Some(uid), Some(gid), nofollow) {
            // A set-id bit must not let programs run as this user instead.
            Err(Errno::PERM) => mode &= !SET_ID,
            owned => owned?,
        }
        for (name, value) in &self.xattrs {
            match rustix::fs::lsetxattr(new, &name[..], value, XattrFlags::empty()) {
                // Those of root, and of other file systems.
                Err(Errno::PERM | Errno::NOTSUP) => {}
                set => set?,
            }
        }
        if !self.is_link() {
            fs::set_permissions(new, fs::Permissions::from_mode(mode))?;
        }
        let times = Timestamps {
            last_access: timespec(self.meta.atime(), self.meta.atime_nsec()),
            last_modification: timespec(self.meta.mtime(), self.meta.mtime_nsec()),
        };
        Ok(rustix::fs::utimensat(CWD, new, &times, nofollow)?)
    }

    /// The same in a branch that no process has mounted; `path` begins at its root, with a `/`.
    pub(crate) fn put_in(&self, client: &Client, path: &[u8]) -> Result<(), Refusal> {
        match client.lstat(path) {
            Ok(there) if there.kind == Kind::File && !self.is_link() => {
                return client.write_file(path, &self.content);
            }
            Ok(_) => client.remove(path)?,
            Err(Refusal::NotFound) => {}
            Err(refusal) => return Err(refusal),
        }
        let caller = client.caller();
        let ino = match self.is_link() {
            true => {
                let cut = path.iter().rposition(|b| *b == b'/').ok_or(Refusal::Invalid)?;
                let dir = client.stat(if cut == 0 { &b"/"[..] } else { &path[..cut] })?.ino;
                client.symlink(&caller, dir, &path[cut + 1..], &self.content)?.attr.ino
            }
            false => client.create_file(path, &self.content)?.ino,
        };
        let mut mode = self.meta.mode() & 0o7777;
        let owner =
            AttrChange { uid: Some(self.meta.uid()), gid: Some(self.meta.gid()), ..AttrChange::default() };
        match client.setattr(&caller, ino, owner, None) {
            Err(Refusal::NotPermitted) => mode &= !SET_ID,
            owned => {
                owned?;
            }
        }
        for (name, value) in &self.xattrs {
            match client.setxattr(&caller, ino, name, value, XattrHow::Set) {
                Err(Refusal::NotPermitted | Refusal::Unsupported) => {}
                set => set?,
            }
        }
        let time = |seconds: i64, nanos: i64| Some(SetTime::At(Time(seconds * 1_000_000_000 + nanos)));
        let rest = AttrChange {
            mode: (!self.is_link()).then_some(Mode(mode as u16)),
            atime: time(self.meta.atime(), self.meta.atime_nsec()),
            mtime: time(self.meta.mtime(), self.meta.mtime_nsec()),
            ..AttrChange::default()
        };
        client.setattr(&caller, ino, rest, None).map(drop)
    }
}

fn timespec(seconds: i64, nanos: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanos as _ }
}

/// Extended attributes, access control lists among them; none where the file system has none.
fn xattrs(file: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = match rustix::fs::llistxattr(file, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        len => len?,
    };
    let mut value = vec![0; XATTR_BYTES_MAX];
    let names = names[..len].split(|b| *b == 0).filter(|name| !name.is_empty());
    let pairs = names.map(|name| {
        let len = rustix::fs::lgetxattr(file, name, &mut value[..])?;
        Ok((name.to_vec(), value[..len].to_vec()))
    });
    pairs.collect()
}
