//! The messages of clients and servers about decoupled realms.
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
//! - A client that acts for a decoupling shows its [`Claim`]. A later `Attach` begins a new generation, and calls of an older
//!   one are refused with [`chiton_types::Refusal::Stale`].

mod answer;
mod call;

pub use answer::*;
pub use call::*;
pub use chiton_model::merge::{MergeState, OnConflict, Settled};
