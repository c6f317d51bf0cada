//! fsck beside the servers of a file system whose plates run on several of them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::servers::{
    PLATES, SHARDS, Servers, Site, clone, plate_at_rest, plate_of, prepare, while_busy, world,
};
use chiton_admin::fsck::{CheckError, Finding, Offline, Options, Progress, Summary, check_online};
use chiton_client::Client;
use chiton_metastore::Batch;
use chiton_model::{XattrHow, decode_parts};
use chiton_namespace::{StoredInode, StoredRow, entry_row_key, inode_row, tag};
use chiton_types::{BlockId, Ino, Name, PlateId};

const CHECKS: usize = 10;

type Checked = (Result<Summary, CheckError>, Vec<Finding>);

fn check_with(client: &Arc<Client>, options: &Options, progress: &mut dyn FnMut(Progress)) -> Checked {
    let mut found = Vec::new();
    let summary = check_online(client, options, &mut |f| found.push(f), progress);
    (summary, found)
}

fn check(client: &Arc<Client>) -> Checked {
    check_with(client, &Options { content: true, ..Options::default() }, &mut |_| {})
}

fn check_offline(site: &Site) -> Vec<Finding> {
    let offline = Offline::open(&site.data(), world(), &mut |_, _| {}).expect("opens");
    let mut found = Vec::new();
    let options = Options { content: true, ..Options::default() };
    offline.check(&options, &mut |f| found.push(f), &mut |_| {}).expect("checks");
    found
}

/// A problem, and where it is.
type Named = (&'static str, Option<Ino>, Option<PlateId>, Option<String>);

/// The problems that findings name, sorted.
fn names(found: &[Finding]) -> Vec<Named> {
    let name = |f: &Finding| (f.problem.name(), f.problem.ino(), f.plate, f.path.clone());
    let mut names: Vec<_> = found.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn nothing_under_way_between_servers_looks_like_damage() {
    let site = Site::new();
    site.alone(prepare);
    let servers = Servers::start(&site, 3);
    let clients: Vec<_> = (0..3).map(|number| servers.client(number, None)).collect();
    let tool = servers.client(1, None);
    while_busy(&clients, |done| {
        for n in 0..CHECKS {
            let before = done.load(Ordering::Relaxed);
            let mut passes = Vec::new();
            let (summary, found) = check_with(&tool, &Options::default(), &mut |p| passes.push(p.pass));
            assert_eq!(found, [], "check {n}");
            assert!(summary.expect("checks").directories > 20);
            assert!(passes.contains(&"checkpoints") && passes.contains(&"journals"), "{passes:?}");
            // The plates take messages of each other again.
            while done.load(Ordering::Relaxed) <= before {
                std::thread::yield_now();
            }
        }
    });
    drop((clients, tool));
    servers.shutdown();
    assert_eq!(check_offline(&site), []);
}

/// A tree in which faults are planted.
struct Tree {
    /// Directories of the root on plates other than its own.
    dirs: Vec<Ino>,
    /// A directory with parts.
    huge: Ino,
}

/// Content that is too large to live in its inode.
static BLOCK: [u8; 30_000] = [7; 30_000];

fn grow(client: &Client) -> Tree {
    let caller = client.caller();
    let (mut dirs, mut paths) = (Vec::new(), Vec::new());
    for n in 0.. {
        let dir = client.mkdir_all(format!("dir{n}")).expect("made").ino;
        client.write_file(format!("dir{n}/file"), b"some").expect("written");
        client.write_file(format!("dir{n}/block"), &BLOCK).expect("written");
        if plate_of(dir) != plate_of(Ino::ROOT) {
            dirs.push(dir);
            paths.push(format!("dir{n}"));
        }
        if dirs.len() == 8 {
            break;
        }
    }
    for (n, dir) in dirs.iter().enumerate() {
        let other = dirs[(n + 1) % dirs.len()];
        let file = client.stat_in(&caller, *dir, &["file"]).remove(0).expect("found").ino;
        client.link(&caller, file, other, b"link").expect("linked");
    }
    clone(client, &format!("{}/block", paths[3]), &format!("{}/clone", paths[3]), BLOCK.len());
    let top = client.mkdir_all("huge").expect("made").ino;
    client.setxattr(&caller, top, b"chiton.policy", b"huge: always", XattrHow::Set).expect("a policy");
    let huge = client.mkdir_all("huge/shared").expect("made").ino;
    prepare(client);
    Tree { dirs, huge }
}

/// Changes of rows, by plate.
struct Faults<'a> {
    site: &'a Site,
    changes: BTreeMap<PlateId, Batch>,
}

impl Faults<'_> {
    fn get(&self, of: Ino, key: &[u8]) -> Vec<u8> {
        let data = self.site.data();
        let plate = plate_at_rest(data.dir().expect("a directory"), plate_of(of));
        plate.meta().get(key).expect("read").expect("a row")
    }

    fn set(&mut self, of: Ino, key: Vec<u8>, value: Option<Vec<u8>>) {
        let batch = self.changes.entry(plate_of(of)).or_default();
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
    }

    fn find(&self, dir: Ino, name: &str) -> Ino {
        let key = entry_row_key(dir, &Name::try_from(name).expect("a name"));
        match StoredRow::decode(&key, &self.get(dir, &key)) {
            Ok(Some(StoredRow::Entry { ino, .. })) => ino,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn unlink(&mut self, dir: Ino, name: &str) {
        self.set(dir, entry_row_key(dir, &Name::try_from(name).expect("a name")), None);
    }

    fn edit(&mut self, ino: Ino, f: impl FnOnce(&mut StoredInode)) {
        let key = inode_row(tag::INODE, ino);
        let Ok(Some(StoredRow::Inode(mut inode))) = StoredRow::decode(&key, &self.get(ino, &key)) else {
            panic!("{ino} has a row")
        };
        f(&mut inode);
        self.set(ino, key, Some(StoredRow::Inode(inode).value()));
    }

    /// A block that several files share, and the plate that counts them.
    fn shared_block(&self) -> (BlockId, PlateId) {
        let data = self.site.data();
        let counted = (0..PLATES).map(PlateId).find_map(|number| {
            let plate = plate_at_rest(data.dir().expect("a directory"), number);
            let rows = plate.meta().scan(Bound::Unbounded, None, usize::MAX).expect("read");
            rows.iter().find_map(|(key, value)| match StoredRow::decode(key, value) {
                Ok(Some(StoredRow::References(block, _))) => Some((block, number)),
                _ => None,
            })
        });
        counted.expect("a shared block")
    }

    fn plant(self) {
        for (plate, batch) in self.changes {
            let data = self.site.data();
            let plate = plate_at_rest(data.dir().expect("a directory"), plate);
            plate.meta().commit(&batch).expect("committed");
        }
    }
}

/// Plants one fault of each kind. Returns the problems that must be found at least.
fn plant_all(site: &Site, tree: &Tree) -> Vec<&'static str> {
    let mut faults = Faults { site, changes: BTreeMap::new() };
    let d = &tree.dirs;
    // The row of a directory that another plate names.
    faults.set(d[0], inode_row(tag::INODE, d[0]), None);
    // A name whose inode is unknown, with nothing left of its content.
    let single = faults.find(d[1], "block");
    for key in [inode_row(tag::INODE, single), StoredRow::Chunk(single, 0, Default::default()).key()] {
        faults.set(single, key, None);
    }
    // An inode that no name refers to.
    faults.unlink(d[2], "block");
    // A count of links, one of which is on another plate.
    let linked = faults.find(d[4], "file");
    faults.edit(linked, |inode| inode.nlink = 7);
    faults.edit(d[5], |inode| inode.parent = d[6]);
    faults.edit(d[7], |inode| inode.node.set_entries(1));
    // The count of the files that share a block.
    let (block, plate) = faults.shared_block();
    let row = StoredRow::References(block, 9);
    faults.changes.entry(plate).or_default().put(row.key(), row.value());
    // A part that the list of a directory names.
    let key = inode_row(tag::CONTENT, tree.huge);
    let parts = decode_parts(&faults.get(tree.huge, &key)).expect("a list");
    let part = parts.iter().find(|part| part.ino != tree.huge).expect("another part").ino;
    for kind in [tag::INODE, tag::CONTENT] {
        faults.set(part, inode_row(kind, part), None);
    }
    faults.plant();
    vec![
        "lost-inode",
        "dangling-entry",
        "orphan",
        "wrong-link-count",
        "wrong-parent",
        "wrong-entry-count",
        "wrong-reference-count",
        "missing-part",
    ]
}

#[test]
fn planted_faults_are_found_beside_the_servers_as_at_rest() {
    let site = Site::new();
    let tree = site.alone(grow);
    assert_eq!(check_offline(&site), []);
    let wanted = plant_all(&site, &tree);
    let at_rest = names(&check_offline(&site));
    for name in &wanted {
        assert!(at_rest.iter().any(|found| found.0 == *name), "{name}: {at_rest:?}");
    }
    let servers = Servers::start(&site, 3);
    let clients: Vec<_> = (0..3).map(|number| servers.client(number, None)).collect();
    let tool = servers.client(2, None);
    while_busy(&clients, |_| {
        for _ in 0..3 {
            let (summary, found) = check(&tool);
            assert_eq!(names(&found), at_rest);
            assert_eq!(summary.expect("checks").findings, at_rest.len() as u64);
        }
    });
    drop((clients, tool));
    servers.shutdown();
}

#[test]
fn plates_that_move_during_checks_give_an_error_or_a_true_answer() {
    let site = Site::new();
    site.alone(prepare);
    let mut servers = Servers::start(&site, 3);
    // Server 0 stays where it is: it is the address that all know.
    let clients: Vec<_> = (0..3).map(|_| servers.client(0, None)).collect();
    let tool = servers.client(0, None);
    let (mut clean, mut failed) = (0, 0);
    while_busy(&clients, |_| {
        std::thread::scope(|scope| {
            let checks = scope.spawn(|| {
                let mut results = Vec::new();
                while results.len() < 8 {
                    results.push(check_with(&tool, &Options::default(), &mut |_| {}));
                }
                results
            });
            for round in 0u16.. {
                if checks.is_finished() {
                    break;
                }
                chiton_runtime::thread::sleep(Duration::from_millis(400));
                servers.move_plate(PlateId(round * 3 % PLATES), usize::from(round * 5 % 3));
            }
            for (summary, found) in checks.join().expect("checked") {
                assert_eq!(found, []);
                match summary {
                    Ok(_) => clean += 1,
                    Err(error) => {
                        assert!(error.to_string().contains("another server has the plate now"), "{error}");
                        failed += 1;
                    }
                }
            }
        });
    });
    assert!(clean > 0, "{failed} failed");
    let (summary, found) = check(&tool);
    assert_eq!((summary.is_ok(), found), (true, Vec::new()), "when all stay where they are");
    drop((clients, tool));
    servers.shutdown();
}

#[test]
fn a_server_that_dies_is_waited_for_or_named() {
    let site = Site::new();
    site.alone(prepare);
    let mut servers = Servers::start(&site, 2);
    let tool = servers.client(0, Some(Duration::from_secs(20)));
    // Before the check: another server takes its plates over meanwhile.
    servers.kill(1);
    std::thread::scope(|scope| {
        let checked = scope.spawn(|| check(&tool));
        chiton_runtime::thread::sleep(Duration::from_millis(700));
        servers.take_over(1, 0);
        let (summary, found) = checked.join().expect("checked");
        assert_eq!((summary.is_ok(), found), (true, Vec::new()));
    });
    servers.shutdown();

    // During the check: the view of its rows is gone.
    let mut servers = Servers::start(&site, 2);
    let tool = servers.client(0, Some(Duration::from_secs(20)));
    let mut has_died = false;
    let (summary, found) = check_with(&tool, &Options::default(), &mut |progress| {
        if progress.pass == "journals" && !has_died {
            has_died = true;
            servers.kill(1);
            servers.take_over(1, 0);
        }
    });
    let said = summary.map(drop).map_err(|error| error.to_string());
    assert!(
        has_died && said.as_ref().is_err_and(|e| e.contains("another server has the plate now")),
        "{said:?}"
    );
    assert_eq!(found, []);
    servers.shutdown();

    // Nobody takes it over.
    let mut servers = Servers::start(&site, 2);
    let tool = servers.client(0, Some(Duration::from_secs(1)));
    servers.kill(1);
    let (summary, found) = check(&tool);
    let said = summary.map(drop).map_err(|error| error.to_string());
    assert!(said.as_ref().is_err_and(|e| e.contains("plate 1: no server answers for it")), "{said:?}");
    assert_eq!(found, []);
}

#[test]
fn only_administrators_look_at_rows() {
    let site = Site::new();
    site.alone(prepare);
    let servers = Servers::start(&site, 2);
    let tool = servers.client_of(0, 4711);
    let (summary, found) = check(&tool);
    let said = summary.map(drop).map_err(|error| error.to_string());
    assert!(said.as_ref().is_err_and(|e| e.contains("only root and the user of the server")), "{said:?}");
    assert_eq!(found, []);
    // A refused check holds nothing.
    let writer = servers.client(1, None);
    writer.mkdir_all("load0/0/after/that").expect("made");
    drop((tool, writer));
    servers.shutdown();
}

/// The memory of a check does not grow with the tree beyond the buffers of its sorting, and a little for pages.
#[test]
fn sorting_spills_into_temporary_files() {
    let site = Site::new();
    site.alone(|client| {
        prepare(client);
        for n in 0..40 {
            client.mkdir_all(format!("many/{n}")).expect("made");
            for file in 0..50 {
                client.write_file(format!("many/{n}/{file}"), b"some").expect("written");
            }
        }
    });
    let servers = Servers::start(&site, 2);
    let tool = servers.client(0, None);
    let options = Options { memory_bytes: 1 << 12, ..Options::default() };
    let (summary, found) = check_with(&tool, &options, &mut |_| {});
    assert_eq!(found, []);
    assert!(summary.expect("checks").inodes > 2_000);
    drop(tool);
    servers.shutdown();
}

/// Rows that plates have of their own are named with their plates.
#[test]
fn a_wrong_count_of_one_plate_is_named_with_the_plate() {
    let site = Site::new();
    site.alone(prepare);
    let key = StoredRow::InodeCount(0).key();
    let data = site.data();
    let plate = plate_at_rest(data.dir().expect("a directory"), PlateId(2));
    let rows = plate.meta().scan(Bound::Included(&key), None, 1).expect("read");
    assert_eq!(rows.first().map(|(found, _)| found), Some(&key));
    let row = StoredRow::InodeCount(9_999);
    plate.meta().commit(&Batch::from_iter([(key, Some(row.value()))])).expect("committed");
    drop(plate);
    let at_rest = names(&check_offline(&site));
    assert_eq!(at_rest, [("wrong-inode-count", None, Some(PlateId(2)), None)], "{SHARDS} shards");
    let servers = Servers::start(&site, 4);
    let tool = servers.client(3, None);
    assert_eq!(names(&check(&tool).1), at_rest);
    drop(tool);
    servers.shutdown();
}
