//! How often what was done, for `status` and `metrics`.

use chiton_model::{Make, Op};
use chiton_wire::{Call, Query};

/// What is counted; the order is that of [`Counters::names`].
pub(crate) const KINDS: [&str; 49] = [
    "make_file",
    "make_dir",
    "make_symlink",
    "make_node",
    "link",
    "unlink",
    "rmdir",
    "rename",
    "setattr",
    "write",
    "clone",
    "remap",
    "set_xattr",
    "remove_xattr",
    "reclaim",
    "batch",
    "lookup",
    "getattr",
    "open",
    "access",
    "readdir",
    "readlink",
    "get_xattr",
    "list_xattr",
    "map",
    "resolve",
    "statfs",
    "commit",
    "lease",
    "closed",
    "reopen",
    "set_lock",
    "cancel_lock",
    "get_lock",
    "put_block",
    "get_block",
    "admin",
    "ping",
    "bye",
    "realm",
    "ahead",
    "lease_names",
    "grown",
    "ended",
    "refused",
    "fetched",
    "parked",
    "make_unnamed",
    "link_unnamed",
];

/// Index of commits in [`KINDS`].
pub(crate) const COMMIT: usize = 27;
/// Index of the refused ones in [`KINDS`].
pub(crate) const REFUSED: usize = 44;
/// Index of those that waited for rows.
pub(crate) const FETCHED: usize = 45;
/// Index of those that waited for leases, locks, durability or room.
pub(crate) const PARKED: usize = 46;
const MAKE_UNNAMED: usize = 47;
const LINK_UNNAMED: usize = 48;

/// Counters by kind.
#[derive(Clone, Debug)]
pub struct Counters {
    counts: [u64; KINDS.len()],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { counts: [0; KINDS.len()] }
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

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        KINDS.iter().copied().zip(self.counts.iter().copied())
    }
}

/// Index of an operation.
#[inline]
pub(crate) fn kind_of_op(op: &Op) -> usize {
    match op {
        Op::Make { make: Make::File { .. }, .. } => 0,
        Op::Make { make: Make::Dir, .. } => 1,
        Op::Make { make: Make::Symlink { .. }, .. } => 2,
        Op::Make { make: Make::Node { .. }, .. } => 3,
        Op::Link { .. } => 4,
        Op::Unlink { .. } => 5,
        Op::Rmdir { .. } => 6,
        Op::Rename { .. } => 7,
        Op::SetAttr { .. } => 8,
        Op::Write { .. } => 9,
        Op::Clone { .. } => 10,
        Op::Remap { .. } => 11,
        Op::SetXattr { .. } => 12,
        Op::RemoveXattr { .. } => 13,
        Op::Reclaim { .. } => 14,
        Op::MakeUnnamed { .. } => MAKE_UNNAMED,
        Op::LinkUnnamed { .. } => LINK_UNNAMED,
    }
}

/// The name of a call, for the log.
pub fn name_of(call: &Call) -> &'static str {
    KINDS[kind_of_call(call)]
}

/// Index of a call that is not an operation.
#[inline]
pub(crate) fn kind_of_call(call: &Call) -> usize {
    match call {
        Call::Op { op, .. } => kind_of_op(op),
        Call::Batch { .. } => 15,
        Call::Query(query) => match query {
            Query::Lookup { .. } => 16,
            Query::GetAttr { .. } => 17,
            Query::Open { .. } => 18,
            Query::Access { .. } => 19,
            Query::ReadDir { .. } => 20,
            Query::ReadLink { .. } => 21,
            Query::GetXattr { .. } => 22,
            Query::ListXattr { .. } => 23,
            Query::Map { .. } => 24,
            Query::Resolve { .. } => 25,
            Query::StatFs => 26,
        },
        Call::Commit { .. } => COMMIT,
        Call::Lease { .. } => 28,
        Call::Closed { .. } => 29,
        Call::Reopen { .. } => 30,
        Call::SetLock { .. } => 31,
        Call::CancelLock { .. } => 32,
        Call::GetLock { .. } => 33,
        Call::PutBlock { .. } => 34,
        Call::GetBlock { .. } => 35,
        Call::Admin { .. } => 36,
        Call::Ping => 37,
        Call::Bye => 38,
        Call::Realm(_) => 39,
        Call::Ahead { .. } => 40,
        Call::LeaseNames { .. } => 41,
        Call::Grown { .. } => 42,
        Call::Ended { .. } => 43,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_name_their_kinds() {
        assert_eq!(KINDS[kind_of_call(&Call::Bye)], "bye");
        assert_eq!(KINDS[kind_of_call(&Call::Query(Query::StatFs))], "statfs");
        assert_eq!(KINDS[kind_of_op(&Op::Reclaim { ino: chiton_types::Ino(1) })], "reclaim");
        assert_eq!([KINDS[MAKE_UNNAMED], KINDS[LINK_UNNAMED]], ["make_unnamed", "link_unnamed"]);
        assert_eq!([KINDS[REFUSED], KINDS[FETCHED], KINDS[PARKED]], ["refused", "fetched", "parked"]);
    }
}
