//! The own rows of a plate about other plates, and the events that change them.
//!
//! ```text
//!   0 'Q' plate            → u64 last effect owed to it, u64 last effect of it that is carried out
//!   0 'W' plate, number    → session, seq, count, events: an effect that is owed
//!   0 'U' inode            → plate, its boot, attempt, session, seq: the row is guarded
//!   0 'T' first inode      → plate, boot, end: lent numbers
//! ```

use chiton_model::Event;
use chiton_namespace::{plate_row_key, rest_of_plate_row, tag_of};
use chiton_types::{Ino, Malformed, PlateId, Position, Put, Seq, SessionId, Take};
use chiton_wire::OpKey;

use super::{Guard, Lent, Owed, Peer, Peers};
use crate::step::malformed;

const PEER: u8 = b'Q';
const OWED: u8 = b'W';
const GUARD: u8 = b'U';
const LENT: u8 = b'T';

/// Tags of these rows.
pub(crate) const TAGS: [u8; 4] = [PEER, OWED, GUARD, LENT];

/// The rows as they were read.
#[derive(Debug, Default)]
pub(crate) struct PeerRows(Vec<Row>);

#[derive(Debug)]
enum Row {
    Peer { plate: PlateId, last_owed: u64, carried_out: u64 },
    Owed { to: PlateId, number: u64, key: OpKey, count: u32, events: Vec<u8> },
    Guard { ino: Ino, holder: PlateId, boot: u64, attempt: u64, key: OpKey },
    Lent { first: Ino, to: PlateId, boot: u64, end: Ino },
}

impl Row {
    /// Reads a row with one of [`TAGS`]; `rest` is its key behind the tag.
    fn decode(tag: u8, rest: &[u8], value: &[u8]) -> Result<Row, Malformed> {
        let bad = || malformed("a row about another plate");
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).map_err(|_| bad());
        let plate = |bytes: &[u8]| {
            bytes.try_into().map(|bytes| PlateId(u16::from_be_bytes(bytes))).map_err(|_| bad())
        };
        let mut from = Take::new(value);
        let row = match tag {
            PEER => Row::Peer { plate: plate(rest)?, last_owed: from.u64()?, carried_out: from.u64()? },
            OWED => {
                let (to, rest) = rest.split_at_checked(2).ok_or_else(bad)?;
                Row::Owed {
                    to: plate(to)?,
                    number: number(rest)?,
                    key: take_key(&mut from)?,
                    count: from.u32()?,
                    events: from.bytes()?.to_vec(),
                }
            }
            GUARD => Row::Guard {
                ino: Ino(number(rest)?),
                holder: PlateId(from.u16()?),
                boot: from.u64()?,
                attempt: from.u64()?,
                key: take_key(&mut from)?,
            },
            LENT => Row::Lent {
                first: Ino(number(rest)?),
                to: PlateId(from.u16()?),
                boot: from.u64()?,
                end: Ino(from.u64()?),
            },
            _ => return Err(bad()),
        };
        from.finish()?;
        Ok(row)
    }
}

/// An effect that one plate owes to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedEffect {
    pub to: PlateId,
    /// The effects of a plate to another are carried out in the order of their numbers.
    pub number: u64,
    /// The operation that decided it.
    pub key: OpKey,
    pub count: u32,
    /// The encoded events.
    pub events: Vec<u8>,
}

/// How far operations between two plates are, for tools that look at their stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerState {
    Owed(OwedEffect),
    /// Effects of a plate up to this number are carried out.
    CarriedOut {
        from: PlateId,
        upto: u64,
    },
    /// The row of this inode is guarded for an operation of a plate.
    Guarded {
        ino: Ino,
        holder: PlateId,
    },
}

impl PeerState {
    /// Reads a row; `None` if it says nothing of it.
    ///
    /// # Errors
    /// If it is not as the format says.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Option<PeerState>, Malformed> {
        let Some(tag) = tag_of(key).filter(|tag| [PEER, OWED, GUARD].contains(tag)) else { return Ok(None) };
        let Some(rest) = rest_of_plate_row(key, tag) else { return Ok(None) };
        Ok(match Row::decode(tag, rest, value)? {
            Row::Peer { plate, carried_out, .. } => {
                Some(PeerState::CarriedOut { from: plate, upto: carried_out })
            }
            Row::Owed { to, number, key, count, events } => {
                Some(PeerState::Owed(OwedEffect { to, number, key, count, events }))
            }
            Row::Guard { ino, holder, .. } => Some(PeerState::Guarded { ino, holder }),
            Row::Lent { .. } => None,
        })
    }
}

impl PeerRows {
    /// Takes in a row with one of [`TAGS`].
    pub(crate) fn take(&mut self, tag: u8, rest: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.0.push(Row::decode(tag, rest, value)?);
        Ok(())
    }

    /// Whether a row with one of [`TAGS`] is as the format says.
    pub(crate) fn check(tag: u8, rest: &[u8], value: &[u8]) -> Result<(), Malformed> {
        Row::decode(tag, rest, value).map(drop)
    }
}

fn take_key(from: &mut Take<'_>) -> Result<OpKey, Malformed> {
    Ok(OpKey { session: SessionId(from.u64()?), seq: Seq(from.u64()?) })
}

fn put_key(out: &mut Vec<u8>, key: OpKey) {
    out.put_u64(key.session.0);
    out.put_u64(key.seq.0);
}

fn owed_key(to: PlateId, number: u64) -> Vec<u8> {
    plate_row_key(OWED, &[&to.0.to_be_bytes()[..], &number.to_be_bytes()].concat())
}

pub(super) fn guard_key(ino: Ino) -> Vec<u8> {
    plate_row_key(GUARD, &ino.0.to_be_bytes())
}

fn lent_key(first: Ino) -> Vec<u8> {
    plate_row_key(LENT, &first.0.to_be_bytes())
}

impl Peers {
    /// The state of a checkpoint.
    pub(crate) fn restore(&mut self, rows: PeerRows) {
        // All of it is durable.
        let position = Position(0);
        for row in rows.0 {
            match row {
                Row::Peer { plate, last_owed, carried_out } => {
                    if let Some(peer) = self.others.get_mut(&plate) {
                        peer.last_owed = peer.last_owed.max(last_owed);
                        peer.carried_out = carried_out;
                    }
                }
                Row::Owed { to, number, key, count, events } => {
                    self.note_owed(to, number, Owed { position, key, count, events });
                }
                Row::Guard { ino, holder, boot, attempt, key } => {
                    self.note_guard(ino, Guard { holder, key, boot, attempt, position });
                }
                Row::Lent { first, to, boot, end } => {
                    self.lent.insert(first, Lent { to, boot, end });
                }
            }
        }
    }

    /// The rows for a checkpoint: all that there are, and those that are no more since the last.
    pub(crate) fn rows(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut rows: Vec<_> = std::mem::take(&mut self.removed).into_iter().map(|key| (key, None)).collect();
        for (plate, Peer { last_owed, carried_out, owed, .. }) in &self.others {
            let mut value = Vec::with_capacity(16);
            value.put_u64(*last_owed);
            value.put_u64(*carried_out);
            rows.push((plate_row_key(PEER, &plate.0.to_be_bytes()), Some(value)));
            for (number, Owed { key, count, events, .. }) in owed {
                let mut value = Vec::with_capacity(events.len() + 24);
                put_key(&mut value, *key);
                value.put_u32(*count);
                value.put_bytes(events);
                rows.push((owed_key(*plate, *number), Some(value)));
            }
        }
        for (ino, Guard { holder, key, boot, attempt, .. }) in &self.guards {
            if *holder == self.plate {
                continue;
            }
            let mut value = Vec::with_capacity(34);
            value.put_u16(holder.0);
            value.put_u64(*boot);
            value.put_u64(*attempt);
            put_key(&mut value, *key);
            rows.push((guard_key(*ino), Some(value)));
        }
        for (first, Lent { to, boot, end }) in &self.lent {
            let mut value = Vec::with_capacity(18);
            value.put_u16(to.0);
            value.put_u64(*boot);
            value.put_u64(end.0);
            rows.push((lent_key(*first), Some(value)));
        }
        rows
    }

    /// Takes in an event about other plates, as it is written or replayed.
    pub(crate) fn note(&mut self, event: &Event, position: Position) {
        if let Event::Owes { to, number, session, seq, count, events } = event {
            let key = OpKey { session: *session, seq: *seq };
            self.note_owed(*to, *number, Owed { position, key, count: *count, events: events.clone() });
        }
        if let Event::CarriedOut { from, number, session, seq } = event {
            if let Some(peer) = self.others.get_mut(from) {
                (peer.carried_out, peer.carried_out_at) = (*number, position);
            }
            self.note_guards_end(*from, OpKey { session: *session, seq: *seq });
        }
        if let Event::Settled { to, upto } = event
            && let Some(peer) = self.others.get_mut(to)
        {
            peer.sent = peer.sent.max(*upto);
            let left = peer.owed.split_off(&(upto.saturating_add(1)));
            let settled = std::mem::replace(&mut peer.owed, left);
            self.removed.extend(settled.into_keys().map(|number| owed_key(*to, number)));
        }
        if let Event::Guarded { ino, holder, boot, attempt, session, seq } = event {
            let key = OpKey { session: *session, seq: *seq };
            self.note_guard(*ino, Guard { holder: *holder, key, boot: *boot, attempt: *attempt, position });
        }
        if let Event::GuardEnded { ino, .. } = event {
            self.note_guard_end(*ino);
        }
        if let Event::Lent { to, boot, first, end } = event {
            self.lent.insert(*first, Lent { to: *to, boot: *boot, end: *end });
        }
        if let Event::PeerOpened { plate, boot } = event {
            let removed = &mut self.removed;
            self.lent.retain(|first, lent| {
                let is_old = lent.to == *plate && lent.boot < *boot;
                removed.extend(is_old.then(|| lent_key(*first)));
                !is_old
            });
        }
    }
}
