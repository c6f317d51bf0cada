//! A directory of a server, through the library: a load without a mount.

use std::cell::RefCell;
use std::io;

use chiton_client::{Client, Lookup, NewFile, OpenFlags};
use chiton_model::{AttrChange, RenameHow, SetTime};
use chiton_types::{Attr, Ino, Mode, Refusal};
use hashbrown::HashMap;

use crate::target::{Target, whole};

/// Entries of a directory that are asked for at once.
const PAGE: u32 = 1_000;

/// A connection of a task.
pub(crate) struct Library {
    client: Client,
    top: String,
    /// Directories by their path below the top, so that a call sends one message.
    dirs: RefCell<HashMap<String, Ino>>,
}

impl Library {
    /// Below an existing directory.
    pub(crate) fn new(client: Client, top: &str) -> Library {
        Library { client, top: top.trim_end_matches('/').to_owned(), dirs: RefCell::default() }
    }

    fn dir(&self, dir: &str) -> io::Result<Ino> {
        if let Some(ino) = self.dirs.borrow().get(dir) {
            return Ok(*ino);
        }
        let ino = self.client.stat(format!("{}/{dir}", self.top)).map_err(failed)?.ino;
        self.dirs.borrow_mut().insert(dir.to_owned(), ino);
        Ok(ino)
    }

    fn found(&self, dir: &str, name: &str) -> io::Result<Attr> {
        match self.client.lookup(&self.client.caller(), self.dir(dir)?, name.as_bytes()).map_err(failed)? {
            Lookup::Found { attr, .. } => Ok(attr),
            Lookup::Absent { .. } => Err(failed(Refusal::NotFound)),
        }
    }

    /// Forgets a directory that was removed or moved, and all below it.
    fn forget(&self, dir: &str, name: &str) {
        let gone = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
        let is_below = |path: &str| {
            path.strip_prefix(&gone).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.dirs.borrow_mut().retain(|path, _| !is_below(path));
    }
}

impl Target for Library {
    fn mkdir(&self, dir: &str, name: &str) -> io::Result<()> {
        let made = self.client.mkdir(&self.client.caller(), self.dir(dir)?, name.as_bytes(), Mode(0o755));
        made.map(drop).map_err(failed)
    }

    fn rmdir(&self, dir: &str, name: &str) -> io::Result<()> {
        self.client.rmdir(&self.client.caller(), self.dir(dir)?, name.as_bytes()).map_err(failed)?;
        self.forget(dir, name);
        Ok(())
    }

    fn create(&self, dir: &str, name: &str, content: &[u8], fsync: bool) -> io::Result<()> {
        let (client, caller, parent) = (&self.client, self.client.caller(), self.dir(dir)?);
        let (name, mode) = (name.as_bytes(), Mode(0o644));
        if fsync {
            let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
            let (_, fh) = client.create(&caller, parent, name, mode, flags).map_err(failed)?;
            let mut written = 0;
            while written < content.len() {
                let rest = &content[written..];
                written += client.write(&caller, fh, written as u64, rest).map_err(failed)? as usize;
            }
            client.fsync(fh, false).map_err(failed)?;
            return client.release(fh).map_err(failed);
        }
        if content.is_empty() {
            return client.start_create(&caller, parent, name, mode).wait().map(drop).map_err(failed);
        }
        all(client.create_each(&caller, &[NewFile { parent, name, mode, content }]))
    }

    fn read(&self, dir: &str, name: &str, bytes: usize) -> io::Result<()> {
        let (ino, caller) = (self.found(dir, name)?.ino, self.client.caller());
        let fh = self.client.open(&caller, ino, OpenFlags::READ).map_err(failed)?;
        let read = self.client.read(fh, 0, bytes).map_err(failed);
        self.client.release(fh).map_err(failed)?;
        whole(read?.len(), bytes)
    }

    fn stat(&self, dir: &str, name: &str) -> io::Result<()> {
        self.found(dir, name).map(drop)
    }

    fn utime(&self, dir: &str, name: &str) -> io::Result<()> {
        let change =
            AttrChange { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..AttrChange::default() };
        let ino = self.found(dir, name)?.ino;
        self.client.setattr(&self.client.caller(), ino, change, None).map(drop).map_err(failed)
    }

    fn unlink(&self, dir: &str, name: &str) -> io::Result<()> {
        self.client.unlink(&self.client.caller(), self.dir(dir)?, name.as_bytes()).map_err(failed)
    }

    fn rename(&self, dir: &str, name: &str, to_dir: &str, to_name: &str) -> io::Result<()> {
        let (from, to) = (self.dir(dir)?, self.dir(to_dir)?);
        let (caller, how) = (self.client.caller(), RenameHow::Replace);
        let renamed = self.client.rename(&caller, from, name.as_bytes(), to, to_name.as_bytes(), how);
        renamed.map_err(failed)?;
        self.forget(dir, name);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<u64> {
        let (dir, caller) = (self.dir(dir)?, self.client.caller());
        let (mut count, mut cookie) = (0, 0);
        loop {
            let (entries, is_end) = self.client.readdir(&caller, dir, cookie, PAGE, false).map_err(failed)?;
            count += entries.len() as u64;
            match entries.last() {
                Some(last) if !is_end => cookie = last.cookie,
                _ => return Ok(count),
            }
        }
    }

    fn forget_dirs(&self) {
        self.dirs.borrow_mut().clear();
    }

    fn create_each(&self, dir: &str, names: &[String]) -> io::Result<()> {
        all(self.client.create_in(&self.client.caller(), self.dir(dir)?, names, Mode(0o644)))
    }

    fn stat_each(&self, dir: &str, names: &[String]) -> io::Result<()> {
        all(self.client.stat_in(&self.client.caller(), self.dir(dir)?, names))
    }

    fn unlink_each(&self, dir: &str, names: &[String]) -> io::Result<()> {
        all(self.client.unlink_in(&self.client.caller(), self.dir(dir)?, names))
    }
}

fn all<T>(each: Vec<Result<T, Refusal>>) -> io::Result<()> {
    each.into_iter().try_for_each(|one| one.map(drop).map_err(failed))
}

fn failed(refusal: Refusal) -> io::Error {
    io::Error::from_raw_os_error(refusal.errno().0)
}
