//! The client that asks for an operation over plates keeps its own leases on some of the rows that the operation guards.
//!
//! ```text
//!   rename of a/x to b/y by C, a on plate 1, b on plate 2, which decides
//!     C ── Rename ─▶ 2 ── Guard(a, client: C) ─▶ 1    recalls a from all but C
//!     C ◀─ answer ── 2                                C brings its cache of a and b up to date
//! ```
//!
//! Invariants:
//! - The answer brings the client's cache up to date, as it does after an operation on one plate.
//! - While a rename is under way the client's cache answers nothing about a directory of another plate on which it keeps a lease this way. If
//!   the deciding plate dies before its answer arrives, others may see the change before the client does.
//! - The client keeps leases on a file that its unlink takes the last name from only while nobody has the file open.

use chiton_model::Op;
use chiton_types::{Attr, Ino, Kind};

use crate::sessions::Slot;

/// The session that keeps its leases on own rows. If the link to this plate breaks, all leases of this plate are void.
pub(super) fn keeper(op: &Op, slot: Slot) -> Slot {
    let keeps = matches!(op, Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } | Op::Link { .. });
    if keeps { slot } else { Slot::SERVER }
}

/// Whether the client that asks keeps its leases on a row of another plate: on the directories of a rename, and on a file that an unlink
/// ends ([`ends`]).
pub(super) fn keeps_elsewhere(op: &Op, ino: Ino) -> bool {
    matches!(op, Op::Unlink { .. })
        || matches!(op, Op::Rename { from, to, .. } if [*from, *to].contains(&ino))
}

/// Whether an unlink of another plate ends an own row: nobody can look at it afterwards.
pub(super) fn ends(attr: &Attr, is_open: bool) -> bool {
    attr.kind != Kind::Dir && attr.nlink == 1 && !is_open
}
