//! What is done before the server knows of it, in directories whose names this client holds exclusively.
//!
//! ```text
//!   create ─ create ─ LeaseNames ─▶ held ── create ✓ write ✓ create ✓ … (promised; `sender` tells the server)
//!                                    │
//!        recall, numbers used up, … ──┴▶ not held; asked for again after a while
//! ```
//!
//! Invariants:
//! - An operation is answered here only if the server could not refuse it: see [`decide`].
//! - What is promised is noted under the lock that a recall takes before it waits for promises: none comes after.

mod decide;
mod pending;
pub(crate) mod sender;

pub(crate) use decide::dir_of;
pub(crate) use pending::{Behind, PendingOps, disappointed, foretold, lease_on, makes};

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Op, Outcome};
use chiton_namespace::{ContentIn, Fault, InodeFacts, Need, PlanState, permission};
use chiton_runtime::sync::Mutex;
use chiton_types::{Attr, Cred, Ino, Name, ShardId, Time};
use chiton_wire::{Answer, Call};
use hashbrown::HashMap;

use crate::client::Client;
use crate::core::Core;
use crate::generations::Generations;
use crate::service::{Caller, Service};
use decide::Promising;

/// After a refusal or a recall they are not asked for again for so long.
const REST: Duration = Duration::from_millis(500);
/// Numbers asked for at first; twice as many each time that they were used up.
const NUMBERS_FIRST: u32 = 256;
const NUMBERS_MAX: u32 = 16_384;
/// Directories of which it is remembered what was made there.
const DIRS_MAX: usize = 4_096;
/// Files made here that may be written here.
const FILES_MAX: usize = 65_536;

/// What is held, and what was tried.
pub(crate) struct WriteBehind(Mutex<Inner>);

struct Inner {
    after: u32,
    held: HashMap<Ino, Dir>,
    /// How often names were leased.
    leases: u64,
    /// What was made under a lease on the names of its directory, but directories: that directory, and under which. As long
    /// as it is held, nobody else has seen the file.
    files: Generations<Ino, (Ino, u64)>,
    numbers: HashMap<ShardId, VecDeque<(Ino, Ino)>>,
    next_numbers: u32,
    tried: Generations<Ino, Tried>,
    /// The server's clock at a moment of ours.
    clock: (Time, Duration),
    last_time: Time,
    /// Calls under way that may end what is held.
    overturning: usize,
}

/// A directory whose names are held.
struct Dir {
    /// Of the link count at most so much is true.
    facts: InodeFacts,
    /// Which lease it is.
    lease: u64,
}

/// Nothing is known but the inodes that are asked about.
struct NothingElse;

impl PlanState for NothingElse {
    fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault> {
        Err(Need::Inode(ino).into())
    }

    fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault> {
        Err(Need::Entry(dir.ino, name.clone()).into())
    }
}

#[derive(Clone, Copy, Default)]
struct Tried {
    made: u32,
    not_before: Duration,
}

/// A call is under way beside which nothing is promised.
pub(crate) struct Overturning(Arc<WriteBehind>);

impl Drop for Overturning {
    fn drop(&mut self) {
        self.0.0.lock().overturning -= 1;
    }
}

impl WriteBehind {
    /// The names of a directory are asked for when so many were changed there one by one.
    pub(crate) fn new(after: u32) -> WriteBehind {
        WriteBehind(Mutex::new(Inner {
            after,
            held: HashMap::new(),
            leases: 0,
            files: Generations::new(FILES_MAX),
            numbers: HashMap::new(),
            next_numbers: NUMBERS_FIRST,
            tried: Generations::new(DIRS_MAX),
            clock: (Time(0), Duration::ZERO),
            last_time: Time(0),
            overturning: 0,
        }))
    }

    /// A name of a directory was changed, and the server asked.
    pub(crate) fn changed_asking(&self, dir: Ino) {
        let mut inner = self.0.lock();
        if inner.held.contains_key(&dir) {
            return;
        }
        let tried = inner.tried.get(&dir).copied().unwrap_or_default();
        inner.tried.insert(dir, Tried { made: tried.made.saturating_add(1), ..tried });
    }

    /// The server has changed something at this time: by our clock it may be earlier, and what is promised comes later.
    pub(crate) fn seen(&self, time: Time) {
        let mut inner = self.0.lock();
        inner.last_time = inner.last_time.max(time);
    }

    /// A directory has other attributes, and the server was asked.
    pub(crate) fn dir_changed(&self, attr: &Attr) {
        let mut inner = self.0.lock();
        // Of two that are under way the one that is heard last need not be the last.
        if inner.overturning > 1 {
            inner.held.remove(&attr.ino);
        }
        if let Some(dir) = inner.held.get_mut(&attr.ino) {
            let nlink = dir.facts.nlink;
            dir.facts = InodeFacts { nlink, ..InodeFacts::new(attr, ContentIn::Nothing) };
        }
    }

    /// Whether somebody may search a directory, if its names are held: its attributes change with each name.
    pub(crate) fn may_search(&self, dir: Ino, cred: &Cred) -> Option<bool> {
        let inner = self.0.lock();
        let dir = inner.held.get(&dir)?;
        match permission::may_search(&NothingElse, cred, &dir.facts) {
            Ok(()) => Some(true),
            Err(Fault::Refused(_)) => Some(false),
            Err(Fault::NeedGroups | Fault::Missing(_)) => None,
        }
    }

    /// Whether a file was made here, and nobody else can have given it extended attributes, nor have we.
    pub(crate) fn is_bare(&self, ino: Ino) -> bool {
        let mut inner = self.0.lock();
        let Some(&(parent, lease)) = inner.files.get(&ino) else { return false };
        inner.overturning == 0 && inner.held.get(&parent).is_some_and(|dir| dir.lease == lease)
    }

    /// A directory was made in another, and the server asked.
    pub(crate) fn dir_made(&self, parent: Ino) {
        if let Some(dir) = self.0.lock().held.get_mut(&parent) {
            dir.facts.nlink += 1;
        }
    }

    /// A lease goes: on the names of a directory, or on a file; then `forget` what is cached under it. True if those names
    /// were held.
    pub(crate) fn end(&self, ino: Ino, now: Duration, forget: impl FnOnce()) -> bool {
        let mut inner = self.0.lock();
        let was_held = inner.held.remove(&ino).is_some();
        if was_held {
            inner.tried.insert(ino, Tried { made: 0, not_before: now + REST });
        }
        inner.files.remove(&ino);
        forget();
        was_held
    }

    /// A call is about to be asked for that may change who may make what in a directory, or remove it: nothing is promised
    /// until it is over, and known here.
    pub(crate) fn overturn(self: &Arc<Self>, call: &Call) -> Option<Overturning> {
        overturns(call).then(|| {
            let mut inner = self.0.lock();
            inner.overturning += 1;
            // What may have a name elsewhere then may be seen by others.
            match call {
                Call::Op {
                    op: Op::Link { ino, .. } | Op::LinkUnnamed { ino, .. } | Op::SetXattr { ino, .. },
                    ..
                } => {
                    inner.files.remove(ino);
                }
                Call::Op { op: Op::Rename { .. }, .. } | Call::Batch { .. } => inner.files.clear(),
                _ => {}
            }
            Overturning(self.clone())
        })
    }

    /// All leases are void, and the numbers with them.
    pub(crate) fn clear(&self) {
        let mut inner = self.0.lock();
        inner.held.clear();
        inner.files.clear();
        inner.numbers.clear();
    }

    /// How many numbers to ask for with the names of a directory, if it is time to ask.
    fn wanted(&self, dir: Ino, now: Duration) -> Option<u32> {
        let mut inner = self.0.lock();
        let tried = inner.tried.get(&dir).copied().unwrap_or_default();
        let wanted = !inner.held.contains_key(&dir) && tried.made >= inner.after && tried.not_before <= now;
        wanted.then(|| {
            // Whoever asks meanwhile waits for his turn.
            inner.tried.insert(dir, Tried { not_before: now + REST, ..tried });
            let ranges = inner.numbers.get(&dir.shard()).into_iter().flatten();
            let left: u64 = ranges.map(|(next, end)| end.0 - next.0).sum();
            if left < u64::from(NUMBERS_FIRST) { inner.next_numbers } else { 0 }
        })
    }

    /// The names of a directory are leased. `holds` says whether that still holds.
    fn granted(
        &self,
        attr: &Attr,
        numbers: (Ino, Ino),
        clock: (Time, Duration),
        holds: impl FnOnce() -> bool,
    ) {
        let mut inner = self.0.lock();
        if !holds() {
            return;
        }
        inner.clock = clock;
        // The server's clock may have been set: nothing is made before the names were given, nor before the last.
        inner.last_time = inner.last_time.max(clock.0);
        if numbers.0 < numbers.1 {
            inner.numbers.entry(attr.ino.shard()).or_default().push_back(numbers);
        }
        inner.hold(attr);
    }
}

impl Inner {
    /// The names of a directory are held from now on.
    fn hold(&mut self, attr: &Attr) {
        self.leases += 1;
        let dir = Dir { facts: InodeFacts::new(attr, ContentIn::Nothing), lease: self.leases };
        self.held.insert(attr.ino, dir);
    }

    /// The next number of a shard. `None`: all are used up, and more come with the names of this directory.
    fn number(&mut self, dir: Ino) -> Option<Ino> {
        if let Some((next, _)) = self.numbers.get(&dir.shard()).and_then(VecDeque::front) {
            return Some(*next);
        }
        self.held.remove(&dir);
        self.next_numbers = (self.next_numbers * 2).min(NUMBERS_MAX);
        self.tried.insert(dir, Tried { made: u32::MAX, not_before: Duration::ZERO });
        None
    }

    /// That number is used.
    fn use_number(&mut self, ino: Ino) {
        let Some(ranges) = self.numbers.get_mut(&ino.shard()) else { return };
        let Some((next, end)) = ranges.front_mut() else { return };
        *next = Ino(ino.0 + 1);
        if next >= end {
            ranges.pop_front();
        }
    }

    /// The server's clock, as far as it is known; it does not go back.
    fn time(&self, now: Duration) -> Time {
        let (clock, since) = self.clock;
        let passed = i64::try_from(now.saturating_sub(since).as_nanos()).unwrap_or(i64::MAX);
        Time(clock.0.saturating_add(passed)).max(self.last_time)
    }
}

/// Whether an operation may change who may make what in a directory with leased names, whether it is there, or what names
/// stand for: nothing is promised while one is under way.
fn overturns(call: &Call) -> bool {
    let overturns = |op: &Op| match op {
        Op::Make { .. } | Op::Write { .. } => false,
        Op::MakeUnnamed { .. }
        | Op::LinkUnnamed { .. }
        | Op::Link { .. }
        | Op::Unlink { .. }
        | Op::Clone { .. }
        | Op::Rmdir { .. }
        | Op::Rename { .. }
        | Op::SetAttr { .. }
        | Op::SetXattr { .. }
        | Op::RemoveXattr { .. }
        | Op::Remap { .. }
        | Op::Reclaim { .. } => true,
    };
    match call {
        Call::Op { op, .. } => overturns(op),
        Call::Batch { ops, .. } => ops.iter().any(overturns),
        Call::Realm(_) => true,
        _ => false,
    }
}

impl Core {
    /// Who promises now, if anything can be promised.
    fn promising<'a>(
        &'a self,
        service: &'a dyn Service,
        (cred, umask): (&'a Cred, u16),
    ) -> Option<Promising<'a>> {
        if !self.works_ahead {
            return None;
        }
        let now = self.world.monotonic();
        let needs_cred = Cell::new(false);
        (service.valid_until() > now).then_some(Promising {
            core: self,
            service,
            cred,
            umask,
            now,
            needs_cred,
        })
    }

    /// Writes all of a small file here, to be told to the server soon: its attributes then, if that is possible. `known`:
    /// what is known of it, under an exclusive lease.
    pub(crate) fn write_ahead(
        &self,
        service: &dyn Service,
        cred: &Cred,
        op: &Op,
        known: &Attr,
    ) -> Option<Attr> {
        self.promising(service, (cred, 0))?.write(op, known)
    }
}

impl Client {
    /// Carries out an operation here, to be told to the server soon. `None`: it must be asked for.
    pub(crate) fn operate_ahead(&self, caller: &Caller<'_>, op: &Op, open: bool) -> Option<Outcome> {
        let dir = dir_of(op)?;
        let (cred, umask) = apart(caller.cred());
        let promising = self.core.promising(&*self.service, (&cred, umask))?;
        self.lease_names(caller, dir, promising.now);
        self.promised(caller, promising, |promising| promising.operate(op, open))
    }

    /// Promises something, if it can be: with all credentials where less does not decide.
    fn promised<R>(
        &self,
        caller: &Caller<'_>,
        promising: Promising<'_>,
        promise: impl Fn(&Promising<'_>) -> Option<R>,
    ) -> Option<R> {
        let promised = promise(&promising);
        if promised.is_some() || !promising.needs_cred.get() {
            return promised;
        }
        let (cred, umask) = apart(caller.full_cred());
        promise(&self.core.promising(&*self.service, (&cred, umask))?)
    }

    /// The same for a change of attributes, but not of the size: the attributes then. What was written before is sent, or
    /// promised.
    pub(crate) fn set_attr_ahead(&self, caller: &Caller<'_>, op: &Op, ino: Ino) -> Option<Attr> {
        let (cred, umask) = apart(caller.cred());
        let promising = self.core.promising(&*self.service, (&cred, umask))?;
        let mut known = self.core.cache.exclusive_attr(ino)?;
        self.files.overlay(&mut known);
        self.promised(caller, promising, |promising| promising.set_attr(op, &known))
    }

    /// Asks for the names of a directory, if files are made there one after the other.
    fn lease_names(&self, caller: &Caller<'_>, dir: Ino, now: Duration) {
        let core = &self.core;
        let Some(numbers) = core.write_behind.wanted(dir, now) else { return };
        if !core.cache.is_complete(dir) {
            return;
        }
        let mark = self.service.recalls().now();
        // A refusal is told to whoever asks for what he wants.
        if let Ok(Answer::Names { leased: true, attr, numbers, now }) =
            self.ask(caller, Call::LeaseNames { dir, numbers })
        {
            let clock = (now, core.world.monotonic());
            let holds = || !self.service.recalls().recalled_since(mark, dir);
            core.write_behind.granted(&attr, numbers, clock, holds);
        }
    }
}

/// Credentials without the umask, and that: where it is applied here, promises of the same caller are one message.
fn apart(cred: Cred) -> (Cred, u16) {
    let umask = cred.umask;
    (Cred { umask: 0, ..cred }, umask)
}
