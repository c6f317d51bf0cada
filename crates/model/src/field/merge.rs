//! The memory of merges, and the messages of clients and servers about it.

use chiton_types::codec::{Malformed, Put};
use chiton_types::{Ino, Name, Position};

use crate::code;
use crate::merge::{Conflict, ConflictKind, MergeMap, OnConflict, Resolution, Settled};

code!(
    MergeMap,
    1,
    "map",
    |map, out| map.encode(out),
    MergeMap::decode;
    draw = |from| {
        let (root, base, writer) = (Ino::sample(from), Position::sample(from), from.number());
        MergeMap::new(root, base, writer, OnConflict::sample(from))
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
