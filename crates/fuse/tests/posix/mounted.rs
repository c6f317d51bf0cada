//! A mount as a subject: system calls on its paths, as other users by threads with their own identity.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::PathBuf;

use super::subject::{Answer, Errno, Flags, FsUnderTest, ROOT, Stat, User};

/// A directory where a file system is mounted.
pub(crate) struct Mounted {
    pub(crate) dir: PathBuf,
}

fn check(result: libc::c_int) -> Answer<libc::c_int> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn check_size(result: isize) -> Answer<usize> {
    usize::try_from(result).map_err(|_| errno())
}

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().expect("an error of the system")
}

/// Runs `call` as `user`: the identity of a thread is its own as long as libc is not asked to change it.
pub(crate) fn as_user<R: Send>(user: User, call: impl FnOnce() -> R + Send) -> R {
    if user == ROOT {
        return call();
    }
    std::thread::scope(|scope| {
        let run = move || {
            // SAFETY: plain system calls; the thread ends with the scope.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()), 0);
                libc::syscall(libc::SYS_setfsgid, user.gid);
                libc::syscall(libc::SYS_setfsuid, user.uid);
                // Changing the user of file systems leaves some capabilities.
                let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
                assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()), 0);
            }
            call()
        };
        scope.spawn(run).join().expect("a call does not panic")
    })
}

impl Mounted {
    fn path(&self, path: &str) -> CString {
        let full = format!("{}{path}", self.dir.display());
        CString::new(full).expect("a path without NUL")
    }

    fn on<R: Send>(&self, user: User, path: &str, call: impl FnOnce(&CStr) -> Answer<R> + Send) -> Answer<R> {
        let path = self.path(path);
        as_user(user, || call(&path))
    }
}

fn stat_of(raw: &libc::stat) -> Stat {
    let nanos = |secs: i64, nanos: i64| secs * 1_000_000_000 + nanos;
    Stat {
        ino: raw.st_ino,
        mode: raw.st_mode,
        nlink: raw.st_nlink,
        uid: raw.st_uid,
        gid: raw.st_gid,
        size: raw.st_size as u64,
        blocks: raw.st_blocks as u64,
        atime: nanos(raw.st_atime, raw.st_atime_nsec),
        mtime: nanos(raw.st_mtime, raw.st_mtime_nsec),
        ctime: nanos(raw.st_ctime, raw.st_ctime_nsec),
    }
}

// SAFETY of all blocks below: the pointers are to live buffers of the stated lengths, and nothing is kept by the
// system after the call.
impl FsUnderTest for Mounted {
    fn open(&self, user: User, path: &str, flags: Flags, mode: u32) -> Answer<u64> {
        self.on(user, path, |p| check(unsafe { libc::open(p.as_ptr(), flags | libc::O_CLOEXEC, mode) }))
            .map(|fd| fd as u64)
    }

    fn close(&self, fd: u64) -> Answer<()> {
        check(unsafe { libc::close(fd as i32) }).map(drop)
    }

    fn read_at(&self, fd: u64, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let mut bytes = vec![0u8; len];
        let mut done = 0;
        while done < len {
            let rest = &mut bytes[done..];
            let at = (offset + done as u64) as i64;
            match check_size(unsafe { libc::pread(fd as i32, rest.as_mut_ptr().cast(), rest.len(), at) })? {
                0 => break,
                n => done += n,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn write_at(&self, user: User, fd: u64, offset: u64, bytes: &[u8]) -> Answer<()> {
        as_user(user, || {
            let mut done = 0;
            while done < bytes.len() {
                let rest = &bytes[done..];
                let at = (offset + done as u64) as i64;
                done += check_size(unsafe { libc::pwrite(fd as i32, rest.as_ptr().cast(), rest.len(), at) })?;
            }
            Ok(())
        })
    }

    fn fsync(&self, fd: u64) -> Answer<()> {
        check(unsafe { libc::fsync(fd as i32) }).map(drop)
    }

    fn seek(&self, fd: u64, offset: u64, whence: i32) -> Answer<u64> {
        let found = unsafe { libc::lseek(fd as i32, offset as i64, whence) };
        u64::try_from(found).map_err(|_| errno())
    }

    fn fallocate(&self, fd: u64, mode: i32, offset: u64, len: u64) -> Answer<()> {
        check(unsafe { libc::fallocate(fd as i32, mode, offset as i64, len as i64) }).map(drop)
    }

    fn copy_range(&self, from: u64, from_offset: u64, to: u64, to_offset: u64, len: u64) -> Answer<u64> {
        let (mut at, mut into) = (from_offset as i64, to_offset as i64);
        let copied =
            unsafe { libc::copy_file_range(from as i32, &mut at, to as i32, &mut into, len as usize, 0) };
        check_size(copied).map(|n| n as u64)
    }

    fn fstat(&self, fd: u64) -> Answer<Stat> {
        let mut raw = unsafe { std::mem::zeroed() };
        check(unsafe { libc::fstat(fd as i32, &mut raw) })?;
        Ok(stat_of(&raw))
    }

    fn stat(&self, user: User, path: &str) -> Answer<Stat> {
        self.on(user, path, |p| {
            let mut raw = unsafe { std::mem::zeroed() };
            check(unsafe { libc::lstat(p.as_ptr(), &mut raw) })?;
            Ok(stat_of(&raw))
        })
    }

    fn access(&self, user: User, path: &str, want: i32) -> Answer<()> {
        // The system call checks the real identity unless a flag says otherwise.
        self.on(user, path, |p| {
            let result = unsafe {
                libc::syscall(libc::SYS_faccessat2, libc::AT_FDCWD, p.as_ptr(), want, libc::AT_EACCESS)
            };
            check(result as i32).map(drop)
        })
    }

    fn list(&self, user: User, path: &str) -> Answer<BTreeMap<Vec<u8>, u64>> {
        self.on(user, path, |p| {
            let dir = unsafe { libc::opendir(p.as_ptr()) };
            if dir.is_null() {
                return Err(errno());
            }
            let mut names = BTreeMap::new();
            loop {
                let entry = unsafe { libc::readdir64(dir) };
                if entry.is_null() {
                    break;
                }
                let (name, ino) = unsafe { (CStr::from_ptr((*entry).d_name.as_ptr()), (*entry).d_ino) };
                if name != c"." && name != c".." {
                    let twice = names.insert(name.to_bytes().to_vec(), ino);
                    assert_eq!(twice, None, "{name:?} was listed twice");
                }
            }
            unsafe { libc::closedir(dir) };
            Ok(names)
        })
    }

    fn mkdir(&self, user: User, path: &str, mode: u32) -> Answer<()> {
        self.on(user, path, |p| check(unsafe { libc::mkdir(p.as_ptr(), mode) }).map(drop))
    }

    fn mkfifo(&self, user: User, path: &str, mode: u32) -> Answer<()> {
        self.on(user, path, |p| check(unsafe { libc::mkfifo(p.as_ptr(), mode) }).map(drop))
    }

    fn symlink(&self, user: User, target: &str, path: &str) -> Answer<()> {
        let target = CString::new(target).expect("a target without NUL");
        self.on(user, path, |p| check(unsafe { libc::symlink(target.as_ptr(), p.as_ptr()) }).map(drop))
    }

    fn readlink(&self, path: &str) -> Answer<Vec<u8>> {
        self.on(ROOT, path, |p| {
            let mut bytes = vec![0u8; 8192];
            let n =
                check_size(unsafe { libc::readlink(p.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) })?;
            bytes.truncate(n);
            Ok(bytes)
        })
    }

    fn link(&self, user: User, from: &str, to: &str) -> Answer<()> {
        let to = self.path(to);
        self.on(user, from, |p| check(unsafe { libc::link(p.as_ptr(), to.as_ptr()) }).map(drop))
    }

    fn unlink(&self, user: User, path: &str) -> Answer<()> {
        self.on(user, path, |p| check(unsafe { libc::unlink(p.as_ptr()) }).map(drop))
    }

    fn rmdir(&self, user: User, path: &str) -> Answer<()> {
        self.on(user, path, |p| check(unsafe { libc::rmdir(p.as_ptr()) }).map(drop))
    }

    fn rename(&self, user: User, from: &str, to: &str, flags: u32) -> Answer<()> {
        let to = self.path(to);
        self.on(user, from, |p| {
            let here = libc::AT_FDCWD;
            check(unsafe { libc::renameat2(here, p.as_ptr(), here, to.as_ptr(), flags) }).map(drop)
        })
    }

    fn chmod(&self, user: User, path: &str, mode: u32) -> Answer<()> {
        self.on(user, path, |p| check(unsafe { libc::chmod(p.as_ptr(), mode) }).map(drop))
    }

    fn chown(&self, user: User, path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer<()> {
        let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
        self.on(user, path, |p| check(unsafe { libc::lchown(p.as_ptr(), uid, gid) }).map(drop))
    }

    fn truncate(&self, user: User, path: &str, size: u64) -> Answer<()> {
        self.on(user, path, |p| check(unsafe { libc::truncate(p.as_ptr(), size as i64) }).map(drop))
    }

    fn utimens(&self, user: User, path: &str, times: Option<(i64, i64)>) -> Answer<()> {
        let part = |nanos: i64| libc::timespec {
            tv_sec: nanos.div_euclid(1_000_000_000),
            tv_nsec: nanos.rem_euclid(1_000_000_000),
        };
        let times = times.map(|(access, change)| [part(access), part(change)]);
        self.on(user, path, |p| {
            let times = times.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            check(unsafe { libc::utimensat(libc::AT_FDCWD, p.as_ptr(), times, flags) }).map(drop)
        })
    }

    fn setxattr(&self, user: User, path: &str, name: &str, value: &[u8], flags: i32) -> Answer<()> {
        let name = CString::new(name).expect("a name without NUL");
        self.on(user, path, |p| {
            let (at, len) = (value.as_ptr().cast(), value.len());
            check(unsafe { libc::lsetxattr(p.as_ptr(), name.as_ptr(), at, len, flags) }).map(drop)
        })
    }

    fn getxattr(&self, user: User, path: &str, name: &str) -> Answer<Vec<u8>> {
        let name = CString::new(name).expect("a name without NUL");
        self.on(user, path, |p| {
            let asked = unsafe { libc::lgetxattr(p.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
            let size = check_size(asked)?;
            if size > 1 {
                let mut short = vec![0u8; size - 1];
                let got = unsafe {
                    libc::lgetxattr(p.as_ptr(), name.as_ptr(), short.as_mut_ptr().cast(), size - 1)
                };
                assert_eq!(check_size(got), Err(libc::ERANGE));
            }
            let mut value = vec![0u8; size + 1];
            let at = value.as_mut_ptr().cast();
            let n = check_size(unsafe { libc::lgetxattr(p.as_ptr(), name.as_ptr(), at, value.len()) })?;
            value.truncate(n);
            Ok(value)
        })
    }

    fn listxattr(&self, path: &str) -> Answer<Vec<Vec<u8>>> {
        self.on(ROOT, path, |p| {
            let mut names = vec![0u8; 64 << 10];
            let at = names.as_mut_ptr().cast();
            let n = check_size(unsafe { libc::llistxattr(p.as_ptr(), at, names.len()) })?;
            Ok(names[..n].split(|&b| b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
        })
    }

    fn removexattr(&self, user: User, path: &str, name: &str) -> Answer<()> {
        let name = CString::new(name).expect("a name without NUL");
        self.on(user, path, |p| check(unsafe { libc::lremovexattr(p.as_ptr(), name.as_ptr()) }).map(drop))
    }
}
