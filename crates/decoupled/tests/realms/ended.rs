//! Bad ends: journals that were cut off, decouplings that were taken from their client.

use std::fs;
use std::path::Path;
use std::time::Duration;

use chiton_client::{Client, ClientOptions, ask};
use chiton_decoupled::{Choice, Realms, RealmsOptions};
use chiton_types::{Name, RealmId, Refusal};
use chiton_wire::{Answer, Call, RealmAnswer, RealmCall};

use crate::site::{IN_STORE, ON_DISK, Party, Site, merge};

const MINUTE: u32 = 3_000;

/// Waits up to a minute for a condition.
fn until(what: &str, mut cond: impl FnMut() -> bool) {
    for _ in 0..MINUTE {
        if cond() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not within a minute: {what}");
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Takes the last bytes of a journal away.
fn cut_off(dir: &Path, bytes: u64) {
    let mut segments: Vec<_> = fs::read_dir(dir.join("journal"))
        .expect("there")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    segments.sort();
    let last = segments.last().expect("a segment");
    let file = fs::File::options().write(true).open(last).expect("opens");
    file.set_len(file.metadata().expect("a length").len() - bytes).expect("cut off");
}

/// The same state directory, and missing events are accepted.
fn accepting(site: &Site, state_dir: &Path) -> Party {
    let client =
        std::sync::Arc::new(Client::connect(&site.address(), ClientOptions::default()).expect("connected"));
    let options = RealmsOptions {
        state_dir: state_dir.to_owned(),
        client: ClientOptions::default(),
        accept_truncated: true,
    };
    Party { realms: Realms::new(client.clone(), options), client }
}

fn become_branch(site: &Site, realm: RealmId) {
    let client = chiton_embedded::client(&site.server(), ClientOptions::default()).expect("a session");
    let call = Call::Realm(Box::new(RealmCall::BecomeBranch { realm, name: None }));
    let ended = ask(&**client.service(), &client.caller(), call).expect("ended");
    assert_eq!(ended, Answer::Realm(RealmAnswer::Ended));
}

#[test]
fn a_truncated_journal_is_resumed_only_if_accepted() {
    let site = Site::new();
    let first = site.connected();
    let realm = first.take("/job", ON_DISK);
    for n in 0..20 {
        realm.client().create_file(format!("/f{n}"), b"durable").expect("made");
        realm.client().sync().expect("durable");
    }
    let durable = realm.status().durable;
    realm.abandon();
    let dir = first.realms.left().expect("reported")[0].local.dir.clone();
    cut_off(&dir, 30);

    let again = site.connected();
    let refused = again.realms.recover();
    let [Err(error)] = &refused[..] else { panic!("{} were resumed", refused.len()) };
    let said = error.to_string();
    assert!(said.contains("--accept-truncated") && said.contains(&format!("of {durable} events")), "{said}");
    assert_ne!(error.exit_code(), 0);
    assert_eq!(again.client.list("/job").map(drop), Err(Refusal::Busy), "nothing was merged, nor given back");

    let accepting = accepting(&site, dir.parent().expect("the state directory"));
    let report = merge(&accepting.recover());
    assert!(report.missing >= 1, "{report:?}");
    let names = accepting.client.list("/job").expect("everybody's").len();
    assert!((1..20).contains(&names), "{names} files");
}

#[test]
fn a_journal_in_the_object_store_that_lost_its_end_is_noticed_on_another_machine() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", IN_STORE);
    for n in 0..20 {
        realm.client().create_file(format!("/f{n}"), b"durable").expect("made");
        realm.client().sync().expect("durable");
    }
    let (id, durable, objects) = (realm.id(), realm.status().durable, site.server().objects());
    let of = |kind: &str| {
        let listed = objects.list(&format!("decoupled/{id}/{kind}/"), None, 1_000).expect("listed");
        listed.into_iter().map(|object| object.key).collect::<Vec<_>>()
    };
    // The new mark is put before the old one is deleted.
    let mark = format!("decoupled/{id}/durable/{durable:016x}");
    until("only the last mark exists", || of("durable") == [mark.clone()]);
    realm.abandon();
    objects.delete(of("journal").last().expect("a segment")).expect("lost");

    let said = site.elsewhere().realms.adopt(id).map(|_| ()).expect_err("it says so").to_string();
    assert!(said.contains("--accept-truncated") && said.contains(&format!("of {durable} events")), "{said}");
    let state = tempfile::tempdir().expect("a directory");
    let adopt = || accepting(&site, state.path()).realms.adopt(id).expect("accepted");
    // A truncation that was accepted once needs no second acceptance.
    adopt().abandon();
    assert_eq!(of("durable").len(), 1);
    let later = site.elsewhere();
    let again = later.realms.adopt(id).expect("adopted");
    merge(&again);
    assert!((1..20).contains(&later.client.list("/job").expect("everybody's").len()));
}

#[test]
fn a_journal_that_is_cut_off_under_its_client_is_not_merged_in_silence() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", ON_DISK);
    for n in 0..20 {
        realm.client().create_file(format!("/f{n}"), b"durable").expect("made");
        realm.client().sync().expect("durable");
    }
    let dir = ours.realms.left().expect("reported")[0].local.dir.clone();
    cut_off(&dir, 30);
    let results = [realm.merge(&|_| {}).map(drop), realm.sync(&|_| {}).map(drop), realm.diff().map(drop)];
    for result in results {
        let said = result.expect_err("it says so").to_string();
        assert!(said.contains("--accept-truncated"), "{said}");
    }
    assert!(!realm.is_ended());
    realm.accept_truncated();
    let report = merge(&realm);
    assert!(report.missing >= 1, "{report:?}");
}

#[test]
fn a_torn_unacknowledged_commit_is_no_loss() {
    let site = Site::new();
    let first = site.connected();
    let realm = first.take("/job", ON_DISK);
    realm.client().create_file("/f", b"durable").expect("made");
    realm.client().sync().expect("durable");
    realm.abandon();
    let dir = first.realms.left().expect("reported")[0].local.dir.clone();
    let segment =
        fs::read_dir(dir.join("journal")).expect("there").next().expect("one").expect("an entry").path();
    let mut bytes = fs::read(&segment).expect("read");
    bytes.extend_from_slice(&[90, 0, 0, 0, 1, 2, 3, 4, 5]);
    fs::write(&segment, bytes).expect("a commit that a crash tore");
    assert_eq!(merge(&site.connected().recover()).missing, 0);
}

#[test]
fn a_client_hears_that_its_decoupling_was_ended_and_its_journal_becomes_a_branch() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.embedded());
    ours.mkdir("/job");
    ours.client.create_file("/job/old", b"before").expect("made");
    let root = ours.client.stat("/job").expect("there").ino;
    let realm = ours.decouple(root, ON_DISK).expect("decoupled");
    let large = vec![7; 100_000];
    realm.client().create_file("/large", &large).expect("made");
    realm.client().write_file("/old", b"after").expect("written");
    realm.client().sync().expect("durable");

    become_branch(&site, realm.id());
    // Other clients can use the directory at once.
    others.client.create_file("/job/theirs", b"theirs").expect("made");
    others.client.write_file("/job/old", b"their after").expect("written");
    until("the client hears of it", || realm.is_lost());
    assert!(!realm.is_settled(), "its journal waits");
    let said = realm.merge(&|_| {}).expect_err("it is lost").to_string();
    assert!(said.contains("recover --as-branch"), "{said}");
    site.server().checkpoint().expect("blocks that nothing names are swept");

    // The next mount does not resume it. A user turns it into a branch.
    let again = site.connected();
    let resumed = again.realms.recover();
    assert!(matches!(&resumed[..], [Err(error)] if error.to_string().contains("--as-branch")));
    let left = &again.realms.left().expect("reported")[0];
    assert_eq!((left.exists, left.ended_as.clone()), (true, Some(format!("ended-{}", realm.id()))));
    let info = again.realms.rescue(None, &name("rescued")).expect("a branch");
    assert_eq!(info.claim.realm, realm.id());
    assert!(realm.is_settled() && realm.is_ended(), "the client of before has nothing to keep any more");
    let branch = again.realms.open_branch(root, &name("rescued")).expect("opened");
    assert_eq!(branch.client().read_file("/large"), Ok(large.clone()));
    assert_eq!(branch.client().read_file("/old"), Ok(b"after".to_vec()));
    assert_eq!(branch.client().read_file("/theirs"), Err(Refusal::NotFound), "what others did later");
    let report = merge(&branch);
    assert_eq!(report.conflict_count, 1, "{report:?}");
    assert_eq!(others.client.read_file("/job/large"), Ok(large));
    assert_eq!(others.client.read_file("/job/theirs"), Ok(b"theirs".to_vec()));
    assert!(again.realms.left().expect("reported").is_empty());
}

#[test]
fn discard_drops_a_decoupling_that_was_ended_elsewhere() {
    let site = Site::new();
    let ours = site.connected();
    let (dropped, waiting) = (ours.take("/job", ON_DISK), ours.take("/other", ON_DISK));
    for realm in [&dropped, &waiting] {
        realm.client().create_file("/f", b"durable").expect("made");
        become_branch(&site, realm.id());
        become_branch(&site, realm.id());
    }
    until("the client hears of both", || dropped.is_lost() && waiting.is_lost());
    dropped.discard().expect("dropped");
    assert!(dropped.is_ended());
    assert_eq!(ours.realms.branches(None).expect("reported").len(), 1);
    assert!(ours.realms.close().is_empty(), "an orderly end leaves the other's journal");
    let again = site.connected();
    assert_eq!(again.realms.drop_over().expect("dropped"), [waiting.id()]);
    assert!(again.realms.left().expect("reported").is_empty());
    assert!(again.realms.branches(None).expect("reported").is_empty());
}

#[test]
fn a_conflict_is_resolved_and_the_merge_goes_past_it() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.embedded());
    ours.mkdir("/job");
    for file in ["ours", "theirs", "merged", "again", "removed"] {
        ours.client.create_file(format!("/job/{file}"), b"before").expect("made");
    }
    let root = ours.client.stat("/job").expect("there").ino;
    let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
    let realm = ours.decouple(root, policy).expect("decoupled");
    for file in ["ours", "theirs", "merged", "again"] {
        realm.client().write_file(format!("/{file}"), b"by us").expect("written");
        others.client.write_file(format!("/job/{file}"), b"by them").expect("written");
    }
    realm.client().remove("/removed").expect("removed");
    others.client.write_file("/job/removed", b"by them").expect("written");
    assert!(realm.merge(&|_| {}).expect("compared").stopped);
    let open = |realm: &chiton_decoupled::Realm| {
        let all = realm.conflicts().expect("reported");
        let mut open: Vec<_> = all.into_iter().filter(|one| !one.resolved).map(|one| one.path).collect();
        open.sort();
        open
    };
    assert_eq!(open(&realm), ["again", "merged", "ours", "removed", "theirs"]);
    assert!(realm.resolve_conflict(b"nothing", Choice::Ours).is_err());
    realm.resolve_conflict(b"ours", Choice::Ours).expect("resolved");
    realm.resolve_conflict(b"theirs", Choice::Theirs).expect("resolved");
    realm.client().write_file("/merged", b"by both").expect("written");
    realm.resolve_conflict(b"merged", Choice::Ours).expect("resolved");
    realm.resolve_conflict(b"removed", Choice::Theirs).expect("resolved");
    realm.resolve_conflict(b"again", Choice::Ours).expect("resolved");
    assert_eq!(open(&realm), [""; 0]);
    // Later changes of others conflict again.
    others.client.write_file("/job/again", b"by them, again").expect("written");
    assert_eq!(open(&realm), ["again"]);
    assert!(realm.merge(&|_| {}).expect("compared").stopped);
    assert_eq!(others.client.read_file("/job/ours"), Ok(b"by them".to_vec()), "nothing was merged");
    realm.resolve_conflict(b"again", Choice::Theirs).expect("resolved");
    let report = merge(&realm);
    assert_eq!(report.missing, 0);
    for (file, expect) in [
        ("ours", &b"by us"[..]),
        ("theirs", b"by them"),
        ("merged", b"by both"),
        ("again", b"by them, again"),
        ("removed", b"by them"),
    ] {
        assert_eq!(others.client.read_file(format!("/job/{file}")), Ok(expect.to_vec()), "{file}");
    }
}

#[test]
fn resolutions_of_a_branch_outlive_the_process_that_made_them() {
    let site = Site::new();
    let ours = site.connected();
    let root = ours.mkdir("/tree").ino;
    ours.client.create_file("/tree/f", b"before").expect("made");
    let policy = "consistency: invisible\ndurability: local\non_conflict: abort\n";
    let made = ours.realms.create_branch(&ours.client.caller(), root, &name("one"), Some(policy.as_bytes()));
    made.expect("made");
    let branch = ours.realms.open_branch(root, &name("one")).expect("opened");
    branch.client().write_file("/f", b"branch").expect("written");
    ours.client.write_file("/tree/f", b"tree").expect("written");
    branch.resolve_conflict(b"f", Choice::Ours).expect("resolved");
    drop(branch);
    assert!(ours.realms.close().is_empty());
    let again = site.connected();
    let branch = again.realms.open_branch(root, &name("one")).expect("opened");
    assert!(branch.conflicts().expect("reported").iter().all(|one| one.resolved));
    merge(&branch);
    assert_eq!(again.client.read_file("/tree/f"), Ok(b"branch".to_vec()));
}

#[test]
fn a_rebased_branch_has_the_changes_of_both_sides() {
    let site = Site::new();
    let ours = site.connected();
    let root = ours.mkdir("/tree").ino;
    ours.mkdir("/tree/dir");
    for file in ["kept", "changed", "gone", "moved", "both", "dir/in"] {
        ours.client.create_file(format!("/tree/{file}"), b"before").expect("made");
    }
    let made = ours.realms.create_branch(&ours.client.caller(), root, &name("one"), None);
    made.expect("made");
    let branch = ours.realms.open_branch(root, &name("one")).expect("opened");
    let work = branch.client();
    work.write_file("/changed", &[3; 20_000]).expect("written");
    work.remove("/gone").expect("removed");
    work.rename_path("/moved", "/dir/moved").expect("moved");
    work.mkdir_all("/new/deep").expect("made");
    work.create_file("/new/deep/file", b"new").expect("made");
    work.write_file("/both", b"branch").expect("written");
    ours.client.write_file("/tree/both", b"tree").expect("written");
    ours.client.write_file("/tree/kept", b"after").expect("written");
    ours.client.create_file("/tree/theirs", b"theirs").expect("made");
    drop(branch);
    assert!(ours.realms.close().is_empty());

    let rebasing = site.connected();
    let stopped = rebasing.realms.rebase_branch(root, &name("one")).expect("compared");
    assert!(stopped.stopped && stopped.conflict_count == 1, "{stopped:?}");
    assert!(rebasing.realms.close().is_empty());
    let rebasing = site.connected();
    let branch = rebasing.realms.open_branch(root, &name("one")).expect("opened");
    branch.resolve_conflict(b"both", Choice::Ours).expect("resolved");
    drop(branch);
    assert!(rebasing.realms.close().is_empty());
    let rebasing = site.connected();
    let done = rebasing.realms.rebase_branch(root, &name("one")).expect("rebased");
    assert!(!done.stopped, "{done:?}");

    let names: Vec<_> =
        rebasing.realms.branches(Some(root)).expect("reported").iter().map(|b| b.name()).collect();
    assert_eq!(names, ["one"]);
    let branch = rebasing.realms.open_branch(root, &name("one")).expect("opened");
    for (file, expect) in [
        ("kept", Some(&b"after"[..])),
        ("theirs", Some(b"theirs")),
        ("changed", Some(&[3; 20_000])),
        ("gone", None),
        ("moved", None),
        ("dir/moved", Some(b"before")),
        ("dir/in", Some(b"before")),
        ("new/deep/file", Some(b"new")),
        ("both", Some(b"branch")),
    ] {
        let found = branch.client().read_file(format!("/{file}"));
        assert_eq!(found, expect.map(<[u8]>::to_vec).ok_or(Refusal::NotFound), "{file}");
    }
    assert_eq!(merge(&branch).conflict_count, 0, "what others did is its base now");
    assert_eq!(rebasing.client.read_file("/tree/both"), Ok(b"branch".to_vec()));
}
