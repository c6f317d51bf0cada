//! The server's own rows in the metadata store, beside the namespace's.
//!
//! ```text
//!   shard 'R'           → u64      inode counters of the shard below may have been given out
//!   0 0 "position"      → u64      the events up to here are in the rows
//!   0 0 "sessions"      → u64      session ids below may have been given out
//!   0 'S' session       → secret, identity, dedup
//!   0 'F' session       → secret, runs of operations that were carried out: the session is over
//!   0 'w' writer        → empty    all its blocks are named or deleted
//!   0 'Q', 'W', 'U', 'T'           other plates: see peers/rows.rs
//! ```
//!
//! Integers in keys are big-endian, in values little-endian. The rows of the plate stand in the range of its first shard, as the
//! namespace's do.

use chiton_namespace::{plate_row_key, rest_of_plate_row, row_key, tag_of};
use chiton_types::{Malformed, Position, SessionId, ShardId};

use crate::dedup::Dedup;
use crate::engine::Engine;
use crate::peers::{self, PeerRows};
use crate::sessions::{Over, decode_row};
use crate::step::malformed;

/// Key of the row that says up to which position events are in the rows.
pub const POSITION_KEY: &[u8] = b"\0\0\0position";
/// Row of the session ids: those below may have been given out.
pub const SESSION_MARK_KEY: &[u8] = b"\0\0\0sessions";
/// Tag of the marks of inode counters.
pub const MARK: u8 = b'R';
/// Tag of live sessions.
pub const SESSION: u8 = b'S';
/// Tag of sessions that are over.
pub const SESSION_OVER: u8 = b'F';
/// Tag of writers whose blocks are swept. They are looked up only, and not read by a start.
pub const SWEPT: u8 = b'w';

/// Value of the row of [`POSITION_KEY`].
pub fn position_value(position: Position) -> Vec<u8> {
    position.0.to_le_bytes().to_vec()
}

pub fn mark_key(shard: ShardId) -> Vec<u8> {
    row_key(shard, MARK, &[])
}

fn session_key(kind: u8, session: SessionId) -> Vec<u8> {
    plate_row_key(kind, &session.0.to_be_bytes())
}

/// The shard of a mark's key; `None` if it is of another row.
fn shard_of_mark(key: &[u8]) -> Option<Result<ShardId, Malformed>> {
    match key {
        [a, b, MARK] => Some(Ok(ShardId(u16::from_be_bytes([*a, *b])))),
        [_, _, MARK, ..] => Some(Err(malformed("a shard's key"))),
        _ => None,
    }
}

fn mark(value: &[u8]) -> Result<u64, Malformed> {
    let mark = number(value)?;
    if mark < 1 << 48 { Ok(mark) } else { Err(malformed("an inode counter of 48 bits")) }
}

/// One of the server's own rows, for tools that look at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnRow {
    /// Events up to here are in the rows.
    Position(Position),
    /// Session ids below may have been given out.
    SessionMark(u64),
    /// Inode counters of the shard below may have been given out.
    InodeMark(ShardId, u64),
    /// A session that is not over.
    Session(SessionId),
    /// A session that is over: which of its operations were carried out.
    Over(SessionId),
    /// All blocks of this writer, whose session is over, are named or deleted.
    Swept(u64),
    /// The state that the plate keeps about another: effects, guards, lent numbers.
    Peer,
}

impl OwnRow {
    /// Reads a row; `None` if it is not one of the server's.
    ///
    /// # Errors
    /// If it is, but not what the format says.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Option<OwnRow>, Malformed> {
        let id = |rest: &[u8], what| rest.try_into().map(u64::from_be_bytes).map_err(|_| malformed(what));
        if let Some(shard) = shard_of_mark(key) {
            return Ok(Some(OwnRow::InodeMark(shard?, mark(value)?)));
        }
        let tag = tag_of(key).unwrap_or_default();
        let Some(rest) = rest_of_plate_row(key, tag) else { return Ok(None) };
        Ok(Some(match tag {
            0 if key == POSITION_KEY => OwnRow::Position(Position(number(value)?)),
            0 if key == SESSION_MARK_KEY => OwnRow::SessionMark(number(value)?),
            SESSION => {
                decode_row(value)?;
                OwnRow::Session(SessionId(id(rest, "a session's key")?))
            }
            SESSION_OVER => {
                Over::decode(value)?;
                OwnRow::Over(SessionId(id(rest, "a session's key")?))
            }
            SWEPT if value.is_empty() => OwnRow::Swept(id(rest, "a writer's key")?),
            SWEPT => return Err(malformed("an empty value")),
            _ if peers::TAGS.contains(&tag) => {
                PeerRows::check(tag, rest, value)?;
                OwnRow::Peer
            }
            _ => return Ok(None),
        }))
    }

    /// The row that says so; `None` for sessions and other plates, about which only the server writes.
    pub fn encode(self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some(match self {
            OwnRow::Position(position) => (POSITION_KEY.to_vec(), position_value(position)),
            OwnRow::SessionMark(mark) => (SESSION_MARK_KEY.to_vec(), mark.to_le_bytes().to_vec()),
            OwnRow::InodeMark(shard, mark) => (mark_key(shard), mark.to_le_bytes().to_vec()),
            OwnRow::Session(_) | OwnRow::Over(_) | OwnRow::Peer => return None,
            OwnRow::Swept(writer) => (swept_key(writer), Vec::new()),
        })
    }
}

/// Writer → nothing: all its blocks are named or deleted.
pub fn swept_key(writer: u64) -> Vec<u8> {
    plate_row_key(SWEPT, &writer.to_be_bytes())
}

fn number(bytes: &[u8]) -> Result<u64, Malformed> {
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| malformed("a number of 8 bytes"))
}

/// The server's own rows as they were read.
#[derive(Debug, Default)]
pub struct OwnRows {
    /// Events up to here are in the rows.
    pub position: Position,
    /// For each shard, the inode counter that nothing has reached yet; 0 where the row was not read.
    pub marks: Vec<u64>,
    pub(crate) sessions: Vec<(SessionId, u64, String, Dedup)>,
    pub(crate) over: Vec<(SessionId, Over)>,
    pub(crate) peers: PeerRows,
}

impl OwnRows {
    /// Of a file system with so many shards, before any row was read.
    pub fn of_shards(shards: u16) -> OwnRows {
        OwnRows { marks: vec![0; usize::from(shards)], ..OwnRows::default() }
    }

    /// Takes a row in; false if it is not one of the server's own that a start needs.
    ///
    /// # Errors
    /// If it is not as the format says.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Malformed> {
        if let Some(shard) = shard_of_mark(key) {
            let held = self.marks.get_mut(usize::from(shard?.0));
            *held.ok_or(malformed("a shard of this file system"))? = mark(value)?;
            return Ok(true);
        }
        let tag = tag_of(key).unwrap_or_default();
        let Some(rest) = rest_of_plate_row(key, tag) else { return Ok(false) };
        let id = || rest.try_into().map(u64::from_be_bytes).map_err(|_| malformed("a session's key"));
        match tag {
            0 if key == POSITION_KEY => self.position = Position(number(value)?),
            // Read separately, where sessions may begin.
            0 if key == SESSION_MARK_KEY => {}
            SESSION => {
                let (secret, identity, dedup) = decode_row(value)?;
                self.sessions.push((SessionId(id()?), secret, identity, dedup));
            }
            SESSION_OVER => self.over.push((SessionId(id()?), Over::decode(value)?)),
            _ if peers::TAGS.contains(&tag) => self.peers.take(tag, rest, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Engine {
    /// The same where only [`Engine::replay`] was called: nothing is reserved beyond the journal's record.
    pub fn own_rows_unserved(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let marks = self.shards.marks_at_start.iter().enumerate();
        let marks =
            marks.map(|(shard, mark)| (mark_key(ShardId(shard as u16)), Some(mark.to_le_bytes().to_vec())));
        let mut rows: Vec<_> = marks.collect();
        rows.extend(self.own_rows());
        rows
    }

    /// The server's own rows of a checkpoint that begins now.
    pub fn own_rows(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut rows = vec![(POSITION_KEY.to_vec(), Some(position_value(self.output.position)))];
        for (shard, mark) in self.shards.inodes.marks() {
            rows.push((mark_key(shard), Some(mark.to_le_bytes().to_vec())));
        }
        for (session, row) in self.clients.sessions.rows() {
            rows.push((session_key(SESSION, session), row));
        }
        for (session, row) in self.clients.sessions.rows_over() {
            rows.push((session_key(SESSION_OVER, session), row));
        }
        rows.extend(self.peers.iter_mut().flat_map(|peers| peers.rows()));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_rows_are_told_from_others_and_checked() {
        let mut rows = OwnRows { marks: vec![1; 2], ..OwnRows::default() };
        assert_eq!(rows.take(POSITION_KEY, &position_value(Position(7))), Ok(true));
        assert_eq!(rows.take(&mark_key(ShardId(1)), &9u64.to_le_bytes()), Ok(true));
        assert_eq!((rows.position, &rows.marks[..]), (Position(7), &[1, 9][..]));
        assert_eq!(rows.take(b"\0\0iabc", b""), Ok(false));
        assert_eq!(rows.take(b"\0\x01S1", b""), Ok(false), "sessions are the plate's");
        assert!(rows.take(&mark_key(ShardId(2)), &9u64.to_le_bytes()).is_err());
        assert!(rows.take(&mark_key(ShardId(0)), &u64::MAX.to_le_bytes()).is_err());
        assert!(rows.take(POSITION_KEY, b"short").is_err());
        assert!(rows.take(b"\0\0S1", b"").is_err());
    }
}
