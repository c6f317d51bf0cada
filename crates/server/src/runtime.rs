//! The runtime: threads, stores and sockets around the engine.

mod options;

mod format;
mod hold;
mod stores;
mod severable;

mod startup;
mod error;

mod shared;
mod requests;
mod blocks;
mod commits;
mod deliver;
mod pump;

mod checkpointer;
mod sweeper;
mod compactor;

mod embed;
mod listen;
mod server;
mod status;

pub use embed::EmbeddedSession;
pub use error::{FormatError, StartError};
pub use format::{FilesystemInfo, FormatOptions};
pub use options::ServerOptions;
pub use server::Server;
pub use stores::Stores;
