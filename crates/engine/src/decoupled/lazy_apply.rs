//! Files that a decoupled client makes: in its journal at once, in memory when they are looked at.
//!
//! ```text
//!   create ── plan ── frame ──▶ journal              apply_to ── apply ──▶ namespace
//!     │                └─ copy ─▶ pending ───────────────▲
//!     └ the name is new: neither in memory nor pending   └ before anything else is asked of the engine
//! ```
//!
//! A job that makes files and is merged needs its journal only: the merge reads that. So the larger half of a create,
//! which is to keep it in memory, waits until the engine is used for anything but another one, and is often never done.
//!
//! Invariants:
//! - A server that serves others has none of this: its engine applies what it journals at once.
//! - Pending are only new, empty files in directories that are in memory; no event stands between them.
//! - Any other use of the engine applies them first (`server/src/engine_lock.rs`).
//! - What cannot be decided without looking further is not lazy: the usual path decides.

use chiton_model::{Event, Make, Op};
use chiton_namespace::{Context, Namespace, plan};
use chiton_types::frame::{FrameBuilder, FrameHeader};
use chiton_types::{Attr, Cred, Ino, Mode, Name, Position, Seq, SessionId, Take};
use hashbrown::{HashMap, HashSet};

use crate::engine::Engine;
use crate::moment::{Health, Moment};
use crate::parts::Output;

/// Bytes of pending events above which creates take the usual path, which applies them: some seconds of work.
const LAZY_BYTES_MAX: usize = 256 << 20;

/// New, empty files of one directory.
pub struct Creates<'a> {
    pub session: SessionId,
    pub cred: &'a Cred,
    pub parent: Ino,
    /// Their names in that directory.
    pub names: &'a [&'a [u8]],
    pub mode: Mode,
}

/// The creates that are in the journal of a decoupled client and not yet in its engine's memory. The engine does not know
/// of them: this type stands beside it.
#[derive(Debug, Default)]
pub struct LazyApply {
    /// The events, one after the other, as in the journal.
    events: Vec<u8>,
    count: u64,
    /// By directory the hashes of the names.
    names: HashMap<Ino, HashSet<u64>>,
    /// Kept to spare allocations.
    planned: Vec<Event>,
}

impl LazyApply {
    /// True if something is in the journal that is not in memory.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.count > 0
    }

    /// Makes files in their order, until one needs more than this can do: that one, and those behind it, go the usual
    /// way. Adds the attributes of those made to `made`.
    pub fn create(&mut self, engine: &mut Engine, creates: &Creates<'_>, m: &Moment, made: &mut Vec<Attr>) {
        if self.events.len() >= LAZY_BYTES_MAX || !may_be_lazy(engine, creates, m) {
            return;
        }
        let before = made.len();
        for name in creates.names {
            match self.create_one(engine, creates, name, m) {
                Some(attr) => made.push(attr),
                None => break,
            }
        }
        if made.len() > before
            && let Some(session) = engine.clients.sessions.get_mut(creates.session)
        {
            session.heard = m.mono;
            session.request_count += 1;
        }
    }

    fn create_one(
        &mut self,
        engine: &mut Engine,
        creates: &Creates<'_>,
        name: &[u8],
        m: &Moment,
    ) -> Option<Attr> {
        let Engine { shards, decoupled, counters, .. } = &mut *engine;
        let numbers = &mut decoupled.as_mut()?.numbers;
        let name = Name::new(name).ok()?;
        let hash = name.hash64();
        if self.names.get(&creates.parent).is_some_and(|names| names.contains(&hash)) {
            return None;
        }
        let offered = numbers.offer(creates.parent.shard()).ok()??;
        let make = Make::File { content: Vec::new() };
        let op = Op::Make { parent: creates.parent, name, make, mode: creates.mode };
        // Nobody but this caller has anything open, or holds a lease.
        let context = Context { cred: creates.cred, now: m.now, offered, is_open: &|_| false, frees: false };
        self.planned.clear();
        plan(&shards.ns, &op, &context, &mut self.planned).ok()?;
        // A file that inherits access lists takes several events.
        let [event] = &self.planned[..] else { return None };
        numbers.take(offered);
        counters.count(op.counter());
        engine.write_skipped();
        let Output { frames, frame_events, position, .. } = &mut engine.output;
        let header =
            FrameHeader { event_count: 1, shard: event.shard(), session: creates.session, seq: Seq(0) };
        let mut frame = FrameBuilder::begin(frames, &header);
        let start = frame.payload().len();
        event.encode(frame.payload());
        self.events.extend_from_slice(&frame.payload()[start..]);
        frame.close();
        *frame_events += 1;
        *position = position.next();
        self.count += 1;
        self.names.entry(creates.parent).or_default().insert(hash);
        Some(event.born(*position).expect("the event makes a file"))
    }

    /// Applies pending files to the engine's memory.
    #[inline]
    pub fn apply_to(&mut self, engine: &mut Engine) {
        if self.has_pending() {
            self.apply_all(&mut engine.shards.ns, engine.output.position);
        }
    }

    fn apply_all(&mut self, ns: &mut Namespace, last: Position) {
        let LazyApply { events, count, .. } = std::mem::take(self);
        let mut events = Take::new(&events);
        let mut position = Position(last.0 - count);
        for _ in 0..count {
            position = position.next();
            let event = Event::decode(&mut events).expect("it was encoded here");
            ns.apply(&event, position);
        }
    }
}

/// Whether the caller is alone, and nothing that a policy says is to be looked at for each of them.
fn may_be_lazy(engine: &mut Engine, creates: &Creates<'_>, m: &Moment) -> bool {
    let Engine { clients, shards, decoupled, recovery, .. } = engine;
    let Some(session) = clients.sessions.get(creates.session) else { return false };
    decoupled.as_ref().is_some_and(|decoupled| !decoupled.borders.contains(&creates.parent))
        && recovery.is_none()
        && clients.resends.tasks.is_empty()
        && m.health == Health::Good
        && !m.budget_spent
        && !shards.frozen
        && clients.leases.is_alone(session.slot)
        && !shards.ns.has_decouplings()
        && shards.ns.policy_version() == 0
        && matches!(shards.answers_when_durable(creates.parent), Ok(false))
}
