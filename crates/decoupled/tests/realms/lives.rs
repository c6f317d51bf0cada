//! The life of a decoupling: the rights of other clients, its content, its end.

use chiton_client::OpenFlags;
use chiton_decoupled::{Change, ChangeKind};
use chiton_types::{Mode, Refusal};

use crate::site::{IN_MEMORY, ON_DISK, Site, merge};
use crate::tree::tree;

#[test]
fn a_decoupled_subtree_is_private_until_the_merge() {
    let site = Site::new();
    let (ours, others) = (site.embedded(), site.connected());
    ours.mkdir("/job/in");
    ours.client.create_file("/job/in/old", b"before").expect("made");
    let root = ours.client.stat("/job").expect("there").ino;
    let realm = ours.decouple(root, IN_MEMORY).expect("decoupled");
    assert_eq!(realm.client().read_file("/in/old"), Ok(b"before".to_vec()));
    realm.client().create_file("/in/new", b"after").expect("made");
    realm.client().remove("/in/old").expect("removed");
    assert_eq!(others.client.stat("/job/in/new").map(drop), Err(Refusal::Busy));
    assert_eq!(others.decouple(root, IN_MEMORY).err().map(|e| e.refusal()), Some(Refusal::Busy));

    let new = realm.client().stat("/in/new").expect("there").ino;
    let in_dir = realm.client().stat("/in").expect("there").ino;
    for ino in [root, new, in_dir] {
        assert_eq!(ours.realms.of(ino).map(|realm| realm.id()), Some(realm.id()), "{ino}");
    }
    let outside = ours.mkdir("/other").ino;
    assert!(ours.realms.of(outside).is_none() && ours.realms.of(chiton_types::Ino::ROOT).is_none());
    assert!(others.realms.of(new).is_none());

    merge(&realm);
    assert_eq!(others.client.read_file("/job/in/new"), Ok(b"after".to_vec()));
    assert_eq!(others.client.stat("/job/in/old").map(drop), Err(Refusal::NotFound));
    assert!(ours.realms.list().is_empty() && ours.realms.of(new).is_none());
    assert!(realm.sync(&|_| {}).is_err(), "it is over");
}

#[test]
fn inodes_of_a_realm_are_known_by_number_after_further_grants() {
    let site = Site::new();
    let ours = site.embedded();
    ours.mkdir("/job");
    ours.client.create_file("/job/old", b"").expect("made");
    let root = ours.client.stat("/job").expect("there").ino;
    let realm = ours.decouple(root, &format!("{IN_MEMORY}allocated_inodes: 10\n")).expect("decoupled");
    for n in 0..500 {
        realm.client().create_file(format!("/f{n}"), b"").expect("made");
        let ino = realm.client().stat(format!("/f{n}")).expect("there").ino;
        assert!(realm.holds_number(ino), "file {n}");
    }
    assert!(realm.holds_number(root));
    let old = realm.client().stat("/old").expect("there").ino;
    assert!(!realm.holds_number(old) && realm.holds(old), "it was there before");
    let outside = ours.mkdir("/other").ino;
    assert!(!realm.holds_number(outside) && !realm.holds(outside));
}

#[test]
fn dropped_changes_leave_no_trace() {
    let site = Site::new();
    let ours = site.embedded();
    ours.mkdir("/job");
    ours.client.create_file("/job/old", b"before").expect("made");
    let before = tree(&ours.client, "/job");
    let root = ours.client.stat("/job").expect("there").ino;
    for policy in [IN_MEMORY, ON_DISK] {
        let realm = ours.decouple(root, policy).expect("decoupled");
        realm.client().write_file("/old", b"changed").expect("written");
        realm.client().create_file("/new", &[7; 200_000]).expect("made");
        realm.discard().expect("dropped");
        assert_eq!(tree(&ours.client, "/job"), before);
    }
    assert!(ours.realms.recover().is_empty(), "something stays of it");
}

#[test]
fn closing_merges_weak_realms_and_keeps_invisible_ones() {
    let site = Site::new();
    let ours = site.embedded();
    let weak = ours.take("/weak", IN_MEMORY);
    weak.client().create_file("/f", b"weak").expect("made");
    let kept = ours.take("/kept", "consistency: invisible\ndurability: local\n");
    kept.client().create_file("/f", b"kept").expect("made");
    let lost = ours.take("/lost", "consistency: invisible\ndurability: none\n");
    lost.client().create_file("/f", b"lost").expect("made");
    assert_eq!(ours.realms.close(), []);
    drop((weak, kept, lost));
    assert_eq!(ours.client.read_file("/weak/f"), Ok(b"weak".to_vec()));
    assert_eq!(ours.client.stat("/kept/f").map(drop), Err(Refusal::NotFound));
    assert_eq!(ours.client.stat("/lost/f").map(drop), Err(Refusal::NotFound));
    let later = site.embedded();
    let kept = later.recover();
    assert_eq!(kept.client().read_file("/f"), Ok(b"kept".to_vec()));
    merge(&kept);
    assert_eq!(later.client.read_file("/kept/f"), Ok(b"kept".to_vec()));
}

#[test]
fn a_diff_names_own_changes_and_those_of_others() {
    let site = Site::new();
    let (ours, others) = (site.embedded(), site.embedded());
    ours.mkdir("/job/dir/sub");
    for name in ["gone", "kept", "moved", "written", "both"] {
        ours.client.create_file(format!("/job/{name}"), b"before").expect("made");
    }
    let root = ours.client.stat("/job").expect("there").ino;
    let realm = ours.decouple(root, "consistency: weak\ndurability: none\n").expect("decoupled");
    let client = realm.client();
    client.remove("/gone").expect("removed");
    client.rename_path("/moved", "/dir/there").expect("moved");
    client.write_file("/written", b"after").expect("written");
    client.write_file("/both", b"ours").expect("written");
    client.create_file("/dir/sub/new", b"").expect("made");
    client.create_file("/dir/fleeting", b"").expect("made");
    client.remove("/dir/fleeting").expect("removed");
    client.rename_path("/dir/sub", "/dir/below").expect("moved");
    others.client.write_file("/job/both", b"theirs").expect("written");
    others.client.sync().expect("there");
    let diff = realm.diff().expect("reported");
    let found: Vec<(&str, ChangeKind, Option<&str>)> =
        diff.changes.iter().map(|c| (&c.path[..], c.kind, c.from.as_deref())).collect();
    assert_eq!(
        found,
        [
            ("both", ChangeKind::Written, None),
            ("dir/below", ChangeKind::Renamed, Some("dir/sub")),
            ("dir/below/new", ChangeKind::Created, None),
            ("dir/there", ChangeKind::Renamed, Some("moved")),
            ("gone", ChangeKind::Removed, None),
            ("written", ChangeKind::Written, None),
        ]
    );
    let conflicts: Vec<&str> = diff.conflicts.iter().map(|line| &line.path[..]).collect();
    assert_eq!(conflicts, ["both"]);
    let is_moved = |change: &Change| change.from.as_deref() == Some("moved") && change.path == "dir/there";
    assert!(diff.changes.iter().any(is_moved), "{diff:?}");
    let report = realm.merge(&|_| {}).expect("merged");
    assert_eq!(report.conflict_count, 1, "{report:?}");
}

/// Both sides made a directory of the same name: the merge compares the entries, and the directories become one.
#[test]
fn directories_of_one_name_become_one() {
    for on_conflict in ["abort", "overwrite"] {
        let site = Site::new();
        let (ours, others) = (site.embedded(), site.connected());
        let policy = format!("consistency: weak\ndurability: none\non_conflict: {on_conflict}\n");
        let realm = ours.take("/job", &policy);
        realm.client().mkdir_all("/out/deep").expect("made");
        realm.client().create_file("/out/deep/ours", b"ours").expect("made");
        others.client.mkdir_all("/job/out/deep").expect("made");
        others.client.create_file("/job/out/deep/theirs", b"theirs").expect("made");
        assert_eq!(realm.diff().expect("reported").conflicts, []);
        let report = realm.sync(&|_| {}).expect("merged so far");
        assert!(!report.stopped && report.conflict_count == 0, "{report:?}");

        realm.client().mkdir_all("/out/more").expect("made");
        realm.client().create_file("/out/more/both", b"ours").expect("made");
        others.client.mkdir_all("/job/out/more").expect("made");
        others.client.create_file("/job/out/more/both", b"theirs").expect("made");
        let found = realm.diff().expect("reported").conflicts;
        let found: Vec<_> = found.iter().map(|line| &line.path[..]).collect();
        assert_eq!(found, ["out/more/both"]);
        let report = realm.merge(&|_| {}).expect("merged");
        assert_eq!((report.stopped, report.conflict_count), (on_conflict == "abort", 1), "{report:?}");
        let expected: &[u8] = if report.stopped { b"theirs" } else { b"ours" };
        assert_eq!(others.client.read_file("/job/out/more/both"), Ok(expected.to_vec()));
        assert_eq!(others.client.read_file("/job/out/deep/ours"), Ok(b"ours".to_vec()));
        assert_eq!(others.client.read_file("/job/out/deep/theirs"), Ok(b"theirs".to_vec()));
    }
}

type Act = fn(&chiton_client::Client);

/// A diff before the merge shows the conflicts that the merge meets. Where the policy forbids conflicts, nothing is
/// merged.
#[test]
fn conflicts_are_found_before_anything_is_merged() {
    fn replace(client: &chiton_client::Client, path: &str) {
        client.write_file(path, b"changed").expect("written");
    }
    fn make(client: &chiton_client::Client, path: &str) {
        client.create_file(path, b"made").expect("made");
    }
    fn to(client: &chiton_client::Client, from: &str, to: &str) {
        client.rename_path(from, to).expect("moved");
    }
    // Paths of the others begin at /job.
    let cases: [(&str, Act, Act, bool); 14] = [
        (
            "deep in directories that both made",
            |ours| {
                ours.mkdir_all("/n/m/o").expect("made");
                ours.create_file("/n/m/o/x", b"ours").expect("made");
            },
            |others| {
                others.mkdir_all("/job/n/m/o").expect("made");
                others.create_file("/job/n/m/o/x", b"theirs").expect("made");
            },
            true,
        ),
        ("both moved a file", |ours| to(ours, "/f", "/f1"), |others| to(others, "/job/f", "/job/f2"), true),
        (
            "both moved a directory",
            |ours| to(ours, "/a", "/b/a"),
            |others| to(others, "/job/a", "/job/c/a"),
            true,
        ),
        (
            "a new entry where ours removed",
            |ours| ["/a/in", "/a"].into_iter().for_each(|path| ours.remove(path).expect("removed")),
            |others| make(others, "/job/a/new"),
            true,
        ),
        (
            "moved to where ours removed",
            |ours| ["/a/in", "/a"].into_iter().for_each(|path| ours.remove(path).expect("removed")),
            |others| to(others, "/job/f", "/job/a/f"),
            true,
        ),
        (
            "a circle of three",
            |ours| {
                to(ours, "/a", "/b/a");
                to(ours, "/c", "/b/a/c");
            },
            |others| to(others, "/job/b", "/job/c/b"),
            true,
        ),
        (
            "moved and removed",
            |ours| to(ours, "/f", "/f1"),
            |others| others.remove("/job/f").expect("removed"),
            true,
        ),
        (
            "both removed a file",
            |ours| ours.remove("/f").expect("removed"),
            |others| others.remove("/job/f").expect("removed"),
            false,
        ),
        (
            "both removed a directory",
            |ours| ["/a/in", "/a"].into_iter().for_each(|path| ours.remove(path).expect("removed")),
            |others| {
                ["/job/a/in", "/job/a"].into_iter().for_each(|path| others.remove(path).expect("removed"))
            },
            false,
        ),
        (
            "removed and moved",
            |ours| ours.remove("/f").expect("removed"),
            |others| to(others, "/job/f", "/job/b/f"),
            true,
        ),
        (
            "removed and replaced",
            |ours| ours.remove("/f").expect("removed"),
            |others| {
                others.remove("/job/f").expect("removed");
                others.create_file("/job/f", b"theirs").expect("made");
            },
            true,
        ),
        ("moved and changed", |ours| to(ours, "/f", "/f1"), |others| replace(others, "/job/f"), false),
        (
            "moved directory, new entry",
            |ours| to(ours, "/a", "/b/a"),
            |others| make(others, "/job/a/new"),
            false,
        ),
        (
            "what moved away before its directory went",
            |ours| {
                to(ours, "/a/in", "/in");
                ours.remove("/a").expect("removed");
            },
            |others| replace(others, "/job/f"),
            false,
        ),
    ];
    for (what, ours_does, others_do, contradicts) in cases {
        let site = Site::new();
        let (ours, others) = (site.embedded(), site.connected());
        for dir in ["a", "b", "c"] {
            ours.mkdir(&format!("/job/{dir}"));
            ours.client.create_file(format!("/job/{dir}/in"), b"before").expect("made");
        }
        ours.client.create_file("/job/f", b"before").expect("made");
        let root = ours.client.stat("/job").expect("there").ino;
        let policy = "consistency: weak\ndurability: none\non_conflict: abort\n";
        let realm = ours.decouple(root, policy).expect("decoupled");
        realm.client().create_file("/first", b"ours").expect("made");
        ours_does(realm.client());
        others_do(&others.client);
        others.client.sync().expect("there");
        let diff = realm.diff().expect("reported");
        assert_eq!(!diff.conflicts.is_empty(), contradicts, "{what}: {diff:?}");
        let report = realm.merge(&|_| {}).expect("an answer");
        assert_eq!(report.stopped, contradicts, "{what}: {report:?}");
        let first = others.client.stat("/job/first");
        assert_eq!(first.is_err(), contradicts, "{what}: all is merged, or nothing");
    }
}

/// A decoupling that was ended elsewhere leaves only its journal here, and that can be dropped.
#[test]
fn a_decoupling_that_was_ended_elsewhere_is_not_resumed() {
    let site = Site::new();
    let first = site.connected();
    let in_store = first.take("/store", crate::site::IN_STORE);
    let on_disk = first.take("/disk", crate::site::ON_DISK);
    for realm in [&in_store, &on_disk] {
        realm.client().create_file("/f", b"durable").expect("made");
        realm.client().sync().expect("durable");
        realm.abandon();
    }
    let elsewhere = site.elsewhere();
    merge(&elsewhere.realms.adopt(in_store.id()).expect("gone on with"));
    site.end_by_force(on_disk.id());
    let again = site.connected();
    assert_eq!(again.realms.left().expect("reported").len(), 2);
    let recovered = again.realms.recover();
    assert!(matches!(&recovered[..], [Err(_)]), "the journal on the disk is kept, and reported");
    let left = again.realms.left().expect("reported");
    assert_eq!(left.iter().map(|left| left.local.realm).collect::<Vec<_>>(), [on_disk.id().0]);
    let going_on = again.take("/more", crate::site::ON_DISK);
    assert_eq!(again.realms.drop_over().expect("dropped"), [on_disk.id()]);
    let left = again.realms.left().expect("reported");
    assert_eq!(left.iter().map(|left| left.local.realm).collect::<Vec<_>>(), [going_on.id().0]);
    merge(&going_on);
}

/// Objects of another client's journal are removed when its decoupling is ended by force.
#[test]
fn objects_of_a_decoupling_that_was_ended_by_force_do_not_stay() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", crate::site::IN_STORE);
    realm.client().create_file("/f", &[1; 100_000]).expect("made");
    realm.client().sync().expect("durable");
    let objects = site.objects_of_realms();
    assert!(objects() > 0, "the journal is there");
    realm.abandon();
    let all = ours.realms.list();
    assert!(all.is_empty());
    site.end_by_force(realm.id());
    let begun = std::time::Duration::from_secs(60);
    let world = chiton_runtime::RealWorld;
    let start = chiton_runtime::World::monotonic(&world);
    while objects() > 0 {
        assert!(chiton_runtime::World::monotonic(&world) - start < begun, "{} objects stay", objects());
        std::thread::sleep(std::time::Duration::from_millis(20));
        site.server().checkpoint().expect("a checkpoint");
    }
}

/// A program writes under a temporary name and moves the file to its place, while others have a file of that name.
#[test]
fn a_name_that_is_given_up_before_the_merge_takes_nothing_from_others() {
    let site = Site::new();
    let (ours, others) = (site.embedded(), site.connected());
    let root = ours.mkdir("/job").ino;
    let realm = ours.decouple(root, &IN_MEMORY.replace("block", "allow")).expect("decoupled");
    let client = realm.client();
    client.create_file("/tmp", b"ours").expect("made");
    client.rename_path("/tmp", "/done").expect("moved");
    client.mkdir_all("/dir").expect("made");
    client.create_file("/dir/ours", b"ours").expect("made");
    client.rename_path("/dir", "/moved").expect("moved");
    others.client.create_file("/job/tmp", b"theirs").expect("made");
    others.client.mkdir_all("/job/dir").expect("made");
    others.client.create_file("/job/dir/theirs", b"theirs").expect("made");
    assert!(realm.diff().expect("compared").conflicts.is_empty());
    let report = realm.merge(&|_| {}).expect("merged");
    assert_eq!((report.ended, report.conflict_count), (true, 0), "{report:?}");
    let read = |path: &str| others.client.read_file(path);
    for (path, content) in [
        ("/job/tmp", "theirs"),
        ("/job/done", "ours"),
        ("/job/dir/theirs", "theirs"),
        ("/job/moved/ours", "ours"),
    ] {
        assert_eq!(read(path), Ok(content.as_bytes().to_vec()), "{path}");
    }
    assert_eq!(others.client.list("/job").expect("listed").len(), 4);
}

/// S97: a decoupling elsewhere does not matter to files without names.
#[test]
fn files_without_names_are_made_beside_a_decoupling() {
    let site = Site::new();
    let ours = site.connected();
    for dir in ["/x", "/y"] {
        ours.mkdir(dir);
    }
    let root = ours.client.stat("/x").expect("there").ino;
    let _realm = ours.decouple(root, IN_MEMORY).expect("decoupled");
    let (client, caller) = (&ours.client, ours.client.caller());
    for (dir, name) in [("/", b"f"), ("/y", b"g")] {
        let parent = client.stat(dir).expect("there").ino;
        let (entry, file) =
            client.create_unnamed(&caller, parent, Mode(0o600), OpenFlags::READ_WRITE).expect("made");
        client.link_unnamed(&caller, entry.attr.ino, parent, name).expect("it gets a name");
        client.release(file).expect("closed");
        assert_eq!(client.getattr(entry.attr.ino, None).expect("there").attr.nlink, 1);
    }
}
