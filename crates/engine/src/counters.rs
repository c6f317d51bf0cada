//! How often what was done, for `status` and `metrics`.
//!
//! Operations are counted under the names that their table gives them ([`Op::COUNTERS`]). The table below names all else.

use chiton_model::Op;
use chiton_wire::{Call, Query, StatTarget};

/// A table of patterns and names becomes a list of names, an index of each call, and indices of the counters that are no calls.
macro_rules! counted {
    (
        calls { $($pattern:pat => $index:ident $name:literal,)+ }
        others { $($other:ident $other_name:literal,)+ }
    ) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types, reason = "each is the name of a constant, too")]
        enum Ordinal {
            $($index,)+
            $($other,)+
        }

        const NAMES: &[&str] = &[$($name,)+ $($other_name,)+];

        $(pub(crate) const $other: usize = Op::COUNTERS.len() + Ordinal::$other as usize;)+

        /// Index of a call in [`kind_names`]; of one that carries an operation, that of the operation.
        #[inline]
        pub fn kind_of_call(call: &Call) -> usize {
            match call {
                Call::Op { op, .. } => op.counter(),
                $($pattern => Op::COUNTERS.len() + Ordinal::$index as usize,)+
            }
        }
    };
}

counted! {
    calls {
        Call::Batch { .. } => Batch "batch",
        Call::Query(Query::Lookup { .. }) => Lookup "lookup",
        Call::Query(Query::GetAttr { .. }) => GetAttr "getattr",
        Call::Query(Query::Open { .. }) => Open "open",
        Call::Query(Query::Access { .. }) => Access "access",
        Call::Query(Query::ReadDir { .. }) => ReadDir "readdir",
        Call::Query(Query::NameOf { .. }) => NameOf "name_of",
        Call::Query(Query::Parts { .. }) => Parts "parts",
        Call::Query(Query::ReadLink { .. }) => ReadLink "readlink",
        Call::Query(Query::GetXattr { .. }) => GetXattr "get_xattr",
        Call::Query(Query::ListXattr { .. }) => ListXattr "list_xattr",
        Call::Query(Query::Map { .. }) => Map "map",
        Call::Query(Query::Resolve { .. }) => Resolve "resolve",
        Call::Query(Query::StatEach { .. }) => StatEach "stat_each",
        Call::Query(Query::StatFs) => StatFs "statfs",
        Call::Commit { .. } => Commit "commit",
        Call::Lease { .. } => Lease "lease",
        Call::Closed { .. } => Closed "closed",
        Call::Reopen { .. } => Reopen "reopen",
        Call::SetLock { .. } => SetLock "set_lock",
        Call::CancelLock { .. } => CancelLock "cancel_lock",
        Call::GetLock { .. } => GetLock "get_lock",
        Call::PutBlock { .. } => PutBlock "put_block",
        Call::GetBlock { .. } => GetBlock "get_block",
        Call::Admin { .. } => Admin "admin",
        Call::Ping => Ping "ping",
        Call::Bye => Bye "bye",
        Call::Realm(_) => Realm "realm",
        Call::WriteBehind { .. } => WriteBehind "write_behind",
        Call::Late { .. } => Late "late",
        Call::LeaseNames { .. } => LeaseNames "lease_names",
        Call::Grown { .. } => Grown "grown",
        Call::Ended { .. } => Ended "ended",
    }
    others {
        REFUSED "refused",
        // Waited for rows.
        FETCHED "fetched",
        // Waited for leases, locks, durability or room.
        WAITED "waited",
    }
}

/// Index of a question for one target, as if it were asked alone.
pub(crate) fn kind_of_target(target: &StatTarget) -> usize {
    let ordinal = match target {
        StatTarget::Inode(_) => Ordinal::GetAttr,
        StatTarget::Name { .. } => Ordinal::Lookup,
        StatTarget::Open { .. } => Ordinal::Open,
    };
    Op::COUNTERS.len() + ordinal as usize
}

pub(crate) const COMMIT: usize = Op::COUNTERS.len() + Ordinal::Commit as usize;

const KINDS: usize = Op::COUNTERS.len() + NAMES.len();

/// The names of all kinds, by index.
pub fn kind_names() -> impl Iterator<Item = &'static str> {
    Op::COUNTERS.iter().chain(NAMES).copied()
}

/// Number of requests and operations of each kind since the start.
#[derive(Clone, Debug)]
pub struct Counters {
    counts: [u64; KINDS],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { counts: [0; KINDS] }
    }
}

impl Counters {
    #[inline]
    pub(crate) fn count(&mut self, kind: usize) {
        self.counts[kind] += 1;
    }

    /// So many were done elsewhere.
    pub(crate) fn count_more(&mut self, kind: usize, more: u64) {
        self.counts[kind] += more;
    }

    /// All counters, each with the name of its kind, in the order of [`kind_names`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        kind_names().zip(self.counts.iter().copied())
    }
}

/// The name of a call, for the log.
pub fn name_of(call: &Call) -> &'static str {
    kind_names().nth(kind_of_call(call)).expect("each kind has a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_name_their_kinds() {
        let name = |kind: usize| kind_names().nth(kind).expect("a name");
        assert_eq!(name_of(&Call::Bye), "bye");
        assert_eq!(name_of(&Call::Query(Query::StatFs)), "statfs");
        let op = Op::Reclaim { ino: chiton_types::Ino(1) };
        assert_eq!(name_of(&Call::Op { op, open: false }), "reclaim");
        assert_eq!([name(COMMIT), name(REFUSED), name(FETCHED)], ["commit", "refused", "fetched"]);
        assert_eq!(kind_names().nth(WAITED), kind_names().last());
        assert_eq!(kind_names().collect::<std::collections::BTreeSet<_>>().len(), KINDS, "a name twice");
    }
}
