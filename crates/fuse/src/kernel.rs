//! Notifications to the kernel: names, attributes or pages that it caches are no longer valid.
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

use crate::listing_pages::ListingPages;
use crate::listing_replies::ListingReplies;
use crate::listing_use::ListingUse;
use crate::moves::Moves;
use chiton_fuse_session::{INodeNo, Notifier};
use chiton_types::{Ino, Name};
use chiton_wire::Grown;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};

const NAME_TTL_WITHOUT_EPOCHS: Duration = Duration::from_secs(1);
/// In which the kernel drops content; where its pages are larger it drops the one around.
const PAGE_BYTES: u64 = 4096;
/// Most files whose sizes are remembered in [`Kernel::note_unsure`].
const UNSURE_MAX: usize = 65_536;
/// How long a handler waits until the kernel is notified.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same of the thread that ends a lease, for the kernel to read a listing: it needs no more than the processor for that.
const READING_PATIENCE: Duration = Duration::from_millis(200);
/// Maximum number of tasks for the thread. Beyond it no more ends of files wait for it.
const QUEUE_MAX: usize = 65_536;

/// The kernel's side of one mount.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The inode that the kernel calls number 1.
    root: Ino,
    notifier: OnceLock<Notifier>,
    has_epochs: AtomicBool,
    /// The kernel caches no names.
    holds_none: AtomicBool,
    /// Held for reading while a reply with a name is sent.
    replying: RwLock<()>,
    /// One file grows at a time: its stored byte is dropped before the next is stored.
    growing: Mutex<()>,
    /// Sizes that the kernel was given for files and may no longer trust (0: unknown).
    unsure: Mutex<HashMap<Ino, u64>>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Directories that other clients may have moved.
    pub(crate) moves: Moves,
    pub(crate) listings: ListingReplies,
    pub(crate) listing_pages: ListingPages,
    pub(crate) listing_use: ListingUse,
}

/// A reply with a name is being sent.
pub(crate) struct NameReply<'a> {
    /// How long it may be kept.
    pub(crate) ttl: Duration,
    _replying: RwLockReadGuard<'a, ()>,
}

#[derive(Debug)]
enum Later {
    /// Invalidates the range in [`Queue::stale`].
    Inval(Ino),
    Grown(Ino, Grown, mpsc::SyncSender<()>),
    /// Waits until the kernel has read listings of these directories, by a name in each.
    Read(Vec<(Ino, Name)>, mpsc::SyncSender<()>),
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Later>,
    /// The ranges of bytes whose pages do not hold any more, of each inode that waits for it.
    stale: HashMap<Ino, Range<u64>>,
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
            replying: RwLock::new(()),
            growing: Mutex::default(),
            unsure: Mutex::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            moves: Moves::default(),
            listings: ListingReplies::default(),
            listing_pages: ListingPages::default(),
            listing_use: ListingUse::default(),
        }
    }

    /// The directory that is the root of the mount. The kernel sees its own number in replies, and uses number 1 in
    /// requests.
    pub(crate) fn root(&self) -> Ino {
        self.root
    }

    /// The number by which the kernel asks for an inode.
    pub(crate) fn number(&self, ino: Ino) -> INodeNo {
        if ino == self.root { INodeNo::ROOT } else { INodeNo(ino.0) }
    }

    /// Connects the notifier. Before, the kernel caches nothing. (The first notification finds out whether the
    /// kernel has epochs.)
    pub(crate) fn connect(&self, notifier: Notifier) {
        let first = self.notifier.set(notifier).is_ok();
        assert!(first, "a mount has one connection to the kernel");
        self.has_epochs.store(true, Ordering::Relaxed);
        self.new_epoch();
    }

    /// Makes the kernel look up `name` in `parent` again. File systems that are mounted on it, or below it, stay
    /// (before Linux 6.2 they are detached).
    pub(crate) fn inval_entry(&self, parent: Ino, name: &[u8]) {
        self.notify("a name", |notifier| notifier.expire_entry(self.number(parent), name));
    }

    /// Neither attributes nor pages of `ino` hold any more. Dirty pages (of mappings) are written first.
    pub(crate) fn inval_inode(&self, ino: Ino) {
        self.notify("an inode", |notifier| notifier.inval_inode(self.number(ino), 0, 0));
    }

    /// The pages of `ino` in this range of bytes do not hold any more.
    pub(crate) fn inval_range(&self, ino: Ino, range: Range<u64>) {
        let start = i64::try_from(range.start).unwrap_or(i64::MAX);
        // 0 is: to the end.
        let len = i64::try_from(range.end - range.start).unwrap_or(0);
        self.notify("pages", |notifier| notifier.inval_inode(self.number(ino), start, len));
    }

    /// An open file grew on another mount: sets the end of file in the kernel's memory. Mappings, splice and copies
    /// use that end without a request. The kernel accepts a new end only with content, so it gets the last byte.
    pub(crate) fn grown(&self, ino: Ino, grown: Grown) {
        let at = grown.size - 1;
        let (page, page_bytes) = (at / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES as i64);
        let _one = self.growing.lock();
        let drop_page = || {
            self.notify("a page", |notifier| notifier.inval_inode(self.number(ino), page as i64, page_bytes));
        };
        // The kernel moves the end before it takes the byte: a cached page would show zeros behind its former end.
        drop_page();
        self.notify("the size of a file", |notifier| notifier.store(self.number(ino), at, &[grown.last]));
        // The byte is from one moment, and the page around it may be older: the next reader must request it.
        drop_page();
    }

    /// Whether this kernel can forget all names at once.
    pub(crate) fn has_epochs(&self) -> bool {
        self.has_epochs.load(Ordering::Relaxed)
    }

    /// From now on file systems that are mounted inside this mount stay: the kernel gets no more names to cache,
    /// and looks up each name again. (When a kernel invalidates all names, it detaches file systems mounted on them
    /// at the next lookup, and overlayfs fails at the names of its layers.)
    pub(crate) fn keep_mounts(&self) {
        if self.holds_none.load(Ordering::Relaxed) {
            return;
        }
        {
            let _no_reply = self.replying.write();
            if self.holds_none.load(Ordering::Relaxed) {
                return;
            }
            self.holds_none.store(true, Ordering::Relaxed);
        }
        self.new_epoch();
    }

    /// How long the kernel may cache a name that could be cached for `ttl`. Hold the result until the reply is
    /// sent.
    pub(crate) fn reply_with_name(&self, ttl: Duration, is_shared: bool) -> NameReply<'_> {
        let replying = self.replying.read();
        NameReply { ttl: ttl.min(self.name_ttl_max(is_shared)), _replying: replying }
    }

    /// The longest time for which the kernel may cache a name. If names cannot be invalidated all at once, it is
    /// short, and zero in a shared file system. (Invalidating one name waits for the directory's lock. A request
    /// may hold that lock and wait for another client, which may wait for this invalidation.)
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

    /// [`Kernel::inval_inode`] soon, on the notification thread.
    pub(crate) fn inval_inode_later(&self, ino: Ino) {
        self.inval_range_later(ino, 0..u64::MAX);
    }

    /// [`Kernel::inval_range`] soon, on the notification thread; of a range around all that wait for this inode.
    pub(crate) fn inval_range_later(&self, ino: Ino, range: Range<u64>) {
        let mut queue = self.queue.lock();
        if queue.closed {
            return;
        }
        if let Some(all) = queue.stale.get_mut(&ino) {
            *all = all.start.min(range.start)..all.end.max(range.end);
            return;
        }
        queue.stale.insert(ino, range);
        queue.waiting.push_back(Later::Inval(ino));
        self.wake.notify_one();
    }

    /// The kernel was given this size of a file, or a smaller one than the present, and may not trust it.
    pub(crate) fn note_unsure(&self, ino: Ino, size: u64) {
        let mut unsure = self.unsure.lock();
        if unsure.len() >= UNSURE_MAX {
            unsure.clear();
        }
        unsure.insert(ino, size);
    }

    /// The size that the kernel was given for a file and may not trust.
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
        // The notification is late; it is still valid then.
        let _ = is_done.recv_timeout(PATIENCE);
    }

    /// To be called before the kernel is made to forget something, since a lease ends: the kernel has read the listings that say it, or they
    /// say nothing that it may keep.
    pub(crate) fn await_listings(&self) {
        let unread = self.listings.take_unread();
        if unread.is_empty() {
            return;
        }
        let (done, is_done) = mpsc::sync_channel(1);
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                return;
            }
            queue.waiting.push_front(Later::Read(unread, done));
            self.wake.notify_one();
        }
        // A request that waits for this lease may hold the lock of the directory. Then no listing holds it.
        let _ = is_done.recv_timeout(READING_PATIENCE);
    }

    /// Serves [`Kernel::inval_inode_later`], [`Kernel::inval_range_later`] and [`Kernel::grown_soon`] until [`Kernel::close`].
    pub(crate) fn run(self: Arc<Self>) {
        loop {
            let mut queue = self.queue.lock();
            while queue.waiting.is_empty() && !queue.closed {
                self.wake.wait(&mut queue);
            }
            let Some(next) = queue.waiting.pop_front() else { return };
            let stale = match next {
                Later::Inval(ino) => queue.stale.remove(&ino),
                _ => None,
            };
            drop(queue);
            match next {
                Later::Inval(ino) => {
                    if let Some(range) = stale {
                        self.inval_range(ino, range);
                    }
                }
                Later::Read(unread, done) => {
                    // The kernel takes the lock of the directory for it, which it holds while it reads a listing.
                    unread.iter().for_each(|(dir, name)| self.inval_entry(*dir, name.as_bytes()));
                    let _ = done.try_send(());
                }
                Later::Grown(ino, grown, done) => {
                    self.grown(ino, grown);
                    let _ = done.send(());
                }
            }
        }
    }

    /// Ends the notification thread.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.waiting.clear();
        queue.stale.clear();
        self.wake.notify_all();
        self.moves.close();
    }

    fn notify(&self, what: &str, notify: impl FnOnce(&Notifier) -> io::Result<()>) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = notify(notifier) {
            // ENODEV, ENOTCONN: unmounted meanwhile, the kernel holds nothing any more.
            if !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOTCONN)) {
                tracing::warn!("the kernel did not drop {what}: {error}");
            }
        }
    }
}
