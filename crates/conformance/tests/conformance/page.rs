//! The page has the clauses of the suite, and its example is right.

use std::path::Path;

use chiton_conformance::CLAUSES;
use chiton_model::{PartRange, encode_parts};
use chiton_namespace::{Node, Share, StoredInode, StoredRow, entry_row_key};
use chiton_transport::{FrameKind, put_frame};
use chiton_types::{Cred, Epoch, Ino, Kind, Mode, Name, Position, Refusal, Seq, Time};
use chiton_wire::{Call, Failure, Query, Reply, Request};

const HOME: Ino = Ino(0x0001_0000_0000_0005);
const PART: Ino = Ino(0x0021_0000_0000_0002);
const FILE: Ino = Ino(0x0001_0000_0000_0009);

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/directory-object.md");
    std::fs::read_to_string(path).expect("the page")
}

#[test]
fn every_clause_of_the_page_has_a_check_and_every_check_a_clause() {
    let page = page();
    let on_page: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("- **D")?.split_once(".**"))
        .map(|(number, _)| number)
        .collect();
    let checked: Vec<&str> =
        CLAUSES.iter().map(|clause| clause.number.strip_prefix('D').expect("a clause")).collect();
    assert_eq!(on_page, checked, "clauses of docs/directory-object.md, and checks");
    let mut distinct = checked.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), checked.len(), "a number is one clause");
}

/// The bytes behind a label of the example.
fn bytes(page: &str, label: &str) -> Vec<u8> {
    let start = format!("    {label:<12} ");
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&start));
    let first =
        lines.next().unwrap_or_else(|| panic!("the page has no line {label}"))[start.len()..].to_owned();
    let further = lines.take_while(|line| line.starts_with(&" ".repeat(17)));
    let all = further.fold(first, |all, line| format!("{all} {}", line.trim_start()));
    all.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn directory(ino: Ino, parent: Ino, share: Share) -> StoredInode {
    let born = Time(1_700_000_000_000_000_000);
    let is_home = share == Share::Home;
    let changed = if is_home { Time(born.0 + 1_000_000_000) } else { born };
    let attrs_changed = Position(if is_home { 299 } else { 41 });
    StoredInode {
        ino,
        node: Node::Dir { entries: if is_home { 2 } else { 0 }, attrs_changed, share },
        mode: Mode(0o755),
        parent,
        position: Position(if is_home { 300 } else { 41 }),
        nlink: if is_home { 3 } else { 2 },
        uid: 1000,
        gid: 1000,
        btime: born,
        atime: born,
        mtime: changed,
        ctime: changed,
        inline: false,
        mapped: false,
        xattrs: false,
        access_list: false,
        default_list: false,
        immutable: false,
        append_only: false,
    }
}

#[test]
fn the_rows_of_the_example_are_what_the_page_says() {
    let page = page();
    let name = Name::try_from("b.txt").expect("a name");
    let parts = [PartRange { first: 0, ino: HOME }, PartRange { first: 1 << 62, ino: PART }];
    let range = [(1u64 << 62).to_le_bytes(), ((1u64 << 63) - 1).to_le_bytes()].concat();
    let entry = StoredRow::Entry {
        dir: HOME,
        name: name.clone(),
        ino: FILE,
        kind: Kind::File,
        position: Position(298),
    };
    assert_eq!(hex(&bytes(&page, "entry key")), hex(&entry_row_key(HOME, &name)));
    for (label, expected) in [
        ("home", StoredRow::Inode(directory(HOME, Ino::ROOT, Share::Home))),
        ("list", StoredRow::Content(HOME, encode_parts(&parts))),
        ("entry", entry),
        ("part", StoredRow::Inode(directory(PART, HOME, Share::Part))),
        ("range", StoredRow::Content(PART, range)),
    ] {
        let (key, value) = (bytes(&page, &format!("{label} key")), bytes(&page, &format!("{label} value")));
        assert_eq!(StoredRow::decode(&key, &value).expect("a row"), Some(expected), "{label}");
    }
}

#[test]
fn the_messages_of_the_example_are_what_the_page_says() {
    let page = page();
    let name = Name::try_from("a.txt").expect("a name");
    assert!(name.hash64() >= 1 << 62, "it is a name of the part");
    let request = Request {
        id: 7,
        seq: Seq(0),
        settled: Seq(0),
        epoch: Epoch(1),
        again: None,
        cred: Cred::unseen(1000, 1000),
        call: Call::Query(Query::Lookup { parent: HOME, name }),
    };
    let mut frame = Vec::new();
    put_frame(&mut frame, FrameKind::Request, |out| request.encode(out)).expect("short");
    assert_eq!(hex(&bytes(&page, "request")), hex(&frame));
    let reply = Reply {
        id: 7,
        epoch: Epoch(1),
        durable: Position(300),
        result: Err(Failure::Refused(Refusal::OtherPart)),
    };
    let mut frame = Vec::new();
    put_frame(&mut frame, FrameKind::Reply, |out| reply.encode(out)).expect("short");
    assert_eq!(hex(&bytes(&page, "reply")), hex(&frame));
}
