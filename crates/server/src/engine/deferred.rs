//! Files that a decoupled client makes: in its journal at once, in memory when somebody looks.
//!
//! ```text
//!   create_ahead ── plan ── frame ──▶ journal              settle ── apply ──▶ namespace
//!        │                    └─ copy ─▶ deferred ───────────▲
//!        └ the name is new: neither in memory nor deferred   └ before anything else is asked of the engine
//! ```
//!
//! A job that makes files and is merged needs its journal only: the merge reads that. So the larger half of a create,
//! which is to keep it in memory, waits until the engine is used for anything but another one, and is often never done.
//!
//! Invariants:
//! - What is deferred are new, empty files in directories that are in memory; no event stands between them.
//! - Whoever takes the engine otherwise than for another of them settles first (`runtime/engine_lock.rs`).
//! - What cannot be decided without looking further is not deferred: the usual path decides.

use chiton_journal::{FrameBuilder, FrameHeader};
use chiton_model::{Event, Make, Op};
use chiton_namespace::Context;
use chiton_types::{Attr, Cred, Ino, Mode, Name, Position, Seq, SessionId, Take};
use hashbrown::{HashMap, HashSet};

use crate::engine::counters::kind_of_op;
use crate::engine::driver::shard_of;
use crate::engine::{Engine, Health, Moment};

/// Bytes of deferred events above which the usual path goes on, which settles: some seconds of work.
const DEFERRED_BYTES_MAX: usize = 256 << 20;

/// New, empty files of one directory.
pub(crate) struct Creates<'a> {
    /// Who asks.
    pub(crate) session: SessionId,
    /// As whom.
    pub(crate) cred: &'a Cred,
    /// Where.
    pub(crate) parent: Ino,
    /// What they are called.
    pub(crate) names: &'a [&'a [u8]],
    /// Their permissions.
    pub(crate) mode: Mode,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// The events, one after the other, as in the journal.
    events: Vec<u8>,
    count: u64,
    /// By directory the hashes of the names.
    names: HashMap<Ino, HashSet<u64>>,
}

impl Engine {
    /// True if something is in the journal that is not in memory.
    #[inline]
    pub(crate) fn is_deferring(&self) -> bool {
        self.deferred.count > 0
    }

    /// Makes files in their order, until one needs more than this can do: that one, and those behind it, go the usual
    /// way. Adds the attributes of those made to `made`.
    pub(crate) fn create_ahead(&mut self, creates: &Creates<'_>, m: &Moment, made: &mut Vec<Attr>) {
        if !self.may_defer(creates, m) {
            return;
        }
        // Nobody but this caller has anything open, or holds a lease.
        let is_open = |_: Ino| false;
        let before = made.len();
        let make = Make::File { content: Vec::new() };
        for name in creates.names {
            let Ok(name) = Name::new(name) else { break };
            let hash = name.hash64();
            if self.deferred.names.get(&creates.parent).is_some_and(|names| names.contains(&hash)) {
                break;
            }
            let granted = self.granted.as_ref().expect("a realm has granted numbers");
            let Ok(Some(offered)) = granted.offer(creates.parent.shard()) else { break };
            let op = Op::Make { parent: creates.parent, name, make: make.clone(), mode: creates.mode };
            self.events.clear();
            let context = Context { cred: creates.cred, now: m.now, offered, is_open: &is_open };
            // What inherits access lists is made by several.
            if self.ns.plan(&op, &context, &mut self.events).is_err() || self.events.len() > 1 {
                break;
            }
            made.push(self.defer(creates.session));
            self.deferred.names.entry(creates.parent).or_default().insert(hash);
            self.granted.as_mut().expect("a realm has granted numbers").take(offered);
            self.counters.count(kind_of_op(&op));
        }
        if made.len() > before
            && let Some(session) = self.sessions.get_mut(creates.session)
        {
            session.heard = m.mono;
            session.request_count += 1;
        }
    }

    /// Whether the caller is alone, and nothing that a policy says is to be looked at for each of them.
    fn may_defer(&mut self, creates: &Creates<'_>, m: &Moment) -> bool {
        let Some(session) = self.sessions.get_mut(creates.session) else { return false };
        let slot = session.slot;
        self.is_realm()
            && self.recovery.is_none()
            && self.resends.is_empty()
            && m.health == Health::Good
            && !m.backlog_full
            && !self.frozen
            && self.leases.is_alone(slot)
            && !self.ns.has_decouplings()
            && !self.borders.contains(&creates.parent)
            && self.deferred.events.len() < DEFERRED_BYTES_MAX
            && self.ns.policy_version() == 0
            && matches!(self.answers_when_durable(creates.parent), Ok(false))
    }

    /// Writes the planned event as one frame, to be applied later.
    fn defer(&mut self, session: SessionId) -> Attr {
        self.write_skipped();
        let [event] = &self.events[..] else { unreachable!("a file is made by one event") };
        let header = FrameHeader { event_count: 1, shard: shard_of(event), session, seq: Seq(0) };
        let mut frame = FrameBuilder::begin(&mut self.frames, &header);
        let start = frame.payload().len();
        event.encode(frame.payload());
        self.deferred.events.extend_from_slice(&frame.payload()[start..]);
        frame.seal();
        self.frame_events += 1;
        self.deferred.count += 1;
        self.position = self.position.next();
        event.born(self.position).expect("the event makes a file")
    }

    /// Brings what is deferred into memory, if anything is.
    #[inline]
    pub(crate) fn settle_deferred(&mut self) {
        if self.is_deferring() {
            self.apply_deferred();
        }
    }

    fn apply_deferred(&mut self) {
        let deferred = std::mem::take(&mut self.deferred);
        let mut events = Take::new(&deferred.events);
        let mut position = Position(self.position.0 - deferred.count);
        for _ in 0..deferred.count {
            position = position.next();
            let event = Event::decode(&mut events).expect("it was encoded here");
            self.ns.apply(&event, position);
        }
    }
}
