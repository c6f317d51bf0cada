//! What a caller chooses about decoupled subtrees.

use std::path::PathBuf;

use chiton_client::ClientOptions;

/// Settings of [`crate::Realms`].
#[derive(Clone)]
pub struct RealmsOptions {
    /// Where the journals of `durability: local` are, and what a later process needs to go on with them. Made when it
    /// is first needed.
    pub state_dir: PathBuf,
    /// Settings of the clients in the subtrees.
    pub client: ClientOptions,
}
