//! The data that survive each failure: the table of promises.

use serde::Serialize;

use crate::level::{Consistency, Durability};

/// A kind of failure that a policy makes promises about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failed {
    /// The client's process ends (kill -9), its machine lives on.
    ClientProcess,
    /// The client's machine never comes back.
    ClientMachine,
    /// The server's process ends, its machine comes back.
    ServerProcess,
    /// The server's machine never comes back.
    ServerMachine,
    /// A site is lost.
    Site,
}

impl Failed {
    /// All, as the table's columns stand.
    pub const ALL: [Failed; 5] = [
        Failed::ClientProcess,
        Failed::ClientMachine,
        Failed::ServerProcess,
        Failed::ServerMachine,
        Failed::Site,
    ];

    /// In a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Failed::ClientProcess => "client process dies",
            Failed::ClientMachine => "client machine lost",
            Failed::ServerProcess => "server process dies",
            Failed::ServerMachine => "server machine lost",
            Failed::Site => "site lost",
        }
    }
}

/// The data that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Operations acknowledged at the level.
    Yes,
    /// The policy promises nothing for this failure.
    No,
    /// Operations that the server has answered.
    Answered,
    /// Merged operations, at the level of the namespace around.
    Merged,
    /// As durable as the object store.
    AsObjectStore,
}

/// The cell of the table, and how it reads.
pub fn survival(consistency: Consistency, durability: Durability, failed: Failed) -> (Kept, &'static str) {
    use Failed::{ClientMachine, ClientProcess, ServerMachine, ServerProcess, Site};
    let decoupled = consistency != Consistency::Strong;
    if decoupled {
        return match (durability, failed) {
            (_, ServerProcess) => {
                (Kept::Merged, "unmerged changes: the client has them; merged ones: as the namespace around")
            }
            (_, ServerMachine | Site) => (Kept::Merged, "merged changes: as the namespace around"),
            (Durability::None, ClientProcess | ClientMachine) | (Durability::Local, ClientMachine) => {
                (Kept::No, "no, except for merged changes")
            }
            (Durability::Local, ClientProcess) => (Kept::Yes, "yes, after recovery on that machine"),
            (Durability::Global | Durability::Geo, ClientProcess) => {
                (Kept::Yes, "yes, recoverable from anywhere")
            }
            (Durability::Global | Durability::Geo, ClientMachine) => (Kept::Yes, "yes"),
        };
    }
    match (durability, failed) {
        (Durability::Geo, _) => (Kept::Yes, "yes"),
        (_, ClientProcess | ClientMachine) => (Kept::Answered, "the operations that the server has answered"),
        (Durability::None, ServerProcess) => (Kept::No, "no: the subtree is as the last checkpoint held it"),
        (Durability::None, ServerMachine | Site) => (Kept::No, "no"),
        (Durability::Local, ServerProcess) => (Kept::Yes, "yes (clients send the other operations again)"),
        (Durability::Local, ServerMachine | Site) => (Kept::No, "no"),
        (Durability::Global, ServerProcess) => (Kept::Yes, "yes (clients send the other operations again)"),
        (Durability::Global, ServerMachine) => {
            (Kept::Yes, "yes, as far as the object store is not on that machine")
        }
        (Durability::Global, Site) => (Kept::AsObjectStore, "as the object store"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stronger_levels_never_keep_less() {
        let kept = |c, d, f| survival(c, d, f).0 != Kept::No;
        for consistency in Consistency::ALL {
            for pair in Durability::ALL.windows(2) {
                for failed in Failed::ALL {
                    assert!(
                        kept(consistency, pair[1], failed) >= kept(consistency, pair[0], failed),
                        "{consistency:?} {pair:?} {failed:?}"
                    );
                }
            }
        }
    }
}
