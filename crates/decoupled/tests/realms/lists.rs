//! Access control lists in decoupled subtrees and branches, and after their merge.

use std::sync::Arc;

use chiton_client::Client;
use chiton_decoupled::Realm;
use chiton_model::{AttrChange, XattrHow};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT, Acl, AclEntry, AclTag};
use chiton_policy::OnConflict;
use chiton_types::{Ino, Kind, Mode, Refusal, access};

use crate::site::{IN_MEMORY, IN_STORE, ON_DISK, Party, Site, merge, mkdir_near};
use crate::tree::tree;

const ALICE: u32 = 1_001;
const BOB: u32 = 1_002;

/// Owner, Alice, the group, mask, others.
fn list(owner: u8, alice: u8, group: u8, mask: u8, other: u8) -> Acl {
    let entry = |tag, rights| AclEntry { tag, rights };
    let entries = vec![
        entry(AclTag::Owner, owner),
        entry(AclTag::User(ALICE), alice),
        entry(AclTag::OwningGroup, group),
        entry(AclTag::Mask, mask),
        entry(AclTag::Other, other),
    ];
    Acl::new(entries).expect("a list")
}

fn set(client: &Client, path: &str, name: &[u8], list: &Acl) {
    let ino = client.stat(path).expect("there").ino;
    client.setxattr(&client.caller(), ino, name, &list.encode(), XattrHow::Set).expect("set");
}

fn remove(client: &Client, path: &str, name: &[u8]) {
    let ino = client.stat(path).expect("there").ino;
    client.removexattr(&client.caller(), ino, name).expect("removed");
}

fn chmod(client: &Client, path: &str, mode: u16) {
    let change = AttrChange { mode: Some(Mode(mode)), ..AttrChange::default() };
    client.set_attr_path(path, change).expect("changed");
}

/// The list that is shown, and the mode.
fn shown(client: &Client, path: &str, name: &[u8]) -> (Option<Acl>, u16) {
    let attr = client.stat(path).expect("there");
    let list = match client.getxattr(&client.caller(), attr.ino, name) {
        Ok(value) => Acl::decode(&value).expect("a list"),
        Err(Refusal::NoXattr) => None,
        Err(refusal) => panic!("{path}: {refusal}"),
    };
    (list, attr.mode.0)
}

/// Whether a user without groups has these rights.
fn may(client: &Client, uid: u32, path: &str, want: u8) -> bool {
    let user = client.acting_as(uid, uid, &[]);
    let ino = client.stat(path).expect("there").ino;
    user.access(&user.caller(), ino, want).is_ok()
}

/// The tree before: a file with a list, one with another, a directory with a default list.
fn base(client: &Client) {
    mkdir_near(client, "/t/shared");
    for file in ["plain", "listed", "cleared", "masked"] {
        client.create_file(format!("/t/{file}"), b"x").expect("made");
    }
    set(client, "/t/listed", ACL_ACCESS, &list(6, 4, 0, 4, 0));
    set(client, "/t/cleared", ACL_ACCESS, &list(6, 6, 4, 6, 0));
    set(client, "/t/masked", ACL_ACCESS, &list(6, 6, 4, 6, 0));
    set(client, "/t/shared", ACL_DEFAULT, &list(7, 7, 5, 7, 0));
}

/// The changes in the decoupled subtree. Paths begin at the subtree.
fn work(client: &Client) {
    // The lists of the base exist, and decide.
    assert_eq!(shown(client, "/listed", ACL_ACCESS), (Some(list(6, 4, 0, 4, 0)), 0o640));
    assert!(may(client, ALICE, "/listed", access::READ) && !may(client, BOB, "/listed", access::READ));
    set(client, "/plain", ACL_ACCESS, &list(6, 6, 0, 6, 0));
    remove(client, "/cleared", ACL_ACCESS);
    chmod(client, "/masked", 0o640);
    // New files and directories inherit.
    client.create_file("/shared/f", b"y").expect("made");
    client.mkdir_all("/shared/d/e").expect("made");
    client.create_file("/shared/d/e/f", b"z").expect("made");
    // A default list of a directory that was made here, and none any more where there was one.
    client.mkdir_all("/new").expect("made");
    set(client, "/new", ACL_DEFAULT, &list(7, 5, 0, 5, 0));
    client.create_file("/new/f", b"n").expect("made");
    remove(client, "/shared", ACL_DEFAULT);
    client.create_file("/shared/after", b"a").expect("made");
    look(client, "");
}

/// The lists that both clients must see.
fn look(client: &Client, at: &str) {
    let path = |path: &str| format!("{at}{path}");
    for (file, expect) in [
        ("/plain", (Some(list(6, 6, 0, 6, 0)), 0o660)),
        ("/listed", (Some(list(6, 4, 0, 4, 0)), 0o640)),
        // The mask stays as the group's bits, as on local file systems.
        ("/cleared", (None, 0o660)),
        ("/masked", (Some(list(6, 6, 4, 4, 0)), 0o640)),
        ("/shared/f", (Some(list(6, 7, 5, 4, 0)), 0o640)),
        ("/shared/d", (Some(list(7, 7, 5, 5, 0)), 0o750)),
        ("/shared/d/e/f", (Some(list(6, 7, 5, 4, 0)), 0o640)),
        ("/shared/after", (None, 0o644)),
        ("/new/f", (Some(list(6, 5, 0, 4, 0)), 0o640)),
    ] {
        assert_eq!(shown(client, &path(file), ACL_ACCESS), expect, "{file}");
    }
    for (dir, expect) in [
        ("/shared", None),
        ("/shared/d", Some(list(7, 7, 5, 7, 0))),
        ("/shared/d/e", Some(list(7, 7, 5, 7, 0))),
        ("/new", Some(list(7, 5, 0, 5, 0))),
    ] {
        assert_eq!(shown(client, &path(dir), ACL_DEFAULT).0, expect, "{dir}");
    }
    for (uid, file, want, expect) in [
        (ALICE, "/plain", access::READ | access::WRITE, true),
        (BOB, "/plain", access::READ, false),
        (ALICE, "/masked", access::READ, true),
        (ALICE, "/masked", access::WRITE, false),
        (ALICE, "/cleared", access::READ, false),
        (ALICE, "/shared/d/e/f", access::READ, true),
        (BOB, "/shared/d/e/f", access::READ, false),
        (BOB, "/shared/after", access::READ, true),
        (ALICE, "/new/f", access::READ, true),
    ] {
        assert_eq!(may(client, uid, &path(file), want), expect, "{uid} {file} {want}");
    }
}

fn merged_and_seen(site: &Site, others: &Party, realm: &Arc<Realm>) {
    work(realm.client());
    let ours = tree(realm.client(), "/");
    assert_eq!(merge(realm).conflict_count, 0);
    look(&others.client, "/t");
    assert_eq!(tree(&others.client, "/t"), ours);
    // From the rows, too.
    site.restart();
    let again = site.elsewhere();
    look(&again.client, "/t");
    assert_eq!(tree(&again.client, "/t"), ours);
}

/// S34 and S60: lists, mask and mode bits that were set in a decoupled subtree are visible to others after its
/// merge.
#[test]
fn lists_of_a_decoupled_subtree_are_merged() {
    for policy in [IN_MEMORY, ON_DISK, IN_STORE] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.elsewhere());
        base(&ours.client);
        let root = ours.client.stat("/t").expect("there").ino;
        let realm = ours.decouple(root, policy).expect("decoupled");
        merged_and_seen(&site, &others, &realm);
    }
}

/// The same for a decoupling whose client died and that the next client resumes.
#[test]
fn lists_of_a_decoupled_subtree_outlive_its_client() {
    for policy in [ON_DISK, IN_STORE] {
        let site = Site::new();
        let ours = site.connected();
        base(&ours.client);
        let root = ours.client.stat("/t").expect("there").ino;
        let realm = ours.decouple(root, policy).expect("decoupled");
        work(realm.client());
        realm.client().sync().expect("durable");
        let id = realm.id();
        realm.abandon();
        ours.client.abandon();
        let next = site.connected();
        let realm = match policy == IN_STORE {
            true => next.realms.adopt(id).expect("adopted"),
            false => next.recover(),
        };
        look(realm.client(), "");
        merge(&realm);
        look(&site.elsewhere().client, "/t");
    }
}

/// S34 and S70: the same of a branch.
#[test]
fn lists_of_a_branch_are_merged() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.elsewhere());
    base(&others.client);
    let root = others.client.stat("/t").expect("there").ino;
    let branch = ours.branch(root, "one").expect("made");
    // Other clients do not see it before.
    let before = tree(&others.client, "/t");
    set(branch.client(), "/listed", ACL_ACCESS, &list(7, 7, 7, 7, 7));
    set(branch.client(), "/listed", ACL_ACCESS, &list(6, 4, 0, 4, 0));
    assert_eq!(tree(&others.client, "/t"), before);
    merged_and_seen(&site, &others, &branch);
}

/// S105: if both sides changed a list, one side's list stays whole; under `keep_both` the copy has the other's.
#[test]
fn of_two_lists_one_is_there_and_a_copy_has_the_other() {
    for how in [OnConflict::Overwrite, OnConflict::KeepBoth] {
        let site = Site::new();
        let party = site.connected();
        base(&party.client);
        let root: Ino = party.client.stat("/t").expect("there").ino;
        let one = party.branch(root, "one").expect("made");
        let two = party.branch(root, "two").expect("made");
        for (realm, content, alice) in [(&one, b"one", 4), (&two, b"two", 6)] {
            realm.client().write_file("/plain", content).expect("written");
            set(realm.client(), "/plain", ACL_ACCESS, &list(6, alice, 0, alice, 0));
        }
        assert_eq!(merge(&one).conflict_count, 0);
        let report = two.merge_with(Some(how), &|_| {}).expect("merged");
        assert!(report.ended && report.lost_count == 0 && report.conflict_count > 0, "{report:?}");
        let see = |name: &str| {
            let path = format!("/t/{name}");
            (party.client.read_file(&path).expect("there"), shown(&party.client, &path, ACL_ACCESS))
        };
        let of = |content: &[u8], alice: u8| {
            (content.to_vec(), (Some(list(6, alice, 0, alice, 0)), 0o600 | u16::from(alice) << 3))
        };
        let files = party.client.list("/t").expect("a directory");
        let files = files.iter().filter(|entry| entry.kind == Kind::File).map(|entry| entry.name.to_string());
        let of_plain: Vec<String> = files.filter(|name| name.starts_with("plain")).collect();
        let seen: Vec<_> = of_plain.iter().map(|name| see(name)).collect();
        match how {
            OnConflict::KeepBoth => {
                assert_eq!(of_plain.len(), 2, "{of_plain:?}");
                assert!(seen.contains(&of(b"one", 4)) && seen.contains(&of(b"two", 6)), "{seen:?}");
            }
            _ => assert_eq!(seen, [of(b"two", 6)], "{of_plain:?}"),
        }
    }
}
