//! Rows that are lost or do not decode, and rows whose information exists twice: repair writes the information of
//! the other rows.

use crate::damage::{block, check_content, damaged, repaired, repaired_rig};
use crate::rig::{Hand, Rig};
use chiton_engine::{MARK, OwnRow, SESSION, SWEPT};
use chiton_model::{Op, XattrHow};
use chiton_namespace::{Node, StoredRow, inode_row, plate_row_key, tag, tag_of};
use chiton_types::{Ino, Kind, ShardId};

#[test]
fn a_lost_inode_is_recreated_from_its_remaining_rows() {
    // Its content exists, and only root may see it, since the owner is unknown.
    let rig = repaired("lost-inode", |rig| rig.put_raw(inode_row(tag::INODE, rig.find("/docs/big")), None));
    rig.edit("/docs/big", |i| {
        assert_eq!(
            (i.node.size(), i.node.bytes(), i.mode.0, i.uid, i.xattrs),
            (250_000, 150_000, 0o600, 0, true)
        )
    });
    let rig =
        repaired("lost-inode", |rig| rig.put_raw(inode_row(tag::INODE, rig.find("/docs/symlink")), None));
    rig.edit("/docs/symlink", |i| assert_eq!((i.node.kind(), i.node.size()), (Kind::Symlink, 14)));
    let rig =
        repaired("lost-inode", |rig| rig.put_raw(inode_row(tag::INODE, rig.find("/docs/linked")), None));
    rig.edit("/docs/linked", |i| assert_eq!((i.nlink, i.node.size()), (2, 1)));
    let rig = repaired("lost-inode", |rig| rig.put_raw(inode_row(tag::INODE, rig.find("/docs/deep")), None));
    rig.edit("/docs/deep/deeper", |i| assert_eq!(i.node.kind(), Kind::Dir));
    // Without a name: it gets one.
    let lost = Rig::populated().find("/docs/inline");
    let rig = repaired("lost-inode", |rig| {
        rig.delete(&rig.entry("/docs/inline"));
        rig.put_raw(inode_row(tag::INODE, lost), None);
    });
    assert_eq!(rig.find(&format!("/lost+found/#{lost}")), lost);
    // Nothing but the name was left: there is nothing to keep.
    repaired("dangling-entry", |rig| rig.put_raw(inode_row(tag::INODE, rig.find("/docs/empty")), None));
    // An unreadable row may have content that a backup lacks.
    damaged("bad-row", &["bad-row"], |rig| {
        rig.put_raw(inode_row(tag::INODE, rig.find("/docs/deep")), Some(vec![77]));
    });
}

#[test]
fn a_root_that_is_missing_is_made_anew_with_all_that_lies_in_it() {
    for row in [None, Some(vec![77])] {
        let rig = repaired("missing-root", |rig| rig.put_raw(inode_row(tag::INODE, Ino::ROOT), row.clone()));
        rig.edit("/", |i| assert_eq!((i.mode.0, i.node.entries()), (0o700, 2)));
        assert!(rig.find("/docs/deep/copy") > Ino(1));
    }
    // The inode in its place is not a directory.
    repaired("missing-root", |rig| {
        rig.edit("/", |i| {
            i.node = Node::new(Kind::File, 0, 0);
        });
    });
}

#[test]
fn an_entry_that_cannot_be_read_is_given_back_where_only_one_inode_lacks_it() {
    for path in ["/docs/inline", "/docs/deep", "/docs/deep/fifo"] {
        let mut ino = Ino(0);
        let rig = repaired("bad-row", |rig| {
            ino = rig.find(path);
            rig.put_raw(rig.entry(path).key(), Some(b"?".to_vec()));
        });
        assert_eq!(rig.find(path), ino);
    }
    // Two of them: they look alike.
    let rig = repaired("bad-row", |rig| {
        for path in ["/docs/inline", "/docs/big"] {
            rig.put_raw(rig.entry(path).key(), Some(b"?".to_vec()));
        }
    });
    let Some(StoredRow::Inode(found)) = rig.get(&inode_row(tag::INODE, rig.find("/lost+found"))) else {
        panic!()
    };
    assert_eq!(found.node.entries(), 2);
    // One name of several: the others stay.
    let rig = repaired("bad-row", |rig| rig.put_raw(rig.entry("/docs/linked").key(), Some(Vec::new())));
    rig.edit("/docs/deep/second name", |i| assert_eq!(i.nlink, 1));
}

#[test]
fn lists_of_hard_links() {
    let row = |rig: &Rig| {
        let StoredRow::Linked(ino, dirs) =
            rig.get(&StoredRow::Linked(rig.find("/docs/linked"), Vec::new()).key()).expect("a list")
        else {
            panic!()
        };
        (ino, dirs)
    };
    let good = row(&Rig::populated()).1;
    type Damage = fn(Vec<Ino>) -> Vec<Ino>;
    let cases: [Damage; 4] =
        [|dirs| vec![dirs[0]], |dirs| vec![dirs[0]; 2], |dirs| [dirs, vec![Ino(1)]].concat(), |_| Vec::new()];
    for case in cases {
        let rig = repaired("wrong-hard-links", |rig| {
            let (ino, dirs) = row(rig);
            rig.put(&StoredRow::Linked(ino, case(dirs)));
        });
        let mut dirs = row(&rig).1;
        dirs.sort();
        let mut good = good.clone();
        good.sort();
        assert_eq!(dirs, good);
    }
    repaired("wrong-hard-links", |rig| rig.put_raw(StoredRow::Linked(row(rig).0, Vec::new()).key(), None));
    repaired("bad-row", |rig| rig.put_raw(StoredRow::Linked(row(rig).0, Vec::new()).key(), Some(vec![9])));
    // Of a file with one name, of a directory, of nothing.
    for ino in [|rig: &Rig| rig.find("/docs/big"), |rig: &Rig| rig.find("/docs"), |_: &Rig| Ino(999_999)] {
        repaired("wrong-hard-links", |rig| rig.put(&StoredRow::Linked(ino(rig), vec![Ino(1); 2])));
    }
}

#[test]
fn the_counter_of_sessions() {
    repaired("low-session-counter", |rig| {
        let row = OwnRow::SessionMark(1).encode().expect("a row");
        rig.put_raw(row.0, Some(row.1));
    });
    // Damaged, or gone.
    for value in [None, Some(vec![1])] {
        let (key, _) = OwnRow::SessionMark(1).encode().expect("a row");
        repaired("low-session-counter", |rig| rig.put_raw(key, value));
    }
}

#[test]
fn rows_that_do_not_decode() {
    let of_plate = |tag, rest: &[u8]| plate_row_key(tag, rest);
    // Their content is unknown.
    for key in [of_plate(b'Q', b""), of_plate(tag::CHUNK, b""), inode_row(tag::POLICY, Ino(1)), b"Q".to_vec()]
    {
        damaged("bad-row", &["bad-row"], |rig| rig.put_raw(key, Some(b"?".to_vec())));
    }
    damaged("bad-row", &["bad-row"], |rig| {
        rig.put_raw(inode_row(tag::XATTRS, rig.find("/docs/big")), Some(b"?".to_vec()));
    });
    damaged("bad-row", &["bad-row"], |rig| {
        rig.put_raw(OwnRow::Position(chiton_types::Position(0)).encode().expect("a row").0, Some(vec![1]));
    });
    // Other rows have the information, or nothing depends on them.
    let short = [SWEPT, tag::ORPHAN, tag::GARBAGE, tag::LINKED, MARK].map(|tag| of_plate(tag, b"1"));
    for key in short.into_iter().chain([inode_row(tag::ENTRY, Ino(1))]) {
        repaired("bad-row", |rig| rig.put_raw(key, Some(b"?".to_vec())));
    }
    let id = 77u64.to_be_bytes();
    let orphan = inode_row(tag::ORPHAN, Ino(77));
    for key in [of_plate(SESSION, &id), orphan, of_plate(tag::HISTORY, &id), of_plate(tag::COUNT, b"")] {
        repaired("bad-row", |rig| rig.put_raw(key, Some(b"?".to_vec())));
    }
    repaired("bad-row", |rig| rig.put_raw(StoredRow::References(block(rig, 1), 9).key(), Some(vec![0x80])));
    repaired("bad-row", |rig| rig.put_raw(StoredRow::References(block(rig, 2), 9).key(), Some(vec![0x80])));
    repaired("bad-row", |rig| rig.put_raw(StoredRow::Garbage(block(rig, 1)).key(), Some(vec![1])));
    for mark in [Some(vec![7]), Some(u64::MAX.to_le_bytes().to_vec())] {
        let (key, _) = OwnRow::InodeMark(ShardId(1), 0).encode().expect("a row");
        repaired("bad-row", |rig| rig.put_raw(key, mark));
    }
}

/// A directory `/docs` that carries a policy, its second, and `/other` that carries none any more.
fn with_policies() -> Rig {
    let rig = Rig::populated();
    rig.serve(|server| {
        let s = Hand::new(server);
        let (docs, other) = (rig.find("/docs"), s.dir(Ino::ROOT, "other"));
        for (ino, policy) in [(docs, "posix"), (other, "posix"), (docs, "durability: local")] {
            let (name, value) = (b"chiton.policy".to_vec(), policy.as_bytes().to_vec());
            s.op(Op::SetXattr { ino, name, value, how: XattrHow::Set });
        }
        s.op(Op::RemoveXattr { ino: other, name: b"chiton.policy".to_vec() });
    });
    rig
}

#[test]
fn policies_and_their_history() {
    let carried = |rig: &Rig| {
        let Some(StoredRow::Policy(ino, change)) = rig.get(&inode_row(tag::POLICY, rig.find("/docs"))) else {
            panic!("no policy")
        };
        (ino, change)
    };
    let reported = |rig: &Rig, version: u64| match rig.get(&history_key(version)) {
        Some(StoredRow::PolicyChange(_, change)) => change,
        other => panic!("{other:?}"),
    };
    let good = with_policies();
    assert_eq!(check_content(&good), []);
    assert_eq!((carried(&good).1.version, reported(&good, 4).text), (3, None));
    // Each damage, and the problem that it is; afterwards everything is as before.
    type Damage<'a> = &'a dyn Fn(&Rig);
    let cases: [(&str, Damage<'_>); 9] = [
        ("wrong-policy", &|rig| rig.put_raw(inode_row(tag::POLICY, rig.find("/docs")), None)),
        ("bad-row", &|rig| rig.put_raw(inode_row(tag::POLICY, rig.find("/docs")), Some(vec![1]))),
        // The one before.
        ("wrong-policy", &|rig| rig.put(&StoredRow::Policy(rig.find("/docs"), reported(rig, 1)))),
        // Another directory's.
        ("wrong-policy", &|rig| rig.put(&StoredRow::Policy(rig.find("/docs"), reported(rig, 2)))),
        ("wrong-policy", &|rig| rig.put(&StoredRow::Policy(rig.find("/other"), reported(rig, 2)))),
        // Of an inode that is not a directory, or does not exist.
        ("wrong-policy", &|rig| rig.put(&StoredRow::Policy(rig.find("/docs/big"), reported(rig, 1)))),
        ("wrong-policy", &|rig| rig.put(&StoredRow::Policy(Ino(999_999), reported(rig, 1)))),
        ("wrong-policy-history", &|rig| rig.put_raw(history_key(3), None)),
        ("bad-row", &|rig| rig.put_raw(history_key(3), Some(vec![1]))),
    ];
    let rows = |rig: &Rig| {
        rig.rows()
            .into_iter()
            .filter(|(key, _)| matches!(tag_of(key), Some(tag::POLICY | tag::HISTORY)))
            .collect::<Vec<_>>()
    };
    for (problem, damage) in cases {
        let rig = repaired_rig(problem, good.copy(), damage);
        assert!(rows(&rig) == rows(&good), "{problem}");
    }
    // A row of the history under another number: its content exists elsewhere.
    let rig = repaired_rig("wrong-policy-history", good.copy(), |rig| {
        rig.put(&StoredRow::PolicyChange(9, reported(rig, 2)));
    });
    assert!(rows(&rig) == rows(&good));
}

fn history_key(version: u64) -> Vec<u8> {
    plate_row_key(tag::HISTORY, &version.to_be_bytes())
}
