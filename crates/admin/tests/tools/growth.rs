//! The copy of a file system to the storage of a cluster: whole, repeatable at every step, and able to resume.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use chiton_admin::fsck::{Finding, Offline, Options};
use chiton_admin::growth::{self, Grown, examine, grow};
use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_model::XattrHow;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{AtRest, Became, DataAddress, FormatOptions, GrowthTarget, Server, ServerOptions};
use chiton_types::{Ino, Kind};
use serde_json::Value;

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

const POLICY: &[u8] = b"chiton.policy";

fn set_policy(client: &Client, path: &str, text: &str) {
    let ino = client.stat(path).expect("there").ino;
    client.setxattr(&client.caller(), ino, POLICY, text.as_bytes(), XattrHow::Set).expect("set");
}

fn remove_policy(client: &Client, path: &str) {
    let ino = client.stat(path).expect("there").ino;
    client.removexattr(&client.caller(), ino, POLICY).expect("removed");
}

/// The policy that holds at a path, explained.
fn effective(client: &Client, path: &str) -> Value {
    let ino = client.stat(path).expect("there").ino;
    let text = client.getxattr(&client.caller(), ino, b"chiton.policy.effective").expect("explained");
    serde_json::from_slice(&text).expect("JSON")
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
    set_policy(&client, "/d1", "data: lazy");
    set_policy(&client, "/d2", "data: lazy");
    set_policy(&client, "/d3", "acknowledge: durable");
    remove_policy(&client, "/d2");
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
    assert_eq!(examine(&source, 5).expect("examined").obstacles, [""; 0]);
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
fn continue_work(dir: &Path, used: &BTreeSet<Ino>, has_clones: bool) {
    let data = DataAddress::from(dir);
    let server = Server::start_at_rest(&data, &at_rest(), options(), world()).expect("starts");
    assert_eq!(server.plates().count(), 5);
    let client = client(&server);
    for (dir, root) in [("/d0", "/"), ("/d1", "/d1"), ("/d2", "/"), ("/d3", "/d3")] {
        assert_eq!(effective(&client, &format!("{dir}/file"))["root"], root);
    }
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
    continue_work(&to, &used, true);
}

#[test]
fn a_file_system_with_several_plates_gets_others() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (from, to) = (tmp.path().join("from"), tmp.path().join("to"));
    let used = populate(&from, 3);
    assert_eq!(grown(&from, &to).parted, 0);
    continue_work(&to, &used, false);
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
    continue_work(&to, &used, true);
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
    continue_work(&to, &used, true);
}

fn paths_below(client: &Client, dir: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in client.list(dir).expect("listed") {
        let path =
            format!("{}/{}", dir.trim_end_matches('/'), String::from_utf8_lossy(entry.name.as_bytes()));
        if entry.kind == Kind::Dir {
            paths.extend(paths_below(client, &path));
        }
        paths.push(path);
    }
    paths
}

fn policies(client: &Client) -> Value {
    serde_json::from_slice(&client.admin("policies").expect("answered")).expect("JSON")
}

/// The policies as a client sees them: all of them with their history, and the one that holds at each path.
fn seen(client: &Client) -> (Value, Vec<(String, Value)>) {
    let held = paths_below(client, "/").into_iter().map(|path| {
        let held = effective(client, &path);
        (path, held)
    });
    (policies(client), held.collect())
}

/// Policies above each other, on directories of many shards; one that is removed, and one whose directory moves.
fn make_policies(client: &Client) {
    for n in 0..8 {
        for dir in [format!("/a/d{n}/sub/below"), format!("/moves/d{n}"), format!("/was/d{n}")] {
            client.mkdir_all(&dir).expect("made");
            client.create_file(format!("{dir}/file"), b"text").expect("made");
        }
    }
    set_policy(client, "/", "on_conflict: keep_both");
    set_policy(client, "/a", "data: lazy");
    set_policy(client, "/a/d3/sub/below", "acknowledge: durable");
    // Between two others.
    set_policy(client, "/a/d3", "owner_decouples: never");
    set_policy(client, "/a/d3/sub", "data: close_to_open\ninterfere_policy: block");
    set_policy(client, "/a/d5", "");
    set_policy(client, "/was", "acknowledge: durable");
    remove_policy(client, "/was");
    client.mkdir_all("/near").expect("made");
    set_policy(client, "/near", "placement: near");
    client.mkdir_all("/near/x/y").expect("made");
    set_policy(client, "/moves", "data: lazy");
    set_policy(client, "/moves/d3", "consistency: weak\ndurability: local");
    client.rename_path("/moves", "/moved").expect("moved");
    client.mkdir_all("/removed").expect("made");
    set_policy(client, "/removed", "data: lazy");
    client.remove("/removed").expect("removed");
}

#[test]
fn policies_hold_in_the_copy_as_in_the_source() {
    let tmp = tempfile::tempdir().expect("a directory");
    let (from, to) = (tmp.path().join("from"), tmp.path().join("to"));
    let format = FormatOptions { shards: 12, ..FormatOptions::default() };
    Server::format(&from, &format, &world()).expect("formats");
    let server = Server::start(&*from, options(), world()).expect("starts");
    let before = {
        let client = client(&server);
        make_policies(&client);
        seen(&client)
    };
    server.shutdown().expect("ends");
    grown(&from, &to);
    check_clean(&to);

    let server = Server::start_at_rest(&(&*to).into(), &at_rest(), options(), world()).expect("starts");
    let client = client(&server);
    let after = seen(&client);
    assert_eq!(after.0, before.0);
    for (after, before) in after.1.iter().zip(&before.1) {
        assert_eq!(after, before);
    }
    assert_eq!(after.1.len(), before.1.len());
    let root = |path: &str| effective(&client, path)["root"].as_str().expect("a path").to_owned();
    assert_eq!(root("/a/d3/sub/below/file"), "/a/d3/sub/below");
    assert_eq!(root("/moved/d4/file"), "/moved", "where the directory is now");

    // Changes continue from there, on all plates.
    let version = before.0["history"].as_array().expect("a list").len() as u64;
    set_policy(&client, "/a/d6", "acknowledge: durable");
    assert_eq!(effective(&client, "/a/d6/sub/below/file")["version"], version + 1);
    remove_policy(&client, "/a/d3/sub");
    assert_eq!(root("/a/d3/sub"), "/a/d3");
    assert_eq!(root("/a/d3/sub/below/file"), "/a/d3/sub/below");
    remove_policy(&client, "/a");
    assert_eq!(root("/a/d1/sub/below/file"), "/");
    assert_eq!(root("/a/d5/sub/below/file"), "/a/d5");
    let near = client.stat("/near/x/y").expect("there").ino.shard();
    assert_eq!(client.mkdir_all("/near/x/y/z").expect("made").ino.shard(), near);
    let changed = seen(&client);
    drop(client);
    server.shutdown().expect("ends");
    check_clean(&to);
    let server = Server::start_at_rest(&(&*to).into(), &at_rest(), options(), world()).expect("starts");
    let client = self::client(&server);
    assert_eq!(seen(&client), changed);
    for path in paths_below(&client, "/") {
        client.remove(&path).expect("removed");
    }
    assert_eq!(policies(&client)["policies"].as_array().map(Vec::len), Some(1), "that of the root");
    drop(client);
    server.shutdown().expect("ends");
    assert_eq!(check_clean(&to).inodes, 1);
}

#[test]
fn policies_that_a_cluster_does_not_carry_out_are_named_with_their_setting() {
    let tmp = tempfile::tempdir().expect("a directory");
    let from = tmp.path().join("from");
    let format = FormatOptions { shards: 12, ..FormatOptions::default() };
    Server::format(&from, &format, &world()).expect("formats");
    let server = Server::start(&*from, options(), world()).expect("starts");
    let making = client(&server);
    for dir in ["/scratch/inherits", "/scratch/journalled", "/scratch/alone", "/composed", "/good"] {
        making.mkdir_all(dir).expect("made");
    }
    set_policy(&making, "/scratch", "# For now.\ndurability: none");
    set_policy(&making, "/scratch/inherits", "data: lazy");
    set_policy(&making, "/scratch/journalled", "durability: local");
    set_policy(&making, "/scratch/alone", "consistency: weak");
    set_policy(&making, "/composed", "composition: rpcs");
    set_policy(&making, "/good", "data: lazy");
    making.rename_path("/scratch", "/renamed").expect("moved");
    drop(making);
    server.shutdown().expect("ends");
    let source = source(&from);
    assert_eq!(examine(&source, 1).expect("examined").obstacles, [""; 0], "one plate carries them out");
    let found = examine(&source, 5).expect("examined").obstacles;
    assert_eq!(found.len(), 2, "{found:?}");
    let has = |parts: [&str; 3]| found.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    let why = "because a file system with several plates journals every change";
    assert!(
        has(["the policy of /renamed has `durability: none`", why, "chiton policy rm MOUNT/renamed"]),
        "{found:?}"
    );
    assert!(
        has(["the policy of /composed has `composition: rpcs`", why, "chiton policy set MOUNT/composed"]),
        "{found:?}"
    );
}

#[test]
fn a_removed_tree_is_freed_before_there_are_several_plates() {
    let tmp = tempfile::tempdir().expect("a directory");
    let from = tmp.path().join("from");
    Server::format(&from, &FormatOptions::default(), &world()).expect("formats");
    let server = Server::start(&*from, options(), world()).expect("starts");
    let making = client(&server);
    making.mkdir_all("/tree/dir").expect("made");
    let ino = making.create_file("/tree/dir/file", b"x").expect("made").ino;
    let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let theirs = ends.clone();
    let keep = move |_| {
        while !theirs.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    // Its client keeps the lease, so the server cannot free the file.
    let keeping = server.session_embedded("keeps a lease", Box::new(keep)).expect("a session");
    let lease = chiton_wire::Call::Lease { ino, mode: chiton_wire::LeaseMode::Exclusive };
    keeping.ask(&chiton_types::Cred::ROOT, lease).expect("a lease");
    let tree = making.lstat("/tree").expect("there").ino;
    making.remove_tree(&making.caller(), Ino::ROOT, b"tree", tree).expect("removed");
    drop(making);
    server.shutdown().expect("ends");
    ends.store(true, std::sync::atomic::Ordering::SeqCst);
    drop(keeping);
    let source = source(&from);
    assert_eq!(examine(&source, 1).expect("examined").obstacles, [""; 0]);
    let found = examine(&source, 5).expect("examined").obstacles;
    assert!(matches!(&found[..], [line] if line.contains("names of removed trees")), "{found:?}");
}

#[test]
fn subtrees_that_get_several_plates_are_named() {
    let tmp = tempfile::tempdir().expect("a directory");
    let from = tmp.path().join("from");
    let format = FormatOptions { shards: 12, ..FormatOptions::default() };
    Server::format(&from, &format, &world()).expect("formats");
    let server = Server::start(&*from, options(), world()).expect("starts");
    let making = client(&server);
    for n in 0..16 {
        making.mkdir_all(format!("/spread/d{n}")).expect("made");
        making.mkdir_all(format!("/strong/d{n}")).expect("made");
    }
    for (dir, policy) in
        [("/spread", "consistency: weak"), ("/near", "placement: near"), ("/flat", "consistency: weak")]
    {
        making.mkdir_all(dir).expect("made");
        set_policy(&making, dir, policy);
    }
    for n in 0..16 {
        making.mkdir_all(format!("/near/d{n}")).expect("made");
        making.create_file(format!("/flat/f{n}"), b"text").expect("made");
    }
    drop(making);
    server.shutdown().expect("ends");
    let source = source(&from);
    assert_eq!(examine(&source, 5).expect("examined").parted, ["/spread"]);
    assert_eq!(examine(&source, 1).expect("examined").parted, [""; 0]);
}
