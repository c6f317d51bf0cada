//! Decouplings: the record of a client that took a subtree for itself.
//!
//! ```text
//!   Decoupled ─▶ Granted, Attached, Merged … ─▶ DecouplingEnded
//! ```

use chiton_types::codec::{Malformed, Take};
use chiton_types::{Ino, Name, Position, RealmId, SessionId, Time};

use crate::field::{Code, Fixed, Max};
use crate::merge::{MergeMap, MergeState};
use crate::policy::POLICY_BYTES_MAX;
use crate::{number, record};

/// Longest text about a decoupling (its owner, the place of its journal).
pub const DECOUPLING_TEXT_BYTES_MAX: usize = 16 << 10;

type ShortText = Max<String, DECOUPLING_TEXT_BYTES_MAX>;

number! {
    /// How operations of others in the subtree are treated meanwhile.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Interference "treatment of others" {
        /// They act on the global namespace.
        Allow = 0,
        /// Any request of others is refused with EBUSY.
        Block = 1,
        /// Others may read; their changes are refused with EBUSY.
        BlockWrites = 2,
    }
}

record! {
    /// One client's hold on a subtree.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Decoupling "a decoupling" {
        /// Its number: 1, 2, 3 …, never used again.
        pub id: RealmId,
        /// Its name, if it is a branch.
        pub branch: Option<Name>,
        /// Drawn by the client that began it, or attached to it last.
        pub nonce: u64 as Fixed,
        /// Which of its clients, from 1.
        pub generation: u32 as Fixed,
        /// The session of that client.
        pub owner: SessionId,
        /// Its identity: host, process, mount point.
        pub identity: String as ShortText,
        /// The user who began it.
        pub uid: u32 as Fixed,
        /// Location of its journal, for people.
        pub journal_at: String as ShortText,
        /// The policy that holds in it: a complete text that nobody here reads.
        pub policy: Vec<u8> as Max<u8, POLICY_BYTES_MAX>,
        /// How operations of others are treated.
        pub interference: Interference,
        /// It ends with its owner's session: nothing of it survives the client.
        pub is_fleeting: bool,
        pub since: Time,
        /// How far merging is.
        pub state: MergeState,
        /// The memory of merging, with root, base and writer.
        pub map: MergeMap,
    }
}

impl Decoupling {
    pub fn root(&self) -> Ino {
        self.map.root()
    }

    /// The server's state that the client saw.
    pub fn base(&self) -> Position {
        self.map.base()
    }

    pub fn decode(value: &[u8]) -> Result<Decoupling, Malformed> {
        let mut v = Take::new(value);
        let decoupling = Decoupling::take(&mut v)?;
        v.finish()?;
        Ok(decoupling)
    }
}

record! {
    /// Another client resumes a decoupling, or none does yet: it is a branch that waits.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Attached "an attachment" {
        pub id: RealmId,
        /// Drawn by the client.
        pub nonce: u64 as Fixed,
        /// Its number among the decoupling's clients.
        pub generation: u32 as Fixed,
        /// The session of the client that has it.
        pub owner: SessionId,
        /// Its identity: host, process, mount point.
        pub identity: String as ShortText,
        /// Location of the journal from now on, for people.
        pub journal_at: String as ShortText,
        /// The branch that it is from now on.
        pub branch: Option<Name>,
    }
}

record! {
    /// How far a merge is, and its memory: the last event of each of its frames.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MergedUpTo "realm, state, map" {
        pub id: RealmId,
        pub state: MergeState,
        /// The state that the merge keeps between calls: inodes, names and positions.
        pub map: MergeMap,
    }
}
