//! The client or the server dies: durable changes exist afterwards, once.

use chiton_client::{Client, OpenFlags};
use chiton_decoupled::Realm;
use chiton_model::{AttrChange, RenameHow, XattrHow};
use chiton_types::{Ino, Mode};

use crate::site::{IN_MEMORY, IN_STORE, ON_DISK, Site, merge};
use crate::tree::tree;
use crate::work::Work;

#[test]
fn a_local_journal_survives_its_client() {
    let site = Site::new();
    let ours = site.connected();
    ours.mkdir("/twin");
    let realm = ours.take("/job", ON_DISK);
    let (mut a, mut b) = (Work::new(7), Work::new(7));
    for round in 0..4 {
        for _ in 0..60 {
            assert_eq!(a.step(realm.client(), ""), b.step(&ours.client, "/twin"));
        }
        if round == 1 {
            realm.sync(&|_| {}).expect("merged so far");
        }
    }
    realm.client().sync().expect("durable");
    realm.abandon();
    drop(realm);
    let ours = site.connected();
    let realm = ours.recover();
    assert_eq!(realm.claim().generation, 2);
    let expected = tree(&ours.client, "/twin");
    assert_eq!(tree(realm.client(), "/"), expected, "recovered");
    for _ in 0..60 {
        assert_eq!(a.step(realm.client(), ""), b.step(&ours.client, "/twin"));
    }
    let expected = tree(&ours.client, "/twin");
    merge(&realm);
    assert_eq!(tree(&ours.client, "/job"), expected, "merged");
    assert!(ours.realms.recover().is_empty(), "something stays of it");
}

#[test]
fn a_crash_loses_the_unsynced_end() {
    let site = Site::new();
    let ours = site.embedded();
    let realm = ours.take("/job", "consistency: weak\ndurability: local\nflush_interval: 1h\n");
    let mut count = 0;
    for batch in 0..3 {
        for _ in 0..50 {
            realm.client().create_file(format!("/f{count:03}"), b"").expect("made");
            count += 1;
        }
        if batch < 2 {
            realm.client().sync().expect("durable");
        }
    }
    realm.abandon();
    drop(realm);
    let realm = site.embedded().recover();
    let found = tree(realm.client(), "/").len();
    assert!((100..=150).contains(&found), "{found} files");
    let names = tree(realm.client(), "/");
    assert!((0..found).all(|n| names.contains_key(&format!("/f{n:03}"))), "a prefix");
    realm.discard().expect("dropped");
}

#[test]
fn a_client_that_dies_while_it_merges_is_followed_by_one_that_ends_it() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", ON_DISK);
    let dirs = 20;
    for dir in 0..dirs {
        realm.client().mkdir_all(format!("/d{dir}")).expect("made");
        let names: Vec<String> = (0..1_000).map(|n| format!("f{n}")).collect();
        let made = realm.client().create_many(format!("/d{dir}"), &names).expect("asked");
        assert!(made.iter().all(Result::is_ok));
    }
    realm.client().sync().expect("durable");
    std::thread::scope(|scope| {
        let merging = scope.spawn(|| realm.sync(&|_| {}));
        // In the midst of it, or not: whenever it is, it is as good.
        while realm.status().merged == 0 && !merging.is_finished() {
            std::thread::yield_now();
            if ours.client.statfs().is_ok_and(|totals| totals.inodes_used > 3_000) {
                break;
            }
        }
        realm.abandon();
        // The client is gone, so the result does not matter.
        let _ = merging.join().expect("no panic");
    });
    drop(realm);
    let later = site.connected();
    let realm = later.recover();
    assert_eq!(tree(realm.client(), "/").len(), dirs * 1_001);
    realm.client().create_file("/last", b"x").expect("made");
    merge(&realm);
    assert_eq!(tree(&later.client, "/job").len(), dirs * 1_001 + 1);
}

#[test]
fn a_merge_resends_batches_that_a_dead_server_lost() {
    for (seed, policy) in [(1, IN_MEMORY), (2, ON_DISK), (3, ON_DISK)] {
        let site = Site::new();
        let ours = site.connected();
        ours.mkdir("/twin");
        let realm = ours.take("/job", &format!("{policy}allocated_inodes: 100000\n"));
        ours.client.sync().expect("durable");
        let (mut a, mut b) = (Work::new(seed), Work::new(seed));
        for round in 0..6 {
            for _ in 0..50 {
                assert_eq!(a.step(realm.client(), ""), b.step(&ours.client, "/twin"), "seed {seed}");
            }
            std::thread::scope(|scope| {
                let merging = scope.spawn(|| realm.sync(&|_| {}));
                if round % 2 == 0 {
                    site.kill();
                    site.start();
                }
                let report = merging.join().expect("no panic").expect("merged");
                assert_eq!(
                    (report.conflict_count, &report.lost[..]),
                    (0, &[][..]),
                    "seed {seed}: {report:?}"
                );
            });
        }
        let expected = tree(&ours.client, "/twin");
        merge(&realm);
        assert_eq!(tree(&ours.client, "/job"), expected, "seed {seed}");
    }
}

#[test]
fn a_journal_in_the_object_store_is_resumed_on_another_machine() {
    for policy in [IN_STORE, "consistency: invisible\ndurability: global\ninterfere_policy: block\n"] {
        let site = Site::new();
        let ours = site.connected();
        let realm = ours.take("/job", policy);
        for n in 0..300 {
            realm.client().create_file(format!("/f{n}"), b"x").expect("made");
        }
        realm.client().write_file("/large", &vec![7; 300_000]).expect("written");
        realm.client().sync().expect("durable");
        let (id, expected) = (realm.id(), tree(realm.client(), "/"));
        realm.abandon();
        // Another machine has nothing of this one's state.
        let later = site.elsewhere();
        assert!(later.realms.recover().is_empty());
        let again = later.realms.adopt(id).expect("adopted");
        assert_eq!(tree(again.client(), "/"), expected);
        again.client().create_file("/more", b"y").expect("made");
        assert!(realm.sync(&|_| {}).is_err(), "the former client is over");
        if policy == IN_STORE {
            again.sync(&|_| {}).expect("merged so far");
            again.client().create_file("/still-more", b"z").expect("made");
        }
        let expected = tree(again.client(), "/");
        merge(&again);
        assert_eq!(tree(&later.client, "/job"), expected);
        site.server().tidy().expect("tidied");
        let kept = site.server().objects().list("decoupled/", None, 10).expect("listed");
        assert_eq!(kept, [], "something stays of it");
    }
}

/// Writes to a file that was removed while open, and was merged, concern no existing inode.
#[test]
fn a_client_continues_after_a_merge_with_writes_to_a_removed_file() {
    for policy in [ON_DISK, IN_STORE] {
        let site = Site::new();
        let ours = site.connected();
        let realm = ours.take("/job", policy);
        let client = realm.client();
        let (caller, root) = (client.caller(), client.stat("/").expect("there").ino);
        let (_, fh) =
            client.create(&caller, root, b"open", Mode(0o600), OpenFlags::READ_WRITE).expect("made");
        client.sync().expect("durable");
        client.unlink(&caller, root, b"open").expect("removed");
        realm.sync(&|_| {}).expect("merged so far");
        client.write(&caller, fh, 0, b"to nobody").expect("written");
        client.fsync(fh, false).expect("durable");
        client.create_file("/after", b"x").expect("made");
        client.sync().expect("durable");
        let (id, expected) = (realm.id(), tree(client, "/"));
        realm.abandon();
        let later = if policy == IN_STORE { site.elsewhere() } else { ours };
        let again =
            if policy == IN_STORE { later.realms.adopt(id).expect("adopted") } else { later.recover() };
        assert_eq!(tree(again.client(), "/"), expected);
        merge(&again);
        assert_eq!(tree(&later.client, "/job"), expected);
    }
}

#[test]
fn a_client_resumes_its_journal_over_changes_by_others() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.connected());
    ours.mkdir("/job/dir");
    ours.client.create_file("/job/dir/f", b"before").expect("made");
    let root = ours.client.stat("/job").expect("there").ino;
    let realm = ours.decouple(root, "consistency: weak\ndurability: local\n").expect("decoupled");
    realm.client().rename_path("/dir/f", "/dir/g").expect("moved");
    realm.client().create_file("/dir/new", b"ours").expect("made");
    realm.client().sync().expect("durable");
    realm.abandon();
    drop(realm);
    others.client.remove("/job/dir/f").expect("removed");
    let later = site.connected();
    let realm = later.recover();
    let status = realm.status();
    // Its rows are those that it saw, so the journal fits them. The merge handles the changes of others.
    assert!(status.merged < status.events && status.trouble.is_none(), "{status:?}");
    realm.client().create_file("/dir/newer", b"ours").expect("made");
    merge(&realm);
    for (name, content) in [("g", "before"), ("new", "ours"), ("newer", "ours")] {
        let found = others.client.read_file(format!("/job/dir/{name}"));
        assert_eq!(found, Ok(content.as_bytes().to_vec()), "{name}");
    }
}

/// `mkdir d`, `put f`, `rm f`, `mv a b`, `swap a b`, `ln a b`, `tag f`: one after the other, below a directory.
fn act(client: &Client, at: &str, deeds: &[&str]) {
    for deed in deeds {
        let words: Vec<String> = deed.split(' ').skip(1).map(|path| format!("{at}/{path}")).collect();
        let path = &words[0];
        let done = match deed.split(' ').next().expect("a verb") {
            "mkdir" => client.mkdir_all(path).map(drop),
            "put" => client.create_file(path, at.as_bytes()).map(drop),
            "rm" => client.remove(path),
            "mv" => client.rename_path(path, &words[1]),
            "swap" => {
                let (caller, root) = (client.caller(), client.stat(format!("{at}/")).expect("there").ino);
                let names = [path, &words[1]].map(|path| path.as_bytes()[at.len() + 1..].to_vec());
                client.rename(&caller, root, &names[0], root, &names[1], RenameHow::Exchange)
            }
            "ln" => {
                let (caller, ino) = (client.caller(), client.stat(path).expect("there").ino);
                let root = client.stat(format!("{at}/")).expect("there").ino;
                client.link(&caller, ino, root, &words[1].as_bytes()[at.len() + 1..]).map(drop)
            }
            "tag" => {
                let ino = client.stat(path).expect("there").ino;
                client.setxattr(&client.caller(), ino, b"user.tag", b"ours", XattrHow::Set)
            }
            verb => panic!("no verb: {verb}"),
        };
        assert_eq!(done, Ok(()), "{deed}");
    }
}

#[test]
fn a_resumed_client_sees_its_own_changes_only() {
    for (base, theirs, ours) in [
        (&[][..], &["put d"][..], &["mkdir d", "put d/f"][..]),
        (&[], &["mkdir c", "put c/theirs"], &["mkdir c", "mkdir c/d", "put c/f"]),
        (&[], &["mkdir c", "tag c"], &["mkdir c", "mv c e", "put e/f"]),
        (&["put d", "put x"], &["mv d c"], &["rm d", "put a"]),
        (&["put d", "put x"], &["mv d c"], &["mv d c", "put d"]),
        (&["mkdir d"], &["put d/theirs"], &["tag d"]),
        (&["mkdir d"], &["put d/theirs"], &["rm d"]),
        (&["put d"], &["rm d", "put d"], &["rm d", "mkdir d", "put d/f"]),
    ] {
        let about = format!("base {base:?}, theirs {theirs:?}, ours {ours:?}");
        let site = Site::new();
        let party = site.connected();
        let root = party.mkdir("/job").ino;
        act(&party.client, "/job", base);
        let policy = "consistency: weak\ndurability: local\non_conflict: overwrite\n";
        let realm = party.decouple(root, policy).expect("decoupled");
        act(&site.embedded().client, "/job", theirs);
        act(realm.client(), "", ours);
        realm.sync(&|_| {}).expect("merged so far");
        // The journal continues with the numbers that ours has.
        for path in tree(realm.client(), "/").keys() {
            let change = AttrChange { mode: Some(Mode(0o700)), ..AttrChange::default() };
            realm.client().set_attr_path(path, change).expect("changed");
        }
        realm.client().sync().expect("durable");
        let seen = tree(realm.client(), "/");
        let number = |realm: &Realm, path: &String| realm.client().stat(path).expect("there").ino;
        let numbers: Vec<Ino> = seen.keys().map(|path| number(&realm, path)).collect();
        realm.abandon();
        drop(realm);
        let realm = site.connected().recover();
        assert_eq!(tree(realm.client(), "/"), seen, "{about}");
        assert_eq!(seen.keys().map(|path| number(&realm, path)).collect::<Vec<_>>(), numbers, "{about}");
        // A directory counts its entries.
        for path in seen.keys().rev() {
            assert_eq!(realm.client().remove(path), Ok(()), "{path}: {about}");
        }
        merge(&realm);
    }
}

/// Others continue after a merge as well. After a crash, ours sees the same as before.
#[test]
fn a_resumed_client_keeps_names_that_others_also_gave() {
    for (base, theirs, ours, theirs_later, ours_later) in [
        // A directory that was joined with theirs, and that others then move.
        (&[][..], &["mkdir c"][..], &["mkdir c"][..], &["mkdir x", "swap x c"][..], &["put c/f"][..]),
        // Both exchange the same.
        (&["mkdir c", "put d"], &["swap c d"], &["swap c d"], &[], &["put d/f", "rm c"]),
        (&["put c", "mkdir d"], &["swap c d"], &["swap c d"], &["rm d"], &["tag c"]),
        // A file that ours has written to, and of which others take a name.
        (&["put b", "ln b d", "put c"], &["rm b"], &["tag d"], &[], &["mv c d"]),
    ] {
        let about = format!("{base:?}, {theirs:?} then {theirs_later:?}, ours {ours:?} then {ours_later:?}");
        let site = Site::new();
        let party = site.connected();
        let root = party.mkdir("/job").ino;
        act(&party.client, "/job", base);
        let policy = "consistency: invisible\ndurability: local\non_conflict: overwrite\n";
        let realm = party.decouple(root, policy).expect("decoupled");
        let others = site.embedded().client;
        act(&others, "/job", theirs);
        act(realm.client(), "", ours);
        realm.sync(&|_| {}).expect("merged so far");
        act(&others, "/job", theirs_later);
        act(realm.client(), "", ours_later);
        realm.client().sync().expect("durable");
        let seen: Vec<String> = tree(realm.client(), "/").into_keys().collect();
        realm.abandon();
        drop(realm);
        let realm = site.connected().recover();
        assert_eq!(tree(realm.client(), "/").into_keys().collect::<Vec<_>>(), seen, "{about}");
        merge(&realm);
    }
}

/// A resumed client moves a file from where the merge put it, as the next merge will do.
#[test]
fn a_resumed_client_exchanges_files_that_a_merge_moved() {
    let site = Site::new();
    let party = site.connected();
    let root = party.mkdir("/job").ino;
    act(&party.client, "/job", &["mkdir b", "put c", "mkdir d", "tag d"]);
    let policy = "consistency: invisible\ndurability: local\non_conflict: overwrite\n";
    let realm = party.decouple(root, policy).expect("decoupled");
    act(&site.embedded().client, "/job", &["swap c d"]);
    act(realm.client(), "", &["swap b d"]);
    realm.sync(&|_| {}).expect("merged so far");
    act(realm.client(), "", &["swap c b"]);
    realm.client().sync().expect("durable");
    realm.abandon();
    drop(realm);
    let realm = site.connected().recover();
    let found = tree(realm.client(), "/");
    merge(&realm);
    assert_eq!(tree(&site.embedded().client, "/job"), found);
}

#[test]
fn unwritten_files_read_as_at_the_base_after_a_merge() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.embedded());
    let root = ours.mkdir("/job").ino;
    let before = vec![7; 16 << 20];
    ours.client.create_file("/job/f", &before).expect("made");
    ours.client.sync().expect("there");
    let realm = ours.decouple(root, "consistency: weak\ndurability: local\n").expect("decoupled");
    others.client.write_file("/job/f", &vec![9; 16 << 20]).expect("written");
    others.client.sync().expect("there");
    let client = realm.client();
    let fh = client.open_path("/f", OpenFlags::READ_WRITE).expect("opened");
    client.write(&client.caller(), fh, 0, b"ours").expect("written");
    client.release(fh).expect("closed");
    let report = realm.sync(&|_| {}).expect("merged so far");
    assert_eq!(report.conflict_count, 1, "{report:?}");
    for _ in 0..2 {
        site.server().tidy().expect("tidied");
    }
    let found = client.read_file("/f").expect("read");
    assert!(found.starts_with(b"ours") && found[4..] == before[4..], "not what ours saw");
    merge(&realm);
}
