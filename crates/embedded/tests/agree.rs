//! Several clients of one server, in its process and over a Unix socket, with one plate and with several: nobody sees what is no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chiton_client::{Client, ClientOptions, Lookup, OpenFlags};
use chiton_model::{AttrChange, RenameHow};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_transport::Address;
use chiton_types::{Ino, Mode, Refusal};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

/// A server with a socket. Everybody may do everything at the root.
struct Site {
    dir: TempDir,
    server: Arc<Server>,
}

/// Numbers of plates.
const PLATES: [u16; 2] = [1, 3];

impl Site {
    fn new(plates: u16) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let owner =
            FormatOptions { uid: rustix::process::geteuid().as_raw(), plates, ..FormatOptions::default() };
        let data = dir.path().join("data");
        Server::format(&data, &owner, &world).expect("formatted");
        let server = Server::start(&data, ServerOptions::default(), world).expect("started");
        let site = Site { dir, server };
        site.server.serve(&[site.address()]).expect("listening");
        site
    }

    fn address(&self) -> Address {
        format!("unix:{}", self.dir.path().join("socket").display()).parse().expect("an address")
    }

    fn embedded(&self) -> Client {
        chiton_embedded::client(&self.server, ClientOptions::default()).expect("a session")
    }

    fn connected(&self) -> Client {
        Client::connect(&self.address(), ClientOptions::default()).expect("connected")
    }
}

const NAMES: usize = 4;
const DIRS: usize = 20;

#[derive(Clone, Debug)]
enum Step {
    Create(usize, usize),
    Unlink(usize, usize),
    Rename(usize, usize, usize),
    Chmod(usize, usize, u16),
    Look(usize, usize),
    List(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (who, name) = (0..3usize, 0..NAMES);
    prop_oneof![
        2 => (who.clone(), name.clone()).prop_map(|(who, n)| Step::Create(who, n)),
        2 => (who.clone(), name.clone()).prop_map(|(who, n)| Step::Unlink(who, n)),
        1 => (who.clone(), name.clone(), name.clone()).prop_map(|(who, a, b)| Step::Rename(who, a, b)),
        1 => (who.clone(), name.clone(), 0..0o777u16).prop_map(|(who, n, mode)| Step::Chmod(who, n, mode)),
        6 => (who.clone(), name).prop_map(|(who, n)| Step::Look(who, n)),
        1 => who.prop_map(Step::List),
    ]
}

fn name(n: usize) -> String {
    format!("name-{n}")
}

fn run(clients: &[Client], dir: Ino, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model: BTreeMap<usize, (Ino, u16)> = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Create(who, n) => {
                let client = &clients[who];
                let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
                match client.create(&client.caller(), dir, name(n).as_bytes(), Mode(0o644), flags) {
                    Ok((entry, fh)) => {
                        client.release(fh).expect("closed");
                        prop_assert_eq!(model.insert(n, (entry.attr.ino, 0o644)), None);
                    }
                    Err(refusal) => {
                        prop_assert_eq!(refusal, Refusal::Exists);
                        prop_assert!(model.contains_key(&n));
                    }
                }
            }
            Step::Unlink(who, n) => {
                let gone = clients[who].unlink(&clients[who].caller(), dir, name(n).as_bytes());
                prop_assert_eq!(gone, model.remove(&n).map(drop).ok_or(Refusal::NotFound));
            }
            Step::Rename(who, a, b) => {
                let (from, to) = (name(a), name(b));
                let client = &clients[who];
                let how = RenameHow::Replace;
                let moved = client.rename(&client.caller(), dir, from.as_bytes(), dir, to.as_bytes(), how);
                match model.get(&a).copied() {
                    Some(row) => {
                        prop_assert_eq!(moved, Ok(()));
                        model.remove(&a);
                        model.insert(b, row);
                    }
                    None => prop_assert_eq!(moved, Err(Refusal::NotFound)),
                }
            }
            Step::Chmod(who, n, mode) => {
                if let Some((ino, known)) = model.get_mut(&n) {
                    let change = AttrChange { mode: Some(Mode(mode)), ..AttrChange::default() };
                    clients[who].setattr(&clients[who].caller(), *ino, change, None).expect("changed");
                    *known = mode;
                }
            }
            Step::Look(who, n) => {
                let client = &clients[who];
                let seen = match client.lookup(&client.caller(), dir, name(n).as_bytes()).expect("looked") {
                    Lookup::Found { attr, .. } => Some((attr.ino, attr.mode.0)),
                    Lookup::Absent { .. } => None,
                };
                prop_assert_eq!(seen, model.get(&n).copied(), "client {} sees {}", who, name(n));
                if let Some((ino, mode)) = seen {
                    prop_assert_eq!(client.getattr(ino, None).expect("there").attr.mode.0, mode);
                }
            }
            Step::List(who) => {
                let client = &clients[who];
                let (listed, end) = client.readdir(&client.caller(), dir, 0, 100, true).expect("listed");
                prop_assert!(end);
                let mut seen: Vec<_> =
                    listed.iter().map(|entry| (entry.name.to_string(), entry.ino)).collect();
                seen.sort();
                let expect: Vec<_> = model.iter().map(|(&n, row)| (name(n), row.0)).collect();
                prop_assert_eq!(seen, expect);
            }
        }
    }
    Ok(())
}

#[test]
fn names_and_attributes_are_never_stale() {
    for plates in PLATES {
        let site = Site::new(plates);
        let clients = [site.embedded(), site.connected(), site.connected()];
        let mut runner = TestRunner::new(ProptestConfig {
            cases: if plates == 1 { 60 } else { 30 },
            failure_persistence: None,
            ..Default::default()
        });
        let dirs: Vec<Ino> =
            (0..DIRS).map(|n| clients[0].mkdir_all(format!("dir-{n}")).expect("made").ino).collect();
        let next = AtomicUsize::new(0);
        runner
            .run(&prop::collection::vec(step(), 1..60), |steps| {
                let n = next.fetch_add(1, Ordering::Relaxed);
                // Not always the same directory, and an empty one.
                let dir = dirs[n % DIRS];
                for entry in clients[0].readdir(&clients[0].caller(), dir, 0, 100, false).expect("listed").0 {
                    clients[0].unlink(&clients[0].caller(), dir, entry.name.as_bytes()).expect("cleared");
                }
                run(&clients, dir, &steps)
            })
            .expect("every client sees the same");
    }
}

#[test]
fn content_written_by_one_is_read_by_the_others() {
    for plates in PLATES {
        let site = Site::new(plates);
        let clients = [site.embedded(), site.connected(), site.connected()];
        for (turn, size) in [(0, 10), (1, 5_000), (2, 100_000), (0, 0), (1, 9_000_000), (2, 3)] {
            let content: Vec<u8> = (0..size).map(|n: usize| (n * 7 + turn) as u8).collect();
            clients[turn].write_file("shared", &content).expect("written");
            for (who, client) in clients.iter().enumerate() {
                assert_eq!(
                    client.stat("shared").expect("there").size,
                    size as u64,
                    "{turn} wrote, {who} looks"
                );
                assert!(
                    client.read_file("shared").expect("read") == content,
                    "{turn} wrote {size}, {who} read"
                );
            }
        }
    }
}

#[test]
fn paths_are_resolved_links_included() {
    for plates in PLATES {
        let site = Site::new(plates);
        for client in [site.embedded(), site.connected()] {
            let top = if client.is_embedded() { "a" } else { "b" };
            client.mkdir_all(format!("/{top}/deep/er")).expect("made");
            client.create_file(format!("{top}/deep/er/file"), b"hello").expect("made");
            let caller = client.caller();
            let dir = client.stat(top).expect("there").ino;
            client.symlink(&caller, dir, b"way", b"deep/er").expect("made");
            client.symlink(&caller, dir, b"loop", b"loop").expect("made");
            client.symlink(&caller, dir, b"dangling", b"deep/new").expect("made");
            assert_eq!(client.read_file(format!("{top}/way/../er/file")), Ok(b"hello".to_vec()));
            assert_eq!(client.stat(format!("{top}/loop")).map(drop), Err(Refusal::Loop));
            assert_eq!(client.stat(format!("{top}/way/none")).map(drop), Err(Refusal::NotFound));
            assert_eq!(client.stat(format!("{top}/way/file/")).map(drop), Err(Refusal::NotDir));
            assert_eq!(client.create_file(format!("{top}/way/file"), b""), Err(Refusal::Exists));
            client.write_file(format!("{top}/dangling"), b"through the link").expect("made");
            assert_eq!(client.read_file(format!("{top}/deep/new")), Ok(b"through the link".to_vec()));
            // The file stays on its plate, whatever plate the new name is on.
            client.rename_path(format!("{top}/deep/new"), format!("{top}/moved")).expect("moved");
            assert_eq!(client.read_file(format!("{top}/moved")), Ok(b"through the link".to_vec()));
            assert_eq!(client.read_file(format!("{top}/deep/new")), Err(Refusal::NotFound));
            client.remove(format!("{top}/moved")).expect("removed");
            assert_eq!(client.remove(format!("{top}/deep")), Err(Refusal::NotEmpty));
        }
    }
}

#[test]
fn batches_answer_each_name_in_order() {
    for plates in PLATES {
        let site = Site::new(plates);
        for client in [site.embedded(), site.connected()] {
            let dir = format!("batch-{}", client.is_embedded());
            client.mkdir_all(&dir).expect("made");
            let mut names: Vec<String> = (0..2_500).map(|n| format!("f{n}")).collect();
            names[7] = "f6".into();
            names[9] = "a/b".into();
            let made = client.create_many(&dir, &names).expect("asked");
            assert_eq!(made.len(), names.len());
            assert_eq!(made[7], Err(Refusal::Exists));
            assert_eq!(made[9], Err(Refusal::Invalid));
            assert_eq!(made.iter().filter(|one| one.is_ok()).count(), 2_498);
            let seen = client.stat_many(&dir, &names).expect("asked");
            assert_eq!(seen[2_499].as_ref().map(|attr| attr.ino), made[2_499].as_ref().map(|attr| attr.ino));
            assert_eq!(seen[9].as_ref().map(drop), Err(&Refusal::Invalid));
            let ino = client.stat(&dir).expect("there").ino;
            let later = client.start_create_in(&client.caller(), ino, &["x", ".", "f1"], Mode(0o600));
            let later: Vec<_> = later.wait().expect("asked").into_iter().map(|one| one.map(drop)).collect();
            assert_eq!(later, [Ok(()), Err(Refusal::Exists), Err(Refusal::Exists)]);
            client.remove(format!("{dir}/x")).expect("removed");
            let gone = client.unlink_many(&dir, &names).expect("asked");
            assert_eq!((gone[6], gone[7]), (Ok(()), Err(Refusal::NotFound)));
            assert_eq!(client.list(&dir).expect("listed").len(), 0);
        }
    }
}

/// S37: "mtime and ctime of a written file are those of the last write", also of one that leaves nothing but holes.
#[test]
fn a_change_that_leaves_nothing_to_store_still_sets_the_times_and_the_size() {
    for plates in PLATES {
        const PUNCH: i32 = 3;
        let site = Site::new(plates);
        for (n, client) in [site.embedded(), site.connected()].into_iter().enumerate() {
            let path = format!("holes-{n}");
            client.create_file(&path, b"").expect("made");
            let size = AttrChange { size: Some(70_000), ..AttrChange::default() };
            let before = client.set_attr_path(&path, size).expect("truncated");
            for (mode, offset, len, expect) in [(PUNCH, 5_000, 15_000, 70_000), (0, 90_000, 10_000, 100_000)]
            {
                let fh = client.open_path(&path, OpenFlags::READ_WRITE).expect("open");
                client.fallocate(&client.caller(), fh, mode, offset, len).expect("a hole");
                let shown = client.stat(&path).expect("seen");
                client.release(fh).expect("closed");
                // The server's answer to a client that has cached nothing.
                let after = site.connected().stat(&path).expect("seen");
                assert!(
                    after.mtime > before.mtime,
                    "mode {mode}: {:?} is not after {:?}",
                    after.mtime,
                    before.mtime
                );
                assert_eq!((after.size, after.mtime), (expect, shown.mtime), "mode {mode}");
            }
        }
    }
}
