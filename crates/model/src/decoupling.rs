//! Decouplings: what is recorded about a client that took a subtree for itself.
//!
//! ```text
//!   Decoupled ─▶ Granted, Attached, Merged … ─▶ DecouplingEnded
//! ```

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Name, Position, RealmId, SessionId, Time};

use crate::codec::{put_optional_name, take_id, take_optional_name, take_text};
use crate::merge::{MergeMap, MergeState};
use crate::policy::POLICY_BYTES_MAX;

/// Longest text about a decoupling (its owner, the place of its journal).
pub const DECOUPLING_TEXT_BYTES_MAX: usize = 16 << 10;

/// What happens to others in the subtree meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Interference {
    /// They act on the global namespace.
    Allow = 0,
    /// Everything is refused.
    Block = 1,
    /// Changes are refused.
    BlockWrites = 2,
}

impl Interference {
    /// Inverse of `interference as u8`.
    pub fn from_u8(n: u8) -> Option<Interference> {
        [Interference::Allow, Interference::Block, Interference::BlockWrites]
            .into_iter()
            .find(|i| *i as u8 == n)
    }
}

/// One client's hold on a subtree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoupling {
    /// Its number: 1, 2, 3 …, never used again.
    pub id: RealmId,
    /// Its name, if it is a branch.
    pub branch: Option<Name>,
    /// Drawn by the client that began it, or attached to it last.
    pub nonce: u64,
    /// Which of its clients, from 1.
    pub generation: u32,
    /// The session of that client.
    pub owner: SessionId,
    /// Who that is.
    pub identity: String,
    /// The user who began it.
    pub uid: u32,
    /// Where its journal is.
    pub journal_at: String,
    /// The policy that holds in it: a complete text that nobody here reads.
    pub policy: Vec<u8>,
    /// What happens to others.
    pub interference: Interference,
    /// It ends with its owner's session: nothing of it survives the client.
    pub is_fleeting: bool,
    pub since: Time,
    /// How far merging is.
    pub state: MergeState,
    /// What merging remembers, with root, base and writer.
    pub map: MergeMap,
}

impl Decoupling {
    /// The root directory.
    pub fn root(&self) -> Ino {
        self.map.root()
    }

    /// The server's state that the client saw.
    pub fn base(&self) -> Position {
        self.map.base()
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id.0);
        put_optional_name(out, self.branch.as_ref());
        out.put_u64(self.nonce);
        out.put_u32(self.generation);
        out.put_u64(self.owner.0);
        out.put_bytes(self.identity.as_bytes());
        out.put_u32(self.uid);
        out.put_bytes(self.journal_at.as_bytes());
        out.put_bytes(&self.policy);
        out.put_u8(self.interference as u8);
        out.put_u8(u8::from(self.is_fleeting));
        out.put_i64(self.since.0);
        self.state.put(out);
        self.map.encode(out);
    }

    pub fn take(from: &mut Take<'_>) -> Result<Decoupling, Malformed> {
        let id = take_id(from)?;
        let branch = take_optional_name(from)?;
        let (nonce, generation, owner) = (from.u64()?, from.u32()?, SessionId(from.u64()?));
        let (identity, uid, journal_at) = (take_text(from)?, from.u32()?, take_text(from)?);
        let policy = from.bytes()?.to_vec();
        if policy.len() > POLICY_BYTES_MAX {
            return Err(Malformed { expected: "a policy of bounded size" });
        }
        let interference = Interference::from_u8(from.u8()?);
        let interference = interference.ok_or(Malformed { expected: "what happens to others" })?;
        let is_fleeting = match from.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed { expected: "a flag" }),
        };
        let since = Time(from.i64()?);
        let (state, map) = (MergeState::take(from)?, MergeMap::decode(from)?);
        Ok(Decoupling {
            id,
            branch,
            nonce,
            generation,
            owner,
            identity,
            uid,
            journal_at,
            policy,
            interference,
            is_fleeting,
            since,
            state,
            map,
        })
    }

    pub fn decode(value: &[u8]) -> Result<Decoupling, Malformed> {
        let mut v = Take::new(value);
        let decoupling = Decoupling::take(&mut v)?;
        v.finish()?;
        Ok(decoupling)
    }
}

/// Another client resumes a decoupling, or none does yet: it is a branch that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub id: RealmId,
    /// Drawn by the client.
    pub nonce: u64,
    /// Its number among the decoupling's clients.
    pub generation: u32,
    /// Its session.
    pub owner: SessionId,
    /// Who that is.
    pub identity: String,
    /// Where the journal is from now on.
    pub journal_at: String,
    /// The branch that it is from now on.
    pub branch: Option<Name>,
}

impl Attached {
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id.0);
        out.put_u64(self.nonce);
        out.put_u32(self.generation);
        out.put_u64(self.owner.0);
        out.put_bytes(self.identity.as_bytes());
        out.put_bytes(self.journal_at.as_bytes());
        put_optional_name(out, self.branch.as_ref());
    }

    pub fn take(from: &mut Take<'_>) -> Result<Attached, Malformed> {
        Ok(Attached {
            id: take_id(from)?,
            nonce: from.u64()?,
            generation: from.u32()?,
            owner: SessionId(from.u64()?),
            identity: take_text(from)?,
            journal_at: take_text(from)?,
            branch: take_optional_name(from)?,
        })
    }
}

/// How far a merge is, and what it remembers: the last event of each of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedUpTo {
    pub id: RealmId,
    pub state: MergeState,
    /// What it remembers.
    pub map: MergeMap,
}

impl MergedUpTo {
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id.0);
        self.state.put(out);
        self.map.encode(out);
    }

    pub fn take(from: &mut Take<'_>) -> Result<MergedUpTo, Malformed> {
        Ok(MergedUpTo { id: take_id(from)?, state: MergeState::take(from)?, map: MergeMap::decode(from)? })
    }
}
