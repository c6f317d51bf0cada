//! The copy of a file system to the storage of a cluster: whole, repeatable at every step, and able to go on.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use chiton_admin::fsck::{Finding, Offline, Options};
use chiton_admin::growth::{self, Grown, examine, grow};
use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{AtRest, Became, DataAddress, FormatOptions, GrowthTarget, Server, ServerOptions};
use chiton_types::Ino;

const DIRS: usize = 16;
/// In blocks, not in the inode's rows.
const BYTES: usize = 300_000;

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

fn options() -> ServerOptions {
    ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() }
}

fn client(server: &Arc<Server>) -> Client {
    chiton_embedded::client(
        server,
        ClientOptions { user: Some((0, 0, Vec::new())), ..ClientOptions::default() },
    )
    .expect("a client")
}

fn content(n: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ n as u8).collect()
}

fn clone(client: &Client, from: &str, to: &str) -> bool {
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    client.create_file(to, b"").expect("made");
    let (from, to) =
        (client.open_path(from, read).expect("opened"), client.open_path(to, write).expect("opened"));
    let copied = client.copy_range(&client.caller(), from, 0, to, 0, BYTES as u64);
    for fh in [from, to] {
        client.release(fh).expect("released");
    }
    copied.is_ok()
}

/// Directories on all shards with a file each, and clones of the first file. All inode numbers that were given out.
fn populate(dir: &Path, plates: u16) -> BTreeSet<Ino> {
    let format = FormatOptions { shards: 12, plates, ..FormatOptions::default() };
    Server::format(dir, &format, &world()).expect("formats");
    let server = Server::start(dir, options(), world()).expect("starts");
    let client = client(&server);
    let mut used = BTreeSet::new();
    for n in 0..DIRS {
        used.insert(client.mkdir_all(format!("/d{n}")).expect("made").ino);
        used.insert(client.create_file(format!("/d{n}/file"), &content(n)).expect("made").ino);
        used.insert(client.create_file(format!("/d{n}/gone"), &content(n)).expect("made").ino);
        client.remove(format!("/d{n}/gone")).expect("removed");
        // Between plates there are none.
        if plates == 1 {
            assert!(clone(&client, "/d0/file", &format!("/d{n}/clone")));
        }
    }
    drop(client);
    server.shutdown().expect("ends");
    used
}

fn source(dir: &Path) -> Offline {
    Offline::open_to_grow(&dir.into(), false, world(), &mut |_, _| {}).expect("opens")
}

fn target(dir: &Path, source: &Offline) -> GrowthTarget {
    GrowthTarget::begin(&dir.into(), source.info(), 5, "etcd://nowhere", &RealWorld).expect("begins")
}

/// Grows, and makes the copy the storage of a cluster.
fn grown(from: &Path, to: &Path) -> Grown {
    let source = source(from);
    assert_eq!(examine(&source).expect("examined").obstacles, [""; 0]);
    let target = target(to, &source);
    let done = grow(&source, &target, &growth::Options::default(), &mut |_| {}).expect("grows");
    target.finish().expect("finishes");
    done
}

fn at_rest() -> AtRest {
    AtRest::new(|| Ok(()))
}

fn check_clean(dir: &Path) -> chiton_admin::fsck::Summary {
    let mut found: Vec<Finding> = Vec::new();
    let offline = Offline::open_at_rest(&dir.into(), Some(&at_rest()), world(), &mut |_, _| {});
    let options = Options { content: true, ..Options::default() };
    let summary = offline.expect("opens").check(&options, &mut |f| found.push(f), &mut |_| {});
    let summary = summary.expect("checks");
    assert_eq!(found, []);
    summary
}

/// Uses the copy as a cluster would: reads all, gives out new numbers, changes what is shared, removes all.
fn go_on(dir: &Path, used: &BTreeSet<Ino>, has_clones: bool) {
    let data = DataAddress::from(dir);
    let server = Server::start_at_rest(&data, &at_rest(), options(), world()).expect("starts");
    assert_eq!(server.plates().count(), 5);
    let client = client(&server);
    for n in 0..DIRS {
        let file = format!("/d{n}/file");
        assert!(client.read_file(&file).expect("read") == content(n), "{file}");
        assert!(used.contains(&client.stat(&file).expect("read").ino), "{file} has another inode");
        let new = client.create_file(format!("/d{n}/new"), &content(n + 100)).expect("made").ino;
        assert!(!used.contains(&new), "{new:?} was used before");
        if has_clones {
            let cloned = format!("/d{n}/clone");
            assert!(client.read_file(&cloned).expect("read") == content(0), "{cloned}");
            assert!(clone(&client, &cloned, &format!("/d{n}/clone of it")));
            client.remove(&cloned).expect("removed");
            assert!(client.read_file(format!("/d{n}/clone of it")).expect("read") == content(0));
        }
    }
    for n in 0..DIRS {
        assert!(client.read_file(format!("/d{n}/file")).expect("read") == content(n));
        for entry in client.list(format!("/d{n}")).expect("listed") {
            let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
            client.remove(format!("/d{n}/{name}")).expect("removed");
        }
        client.remove(format!("/d{n}")).expect("removed");
    }
    drop(client);
    server.tidy().expect("tidies");
    server.shutdown().expect("ends");
    let summary = check_clean(dir);
    assert_eq!((summary.inodes, summary.entries, summary.blocks), (1, 0, 0), "{summary:?}");
}

#[test]
fn shared_blocks_are_parted_between_plates_and_the_copy_goes_on() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (from, to) = (tmp.path().join("from"), tmp.path().join("to"));
    let used = populate(&from, 1);
    let done = grown(&from, &to);
    assert!(done.parted > 0, "{done:?}");
    assert_eq!(check_clean(&to).entries, 3 * DIRS as u64);
    go_on(&to, &used, true);
}

#[test]
fn a_file_system_with_several_plates_gets_others() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (from, to) = (tmp.path().join("from"), tmp.path().join("to"));
    let used = populate(&from, 3);
    assert_eq!(grown(&from, &to).parted, 0);
    go_on(&to, &used, false);
}

#[test]
fn a_copy_is_repeated_after_an_end_at_any_step_and_continues() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (from, to) = (tmp.path().join("from"), tmp.path().join("to"));
    let used = populate(&from, 1);
    let passes = [
        "checking the file system",
        "reading the maps",
        "copying blocks",
        "copying rows",
        "comparing rows",
        "checking the copy",
    ];
    for pass in passes {
        // From the second step of the pass on there is something half done.
        let mut seen = 0;
        let mut end = |p: chiton_admin::fsck::Progress| {
            seen += u64::from(p.pass == pass);
            assert!(p.pass != pass || seen < 2 && p.done < p.total, "the end of the process");
        };
        let source = source(&from);
        let target = target(&to, &source);
        let run = || grow(&source, &target, &growth::Options::default(), &mut end).map(drop);
        let ended = catch_unwind(AssertUnwindSafe(run));
        assert!(ended.is_err() || seen == 0, "{pass}: it came to its end");
        assert!(seen > 0 || pass.starts_with("checking"), "{pass} does not report");
        drop(source);
        // The old file system is served as before.
        let server = Server::start(&*from, options(), world()).expect("starts");
        assert!(client(&server).read_file("/d3/file").expect("read") == content(3));
        server.shutdown().expect("ends");
    }
    let done = grown(&from, &to);
    assert_eq!(done.copied, done.parted, "blocks that are there are not copied again");
    go_on(&to, &used, true);
}

#[test]
fn a_copy_forgets_what_was_removed_meanwhile_and_is_refused_to_others() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (from, to, other) = (tmp.path().join("from"), tmp.path().join("to"), tmp.path().join("other"));
    let used = populate(&from, 1);
    let source_of = source(&from);
    let begun = target(&to, &source_of);
    grow(&source_of, &begun, &growth::Options::default(), &mut |_| {}).expect("grows");
    let refused = GrowthTarget::begin(&(&*to).into(), source_of.info(), 6, "etcd://nowhere", &RealWorld);
    let refused = refused.err().expect("another number of plates").to_string();
    assert!(refused.contains("--plates 5"), "{refused}");
    drop(source_of);
    populate(&other, 1);
    let source_of = source(&other);
    let refused = GrowthTarget::begin(&(&*to).into(), source_of.info(), 5, "etcd://nowhere", &RealWorld);
    let refused = refused.err().expect("another file system").to_string();
    assert!(refused.contains("another file system"), "{refused}");
    drop(source_of);

    let server = Server::start(&*from, options(), world()).expect("starts");
    let changing = client(&server);
    changing.remove("/d5/file").expect("removed");
    changing.create_file("/d5/file", &content(5)).expect("made");
    drop(changing);
    server.shutdown().expect("ends");
    let done = grown(&from, &to);
    assert_eq!(done.copied, 1 + done.parted, "the new file");
    let cluster = Became { data: to.display().to_string(), monitor: "etcd://nowhere".into(), filesystem: 1 };
    cluster.write(&(&*from).into()).expect("written");
    let refused = Server::start(&*from, options(), world()).err().expect("closed").to_string();
    assert!(
        refused.contains("has become the cluster at") && refused.contains("remove its file"),
        "{refused}"
    );
    let mut used = used;
    let copy = Server::start_at_rest(&(&*to).into(), &at_rest(), options(), world()).expect("starts");
    used.insert(client(&copy).stat("/d5/file").expect("read").ino);
    copy.shutdown().expect("ends");
    go_on(&to, &used, true);
}
