//! Files made before the server knows of them, in directories whose names this client holds exclusively.
//!
//! ```text
//!   create ─ create ─ LeaseNames ─▶ held ── create ✓ create ✓ create ✓ … (promised; `sending` tells the server)
//!                                    │
//!        recall, our own chmod, … ───┴▶ not held; asked for again after a while
//! ```
//!
//! Invariants:
//! - An operation is answered here only if the server could not refuse it: the lease is held, all names are known
//!   ([`crate::whole`]) and this one is not among them, the directory's mode and owner allow it, and there is a number.
//!   All else is asked for as always, behind what was promised.
//! - What is promised is noted under the lock that a recall takes before it waits for promises: none comes after.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chiton_namespace::{INLINE_BYTES_MAX, Make, Op, Outcome};
use chiton_proto::{Answer, Call, Foretold, LeaseMode};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Position, ShardId, Time, access};
use chiton_world::sync::Mutex;
use hashbrown::HashMap;

use crate::client::Client;
use crate::generations::Generations;
use crate::service::Caller;

/// After a refusal or a recall they are not asked for again for so long.
const REST: Duration = Duration::from_millis(500);
/// Numbers asked for at first; twice as many each time that they were used up.
const NUMBERS_FIRST: u32 = 256;
const NUMBERS_MAX: u32 = 16_384;
/// Directories of which it is remembered what was made there.
const DIRS_MAX: usize = 4_096;

/// What is held, and what was tried.
pub(crate) struct Ahead(Mutex<Inner>);

struct Inner {
    after: u32,
    held: HashMap<Ino, Dir>,
    numbers: HashMap<ShardId, VecDeque<(Ino, Ino)>>,
    next_numbers: u32,
    tried: Generations<Ino, Tried>,
    /// The server's clock at a moment of ours.
    clock: (Time, Duration),
    last_time: Time,
    /// Calls under way that may end what is held.
    overturning: usize,
}

/// What decides about the making of a file in a directory.
struct Dir {
    mode: Mode,
    uid: u32,
    gid: u32,
}

#[derive(Clone, Copy, Default)]
struct Tried {
    made: u32,
    not_before: Duration,
}

/// A call is under way beside which nothing is promised.
pub(crate) struct Overturning(Arc<Ahead>);

impl Drop for Overturning {
    fn drop(&mut self) {
        self.0.0.lock().overturning -= 1;
    }
}

impl Ahead {
    /// The names of a directory are asked for when so many files were made there one by one.
    pub(crate) fn new(after: u32) -> Ahead {
        Ahead(Mutex::new(Inner {
            after,
            held: HashMap::new(),
            numbers: HashMap::new(),
            next_numbers: NUMBERS_FIRST,
            tried: Generations::new(DIRS_MAX),
            clock: (Time(0), Duration::ZERO),
            last_time: Time(0),
            overturning: 0,
        }))
    }

    /// A file was made in a directory, and the server asked.
    pub(crate) fn made_asking(&self, dir: Ino, outcome: &Outcome) {
        let mut inner = self.0.lock();
        if outcome.attr.is_none() || inner.held.contains_key(&dir) {
            return;
        }
        let tried = inner.tried.get(&dir).copied().unwrap_or_default();
        inner.tried.insert(dir, Tried { made: tried.made.saturating_add(1), ..tried });
    }

    /// The lease on the names of a directory goes. True if it was held.
    pub(crate) fn end(&self, dir: Ino, now: Duration) -> bool {
        let mut inner = self.0.lock();
        let was_held = inner.held.remove(&dir).is_some();
        if was_held {
            inner.tried.insert(dir, Tried { made: 0, not_before: now + REST });
        }
        was_held
    }

    /// A call is about to be asked for that may change who may make what in a directory, or remove it: nothing is promised
    /// until it is over, and known here.
    pub(crate) fn overturn(self: &Arc<Self>, call: &Call) -> Option<Overturning> {
        overturns(call).then(|| {
            self.0.lock().overturning += 1;
            Overturning(self.clone())
        })
    }

    /// All leases are void, and the numbers with them.
    pub(crate) fn clear(&self) {
        let mut inner = self.0.lock();
        inner.held.clear();
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
            inner.next_numbers
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
        inner.held.insert(attr.ino, Dir { mode: attr.mode, uid: attr.uid, gid: attr.gid });
    }

    /// What the file that `make` says will be, if nothing can be in the way of it but a name that is there. `promise`
    /// checks that, and keeps it; then its number is used.
    fn make(
        &self,
        (parent, mode): (Ino, Mode),
        (cred, size): (&Cred, u64),
        now: Duration,
        promise: impl FnOnce(&Attr) -> bool,
    ) -> Option<Attr> {
        let inner = &mut *self.0.lock();
        if inner.overturning > 0 {
            return None;
        }
        let dir = inner.held.get(&parent)?;
        let (gid, mode) = may_make(dir, cred, mode)?;
        let Some((next, end)) = inner.numbers.get_mut(&parent.shard()).and_then(VecDeque::front_mut) else {
            // All used up.
            inner.held.remove(&parent);
            inner.next_numbers = (inner.next_numbers * 2).min(NUMBERS_MAX);
            inner.tried.insert(parent, Tried { made: u32::MAX, not_before: Duration::ZERO });
            return None;
        };
        let (clock, since) = inner.clock;
        let passed = i64::try_from(now.saturating_sub(since).as_nanos()).unwrap_or(i64::MAX);
        let time = Time(clock.0.saturating_add(passed)).max(inner.last_time);
        let attr = Attr {
            ino: *next,
            kind: Kind::File,
            mode,
            nlink: 1,
            uid: cred.uid,
            gid,
            rdev: 0,
            size,
            allocated: size,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            parent,
            // News, whatever position the server gives it.
            position: Position(0),
        };
        if !promise(&attr) {
            return None;
        }
        *next = Ino(next.0 + 1);
        if next >= end
            && let Some(ranges) = inner.numbers.get_mut(&parent.shard())
        {
            ranges.pop_front();
        }
        inner.last_time = time;
        Some(attr)
    }
}

/// Group and mode of a file that is made in a directory, if its mode and owner allow that, and nothing else decides.
fn may_make(dir: &Dir, cred: &Cred, mode: Mode) -> Option<(u32, Mode)> {
    let want = access::WRITE | access::EXEC;
    if access::check(cred, Kind::Dir, dir.mode, dir.uid, dir.gid, want) != Some(true) {
        return None;
    }
    let mode = Mode(mode.0 & 0o7777);
    // Whether the group's bit stays is the server's matter.
    if mode.has(Mode::SETGID) {
        return None;
    }
    Some((if dir.mode.has(Mode::SETGID) { dir.gid } else { cred.gid }, mode))
}

/// Whether an operation may change who may make what in a directory with leased names, or whether it is there: nothing is
/// promised while one is under way.
fn overturns(call: &Call) -> bool {
    let overturns = |op: &Op| match op {
        Op::Make { .. } | Op::Link { .. } | Op::Unlink { .. } | Op::Write { .. } | Op::Clone { .. } => false,
        Op::Rmdir { .. }
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

impl Client {
    /// Carries out an operation here, to be told to the server soon. It comes back if it must be asked for.
    pub(crate) fn operate_ahead(&self, caller: &Caller<'_>, op: Op, open: bool) -> Result<Outcome, Op> {
        let Op::Make { parent, name, make: Make::File { content }, mode } = &op else { return Err(op) };
        let (core, service) = (&self.core, &*self.service);
        let now = core.world.monotonic();
        if !core.works_ahead || content.len() > INLINE_BYTES_MAX || service.valid_until() <= now {
            return Err(op);
        }
        self.lease_names(caller, *parent, now);
        let outline = core.outline(&op);
        let cred = caller.cred();
        let attr = core.ahead.make((*parent, *mode), (&cred, content.len() as u64), now, |attr| {
            if !core.cache.lacks(*parent, name) {
                return false;
            }
            let ops = std::slice::from_ref(&outline);
            core.cache.begins(ops);
            // Under the lock that a recall takes before it forgets what is cached.
            let since = core.cache.since(service.recalls());
            let told = Foretold { ino: attr.ino, time: attr.ctime, open };
            let promised = service.promise(&cred, &op, told);
            if promised {
                let outcome = Outcome { attr: Some(attr.clone()), gone: None, time: Time(0) };
                core.changed(service.recalls(), since, &[(&outline, &outcome, LeaseMode::Exclusive)]);
            }
            core.cache.ended(ops);
            promised
        });
        match attr {
            Some(attr) => Ok(Outcome { attr: Some(attr), gone: None, time: Time(0) }),
            None => Err(op),
        }
    }

    /// Asks for the names of a directory, if files are made there one after the other.
    fn lease_names(&self, caller: &Caller<'_>, dir: Ino, now: Duration) {
        let core = &self.core;
        let Some(numbers) = core.ahead.wanted(dir, now) else { return };
        if !core.cache.is_whole(dir) {
            return;
        }
        let mark = self.service.recalls().now();
        // A refusal is told to whoever asks for what he wants.
        if let Ok(Answer::Names { leased: true, attr, numbers, now }) =
            self.ask(caller, Call::LeaseNames { dir, numbers })
        {
            let clock = (now, core.world.monotonic());
            let holds = || !self.service.recalls().recalled_since(mark, dir);
            core.ahead.granted(&attr, numbers, clock, holds);
        }
    }
}
