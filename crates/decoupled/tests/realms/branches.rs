//! Branches: several copies of a directory side by side, none of which sees the others.

use std::sync::Arc;

use chiton_client::{Client, OpenFlags};
use chiton_decoupled::{Realm, RealmError};
use chiton_model::merge::OnConflict;
use chiton_types::{Ino, Name, Refusal};

use crate::site::{Party, Site, merge};
use crate::tree::{Node, tree};
use crate::work::Work;
use std::collections::BTreeMap;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Party {
    pub(crate) fn branch(&self, root: Ino, of: &str) -> Result<Arc<Realm>, RealmError> {
        self.realms.create_branch(&self.client.caller(), root, &name(of), None)?;
        self.realms.open_branch(root, &name(of))
    }

    /// A directory in which random work was done.
    fn worked(&self, path: &str, seed: u64) -> Ino {
        let root = self.mkdir(path).ino;
        let mut work = Work::new(seed);
        for _ in 0..150 {
            work.step(&self.client, path);
        }
        self.client.sync().expect("there");
        root
    }

    /// How often something was done at the server.
    fn count(&self, kind: &str) -> u64 {
        let text = self.client.admin("status").expect("reported");
        let status: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        status["operations"][kind].as_u64().unwrap_or_else(|| panic!("no {kind} in {status}"))
    }
}

fn of(realm: &Realm) -> BTreeMap<String, Node> {
    tree(realm.client(), "/")
}

#[test]
fn branches_see_the_base_and_their_own_changes_only() {
    let site = Site::new();
    let (ours, theirs, base) = (site.connected(), site.elsewhere(), site.embedded());
    let root = base.worked("/tree", 3);
    let was = tree(&base.client, "/tree");
    let one = ours.branch(root, "one").expect("made");
    let two = theirs.branch(root, "two").expect("made");
    assert_eq!((of(&one), of(&two)), (was.clone(), was.clone()));

    // The same work as in directories of their own.
    let twins = ["/twin-one", "/twin-two", "/twin-base"].map(|twin| base.worked(twin, 3));
    assert_eq!(twins.len(), 3);
    let (mut a, mut b, mut c) = (Work::new(10), Work::new(11), Work::new(12));
    let (mut at, mut bt, mut ct) = (Work::new(10), Work::new(11), Work::new(12));
    for _ in 0..200 {
        assert_eq!(a.step(one.client(), ""), at.step(&base.client, "/twin-one"));
        assert_eq!(b.step(two.client(), ""), bt.step(&base.client, "/twin-two"));
        assert_eq!(c.step(&base.client, "/tree"), ct.step(&base.client, "/twin-base"));
    }
    let expected = ["/twin-one", "/twin-two", "/twin-base"].map(|twin| tree(&base.client, twin));
    assert_eq!(of(&one), expected[0]);
    assert_eq!(of(&two), expected[1]);
    assert_eq!(tree(&base.client, "/tree"), expected[2], "the original goes on");
    // One that is made now sees it as it is now.
    let three = ours.branch(root, "three").expect("made");
    assert_eq!(of(&three), expected[2]);

    // Dropped ones leave nothing.
    for realm in [one, two, three] {
        realm.discard().expect("dropped");
    }
    assert_eq!(tree(&base.client, "/tree"), expected[2]);
    assert_eq!(base.realms.branches(None).expect("reported"), []);
    assert!(ours.realms.left().expect("reported").is_empty());
}

#[test]
fn a_merged_branch_conflicts_with_the_next_one() {
    for on_conflict in [OnConflict::Overwrite, OnConflict::KeepBoth, OnConflict::Abort] {
        let site = Site::new();
        let ours = site.connected();
        let root = ours.mkdir("/tree").ino;
        for file in ["both", "first", "second", "gone"] {
            ours.client.create_file(format!("/tree/{file}"), b"before").expect("made");
        }
        let one = ours.branch(root, "one").expect("made");
        let two = ours.branch(root, "two").expect("made");
        for (realm, own, content) in [(&one, "/first", &b"by one"[..]), (&two, "/second", b"by two")] {
            realm.client().write_file(own, content).expect("written");
            realm.client().write_file("/both", content).expect("written");
            realm.client().create_file(format!("{own}-new"), content).expect("made");
        }
        two.client().remove("/gone").expect("removed");
        assert_eq!(merge(&one).conflict_count, 0);
        let diff = two.diff().expect("reported");
        let paths: Vec<&str> = diff.conflicts.iter().map(|line| &line.path[..]).collect();
        assert_eq!(paths, ["both"]);

        let how = match on_conflict {
            OnConflict::Overwrite => chiton_policy::OnConflict::Overwrite,
            OnConflict::KeepBoth => chiton_policy::OnConflict::KeepBoth,
            OnConflict::Abort => chiton_policy::OnConflict::Abort,
            OnConflict::Merge => unreachable!("not of these"),
        };
        let report = two.merge_with(Some(how), &|_| {}).expect("merged");
        assert_eq!(report.conflict_count, 1, "{report:?}");
        assert_eq!(report.conflicts[0].path, "both", "{report:?}");
        assert_eq!(report.stopped, on_conflict == OnConflict::Abort, "{report:?}");
        let read = |path: &str| ours.client.read_file(path);
        match on_conflict {
            OnConflict::Overwrite => assert_eq!(read("/tree/both"), Ok(b"by two".to_vec())),
            OnConflict::KeepBoth | OnConflict::Merge => {
                assert_eq!(read("/tree/both"), Ok(b"by two".to_vec()));
                let aside = report.conflicts[0].aside.clone().expect("kept");
                assert_eq!(read(&format!("/tree/{aside}")), Ok(b"by one".to_vec()));
            }
            OnConflict::Abort => {
                assert_eq!(read("/tree/both"), Ok(b"by one".to_vec()));
                // The merge changed nothing, not even paths without a conflict.
                assert_eq!(read("/tree/second-new"), Err(Refusal::NotFound));
                assert_eq!(read("/tree/gone"), Ok(b"before".to_vec()));
                // The branch still exists, and a repeated merge succeeds.
                let report = two.merge(&|_| {}).expect("merged");
                assert!(report.ended && !report.stopped, "{report:?}");
                assert_eq!(read("/tree/both"), Ok(b"by two".to_vec()));
            }
        }
        assert_eq!(read("/tree/first"), Ok(b"by one".to_vec()));
        assert_eq!(read("/tree/second-new"), Ok(b"by two".to_vec()));
        assert_eq!(read("/tree/gone"), Err(Refusal::NotFound));
        assert_eq!(ours.realms.branches(None).expect("reported"), []);
    }
}

#[test]
fn a_branch_is_made_without_reading_the_tree() {
    let costs: Vec<[u64; 2]> = [10, 3_000]
        .into_iter()
        .map(|files| {
            let site = Site::new();
            let names: Vec<String> = (0..files).map(|n| format!("f{n}")).collect();
            let ours = site.connected();
            let root = ours.mkdir("/tree/deep").ino;
            assert!(ours.client.create_many("/tree/deep", &names).expect("asked").iter().all(Result::is_ok));
            drop(ours);
            // Nothing of it is in the server's memory.
            site.restart();
            let ours = site.connected();
            let kinds = ["fetched", "readdir"];
            let before = kinds.map(|kind| ours.count(kind));
            ours.realms.create_branch(&ours.client.caller(), root, &name("one"), None).expect("made");
            let cost = [0, 1].map(|at| ours.count(kinds[at]) - before[at]);
            let realm = ours.realms.open_branch(root, &name("one")).expect("opened");
            assert_eq!(tree(realm.client(), "/").len(), files);
            cost
        })
        .collect();
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0][0] < 10, "{costs:?}");
}

#[test]
fn a_branch_waits_for_whoever_opens_it_next() {
    let site = Site::new();
    let ours = site.connected();
    let root = ours.worked("/tree", 5);
    let realm = ours.branch(root, "one").expect("made");
    realm.client().create_file("/new", b"new").expect("made");
    let refusal = |result: Result<Arc<Realm>, RealmError>| result.err().map(|error| error.refusal());
    assert_eq!(refusal(ours.realms.open_branch(root, &name("one"))), Some(Refusal::Busy), "it is in use");
    assert_eq!(refusal(ours.branch(root, "one")), Some(Refusal::Busy), "the name is taken");
    assert_eq!(refusal(ours.realms.open_branch(root, &name("two"))), Some(Refusal::NotFound));
    let deleted = ours.realms.delete_branch(root, &name("one"), false);
    assert_eq!(deleted.err().map(|error| error.refusal()), Some(Refusal::Busy));
    assert!(ours.realms.branch(root, &name("one")).expect("reported").is_in_use());
    let expected = of(&realm);

    // In order.
    assert_eq!(ours.realms.close(), []);
    drop((realm, ours));
    let ours = site.connected();
    assert!(ours.realms.recover().is_empty(), "a branch waits until it is asked for");
    let realm = ours.realms.open_branch(root, &name("one")).expect("opened");
    assert_eq!(of(&realm), expected);
    // As a crash of it, and then one of the server.
    realm.client().write_file("/new", b"newer").expect("written");
    realm.client().sync().expect("durable");
    let expected = of(&realm);
    realm.abandon();
    drop((realm, ours));
    site.kill();
    site.start();
    let ours = site.connected();
    let realm = ours.realms.open_branch(root, &name("one")).expect("opened");
    assert_eq!(of(&realm), expected);
    merge(&realm);
    assert_eq!(tree(&ours.client, "/tree"), expected);
    assert_eq!(ours.realms.branches(None).expect("reported"), []);
}

#[test]
fn a_deleted_branch_leaves_nothing() {
    const GLOBAL: &[u8] = b"consistency: weak\ndurability: global\nsync_interval: 1ms\n";
    for policy in [None, Some(GLOBAL)] {
        let site = Site::new();
        let (ours, far) = (site.connected(), site.elsewhere());
        let root = ours.worked("/tree", 5);
        let before = tree(&ours.client, "/tree");
        ours.realms.create_branch(&ours.client.caller(), root, &name("one"), policy).expect("made");
        let realm = ours.realms.open_branch(root, &name("one")).expect("opened");
        realm.client().create_file("/new", &[7; 300_000]).expect("made");
        realm.client().sync().expect("durable");
        assert_eq!(ours.realms.close(), []);
        assert_eq!(tree(&ours.client, "/tree"), before, "it is not merged by itself");
        drop((realm, ours));
        let deleted = far.realms.delete_branch(root, &name("one"), false);
        let ours = site.connected();
        match policy {
            None => {
                assert_eq!(deleted.err().map(|error| error.refusal()), Some(Refusal::Busy), "elsewhere");
                ours.realms.delete_branch(root, &name("one"), false).expect("deleted");
                assert!(ours.realms.left().expect("reported").is_empty());
            }
            Some(_) => assert_eq!(deleted, Ok(()), "from any machine"),
        }
        assert_eq!(ours.realms.branches(None).expect("reported"), []);
        assert_eq!(tree(&ours.client, "/tree"), before);
        // The name is free again.
        ours.branch(root, "one").expect("made").discard().expect("dropped");
    }
}

#[test]
fn a_branch_that_keeps_nothing_is_refused_and_one_beside_a_job_is_not() {
    let site = Site::new();
    let ours = site.connected();
    let root = ours.mkdir("/tree").ino;
    ours.client.create_file("/tree/f", b"before").expect("made");
    for policy in ["durability: none\nconsistency: weak\n", "consistency: strong\n"] {
        let made =
            ours.realms.create_branch(&ours.client.caller(), root, &name("one"), Some(policy.as_bytes()));
        assert_eq!(made.err().map(|error| error.refusal()), Some(Refusal::Invalid), "{policy}");
        assert_eq!(ours.realms.branches(None).expect("reported"), []);
    }
    let branch = ours.branch(root, "one").expect("made");
    let job = ours.decouple(root, crate::site::ON_DISK).expect("beside the branch");
    let late = ours.branch(root, "late").expect("beside the job");
    job.client().write_file("/f", b"job").expect("written");
    branch.client().create_file("/g", b"branch").expect("made");
    merge(&job);
    assert_eq!(branch.client().read_file("/f"), Ok(b"before".to_vec()));
    assert_eq!(late.client().read_file("/f"), Ok(b"before".to_vec()));
    merge(&branch);
    assert_eq!(ours.client.read_file("/tree/f"), Ok(b"job".to_vec()));
    assert_eq!(ours.client.read_file("/tree/g"), Ok(b"branch".to_vec()));
    late.discard().expect("dropped");
}

/// A block whose extents partly remain is counted. The number of extents that the others' version names differs
/// from the number that the branch knows.
#[test]
fn a_branch_removes_a_file_whose_blocks_others_have_dropped() {
    let site = Site::new();
    let (ours, base) = (site.connected(), site.embedded());
    let root = base.mkdir("/tree").ino;
    base.client.create_file("/tree/f", &[1; 300_000]).expect("made");
    let cut = |realm: &Client, path: &str, at: u64| {
        let fh = realm.open_path(path, OpenFlags::READ_WRITE).expect("opened");
        realm.write(&realm.caller(), fh, at, &[2; 9_000]).expect("written");
        realm.release(fh).expect("released");
    };
    cut(&base.client, "/tree/f", 50_000);
    cut(&base.client, "/tree/f", 150_000);
    base.client.sync().expect("there");
    let branch = ours.branch(root, "one").expect("made");
    base.client.write_file("/tree/f", b"").expect("emptied");
    base.client.sync().expect("there");
    let mut expect = vec![1; 300_000];
    [50_000, 150_000].into_iter().for_each(|at| expect[at..at + 9_000].fill(2));
    assert!(branch.client().read_file("/f").expect("read") == expect);
    cut(branch.client(), "/f", 100_000);
    branch.client().remove("/f").expect("removed");
    branch.client().create_file("/after", b"after").expect("made");
    branch.client().sync().expect("it goes on");
    // The server frees the rest of the removed file meanwhile.
    for n in 0..50 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(branch.client().read_file("/after"), Ok(b"after".to_vec()), "look {n}");
    }
    merge(&branch);
    assert_eq!(tree(&base.client, "/tree").into_keys().collect::<Vec<_>>(), ["/after"]);
}
