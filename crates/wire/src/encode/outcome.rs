//! What became of operations.

use chiton_model::{Gone, Outcome};
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Position, Time};

use super::{bad, put_attr, take_attr};

/// Bits of the byte before an outcome.
const HAS_ATTR: u8 = 1;
const HAS_GONE: u8 = 2;
const GONE_ORPHAN: u8 = 4;
const HAS_OTHER: u8 = 8;
/// All of them: a byte above is no outcome.
pub(super) const OUTCOME_BITS: u8 = 15;

#[inline]
pub(super) fn put_outcome(out: &mut Vec<u8>, position: Position, outcome: &Outcome) {
    let attr = if outcome.attr.is_some() { HAS_ATTR } else { 0 };
    let gone = match outcome.gone {
        None => 0,
        Some(Gone { orphan: false, .. }) => HAS_GONE,
        Some(Gone { orphan: true, .. }) => HAS_GONE | GONE_ORPHAN,
    };
    let other = if outcome.other.is_some() { HAS_OTHER } else { 0 };
    out.put_u8(attr | gone | other);
    out.put_u64(position.0);
    out.put_i64(outcome.time.0);
    if let Some(attr) = &outcome.attr {
        put_attr(out, attr);
    }
    if let Some(gone) = &outcome.gone {
        out.put_u64(gone.ino.0);
    }
    if let Some(other) = outcome.other {
        out.put_u64(other.0);
    }
}

/// What follows the byte `bits`, which the caller has read to tell it from a failure.
#[inline]
pub(super) fn take_outcome(bits: u8, from: &mut Take<'_>) -> Result<(Position, Outcome), Malformed> {
    if bits & !OUTCOME_BITS != 0 || bits & (HAS_GONE | GONE_ORPHAN) == GONE_ORPHAN {
        return bad("an outcome");
    }
    let position = Position(from.u64()?);
    let time = Time(from.i64()?);
    let attr = if bits & HAS_ATTR != 0 { Some(take_attr(from)?) } else { None };
    let gone = if bits & HAS_GONE != 0 {
        Some(Gone { ino: Ino(from.u64()?), orphan: bits & GONE_ORPHAN != 0 })
    } else {
        None
    };
    let other = if bits & HAS_OTHER != 0 { Some(Ino(from.u64()?)) } else { None };
    Ok((position, Outcome { attr, gone, other, time }))
}
