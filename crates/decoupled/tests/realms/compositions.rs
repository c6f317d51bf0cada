//! Compositions of unmerged journals: they show what the merges would make, and change nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_admin::View;
use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Composed, Composition, JournalConflict, Realm, RealmError, Step, Unmerged};
use chiton_journal::{MemoryPlace, Shape};
use chiton_model::RenameHow;
use chiton_runtime::RealWorld;
use chiton_server::{Role, Server, ServerOptions};
use chiton_types::{Ino, Name};

use crate::site::{IN_MEMORY, IN_STORE, ON_DISK, Party, Site};
use crate::tree::tree;
use crate::work::Work;

/// A composition over the server's present rows.
fn begin(site: &Site) -> (Composition, Arc<Client>) {
    let client = chiton_embedded::client(&site.server(), ClientOptions::default()).expect("a session");
    let client = Arc::new(client);
    let rows = Arc::new(View::open(&client).expect("a view"));
    let info = site.server().filesystem().clone();
    let preview =
        Server::start_as(Role::Preview { info, rows }, ServerOptions::default(), Arc::new(RealWorld))
            .expect("a preview");
    (Composition::begin(preview, client.blocks().clone()).expect("begun"), client)
}

fn journal(realm: &Realm) -> Unmerged {
    let name = realm
        .branch()
        .map_or_else(|| realm.id().to_string(), |name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    Unmerged { realm: realm.id(), name, at: "a test".to_owned(), place: realm.journal_place(), durable: None }
}

/// The composition of these realms, one after the other.
fn compose(site: &Site, realms: &[&Realm]) -> Composed {
    for realm in realms {
        realm.client().sync().expect("written out");
    }
    let (mut composition, _client) = begin(site);
    for realm in realms {
        composition.merge_journal(&journal(realm)).expect("merged");
    }
    composition.finish().expect("composed")
}

fn branch(party: &Party, root: Ino, of: &str, policy: Option<&[u8]>) -> Arc<Realm> {
    let of = Name::new(of.as_bytes()).expect("a name");
    party.realms.create_branch(&party.client.caller(), root, &of, policy).expect("made");
    party.realms.open_branch(root, &of).expect("opened")
}

/// Where each path below a directory comes from.
fn origins(composed: &Composed, top: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    composed
        .walk(top.as_bytes(), &mut |step| {
            if let Step::Entry(node) = step {
                let from = node.journal.unwrap_or("global").to_owned();
                found.insert(String::from_utf8_lossy(node.path).into_owned(), from);
            }
            Ok(())
        })
        .expect("walked");
    found
}

fn short(conflicts: &[JournalConflict]) -> Vec<String> {
    let line = |one: &JournalConflict| {
        let against = one.against.as_deref().unwrap_or("global");
        let path = String::from_utf8_lossy(&one.path).into_owned();
        format!("{path}: {} {}, {} {}", against, one.line.theirs, one.journal, one.line.ours)
    };
    conflicts.iter().map(line).collect()
}

/// S73: "It works by the same rules, with the same conflicts …"
#[test]
fn a_composition_shows_the_merges_and_changes_nothing() {
    const GLOBAL: &[u8] = b"consistency: invisible\ndurability: global\n";
    for seed in 0..6 {
        let site = Site::new();
        let (ours, theirs, base) = (site.connected(), site.elsewhere(), site.embedded());
        let root = base.mkdir("/tree").ino;
        let mut work = [0, 1, 2].map(|n| Work::new(100 * seed + n));
        for _ in 0..100 {
            work[0].step(&base.client, "/tree");
        }
        base.client.sync().expect("there");
        let one = branch(&ours, root, "one", None);
        let two = branch(&theirs, root, "two", Some(GLOBAL));
        for _ in 0..100 {
            work[0].step(&base.client, "/tree");
            work[1].step(one.client(), "");
            work[2].step(two.client(), "");
        }
        base.client.sync().expect("there");
        let before = (tree(&base.client, "/tree"), tree(one.client(), "/"), tree(two.client(), "/"));
        let composed = compose(&site, &[&one, &two]);
        let shown = tree(composed.client(), "/tree");
        assert_eq!(composed.lost(), []);
        let after = (tree(&base.client, "/tree"), tree(one.client(), "/"), tree(two.client(), "/"));
        assert!(before == after, "seed {seed}: something changed");

        let overwrite = Some(chiton_policy::OnConflict::Overwrite);
        let reports = [&one, &two].map(|realm| realm.merge_with(overwrite, &|_| {}).expect("merged"));
        assert_eq!(shown, tree(&base.client, "/tree"), "seed {seed}");
        let met: Vec<_> = reports.iter().flat_map(|report| report.conflicts.iter().cloned()).collect();
        let reported: Vec<_> = composed.conflicts().iter().map(|one| one.line.clone()).collect();
        // A view does not compare contents, so it also names equal changes of both sides.
        let mut rest = reported.iter();
        assert!(
            met.iter().all(|line| rest.any(|other| other == line)),
            "seed {seed}: {met:?} of {reported:?}"
        );
        assert!(!met.is_empty(), "seed {seed}");
    }
}

/// Wherever the journal is, and however much of it is merged already.
#[test]
fn a_view_shows_unmerged_changes_of_a_running_job() {
    for policy in [IN_MEMORY, ON_DISK, IN_STORE] {
        let site = Site::new();
        let (ours, base) = (site.connected(), site.embedded());
        let realm = ours.take("/job", policy);
        realm.client().create_file("/merged", b"merged").expect("made");
        realm.sync(&|_| {}).expect("merged");
        realm.client().create_file("/small", b"inline").expect("made");
        realm.client().create_file("/large", &[7; 300_000]).expect("made");
        realm.client().mkdir_all("/dir/deep").expect("made");
        base.client.create_file("/beside", b"").expect("made");
        let composed = compose(&site, &[&realm]);
        assert_eq!(tree(composed.client(), "/job"), tree(realm.client(), "/"), "{policy}");
        let name = realm.id().to_string();
        let from = |path: &str| origins(&composed, "/")[path].clone();
        assert_eq!(from("job/merged"), "global");
        assert_eq!(from("beside"), "global");
        for path in ["job/small", "job/large", "job/dir", "job/dir/deep"] {
            assert_eq!(from(path), name, "{path}");
        }
        assert_eq!(short(composed.conflicts()), [""; 0]);
        // The job continues, and a second view shows more.
        realm.client().remove("/small").expect("removed");
        let composed = compose(&site, &[&realm]);
        assert!(!origins(&composed, "/job").contains_key("small"));
        let report = realm.merge(&|_| {}).expect("merged");
        assert!(report.ended && report.conflict_count == 0 && report.lost_count == 0, "{report:?}");
    }
}

/// Each of two branches conflicts in one way with the other, or with a change in the directory itself.
#[test]
fn every_conflict_names_both_sides_and_the_later_journal_prevails() {
    let site = Site::new();
    let (ours, base) = (site.connected(), site.embedded());
    let root = base.mkdir("/tree").ino;
    let at = |path: &str| format!("/tree/{path}");
    for file in ["edited", "edited globally", "deleted first", "deleted then", "moved", "linked", "large"] {
        let content = if file == "large" { vec![1; 300_000] } else { b"before".to_vec() };
        base.client.create_file(at(file), &content).expect("made");
    }
    base.mkdir("/tree/dir");
    base.client.sync().expect("there");
    // Create both branches before either has numbers for new inodes, so that each one's inodes are new to the
    // other.
    let names = ["one", "two"].map(|of| Name::new(of.as_bytes()).expect("a name"));
    for of in &names {
        ours.realms.create_branch(&ours.client.caller(), root, of, None).expect("made");
    }
    let [one, two] = names.map(|of| ours.realms.open_branch(root, &of).expect("opened"));
    let (first, second) = (one.client(), two.client());
    let link = |client: &Client, name: &str| {
        let file = client.stat("/linked").expect("there").ino;
        client.link(&client.caller(), file, client.root(), name.as_bytes()).expect("linked");
    };
    // Create and create; a directory and a directory, which become one.
    first.create_file("/both", b"one").expect("made");
    second.create_file("/both", b"two").expect("made");
    first.mkdir_all("/new dir").expect("made");
    first.create_file("/new dir/of one", b"").expect("made");
    second.mkdir_all("/new dir").expect("made");
    second.create_file("/new dir/of two", b"").expect("made");
    // Edit and edit, inline and in blocks; edit and delete, both ways.
    for (client, content) in [(first, &b"one"[..]), (second, b"two")] {
        client.write_file("/edited", content).expect("written");
        client.write_file("/large", &content.repeat(100_000)).expect("written");
    }
    second.write_file("/edited globally", b"two").expect("written");
    base.client.write_file(at("edited globally"), b"global").expect("written");
    first.remove("/deleted first").expect("removed");
    second.write_file("/deleted first", b"two").expect("written");
    first.write_file("/deleted then", b"one").expect("written");
    second.remove("/deleted then").expect("removed");
    // Moved both, to different places; linked twice, which contradicts nothing.
    first.rename_path("/moved", "/moved by one").expect("moved");
    second.rename_path("/moved", "/moved by two").expect("moved");
    link(first, "link of one");
    link(second, "link of two");
    // A directory is removed into which the other puts something.
    first.create_file("/dir/filled", b"one").expect("made");
    second.remove("/dir").expect("removed");
    base.client.sync().expect("there");

    let composed = compose(&site, &[&one, &two]);
    let mut reported = short(composed.conflicts());
    reported.sort();
    let expect = [
        "/tree/both: one new file, two new file",
        "/tree/deleted first: one removed, two changed",
        "/tree/deleted then: one changed, two removed",
        "/tree/dir: one got new entries, two removed",
        "/tree/edited globally: global changed, two changed",
        "/tree/edited: one changed, two changed",
        "/tree/large: one changed, two changed",
        "/tree/moved by two: one moved, two moved",
    ];
    assert_eq!(reported, expect);
    let read = |path: &str| composed.client().read_file(at(path)).expect("there");
    for path in ["both", "edited", "edited globally", "deleted first"] {
        assert_eq!(read(path), b"two", "{path}");
    }
    assert_eq!(read("large"), b"two".repeat(100_000));
    let from = origins(&composed, "/tree");
    let expect = [
        ("both", "two"),
        ("deleted first", "two"),
        ("dir", "global"),
        ("dir/filled", "one"),
        ("edited", "two"),
        ("edited globally", "two"),
        ("large", "two"),
        ("link of one", "one"),
        ("link of two", "two"),
        ("linked", "global"),
        ("moved by two", "two"),
        ("new dir", "one"),
        ("new dir/of one", "one"),
        ("new dir/of two", "two"),
    ];
    let expect: BTreeMap<String, String> =
        expect.iter().map(|(path, from)| ((*path).to_owned(), (*from).to_owned())).collect();
    assert_eq!(from, expect);
    let linked = composed.client().stat(at("linked")).expect("there");
    assert_eq!((linked.nlink, linked.ino), (3, base.client.stat(at("linked")).expect("there").ino));

    // In the other order the other prevails.
    let composed = compose(&site, &[&two, &one]);
    assert_eq!(composed.client().read_file(at("both")), Ok(b"one".to_vec()));
    assert!(short(composed.conflicts()).contains(&"/tree/both: two new file, one new file".to_owned()));
    // One branch alone conflicts only with changes in the directory itself.
    assert_eq!(
        short(compose(&site, &[&two]).conflicts()),
        ["/tree/edited globally: global changed, two changed"]
    );
    assert_eq!(base.client.read_file(at("edited")), Ok(b"before".to_vec()));
}

/// Two branches that exchange names, and others without a conflict: the view reports no conflict.
#[test]
fn journals_that_do_not_meet_do_not_contradict() {
    let site = Site::new();
    let (ours, base) = (site.connected(), site.embedded());
    let root = base.mkdir("/tree").ino;
    for file in ["a", "b", "c"] {
        base.client.create_file(format!("/tree/{file}"), file.as_bytes()).expect("made");
    }
    base.client.sync().expect("there");
    let (one, two) = (branch(&ours, root, "one", None), branch(&ours, root, "two", None));
    let (caller, top) = (one.client().caller(), one.client().root());
    one.client().rename(&caller, top, b"a", top, b"b", RenameHow::Exchange).expect("exchanged");
    two.client().write_file("/c", b"two").expect("written");
    two.client().mkdir_all("/two").expect("made");
    let composed = compose(&site, &[&one, &two]);
    assert_eq!(short(composed.conflicts()), [""; 0]);
    let read = |path: &str| composed.client().read_file(format!("/tree/{path}")).expect("there");
    assert_eq!([read("a"), read("b"), read("c")], [b"b".to_vec(), b"a".to_vec(), b"two".to_vec()]);
    let from = origins(&composed, "/tree");
    assert_eq!(from.values().map(String::as_str).collect::<Vec<_>>(), ["one", "one", "two", "two"]);
}

/// The view leaves out events that its rows cannot cover yet: it shows a prefix, and reports nothing as lost.
#[test]
fn a_journal_that_went_on_after_the_rows_were_taken_is_merged_up_to_them() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", "consistency: weak\ndurability: local\nallocated_inodes: 100\n");
    let make = |from: usize, to: usize| {
        for n in from..to {
            realm.client().create_file(format!("/f{n:05}"), b"").expect("made");
        }
        realm.client().sync().expect("durable");
    };
    make(0, 20);
    let (mut composition, _client) = begin(&site);
    // More than there were numbers for.
    make(20, 2_000);
    composition.merge_journal(&journal(&realm)).expect("merged");
    let composed = composition.finish().expect("composed");
    assert_eq!((composed.lost_count(), composed.conflict_count()), (0, 0));
    let names: Vec<String> = origins(&composed, "/job").into_keys().collect();
    assert!((20..2_000).contains(&names.len()), "{}", names.len());
    assert_eq!(names, (0..names.len()).map(|n| format!("f{n:05}")).collect::<Vec<_>>());
}

#[test]
fn a_journal_that_cannot_be_read_is_named() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", ON_DISK);
    realm.client().create_file("/f", b"").expect("made");
    realm.sync(&|_| {}).expect("merged");
    let merge = |unmerged: &Unmerged| -> Result<(), RealmError> { begin(&site).0.merge_journal(unmerged) };
    let empty = Arc::new(MemoryPlace::new(Shape::Grows));
    let error = merge(&Unmerged { place: empty, ..journal(&realm) }).expect_err("it is gone");
    let said = error.to_string();
    assert!(
        said.contains(&format!("journal {} (a test)", realm.id())) && said.contains("no journal"),
        "{said}"
    );
    let left = journal(&realm);
    realm.discard().expect("dropped");
    let error = merge(&left).expect_err("it is over");
    assert_eq!(error.exit_code(), 3, "{error}");
    assert!(error.to_string().contains("merged or dropped"), "{error}");
}
