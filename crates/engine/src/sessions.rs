//! Sessions: identities, secrets, the last word heard, the dedup.
//!
//! Invariants:
//! - A session's id is never used again: it is also the writer of its blocks.
//! - A slot stands for a session in compact tables and is never used again in this life of the server.
//! - A volatile session (a client in this process) dies with the server: it has no dedup and no row.

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_types::{Malformed, Position, Put, Seq, SessionId, Take};
use hashbrown::HashMap;

use crate::dedup::Dedup;
use crate::late::LateReturn;
use crate::subtree::Limit;
use crate::write_behind::{GrantedClock, Numbers};

/// Longest identity text, in bytes.
pub(crate) const IDENTITY_BYTES_MAX: usize = 256;

/// A session's short name within this life of the server. 0 is the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The slot of the server itself, for changes that it makes unasked.
    pub(crate) const SERVER: Slot = Slot(0);
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) slot: Slot,
    pub(crate) secret: u64,
    pub(crate) identity: String,
    pub(crate) volatile: bool,
    /// It decouples subtrees before it changes something in them: said anew with each connection.
    pub(crate) decouples: bool,
    /// The number by which all plates know its client, or 0: said anew with each connection.
    pub(crate) client: u64,
    /// How far it may reach.
    pub(crate) limit: Limit,
    /// Monotonic time of its last message.
    pub(crate) heard: Duration,
    pub(crate) dedup: Dedup,
    /// Inode numbers that the client may assign itself.
    pub(crate) numbers: Numbers,
    /// The server's clock as it was granted to the client, with the names of directories.
    pub(crate) clock: GrantedClock,
    /// The late operations that it has sent, of its client's session before.
    pub(crate) late: Option<Box<LateReturn>>,
    /// Requests since it began or resumed.
    pub(crate) request_count: u64,
}

/// A session that is over, as long as it is remembered: its client may come and ask which of its operations were carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    secret: u64,
    /// Runs of numbers, as [`Dedup::carried_out`] has them.
    pub(crate) carried_out: Vec<(Seq, Seq)>,
    /// Position of the event of its end.
    pub(crate) end: Position,
}

/// Most sessions that are over and remembered: the oldest are forgotten first.
const OVER_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: HashMap<SessionId, Session>,
    by_slot: BTreeMap<Slot, SessionId>,
    by_client: HashMap<u64, SessionId>,
    slot_last: u32,
    /// Those that are over, and remembered.
    over: BTreeMap<SessionId, Over>,
    /// Sessions whose rows must be deleted with the next checkpoint.
    ended: Vec<SessionId>,
    /// The same of those that are over.
    forgotten: Vec<SessionId>,
}

impl Sessions {
    /// Begins a session, or takes a known one in after a restart.
    pub(crate) fn insert(
        &mut self,
        id: SessionId,
        secret: u64,
        identity: String,
        volatile: bool,
        heard: Duration,
    ) -> Slot {
        self.slot_last += 1;
        let slot = Slot(self.slot_last);
        let session = Session {
            slot,
            secret,
            identity,
            volatile,
            decouples: false,
            client: 0,
            limit: Limit::default(),
            heard,
            dedup: Dedup::default(),
            numbers: Numbers::default(),
            clock: GrantedClock::default(),
            late: None,
            request_count: 0,
        };
        let before = self.by_id.insert(id, session);
        assert!(before.is_none(), "session {id} begins twice");
        self.by_slot.insert(slot, id);
        slot
    }

    /// Ends one; `end` is the position of the event of that.
    pub(crate) fn remove(&mut self, id: SessionId, end: Position) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        self.by_slot.remove(&session.slot);
        if self.by_client.get(&session.client) == Some(&id) {
            self.by_client.remove(&session.client);
        }
        if !session.volatile {
            self.ended.push(id);
            let carried_out = session.dedup.carried_out();
            self.remember(id, Over { secret: session.secret, carried_out, end });
        }
        Some(session)
    }

    /// Remembers one that is over.
    pub(crate) fn remember(&mut self, id: SessionId, over: Over) {
        self.over.insert(id, over);
        if self.over.len() > OVER_MAX
            && let Some((oldest, _)) = self.over.pop_first()
        {
            self.forgotten.push(oldest);
        }
    }

    /// One that is over, if it is remembered and this is its secret.
    pub(crate) fn over(&self, id: SessionId, secret: u64) -> Option<&Over> {
        self.over.get(&id).filter(|over| over.secret == secret)
    }

    #[inline]
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    /// The client of a session is known by this number (0: by none).
    pub(crate) fn note_client(&mut self, id: SessionId, client: u64) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        let before = std::mem::replace(&mut session.client, client);
        if self.by_client.get(&before) == Some(&id) {
            self.by_client.remove(&before);
        }
        if client != 0 {
            self.by_client.insert(client, id);
        }
    }

    /// The slot of the session of a client, by its number.
    pub(crate) fn slot_of_client(&self, client: u64) -> Option<Slot> {
        Some(self.get(*self.by_client.get(&client)?)?.slot)
    }

    pub(crate) fn of_slot(&self, slot: Slot) -> Option<SessionId> {
        self.by_slot.get(&slot).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All, in the order in which they began.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.by_slot.values().map(|id| (*id, &self.by_id[id]))
    }

    /// Those not heard of since `since`, in order. Volatile ones live as long as the process.
    pub(crate) fn silent_since(&self, since: Duration) -> Vec<SessionId> {
        self.iter().filter(|(_, s)| !s.volatile && s.heard < since).map(|(id, _)| id).collect()
    }

    /// Rows of the sessions that are over and remembered, and `None` for those forgotten since the last call.
    pub(crate) fn rows_over(&mut self) -> Vec<(SessionId, Option<Vec<u8>>)> {
        let forgotten = std::mem::take(&mut self.forgotten).into_iter().map(|id| (id, None));
        let mut rows: Vec<_> = forgotten.collect();
        rows.extend(self.over.iter().map(|(id, over)| (*id, Some(over.encode()))));
        rows
    }

    /// Rows of all sessions that a restart must know, and `None` for those that ended since the last call.
    pub(crate) fn rows(&mut self) -> Vec<(SessionId, Option<Vec<u8>>)> {
        let ended = std::mem::take(&mut self.ended).into_iter().map(|id| (id, None));
        let mut rows: Vec<_> = ended.collect();
        for (id, session) in self.iter().filter(|(_, s)| !s.volatile) {
            rows.push((id, Some(encode_row(session))));
        }
        rows
    }
}

impl Over {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.put_u64(self.secret);
        out.put_varint(self.carried_out.len() as u64);
        for (first, end) in &self.carried_out {
            out.put_varint(first.0);
            out.put_varint(end.0 - first.0);
        }
        out.put_varint(self.end.0);
        out
    }

    /// From its row: its end is durable.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Over, Malformed> {
        let bad = Malformed { expected: "runs of operations that rise" };
        let mut from = Take::new(bytes);
        let secret = from.u64()?;
        let mut carried_out: Vec<(Seq, Seq)> = Vec::new();
        for _ in 0..from.count(2)? {
            let first = from.varint()?;
            let end = first.checked_add(from.varint()?).filter(|end| *end > first).ok_or(bad.clone())?;
            if carried_out.last().is_some_and(|(_, before)| before.0 >= first) {
                return Err(bad);
            }
            carried_out.push((Seq(first), Seq(end)));
        }
        let end = Position(from.varint()?);
        from.finish()?;
        Ok(Over { secret, carried_out, end })
    }
}

fn encode_row(session: &Session) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + session.dedup.len() * 16);
    out.put_u64(session.secret);
    out.put_bytes(session.identity.as_bytes());
    session.dedup.encode(&mut out);
    out
}

/// Secret, identity and dedup of a session's row.
pub(crate) fn decode_row(bytes: &[u8]) -> Result<(u64, String, Dedup), Malformed> {
    let mut from = Take::new(bytes);
    let secret = from.u64()?;
    let identity = clip_identity(&String::from_utf8_lossy(from.bytes()?));
    let dedup = Dedup::decode(&mut from)?;
    from.finish()?;
    Ok((secret, identity, dedup))
}

/// The identity in a `SessionOpened` event: the text, a NUL, the secret. So a restart knows the secret.
pub(crate) fn event_identity(identity: &str, secret: u64) -> Vec<u8> {
    let mut bytes = identity.as_bytes().to_vec();
    bytes.push(0);
    bytes.put_u64(secret);
    bytes
}

/// Inverse of [`event_identity`].
pub(crate) fn parse_event_identity(bytes: &[u8]) -> Result<(String, u64), Malformed> {
    let bad = Malformed { expected: "a session's identity and secret" };
    let (text, secret) = bytes.split_last_chunk::<8>().ok_or(bad.clone())?;
    let text = text.strip_suffix(&[0]).ok_or(bad)?;
    Ok((clip_identity(&String::from_utf8_lossy(text)), u64::from_le_bytes(*secret)))
}

/// At most [`IDENTITY_BYTES_MAX`] bytes of printable text.
pub(crate) fn clip_identity(text: &str) -> String {
    let mut clipped: String = text.chars().filter(|c| !c.is_control()).collect();
    while clipped.len() > IDENTITY_BYTES_MAX {
        clipped.pop();
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::Done;

    #[test]
    fn rows_and_events_carry_the_secret() {
        let mut sessions = Sessions::default();
        sessions.insert(SessionId(5), 77, "host:1".into(), false, Duration::ZERO);
        sessions.insert(SessionId(6), 78, "inside".into(), true, Duration::ZERO);
        let rows = sessions.rows();
        assert_eq!(rows.len(), 1);
        let (secret, identity, _) = decode_row(rows[0].1.as_ref().expect("a row")).expect("decodes");
        assert_eq!((secret, identity.as_str()), (77, "host:1"));
        sessions.remove(SessionId(5), Position(4));
        sessions.remove(SessionId(6), Position(5));
        assert_eq!(sessions.rows(), [(SessionId(5), None)]);
        assert_eq!(sessions.rows(), []);
        assert_eq!(parse_event_identity(&event_identity("a", 9)), Ok(("a".into(), 9)));
        assert!(parse_event_identity(b"short").is_err());
        assert_eq!(clip_identity(&"ä\n".repeat(200)).len(), 256);
    }

    #[test]
    fn a_session_that_is_over_is_remembered_with_what_was_carried_out() {
        let mut sessions = Sessions::default();
        for id in 0..=OVER_MAX as u64 {
            sessions.insert(SessionId(id), 100 + id, String::new(), false, Duration::ZERO);
            let dedup = &mut sessions.get_mut(SessionId(id)).expect("there").dedup;
            for seq in [1, 2, 7] {
                dedup.record(Seq(seq), Default::default());
                dedup.record(Seq(seq), Done::new(Position(seq), None, None, false));
            }
            sessions.remove(SessionId(id), Position(9));
        }
        let over = sessions.over(SessionId(5), 105).expect("remembered").clone();
        assert_eq!(over.carried_out, [(Seq(1), Seq(3)), (Seq(7), Seq(8))]);
        assert_eq!((over.end, sessions.over(SessionId(5), 1)), (Position(9), None));
        assert_eq!(sessions.over(SessionId(0), 100), None, "the oldest is forgotten");
        let rows = sessions.rows_over();
        assert_eq!((rows.len(), &rows[0]), (OVER_MAX + 1, &(SessionId(0), None)));
        let bytes = over.encode();
        assert_eq!(Over::decode(&bytes), Ok(over));
        for cut in 0..bytes.len() {
            assert!(Over::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn silence_ends_sessions_but_not_volatile_ones() {
        let mut sessions = Sessions::default();
        for (id, heard) in [(1, 10), (2, 20), (3, 5)] {
            sessions.insert(SessionId(id), 0, String::new(), id == 3, Duration::from_secs(heard));
        }
        assert_eq!(sessions.silent_since(Duration::from_secs(10)), []);
        assert_eq!(sessions.silent_since(Duration::from_secs(11)), [SessionId(1)]);
    }
}
