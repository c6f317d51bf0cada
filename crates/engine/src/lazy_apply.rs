//! Files that a decoupled client makes: in its journal at once, in memory when somebody looks.
//!
//! ```text
//!   create_lazily ── plan ── frame ──▶ journal       apply_pending ── apply ──▶ namespace
//!        │                    └─ copy ─▶ pending ────────────▲
//!        └ the name is new: neither in memory nor pending    └ before anything else is asked of the engine
//! ```
//!
//! A job that makes files and is merged needs its journal only: the merge reads that. So the larger half of a create,
//! which is to keep it in memory, waits until the engine is used for anything but another one, and is often never done.
//!
//! Invariants:
//! - Pending are only new, empty files in directories that are in memory; no event stands between them.
//! - Whoever takes the engine for anything else applies them first (`server/src/engine_lock.rs`).
//! - What cannot be decided without looking further is not lazy: the usual path decides.

use chiton_model::{Event, Make, Op};
use chiton_namespace::{Context, plan};
use chiton_types::frame::{FrameBuilder, FrameHeader};
use chiton_types::{Attr, Cred, Ino, Mode, Name, Position, Seq, SessionId, Take};
use hashbrown::{HashMap, HashSet};

use crate::engine::Engine;
use crate::moment::{Health, Moment};

/// Bytes of pending events above which creates take the usual path, which applies them: some seconds of work.
const LAZY_BYTES_MAX: usize = 256 << 20;

/// New, empty files of one directory.
pub struct Creates<'a> {
    /// Who asks.
    pub session: SessionId,
    /// As whom.
    pub cred: &'a Cred,
    /// Where.
    pub parent: Ino,
    /// What they are called.
    pub names: &'a [&'a [u8]],
    /// Their permissions.
    pub mode: Mode,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LazyApply {
    /// The events, one after the other, as in the journal.
    events: Vec<u8>,
    count: u64,
    /// By directory the hashes of the names.
    names: HashMap<Ino, HashSet<u64>>,
}

impl Engine {
    /// True if something is in the journal that is not in memory.
    #[inline]
    pub fn has_unapplied(&self) -> bool {
        self.decoupled.lazy.count > 0
    }

    /// Makes files in their order, until one needs more than this can do: that one, and those behind it, go the usual
    /// way. Adds the attributes of those made to `made`.
    pub fn create_lazily(&mut self, creates: &Creates<'_>, m: &Moment, made: &mut Vec<Attr>) {
        if !self.may_be_lazy(creates, m) {
            return;
        }
        // Nobody but this caller has anything open, or holds a lease.
        let is_open = |_: Ino| false;
        let before = made.len();
        let make = Make::File { content: Vec::new() };
        for name in creates.names {
            let Ok(name) = Name::new(name) else { break };
            let hash = name.hash64();
            if self.decoupled.lazy.names.get(&creates.parent).is_some_and(|names| names.contains(&hash)) {
                break;
            }
            let granted = self.decoupled.granted.as_ref().expect("a realm has granted numbers");
            let Ok(Some(offered)) = granted.offer(creates.parent.shard()) else { break };
            let op = Op::Make { parent: creates.parent, name, make: make.clone(), mode: creates.mode };
            self.events.clear();
            let context = Context { cred: creates.cred, now: m.now, offered, is_open: &is_open };
            // What inherits access lists is made by several.
            if plan(&self.shards.ns, &op, &context, &mut self.events).is_err() || self.events.len() > 1 {
                break;
            }
            made.push(self.journal_only(creates.session));
            self.decoupled.lazy.names.entry(creates.parent).or_default().insert(hash);
            self.decoupled.granted.as_mut().expect("a realm has granted numbers").take(offered);
            self.counters.count(op.counter());
        }
        if made.len() > before
            && let Some(session) = self.clients.sessions.get_mut(creates.session)
        {
            session.heard = m.mono;
            session.request_count += 1;
        }
    }

    /// Whether the caller is alone, and nothing that a policy says is to be looked at for each of them.
    fn may_be_lazy(&mut self, creates: &Creates<'_>, m: &Moment) -> bool {
        let Some(session) = self.clients.sessions.get_mut(creates.session) else { return false };
        let slot = session.slot;
        self.is_realm()
            && self.recovery.is_none()
            && self.queue.resends.is_empty()
            && m.health == Health::Good
            && !m.budget_spent
            && !self.frozen
            && self.clients.leases.is_alone(slot)
            && !self.shards.ns.has_decouplings()
            && !self.decoupled.borders.contains(&creates.parent)
            && self.decoupled.lazy.events.len() < LAZY_BYTES_MAX
            && self.shards.ns.policy_version() == 0
            && matches!(self.shards.answers_when_durable(creates.parent), Ok(false))
    }

    /// Writes the planned event as one frame, to be applied later.
    fn journal_only(&mut self, session: SessionId) -> Attr {
        self.write_skipped();
        let [event] = &self.events[..] else { unreachable!("a file is made by one event") };
        let header = FrameHeader { event_count: 1, shard: event.shard(), session, seq: Seq(0) };
        let mut frame = FrameBuilder::begin(&mut self.output.frames, &header);
        let start = frame.payload().len();
        event.encode(frame.payload());
        self.decoupled.lazy.events.extend_from_slice(&frame.payload()[start..]);
        frame.seal();
        self.output.frame_events += 1;
        self.decoupled.lazy.count += 1;
        self.output.position = self.output.position.next();
        event.born(self.output.position).expect("the event makes a file")
    }

    /// Brings what is deferred into memory, if anything is.
    #[inline]
    pub fn apply_pending(&mut self) {
        if self.has_unapplied() {
            self.apply_all();
        }
    }

    fn apply_all(&mut self) {
        let deferred = std::mem::take(&mut self.decoupled.lazy);
        let mut events = Take::new(&deferred.events);
        let mut position = Position(self.output.position.0 - deferred.count);
        for _ in 0..deferred.count {
            position = position.next();
            let event = Event::decode(&mut events).expect("it was encoded here");
            self.shards.ns.apply(&event, position);
        }
    }
}
