//! From rows and journal frames back to the state at which the server stopped.
//!
//! Invariants:
//! - The frames are applied in order, whole; a frame that waits for rows resumes where it stopped.
//! - Sessions and their dedup come out as rows and frames say, nothing more.

use std::time::Duration;

use chiton_merge::Rebased;
use chiton_model::{Event, FrameEvents, Gone};
use chiton_namespace::{Fault, Misfit, Namespace, Need};
use chiton_types::frame::FrameHeader;
use chiton_types::{Ino, Malformed, Position, Seq, SessionId, ShardId};

use crate::counters::Counters;
use crate::dedup::Done;
use crate::engine::Engine;
use crate::inodes::Inodes;
use crate::leases::Leases;
use crate::locks::Locks;
use crate::moment::Moment;
use crate::opens::Opens;
use crate::parts::{Clients, Output, Queue, Shards};
use crate::peers::Peers;
use crate::realms::Realms;
use crate::recovery::{Recovery, Window};
use crate::rows::OwnRows;
use crate::sessions::Sessions;
use crate::sessions::parse_event_identity;
use crate::settings::Settings;
use crate::step::malformed;
use crate::subtree::Subtrees;

/// Why a frame is not replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayFault {
    /// Install these rows and replay the same frame again.
    Missing(Vec<Need>),
    /// The frame's payload is not what the format says.
    Malformed(Malformed),
    /// An event does not fit the state: journal and metadata store do not belong together, or a tool changed one.
    Misfit(Position, Misfit),
}

impl From<Malformed> for ReplayFault {
    fn from(m: Malformed) -> ReplayFault {
        ReplayFault::Malformed(m)
    }
}

impl Engine {
    /// The state of a checkpoint. Frames after its position are to be replayed, then [`Engine::begin`] be called.
    pub fn from_rows(settings: Settings, ns: Namespace, rows: OwnRows, m: &Moment) -> Engine {
        assert_eq!(settings.shard_weights.len(), rows.marks.len(), "a weight for each shard");
        let mut peers = Peers::new(settings.plate, settings.plates);
        let mut ns = ns;
        if let Some(peers) = &mut peers {
            peers.restore(rows.peers);
            ns.keep_to(settings.plates.shards_of(settings.plate));
        }
        let mut engine = Engine {
            clients: Clients {
                sessions: Sessions::default(),
                expired: Default::default(),
                opens: Opens::default(),
                leases: Leases::new(
                    settings.lease_entries_max,
                    Duration::from_millis(settings.lease_rest_ms.into()),
                ),
                growths: Default::default(),
                locks: Locks::default(),
                lock_grants: Vec::new(),
                resends: Default::default(),
            },
            shards: Shards {
                ns,
                inodes: Inodes::new(&[]),
                marks_at_start: rows.marks,
                orphans: Default::default(),
                reclaims: Default::default(),
                emptying: Default::default(),
                far: Default::default(),
                turns: 0,
                splits: Default::default(),
                lingering: Default::default(),
                fragmented: Default::default(),
                fragments: Default::default(),
                policies: Default::default(),
                volatile: crate::volatile::Volatile::at(rows.position),
                realms: Realms::new(settings.plate, settings.plates),
                dirty_rows_max: settings.dirty_rows_max,
                frozen: false,
            },
            output: Output { position: rows.position, ..Output::default() },
            queue: Queue::default(),
            decoupled: None,
            settings,
            peers,
            recovery: None,
            opened: None,
            subtrees: Subtrees::default(),
            counters: Counters::default(),
            disk: (0, 0),
            events: Vec::new(),
            touched: Vec::new(),
        };
        for (id, secret, identity, dedup) in rows.sessions {
            engine.clients.sessions.insert(id, secret, identity, false, m.mono);
            engine.clients.sessions.get_mut(id).expect("just inserted").dedup = dedup;
        }
        for (id, over) in rows.over {
            engine.clients.sessions.remember(id, over);
        }
        engine
    }

    /// Applies a frame of the journal that follows what was applied so far. If rows are missing, install them and
    /// call again with the same frame: events that are applied already are passed over. `base_changes`: others may have
    /// changed what the events were planned on, so that names must be looked at.
    pub fn replay(
        &mut self,
        header: &FrameHeader,
        first: Position,
        payload: &[u8],
        base_changes: bool,
        m: &Moment,
    ) -> Result<(), ReplayFault> {
        self.shards.note_own_frame(header, payload)?;
        let (mut subject, mut born) = (None, None);
        for event in FrameEvents::new(first, header.event_count, payload) {
            let (position, event) = event?;
            let last = Position(position.0.saturating_add(u64::from(event.positions() - 1)));
            let footprint = event.footprint();
            subject = subject.or_else(|| Some((footprint.subject_inode()?, footprint.loser())));
            born = born.or_else(|| event.born(position)?.btime.into());
            if last > self.output.position {
                let mut needs = self.shards.ns.needs(&event);
                if base_changes {
                    needs.extend(self.shards.ns.needs_names(&event));
                }
                if !needs.is_empty() {
                    return Err(ReplayFault::Missing(needs));
                }
                if position > self.output.position.next() {
                    return Err(malformed("the event after the last one").into());
                }
                let event = if base_changes { self.shards.rebased(event, position)? } else { event };
                self.shards
                    .ns
                    .fit(&event, position, self.shards.marks_at_start.len() as u16)
                    .map_err(|misfit| ReplayFault::Misfit(position, misfit))?;
                self.replay_own(&event, m)?;
                self.shards.ns.apply(&event, position);
                self.output.position = last;
            }
        }
        if header.seq > Seq(0)
            && let Some(session) = self.clients.sessions.get_mut(header.session)
        {
            let (subject, loser) = subject.unwrap_or_default();
            let gone = loser.and_then(|ino| gone_of(&self.shards.ns, ino));
            let done = Done::new(self.output.position, Some(subject), gone, false);
            session.dedup.record(header.seq, done.born_at(born.filter(|_| !self.shards.ns.owns(subject))));
        }
        Ok(())
    }

    /// The event at this place, the next, has nothing any more that it could change.
    pub fn pass_over(&mut self, position: Position) {
        debug_assert_eq!(position, self.output.position.next());
        self.shards.ns.apply(&Event::NOTHING, position);
        self.output.position = position;
    }

    /// Replays the effects of an event on the server's own state.
    fn replay_own(&mut self, event: &Event, m: &Moment) -> Result<(), Malformed> {
        if let Event::Reserve { shard, counter_end } = event {
            let mark = self.shards.marks_at_start.get_mut(usize::from(shard.0));
            let mark = mark.ok_or(malformed("a shard of this file system"))?;
            if *counter_end >= 1 << 48 {
                return Err(malformed("an inode counter of 48 bits"));
            }
            *mark = (*mark).max(*counter_end);
        }
        if let Event::SessionOpened { session, identity } = event {
            let (identity, secret) = parse_event_identity(identity)?;
            if self.clients.sessions.get(*session).is_none() {
                self.clients.sessions.insert(*session, secret, identity, false, m.mono);
            }
        }
        if let Event::SessionClosed { session } = event {
            self.clients.sessions.remove(*session, self.output.position.next());
        }
        if let Event::Refused { session, seq } = event
            && let Some(session) = self.clients.sessions.get_mut(*session)
        {
            session.dedup.record(*seq, Done::REFUSED);
        }
        if let Some(peers) = &mut self.peers {
            // The events in the journal at a start are durable.
            peers.note(event, Position(0));
        }
        if let (Event::Make { ino, .. }, Some(decoupled)) = (event, &mut self.decoupled) {
            decoupled.numbers.used(*ino);
        }
        Ok(())
    }

    /// All is replayed: reserves inode numbers and waits for known sessions. The frames must be durable before the
    /// first request. `claimed`: the server before this one answered nothing after that.
    pub fn begin(&mut self, claimed: Duration, m: &Moment) {
        self.shards.inodes = Inodes::new(&self.shards.marks_at_start);
        for shard in 0..self.shards.inodes.shard_count() as u16 {
            let counter_end =
                self.shards.inodes.wanted(ShardId(shard)).expect("nothing is reserved at the start");
            self.output.reserve(ShardId(shard), counter_end, &mut self.shards);
        }
        self.realms().end_forsaken();
        let known = self.clients.session_ids().into_iter();
        self.shards.orphans = self.shards.ns.orphans().into_iter().collect();
        self.clients.leases.decoupled(self.shards.ns.has_decouplings());
        let [grace, gone, session] =
            [self.settings.grace_ms, self.settings.gone_ms, self.settings.session_ms]
                .map(|ms| Duration::from_millis(ms.into()));
        let window = Window::new((claimed, m.mono), grace, gone, session);
        self.recovery = Some(Recovery::new(known, window));
        self.recovery_step(m);
    }

    /// For a preview over the rows of one moment: it waits for no session, and ends no session or decoupling.
    pub fn begin_preview(&mut self) {
        self.shards.inodes = Inodes::new(&self.shards.marks_at_start);
        self.shards.orphans = self.shards.ns.orphans().into_iter().collect();
        self.clients.leases.decoupled(self.shards.ns.has_decouplings());
        self.clients.leases.all_back();
    }
}

impl Shards {
    /// The event, rebased on the state that a merge left. Events that must come before it are applied.
    fn rebased(&mut self, event: Event, position: Position) -> Result<Event, ReplayFault> {
        for _ in 0..2 {
            let half = match self.rebase(&event)? {
                Rebased::Unchanged => return Ok(event),
                Rebased::Replaced(other) => return Ok(other),
                Rebased::Nothing => return Ok(Event::NOTHING),
                Rebased::First(half) => half,
            };
            let needs = self.ns.needs(&half);
            if !needs.is_empty() {
                return Err(ReplayFault::Missing(needs));
            }
            // Both halves are of one position.
            let fits = self.ns.fit(&half, position.next(), self.marks_at_start.len() as u16);
            fits.map_err(|misfit| ReplayFault::Misfit(position, misfit))?;
            self.ns.apply(&half, position);
        }
        Ok(Event::NOTHING)
    }

    fn rebase(&self, event: &Event) -> Result<Rebased, ReplayFault> {
        chiton_merge::rebase(&self.ns, event).map_err(|fault| match fault {
            Fault::Missing(needs) => ReplayFault::Missing(needs),
            _ => malformed("names in a directory that can be read").into(),
        })
    }

    /// The events of a merge's frame are known as that before the first of them is applied.
    fn note_own_frame(&mut self, header: &FrameHeader, payload: &[u8]) -> Result<(), Malformed> {
        if !self.ns.has_decouplings() || header.session != SessionId(0) {
            return Ok(());
        }
        let mut last = None;
        for event in FrameEvents::new(Position(0), header.event_count, payload) {
            last = Some(event?);
        }
        if let Some((_, Event::Merged(merged))) = last {
            self.ns.begin_own(merged.id);
        }
        Ok(())
    }
}

impl Clients {
    /// Sessions that are known.
    pub(crate) fn session_ids(&self) -> Vec<SessionId> {
        self.sessions.iter().map(|(id, _)| id).collect()
    }
}

/// Whether an inode lost its last name, judged by its state now.
fn gone_of(ns: &Namespace, ino: Ino) -> Option<Gone> {
    match ns.attr(ino) {
        Ok(attr) if attr.nlink == 0 => Some(Gone { ino, orphan: true }),
        Ok(_) => None,
        Err(_) => Some(Gone { ino, orphan: false }),
    }
}
