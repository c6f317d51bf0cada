//! The file system that a load works on: a directory, by system calls. `library` reaches a server without a mount.
//!
//! Invariants:
//! - A path is relative to the directory that was given, and "" is that directory.
//! - A failed call is an error with its errno.

use std::cell::RefCell;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};

/// The calls of the loads. Every task has a target of its own.
pub(crate) trait Target {
    fn mkdir(&self, dir: &str, name: &str) -> io::Result<()>;
    fn rmdir(&self, dir: &str, name: &str) -> io::Result<()>;
    /// Makes a new file, writes all of its content, and closes it.
    fn create(&self, dir: &str, name: &str, content: &[u8], fsync: bool) -> io::Result<()>;
    /// Opens a file, reads as many bytes from its start, and closes it.
    fn read(&self, dir: &str, name: &str, bytes: usize) -> io::Result<()>;
    fn stat(&self, dir: &str, name: &str) -> io::Result<()>;
    /// Sets both times to now.
    fn utime(&self, dir: &str, name: &str) -> io::Result<()>;
    fn unlink(&self, dir: &str, name: &str) -> io::Result<()>;
    fn rename(&self, dir: &str, name: &str, to_dir: &str, to_name: &str) -> io::Result<()>;
    /// Counts the entries of a directory.
    fn list(&self, dir: &str) -> io::Result<u64>;

    /// Forgets where directories are: one was removed or moved by another task.
    fn forget_dirs(&self) {}

    /// Makes an empty file for each name.
    fn create_each(&self, dir: &str, names: &[String]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.create(dir, name, &[], false))
    }

    fn stat_each(&self, dir: &str, names: &[String]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.stat(dir, name))
    }

    fn unlink_each(&self, dir: &str, names: &[String]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.unlink(dir, name))
    }
}

/// A directory of any file system.
pub(crate) struct Posix {
    top: String,
    /// Paths are put together here.
    path: RefCell<String>,
    buffer: RefCell<Vec<u8>>,
}

impl Posix {
    /// # Errors
    /// The path is not UTF-8.
    pub(crate) fn new(top: &Path) -> io::Result<Posix> {
        let text = top.to_str().ok_or_else(|| io::Error::other(format!("{top:?} is not UTF-8")))?;
        Ok(Posix { top: text.to_owned(), path: RefCell::default(), buffer: RefCell::default() })
    }

    fn at<T>(
        &self,
        dir: &str,
        name: &str,
        call: impl FnOnce(&str) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        let mut path = self.path.borrow_mut();
        path.clear();
        for part in [&self.top, dir, name] {
            if !path.is_empty() && !part.is_empty() {
                path.push('/');
            }
            path.push_str(part);
        }
        Ok(call(&path)?)
    }
}

impl Target for Posix {
    fn mkdir(&self, dir: &str, name: &str) -> io::Result<()> {
        self.at(dir, name, |path| rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)))
    }

    fn rmdir(&self, dir: &str, name: &str) -> io::Result<()> {
        self.at(dir, name, |path| rustix::fs::rmdir(path))
    }

    fn create(&self, dir: &str, name: &str, content: &[u8], fsync: bool) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        self.at(dir, name, |path| {
            let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
            let mut rest = content;
            while !rest.is_empty() {
                rest = &rest[rustix::io::write(&file, rest)?..];
            }
            if fsync { rustix::fs::fsync(&file) } else { Ok(()) }
        })
    }

    fn read(&self, dir: &str, name: &str, bytes: usize) -> io::Result<()> {
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(bytes, 0);
        let mut found = 0;
        self.at(dir, name, |path| {
            let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            while found < bytes {
                match rustix::io::read(&file, &mut buffer[found..])? {
                    0 => break,
                    more => found += more,
                }
            }
            Ok(())
        })?;
        whole(found, bytes)
    }

    fn stat(&self, dir: &str, name: &str) -> io::Result<()> {
        self.at(dir, name, |path| rustix::fs::stat(path).map(drop))
    }

    fn utime(&self, dir: &str, name: &str) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        self.at(dir, name, |path| rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()))
    }

    fn unlink(&self, dir: &str, name: &str) -> io::Result<()> {
        self.at(dir, name, |path| rustix::fs::unlink(path))
    }

    fn rename(&self, dir: &str, name: &str, to_dir: &str, to_name: &str) -> io::Result<()> {
        let from = self.at(dir, name, |path| Ok(path.to_owned()))?;
        self.at(to_dir, to_name, |to| rustix::fs::rename(from, to))
    }

    fn list(&self, dir: &str) -> io::Result<u64> {
        self.at(dir, "", |path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let entries = Dir::new(rustix::fs::open(path, flags, Mode::empty())?)?;
            let mut count = 0;
            for entry in entries {
                let name = entry?.file_name().to_bytes().to_vec();
                count += u64::from(name != b"." && name != b"..");
            }
            Ok(count)
        })
    }
}

/// Refuses a file that is shorter than it was written.
pub(crate) fn whole(found: usize, bytes: usize) -> io::Result<()> {
    if found == bytes {
        return Ok(());
    }
    Err(io::Error::other(format!("the file has {found} bytes instead of {bytes}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_do_what_they_say() {
        let scratch = tempfile::tempdir().expect("a directory");
        let target = Posix::new(scratch.path()).expect("a target");
        target.mkdir("", "a").expect("made");
        for content in [&b""[..], &[7; 5_000]] {
            target.create("a", "f", content, true).expect("created");
            assert_eq!(std::fs::read(scratch.path().join("a/f")).expect("read"), content);
            let twice = target.create("a", "f", content, false).expect_err("it exists");
            assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists);
            target.read("a", "f", content.len()).expect("whole");
            target.read("a", "f", content.len() + 1).expect_err("too short");
            target.stat("a", "f").expect("there");
            target.utime("a", "f").expect("touched");
            target.rename("a", "f", "", "g").expect("renamed");
            assert_eq!((target.list("a").expect("read"), target.list("").expect("read")), (0, 2));
            target.unlink("", "g").expect("removed");
        }
        let names = ["x".to_owned(), "y".to_owned()];
        target.create_each("a", &names).expect("created");
        target.stat_each("a", &names).expect("there");
        target.unlink_each("a", &names).expect("removed");
        target.rmdir("", "a").expect("removed");
        assert_eq!(target.list("").expect("read"), 0);
    }
}
