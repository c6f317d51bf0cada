//! The mechanisms: one table with all that is to be known of each.

use serde::Serialize;

/// The end that performs a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Server,
    Client,
    /// The client under `append_client_journal`, the server under `rpcs`.
    ClientOrServer,
    /// The client sends, the server applies.
    ClientToServer,
    /// A tool, while nobody works on the subtree.
    Offline,
}

impl End {
    /// In a few words.
    pub fn describe(self) -> &'static str {
        match self {
            End::Server => "server",
            End::Client => "client",
            End::ClientOrServer => "client or server",
            End::ClientToServer => "client and server",
            End::Offline => "offline tool",
        }
    }
}

/// The place of a mechanism in a composition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Carries operations out: exactly one, first.
    Source,
    /// Makes events durable.
    Persist,
    /// Makes a client's events part of the global namespace.
    Apply,
}

macro_rules! mechanisms {
    ($($(#[$doc:meta])* $variant:ident {
        name: $name:literal, aliases: [$($alias:literal),*], role: $role:ident, end: $end:ident,
        arrow: $arrow:literal, gives: $gives:literal, costs: $costs:literal,
    })*) => {
        /// An arrow of the one picture: policies are composed of mechanisms.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mechanism { $($(#[$doc])* $variant,)* }

        impl Mechanism {
            /// Every mechanism, in the order in which a composition names them.
            pub const ALL: &'static [Mechanism] = &[$(Mechanism::$variant,)*];

            /// The paper's name.
            pub fn name(self) -> &'static str {
                match self { $(Mechanism::$variant => $name,)* }
            }

            /// Other names that are understood (the paper's draft has some).
            pub fn aliases(self) -> &'static [&'static str] {
                match self { $(Mechanism::$variant => &[$($alias),*],)* }
            }

            pub(crate) fn role(self) -> Role {
                match self { $(Mechanism::$variant => Role::$role,)* }
            }

            /// The end that performs it.
            pub fn end(self) -> End {
                match self { $(Mechanism::$variant => End::$end,)* }
            }

            /// The change that it makes, in words.
            pub fn arrow(self) -> &'static str {
                match self { $(Mechanism::$variant => $arrow,)* }
            }

            /// The guarantee that it gives.
            pub fn gives(self) -> &'static str {
                match self { $(Mechanism::$variant => $gives,)* }
            }

            /// The cost of the mechanism, in words.
            pub fn costs(self) -> &'static str {
                match self { $(Mechanism::$variant => $costs,)* }
            }
        }
    };
}

mechanisms! {
    /// The server carries every operation out.
    Rpcs {
        name: "rpcs", aliases: ["rpc"], role: Source, end: Server,
        arrow: "the server plans and applies every operation; the caller waits for the reply",
        gives: "all clients see a change as soon as it is answered",
        costs: "a message to the server for every operation that leases do not cover",
    }
    /// The client carries operations out on its own namespace.
    AppendClientJournal {
        name: "append_client_journal", aliases: ["create", "append"], role: Source, end: Client,
        arrow: "the client plans and applies on its own copy of the subtree; events go to the client's journal",
        gives: "no message at all for an operation",
        costs: "others do not see it before it is merged",
    }
    /// The server's journal goes to the object store.
    Stream {
        name: "stream", aliases: [], role: Persist, end: Server,
        arrow: "the server's journal goes to the object store",
        gives: "durable events survive the loss of the server's machine",
        costs: "the object store's bandwidth and latency",
    }
    /// A journal goes to a local disk.
    LocalPersist {
        name: "local_persist", aliases: ["save"], role: Persist, end: ClientOrServer,
        arrow: "the journal goes to a file on the local disk of the process that carries operations out",
        gives: "durable events survive the end of that process",
        costs: "the local disk's bandwidth and latency",
    }
    /// The client's journal goes to the object store.
    GlobalPersist {
        name: "global_persist", aliases: ["persist"], role: Persist, end: Client,
        arrow: "the client's journal goes to the object store",
        gives: "durable events can be recovered from any machine",
        costs: "the object store's bandwidth and latency",
    }
    /// Operations take their place in the sites' one ordered log.
    Replicate {
        name: "replicate", aliases: [], role: Persist, end: Server,
        arrow: "operations take their place in the sites' one ordered log; every site carries them out alike",
        gives: "the loss of a site loses nothing and stops nothing",
        costs: "a round trip to a majority of the sites for every batch",
    }
    /// The client's events are merged into the server's namespace in memory.
    VolatileApply {
        name: "volatile_apply", aliases: ["v_apply"], role: Apply, end: ClientToServer,
        arrow: "the client's events are merged into the server's namespace",
        gives: "others see them, durable at the level of the namespace around",
        costs: "the server's time for each event, once",
    }
    /// A journal in the object store is merged into the metadata store.
    NonvolatileApply {
        name: "nonvolatile_apply", aliases: ["nv_apply"], role: Apply, end: Offline,
        arrow: "the journal in the object store is merged into the metadata store by a tool",
        gives: "others see the events; no server is needed",
        costs: "rows are read and written back; no client works on the file system meanwhile",
    }
}

impl Mechanism {
    /// Finds a mechanism by name or alias; case, `-`, `_` and blanks within do not matter.
    pub fn by_name(name: &str) -> Option<Mechanism> {
        let name = fold(name);
        Mechanism::ALL.iter().copied().find(|m| m.name() == name || m.aliases().contains(&name.as_str()))
    }
}

/// A word as it is compared: lower case, with `_` between its parts.
pub(crate) fn fold(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    for c in word.trim().chars() {
        match c {
            '-' | '_' | ' ' | '\t' => {
                if !out.ends_with('_') {
                    out.push('_');
                }
            }
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_find_their_mechanism() {
        for &m in Mechanism::ALL {
            assert_eq!(Mechanism::by_name(m.name()), Some(m));
            assert_eq!(Mechanism::by_name(&m.name().to_uppercase().replace('_', " ")), Some(m));
            for alias in m.aliases() {
                assert_eq!(Mechanism::by_name(alias), Some(m), "{alias}");
            }
        }
        assert_eq!(Mechanism::by_name("RPCs"), Some(Mechanism::Rpcs));
        assert_eq!(Mechanism::by_name("streams"), None);
    }
}
