//! Every operation and every event comes back from its bytes as it was. They are drawn by their tables: one that is added
//! there is drawn here.

use chiton_model::field::{Samples, Variants};
use chiton_model::{Event, Op};
use chiton_types::{Malformed, Take};
use serde_json::Value;

/// Bytes of a linear congruential generator, more and more of them: the same in each run.
fn drawn() -> impl Iterator<Item = Vec<u8>> {
    let mut state = 1u64;
    (0..100).map(move |n| {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..n * 10).map(|_| next()).collect()
    })
}

/// The methods that each of them has.
trait Entry: Variants<Self> + PartialEq + std::fmt::Debug + Sized {
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(from: &mut Take<'_>) -> Result<Self, Malformed>;
    fn json(&self) -> Value;
    fn describe(&self) -> String;
}

macro_rules! entry {
    ($type:ident) => {
        impl Entry for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $type::encode(self, out);
            }
            fn decode(from: &mut Take<'_>) -> Result<Self, Malformed> {
                $type::decode(from)
            }
            fn json(&self) -> Value {
                $type::json(self)
            }
            fn describe(&self) -> String {
                $type::describe(self)
            }
        }
    };
}

entry!(Op);
entry!(Event);

fn check<T: Entry>() {
    for (at, name) in T::VARIANTS.iter().enumerate() {
        for bytes in drawn() {
            let entry = T::sample_variant(at, &mut Samples::new(&bytes));
            assert!(format!("{entry:?}").starts_with(name), "{name} is drawn as {entry:?}");
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let mut from = Take::new(&bytes);
            assert_eq!(T::decode(&mut from).as_ref(), Ok(&entry));
            assert!(from.is_empty(), "bytes are left behind {entry:?}");
            for len in (0..bytes.len()).step_by(1 + bytes.len() / 30) {
                assert!(T::decode(&mut Take::new(&bytes[..len])).is_err(), "{entry:?} cut to {len}");
            }
            let (json, line) = (entry.json(), entry.describe());
            assert!(json.as_object().is_some_and(|fields| fields.len() > 1), "{name}: {json}");
            assert!(!line.is_empty() && !line.contains('\n'), "{name}: {line:?}");
        }
    }
}

#[test]
fn operations_round_trip_and_are_shown() {
    check::<Op>();
}

#[test]
fn events_round_trip_and_are_shown() {
    check::<Event>();
}
