//! What clients and servers exchange about merges.

use chiton_types::codec::{Malformed, Put};
use chiton_types::{Ino, Name, Position};

use super::{Code, Fixed, Sample};
use crate::code;
use crate::merge::{Conflict, ConflictKind, MergeState, OnConflict, Resolution, Settled};

/// The end of the batch under way, and how many of its events are done.
type Window = (Position, u64);

code!(
    MergeState,
    9,
    "state",
    |v, out| {
        out.put_u64(v.merged.0);
        <Option<(Position, Fixed)> as Code<Option<Window>>>::put(&v.window, out);
    },
    |from| {
        let merged = Position(from.u64()?);
        Ok(MergeState { merged, window: <Option<(Position, Fixed)> as Code<Option<Window>>>::take(from)? })
    };
    draw = |from| {
        let window = <Option<(Position, Fixed)> as Sample<Option<Window>>>::sample(from);
        MergeState { merged: Position::sample(from), window }
    }
);
code!(
    Settled,
    1,
    "u8 (0 both did the same, 1 merged)",
    |v, out| out.put_u8(*v as u8),
    |from| Settled::from_u8(from.u8()?);
    draw = |from| from.one_of(&[Settled::Same, Settled::Merged])
);
code!(
    OnConflict,
    1,
    "u8 (0 overwrite, 1 abort, 2 keep both, 3 merge)",
    |v, out| out.put_u8(*v as u8),
    |from| OnConflict::from_u8(from.u8()?).ok_or(Malformed { expected: "what to do with conflicts" });
    draw = |from| from.one_of(&OnConflict::ALL)
);
code!(
    ConflictKind,
    1,
    "kind of conflict u8",
    |v, out| {
        let at = ConflictKind::ALL.iter().position(|kind| kind == v);
        out.put_u8(at.expect("the table has every kind") as u8);
    },
    |from| {
        let kind = ConflictKind::ALL.get(usize::from(from.u8()?));
        kind.copied().ok_or(Malformed { expected: "a kind of conflict" })
    };
    draw = |from| from.one_of(&ConflictKind::ALL)
);
code!(
    Resolution,
    1,
    "resolution u8",
    |v, out| {
        let at = Resolution::ALL.iter().position(|resolution| resolution == v);
        out.put_u8(at.expect("the table has every resolution") as u8);
    },
    |from| {
        let resolution = Resolution::ALL.get(usize::from(from.u8()?));
        resolution.copied().ok_or(Malformed { expected: "a resolution" })
    };
    draw = |from| from.one_of(&Resolution::ALL)
);

crate::record_code! { Conflict "conflict" {
    kind: ConflictKind,
    resolution: Resolution,
    path: Vec<u8>,
    ino: Ino,
    aside: Option<Name>,
} }
