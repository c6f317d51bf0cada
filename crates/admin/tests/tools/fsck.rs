//! Every named inconsistency: made, found, and repaired where fsck says so; and no findings in a healthy file
//! system.

use std::collections::BTreeSet;

use crate::damage::{block, check_content, content, damaged, names, repaired};
use crate::rig::{Hand, Rig, name};
use chiton_admin::fsck::{Finding, Options, Problem, check, findings, repair};
use chiton_engine::OwnRow;
use chiton_metastore::Metastore;
use chiton_model::Op;
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT, Acl, AclEntry, AclTag};
use chiton_namespace::{StoredRow, ino_of, inode_row, tag, tag_of};
use chiton_objects::Objects;
use chiton_types::{BlockId, Ino, Kind, Mode, ShardId, Time};
use proptest::prelude::*;

#[test]
fn an_empty_and_a_used_file_system_are_clean() {
    let rig = Rig::new();
    assert_eq!(check_content(&rig), []);
    let rig = Rig::populated();
    let summary = check(&*rig.meta, &*rig.objects, &content(), &mut |f| panic!("{f}"), &mut |_| {});
    let summary = summary.expect("checks");
    assert_eq!((summary.inodes, summary.directories, summary.entries), (11, 4, 11), "{summary:?}");
    assert_eq!(summary.blocks, 3);
}

#[test]
fn entries() {
    repaired("dangling-entry", |rig| {
        let StoredRow::Entry { dir, kind, position, .. } = rig.entry("/docs/inline") else { panic!() };
        let ino = Ino::new(ShardId(1), 1 << 40);
        rig.put(&StoredRow::Entry { dir, name: name("gone"), ino, kind, position });
    });
    let rig = repaired("wrong-entry-type", |rig| {
        let StoredRow::Entry { dir, name, ino, position, .. } = rig.entry("/docs/inline") else { panic!() };
        rig.put(&StoredRow::Entry { dir, name, ino, kind: Kind::Fifo, position });
    });
    assert!(matches!(rig.entry("/docs/inline"), StoredRow::Entry { kind: Kind::File, .. }));
    repaired("extra-directory-entry", |rig| {
        let StoredRow::Entry { ino, kind, position, .. } = rig.entry("/docs/deep") else { panic!() };
        rig.put(&StoredRow::Entry { dir: Ino::ROOT, name: name("twice"), ino, kind, position });
    });
    damaged("entries-outside-directory", &["entries-outside-directory"], |rig| {
        let StoredRow::Entry { position, .. } = rig.entry("/docs/deep") else { panic!() };
        let (dir, ino) = (rig.find("/docs/empty"), rig.find("/docs/inline"));
        rig.put(&StoredRow::Entry { dir, name: name("in a file"), ino, kind: Kind::File, position });
        rig.edit("/docs/inline", |i| i.nlink = 2);
    });
}

#[test]
fn counts() {
    repaired("wrong-link-count", |rig| rig.edit("/docs/linked", |i| i.nlink = 1));
    repaired("wrong-entry-count", |rig| rig.edit("/docs", |i| i.node.set_entries(100)));
    repaired("wrong-subdirectory-count", |rig| rig.edit("/docs", |i| i.nlink = 2));
    repaired("wrong-inode-count", |rig| rig.put(&StoredRow::InodeCount(3)));
    repaired("wrong-inode-count", |rig| rig.delete(&StoredRow::InodeCount(3)));
    repaired("wrong-parent", |rig| rig.edit("/docs/deep", |i| i.parent = Ino(1)));
    repaired("wrong-parent", |rig| rig.edit("/", |i| i.parent = Ino(77)));
    repaired("wrong-parent", |rig| rig.edit("/docs/linked", |i| i.parent = Ino(1)));
}

#[test]
fn a_removed_tree_that_is_not_freed_yet_is_no_damage() {
    let rig = Rig::populated();
    let (ino, entry) = (rig.find("/docs"), rig.entry("/docs"));
    rig.edit("/docs", |i| i.nlink = 0);
    rig.delete(&entry);
    rig.put(&StoredRow::Orphan(ino));
    rig.edit("/", |i| {
        i.nlink -= 1;
        i.node.set_entries(i.node.entries() - 1);
    });
    assert_eq!(check_content(&rig), []);
}

/// S116: the flags of inodes are kept by `chiton fsck`, whatever it repairs of them.
#[test]
fn repairs_keep_immutable_and_append_only() {
    let set = |rig: &Rig| {
        rig.edit("/docs/linked", |i| i.immutable = true);
        rig.edit("/docs/big", |i| i.append_only = true);
        rig.edit("/docs/deep", |i| (i.immutable, i.append_only) = (true, true));
    };
    let rig = repaired("wrong-link-count", |rig| {
        set(rig);
        rig.edit("/docs/linked", |i| i.nlink = 7);
        rig.edit("/docs/big", |i| (i.parent, i.xattrs) = (Ino(77), false));
        rig.edit("/docs/deep", |i| (i.nlink, i.parent) = (9, Ino(77)));
    });
    let flags_of = |path: &str| match rig.get(&inode_row(tag::INODE, rig.find(path))) {
        Some(StoredRow::Inode(i)) => (i.immutable, i.append_only),
        other => panic!("{path}: {other:?}"),
    };
    assert_eq!(flags_of("/docs/linked"), (true, false));
    assert_eq!(flags_of("/docs/big"), (false, true));
    assert_eq!(flags_of("/docs/deep"), (true, true));
    assert_eq!(flags_of("/docs/inline"), (false, false));
}

#[test]
fn an_unnamed_inode_gets_a_name_in_lost_and_found() {
    let rig = Rig::populated();
    let (file, dir) = (rig.find("/docs/inline"), rig.find("/docs/deep"));
    let rig = repaired("orphan", |rig| rig.delete(&rig.entry("/docs/inline")));
    assert_eq!(rig.find(&format!("/lost+found/#{file}")), file);
    let rig = repaired("unreachable-directory", |rig| rig.delete(&rig.entry("/docs/deep")));
    assert_eq!(rig.find(&format!("/lost+found/#{dir}")), dir);
    assert!(rig.find(&format!("/lost+found/#{dir}/second name")) > Ino(1));
}

#[test]
fn directory_loops_are_broken() {
    for (from, to) in [("/docs/deep", "/docs/deep/deeper"), ("/docs/deep", "/docs/deep")] {
        let rig = repaired("directory-loop", |rig| {
            let StoredRow::Entry { name, ino, kind, position, .. } = rig.entry(from) else { panic!() };
            rig.delete(&rig.entry(from));
            let inner = if to == from { ino } else { deeper(rig, ino) };
            rig.put(&StoredRow::Entry { dir: inner, name, ino, kind, position });
            let key = inode_row(tag::INODE, ino);
            let Some(StoredRow::Inode(mut inode)) = rig.get(&key) else { panic!() };
            inode.parent = inner;
            rig.put(&StoredRow::Inode(inode));
        });
        assert!(rig.find("/lost+found") > Ino(1));
    }
}

fn deeper(rig: &Rig, dir: Ino) -> Ino {
    match rig.get(&chiton_namespace::entry_row_key(dir, &name("deeper"))) {
        Some(StoredRow::Entry { ino, .. }) => ino,
        other => panic!("{other:?}"),
    }
}

fn access_control_lists() {
    let entry = |tag, rights| AclEntry { tag, rights };
    let (owner, user) = (entry(AclTag::Owner, 6), entry(AclTag::User(5), 7));
    let rest = [AclTag::OwningGroup, AclTag::Mask, AclTag::Other].map(|tag| entry(tag, 4));
    let list = Acl::new([vec![owner, user], rest.to_vec()].concat()).expect("a list");
    let (list, default) = (list.stored().encode(), list.encode());
    let gives = |rig: &Rig, path: &str, name: &[u8], value: &[u8]| {
        rig.put(&StoredRow::Xattrs(rig.find(path), [(name.to_vec(), value.to_vec())].into()));
    };
    // A list that the inode does not know of, and one that it knows of and that is not there.
    repaired("wrong-lists", |rig| {
        gives(rig, "/docs/empty", ACL_ACCESS, &list);
        rig.edit("/docs/empty", |i| i.xattrs = true);
    });
    repaired("wrong-lists", |rig| rig.edit("/docs", |i| i.default_list = true));
    let rig = repaired("bad-list", |rig| {
        gives(rig, "/docs/empty", ACL_ACCESS, b"no list");
        rig.edit("/docs/empty", |i| (i.xattrs, i.access_list, i.mode) = (true, true, Mode(0o674)));
    });
    rig.edit("/docs/empty", |i| {
        assert_eq!((i.xattrs, i.access_list, i.mode), (false, false, Mode(0o604)));
    });
    repaired("bad-list", |rig| {
        gives(rig, "/docs/empty", ACL_DEFAULT, &default);
        rig.edit("/docs/empty", |i| (i.xattrs, i.default_list) = (true, true));
    });
}

#[test]
fn content_and_attributes() {
    damaged("missing-content", &["missing-content"], |rig| {
        rig.delete(&StoredRow::Content(rig.find("/docs/inline"), Vec::new()));
    });
    damaged("stray-row", &["stray-row"], |rig| {
        rig.put(&StoredRow::Content(rig.find("/docs/empty"), b"from nowhere".to_vec()));
    });
    repaired("stray-row", |rig| rig.edit("/docs/big", |i| i.xattrs = false));
    repaired("missing-content", |rig| rig.edit("/docs/empty", |i| i.xattrs = true));
    access_control_lists();
    repaired("size-without-blocks", |rig| rig.edit("/docs/empty", |i| i.node.set_bytes(5)));
    repaired("wrong-allocation", |rig| rig.edit("/docs/big", |i| i.node.set_bytes(5)));
    let rig = repaired("content-past-end", |rig| rig.edit("/docs/big", |i| i.node.set_size(10)));
    rig.edit("/docs/big", |i| assert_eq!(i.node.size(), 250_000));
    repaired("wrong-orphan-row", |rig| rig.put(&StoredRow::Orphan(rig.find("/docs/big"))));
    repaired("wrong-orphan-row", |rig| rig.put(&StoredRow::Orphan(Ino(999_999))));
}

#[test]
fn blocks() {
    damaged("missing-block", &["missing-block"], |rig| {
        rig.objects.delete(&block(rig, 1).key()).expect("deletes");
    });
    damaged("corrupt-block", &["corrupt-block"], |rig| {
        let key = block(rig, 2).key();
        let mut bytes = rig.objects.get(&key, None).expect("reads");
        bytes[40_000] ^= 1;
        rig.objects.put(&key, &bytes).expect("puts");
    });
    damaged("corrupt-block", &["corrupt-block"], |rig| {
        rig.objects.put(&block(rig, 2).key(), b"short").expect("puts");
    });
    let unknown = BlockId { writer: 1 << 50, number: 1 };
    let rig = repaired("leaked-block", |rig| rig.objects.put(&unknown.key(), &[0; 21]).expect("puts"));
    // The server, to which repair handed it, deleted it.
    rig.serve(|server| server.checkpoint().expect("a checkpoint"));
    let left = rig.objects.size(&unknown.key());
    assert!(left.is_err_and(|e| e.is_not_found()));
    repaired("garbage-in-use", |rig| rig.put(&StoredRow::Garbage(block(rig, 1))));
    repaired("wrong-reference-count", |rig| rig.put(&StoredRow::References(block(rig, 1), 9)));
    repaired("wrong-reference-count", |rig| rig.delete(&StoredRow::References(block(rig, 1), 0)));
    repaired("unshared-extent", |rig| {
        let key = StoredRow::Chunk(rig.find("/docs/big"), 0, Default::default()).key();
        let value = rig.meta.get(&key).expect("reads").expect("a row");
        // The flags of its first extent: offset 0 (1 byte), length 100,000 (3 bytes), flags.
        let mut bad = value.clone();
        assert_eq!(bad[5], 1, "shared");
        bad[5] = 0;
        rig.put_raw(key, Some(bad));
    });
}

#[test]
fn a_block_of_a_session_that_is_over_is_leaked_only_when_its_sweep_is_over() {
    let rig = Rig::populated();
    let stray = BlockId { number: 77, ..block(&rig, 1) };
    rig.objects.put(&stray.key(), &[0; 21]).expect("puts");
    // Its writer's blocks were swept before it appeared, as the row shows.
    let swept = OwnRow::Swept(stray.writer).encode().expect("a row");
    let was_swept = rig.meta.get(&swept.0).expect("reads").is_some();
    rig.put_raw(swept.0.clone(), None);
    let mut reported = Vec::new();
    let summary =
        check(&*rig.meta, &*rig.objects, &content(), &mut |f| reported.push(f), &mut |_| {}).expect("checks");
    assert_eq!((reported.len(), summary.blocks_to_sweep), (0, 1), "swept before: {was_swept}; {reported:?}");
    rig.put_raw(swept.0, Some(swept.1));
    assert_eq!(names(&check_content(&rig)), BTreeSet::from(["leaked-block"]));
}

#[test]
fn counters() {
    for shard in 0..4 {
        repaired("low-inode-counter", |rig| {
            let (key, _) = OwnRow::InodeMark(ShardId(shard), 0).encode().expect("a row");
            rig.put_raw(key, Some(0u64.to_le_bytes().to_vec()));
        });
    }
    // A low counter, and lost+found is to be made: it must not get a number in use.
    let rig = repaired("low-inode-counter", |rig| {
        let (key, _) = OwnRow::InodeMark(ShardId(0), 0).encode().expect("a row");
        rig.put_raw(key, Some(1u64.to_le_bytes().to_vec()));
        rig.delete(&rig.entry("/docs/inline"));
    });
    assert!(rig.find("/lost+found") > Ino(1));
}

#[test]
fn no_blocks_are_given_up_when_a_map_cannot_be_read() {
    let rig = damaged("bad-row", &["bad-row"], |rig| {
        let key = StoredRow::Chunk(rig.find("/docs/big"), 0, Default::default()).key();
        rig.put_raw(key, Some(vec![9]));
        rig.put_raw(OwnRow::Swept(block(rig, 2).writer).encode().expect("a row").0, Some(Vec::new()));
    });
    let garbage = rig.rows().into_iter().filter(|(key, _)| tag_of(key) == Some(tag::GARBAGE)).count();
    assert_eq!(garbage, 0);
}

#[test]
fn a_tree_far_larger_than_the_memory_for_sorting() {
    let rig = Rig::new();
    rig.serve(|server| {
        let s = Hand::new(server);
        let mut dirs = vec![Ino::ROOT];
        for n in 0..300 {
            let parent = dirs[(n * 7919) % dirs.len()];
            let dir = s.dir(parent, &format!("dir {n}"));
            dirs.push(dir);
            for f in 0..20 {
                let file = s.file(dir, &format!("file {f}"), &vec![1; f * 10]);
                if f == 7 {
                    s.op(Op::Link { ino: file, parent, name: name(&format!("link {n}")) });
                }
            }
        }
        let chain = (0..70).fold(Ino::ROOT, |at, n| s.dir(at, &format!("level {n}")));
        let file = s.file(chain, "file", b"");
        for n in 0..200u64 {
            s.write(file, &[(n * 1_000, 500, n + 1)], 1 << 20);
        }
    });
    // 6,000 names of 25 bytes, and 16 of them in memory at a time.
    let options = Options { memory_bytes: 12 * 25 * 16, content: true, ..Options::default() };
    let mut passes = BTreeSet::new();
    let summary = check(&*rig.meta, &*rig.objects, &options, &mut |f| panic!("{f}"), &mut |p| {
        assert!(p.done <= p.total);
        passes.insert(p.pass);
    });
    assert_eq!(summary.expect("checks").inodes, 1 + 300 * 21 + 71);
    // The same findings with any amount of memory.
    rig.delete(&rig.entry("/level 0/level 1"));
    rig.edit("/dir 0", |i| i.nlink = 1);
    let mut small = Vec::new();
    check(&*rig.meta, &*rig.objects, &options, &mut |f| small.push(f), &mut |_| {}).expect("checks");
    assert_eq!(small, findings(&*rig.meta, &*rig.objects).expect("checks"));
    assert!(names(&small).contains("unreachable-directory"));
    assert!(small.iter().any(|f| f.path.as_deref() == Some("/dir 0")), "{small:?}");
}

#[test]
fn a_list_of_directories_beside_an_inode_that_cannot_be_read_either_goes() {
    let rig = POPULATED.with(Rig::copy);
    let mut spoiled = 0;
    for (key, mut value) in rig.rows() {
        let (kind, of) = (tag_of(&key), ino_of(&key));
        let is_list = |(k, _): &(Vec<u8>, Vec<u8>)| tag_of(k) == Some(tag::LINKED) && ino_of(k) == of;
        let has_list = kind == Some(tag::INODE) && rig.rows().iter().any(is_list);
        if has_list || kind == Some(tag::LINKED) {
            value.push(1);
            rig.put_raw(key, Some(value));
            spoiled += 1;
        }
    }
    assert!(spoiled >= 2);
    repair(&*rig.meta, &*rig.objects, &content(), Time(7), &mut |_, _| {}, &mut |_| {}).expect("repairs");
    let after = check_content(&rig);
    assert!(after.iter().all(|f| f.problem.remedy().is_none()), "{after:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes in a row: no panic, and either a finding, or a row with the same meaning.
    #[test]
    fn flipped_bytes_never_panic_and_repair_ends(
        flips in proptest::collection::vec((any::<u32>(), any::<u32>(), 1..=255u8), 1..4),
        cut in any::<bool>(),
    ) {
        let rig = POPULATED.with(Rig::copy);
        let rows = rig.rows();
        for (row, byte, with) in flips {
            let (key, mut value) = rows[row as usize % rows.len()].clone();
            if value.is_empty() || cut && byte % 3 == 0 {
                value.push(with);
            } else if cut && byte % 3 == 1 {
                value.pop();
            } else {
                let at = byte as usize % value.len();
                value[at] ^= with;
            }
            rig.put_raw(key, Some(value));
        }
        check_content(&rig);
        let done = repair(&*rig.meta, &*rig.objects, &content(), Time(7), &mut |_, _| {}, &mut |_| {});
        done.expect("repairs");
        let after = check_content(&rig);
        prop_assert!(after.iter().all(|f| f.problem.remedy().is_none()), "{:?}", after);
    }
}

thread_local! {
    static POPULATED: Rig = Rig::populated();
}

#[test]
fn problems_have_names_for_machines() {
    let problem = Problem::JournalDamage { cause: "torn".to_owned() };
    let finding = Finding { problem, path: None, plate: None };
    let json = finding.to_json();
    assert_eq!(json["problem"], "journal-damage");
    assert!(json["advice"].as_str().is_some_and(|a| !a.is_empty()));
}
