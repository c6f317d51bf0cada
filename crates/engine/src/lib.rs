//! The engine: everything that a server decides, pure and synchronous.
//!
//! ```text
//!   request ──▶ session, duplicates ──▶ plan ──▶ leases in the way? ──▶ journal frame + apply ──▶ reply
//!                                        │ rows missing   │ waits, recalls sent
//!                                        ▼                ▼
//!                                   runtime fetches   run() tries again when they are given back
//! ```
//!
//! Invariants:
//! - No clock, no socket, no random number, no thread: they come in with [`Moment`] and go out as [`Command`]s.
//! - The order in which events are applied is the order of their frames in [`Engine::take_frames`].
//! - Each request is answered exactly once, or its session is gone.
//! - A request may be refused only before the first of its events is applied.
//!
//! # Layout
//!
//! - The state: [`Engine`], parted by `parts`. The outside: `moment` (clock, health), `settings`, `step` (what a call gives back).
//! - A request's way: `dispatch` or, for questions, `query`, `stat_each`, `path`; `execute` for operations, with `dedup`, `offer`
//!   (inode numbers from `inodes`), `planning`, `look_ahead`; `wait_queue` for those that wait.
//! - Sessions: `sessions`, `lifecycle`, `session_expiry`, `late`. Their holdings: `leases`, `opens`, `locks`, `growth`, `lingering`;
//!   `write_behind` for operations that clients acknowledge.
//! - Subtrees: `policies`, `volatile` (no durability), `realms` (decouplings, merges), `subtree` (limited certificates). `decoupled` is the
//!   engine in the decoupled client.
//! - Several plates: `peers`. Directories with parts: `dir_parts`, `split`, `fold`. The shard of a new directory: `placement`.
//! - Own work: `background`, `removed_trees`, `upkeep`.
//! - After a restart: `replay`, `recovery`; own rows: `rows`. Reports: `counters`, `stats`.

mod moment;
mod settings;
mod step;

mod engine;
mod parts;

mod lifecycle;
mod session_expiry;
mod sessions;

mod background;
mod dedup;
mod dispatch;
mod execute;
mod fold;
mod late;
mod query;
mod stat_each;
mod wait_queue;
mod wait_reason;
mod write_behind;

mod growth;
mod leases;
mod lingering;
mod locks;
mod look_ahead;
mod opens;
mod removed_trees;
mod upkeep;

mod dir_parts;
mod inodes;
mod offer;
mod placement;
mod planning;
mod split;

mod path;
mod peers;
mod policies;
mod subtree;
mod volatile;

mod decoupled;
mod realms;

mod recovery;
mod replay;
mod rows;

mod counters;
mod stats;

#[cfg(test)]
mod formatted;

pub use counters::{Counters, kind_names, kind_of_call, name_of};
pub use decoupled::{Creates, LazyApply};
pub use engine::Engine;
pub use lifecycle::Opened;
pub use moment::{Health, Moment};
pub use peers::{OwedEffect, PeerGauges, PeerState};
pub use replay::ReplayFault;
pub use rows::{
    MARK, OwnRow, OwnRows, POSITION_KEY, SESSION, SESSION_MARK_KEY, SESSION_OVER, SWEPT, mark_key,
    position_value, swept_key,
};
pub use settings::Settings;
pub use step::{Command, Progress, Step};
pub use subtree::SubtreeLimit;
pub use wait_queue::{Task, Ticket};
pub use wait_reason::WaitReason;
