//! The server: the one kind of daemon. A pure engine that decides, and a thin runtime around it.
//!
//! ```text
//!   embedded session ─┐                       ┌─▶ journal ──▶ place (a directory, objects)
//!                     ├─▶ Mutex<Engine> ──────┤
//!   listener ─────────┘      ▲   ▲            └─▶ replies, recalls
//!                     pump ──┘   └── checkpointer ──▶ metadata store, object store (sweeping)
//! ```
//!
//! Invariants:
//! - [`engine`] knows no clock, disk, thread or socket.
//! - Events are appended to the journal under the engine's lock: the order of applying is the order of the journal.
//! - Nothing slow happens under the engine's lock: no fetch, no fsync, no checkpoint commit.
//! - No checkpoint is committed before the journal is durable up to its position.

pub mod engine;

mod runtime;

pub use engine::OwnRow;
pub use runtime::{
    Applied, Apply, Base, DataAddress, EmbeddedSession, FilesystemInfo, FormatError, FormatOptions, Hold,
    Numbers, Offline, OpenMeta, RealmStart, Server, ServerOptions, ShutdownError, StartError, Stores,
    make_room_for_tools, realm_prefix,
};
