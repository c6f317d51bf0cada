//! One realm of this mount: who is inside, which files are open there, and what the kernel was told of it.

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
pub(crate) trait Told {
    /// Says of which inodes the kernel was told something.
    fn told(&self, _note: &mut dyn FnMut(Ino)) {}
}

macro_rules! nothing_told {
    ($($kind:ty),*) => { $(impl Told for $kind {})* };
}
nothing_told!((), u32, u64, usize, Vec<u8>, Option<chiton_wire::Lock>);

/// See the module.
pub(crate) struct Slot {
    number: usize,
    realm: Arc<Realm>,
    way: RootPath,
    /// Held for reading by every request inside, for writing by who gives the realm back.
    gate: RwLock<()>,
    is_over: AtomicBool,
    handles: AtomicU64,
    writers: Writers,
    told: Mutex<InoSet>,
    /// Files that were opened here: what the kernel has of their content is true.
    read_here: Mutex<InoSet>,
    told_of_loss: AtomicBool,
    told_of_end: AtomicBool,
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
            told: Mutex::default(),
            read_here: Mutex::default(),
            told_of_loss: AtomicBool::new(false),
            told_of_end: AtomicBool::new(false),
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

    /// The inode's number says that it is the root, or was made there. Branches have the numbers of others.
    pub(super) fn is_made_there(&self, ino: Ino) -> bool {
        self.realm.branch().is_none() && self.realm.holds_number(ino)
    }

    /// The realm was given back.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.realm.is_ended()
    }

    /// No handle bears its number.
    pub(super) fn is_unused(&self) -> bool {
        self.is_over() && self.handles.load(Ordering::Acquire) == 0
    }

    /// Carries something out while the realm cannot end; `None` if it has.
    pub(super) fn inside<R>(&self, body: impl FnOnce() -> Result<R, Refusal>) -> Result<Option<R>, Refusal> {
        let _inside = self.gate.read();
        if self.is_over() || self.realm.is_settled() {
            return Ok(None);
        }
        // Taken away from elsewhere: nothing is acknowledged that nobody would ever see.
        if self.realm.is_lost() { Err(Refusal::Io) } else { body().map(Some) }
    }

    /// Carries out what may end the realm, while nobody is inside.
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

    pub(crate) fn note_told(&self, ino: Ino) {
        self.told.lock().insert(ino);
    }

    /// Whether what the kernel has of the content of a file that is being opened is of this realm; from now on it is.
    pub(crate) fn had_content(&self, ino: Ino) -> bool {
        !self.read_here.lock().insert(ino)
    }

    /// What the kernel was told of; it is to forget it.
    pub(super) fn take_told(&self) -> InoSet {
        let mut told = std::mem::take(&mut *self.told.lock());
        told.add(std::mem::take(&mut *self.read_here.lock()));
        told
    }

    /// Whether nobody has begun to make the kernel forget.
    pub(super) fn begin_forgetting(&self) -> bool {
        !self.is_forgotten.swap(true, Ordering::Relaxed)
    }

    /// True the first time: that the realm was taken away is said once.
    pub(super) fn tell_of_end(&self) -> bool {
        !self.told_of_end.swap(true, Ordering::Relaxed)
    }

    /// Once for each realm.
    pub(super) fn tell_of_lost_writer(&self, ino: Ino) {
        if !self.told_of_loss.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a file of the decoupled subtree (inode {ino}) was open for writing when the subtree was given back \
                 by force: its descriptors answer EIO from now on"
            );
        }
    }
}
