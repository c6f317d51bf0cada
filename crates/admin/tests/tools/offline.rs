//! fsck on a data directory with or without a server: events that only the journal has count, a check writes
//! nothing, and a second process is refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::rig::{Hand, populate};
use chiton_admin::fsck::{Finding, Offline, Options, Progress, check_online};
use chiton_client::{Client, ClientOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatOptions, Server, ServerOptions, StartError};
use chiton_types::{Ino, PlateId, Time};

fn start(dir: &Path) -> Arc<Server> {
    let world: SharedWorld = Arc::new(RealWorld);
    let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
    Server::start(dir, options, world).expect("starts")
}

fn format(dir: &Path) {
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(dir, &FormatOptions::default(), &world).expect("formats");
}

/// Every file with its content, except the one that names the holder.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().expect("a type").is_dir() {
            all.extend(
                files(&entry.path()).into_iter().map(|(path, bytes)| (format!("{name}/{path}"), bytes)),
            );
        } else if name != "lock" {
            all.insert(name, std::fs::read(entry.path()).expect("reads"));
        }
    }
    all
}

fn check(dir: &Path) -> Vec<Finding> {
    let offline = Offline::open(&DataAddress::from(dir), Arc::new(RealWorld), &mut |_, _| {}).expect("opens");
    let mut found = Vec::new();
    let options = Options { content: true, ..Options::default() };
    offline.check(&options, &mut |f| found.push(f), &mut |_| {}).expect("checks");
    found
}

#[test]
fn events_only_in_the_journal_are_checked_and_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    format(dir.path());
    let server = start(dir.path());
    populate(&server);
    // A crash: everything durable is in the journal, the store is as it was formatted.
    Hand::new(&server).sync();
    server.abandon();
    drop(server);
    let before = files(dir.path());
    assert_eq!(check(dir.path()), []);
    let changed: Vec<_> =
        files(dir.path()).into_iter().filter(|(path, bytes)| before.get(path) != Some(bytes)).collect();
    let theirs = |path: &str| path.starts_with("meta/");
    assert!(changed.iter().all(|(path, _)| theirs(path)), "a check wrote {:?}", changed.iter().map(|c| &c.0));
    // Damage to an object is found, although only the journal refers to it; a repair leaves the same.
    let block = before.keys().find(|path| path.starts_with("objects/blocks/")).expect("a block");
    std::fs::remove_file(dir.path().join(block)).expect("removed");
    let found = check(dir.path());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].problem.name(), "missing-block");
    assert_eq!(found[0].path.as_deref(), Some("/docs/big"));
    let mut offline =
        Offline::open(&DataAddress::from(dir.path()), Arc::new(RealWorld), &mut |_, _| {}).expect("opens");
    let done = offline.repair(&Options::default(), Time(1), &mut |_, _| {}, &mut |_| {}).expect("repairs");
    assert_eq!((done.repaired, done.left), (0, 1));
    drop(offline);
    let server = start(dir.path());
    let names = Hand::new(&server).names(Ino::ROOT);
    assert_eq!(names, ["docs"]);
    server.shutdown().expect("ends");
}

#[test]
fn a_server_excludes_others_and_a_damaged_journal_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    format(dir.path());
    let server = start(dir.path());
    let held = Offline::open(&DataAddress::from(dir.path()), Arc::new(RealWorld), &mut |_, _| {});
    assert!(matches!(held.err(), Some(StartError::Held { .. })));
    populate(&server);
    Hand::new(&server).sync();
    Hand::new(&server).dir(Ino::ROOT, "later");
    Hand::new(&server).sync();
    server.abandon();
    drop(server);
    let journal = dir.path().join("journal");
    let segments = files(&journal);
    let (name, bytes) = segments.iter().next_back().expect("a segment");
    let mut bad = bytes.clone();
    bad[64 + 20] ^= 0x10;
    std::fs::write(journal.join(name), &bad).expect("written");
    let found = check(dir.path());
    assert_eq!(found[0].problem.name(), "journal-damage", "{found:?}");
    let before = files(dir.path());
    let mut offline =
        Offline::open(&DataAddress::from(dir.path()), Arc::new(RealWorld), &mut |_, _| {}).expect("opens");
    let mut reported = Vec::new();
    let report = &mut |f: &Finding, repaired: bool| reported.push((f.problem.name(), repaired));
    let done = offline.repair(&Options::default(), Time(1), report, &mut |_| {}).expect("looks");
    assert_eq!((done.repaired, reported[0]), (0, ("journal-damage", false)));
    drop(offline);
    let journal_of = |files: BTreeMap<String, Vec<u8>>| -> Vec<_> {
        files.into_iter().filter(|(path, _)| path.starts_with("journal/")).collect()
    };
    assert_eq!(journal_of(files(dir.path())), journal_of(before));
}

/// A running server never reads its journal again. A check reports the damage, and nothing is lost by it.
#[test]
fn damage_to_the_journal_of_a_running_server_is_named_and_its_orderly_end_outlives_it() {
    let dir = tempfile::tempdir().expect("a directory");
    format(dir.path());
    let server = start(dir.path());
    let user = Some((0, 0, Vec::new()));
    let client = chiton_embedded::client(&server, ClientOptions { user, ..ClientOptions::default() });
    let client = Arc::new(client.expect("a client"));
    populate(&server);
    let hand = Hand::new(&server);
    for n in 0..3 {
        hand.dir(Ino::ROOT, &format!("dir {n}"));
        hand.sync();
    }
    let look = || {
        let mut found = Vec::new();
        check_online(&client, &Options::default(), &mut |f| found.push(f), &mut |_| {}).expect("checks");
        found.iter().map(|f| f.problem.name()).collect::<Vec<_>>()
    };
    assert_eq!(look(), Vec::<&str>::new());
    let journal = dir.path().join("journal");
    let (name, bytes) = files(&journal).pop_last().expect("a segment");
    let flipped = |bytes: &[u8]| {
        let mut bad = bytes.to_vec();
        bad[64 + 20] ^= 0x10;
        bad[64 + 20]
    };
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(journal.join(&name)).expect("opens");
    file.write_all_at(&[flipped(&bytes)], 64 + 20).expect("writes");
    assert_eq!(look(), ["journal-damage"]);
    let place = chiton_journal::FilePlace::open(&journal).expect("opens");
    let survey = chiton_journal::survey::<chiton_journal::JournalError>(&place, &mut |_| Ok(()), &mut |_| {});
    assert!(!survey.expect("reads").is_whole());
    // The server continues, and its last checkpoint has everything.
    hand.dir(Ino::ROOT, "later");
    drop((hand, client));
    server.shutdown().expect("ends");
    drop(server);
    assert_eq!(check(dir.path()).first().map(|f| f.problem.name()), Some("journal-damage"));
    let data = DataAddress::from(dir.path());
    let offline = chiton_server::Offline::open(&data, PlateId(0), Arc::new(RealWorld)).expect("opens");
    let stored = offline.stored().expect("says");
    chiton_journal::reset(&*offline.place(), offline.identity(), stored.next()).expect("resets");
    drop(offline);
    assert_eq!(check(dir.path()), []);
    let server = start(dir.path());
    assert_eq!(Hand::new(&server).names(Ino::ROOT).len(), 5);
    server.shutdown().expect("ends");
}

#[test]
fn a_file_system_is_checked_while_it_is_served_and_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    format(dir.path());
    let server = start(dir.path());
    populate(&server);
    let user = Some((0, 0, Vec::new()));
    let options = ClientOptions { user, ..ClientOptions::default() };
    let client = Arc::new(chiton_embedded::client(&server, options.clone()).expect("a client"));
    let hand = Hand::new(&server);
    let check = |client: &Arc<Client>| {
        let (mut found, mut n) = (Vec::new(), 0);
        let content = Options { content: true, ..Options::default() };
        // The tree changes during the check; the checked snapshot does not.
        let mut busy = |progress: Progress| {
            if progress.pass == "checkpoints" {
                // The snapshot is not there yet.
                return;
            }
            let made = hand.dir(Ino::ROOT, &format!("busy {n}"));
            let file = hand.file(made, "big", b"");
            hand.write(file, &[(0, 9_000, 100 + n)], 9_000);
            server.checkpoint().expect("a checkpoint");
            n += 1;
        };
        let result = check_online(client, &content, &mut |f| found.push(f), &mut busy);
        result.map(|summary| (summary, found))
    };
    let (summary, found) = check(&client).expect("checks");
    assert_eq!((found, summary.inodes), (vec![], 11));
    // The problem is found there, too.
    let block =
        files(dir.path()).into_keys().find(|path| path.starts_with("objects/blocks/")).expect("a block");
    let path = dir.path().join(block);
    let mut bytes = std::fs::read(&path).expect("reads");
    bytes[500] ^= 1;
    std::fs::write(&path, bytes).expect("writes");
    let mut found = Vec::new();
    let content = Options { content: true, ..Options::default() };
    check_online(&client, &content, &mut |f| found.push(f), &mut |_| {}).expect("checks");
    assert_eq!(found.iter().map(|f| f.problem.name()).collect::<Vec<_>>(), ["corrupt-block"]);
    // Rows contain the content of all users, so other users are refused.
    let user = Some((12345, 1, Vec::new()));
    let other = chiton_embedded::client(&server, ClientOptions { user, ..options });
    let other = Arc::new(other.expect("a client"));
    let error = check_online(&other, &content, &mut |_| {}, &mut |_| {}).expect_err("refused");
    assert!(error.to_string().contains("only root"), "{error}");
    drop((client, other, hand));
    server.shutdown().expect("ends");
    drop(server);
    start(dir.path()).shutdown().expect("the store opens again");
}
