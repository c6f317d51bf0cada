//! State that recalls, answers and callers share: the cache, the kernel's dentries, write-behind, and the mount that invalidates
//! the kernel's caches.
//!
//! Invariant: it points at nothing above it. The service and the files hold it; [`crate::recall_handler`] holds all three.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chiton_model::{AttrChange, Body, Make, Op, Outcome};
use chiton_namespace::permission::is_list;
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::{SharedWorld, thread};
use chiton_types::{Attr, Ino, Kind, Mode, Name};
use chiton_wire::{Grown, LeaseMode};

use crate::cache::{Cache, Since, narrows};
use crate::cache_invalidation::AbandonedCalls;
use crate::kernel_dentries::{Dentries, KernelDentries};
use crate::write_behind::WriteBehinds;
use crate::{Recalls, Service};

/// How long the kernel may keep what only this process can change.
const FOREVER: Duration = Duration::from_secs(3600);

/// So long does a new connection wait for the kernel to forget the content of open files, and a recall of one plate among several for the
/// names of a directory.
const INVALIDATION_WAIT: Duration = Duration::from_millis(200);

/// Registered by a mount: makes the kernel forget names, attributes and content.
///
/// Called on threads that may wait for the kernel's locks; requests of that kernel are answered meanwhile.
pub trait Invalidator: Send + Sync {
    /// Forget a name (and whether there is one).
    fn inval_entry(&self, parent: Ino, name: &Name);
    /// Forget attributes, and cached content of a file.
    fn inval_inode(&self, ino: Ino);
    /// Forget cached content of a file in this range of bytes.
    fn inval_range(&self, ino: Ino, range: Range<u64>);
    /// A file is longer now. The kernel must take at least this for its end, because it does not ask.
    fn grown(&self, ino: Ino, grown: Grown);
    /// Forget all names of a directory: the kernel keeps more than are remembered.
    fn inval_dir(&self, dir: Ino);
    /// Whether [`Invalidator::inval_dir`] is cheap, waits for nothing and leaves nothing out: then names that are
    /// the kernel keeps need not be remembered one by one.
    fn forgets_names_at_once(&self) -> bool {
        false
    }
}

pub(crate) struct Core {
    pub(crate) cache: Cache,
    pub(crate) write_behind: WriteBehinds,
    pub(crate) abandoned: AbandonedCalls,
    pub(crate) dentries: KernelDentries,
    pub(crate) invalidator: OnceLock<Arc<dyn Invalidator>>,
    pub(crate) world: SharedWorld,
    pub(crate) embedded: bool,
    /// Several plates serve the file system.
    are_several: bool,
    /// The root of the client, if its certificate is limited to a subtree.
    pub(crate) limit: OnceLock<Ino>,
}

impl Core {
    /// The directory at which absolute targets of symbolic links begin.
    pub(crate) fn top(&self) -> Ino {
        self.limit.get().copied().unwrap_or(Ino::ROOT)
    }

    pub(crate) fn new(
        world: SharedWorld,
        service: &dyn Service,
        cache_entries_max: usize,
        write_behind: WriteBehinds,
    ) -> Core {
        let embedded = service.is_embedded();
        Core {
            // The engine is as near as a cache.
            cache: Cache::new(
                if embedded { 0 } else { cache_entries_max },
                service.part_lists(),
                service.plates() > 1,
            ),
            write_behind,
            abandoned: AbandonedCalls::default(),
            dentries: KernelDentries::new(1 << 20),
            invalidator: OnceLock::new(),
            world,
            embedded,
            are_several: service.plates() > 1,
            limit: OnceLock::new(),
        }
    }

    /// The directory whose names an inode has, as the kernel knows it. It has none of a part whose directory is forgotten.
    pub(crate) fn home(&self, ino: Ino) -> Ino {
        self.cache.home(ino).unwrap_or(ino)
    }

    /// For how long what a lease on an inode covers now may be believed.
    pub(crate) fn validity(&self, service: &dyn Service, ino: Ino) -> Duration {
        match self.embedded {
            true => FOREVER,
            false => service.valid_until(ino).saturating_sub(self.world.monotonic()),
        }
    }

    /// Whether each name that the kernel may keep is recorded.
    pub(crate) fn records_names(&self) -> bool {
        self.invalidator.get().is_some() && !self.forgets_names_at_once()
    }

    /// How long the kernel may keep a name of this directory. The name is recorded.
    pub(crate) fn name_ttl(&self, service: &dyn Service, since: Since, parent: Ino, name: &Name) -> Duration {
        // The lease is on the directory, or on the part of it that has the name.
        let Some(at) = self.cache.place_since(since, parent, name) else { return Duration::ZERO };
        if !self.cache.is_open(at) || self.cache.home(at) != Some(parent) {
            return Duration::ZERO;
        }
        let ttl = self.validity(service, at);
        if self.invalidator.get().is_none() || ttl.is_zero() {
            return ttl;
        }
        if self.forgets_names_at_once() {
            let recalled = service.recalls().recalled_since(since.recalls, at);
            return if recalled { Duration::ZERO } else { ttl };
        }
        let now = self.world.monotonic();
        match self.dentries.record(service.recalls(), since.recalls, at, name, now, ttl) {
            true => ttl,
            false => Duration::ZERO,
        }
    }

    /// How long the kernel may keep these attributes.
    pub(crate) fn attr_ttl(
        &self,
        service: &dyn Service,
        since: Since,
        attr: &Attr,
        lease: LeaseMode,
    ) -> Duration {
        if lease == LeaseMode::None || service.recalls().recalled_since(since.recalls, attr.ino) {
            return Duration::ZERO;
        }
        self.validity(service, attr.ino)
    }

    /// A copy of an operation for [`Core::changed`], without what is large and does not matter there.
    pub(crate) fn outline(&self, op: &Op) -> Op {
        if let Op::Make { parent, name, mode, .. } = op {
            let make = Make::File { content: Vec::new() };
            return Op::Make { parent: *parent, name: name.clone(), make, mode: *mode };
        }
        if let Some((ino, name)) = op.xattr()
            && is_list(name)
        {
            // An access control list is permissions, as the mode is.
            let change = AttrChange { mode: Some(Mode(0)), ..AttrChange::default() };
            return Op::SetAttr { ino, change };
        }
        if let Op::Write { ino, .. } | Op::SetXattr { ino, .. } | Op::Remap { ino, .. } = op {
            return Op::Write {
                ino: *ino,
                body: Body::Inline(Vec::new()),
                size: 0,
                mtime: Default::default(),
                kill_setid: false,
                hold: Default::default(),
            };
        }
        op.clone()
    }

    /// Operations of our own were carried out, by one call.
    pub(crate) fn changed(&self, recalls: &Recalls, since: Since, done: &[(&Op, &Outcome, LeaseMode)]) {
        let now = self.world.monotonic();
        for (op, outcome, _) in done {
            // A write's time is the writer's word.
            if !matches!(op, Op::Write { .. }) {
                self.write_behind
                    .of_op(op)
                    .seen(outcome.attr.as_ref().map_or(outcome.time, |attr| attr.ctime));
            }
            if let (Op::Make { parent, .. }, Some(attr)) = (op, &outcome.attr)
                && attr.kind == Kind::Dir
            {
                self.write_behind.of(*parent).made_subdirectory(*parent);
            }
            let dir = outcome.attr.as_ref().filter(|attr| attr.kind == Kind::Dir);
            let changed = if let Op::SetAttr { ino, .. } = op {
                if let Some(attr) = dir {
                    self.write_behind.of(attr.ino).dir_changed(attr);
                }
                Some(*ino).filter(|_| dir.is_none())
            } else {
                outcome.gone.map(|gone| gone.ino).or(outcome.other)
            };
            changed.map(|ino| self.write_behind.of(ino).release(ino, now, || {}));
        }
        self.cache.changed(recalls, since, done.iter().copied());
        for (op, outcome, _) in done {
            if let Op::SetAttr { ino, change } = op
                && narrows(change)
                && let Some(attr) = outcome.attr.as_ref().filter(|attr| attr.kind == Kind::Dir)
            {
                if let Some(invalidator) = self.invalidator.get().filter(|_| self.forgets_names_at_once()) {
                    if !attr.is_open() {
                        invalidator.inval_dir(*ino);
                    }
                    continue;
                }
                // The kernel holds the directory's lock until it has our answer: not on this thread.
                self.invalidate_later(vec![*ino]);
            }
        }
    }

    /// Makes the kernel forget the content of files that are open. It waits for pages that are being read, and a read waits for
    /// the link, whose thread this is. So the caller waits a moment, and the invalidation continues on another thread.
    pub(crate) fn invalidate_content(&self, open: Vec<Ino>) {
        let Some(invalidator) = self.invalidator.get().cloned().filter(|_| !open.is_empty()) else { return };
        wait_a_moment(move || open.into_iter().for_each(|ino| invalidator.inval_inode(ino)));
    }

    /// Makes the kernel forget the names of a directory, or of a part of it, since the lease on it ends.
    pub(crate) fn invalidate_names(&self, invalidator: &Arc<dyn Invalidator>, ino: Ino) {
        let (taken, dir) = (self.dentries.take(ino), self.home(ino));
        if !self.are_several || taken == Dentries::default() {
            return invalidate(&**invalidator, dir, taken);
        }
        // A plate recalls leases also for operations of this client that another plate decides. The kernel holds the locks of these
        // directories until the operation is answered. So the caller waits a moment, and the invalidation continues on another thread.
        let invalidator = invalidator.clone();
        wait_a_moment(move || invalidate(&*invalidator, dir, taken));
    }

    pub(crate) fn invalidate_later(&self, dirs: Vec<Ino>) {
        let Some(invalidator) = self.invalidator.get().cloned() else { return };
        let taken: Vec<_> = dirs.into_iter().map(|dir| (self.home(dir), self.dentries.take(dir))).collect();
        if taken.is_empty() {
            return;
        }
        let work = move || {
            for (dir, taken) in taken {
                invalidate(&*invalidator, dir, taken);
            }
        };
        drop(chiton_runtime::thread::spawn("chiton-inval", work).expect("a thread can be started"));
    }

    pub(crate) fn end_write_behind(&self, ino: Ino) -> bool {
        self.write_behind.of(ino).release(ino, self.world.monotonic(), || self.cache.forget_attr(ino))
    }

    /// Then the kernel's names are not remembered, which costs as much as an operation of a server in this process, and no
    /// recall waits for a directory's lock in the kernel. (Two mounts that both create in one directory hold that
    /// lock, each while it waits for the other to give its lease back: taking names back one by one would hang them.)
    pub(crate) fn forgets_names_at_once(&self) -> bool {
        self.invalidator.get().is_some_and(|invalidator| invalidator.forgets_names_at_once())
    }
}

/// Waits until that is done on a thread of its own, but not for long.
fn wait_a_moment(work: impl FnOnce() + Send + 'static) {
    let done = Arc::new((Mutex::new(false), Condvar::new()));
    let finished = done.clone();
    let body = move || {
        work();
        *finished.0.lock() = true;
        finished.1.notify_all();
    };
    drop(thread::spawn("chiton-inval", body).expect("a thread can be started"));
    let mut is_done = done.0.lock();
    while !*is_done && !done.1.wait_for(&mut is_done, INVALIDATION_WAIT).timed_out() {}
}

/// Makes the kernel forget the names of a directory that replies gave to it.
fn invalidate(invalidator: &dyn Invalidator, dir: Ino, taken: Dentries) {
    for name in &taken.names {
        invalidator.inval_entry(dir, name);
    }
    if taken.more {
        invalidator.inval_dir(dir);
    }
}
