//! Rows of the metadata store. The first byte is the length of the key.

use chiton_engine::OwnRow;
use chiton_model::PolicyChange;
use chiton_namespace::{Namespace, StoredRow, inode_row, tag};
use chiton_types::{BlockId, Ino, Kind, Name, Position, ShardId, Time};

use super::{Target, as_it_is};

pub(super) const ROWS: Target = Target { name: "rows", run, seeds, repair: as_it_is, short_run: 40_000 };

fn run(bytes: &[u8]) -> bool {
    let Some((&len, rest)) = bytes.split_first() else { return false };
    let (key, value) = rest.split_at(usize::from(len).min(rest.len()));
    let own = OwnRow::decode(key, value);
    let Ok(Some(row)) = StoredRow::decode(key, value) else { return matches!(own, Ok(Some(_))) };
    let again = StoredRow::decode(&row.key(), &row.value());
    assert!(matches!(again, Ok(Some(again)) if again == row), "{row:?}");
    true
}

fn seeds() -> Vec<Vec<u8>> {
    let name = Name::new(b"a name").expect("a name");
    let change = PolicyChange {
        ino: Ino(9),
        version: 3,
        path: b"/a".to_vec(),
        text: Some(b"durability: local".to_vec()),
        uid: 7,
        time: Time(5),
        around: Ino(1),
        below: vec![Ino(12)],
    };
    let block = BlockId { writer: 3, number: 4 };
    let rows = [
        StoredRow::Entry { dir: Ino(1), name, ino: Ino(9), kind: Kind::File, position: Position(300) },
        StoredRow::Content(Ino(9), b"content".to_vec()),
        StoredRow::Xattrs(Ino(9), [(b"user.a".to_vec(), b"b".to_vec())].into()),
        StoredRow::References(block, 3),
        StoredRow::Garbage(block),
        StoredRow::Orphan(Ino(9)),
        StoredRow::Policy(Ino(9), change.clone()),
        StoredRow::PolicyChange(3, change),
        StoredRow::Linked(Ino(9), vec![Ino(1), Ino(2)]),
        StoredRow::InodeCount(3),
    ];
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = rows.iter().map(|row| (row.key(), row.value())).collect();
    let formatted = Namespace::format_rows(Time(5), 0, 0).into_iter();
    all.extend(formatted.filter_map(|(key, value)| Some((key, value?))));
    let own = [
        OwnRow::Position(Position(7)),
        OwnRow::SessionMark(3),
        OwnRow::InodeMark(ShardId(1), 9),
        OwnRow::Swept(3),
    ];
    all.extend(own.into_iter().filter_map(OwnRow::encode));
    // A map of one extent: offset, length, flags, writer, number, offset in the block.
    let map = [&inode_row(tag::CHUNK, Ino(9))[..], &0u32.to_be_bytes()].concat();
    all.push((map, vec![1, 0, 200, 1, 0, 3, 4, 0]));
    let framed = |(key, value): (Vec<u8>, Vec<u8>)| [&[key.len() as u8], &key[..], &value[..]].concat();
    all.into_iter().map(framed).collect()
}
