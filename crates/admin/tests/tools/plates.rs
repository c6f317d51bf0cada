//! fsck on a file system with several plates that nobody serves: its rows are looked at together.

use std::path::Path;
use std::sync::Arc;

use chiton_admin::fsck::{CheckError, Finding, Offline, Options, Summary, rebuild};
use chiton_metastore::Batch;
use chiton_model::{Make, Op, PolicyChange, XattrHow};
use chiton_namespace::{StoredRow, inode_row, tag};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatOptions, Server, ServerOptions, StartError};
use chiton_types::{Cred, Ino, Mode, Name, PlateId, Position, Time};
use chiton_wire::{Answer, Call, Query};

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

fn start(dir: &Path) -> Arc<Server> {
    let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
    Server::start(dir, options, world()).expect("starts")
}

fn ask(server: &Server, plate: PlateId, call: Call) -> Answer {
    let s = server.session_embedded_at(plate, "test", Box::new(|_| {})).expect("a session");
    s.ask(&Cred::ROOT, call).expect("answered")
}

fn make(server: &Server, parent: Ino, name: &str, make: Make) -> Ino {
    let name = Name::try_from(name).expect("a name");
    let plate = server.plates().of(parent).expect("a plate");
    let op = Op::Make { parent, name, make, mode: Mode(0o755) };
    match ask(server, plate, Call::Op { op, open: false }) {
        Answer::Op { outcome, .. } => outcome.attr.expect("made").ino,
        other => panic!("{other:?}"),
    }
}

/// A file system with three plates; a directory with a file on each of them.
fn populated(dir: &Path) -> (Arc<Server>, Vec<Ino>) {
    let options = FormatOptions { shards: 6, plates: 3, ..FormatOptions::default() };
    Server::format(dir, &options, &world()).expect("formats");
    let server = start(dir);
    let mut dirs = vec![None; 3];
    for made in lend(&server, "dir") {
        make(&server, made, "f", Make::File { content: b"some".to_vec() });
        dirs[usize::from(server.plates().of(made).expect("a plate").0)].get_or_insert(made);
    }
    (server, dirs.into_iter().flatten().collect())
}

/// Makes so many directories that plates have lent each other numbers of all shards.
fn lend(server: &Server, prefix: &str) -> Vec<Ino> {
    (0..40).map(|n| make(server, Ino::ROOT, &format!("{prefix}{n}"), Make::Dir)).collect()
}

fn open(dir: &Path) -> Offline {
    Offline::open(&DataAddress::from(dir), world(), &mut |_, _| {}).expect("opens")
}

fn check(dir: &Path) -> (Result<Summary, CheckError>, Vec<Finding>) {
    let mut found = Vec::new();
    let options = Options { content: true, ..Options::default() };
    let summary = open(dir).check(&options, &mut |f| found.push(f), &mut |_| {});
    (summary, found)
}

#[test]
fn entries_and_directories_of_several_plates_fit_each_other() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (server, dirs) = populated(tmp.path());
    server.shutdown().expect("ends in order");
    let (summary, found) = check(tmp.path());
    assert_eq!(found, []);
    let summary = summary.expect("checked");
    // The root, the directories, and a file in each.
    assert_eq!(summary.inodes, 2 * summary.directories - 1);
    assert!(summary.directories > 3);
    // The row of a directory that another plate names is lost.
    let (key, lost) = (inode_row(tag::INODE, dirs[1]), dirs[1]);
    let plate = chiton_server::Offline::open(&tmp.path().into(), PlateId(1), world()).expect("opens");
    assert!(plate.meta().get(&key).expect("read").is_some(), "it is in the store of its plate");
    plate.meta().commit(&Batch::from_iter([(key, None::<Vec<u8>>)])).expect("committed");
    drop(plate);
    let names: Vec<_> = check(tmp.path()).1.iter().map(|f| (f.problem.name(), f.problem.ino())).collect();
    assert!(names.contains(&("lost-inode", Some(lost))), "{names:?}");
}

#[test]
fn a_directory_with_two_names_on_different_plates_is_found() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (server, dirs) = populated(tmp.path());
    server.shutdown().expect("ends in order");
    let entry_of =
        |dir: Ino, name: &str| chiton_namespace::entry_row_key(dir, &Name::try_from(name).expect("a name"));
    let open =
        |plate| chiton_server::Offline::open(&tmp.path().into(), PlateId(plate), world()).expect("opens");
    // An entry of the root, in the store of plate 0, for a directory of plate 1.
    let zero = open(0);
    let (start, end) = chiton_namespace::rows_with_tag(Ino::ROOT.shard(), tag::ENTRY);
    let rows = zero.meta().scan(std::ops::Bound::Included(&start), Some(&end), 1000).expect("scanned");
    let (_, value) = rows
        .into_iter()
        .find(|(key, value)| {
            let row = chiton_namespace::StoredRow::decode(key, value).expect("decodes");
            matches!(row, Some(chiton_namespace::StoredRow::Entry { ino, .. }) if ino == dirs[1])
        })
        .expect("its entry");
    drop(zero);
    let two = open(2);
    two.meta().commit(&Batch::from_iter([(entry_of(dirs[2], "twin"), Some(value))])).expect("committed");
    drop(two);
    let names: Vec<_> = check(tmp.path()).1.iter().map(|f| f.problem.name()).collect();
    assert!(names.contains(&"extra-directory-entry"), "{names:?}");
}

#[test]
fn a_plate_whose_policies_differ_is_found() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (server, dirs) = populated(tmp.path());
    let (name, value) = (b"chiton.policy".to_vec(), b"data: lazy".to_vec());
    let op = Op::SetXattr { ino: dirs[1], name, value, how: XattrHow::Set };
    ask(&server, PlateId(1), Call::Op { op, open: false });
    server.shutdown().expect("ends in order");
    assert_eq!(check(tmp.path()).1, []);
    let policy = inode_row(tag::POLICY, dirs[1]);
    let history = chiton_namespace::plate_row_key(tag::HISTORY, &1u64.to_be_bytes());
    let words = [
        format!("has another policy of directory {} than", dirs[1]),
        "does not have change 1 in its history of policies as plate 0 has it".to_owned(),
    ];
    for plate in [0, 2] {
        for (key, words) in [&policy, &history].into_iter().zip(&words) {
            // History is compared with that of plate 0.
            if plate == 0 && *key == history {
                continue;
            }
            let open =
                || chiton_server::Offline::open(&tmp.path().into(), PlateId(plate), world()).expect("opens");
            let before = open().meta().get(key).expect("read").expect("every plate has it");
            let changed = PolicyChange { uid: 99, ..PolicyChange::decode(&before).expect("decodes") };
            let changed = StoredRow::Policy(changed.ino, changed).value();
            for value in [None, Some(changed)] {
                open().meta().commit(&Batch::from_iter([(key.clone(), value)])).expect("committed");
                let (summary, found) = check(tmp.path());
                let kind = if *key == policy { "stale-policy" } else { "stale-policy-history" };
                let found: Vec<_> = found.iter().filter(|f| f.problem.name() == kind).collect();
                assert_eq!((found.len(), summary.expect("checked").findings), (1, 1), "{found:?}");
                let said = found[0].to_string();
                assert!(said.contains(&format!("plate {plate} {words}")), "{said}");
            }
            open().meta().commit(&Batch::from_iter([(key.clone(), Some(before))])).expect("committed");
            assert_eq!(check(tmp.path()).1, []);
        }
    }
}

#[test]
fn changes_that_another_plate_has_still_to_carry_out_are_no_damage() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (server, _) = populated(tmp.path());
    server.crash_plate(PlateId(1));
    for n in 0..20 {
        make(&server, Ino::ROOT, &format!("more{n}"), Make::Dir);
    }
    ask(&server, PlateId(0), Call::Commit { upto: Position(0) });
    server.abandon();
    drop(server);
    let (summary, found) = check(tmp.path());
    assert_eq!(found, []);
    // Directories of plate 1 are counted, although only plate 0 knows of them.
    let directories = summary.expect("checked").directories;
    assert!(directories > 50, "{directories}");
    assert_eq!(check(tmp.path()).1, [], "a check has changed nothing");
    start(tmp.path()).shutdown().expect("ends in order");
    let (summary, found) = check(tmp.path());
    assert_eq!((found, summary.expect("checked").directories), (Vec::new(), directories));
}

#[test]
fn a_repair_carries_out_what_plates_owe_each_other() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (server, dirs) = populated(tmp.path());
    // So that no journal has the rows any more.
    server.shutdown().expect("ends in order");
    let server = start(tmp.path());
    lend(&server, "again");
    server.crash_plate(PlateId(1));
    let born: Vec<Ino> = (0..20).map(|n| make(&server, Ino::ROOT, &format!("more{n}"), Make::Dir)).collect();
    ask(&server, PlateId(0), Call::Commit { upto: Position(0) });
    server.abandon();
    drop(server);
    // A directory that lies on plate 2, and is named on plate 0.
    let key = inode_row(tag::INODE, dirs[2]);
    let plate = chiton_server::Offline::open(&tmp.path().into(), PlateId(2), world()).expect("opens");
    plate.meta().commit(&Batch::from_iter([(key, None::<Vec<u8>>)])).expect("committed");
    drop(plate);
    let found = check(tmp.path()).1;
    assert!(found.iter().any(|f| f.problem.ino() == Some(dirs[2])), "{found:?}");
    assert!(found.iter().all(|f| f.problem.ino().is_none_or(|ino| !born.contains(&ino))), "{found:?}");
    repair(tmp.path(), &mut |_, _| {});
    assert_eq!(check(tmp.path()).1, []);
    let server = start(tmp.path());
    for dir in born {
        make(&server, dir, "works", Make::File { content: b"some".to_vec() });
    }
    make(&server, dirs[2], "works", Make::File { content: b"some".to_vec() });
    server.shutdown().expect("ends in order");
    assert_eq!(check(tmp.path()).1, []);
}

fn repair(dir: &Path, report: &mut dyn FnMut(&Finding, bool)) {
    let done = open(dir).repair(&Options::default(), Time(7), report, &mut |_| {}).expect("repairs");
    assert_eq!(done.left, 0);
}

#[test]
fn what_changes_rows_is_refused_with_several_plates() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (server, _) = populated(tmp.path());
    server.shutdown().expect("ends in order");
    let data = DataAddress::from(tmp.path());
    let refused = |result: Result<(), StartError>| {
        let error = result.expect_err("refused").to_string();
        assert!(error.contains("has 3 plates"), "{error}");
    };
    refused(rebuild(&data, &RealWorld).map(drop));
    refused(chiton_admin::salvage::serve(&data, ServerOptions::default(), world()).map(drop));
}

/// S144. A part that nothing lists, and a list with a part that there is not.
#[test]
fn a_directory_fits_its_parts() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (server, dirs) = populated(tmp.path());
    let top = dirs[0];
    let policy = Op::SetXattr {
        ino: top,
        name: b"chiton.policy".to_vec(),
        value: b"huge: always".to_vec(),
        how: XattrHow::Set,
    };
    ask(&server, PlateId(0), Call::Op { op: policy, open: false });
    let home = make(&server, top, "huge", Make::Dir);
    server.shutdown().expect("ends in order");
    assert_eq!(check(tmp.path()).1, []);
    let stores = |plate: u16| {
        chiton_server::Offline::open(&tmp.path().into(), PlateId(plate), world()).expect("opens")
    };
    let plates = chiton_types::Plates::new(6, 3).expect("plates");
    let at_home = stores(plates.of(home).expect("a plate").0);
    let key = inode_row(tag::CONTENT, home);
    let list = at_home.meta().get(&key).expect("read").expect("the list");
    let parts = chiton_model::decode_parts(&list).expect("a list");
    let part = parts.iter().find(|part| part.ino != home).expect("another part").ino;
    let without: Vec<_> = parts.iter().copied().filter(|other| other.ino != part).collect();
    let (full, short) = (list, chiton_model::encode_parts(&without));
    at_home.meta().commit(&Batch::from_iter([(key.clone(), Some(short))])).expect("committed");
    drop(at_home);
    let names = |found: Vec<Finding>| -> Vec<_> {
        found.iter().map(|f| (f.problem.name(), f.problem.ino())).collect()
    };
    assert_eq!(names(check(tmp.path()).1), [("unreachable-directory", Some(part))]);
    let at_home = stores(plates.of(home).expect("a plate").0);
    at_home.meta().commit(&Batch::from_iter([(key, Some(full))])).expect("committed");
    drop(at_home);
    let at_part = stores(plates.of(part).expect("a plate").0);
    let rows = [inode_row(tag::INODE, part), inode_row(tag::CONTENT, part)].map(|key| (key, None::<Vec<u8>>));
    at_part.meta().commit(&Batch::from_iter(rows)).expect("committed");
    drop(at_part);
    let found = names(check(tmp.path()).1);
    assert!(found.contains(&("missing-part", Some(home))), "{found:?}");
}

/// S144, also while it is folded: three plates take two steps, and the folded parts end with another.
#[test]
fn a_split_directory_is_whole() {
    (0..5).for_each(check_split_and_folded);
}

fn check_split_and_folded(folds: usize) {
    let tmp = tempfile::tempdir().expect("a directory");
    split_and_folded(tmp.path(), folds);
    assert_eq!(check(tmp.path()).1, [], "after {folds} steps");
}

/// Each plate frees its part of a removed directory when it gets to it: the home may be gone while files still have names in the parts.
#[test]
fn files_whose_directory_is_freed_before_its_parts_have_the_right_parents() {
    let tmp = tempfile::tempdir().expect("a directory");
    let home = split_and_folded(tmp.path(), 0);
    let plate = chiton_types::Plates::new(6, 3).expect("plates").of(home).expect("a plate");
    let at_home = chiton_server::Offline::open(&tmp.path().into(), plate, world()).expect("opens");
    let rows = [inode_row(tag::INODE, home), inode_row(tag::CONTENT, home)].map(|key| (key, None::<Vec<u8>>));
    at_home.meta().commit(&Batch::from_iter(rows)).expect("committed");
    drop(at_home);
    let found: Vec<_> = check(tmp.path()).1.iter().map(|f| f.problem.name()).collect();
    assert!(!found.is_empty(), "the home itself is missing");
    assert!(!found.contains(&"wrong-parent") && !found.contains(&"wrong-hard-links"), "{found:?}");
}

/// A directory of files and directories that was split, and folded in so many steps.
fn split_and_folded(dir: &Path, folds: usize) -> Ino {
    let (server, dirs) = populated(dir);
    let dir = make(&server, dirs[0], "split", Make::Dir);
    let mut files = Vec::new();
    for n in 0..40 {
        files.push(make(&server, dir, &format!("f{n}"), Make::File { content: Vec::new() }));
        if n < 4 {
            make(&server, dir, &format!("d{n}"), Make::Dir);
        }
    }
    let plate_of = |ino: Ino| server.plates().of(ino).expect("a plate");
    let link = |ino: Ino, parent: Ino, name: Name| {
        let op = Op::Link { ino, parent, name };
        ask(&server, plate_of(parent), Call::Op { op, open: false });
    };
    link(files[39], dir, Name::try_from("before").expect("a name"));
    ask(&server, plate_of(dir), Call::Op { op: Op::Split { dir }, open: false });
    let Answer::Bytes(list) = ask(&server, plate_of(dir), Call::Query(Query::Parts { dir })) else {
        panic!("no list");
    };
    let parts = chiton_model::decode_parts(&list).expect("a list");
    // Files keep the home as the directory of their first name, and the part of the second may come before that of the first.
    for (n, ino) in files[..20].iter().enumerate() {
        let name = Name::try_from(format!("l{n}").as_str()).expect("a name");
        link(*ino, chiton_model::part_of(&parts, name.hash64()).expect("a part"), name);
    }
    for _ in 0..folds {
        ask(&server, plate_of(dir), Call::Op { op: Op::Fold { dir }, open: false });
    }
    server.shutdown().expect("ends in order");
    dir
}
