//! The files of one client: handles, and operations on several files.
//!
//! Invariants:
//! - A file that is forgotten was clean; whatever lease the server thinks we have on it is then held for nothing, and
//!   given up when asked for. Its state belongs to no session from then on: a thread that still has it may do nothing in its name.
//! - `recall` returns only when nothing is left here that it asked back; it never waits for a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_objects::block::encoded_bytes;
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::{Condvar, Mutex, RwLock};
use chiton_runtime::thread::{self, JoinHandle};
use chiton_types::{Attr, BlockId, Cred, Ino, Position, Refusal};
use chiton_wire::{Content as Stored, LeaseMode};
use hashbrown::HashMap;

use super::block_io::BlockIo;
use super::budget::Budget;
use super::cache::ReadCache;
use super::content::Content;
use super::file::{FileState, Inner, WriteNumber};
use super::loss::Losses;
use super::options::{DataMode, FilesOptions};
use super::pool::Pool;
use super::push::Scope;
use super::read::ReadAhead;
use super::table::Table;
use crate::{Caller, Mark, OpenFlags, PlateInodes, Recalls, Service};

/// One open of a file.
pub(super) struct OpenFile {
    pub(super) file: Arc<FileState>,
    pub(super) flags: OpenFlags,
    pub(super) cred: Cred,
    /// Failures of the file that this handle has reported.
    pub(super) reported: AtomicU64,
    pub(super) ahead: Mutex<ReadAhead>,
}

/// A lease in the course of being given up, from [`Files::begin_yield`] until it is dropped.
pub(crate) struct Yielding(Arc<FileState>);

impl Drop for Yielding {
    fn drop(&mut self) {
        self.0.lock().yielding -= 1;
    }
}

/// File data of one client.
pub struct Files {
    pub(super) service: Arc<dyn Service>,
    pub(crate) io: Arc<dyn BlockIo>,
    pub(super) world: SharedWorld,
    pub(super) options: FilesOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) cache: Arc<ReadCache>,
    pub(super) upload_pool: Pool,
    pub(super) ahead_pool: Pool,
    /// Which files were changed from here, whether they have a state or not.
    changes: Recalls,
    table: Mutex<Table>,
    /// Goes with the table: the size of one is set.
    resized: Condvar,
    handles: RwLock<HashMap<u64, Arc<OpenFile>>>,
    next_handle: AtomicU64,
    next_block: AtomicU64,
    dirty: Mutex<BTreeMap<Ino, Arc<FileState>>>,
    pub(super) losses: Losses,
    flusher: Mutex<Option<JoinHandle>>,
}

impl Files {
    /// Files whose operations `service` carries out and whose blocks are in `io`.
    ///
    /// # Panics
    /// If the options contradict each other.
    pub fn new(
        service: Arc<dyn Service>,
        io: Arc<dyn BlockIo>,
        world: SharedWorld,
        options: FilesOptions,
    ) -> Arc<Files> {
        options.check();
        let buffer_bytes = encoded_bytes(options.block_bytes as u64) as usize;
        let files = Arc::new(Files {
            budget: Arc::new(Budget::new(options.dirty_bytes_max, buffer_bytes)),
            cache: Arc::new(ReadCache::new(options.cache_bytes_max)),
            upload_pool: Pool::new("chiton-upload", options.upload_threads, usize::MAX),
            ahead_pool: Pool::new("chiton-sender", options.read_ahead_threads, 64),
            next_block: AtomicU64::new(options.first_block),
            service,
            io,
            world,
            options,
            changes: Recalls::default(),
            table: Mutex::default(),
            resized: Condvar::new(),
            handles: RwLock::default(),
            next_handle: AtomicU64::new(1),
            dirty: Mutex::default(),
            losses: Losses::default(),
            flusher: Mutex::default(),
        });
        let (weak, budget) = (Arc::downgrade(&files), files.budget.clone());
        let flusher =
            thread::spawn("chiton-flush", move || super::flusher::run(&Weak::clone(&weak), &budget))
                .expect("a client can start a thread");
        *files.flusher.lock() = Some(flusher);
        files
    }

    /// Opens a file that the service has already counted as opened. `attr` and `lease` are from its answer, `mark` was
    /// taken from [`Service::recalls`] before it was asked, `changes` from [`Files::changes`]. With O_TRUNC the file is
    /// emptied (unless it was just made). `content`: the first bytes, or where they are, as the answer says, and the moment of the question.
    ///
    /// # Errors
    /// Those of a truncation; then nothing is open.
    pub fn open(
        &self,
        caller: &Caller<'_>,
        attr: Attr,
        lease: LeaseMode,
        (mark, changes): (Mark, Mark),
        flags: OpenFlags,
        content: Option<(Stored, Duration)>,
    ) -> Result<u64, Refusal> {
        let ino = attr.ino;
        let position = attr.position;
        let just_made = lease == LeaseMode::Exclusive && attr.size == 0 && attr.mtime == attr.btime;
        let file = self.enter(&attr);
        let reported = {
            let mut inner = file.lock();
            let recalled = inner.recalling || self.service.recalls().recalled_since(mark, ino);
            let is_changed = self.changes.recalled_since(changes, ino);
            let mut is_current = !is_changed && position >= inner.attr.position;
            if self.options.data != DataMode::Linearizable {
                // Close-to-open: cached content holds if nobody has changed the file since.
                inner.lease = LeaseMode::None;
                inner.grant(LeaseMode::None, attr);
            } else if is_changed {
                // It lacks the changes made here since: their place among positions may be known to nobody yet.
            } else if !recalled && lease >= inner.lease && lease > LeaseMode::None {
                inner.grant(lease, attr);
            } else {
                inner.adopt(attr);
                is_current = false;
            }
            if let Some((content, asked_at)) = content.filter(|_| is_current) {
                inner.learn(content, asked_at);
            }
            self.place_appended(&mut inner);
            inner.failures
        };
        let open = OpenFile {
            file: file.clone(),
            flags,
            cred: caller.cred(),
            reported: AtomicU64::new(reported),
            ahead: Mutex::default(),
        };
        let has_content = {
            let inner = file.lock();
            // Another handle's writes may be on their way to the server since it answered.
            inner.is_dirty() || inner.busy || inner.size > 0
        };
        if flags.truncate
            && (has_content || !just_made)
            && let Err(refusal) = self.truncate_file(&file, caller, true, 0)
        {
            self.leave(&file, true);
            return Err(refusal);
        }
        if flags.truncate {
            // Also where there was nothing to empty.
            self.losses.forget(ino);
        }
        let fh = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles.write().insert(fh, Arc::new(open));
        Ok(fh)
    }

    /// To be taken before a question about a file: its answer lacks the changes that this client makes afterwards.
    pub fn changes(&self) -> Mark {
        self.changes.now()
    }

    /// The server has answered a change of the content from here.
    pub(super) fn note_changed(&self, ino: Ino, inner: &mut Inner) {
        inner.changes += 1;
        self.changes.note(ino);
    }

    /// Ends a handle. Dirty bytes of the file are pushed; bytes that cannot be pushed when its last handle ends are lost (their
    /// error was, or is now, the last thing that can be said about them).
    ///
    /// # Errors
    /// As [`Files::flush`].
    pub fn release(&self, fh: u64) -> Result<(), Refusal> {
        let open = self.handles.write().remove(&fh).ok_or(Refusal::BadHandle)?;
        let file = &open.file;
        // Whether close(2) has reported it already. (The kernel drops the result of a release.)
        let is_reported = {
            let inner = file.lock();
            inner.is_dirty() && inner.failures > 0 && open.reported.load(Ordering::Relaxed) == inner.failures
        };
        // Also if it is not the last: two that end at once would each leave it to the other.
        let result = self.push(file, Scope::All);
        let result = self.report(&open, result);
        self.leave(file, !is_reported);
        self.service.closed(file.ino);
        result
    }

    /// Pushes the dirty data of this file: the server has answered, it is not yet durable (close(2)).
    ///
    /// # Errors
    /// Why not, or why a push in the background failed since this handle last reported.
    pub fn flush(&self, fh: u64) -> Result<(), Refusal> {
        let open = self.handle(fh)?;
        let result = self.push(&open.file, Scope::All);
        self.report(&open, result)
    }

    /// Pushes the dirty data of this file and all others, and waits until everything that was answered so far is
    /// durable (S18). A failure of another file is reported to that file's handles (S23).
    ///
    /// # Errors
    /// As [`Files::flush`], and those of [`Service::commit`]; else why something of the file was lost, also before this
    /// handle was opened, if no fsync has said so.
    pub fn fsync(&self, fh: u64, _data_only: bool) -> Result<(), Refusal> {
        let open = self.handle(fh)?;
        let pushed = self.push(&open.file, Scope::All);
        // A failure is kept for those who have that file open.
        let _ = self.push_dirty(Scope::All, || true);
        let result = pushed.and_then(|()| self.service.commit_with(open.file.ino));
        let reported = self.report(&open, result);
        let lost = self.losses.take(open.file.ino);
        reported.and(lost.map_or(Ok(()), Err))
    }

    /// Pushes the dirty data of a file, open or not. To be called before its times, mode or owner are set: data
    /// written before must not change them afterwards.
    ///
    /// # Errors
    /// Why not.
    pub fn push_inode(&self, ino: Ino) -> Result<(), Refusal> {
        match self.find(ino) {
            Some(file) => self.push(&file, Scope::All),
            None => Ok(()),
        }
    }

    /// Pushes all dirty data. Tries all files, whatever fails.
    ///
    /// # Errors
    /// The last failure; the handles of that file report it, too.
    pub fn push_all(&self) -> Result<(), Refusal> {
        self.push_dirty(Scope::All, || true)
    }

    /// The same for a caller that asks whether everything is there.
    ///
    /// # Errors
    /// As [`Files::push_all`]; else, once, why data were lost that no close(2) reported.
    pub fn sync(&self) -> Result<(), Refusal> {
        self.push_all()?;
        self.losses.take_any().map_or(Ok(()), Err)
    }

    /// Shows size and times of a file that is being written here.
    pub fn overlay(&self, attr: &mut Attr) {
        let Some(file) = self.find(attr.ino) else { return };
        let inner = file.lock();
        let unsent = inner.is_dirty() || inner.busy;
        // A push that ended while these attributes were on their way is newer than they are, also if the lease went with the push.
        if attr.position < inner.attr.position {
            *attr = inner.attr.clone();
        }
        if unsent {
            attr.size = inner.size;
            if inner.kill_setid {
                attr.mode = attr.mode.without_setid(attr.kind);
            }
            if inner.mtime > attr.mtime {
                attr.mtime = inner.mtime;
                attr.ctime = attr.ctime.max(inner.mtime);
            }
        }
    }

    /// Size in bytes of a file that is being written here, if it is.
    pub fn size(&self, ino: Ino) -> Option<u64> {
        let file = self.find(ino)?;
        let inner = file.lock();
        (inner.is_dirty() || inner.busy || inner.lease > LeaseMode::None).then_some(inner.size)
    }

    /// Whether a handle here is one of this file.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.find(ino).is_some_and(|file| file.lock().handles > 0)
    }

    /// A recall of a file has begun; it is about to be acknowledged when what is returned is dropped.
    pub(crate) fn begin_yield(&self, ino: Ino) -> Option<Yielding> {
        let file = self.find(ino)?;
        file.lock().yielding += 1;
        Some(Yielding(file))
    }

    /// Writes to a file that are not answered, with the ranges of bytes that their callers named.
    pub(crate) fn writes_under_way(&self, ino: Ino) -> Vec<(WriteNumber, Range<u64>)> {
        self.find(ino).map(|file| file.writes_under_way()).unwrap_or_default()
    }

    /// Files of a plate that something is known of here.
    pub(crate) fn known(&self, inodes: &PlateInodes) -> Vec<Ino> {
        let mut known: Vec<Ino> = self.table.lock().files.keys().copied().collect();
        known.retain(|ino| inodes.has(*ino));
        known.sort_unstable();
        known
    }

    /// Leaves a lease of at most `keep` on each file of a plate that is not open here and has nothing that the server does not know
    /// of; returns the others.
    pub(crate) fn weaken_idle(&self, inodes: &PlateInodes, keep: LeaseMode) -> Vec<Ino> {
        let files = self.files_of(inodes);
        let is_in_use = |file: &Arc<FileState>| {
            let mut inner = file.lock();
            let is_in_use = inner.handles > 0
                || inner.is_dirty()
                || inner.in_flight
                || inner.busy
                || inner.acquiring
                || inner.recalling;
            if !is_in_use {
                inner.lease = inner.lease.min(keep);
            }
            is_in_use
        };
        let mut inos: Vec<Ino> = files.iter().filter(|file| is_in_use(file)).map(|file| file.ino).collect();
        inos.sort_unstable();
        inos
    }

    /// All leases on files of a plate are void: drops what is cached under them. `landed`: the session is over, and unanswered
    /// operations are lost with it, but for pushes of these files that were under way; EIO at the next flush or fsync of the
    /// files concerned, and the next sync. Returns the files that are open here and whose content the kernel may have cached.
    pub fn forget(&self, inodes: &PlateInodes, landed: Option<&BTreeSet<Ino>>) -> Vec<Ino> {
        let mut open = Vec::new();
        for file in self.files_of(inodes) {
            let mut inner = file.lock();
            inner.recalls += 1;
            if inner.handles > 0 && inner.lease > LeaseMode::None {
                open.push(file.ino);
            }
            inner.lease = LeaseMode::None;
            // Positions of two starts of a server cannot be compared: the next one counts as newer, whatever its value.
            inner.attr.position = Position(0);
            let is_lost =
                |landed: &BTreeSet<Ino>| inner.is_dirty() || (inner.in_flight && !landed.contains(&file.ino));
            if landed.is_some_and(is_lost) {
                inner.note_failure(Refusal::Io);
                self.give_up(file.ino, &mut inner, Refusal::Io, true);
            }
            inner.content = Content::Unknown;
            drop(inner);
            file.notify();
        }
        if landed.is_some() {
            self.dirty.lock().retain(|ino, _| !inodes.has(*ino));
        }
        open
    }

    fn files_of(&self, inodes: &PlateInodes) -> Vec<Arc<FileState>> {
        self.table.lock().files.values().filter(|file| inodes.has(file.ino)).cloned().collect()
    }

    /// Bytes that wait here to be stored.
    pub fn dirty_bytes(&self) -> usize {
        self.budget.used_bytes()
    }

    /// Files of which something waits here to be stored, or is on its way.
    pub fn dirty_files(&self) -> Vec<Ino> {
        let files: Vec<Arc<FileState>> = self.table.lock().files.values().cloned().collect();
        let is_unsent = |file: &FileState| {
            let inner = file.lock();
            inner.is_dirty() || inner.in_flight
        };
        let mut inos: Vec<Ino> = files.iter().filter(|file| is_unsent(file)).map(|file| file.ino).collect();
        inos.sort_unstable();
        inos
    }

    pub(super) fn handle(&self, fh: u64) -> Result<Arc<OpenFile>, Refusal> {
        self.handles.read().get(&fh).cloned().ok_or(Refusal::BadHandle)
    }

    pub(super) fn find(&self, ino: Ino) -> Option<Arc<FileState>> {
        self.table.lock().files.get(&ino).cloned()
    }

    /// The name for a new block of a file.
    pub(crate) fn new_block(&self, ino: Ino) -> BlockId {
        let number = self.next_block.fetch_add(1, Ordering::Relaxed);
        BlockId { writer: self.service.session(ino).0, number }
    }

    /// Remembers that a file has something to push.
    pub(super) fn note_dirty(&self, file: &Arc<FileState>) {
        let mut dirty = self.dirty.lock();
        let first = dirty.is_empty();
        dirty.insert(file.ino, file.clone());
        drop(dirty);
        if first {
            let _ = self.budget.stir();
        }
    }

    /// Forgets that, if it has not.
    pub(super) fn note_clean(&self, file: &Arc<FileState>) {
        let mut dirty = self.dirty.lock();
        // A late caller may have a state that is no longer listed, while another one is.
        let is_this = dirty.get(&file.ino).is_some_and(|of| Arc::ptr_eq(of, file));
        if is_this && !file.lock().is_dirty() {
            dirty.remove(&file.ino);
        }
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.lock().is_empty()
    }

    /// Pushes dirty files, as long as `may_continue`.
    pub(super) fn push_dirty(&self, scope: Scope, may_continue: impl Fn() -> bool) -> Result<(), Refusal> {
        let files: Vec<Arc<FileState>> = self.dirty.lock().values().cloned().collect();
        let mut result = Ok(());
        for file in files {
            if !may_continue() {
                break;
            }
            if let Err(refusal) = self.push(&file, scope) {
                file.lock().note_failure(refusal);
                result = Err(refusal);
            }
        }
        result
    }

    /// The result of a push for this handle: its own failure, else one in the background that it has not reported.
    pub(super) fn report(&self, open: &OpenFile, result: Result<(), Refusal>) -> Result<(), Refusal> {
        let mut inner = open.file.lock();
        if let Err(refusal) = result {
            inner.note_failure(refusal);
        }
        let unreported = open.reported.swap(inner.failures, Ordering::Relaxed) < inner.failures;
        match inner.failure {
            Some(refusal) if unreported => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The state of a file, with one handle more.
    fn enter(&self, attr: &Attr) -> Arc<FileState> {
        let mut table = self.table.lock();
        while table.resizing.contains(&attr.ino) {
            self.resized.wait(&mut table);
        }
        let slot_bytes = self.options.block_bytes;
        let file =
            table.files.entry(attr.ino).or_insert_with(|| Arc::new(FileState::new(attr.clone(), slot_bytes)));
        let file = file.clone();
        file.lock().handles += 1;
        file
    }

    /// Sets the size of a file, open or not: `known` with its state, which stays, else `unknown`, with which none comes about.
    /// An answer to an earlier question is older.
    pub(super) fn resize<T>(
        &self,
        ino: Ino,
        known: impl FnOnce(&Arc<FileState>) -> T,
        unknown: impl FnOnce() -> T,
    ) -> T {
        let mut table = self.table.lock();
        while table.resizing.contains(&ino) {
            self.resized.wait(&mut table);
        }
        if let Some(file) = table.files.get(&ino).cloned() {
            file.lock().handles += 1;
            drop(table);
            let done = known(&file);
            self.leave(&file, true);
            return done;
        }
        table.resizing.insert(ino);
        drop(table);
        let done = unknown();
        let mut table = self.table.lock();
        table.resizing.remove(&ino);
        self.changes.note(ino);
        drop(table);
        self.resized.notify_all();
        done
    }

    /// Forgets everything of a file that is not with the server. `unreported`: nobody who has, or had, it open knows yet.
    pub(super) fn give_up(&self, ino: Ino, inner: &mut Inner, why: Refusal, unreported: bool) {
        inner.drop_dirty(&self.budget);
        self.losses.note(ino, why, unreported);
        self.options.on_loss.report(ino, why);
    }

    /// One handle less. `unreported`: nobody knows that the data still dirty could not be pushed.
    fn leave(&self, file: &Arc<FileState>, unreported: bool) {
        let mut table = self.table.lock();
        let mut inner = file.lock();
        inner.handles -= 1;
        if inner.handles > 0 {
            return;
        }
        if inner.is_dirty() {
            let why = inner.failure.unwrap_or(Refusal::Io);
            self.give_up(file.ino, &mut inner, why, unreported);
        }
        // Content that a server in this process has in its memory need not be here a second time.
        let is_small = inner.size == 0 || matches!(inner.content, Content::Inline(_));
        let is_worthless = is_small && self.service.is_embedded();
        drop(inner);
        self.dirty.lock().remove(&file.ino);
        if is_worthless {
            table.files.remove(&file.ino);
            return;
        }
        table.idle_stamp += 1;
        let stamp = table.idle_stamp;
        table.idle.insert(stamp, file.ino);
        while table.idle.len() > self.options.idle_files_max {
            let Some((_, ino)) = table.idle.pop_first() else { break };
            let unused = table.files.get(&ino).is_some_and(|file| file.lock().handles == 0);
            if unused {
                table.files.remove(&ino);
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.budget.close();
        if let Some(flusher) = self.flusher.get_mut().take()
            && !flusher.is_current()
        {
            // A thread that panicked has said so.
            let _ = flusher.join();
        }
    }
}
