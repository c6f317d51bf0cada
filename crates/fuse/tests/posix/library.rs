//! The library as a subject: a client's calls by handle, with a walk in front of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_client::data::Whence;
use chiton_client::{Caller, Client, Groups, LookUp, Lookup, OpenFlags, Standing};
use chiton_model::{AttrChange, RenameHow, SetTime, XattrHow};
use chiton_types::{Attr, Ino, Kind, Mode, Privileges, Refusal, Time};
use parking_lot::Mutex;

use super::subject::{Answer, Errno, Flags, FsUnderTest, ROOT, Stat, User};

/// A client of a server in this process.
pub(crate) struct Library {
    pub(crate) client: Arc<Client>,
    open: Mutex<BTreeMap<u64, Ino>>,
}

impl Library {
    pub(crate) fn new(client: Arc<Client>) -> Library {
        Library { client, open: Mutex::default() }
    }

    fn walk(&self, caller: &Caller<'_>, path: &str) -> Result<Attr, Refusal> {
        let mut at = self.client.getattr(Ino::ROOT, None)?.attr;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match self.client.lookup(caller, at.ino, name.as_bytes())? {
                Lookup::Found { attr, .. } => at = attr,
                Lookup::Absent { .. } => return Err(Refusal::NotFound),
            }
        }
        Ok(at)
    }

    /// The directory of the last name of a path, and that name.
    fn place<'p>(&self, caller: &Caller<'_>, path: &'p str) -> Result<(Ino, &'p [u8]), Refusal> {
        let (dir, name) = path.rsplit_once('/').expect("an absolute path");
        Ok((self.walk(caller, dir)?.ino, name.as_bytes()))
    }

    fn set(&self, user: User, path: &str, change: AttrChange) -> Answer<()> {
        run(user, |caller| self.client.setattr(caller, self.walk(caller, path)?.ino, change, None).map(drop))
    }
}

impl LookUp for User {
    fn standing(&self) -> Standing {
        Standing { groups: Arc::from(self.groups), privileges: Privileges::of_user(self.uid) }
    }
}

fn run<R>(user: User, call: impl FnOnce(&Caller<'_>) -> Result<R, Refusal>) -> Answer<R> {
    call(&Caller { uid: user.uid, gid: user.gid, groups: Groups::Lazy(&user) }).map_err(errno)
}

fn errno(refusal: Refusal) -> Errno {
    refusal.errno().0
}

fn stat_of(attr: &Attr) -> Stat {
    let kind = match attr.kind {
        Kind::File => libc::S_IFREG,
        Kind::Dir => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::Char => libc::S_IFCHR,
        Kind::Block => libc::S_IFBLK,
    };
    Stat {
        ino: attr.ino.0,
        mode: kind | u32::from(attr.mode.0),
        nlink: u64::from(attr.nlink),
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        blocks: attr.allocated.div_ceil(512),
        atime: attr.atime.0,
        mtime: attr.mtime.0,
        ctime: attr.ctime.0,
    }
}

fn mode(mode: u32) -> Mode {
    Mode(mode as u16 & 0o7777)
}

impl FsUnderTest for Library {
    fn open(&self, user: User, path: &str, flags: Flags, new_mode: u32) -> Answer<u64> {
        let how = OpenFlags::from_linux(flags);
        let (fd, ino) = run(user, |caller| {
            if flags & libc::O_CREAT != 0 {
                let (dir, name) = self.place(caller, path)?;
                let (entry, fd) = self.client.create(caller, dir, name, mode(new_mode), how)?;
                return Ok((fd, entry.attr.ino));
            }
            let ino = self.walk(caller, path)?.ino;
            Ok((self.client.open(caller, ino, how)?, ino))
        })?;
        self.open.lock().insert(fd, ino);
        Ok(fd)
    }

    fn close(&self, fd: u64) -> Answer<()> {
        self.open.lock().remove(&fd);
        let flushed = self.client.flush(fd);
        self.client.release(fd).and(flushed).map_err(errno)
    }

    fn read_at(&self, fd: u64, offset: u64, len: usize) -> Answer<Vec<u8>> {
        self.client.read(fd, offset, len).map_err(errno)
    }

    fn write_at(&self, user: User, fd: u64, offset: u64, bytes: &[u8]) -> Answer<()> {
        run(user, |caller| self.client.write(caller, fd, offset, bytes).map(drop))
    }

    fn fsync(&self, fd: u64) -> Answer<()> {
        self.client.fsync(fd, false).map_err(errno)
    }

    fn seek(&self, fd: u64, offset: u64, whence: i32) -> Answer<u64> {
        let whence = if whence == libc::SEEK_DATA { Whence::Data } else { Whence::Hole };
        self.client.seek(fd, offset, whence).map_err(errno)
    }

    fn fallocate(&self, fd: u64, mode: i32, offset: u64, len: u64) -> Answer<()> {
        run(ROOT, |caller| self.client.fallocate(caller, fd, mode, offset, len))
    }

    fn copy_range(&self, from: u64, from_offset: u64, to: u64, to_offset: u64, len: u64) -> Answer<u64> {
        run(ROOT, |caller| self.client.copy_range(caller, from, from_offset, to, to_offset, len))
    }

    fn fstat(&self, fd: u64) -> Answer<Stat> {
        let ino = *self.open.lock().get(&fd).ok_or(libc::EBADF)?;
        self.client.getattr(ino, Some(fd)).map(|entry| stat_of(&entry.attr)).map_err(errno)
    }

    fn stat(&self, user: User, path: &str) -> Answer<Stat> {
        run(user, |caller| self.walk(caller, path).map(|attr| stat_of(&attr)))
    }

    fn access(&self, user: User, path: &str, want: i32) -> Answer<()> {
        run(user, |caller| self.client.access(caller, self.walk(caller, path)?.ino, want as u8))
    }

    fn list(&self, user: User, path: &str) -> Answer<BTreeMap<Vec<u8>, u64>> {
        run(user, |caller| {
            let dir = self.walk(caller, path)?.ino;
            self.client.opendir(caller, dir)?;
            let (mut names, mut cookie) = (BTreeMap::new(), 0);
            loop {
                let (page, end) = self.client.readdir(caller, dir, cookie, 100, false)?;
                cookie = page.last().map_or(cookie, |last| last.cookie);
                for row in page {
                    let twice = names.insert(row.name.as_bytes().to_vec(), row.ino.0);
                    assert_eq!(twice, None, "{:?} was listed twice", row.name);
                }
                if end {
                    self.client.closedir(dir);
                    return Ok(names);
                }
            }
        })
    }

    fn mkdir(&self, user: User, path: &str, new_mode: u32) -> Answer<()> {
        run(user, |caller| {
            let (dir, name) = self.place(caller, path)?;
            self.client.mkdir(caller, dir, name, mode(new_mode)).map(drop)
        })
    }

    fn mkfifo(&self, user: User, path: &str, new_mode: u32) -> Answer<()> {
        run(user, |caller| {
            let (dir, name) = self.place(caller, path)?;
            self.client.mknod(caller, dir, name, Kind::Fifo, mode(new_mode), 0).map(drop)
        })
    }

    fn symlink(&self, user: User, target: &str, path: &str) -> Answer<()> {
        run(user, |caller| {
            let (dir, name) = self.place(caller, path)?;
            self.client.symlink(caller, dir, name, target.as_bytes()).map(drop)
        })
    }

    fn readlink(&self, path: &str) -> Answer<Vec<u8>> {
        run(ROOT, |caller| self.client.readlink(self.walk(caller, path)?.ino))
    }

    fn link(&self, user: User, from: &str, to: &str) -> Answer<()> {
        run(user, |caller| {
            let ino = self.walk(caller, from)?.ino;
            let (dir, name) = self.place(caller, to)?;
            self.client.link(caller, ino, dir, name).map(drop)
        })
    }

    fn unlink(&self, user: User, path: &str) -> Answer<()> {
        run(user, |caller| {
            let (dir, name) = self.place(caller, path)?;
            self.client.unlink(caller, dir, name)
        })
    }

    fn rmdir(&self, user: User, path: &str) -> Answer<()> {
        run(user, |caller| {
            let (dir, name) = self.place(caller, path)?;
            self.client.rmdir(caller, dir, name)
        })
    }

    fn rename(&self, user: User, from: &str, to: &str, flags: u32) -> Answer<()> {
        let how = match flags {
            0 => RenameHow::Replace,
            libc::RENAME_NOREPLACE => RenameHow::NoReplace,
            libc::RENAME_EXCHANGE => RenameHow::Exchange,
            _ => return Err(libc::EINVAL),
        };
        run(user, |caller| {
            let (from, from_name) = self.place(caller, from)?;
            let (to, to_name) = self.place(caller, to)?;
            self.client.rename(caller, from, from_name, to, to_name, how)
        })
    }

    fn chmod(&self, user: User, path: &str, new_mode: u32) -> Answer<()> {
        self.set(user, path, AttrChange { mode: Some(mode(new_mode)), ..AttrChange::default() })
    }

    fn chown(&self, user: User, path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer<()> {
        self.set(user, path, AttrChange { uid, gid, kill_setid: true, ..AttrChange::default() })
    }

    fn truncate(&self, user: User, path: &str, size: u64) -> Answer<()> {
        self.set(
            user,
            path,
            AttrChange { size: Some(size), kill_setid: user.uid != 0, ..AttrChange::default() },
        )
    }

    fn utimens(&self, user: User, path: &str, times: Option<(i64, i64)>) -> Answer<()> {
        let (atime, mtime) = match times {
            None => (SetTime::Now, SetTime::Now),
            Some((access, change)) => (SetTime::At(Time(access)), SetTime::At(Time(change))),
        };
        self.set(user, path, AttrChange { atime: Some(atime), mtime: Some(mtime), ..AttrChange::default() })
    }

    fn setxattr(&self, user: User, path: &str, name: &str, value: &[u8], flags: i32) -> Answer<()> {
        let how = match flags {
            libc::XATTR_CREATE => XattrHow::Create,
            libc::XATTR_REPLACE => XattrHow::Replace,
            _ => XattrHow::Set,
        };
        run(user, |caller| {
            self.client.setxattr(caller, self.walk(caller, path)?.ino, name.as_bytes(), value, how)
        })
    }

    fn getxattr(&self, user: User, path: &str, name: &str) -> Answer<Vec<u8>> {
        run(user, |caller| self.client.getxattr(caller, self.walk(caller, path)?.ino, name.as_bytes()))
    }

    fn listxattr(&self, path: &str) -> Answer<Vec<Vec<u8>>> {
        let names = run(ROOT, |caller| self.client.listxattr(caller, self.walk(caller, path)?.ino))?;
        Ok(names.split(|&b| b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn removexattr(&self, user: User, path: &str, name: &str) -> Answer<()> {
        run(user, |caller| self.client.removexattr(caller, self.walk(caller, path)?.ino, name.as_bytes()))
    }
}
