//! Whose an inode is: the global client's, or that of a realm which this mount has decoupled.
//!
//! ```text
//!                        ┌─ no realm ─▶ global client ─┐ Undecoupled: decouple, ask again
//!   request ─ inode ─────┤                             ▼
//!                        └─ realm ───▶ gate ─▶ the realm's client
//!   handle = slot of the realm | how it was opened | number at its client
//! ```
//!
//! Invariants:
//! - Without realms nothing is looked up.
//! - While a realm is being given back, no request is inside. Acknowledged changes are merged or dropped with it,
//!   and the next request for the same inode goes to another client.
//! - A slot is not used again while a handle bears its number.
//! - The mount of a branch has that branch for everything: when it is over, nothing can be asked any more.
//! - A file that was opened before its directory was decoupled continues in the realm. A file that was opened for
//!   reading in a realm continues without it.

mod handle;
mod ino_set;
mod root_path;
mod slot;
mod writers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chiton_client::{Caller, Client, Entry, Groups, Lookup, OpenFlags};
use chiton_decoupled::{Realm, RealmError, Realms};
use chiton_fuse_session::FileHandle;
use chiton_types::{Attr, Ino, Refusal};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

pub(crate) use self::handle::Handle;
pub(crate) use self::root_path::PathStep;
use self::root_path::RootPath;
pub(crate) use self::slot::{CachedByKernel, Slot};
use crate::invalidator::KernelInvalidator;
use crate::kernel::Kernel;

/// How often a request looks for the place of its inode anew, which changes when realms begin and end.
const TRIES: usize = 8;

/// Finds the client that serves an inode.
pub(crate) struct Router {
    global: Arc<Client>,
    realms: Option<Arc<Realms>>,
    kernel: Arc<Kernel>,
    /// Slots by number, from 1.
    slots: RwLock<Vec<Option<Arc<Slot>>>>,
    /// There is, or was, a realm.
    has_slots: AtomicBool,
    /// Open files that continue in another client, by the handle that the kernel has.
    moved: Mutex<HashMap<u64, Handle>>,
    /// Held while one subtree is decoupled.
    decoupling: Mutex<()>,
    /// The whole mount is this branch.
    branch: Option<Arc<Slot>>,
    /// The mount's device number, `major:minor`.
    device: OnceLock<String>,
}

/// The target of a request.
pub(crate) enum Route<'a> {
    Global(&'a Arc<Client>),
    Realm(&'a Arc<Slot>),
}

impl std::ops::Deref for Route<'_> {
    type Target = Arc<Client>;

    fn deref(&self) -> &Arc<Client> {
        match self {
            Route::Global(client) => client,
            Route::Realm(slot) => slot.realm().client(),
        }
    }
}

impl Route<'_> {
    /// Whether the request goes to a realm, where no other client changes anything.
    pub(crate) fn is_realm(&self) -> bool {
        matches!(self, Route::Realm(_))
    }

    /// The handle for the kernel of a file that was opened here.
    pub(crate) fn opened(&self, number: u64, ino: Ino, flags: OpenFlags) -> Handle {
        let slot = match self {
            Route::Global(_) => 0,
            Route::Realm(slot) => {
                slot.count_open(flags, number, ino);
                slot.number()
            }
        };
        Handle::new(slot, flags, number)
    }
}

impl Router {
    pub(crate) fn new(global: Arc<Client>, realms: Option<Arc<Realms>>, kernel: Arc<Kernel>) -> Router {
        let router = Router {
            global,
            realms,
            kernel,
            slots: RwLock::default(),
            has_slots: AtomicBool::new(false),
            moved: Mutex::default(),
            decoupling: Mutex::default(),
            branch: None,
            device: OnceLock::new(),
        };
        // Decouplings that an earlier mount left are resumed.
        for realm in router.realms.iter().flat_map(|realms| realms.list()) {
            router.slot(&realm);
        }
        router
    }

    /// A router for the mount of a branch. `realms` belongs to the client that has the branch, and contains only
    /// that branch.
    pub(crate) fn of_branch(
        global: Arc<Client>,
        realms: Arc<Realms>,
        branch: &Arc<Realm>,
        kernel: Arc<Kernel>,
    ) -> Router {
        let mut router = Router::new(global, Some(realms), kernel);
        router.branch = Some(router.slot(branch));
        router
    }

    /// The branch that the whole mount is.
    pub(crate) fn branch(&self) -> Option<&Arc<Slot>> {
        self.branch.as_ref()
    }

    /// It is mounted, under this device number.
    pub(crate) fn note_device(&self, device: String) {
        let first = self.device.set(device).is_ok();
        assert!(first, "a mount has one device");
    }

    /// The mount's device number, if it is known.
    pub(crate) fn device(&self) -> Option<&str> {
        self.device.get().map(String::as_str)
    }

    /// The client of everything that is not in a realm.
    pub(crate) fn global(&self) -> &Arc<Client> {
        &self.global
    }

    /// The realms of this mount, unless it does not decouple.
    pub(crate) fn realms(&self) -> Option<&Arc<Realms>> {
        self.realms.as_ref()
    }

    pub(crate) fn slot_of(&self, ino: Ino) -> Option<Arc<Slot>> {
        if self.branch.is_some() {
            return self.branch.clone();
        }
        let realms = self.realms.as_ref()?;
        if let Some(slot) = self.slot_where(|slot| slot.is_made_there(ino)) {
            return Some(slot);
        }
        // The server need not be asked.
        if let Some(beyond) = self.slot_where(|slot| slot.way().dir(ino).is_some()) {
            return self.slot_along(beyond.way(), ino);
        }
        let realm = realms.of(ino)?;
        Some(self.slot(&realm))
    }

    /// The realm of a directory on the way to another one's root.
    fn slot_along(&self, way: &RootPath, ino: Ino) -> Option<Arc<Slot>> {
        let mut within = None;
        for dir in way.dirs() {
            if let Some(slot) = self.slot_at(dir.ino) {
                within = Some(slot);
            } else if self.is_border(dir.ino) {
                within = None;
            }
            if dir.ino == ino {
                break;
            }
        }
        within
    }

    fn slot_where(&self, is_it: impl Fn(&Slot) -> bool) -> Option<Arc<Slot>> {
        self.find_slot(|slot| is_it(slot).then(|| slot.clone()))
    }

    /// The first result of `look` at an open realm.
    fn find_slot<R>(&self, look: impl Fn(&Arc<Slot>) -> Option<R>) -> Option<R> {
        if !self.has_slots.load(Ordering::Acquire) {
            return None;
        }
        self.slots.read().iter().flatten().find_map(|slot| look(slot).filter(|_| !slot.is_over()))
    }

    /// The client of an inode, for use that may outlast its realm.
    pub(crate) fn client_of(&self, ino: Ino) -> Arc<Client> {
        self.slot_of(ino).map_or_else(|| self.global.clone(), |slot| slot.realm().client().clone())
    }

    /// The realm whose root this is.
    pub(crate) fn slot_at(&self, root: Ino) -> Option<Arc<Slot>> {
        self.slot_where(|slot| slot.realm().root() == root)
    }

    /// The realm whose root has this name. (The server hides the subtree from its owner's global client, too.)
    pub(crate) fn slot_named(&self, parent: Ino, name: &[u8]) -> Option<Arc<Slot>> {
        self.slot_where(|slot| slot.is_named(parent, name))
    }

    /// Whether a subtree that is decoupled here ends at this directory.
    pub(crate) fn is_border(&self, ino: Ino) -> bool {
        self.slot_where(|slot| slot.realm().is_border(ino)).is_some()
    }

    /// The slot of a realm; it gets one when it is met for the first time.
    pub(crate) fn slot(&self, realm: &Arc<Realm>) -> Arc<Slot> {
        let is_its = |slot: &&Arc<Slot>| Arc::ptr_eq(slot.realm(), realm);
        if let Some(slot) = self.slots.read().iter().flatten().find(is_its) {
            return slot.clone();
        }
        let way = self.way_to(realm);
        let mut slots = self.slots.write();
        if let Some(slot) = slots.iter().flatten().find(is_its) {
            return slot.clone();
        }
        realm.client().set_invalidator(Arc::new(KernelInvalidator::new(self.kernel.clone())));
        if slots.is_empty() {
            // Number 0 is the global client.
            slots.push(None);
        }
        let is_free = |slot: &Option<Arc<Slot>>| slot.as_ref().is_none_or(|slot| slot.is_unused());
        let at = slots.iter().skip(1).position(is_free).map_or(slots.len(), |at| at + 1);
        let slot = Arc::new(Slot::new(at, realm.clone(), way));
        match slots.get_mut(at) {
            Some(place) => *place = Some(slot.clone()),
            None => slots.push(Some(slot.clone())),
        }
        self.has_slots.store(true, Ordering::Release);
        slot
    }

    /// How a realm's root is reached, which does not change while there is the realm.
    fn way_to(&self, realm: &Realm) -> RootPath {
        let Some(realms) = self.realms.as_ref().filter(|_| realm.branch().is_none()) else {
            return RootPath::default();
        };
        let path = realms.path_of(realm).map_err(|error| error.to_string());
        let way = path.and_then(|path| RootPath::find(&self.global, &path).map_err(|why| why.to_string()));
        way.unwrap_or_else(|why| {
            tracing::warn!(
                "the path of the decoupled subtree of inode {} is not known: {why}",
                realm.root().0
            );
            RootPath::default()
        })
    }

    /// The step that a name takes, if it is on the path to a realm.
    pub(crate) fn step_on_the_way(&self, parent: Ino, name: &[u8]) -> Option<PathStep> {
        self.find_slot(|slot| slot.way().step(slot.realm().root(), parent, name))
    }

    /// The directory in which the root of a realm lies; `None` if the inode is no such root.
    pub(crate) fn above_root(&self, ino: Ino) -> Option<Ino> {
        Some(self.slot_at(ino)?.way().dirs().last()?.ino)
    }

    /// A directory on the path to a realm, as it was when the subtree was decoupled.
    pub(crate) fn dir_on_the_way(&self, ino: Ino) -> Option<Attr> {
        self.find_slot(|slot| slot.way().dir(ino).cloned())
    }

    /// Sends a request to the client of the inodes. They must have the same client: no operation crosses the border
    /// of a realm.
    pub(crate) fn on<R: CachedByKernel, const N: usize>(
        &self,
        caller: &Caller<'_>,
        inos: [Ino; N],
        mut body: impl FnMut(&Route<'_>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        for _ in 0..TRIES {
            let slots = inos.map(|ino| self.slot_of(ino));
            let numbers = slots.each_ref().map(|slot| slot.as_ref().map_or(0, |slot| slot.number()));
            if numbers.iter().any(|number| *number != numbers[0]) {
                return Err(Refusal::CrossDevice);
            }
            if let Some(result) = self.attempt(caller, inos[0], slots[0].as_ref(), &mut body)? {
                return Ok(result);
            }
        }
        Err(Refusal::Busy)
    }

    /// As [`Router::on`], with the handles' numbers at that client.
    pub(crate) fn on_files<R: CachedByKernel, const N: usize>(
        &self,
        caller: &Caller<'_>,
        files: [(FileHandle, Ino); N],
        mut body: impl FnMut(&Route<'_>, [u64; N]) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        for _ in 0..TRIES {
            let mut numbers = [0; N];
            let mut slots = [const { None }; N];
            for (at, (fh, ino)) in files.iter().enumerate() {
                let (slot, handle) = self.locate(*fh, *ino)?;
                (slots[at], numbers[at]) = (slot, handle.number());
            }
            let first = slots[0].as_ref().map_or(0, |slot: &Arc<Slot>| slot.number());
            if slots.iter().any(|slot| slot.as_ref().map_or(0, |slot| slot.number()) != first) {
                return Err(Refusal::CrossDevice);
            }
            let asked =
                self.attempt(caller, files[0].1, slots[0].as_ref(), &mut |route| body(route, numbers));
            if let Some(result) = asked? {
                return Ok(result);
            }
        }
        Err(Refusal::Busy)
    }

    /// `None`: the inode has another place meanwhile.
    fn attempt<R: CachedByKernel>(
        &self,
        caller: &Caller<'_>,
        ino: Ino,
        slot: Option<&Arc<Slot>>,
        body: &mut impl FnMut(&Route<'_>) -> Result<R, Refusal>,
    ) -> Result<Option<R>, Refusal> {
        let Some(slot) = slot else {
            return match body(&Route::Global(&self.global)) {
                Err(Refusal::Undecoupled) => {
                    self.decouple(caller, ino)?;
                    Ok(None)
                }
                // Decoupled here since it was looked up.
                Err(Refusal::Busy) if self.slot_of(ino).is_some() => Ok(None),
                result => result.map(Some),
            };
        };
        let asked = slot.inside(|| {
            let result = body(&Route::Realm(slot))?;
            result.cached(&mut |ino| slot.note_cached(ino));
            Ok(result)
        });
        match asked {
            // It ended within, by an administrator's word or another client's.
            Ok(None) | Err(Refusal::NotConnected | Refusal::Stale) if slot.is_over() => {
                self.forget_later(slot);
                if self.branch.is_some() { Err(Refusal::NotConnected) } else { Ok(None) }
            }
            Err(Refusal::Io) if slot.realm().is_lost() => {
                if slot.is_first_report_of_end() {
                    let trouble = slot.realm().status().trouble.unwrap_or_default();
                    tracing::warn!("{trouble}; until then every operation in the subtree is refused (EIO)");
                    self.forget_later(slot);
                }
                Err(Refusal::Io)
            }
            asked => asked,
        }
    }

    /// Decouples the subtree whose policy holds for `ino`, as that policy says.
    fn decouple(&self, caller: &Caller<'_>, ino: Ino) -> Result<(), Refusal> {
        let Some(realms) = &self.realms else { return Err(Refusal::Io) };
        let _one = self.decoupling.lock();
        if self.slot_of(ino).is_some() {
            return Ok(());
        }
        let decoupled = realms.root_of(ino).and_then(|root| realms.decouple(caller, root, None, None));
        if let Err(error) = &decoupled
            && error.refusal() == Refusal::CrossDevice
        {
            // The servers have found that the subtree lies on several plates, and work in it themselves.
            tracing::info!("{error}; its changes go to the servers");
            return Ok(());
        }
        let realm = decoupled.map_err(|error| {
            tracing::warn!(
                "cannot decouple a subtree before the first change in it, as its policy asks: {error}"
            );
            error.refusal()
        })?;
        tracing::info!(
            "decoupled inode {} as its policy says ({})",
            realm.root().0,
            realm.status().composition
        );
        self.slot(&realm);
        Ok(())
    }

    /// Decouples the directory `root`, as `policy` says (YAML) or the one that holds there.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn decouple_at(
        &self,
        caller: &Caller<'_>,
        root: Ino,
        policy: Option<&[u8]>,
    ) -> Result<Arc<Slot>, RealmError> {
        let Some(realms) = self.realms.as_ref().filter(|_| self.branch.is_none()) else {
            let (what, next) = match self.branch {
                Some(_) => (
                    "this is a mount of a branch",
                    "work in it: the changes stay in the branch until it is merged",
                ),
                None => ("this mount does not decouple directories", "mount again without --no-decouple"),
            };
            return Err(RealmError::new(Refusal::Unsupported, what, next));
        };
        let _one = self.decoupling.lock();
        if self.slot_at(root).is_some() {
            let next = "`chiton diff` shows the changes; chiton merge or chiton discard ends it";
            return Err(RealmError::new(Refusal::Busy, "this mount has already decoupled it", next));
        }
        Ok(self.slot(&realms.decouple(caller, root, policy, None)?))
    }

    /// Merges a realm and ends it, for a request that cannot be carried out while there is the realm.
    ///
    /// # Errors
    /// [`Refusal::Busy`] while files are open for writing there, or if it cannot be merged.
    pub(crate) fn give_back_whole(&self, slot: &Arc<Slot>) -> Result<(), Refusal> {
        if slot.writers_after(Duration::from_millis(200), |_| false) > 0 {
            return Err(Refusal::Busy);
        }
        let merged = slot.give_back(|| slot.realm().merge(&|_| {}));
        let why = match merged {
            Ok(report) if report.ended => {
                self.forget_later(slot);
                return Ok(());
            }
            // Another thread has given it back.
            _ if slot.is_over() => return Ok(()),
            Ok(report) => report.conflicts_in_short(),
            Err(error) => error.to_string(),
        };
        tracing::warn!("rmdir: the decoupled directory cannot be merged first: {why}");
        Err(Refusal::Busy)
    }

    /// The present client and handle of a file that the kernel knows as `fh`.
    fn locate(&self, fh: FileHandle, ino: Ino) -> Result<(Option<Arc<Slot>>, Handle), Refusal> {
        let mut handle = Handle(fh.0);
        if !self.has_slots.load(Ordering::Acquire) {
            return Ok((None, handle));
        }
        if let Some(moved) = self.moved.lock().get(&fh.0) {
            handle = *moved;
        }
        for _ in 0..TRIES {
            let from = self.by_number(handle.slot());
            match &from {
                Some(slot) if !slot.is_over() || self.branch.is_some() => return Ok((from, handle)),
                None if self.slot_of(ino).is_none() => return Ok((None, handle)),
                _ => handle = self.rehome(fh, ino, handle, from.as_ref())?,
            }
        }
        Err(Refusal::Busy)
    }

    /// A realm began or ended around an open file: it is opened again where its inode is now.
    fn rehome(
        &self,
        fh: FileHandle,
        ino: Ino,
        handle: Handle,
        from: Option<&Arc<Slot>>,
    ) -> Result<Handle, Refusal> {
        let mut moved = self.moved.lock();
        match moved.get(&fh.0) {
            Some(there) if *there != handle => return Ok(*there),
            _ => {}
        }
        let flags = handle.flags();
        if let Some(slot) = from.filter(|_| flags.write) {
            slot.report_lost_writer(ino);
            return Err(Refusal::Io);
        }
        let to = self.slot_of(ino);
        let route = to.as_ref().map_or(Route::Global(&self.global), Route::Realm);
        // It was permitted when it was opened.
        let groups: Arc<[u32]> = Arc::new([]);
        let root = Caller { uid: 0, gid: 0, groups: Groups::Known(&groups) };
        let number = route.open(&root, ino, flags).inspect_err(|refusal| {
            tracing::warn!("a file that was open when its subtree was decoupled, merged or dropped (inode {ino}) cannot be opened again where it is now: {refusal}");
        })?;
        let there = route.opened(number, ino, flags);
        moved.insert(fh.0, there);
        drop(moved);
        // Nothing is dirty: dirty content was pushed when the realm began or was given back.
        let _ = self.close(handle, from);
        Ok(there)
    }

    /// The last descriptor of a handle is closed.
    pub(crate) fn release(&self, fh: FileHandle) -> Result<(), Refusal> {
        let moved = match self.has_slots.load(Ordering::Acquire) {
            true => self.moved.lock().remove(&fh.0),
            false => None,
        };
        let handle = moved.unwrap_or(Handle(fh.0));
        self.close(handle, self.by_number(handle.slot()).as_ref())
    }

    fn close(&self, handle: Handle, at: Option<&Arc<Slot>>) -> Result<(), Refusal> {
        let Some(slot) = at else { return self.global.release(handle.number()) };
        let closed = slot.inside(|| slot.realm().client().release(handle.number()));
        slot.count_closed(handle.flags(), handle.number());
        closed.map(|_| ())
    }

    fn by_number(&self, number: usize) -> Option<Arc<Slot>> {
        if number == 0 {
            return None;
        }
        self.slots.read().get(number).cloned().flatten()
    }

    /// A realm is over: makes the kernel forget its inodes. Must not run on a thread that carries out a request.
    pub(crate) fn forget(&self, slot: &Slot) {
        forget(&self.kernel, slot);
    }

    /// Keeps file systems that are mounted inside (see [`Kernel::keep_mounts`]).
    pub(crate) fn keep_mounts(&self) {
        self.kernel.keep_mounts();
    }

    fn forget_later(&self, slot: &Arc<Slot>) {
        if slot.begin_forgetting() {
            let (kernel, slot) = (self.kernel.clone(), slot.clone());
            let spawned = std::thread::Builder::new()
                .name("chiton-forget".to_owned())
                .spawn(move || forget(&kernel, &slot));
            if let Err(error) = spawned {
                tracing::warn!(
                    "the kernel may show old content of a subtree whose decoupling has ended: {error}; mount again to be sure"
                );
            }
        }
    }
}

fn forget(kernel: &Kernel, slot: &Slot) {
    kernel.forget_all_names();
    for ino in slot.take_cached().iter() {
        kernel.inval_inode(ino);
    }
}

impl CachedByKernel for Entry {
    fn cached(&self, note: &mut dyn FnMut(Ino)) {
        note(self.attr.ino);
    }
}

impl CachedByKernel for Lookup {
    fn cached(&self, note: &mut dyn FnMut(Ino)) {
        if let Lookup::Found { attr, .. } = self {
            note(attr.ino);
        }
    }
}
