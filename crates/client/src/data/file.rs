//! The state of one file while it is open here, or was not long ago.
//!
//! ```text
//!   hides what is right of it:  buffer ▶ pending ▶ sending, sending_inline ▶ content ▶ zeros
//! ```
//!
//! Invariants:
//! - `busy` is held by one thread at a time, which pushes, truncates or clones. It may wait for the service, never
//!   for a lease.
//! - `pending` and `sending` name our own blocks only; those that are not stored yet stand in `uploads`.
//! - Without a lease, `content` is that of the position in `attr`, if it is known at all.
//! - `recalls` counts recalls, `changes` counts our own changes of the content at the server: an answer that was under
//!   way while one of them grew is not remembered (and after a change not even used).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::sync::{Condvar, Mutex, MutexGuard};
use chiton_types::{Attr, BlockId, Cred, Ino, Refusal, Time};
use chiton_wire::{Content as Stored, Grown, LeaseMode};

use super::budget::Budget;
use super::buffer::DirtyBuffer;
use super::content::Content;
use super::extent_map::ExtentMap;
use super::upload::Upload;

/// Of one inode: its content as far as it is known, and writes that are not pushed.
pub(super) struct FileState {
    pub(super) ino: Ino,
    inner: Mutex<Inner>,
    changed: Condvar,
    writes: Mutex<Writes>,
}

/// Names a write that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteNumber(u64);

/// Writes that are not answered, with their ranges of bytes.
#[derive(Default)]
struct Writes {
    under_way: Vec<(WriteNumber, Range<u64>)>,
    count: u64,
}

/// The state that the lock guards.
pub(super) struct Inner {
    /// The lease that we believe to have.
    pub(super) lease: LeaseMode,
    /// Others had the file open when the exclusive lease was granted: they are to know of each growth before it is answered.
    pub(super) is_watched: bool,
    /// Attributes as the server answered them last.
    pub(super) attr: Attr,
    /// The content below everything that was written here.
    pub(super) content: Content,
    /// Monotonic time at which `content` was last asked for.
    pub(super) content_at: Duration,

    /// Size as it is seen here, in bytes.
    pub(super) size: u64,
    /// Time of the last write here, if there is something unsent.
    pub(super) mtime: Time,
    /// Since when there is something dirty (monotonic); while an operation is under way, since later.
    pub(super) dirty_since: Duration,
    /// The next push turns the file into blocks, however small it is.
    pub(super) blocks_only: bool,
    /// Something was written that no operation carries yet.
    pub(super) unsent: bool,
    /// One of the writes clears set-id bits.
    pub(super) kill_setid: bool,
    /// All that no operation carries yet was appended (O_APPEND), from here on.
    pub(super) appended: Option<u64>,
    /// Some of it was written back from mappings under a shared lease.
    pub(super) mapped: bool,
    /// The user who wrote last, in whose name the next push is made.
    pub(super) cred: Cred,
    pub(super) buffer: DirtyBuffer,
    pub(super) pending: ExtentMap,
    pub(super) sending: ExtentMap,
    pub(super) sending_inline: Option<Vec<u8>>,
    /// An operation with our data is under way.
    pub(super) in_flight: bool,
    pub(super) uploads: BTreeMap<BlockId, Arc<Upload>>,

    pub(super) busy: bool,
    pub(super) acquiring: bool,
    pub(super) recalling: bool,
    /// Recalls that are not acknowledged: the server counts this client as a holder.
    pub(super) yielding: u32,
    /// Clones into the file that are under way: its known content may be stale already.
    pub(super) cloning: u32,
    pub(super) recalls: u64,
    pub(super) changes: u64,
    /// Failures in the background so far, and the last one.
    pub(super) failures: u64,
    pub(super) failure: Option<Refusal>,
    /// How often all that was dirty was given up.
    pub(super) losses: u64,
    pub(super) handles: u32,
}

impl FileState {
    pub(super) fn new(attr: Attr, slot_bytes: usize) -> FileState {
        FileState {
            ino: attr.ino,
            changed: Condvar::new(),
            writes: Mutex::default(),
            inner: Mutex::new(Inner {
                lease: LeaseMode::None,
                is_watched: false,
                content: Content::Unknown,
                content_at: Duration::ZERO,
                size: attr.size,
                mtime: attr.mtime,
                attr,
                dirty_since: Duration::ZERO,
                blocks_only: false,
                unsent: false,
                kill_setid: false,
                appended: None,
                mapped: false,
                cred: Cred::ROOT,
                buffer: DirtyBuffer::new(slot_bytes),
                pending: ExtentMap::default(),
                sending: ExtentMap::default(),
                sending_inline: None,
                in_flight: false,
                uploads: BTreeMap::new(),
                busy: false,
                acquiring: false,
                recalling: false,
                yielding: 0,
                cloning: 0,
                recalls: 0,
                changes: 0,
                failures: 0,
                losses: 0,
                failure: None,
                handles: 0,
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Waits until something changes.
    pub(super) fn wait(&self, inner: &mut MutexGuard<'_, Inner>) {
        self.changed.wait(inner);
    }

    /// Waits for a change, but not for ever. `false`: it was long enough.
    pub(super) fn wait_for(&self, inner: &mut MutexGuard<'_, Inner>, most: Duration) -> bool {
        !self.changed.wait_for(inner, most).timed_out()
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// A write to this range begins; it is over when what is returned is dropped.
    pub(super) fn begin_write(&self, range: Range<u64>) -> WriteUnderWay<'_> {
        let mut writes = self.writes.lock();
        writes.count += 1;
        let number = WriteNumber(writes.count);
        writes.under_way.push((number, range));
        WriteUnderWay(self, number)
    }

    /// Writes that are not answered.
    pub(super) fn writes_under_way(&self) -> Vec<(WriteNumber, Range<u64>)> {
        self.writes.lock().under_way.clone()
    }

    /// Waits until nobody is busy with the file, then is.
    pub(super) fn become_busy(&self) -> Busy<'_> {
        let mut inner = self.lock();
        while inner.busy {
            self.wait(&mut inner);
        }
        inner.busy = true;
        Busy(self)
    }
}

/// A write in progress, from [`FileState::begin_write`] until it is dropped.
pub(super) struct WriteUnderWay<'a>(&'a FileState, WriteNumber);

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        self.0.writes.lock().under_way.retain(|(number, _)| *number != self.1);
    }
}

/// The right to push, truncate, clone; ends when dropped.
pub(super) struct Busy<'a>(&'a FileState);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy = false;
        self.0.notify();
    }
}

impl Inner {
    /// Something here is not with the server.
    pub(super) fn is_dirty(&self) -> bool {
        self.unsent || !self.buffer.is_empty() || !self.pending.is_empty()
    }

    /// Takes attributes from an answer of the server.
    pub(super) fn adopt(&mut self, attr: Attr) {
        if attr.position < self.attr.position {
            return;
        }
        if self.lease == LeaseMode::None && attr.position != self.attr.position {
            self.content = Content::Unknown;
        }
        if !self.is_dirty() && !self.in_flight {
            self.size = attr.size;
        }
        self.attr = attr;
    }

    /// A lease was granted with these attributes.
    pub(super) fn grant(&mut self, lease: LeaseMode, attr: Attr) {
        self.adopt(attr);
        self.lease = lease;
        if self.size == 0 && self.attr.size == 0 && !self.is_dirty() && !self.in_flight {
            self.content = Content::Inline(Vec::new());
        }
    }

    /// An answer that is as new as these attributes says what the first bytes are, to a question of that moment.
    pub(super) fn learn(&mut self, content: Stored, asked_at: Duration) {
        let is_changing = self.is_dirty() || self.in_flight || self.cloning > 0;
        // The first read asks for the content that an answer does not have.
        if !is_changing && matches!(self.content, Content::Unknown) && self.content.install(content, 0) {
            self.content_at = asked_at;
        }
    }

    /// The growth to report to other clients if the file ends at `end` from now on, with this byte.
    pub(super) fn growth_to(&self, end: u64, last: u8) -> Option<Grown> {
        (self.is_watched && end > self.size).then_some(Grown { size: end, last })
    }

    /// A failure that no caller waits for.
    pub(super) fn note_failure(&mut self, refusal: Refusal) {
        self.failures += 1;
        self.failure = Some(refusal);
    }

    /// Forgets everything that is not with the server.
    pub(super) fn drop_dirty(&mut self, budget: &Budget) {
        self.losses += 1;
        self.buffer.cut(0..u64::MAX, budget);
        self.pending = ExtentMap::default();
        self.unsent = false;
        self.kill_setid = false;
        self.appended = None;
        self.mapped = false;
        self.content = Content::Unknown;
        self.size = self.attr.size;
        self.drop_failed_uploads(budget);
    }

    /// Gives back the memory of failed uploads that no extent names any more. (Those under way do so themselves.)
    pub(super) fn drop_failed_uploads(&mut self, budget: &Budget) {
        let named: Vec<BlockId> = self.pending.iter().chain(self.sending.iter()).map(|e| e.block).collect();
        self.uploads.retain(|block, upload| {
            let keep = !upload.is_failed() || named.contains(block);
            if !keep {
                upload.finish(budget);
            }
            keep
        });
    }
}
