//! Leases on content: asking for them, giving them up, and asking for content under them.
//!
//! ```text
//!   write: leased(Exclusive) ─┐               recall(keep): no new users ─ push ─ drop ─ acknowledge
//!   read:  with_content ──────┴▶ lock held: use it              │
//!                                          users wait here ◀────┘  (the kernel's write-backs continue)
//! ```
//!
//! Invariants:
//! - An answer that grants a lease and a recall travel on two connections. A recall that comes while a lease is asked
//!   for waits a moment for the answer, so that the lease is used once; not for ever, because the server may wait for
//!   this very recall before it answers. Then it is not known whether the answer was older than the recall: it is
//!   void, and asked for again after a pause of random length, so that of two clients that both do so one gets through.
//! - No lock is held while the service is asked.

use std::ops::Range;
use std::time::Duration;

use chiton_runtime::sync::MutexGuard;
use chiton_types::{Attr, Cred, Ino, Position, Refusal, SessionId};
use chiton_wire::{Answer, Call, LeaseMode, Query};

use super::content::Content;
use super::file::{FileState, Inner};
use super::files::Files;
use super::options::DataMode;
use super::push::Scope;
use crate::{CallError, Mark};

/// How long a recall waits for an answer that is under way.
const ANSWER_WAIT: Duration = Duration::from_millis(5);
/// Longest pause before a lease that was recalled too early is asked for again: 2^this milliseconds.
const PAUSE_MS_LOG2_MAX: u32 = 6;

impl Files {
    pub(super) fn call(&self, cred: &Cred, call: Call) -> Result<Answer, Refusal> {
        self.service.call(cred, call).map_err(refusal_of)
    }

    /// To be taken when an answer has come, before the file is locked.
    pub(super) fn now(&self) -> Mark {
        self.service.recalls().now()
    }

    /// Makes attributes that had come at `mark` as old as can be, if the server was restarted since: positions of two starts cannot be
    /// compared.
    pub(super) fn date(&self, mark: Mark, attr: &mut Attr) {
        if self.service.recalls().voided_since(mark) {
            attr.position = Position(0);
        }
    }

    /// Asks the service in this session only.
    pub(super) fn call_in(&self, session: SessionId, cred: &Cred, call: Call) -> Result<Answer, Refusal> {
        self.service.call_in(session, cred, call).map_err(refusal_of)
    }

    pub(super) fn is_linearizable(&self) -> bool {
        self.options.data == DataMode::Linearizable
    }

    /// The file, locked, with a lease of at least `mode` (where leases matter). `during_recall`: for a push that a recall waits for itself.
    pub(super) fn leased<'a>(
        &self,
        file: &'a FileState,
        cred: &Cred,
        mode: LeaseMode,
        during_recall: bool,
    ) -> Result<MutexGuard<'a, Inner>, Refusal> {
        let mut inner = file.lock();
        if !self.is_linearizable() {
            return Ok(inner);
        }
        let mut voided = 0;
        loop {
            if (inner.recalling && !during_recall) || inner.acquiring {
                file.wait(&mut inner);
                continue;
            }
            if inner.lease >= mode && self.world.monotonic() < self.service.valid_until(file.ino) {
                return Ok(inner);
            }
            inner.acquiring = true;
            let recalls = inner.recalls;
            drop(inner);
            let answer = self.call(cred, Call::Lease { ino: file.ino, mode });
            inner = file.lock();
            inner.acquiring = false;
            file.notify();
            match answer? {
                Answer::Lease { mode: granted, attr, is_watched } => {
                    if granted >= mode && inner.recalls == recalls {
                        inner.grant(granted, attr);
                        self.place_appended(&mut inner);
                        inner.is_watched = is_watched;
                        return Ok(inner);
                    }
                    // Recalled meanwhile, or not given for a moment: while a client decouples a subtree, no lease is granted.
                    drop(inner);
                    voided = PAUSE_MS_LOG2_MAX.min(voided + 1);
                    chiton_runtime::thread::sleep(Duration::from_micros(
                        self.world.random() % (1000 << voided),
                    ));
                    inner = file.lock();
                }
                _ => return Err(Refusal::Io),
            }
        }
    }

    /// The file, locked, with its content known from `range.start` on (or the size known to be at most that).
    /// `false`: there is no lease, the content must be forgotten after it was used under this lock.
    pub(super) fn with_content<'a>(
        &self,
        file: &'a FileState,
        cred: &Cred,
        range: Range<u64>,
        during_recall: bool,
    ) -> Result<(MutexGuard<'a, Inner>, bool), Refusal> {
        let mut inner = file.lock();
        loop {
            if self.is_linearizable() && inner.recalling && !during_recall {
                file.wait(&mut inner);
                continue;
            }
            let end = range.end.min(inner.size);
            if self.believes(&inner)
                && (range.start >= end || inner.content.known_to(range.start, end) > range.start)
            {
                return Ok((inner, true));
            }
            let (recalls, changes) = (inner.recalls, inner.changes);
            drop(inner);
            let asked_at = self.world.monotonic();
            let len = range.end - range.start;
            let answer = self.call(cred, Call::Query(Query::Map { ino: file.ino, offset: range.start, len }));
            let mark = self.now();
            inner = file.lock();
            let Answer::Map { mut attr, lease, content } = answer? else { return Err(Refusal::Io) };
            self.date(mark, &mut attr);
            // Older than what we know by now: using it would mix two states of the file.
            if inner.changes != changes || attr.position < inner.attr.position {
                continue;
            }
            let mut keep = true;
            if !self.is_linearizable() {
                inner.adopt(attr);
            } else if inner.recalls == recalls && lease.max(inner.lease) > LeaseMode::None {
                let lease = lease.max(inner.lease);
                inner.grant(lease, attr);
            } else {
                keep = false;
                inner.content = Content::Unknown;
                inner.adopt(attr);
            }
            self.place_appended(&mut inner);
            inner.content_at = asked_at;
            if !inner.content.install(content, range.start) {
                return Err(Refusal::Io);
            }
            return Ok((inner, keep));
        }
    }

    /// Whether nobody else may look at the file now without asking us.
    pub(super) fn owns(&self, inner: &Inner) -> bool {
        self.is_linearizable()
            && inner.lease == LeaseMode::Exclusive
            && !inner.recalling
            && inner.cloning == 0
    }

    /// Whether cached content may be used without asking.
    fn believes(&self, inner: &Inner) -> bool {
        if inner.cloning > 0 {
            return false;
        }
        match self.options.data {
            DataMode::Linearizable => {
                inner.lease >= LeaseMode::Shared
                    && self.world.monotonic() < self.service.valid_until(inner.attr.ino)
            }
            DataMode::CloseToOpen => true,
            DataMode::Lazy => {
                inner.is_dirty() || self.world.monotonic() < inner.content_at + self.options.flush_interval
            }
        }
    }

    /// Gives a lease back: pushes dirty data, then drops the cached state beyond `keep`. To be called on a thread that
    /// holds nothing. Bytes that cannot be pushed are lost: EIO, or the store's reason, at the next flush, fsync or release of
    /// each handle, at the next fsync of the file, and at the next sync.
    pub fn recall(&self, ino: Ino, keep: LeaseMode) {
        if !self.is_linearizable() {
            return;
        }
        let Some(file) = self.find(ino) else { return };
        let mut inner = file.lock();
        if inner.acquiring {
            file.wait_for(&mut inner, ANSWER_WAIT);
        }
        while inner.recalling {
            file.wait(&mut inner);
        }
        inner.recalling = true;
        inner.recalls += 1;
        while inner.is_dirty() || inner.in_flight {
            drop(inner);
            let result = self.push(&file, Scope::All);
            inner = file.lock();
            if let Err(refusal) = result {
                inner.note_failure(refusal);
                self.give_up(ino, &mut inner, refusal, true);
            }
        }
        inner.lease = inner.lease.min(keep);
        if inner.lease == LeaseMode::None {
            inner.content = Content::Unknown;
        }
        inner.recalls += 1;
        inner.recalling = false;
        file.notify();
    }
}

fn refusal_of(error: CallError) -> Refusal {
    match error {
        CallError::Refused(refusal) => refusal,
        CallError::NeedGroups => Refusal::Access,
    }
}
