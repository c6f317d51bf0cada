//! Trees that are removed as wholes while they lie on several plates (S141, S142).

use std::collections::BTreeSet;
use std::time::Duration;

use chiton_client::{Client, OpenFlags};
use chiton_model::{AttrChange, XattrHow};
use chiton_runtime::thread;
use chiton_types::{Attr, Cred, Ino, PlateId, Plates, Refusal, SHARDS_DEFAULT};
use chiton_wire::{Answer, Call, RealmAnswer, RealmCall};

use crate::site::Site;

const PLATES: u16 = 3;

fn plate(ino: Ino) -> PlateId {
    Plates::new(SHARDS_DEFAULT, PLATES).expect("plates").of(ino).expect("a shard")
}

fn set_policy(client: &Client, dir: Ino, text: &[u8]) {
    client.setxattr(&client.caller(), dir, b"chiton.policy", text, XattrHow::Set).expect("the policy is set");
}

/// `/top/tree` with directories on all plates; below `/top` directories have parts.
fn grow(client: &Client, with_parts: bool) -> Ino {
    let above = client.mkdir_all("/top").expect("made").ino;
    if with_parts {
        set_policy(client, above, b"huge: always");
    }
    let mut plates = BTreeSet::new();
    for n in 0..8 {
        for below in 0..3 {
            let dir = format!("/top/tree/d{n}/e{below}");
            plates.insert(plate(client.mkdir_all(&dir).expect("made").ino));
            let names: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
            assert!(client.create_many(&dir, &names).expect("asked").iter().all(Result::is_ok));
        }
    }
    assert_eq!(plates.len(), usize::from(PLATES), "the directories lie on all plates");
    let top = client.stat("/top/tree").expect("there");
    assert_eq!(top.flags & Attr::HAS_PARTS != 0, with_parts);
    // A file with a name outside stays.
    let (file, caller) = (client.stat("/top/tree/d0/e0/f0").expect("there").ino, client.caller());
    client.link(&caller, file, above, b"kept").expect("linked");
    top.ino
}

/// Removes `/top/tree`.
fn remove(client: &Client, tree: Ino) -> Result<(), Refusal> {
    let above = client.stat("/top").expect("there").ino;
    client.remove_tree(&client.caller(), above, b"tree", tree)
}

fn inodes(client: &Client) -> u64 {
    client.statfs().expect("asked").inodes_used
}

/// Waits until no more inodes are used.
fn freed(client: &Client, upto: u64) {
    for _ in 0..6_000 {
        if inodes(client) == upto {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let status = client.admin("status").expect("status");
    panic!("{} inodes are used, should be {upto}: {}", inodes(client), String::from_utf8_lossy(&status));
}

/// S141.
#[test]
fn a_tree_over_plates_is_gone_at_once_and_freed_afterwards() {
    for with_parts in [false, true] {
        let site = Site::with_plates(PLATES);
        let (client, other) = (site.connected(), site.connected());
        let tree = grow(&client, with_parts);
        // The other client has names of directories in it in its cache, and a file open.
        let open = other.open_path("/top/tree/d1/e1/f1", OpenFlags::READ).expect("opened");
        assert_eq!(other.list("/top/tree/d2/e2").expect("listed").len(), 40);
        assert_eq!(remove(&client, tree), Ok(()));
        for one in [&client, &other] {
            assert_eq!(one.stat("/top/tree").err(), Some(Refusal::NotFound));
            assert_eq!(one.list("/top").expect("listed").len(), 1);
        }
        assert_eq!(remove(&client, tree), Err(Refusal::NotFound));
        // The root, /top, the file with another name and the one that is open.
        freed(&client, 4);
        other.release(open).expect("closed");
        freed(&client, 3);
        assert_eq!(client.stat("/top/kept").expect("there").nlink, 1);
    }
}

/// S141. Plates die while they free what lies on them.
#[test]
fn a_tree_is_freed_whatever_plate_dies_meanwhile() {
    for with_parts in [false, true] {
        let site = Site::with_plates(PLATES);
        let client = site.connected();
        let tree = grow(&client, with_parts);
        assert_eq!(remove(&client, tree), Ok(()));
        for plate in [1, 0, 2, 1] {
            site.kill_plate(PlateId(plate));
            site.start_plate(PlateId(plate));
            thread::sleep(Duration::from_millis(20));
        }
        freed(&client, 3);
        assert_eq!(client.list("/top").expect("listed").len(), 1);
        client.mkdir_all("/top/tree/d1").expect("the name is free");
    }
}

/// S142. A policy, a branch or another user's directory deep in the tree, on another plate than its name.
#[test]
fn a_tree_stays_whole_where_it_may_not_be_removed_as_a_whole() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    let tree = grow(&client, false);
    let far = (0..8).flat_map(|n| (0..3).map(move |below| format!("/top/tree/d{n}/e{below}")));
    // In the first of them a file has a name outside: it cannot become a branch.
    let far: Vec<Ino> = far.skip(1).map(|dir| client.stat(&dir).expect("there").ino).collect();
    let above = client.stat("/top").expect("there").ino;
    for wanted in (0..PLATES).map(PlateId) {
        let dir = *far.iter().find(|dir| plate(**dir) == wanted).expect("on all plates");
        set_policy(&client, dir, b"data: lazy");
        assert_eq!(remove(&client, tree), Err(Refusal::CrossDevice), "a policy on plate {wanted}");
        client.removexattr(&client.caller(), dir, b"chiton.policy").expect("removed");

        let branch = chiton_types::Name::new(b"branch").expect("a name");
        let call = RealmCall::Decouple {
            root: dir,
            branch: Some(branch),
            nonce: 7,
            journal_at: "here".into(),
            policy: b"consistency: weak\ndurability: local".to_vec(),
        };
        let realm = |call| match client.service().call(&Cred::ROOT, Call::Realm(Box::new(call))) {
            Ok(Answer::Realm(answer)) => answer,
            other => panic!("{other:?}"),
        };
        let RealmAnswer::Granted(granted) = realm(call) else { panic!("no branch on plate {wanted}") };
        assert_eq!(remove(&client, tree), Err(Refusal::CrossDevice), "a branch on plate {wanted}");
        let end = RealmCall::End { claim: granted.claim, force: false };
        assert_eq!(realm(end), RealmAnswer::Ended);
    }
    // Not root: this plate does not see who owns the directories of others.
    client.set_attr_path("/top", AttrChange { uid: Some(1000), ..AttrChange::default() }).expect("changed");
    let user = client.acting_as(1000, 1000, &[]);
    let refused = user.remove_tree(&user.caller(), above, b"tree", tree);
    assert!(matches!(refused, Err(Refusal::CrossDevice | Refusal::NotPermitted)), "{refused:?}");
    assert_eq!(client.list("/top/tree").expect("listed").len(), 8);
    assert_eq!(client.list("/top/tree/d7/e2").expect("listed").len(), 40);
    assert_eq!(remove(&client, tree), Ok(()));
    freed(&client, 3);
}
