//! The options of a client.

use std::time::Duration;

use chiton_auth::Credentials;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_types::Ino;

use crate::data::FilesOptions;

/// Settings of a [`crate::Client`].
#[derive(Clone)]
pub struct ClientOptions {
    /// The client's name in the server's `status` and logs: host, process, mount point. At most 256 bytes.
    pub identity: String,
    /// Give up on a server that has been away for so long, with ENOTCONN. `None`: wait for ever, as a mount does.
    pub timeout: Option<Duration>,
    /// Names, and as many attributes, cached in connected mode.
    pub cache_entries_max: usize,
    /// Memory for operations, and for blocks put through the server, that are not durable yet, in bytes. Over it, callers wait for a commit.
    pub kept_bytes_max: usize,
    /// The user of path calls, which name none: user, group, supplementary groups. `None`: this process.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// Where path calls begin: the root of the file system, or of a decoupled subtree.
    pub root: Ino,
    /// Subtrees whose policy says that a client decouples them are decoupled before something is changed there: calls
    /// are refused with [`chiton_types::Refusal::Undecoupled`] until then.
    pub decouples: bool,
    /// After so many names of a directory that were changed one by one, the next are changed before the server knows of it, in
    /// batches, while nobody else looks at the directory. `None`: each is asked for.
    pub write_behind_after: Option<u32>,
    /// Buffers, read-ahead and threads for file data.
    pub files: FilesOptions,
    /// Connections over TCP have TLS, and show this certificate. `None`: they have none.
    pub credentials: Option<Credentials>,
    /// Clock and random numbers: the real ones, or those of a simulation.
    pub world: SharedWorld,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            identity: format!("process {}", std::process::id()),
            timeout: None,
            cache_entries_max: 200_000,
            kept_bytes_max: 64 << 20,
            user: None,
            root: Ino::ROOT,
            decouples: false,
            write_behind_after: Some(2),
            files: FilesOptions::default(),
            credentials: None,
            world: std::sync::Arc::new(RealWorld),
        }
    }
}
