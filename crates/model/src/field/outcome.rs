//! Outcomes of operations: a set of bits, and the fields that the bits announce.
//!
//! By hand, since the bits stand before the position of the event, in the place of the tag that distinguishes a result from a failure.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Attr, Ino, Time};

use super::{Code, Sample, Samples, Tagged};
use crate::outcome::{Gone, Outcome};

const HAS_ATTR: u8 = 1;
const HAS_GONE: u8 = 2;
const GONE_ORPHAN: u8 = 4;
const HAS_OTHER: u8 = 8;
const ALL: u8 = HAS_ATTR | HAS_GONE | GONE_ORPHAN | HAS_OTHER;

impl Tagged<Outcome> for Outcome {
    fn form() -> String {
        "outcome".to_owned()
    }

    #[inline]
    fn tag(outcome: &Outcome) -> u8 {
        let attr = if outcome.attr.is_some() { HAS_ATTR } else { 0 };
        let gone = match outcome.gone {
            None => 0,
            Some(Gone { orphan: false, .. }) => HAS_GONE,
            Some(Gone { orphan: true, .. }) => HAS_GONE | GONE_ORPHAN,
        };
        let other = if outcome.other.is_some() { HAS_OTHER } else { 0 };
        attr | gone | other
    }

    #[inline]
    fn put_rest(outcome: &Outcome, out: &mut Vec<u8>) {
        out.put_i64(outcome.time.0);
        if let Some(attr) = &outcome.attr {
            Attr::put(attr, out);
        }
        if let Some(gone) = &outcome.gone {
            out.put_u64(gone.ino.0);
        }
        if let Some(other) = outcome.other {
            out.put_u64(other.0);
        }
    }

    #[inline]
    fn take_rest(bits: u8, from: &mut Take<'_>) -> Result<Outcome, Malformed> {
        if bits & !ALL != 0 || bits & (HAS_GONE | GONE_ORPHAN) == GONE_ORPHAN {
            return Err(Malformed { expected: "an outcome" });
        }
        let time = Time(from.i64()?);
        let attr = if bits & HAS_ATTR != 0 { Some(Attr::take(from)?) } else { None };
        let gone = if bits & HAS_GONE != 0 {
            Some(Gone { ino: Ino(from.u64()?), orphan: bits & GONE_ORPHAN != 0 })
        } else {
            None
        };
        let other = if bits & HAS_OTHER != 0 { Some(Ino(from.u64()?)) } else { None };
        Ok(Outcome { attr, gone, other, time })
    }
}

impl Code<Outcome> for Outcome {
    const BYTES_MIN: usize = 9;
    fn form() -> String {
        "outcome".to_owned()
    }
    #[inline]
    fn put(outcome: &Outcome, out: &mut Vec<u8>) {
        out.put_u8(Outcome::tag(outcome));
        Outcome::put_rest(outcome, out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Outcome, Malformed> {
        let bits = from.u8()?;
        Outcome::take_rest(bits, from)
    }
}

impl Sample<Outcome> for Outcome {
    fn sample(from: &mut Samples<'_>) -> Outcome {
        Outcome {
            attr: Option::<Attr>::sample(from),
            gone: from.flag().then(|| Gone { ino: Ino::sample(from), orphan: from.flag() }),
            other: Option::<Ino>::sample(from),
            time: Time::sample(from),
        }
    }
}
