//! The server: the one kind of daemon. A pure engine that decides, and a thin runtime around it.
//!
//! ```text
//!   embedded session ─┐   ┌────────────── plate ──────────────┐
//!   listener ─────────┴──▶│ Mutex<Engine> ──▶ journal         │──▶ place (a directory, objects)
//!                         │    ▲    ▲    └──▶ replies, recalls │
//!             scheduler ──┼────┘    └── checkpointer           │──▶ metadata store, object store (sweeping)
//!                         └────────────────────────────────────┘
//!   pool of I/O threads: fetches of rows, blocks, whatever else waits for a store
//! ```
//!
//! A server is started in one of three roles ([`Role`]): it serves a file system, serves a subtree to the client that decoupled
//! it, or previews a merge. In the first it runs all plates of the file system, which pass messages to each other; in the others it
//! has one plate.
//!
//! Invariants:
//! - The engine (`chiton_engine`) knows no clock, disk, thread or socket.
//! - Events are appended to the journal under the engine's lock: the order of applying is the order of the journal.
//! - Nothing slow happens under the engine's lock: no fetch, no fsync, no checkpoint commit.
//! - No checkpoint is committed before the journal is durable up to its position.
//!
//! # Layout
//!
//! - [`Server`] (`server`) runs the plates of `plate_table`. `plate`: one of them; `running`: its threads; `role`: in which of the three roles.
//! - A start: `options`, `stores`, `builder`, `startup`, `replaying`. Storage: `format`, `address`, `bucket`, `ownership`; without a server
//!   `offline`, `at_rest`, `growth`.
//! - A request's way: `listen` or `embed`, `trust` (certificates), `requests`, `engine_lock`, `io_pool` (requests that wait for a store), `deliver`.
//!   Waiting: `waiters`, `commits` (durability), `scheduler`, `waiting_greetings`.
//! - Rows, blocks, space: `rows`, `blocks`, `reserve`, `room`, `away`. Checkpoints: `checkpointer`, `checkpoints`, `replay_budget`,
//!   `sweeper`, `compactor`.
//! - Other plates and servers: `peers`, `phases`. Decoupled subtrees: `decoupled`, `realm_objects`, `user_objects`.
//! - Reports: `status`, `reports`, `metrics`, `latency`, `view` (rows of one moment). Work for clients: `tree_jobs`.

mod address;
mod at_rest;
mod away;
mod options;

mod bucket;
mod format;
mod growth;
mod metered_place;
mod ownership;
mod reserve;
mod severable;
mod stores;

mod builder;
mod decoupled;
mod error;
mod offline;
mod role;
mod startup;

mod peers;
mod phases;
mod plate;
mod plate_table;
mod running;

mod blocks;
mod call_kinds;
mod checkpoints;
mod commits;
mod condition;
mod deliver;
mod engine_lock;
mod fatal;
mod io_pool;
mod latency;
mod often;
mod realm_objects;
mod replay_budget;
mod replaying;
mod requests;
mod room;
mod rows;
mod scheduler;
mod session_ids;
mod waiters;
mod wake_up;

mod checkpointer;
mod compactor;
mod sweeper;
mod user_objects;
mod view;

mod embed;
mod listen;
mod metrics;
mod reports;
mod server;
mod status;
mod tree_jobs;
mod trust;
mod waiting_greetings;

pub use address::DataAddress;
pub use at_rest::AtRest;
pub use decoupled::{Base, DecoupledSubtree, Numbers};
pub use embed::EmbeddedSession;
pub use error::{FormatError, ShutdownError, StartError};
pub use format::{FilesystemInfo, FormatOptions, PLATES_MAX};
pub use growth::{BECAME_FILE, Became, GrowthTarget, next_session_id};
pub use offline::{Applied, Apply, CarriedOut, Offline};
pub use options::ServerOptions;
pub use ownership::Ownership;
pub use peers::{PeerIdentity, PeerServer};
pub use realm_objects::realm_prefix;
pub use reports::merge_reports;
pub use reserve::make_room_for_tools;
pub use role::Role;
pub use server::Server;
pub use stores::{OpenMeta, Stores};
pub use tree_jobs::{JOB_IDENTITY, TreeJobs};
pub use trust::Trust;
