//! Open files: creating, opening, and their part in the data layer; locks.

use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Refusal};
use chiton_wire::{Answer, Call, Content, LeaseMode, Lock, Query};

use crate::client::{Client, Entry, Lookup};
use crate::data::Whence;
use crate::names::new_name;
use crate::service::{CallError, Caller};
use crate::{CancelToken, Mark, OpenFlags};

/// A name that comes and goes while it is being created or opened is tried so often.
const CREATE_TRIES: usize = 16;

impl Client {
    /// open(2) with O_CREAT: makes a file, or opens the one that is there (unless O_EXCL). Returns the entry and
    /// the handle.
    ///
    /// # Errors
    /// As open(2). A symbolic link under that name is [`Refusal::Loop`]: a caller that resolves paths has followed it.
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<(Entry, u64), Refusal> {
        let made = new_name(name)?;
        for _ in 0..CREATE_TRIES {
            let changes = self.files.changes();
            let make = Make::File { content: Vec::new() };
            let op = Op::Make { parent, name: made.clone(), make, mode };
            let refusal = match self.operate(caller, op, true) {
                Ok((outcome, lease, since)) => {
                    let attr = outcome.attr.ok_or(Refusal::Io)?;
                    let flags = OpenFlags { truncate: false, ..flags };
                    let fh = self.opened(caller, attr.clone(), lease, (since.recalls, changes), flags)?;
                    return Ok((self.entry(since, Some((parent, &made)), attr, lease), fh));
                }
                Err(refusal) => refusal,
            };
            // A caller that may not create, or has no room for that, may still open.
            let may_be_there =
                matches!(refusal, Refusal::Exists | Refusal::Access | Refusal::ReadOnly | Refusal::NoSpace);
            if flags.exclusive || !may_be_there {
                return Err(refusal);
            }
            match self.lookup(caller, parent, name)? {
                Lookup::Found { attr, ttl, .. } if attr.kind == Kind::File => {
                    match self.open_entry(caller, attr.ino, flags) {
                        Ok((entry, fh)) => return Ok((Entry { ttl, ..entry }, fh)),
                        Err(Refusal::Stale | Refusal::NotFound) => {}
                        Err(refusal) => return Err(refusal),
                    }
                }
                Lookup::Found { attr, .. } if attr.kind == Kind::Dir => return Err(Refusal::IsDir),
                Lookup::Found { attr, .. } if attr.kind == Kind::Symlink => return Err(Refusal::Loop),
                Lookup::Found { .. } => return Err(Refusal::Exists),
                Lookup::Absent { .. } if refusal == Refusal::Exists => {}
                Lookup::Absent { .. } => return Err(refusal),
            }
        }
        Err(Refusal::Busy)
    }

    /// open(2) with O_TMPFILE: a file without a name, made as if in `parent`. It ends with its last open, unless it is given a name
    /// before ([`Client::link_unnamed`]).
    ///
    /// # Errors
    /// As open(2); [`Refusal::Unsupported`] in a decoupled subtree.
    pub fn create_unnamed(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<(Entry, u64), Refusal> {
        let changes = self.files.changes();
        let (outcome, lease, since) = self.operate(caller, Op::MakeUnnamed { parent, mode }, true)?;
        let attr = outcome.attr.ok_or(Refusal::Io)?;
        let flags = OpenFlags { truncate: false, ..flags };
        let fh = self.opened(caller, attr.clone(), lease, (since.recalls, changes), flags)?;
        Ok((self.entry(since, None, attr, lease), fh))
    }

    /// open(2) of a file that is there.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, caller: &Caller<'_>, ino: Ino, flags: OpenFlags) -> Result<u64, Refusal> {
        self.open_entry(caller, ino, flags).map(|(_, fh)| fh)
    }

    fn open_entry(&self, caller: &Caller<'_>, ino: Ino, flags: OpenFlags) -> Result<(Entry, u64), Refusal> {
        let since = self.since();
        let changes = self.files.changes();
        let content = flags.reads_only() && !flags.direct && !self.core.embedded;
        let asked_at = self.core.world.monotonic();
        let query = Query::Open { ino, want: flags.want(), content };
        let (attr, lease, content) = match self.ask(caller, Call::Query(query))? {
            Answer::Attr { attr, lease, .. } => (attr, lease, None),
            Answer::Map { attr, lease, content } => (attr, lease, Some((content, asked_at))),
            _ => return Err(Refusal::Io),
        };
        self.core.cache.learn_attr(self.service.recalls(), since, &attr, lease);
        let before = (since.recalls, changes);
        let fh = self.opened_with(caller, attr.clone(), lease, before, flags, content)?;
        Ok((self.entry(since, None, attr, lease), fh))
    }

    /// The service has counted an open: the data layer takes it from here.
    pub(crate) fn opened(
        &self,
        caller: &Caller<'_>,
        attr: Attr,
        lease: LeaseMode,
        before: (Mark, Mark),
        flags: OpenFlags,
    ) -> Result<u64, Refusal> {
        self.opened_with(caller, attr, lease, before, flags, None)
    }

    /// The same, where the answer said what the content is, to a question that was asked at that moment.
    fn opened_with(
        &self,
        caller: &Caller<'_>,
        attr: Attr,
        lease: LeaseMode,
        before: (Mark, Mark),
        flags: OpenFlags,
        content: Option<(Content, Duration)>,
    ) -> Result<u64, Refusal> {
        let ino = attr.ino;
        if attr.flags & Attr::APPEND_ONLY != 0 && flags.write && (!flags.append || flags.truncate) {
            self.service.closed(ino);
            return Err(Refusal::NotPermitted);
        }
        let opened = self.files.open(caller, attr, lease, before, flags, content);
        opened.inspect_err(|_| self.service.closed(ino))
    }

    /// At most `len` bytes from `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self, fh: u64, offset: u64, len: usize) -> Result<Vec<u8>, Refusal> {
        self.files.read(fh, offset, len)
    }

    /// As [`Client::read`], into a buffer.
    ///
    /// # Errors
    /// As read(2).
    pub fn read_into(&self, fh: u64, offset: u64, into: &mut [u8]) -> Result<usize, Refusal> {
        self.files.read_into(fh, offset, into)
    }

    /// Writes all of `bytes`; with O_APPEND at the end, whatever `offset` says.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&self, caller: &Caller<'_>, fh: u64, offset: u64, bytes: &[u8]) -> Result<u32, Refusal> {
        self.files.write(caller, fh, offset, bytes)
    }

    /// close(2) of one of the descriptors: dirty data go to the server.
    ///
    /// # Errors
    /// Why it could not, or earlier in the background.
    pub fn flush(&self, fh: u64) -> Result<(), Refusal> {
        self.files.flush(fh)
    }

    /// fsync(2), fdatasync(2).
    ///
    /// # Errors
    /// As those.
    pub fn fsync(&self, fh: u64, data_only: bool) -> Result<(), Refusal> {
        self.files.fsync(fh, data_only)
    }

    /// The last descriptor of a handle is closed.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub fn release(&self, fh: u64) -> Result<(), Refusal> {
        self.files.release(fh)
    }

    /// fallocate(2) with its mode bits.
    ///
    /// # Errors
    /// As that; [`Refusal::Unsupported`] for collapsing and inserting ranges.
    pub fn fallocate(
        &self,
        caller: &Caller<'_>,
        fh: u64,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Result<(), Refusal> {
        self.files.fallocate(caller, fh, mode, offset, len)
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE.
    ///
    /// # Errors
    /// [`Refusal::NoData`] past the end.
    pub fn seek(&self, fh: u64, offset: u64, whence: Whence) -> Result<u64, Refusal> {
        self.files.seek(fh, offset, whence)
    }

    /// copy_file_range(2): data in blocks are shared, not copied.
    ///
    /// # Errors
    /// As that.
    pub fn copy_range(
        &self,
        caller: &Caller<'_>,
        fh_in: u64,
        offset_in: u64,
        fh_out: u64,
        offset_out: u64,
        len: u64,
    ) -> Result<u64, Refusal> {
        self.files.copy_range(caller, fh_in, offset_in, fh_out, offset_out, len)
    }

    // ---- locks --------------------------------------------------------------------------------------

    /// The lock that stands in the way of `lock`, if any.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn getlk(&self, lock: Lock) -> Result<Option<Lock>, Refusal> {
        match self.ask(&self.caller(), Call::GetLock { lock })? {
            Answer::Lock(conflict) => Ok(conflict),
            _ => Err(Refusal::Io),
        }
    }

    /// Sets, changes or drops ([`chiton_wire::LockKind::Unlock`]) a POSIX or BSD lock. With `wait` a token that ends the wait.
    ///
    /// # Errors
    /// [`Refusal::WouldBlock`], [`Refusal::Deadlock`]; [`Refusal::Interrupted`] after [`Client::cancel`].
    pub fn setlk(&self, lock: Lock, wait: Option<&CancelToken>) -> Result<(), Refusal> {
        // Others may have written what the lock guards.
        let call = Call::SetLock { lock, wait: wait.is_some() };
        let answer = match wait {
            Some(token) => self.service.call_cancellable(&Cred::ROOT, call, token),
            None => self.service.call(&Cred::ROOT, call),
        };
        match answer {
            Ok(_) => Ok(()),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(CallError::NeedGroups) => Err(Refusal::Access),
        }
    }

    /// Ends a wait for a lock.
    pub fn cancel(&self, token: &CancelToken) {
        token.cancel(&*self.service);
    }
}
