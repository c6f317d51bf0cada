//! What the kernel is told unasked: that names, attributes or pages that it holds are no longer so.
//!
//! ```text
//!   recall thread of the client ──▶ Kernel ──▶ /dev/fuse      (returns when the kernel has done it)
//!   a handler ──▶ forget_all_names ──▶ /dev/fuse              (takes no lock in the kernel)
//!   a handler ──▶ later(…) ──▶ queue ──▶ own thread ──▶ /dev/fuse
//! ```
//!
//! Invariants:
//! - A handler never waits for an invalidation that takes a lock in the kernel: the request that it answers may
//!   hold that lock.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use crate::moves::Moves;
use chiton_fuse_session::{INodeNo, Notifier};
use chiton_types::Ino;
use chiton_wire::Grown;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};

const NAME_TTL_WITHOUT_EPOCHS: Duration = Duration::from_secs(1);
/// In which the kernel drops content; where its pages are larger it drops the one around.
const PAGE_BYTES: u64 = 4096;
/// Most files whose sizes are remembered in [`Kernel::note_unsure`].
const UNSURE_MAX: usize = 65_536;
/// How long a handler waits for the kernel to be told.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most inodes that wait for the thread; past it, all pages of what is asked for are dropped by whoever asks.
const QUEUE_MAX: usize = 65_536;

/// The kernel's side of one mount.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// What the kernel calls number 1.
    root: Ino,
    notifier: OnceLock<Notifier>,
    has_epochs: AtomicBool,
    /// The kernel holds no names.
    holds_none: AtomicBool,
    /// Held by who tells a name.
    telling: RwLock<()>,
    /// One file grows at a time: what is stored is dropped before the next is stored.
    growing: Mutex<()>,
    /// Sizes of files that the kernel was told and may no longer believe (0: some size).
    unsure: Mutex<HashMap<Ino, u64>>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Directories that others may have moved.
    pub(crate) moves: Moves,
}

/// A name is being told.
pub(crate) struct NameReply<'a> {
    /// How long it may be kept.
    pub(crate) ttl: Duration,
    _telling: RwLockReadGuard<'a, ()>,
}

#[derive(Debug)]
enum Later {
    Inval(Ino),
    Grown(Ino, Grown, mpsc::SyncSender<()>),
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Later>,
    closed: bool,
}

impl Kernel {
    /// Of a mount whose root is this directory.
    pub(crate) fn new(root: Ino) -> Kernel {
        Kernel {
            root,
            notifier: OnceLock::new(),
            has_epochs: AtomicBool::new(false),
            holds_none: AtomicBool::new(false),
            telling: RwLock::new(()),
            growing: Mutex::default(),
            unsure: Mutex::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            moves: Moves::default(),
        }
    }

    /// The directory that is the root of the mount: its own number is only told, the kernel asks for number 1.
    pub(crate) fn root(&self) -> Ino {
        self.root
    }

    /// The number by which the kernel asks for an inode.
    pub(crate) fn number(&self, ino: Ino) -> INodeNo {
        if ino == self.root { INodeNo::ROOT } else { INodeNo(ino.0) }
    }

    /// From now on the kernel can be told. Before, it holds nothing. (The first words find out whether it has epochs.)
    pub(crate) fn connect(&self, notifier: Notifier) {
        let first = self.notifier.set(notifier).is_ok();
        assert!(first, "a mount has one connection to the kernel");
        self.has_epochs.store(true, Ordering::Relaxed);
        self.new_epoch();
    }

    /// Nothing that the kernel knows about `name` in `parent` holds any more: it is looked up anew. What is mounted there, or
    /// below it, stays (on kernels before Linux 6.2 it goes).
    pub(crate) fn inval_entry(&self, parent: Ino, name: &[u8]) {
        self.tell("a name", |notifier| notifier.expire_entry(self.number(parent), name));
    }

    /// Neither attributes nor pages of `ino` hold any more. Dirty pages (of mappings) are written first.
    pub(crate) fn inval_inode(&self, ino: Ino) {
        self.tell("an inode", |notifier| notifier.inval_inode(self.number(ino), 0, 0));
    }

    /// The pages of `ino` in this range of bytes do not hold any more.
    pub(crate) fn inval_range(&self, ino: Ino, range: Range<u64>) {
        let start = i64::try_from(range.start).unwrap_or(i64::MAX);
        // 0 is: to the end.
        let len = i64::try_from(range.end - range.start).unwrap_or(0);
        self.tell("pages", |notifier| notifier.inval_inode(self.number(ino), start, len));
    }

    /// A file that is open here grew elsewhere: its end in the kernel's memory is at least there, for those who map, splice or copy
    /// it, which ask nobody. The kernel takes a new end only with content, so it is given the last byte.
    pub(crate) fn grown(&self, ino: Ino, grown: Grown) {
        let at = grown.size - 1;
        let (page, page_bytes) = (at / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES as i64);
        let _one = self.growing.lock();
        self.tell("the size of a file", |notifier| notifier.store(self.number(ino), at, &[grown.last]));
        // The byte is that of one moment, and the page around it may be older: the next who wants it asks.
        self.tell("a page", |notifier| notifier.inval_inode(self.number(ino), page as i64, page_bytes));
    }

    /// Whether this kernel can forget all names at once.
    pub(crate) fn has_epochs(&self) -> bool {
        self.has_epochs.load(Ordering::Relaxed)
    }

    /// From now on what somebody mounts inside this mount stays there: the kernel is told no more names, and asks for each anew.
    /// (A kernel that is told to forget all names takes away what is mounted on them when they are looked at next.)
    pub(crate) fn keep_mounts(&self) {
        {
            let _nobody_tells = self.telling.write();
            if self.holds_none.load(Ordering::Relaxed) {
                return;
            }
            self.holds_none.store(true, Ordering::Relaxed);
        }
        self.new_epoch();
    }

    /// How long the kernel may keep a name that could be kept for so long; to be held until it is told.
    pub(crate) fn tell_name(&self, ttl: Duration, is_shared: bool) -> NameReply<'_> {
        let telling = self.telling.read();
        NameReply { ttl: ttl.min(self.name_ttl_max(is_shared)), _telling: telling }
    }

    /// How long the kernel may be told to keep a name. Where names cannot be taken back all at once: not long, and in
    /// a file system that is shared not at all. (Taking back one name waits for the directory's lock, which a request
    /// may hold that waits for another client, which may wait for us to take back that name.)
    fn name_ttl_max(&self, is_shared: bool) -> Duration {
        if self.holds_none.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        match (self.has_epochs(), is_shared) {
            (true, _) => Duration::MAX,
            (false, false) => NAME_TTL_WITHOUT_EPOCHS,
            (false, true) => Duration::ZERO,
        }
    }

    /// No name that the kernel knows is believed any more before it is looked up again. Takes no lock. `false`: this
    /// kernel cannot do that.
    pub(crate) fn forget_all_names(&self) -> bool {
        self.holds_none.load(Ordering::Relaxed) || self.new_epoch()
    }

    fn new_epoch(&self) -> bool {
        let Some(notifier) = self.notifier.get() else { return true };
        if !self.has_epochs() {
            return false;
        }
        match notifier.increment_epoch() {
            Ok(()) => true,
            Err(_) => {
                self.has_epochs.store(false, Ordering::Relaxed);
                false
            }
        }
    }

    /// [`Kernel::inval_inode`], on a thread of its own, soon.
    pub(crate) fn inval_inode_later(&self, ino: Ino) {
        let mut queue = self.queue.lock();
        let is_last = matches!(queue.waiting.back(), Some(Later::Inval(last)) if *last == ino);
        if queue.waiting.len() < QUEUE_MAX && !is_last {
            queue.waiting.push_back(Later::Inval(ino));
            self.wake.notify_one();
        }
    }

    /// The kernel was told this size of a file, or less than it is now, and may not believe it.
    pub(crate) fn note_unsure(&self, ino: Ino, size: u64) {
        let mut unsure = self.unsure.lock();
        if unsure.len() >= UNSURE_MAX {
            unsure.clear();
        }
        unsure.insert(ino, size);
    }

    /// The size of a file that the kernel was told and may not believe.
    pub(crate) fn take_unsure(&self, ino: Ino) -> Option<u64> {
        self.unsure.lock().remove(&ino)
    }

    /// [`Kernel::grown`] for a handler: returns when the kernel knows. Another thread waits for the kernel's locks, and is waited
    /// for no longer than a moment, since a request that this handler keeps from being answered may hold one.
    pub(crate) fn grown_soon(&self, ino: Ino, grown: Grown) {
        let (done, is_done) = mpsc::sync_channel(1);
        {
            let mut queue = self.queue.lock();
            if queue.waiting.len() >= QUEUE_MAX || queue.closed {
                return;
            }
            queue.waiting.push_back(Later::Grown(ino, grown, done));
            self.wake.notify_one();
        }
        // Not told within that time, and what is told then is true as well.
        let _ = is_done.recv_timeout(PATIENCE);
    }

    /// Serves [`Kernel::inval_inode_later`] and [`Kernel::grown_soon`] until [`Kernel::close`].
    pub(crate) fn run(self: Arc<Self>) {
        loop {
            let mut queue = self.queue.lock();
            while queue.waiting.is_empty() && !queue.closed {
                self.wake.wait(&mut queue);
            }
            let Some(next) = queue.waiting.pop_front() else { return };
            drop(queue);
            match next {
                Later::Inval(ino) => self.inval_inode(ino),
                Later::Grown(ino, grown, done) => {
                    self.grown(ino, grown);
                    let _ = done.send(());
                }
            }
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.waiting.clear();
        self.wake.notify_all();
        self.moves.close();
    }

    fn tell(&self, what: &str, tell: impl FnOnce(&Notifier) -> io::Result<()>) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = tell(notifier) {
            // ENODEV, ENOTCONN: unmounted meanwhile, the kernel holds nothing any more.
            if !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOTCONN)) {
                tracing::warn!("the kernel did not drop {what}: {error}");
            }
        }
    }
}
