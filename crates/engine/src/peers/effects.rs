//! Effects: the events of a decision, carried out at a plate that owns rows of them.

use chiton_model::{Event, FrameEvents, Over, Role};
use chiton_namespace::{ContentIn, Misfit, PlanState};
use chiton_types::frame::FrameHeader;
use chiton_types::{Ino, Kind, PlateId, Position, Seq, SessionId};
use chiton_wire::{OpKey, PeerMessage};

use super::OwedEffect;
use crate::engine::Engine;
use crate::moment::{Health, Moment};
use crate::replay::ReplayFault;
use crate::sessions::Slot;
use crate::step::{Command, Stop, malformed};
use crate::wait_queue::Wait;

impl Engine {
    /// Carries out the next effect of another plate; one that is carried out is reported again.
    pub(super) fn carry_out_effect(
        &mut self,
        from: PlateId,
        number: u64,
        key: OpKey,
        count: u32,
        events: &[u8],
        m: &Moment,
    ) -> Result<(), Stop> {
        let Some(peer) = self.peers.as_mut().and_then(|peers| peers.others.get_mut(&from)) else {
            return Ok(());
        };
        if number <= peer.carried_out {
            peer.reported = peer.reported.min(number.saturating_sub(1));
            return Ok(());
        }
        if number > peer.carried_out.saturating_add(1) {
            // Those before it were lost with a start, and are sent again after the greeting.
            return Ok(());
        }
        let effect = OwedEffect { to: self.settings.plate, number, key, count, events: events.to_vec() };
        let lingers = m.health == Health::Good && !m.store_full;
        let EffectFrame { events: frame, header, misfits } =
            self.effect_frame(from, &effect, Openers::Known { lingers })?;
        for misfit in misfits {
            // Damage: the plates disagree. It stays visible to a check, and nothing else is held up by it.
            let line = format!("effect {number} of plate {from} does not fit: {misfit}; run chiton fsck");
            self.queue.commands.push(Command::Log(line));
        }
        self.output.commit(&frame, header, &mut self.shards);
        let position = self.output.position;
        if let Some(peers) = &mut self.peers {
            peers.note(&frame[0], position);
        }
        for event in &frame[1..] {
            self.effect_applied(event, lingers, m);
            if matches!(event, Event::Policy(_)) {
                self.policies_changed();
            }
        }
        self.wake_unguarded();
        Ok(())
    }

    /// The frame that carries out an effect of another plate.
    fn effect_frame(
        &self,
        from: PlateId,
        effect: &OwedEffect,
        openers: Openers,
    ) -> Result<EffectFrame, Stop> {
        let (number, OpKey { session, seq }) = (effect.number, effect.key);
        let mut events = vec![Event::CarriedOut { from, number, session, seq }];
        for event in FrameEvents::new(Position(0), effect.count, &effect.events) {
            events.push(event.map_err(|_| malformed_effect())?.1);
        }
        let needs = self.shards.ns.needs_all(&events);
        if !needs.is_empty() {
            return Err(Stop::Missing(needs));
        }
        for event in &mut events {
            self.decide_lives(event, openers);
        }
        let mut position = self.output.position;
        // An inode that the effect itself makes is not there before it is applied.
        let (mut newborn, mut misfits) = (Vec::new(), Vec::new());
        events.retain(|event| {
            position = position.next();
            let footprint = event.footprint();
            if footprint.inodes().iter().any(|touch| newborn.contains(&touch.ino)) {
                return true;
            }
            newborn.extend(footprint.inodes().iter().filter(|t| t.role == Role::Newborn).map(|t| t.ino));
            let fit = self.shards.ns.fit(event, position, self.settings.plates.shards());
            let fits = fit.is_ok();
            misfits.extend(fit.err());
            fits
        });
        let shard = events.iter().map(Event::shard).find(|shard| self.shards.ns.owns(Ino::new(*shard, 0)));
        let header = FrameHeader {
            event_count: 0,
            shard: shard.unwrap_or_default(),
            session: SessionId(0),
            seq: Seq(0),
        };
        Ok(EffectFrame { events, header, misfits })
    }

    /// The frame that carries out an effect of another plate, for tools that work while no server runs; `None` if it is carried out
    /// already. An inode that loses its last name stays until the next start, because clients may still have it open.
    ///
    /// # Errors
    /// [`ReplayFault::Missing`] and [`ReplayFault::Malformed`].
    pub fn effect_frame_at_rest(
        &self,
        from: PlateId,
        effect: &OwedEffect,
    ) -> Result<Option<(FrameHeader, Vec<u8>)>, ReplayFault> {
        let peer = self.peers.as_ref().and_then(|peers| peers.others.get(&from));
        if peer.is_none_or(|peer| effect.number <= peer.carried_out) {
            return Ok(None);
        }
        let EffectFrame { events, header, .. } =
            self.effect_frame(from, effect, Openers::Unknown).map_err(|stop| match stop {
                Stop::Missing(needs) => ReplayFault::Missing(needs),
                _ => malformed("events of another plate").into(),
            })?;
        let mut payload = Vec::new();
        for event in &events {
            event.encode(&mut payload);
        }
        let event_count = u32::try_from(events.len()).expect("an operation has few events");
        Ok(Some((FrameHeader { event_count, ..header }, payload)))
    }

    /// The other changes with an event that another plate has decided.
    fn effect_applied(&mut self, event: &Event, lingers: bool, m: &Moment) {
        let footprint = event.footprint();
        if let Some(born) = footprint.newborn() {
            if let Some(peers) = &mut self.peers {
                peers.not_coming.remove(&born);
                peers.asked_births.remove(&born);
            }
            self.wake_where(|wait| *wait == Wait::Birth(born));
        }
        let Some(ino) = footprint.loser().filter(|ino| self.shards.ns.owns(*ino)) else { return };
        match self.shards.ns.attr(ino) {
            Ok(attr) if attr.nlink == 0 => {
                let is_new = self.shards.orphans.insert(ino);
                let has_names = attr.kind == Kind::Dir && self.shards.ns.entries_of(ino).is_ok_and(|n| n > 0);
                if is_new && has_names {
                    self.shards.tree_removed(ino, Slot::SERVER);
                } else if is_new && lingers && matches!(event, Event::Rename { .. }) {
                    self.shards.linger(ino, m);
                } else if is_new && !self.clients.opens.is_open(ino) {
                    self.shards.reclaims.push_back(ino);
                }
            }
            Ok(_) => {}
            Err(_) => {
                self.clients.leases.forget(ino);
                self.shards.fragments.remove(&ino);
            }
        }
    }

    /// Whether an inode without a name stays, for those that have it open or because its blocks are freed later, is decided where the
    /// inode is.
    fn decide_lives(&self, event: &mut Event, openers: Openers) {
        let (all_stay, replaced_stay) = match openers {
            Openers::Known { lingers } => (false, lingers),
            Openers::Unknown => (true, true),
        };
        let (ino, orphan, lingers) = if let Event::Unlink { ino, orphan, .. } = event {
            (*ino, orphan, all_stay)
        } else if let Event::Rename { over: Over::Replaced { ino, orphan, .. }, .. } = event {
            (*ino, orphan, replaced_stay)
        } else {
            return;
        };
        if let Ok(inode) = PlanState::inode(&self.shards.ns, ino) {
            let is_last = inode.kind == Kind::Dir || inode.nlink <= 1;
            let has_names = inode.kind == Kind::Dir && self.shards.ns.entries_of(ino).is_ok_and(|n| n > 0);
            let is_open = self.clients.opens.is_open(ino);
            let stays = lingers || has_names || inode.content == ContentIn::Blocks || is_open;
            *orphan = is_last && stays;
        }
    }

    /// Another plate has carried out effects durably.
    pub(super) fn settle_effects(&mut self, to: PlateId, upto: u64) {
        let Some(peer) = self.peers.as_ref().and_then(|peers| peers.others.get(&to)) else { return };
        let carried_out: Vec<OpKey> = peer.owed.range(..=upto).map(|(_, owed)| owed.key).collect();
        if carried_out.is_empty() {
            return;
        }
        self.commit_peer_event(&Event::Settled { to, upto });
        let Some(peers) = &self.peers else { return };
        for key in carried_out.into_iter().filter(|key| peers.is_settling(*key)) {
            peers.send(to, PeerMessage::RecallNames { key }, &mut self.queue);
        }
    }
}

/// The clients that have a file open, as far as they are known.
#[derive(Clone, Copy)]
enum Openers {
    /// A replaced file that nobody has open stays for a while if it `lingers`.
    Known { lingers: bool },
    /// No server runs that could know them.
    Unknown,
}

/// How an effect is carried out.
struct EffectFrame {
    events: Vec<Event>,
    header: FrameHeader,
    /// Events that the plate cannot carry out, and that are left out.
    misfits: Vec<Misfit>,
}

fn malformed_effect() -> Stop {
    Stop::Fail(chiton_wire::Failure::Malformed(malformed("events of another plate").to_string()))
}
