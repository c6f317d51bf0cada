//! What clients and servers say to each other about decoupled realms.
//!
//! ```text
//!   Decouple ─▶ Granted ─▶ Rows, Grant … ─▶ Merge, Merge, Merge ─▶ End
//!                             ▲                 │ its journal lives on: after a crash
//!                             └──── Attach ◀────┘
//! ```
//!
//! Invariants:
//! - Each call may be asked again after a lost connection: `Decouple` and `Attach` are recognised by their nonce, a merge by
//!   its place in the decoupled journal.
//! - Whoever speaks for a decoupling shows its [`Claim`]. A later `Attach` begins a new generation, and what an older
//!   one says is refused with [`chiton_types::Refusal::Stale`].

mod answer;
mod call;

pub use answer::*;
pub use call::*;
pub use chiton_model::merge::{MergeState, OnConflict, Settled};
