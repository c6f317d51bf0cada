//! The runtime: threads, stores and sockets around the engine.

mod address;
mod away;
mod options;

mod bucket;
mod format;
mod hold;
mod metered_place;
mod reserve;
mod severable;
mod stores;

mod decoupled;
mod error;
mod offline;
mod preview;
mod startup;

mod backlog;
mod bell;
mod blocks;
mod commits;
mod deliver;
mod engine_lock;
mod errands;
mod fatal;
mod often;
mod pump;
mod realm_objects;
mod requests;
mod room;
mod session_ids;
mod shared;

mod checkpointer;
mod compactor;
mod sweeper;
mod user_objects;
mod view;

mod embed;
mod listen;
mod server;
mod status;

pub use address::DataAddress;
pub use decoupled::{Base, Numbers, RealmStart};
pub use embed::EmbeddedSession;
pub use error::{FormatError, ShutdownError, StartError};
pub use format::{FilesystemInfo, FormatOptions};
pub use hold::Hold;
pub use offline::{Applied, Apply, Offline};
pub use options::ServerOptions;
pub use realm_objects::realm_prefix;
pub use reserve::make_room_for_tools;
pub use server::Server;
pub use stores::{OpenMeta, Stores};
