//! One realm of this mount: the requests inside, its open files, and the inodes that the kernel caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chiton_client::OpenFlags;
use chiton_decoupled::Realm;
use chiton_types::{Ino, Refusal};
use parking_lot::{Mutex, RwLock};

use super::ino_set::InoSet;
use super::root_path::RootPath;
use super::writers::Writers;

/// An answer that the kernel may keep.
pub(crate) trait CachedByKernel {
    /// Passes each inode that the kernel may cache to `note`.
    fn cached(&self, _note: &mut dyn FnMut(Ino)) {}
}

macro_rules! caches_nothing {
    ($($kind:ty),*) => { $(impl CachedByKernel for $kind {})* };
}
caches_nothing!((), u32, u64, usize, Vec<u8>, Option<chiton_wire::Lock>);

/// One realm of this mount.
pub(crate) struct Slot {
    number: usize,
    realm: Arc<Realm>,
    way: RootPath,
    /// Held for reading by every request inside, and for writing to give the realm back.
    gate: RwLock<()>,
    is_over: AtomicBool,
    handles: AtomicU64,
    writers: Writers,
    cached: Mutex<InoSet>,
    /// Files that were opened here: the content that the kernel caches is valid.
    read_here: Mutex<InoSet>,
    loss_reported: AtomicBool,
    end_reported: AtomicBool,
    is_forgotten: AtomicBool,
}

impl Slot {
    pub(super) fn new(number: usize, realm: Arc<Realm>, way: RootPath) -> Slot {
        Slot {
            number,
            realm,
            way,
            gate: RwLock::default(),
            is_over: AtomicBool::new(false),
            handles: AtomicU64::new(0),
            writers: Writers::default(),
            cached: Mutex::default(),
            read_here: Mutex::default(),
            loss_reported: AtomicBool::new(false),
            end_reported: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
        }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn realm(&self) -> &Arc<Realm> {
        &self.realm
    }

    pub(super) fn is_named(&self, parent: Ino, name: &[u8]) -> bool {
        self.way.ends_with(parent, name)
    }

    /// The directories that lead to its root.
    pub(crate) fn way(&self) -> &RootPath {
        &self.way
    }

    /// Whether the number shows that the inode is the root, or was created in the realm. A branch has no numbers of
    /// its own.
    pub(super) fn is_made_there(&self, ino: Ino) -> bool {
        self.realm.branch().is_none() && self.realm.holds_number(ino)
    }

    /// Whether the realm was given back.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.realm.is_ended()
    }

    /// Whether no handle refers to the slot.
    pub(super) fn is_unused(&self) -> bool {
        self.is_over() && self.handles.load(Ordering::Acquire) == 0
    }

    /// Carries something out while the realm cannot end; `None` if it has.
    pub(super) fn inside<R>(&self, body: impl FnOnce() -> Result<R, Refusal>) -> Result<Option<R>, Refusal> {
        let _inside = self.gate.read();
        if self.is_over() || self.realm.is_settled() {
            return Ok(None);
        }
        // The decoupling was ended elsewhere: acknowledge nothing that would be lost.
        if self.realm.is_lost() { Err(Refusal::Io) } else { body().map(Some) }
    }

    /// Runs `body`, which may end the realm, while no request is inside.
    pub(crate) fn give_back<R>(&self, body: impl FnOnce() -> R) -> R {
        let _alone = self.gate.write();
        let result = body();
        if self.realm.is_ended() {
            self.is_over.store(true, Ordering::Release);
        }
        result
    }

    pub(super) fn count_open(&self, flags: OpenFlags, number: u64, ino: Ino) {
        self.handles.fetch_add(1, Ordering::AcqRel);
        if flags.write {
            self.writers.add(number, ino);
        }
    }

    pub(super) fn count_closed(&self, flags: OpenFlags, number: u64) {
        if flags.write {
            self.writers.remove(number);
        }
        self.handles.fetch_sub(1, Ordering::AcqRel);
    }

    /// A descriptor of a file is closed: maybe not the last one.
    pub(crate) fn note_flushed(&self, number: u64) {
        self.writers.note_flushed(number);
    }

    /// How many files are open for writing; after `patience`, if they may all be closed already and no process `has_open`
    /// one of them.
    pub(crate) fn writers_after(&self, patience: Duration, has_open: impl FnOnce(&[Ino]) -> bool) -> usize {
        self.writers.count_after(patience, has_open)
    }

    pub(crate) fn note_cached(&self, ino: Ino) {
        self.cached.lock().insert(ino);
    }

    /// Whether the content that the kernel caches of this file is the realm's. From now on it is.
    pub(crate) fn had_content(&self, ino: Ino) -> bool {
        !self.read_here.lock().insert(ino)
    }

    /// The inodes that the kernel may cache, for invalidation.
    pub(super) fn take_cached(&self) -> InoSet {
        let mut cached = std::mem::take(&mut *self.cached.lock());
        cached.add(std::mem::take(&mut *self.read_here.lock()));
        cached
    }

    /// True for the first caller, which must invalidate the kernel's caches.
    pub(super) fn begin_forgetting(&self) -> bool {
        !self.is_forgotten.swap(true, Ordering::Relaxed)
    }

    /// True the first time, so that the loss of the realm is logged once.
    pub(super) fn is_first_report_of_end(&self) -> bool {
        !self.end_reported.swap(true, Ordering::Relaxed)
    }

    /// Logs a lost writer, once for each realm.
    pub(super) fn report_lost_writer(&self, ino: Ino) {
        if !self.loss_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a file of the decoupled subtree (inode {ino}) was open for writing when the subtree was given back \
                 by force: its descriptors answer EIO from now on"
            );
        }
    }
}
