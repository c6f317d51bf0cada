//! Conflicts that are resolved to the version of the others: attributes, links and lists are copied too, and the
//! merge accepts the result.

use std::collections::{BTreeMap, BTreeSet};

use chiton_client::{Client, OpenFlags};
use chiton_decoupled::Choice;
use chiton_model::{AttrChange, SetTime, XattrHow};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT, Acl, AclEntry, AclTag};
use chiton_types::{Attr, Kind, Mode, Refusal, Time};

use crate::site::{Site, merge};

/// The compared state of one path: parts of its row, its content or target, its extended attributes.
type Whole = ((Kind, Mode, u32, u32, u64, Time, Time, u32), Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>);

fn whole(client: &Client, path: &str) -> Whole {
    let attr = client.lstat(path).unwrap_or_else(|refusal| panic!("{path}: {refusal}"));
    let content = match attr.kind {
        Kind::File => client.read_file(path).expect("read"),
        Kind::Symlink => client.readlink(attr.ino).expect("a target"),
        _ => Vec::new(),
    };
    let caller = client.caller();
    let names = client.listxattr(&caller, attr.ino).expect("names");
    let names = names.split(|b| *b == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| client.getxattr(&caller, attr.ino, name).expect("a value");
    let xattrs = names.map(|name| (name.to_vec(), value(name))).collect();
    let Attr { kind, mode, uid, gid, size, atime, mtime, rdev, .. } = attr;
    let size = if kind == Kind::Dir { 0 } else { size };
    ((kind, mode, uid, gid, size, atime, mtime, rdev), content, xattrs)
}

/// An access control list that gives a user more than the group has.
fn list() -> Vec<u8> {
    let entry = |tag, rights| AclEntry { tag, rights };
    let user = AclTag::User(1_234);
    let entries =
        [(AclTag::Owner, 7), (user, 6), (AclTag::OwningGroup, 4), (AclTag::Mask, 6), (AclTag::Other, 0)];
    Acl::new(entries.map(|(tag, rights)| entry(tag, rights)).to_vec()).expect("a list").encode()
}

fn dress(client: &Client, path: &str, xattrs: &[(&[u8], &[u8])], mode: Option<u16>) {
    let (ino, caller) = (client.lstat(path).expect("there").ino, client.caller());
    for (name, value) in xattrs {
        client.setxattr(&caller, ino, name, value, XattrHow::Set).expect("set");
    }
    // Only root gives files away.
    let owner = if caller.uid == 0 { 1_234 } else { caller.uid };
    let change = AttrChange {
        uid: Some(owner),
        mode: mode.map(Mode),
        atime: Some(SetTime::At(Time(1_111_000_000_123))),
        mtime: Some(SetTime::At(Time(2_222_000_000_456))),
        ..AttrChange::default()
    };
    client.setattr(&caller, ino, change, None).expect("set");
}

fn link(client: &Client, dir: &str, name: &str, target: &str) {
    let parent = client.stat(dir).expect("there").ino;
    client.symlink(&client.caller(), parent, name.as_bytes(), target.as_bytes()).expect("made");
}

#[test]
fn theirs_is_copied_here_with_all_that_it_is() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.embedded());
    ours.mkdir("/job");
    for file in ["plain", "sparse", "to_link", "stripped", "gone", "fifo"] {
        ours.client.create_file(format!("/job/{file}"), b"before").expect("made");
    }
    dress(&ours.client, "/job/stripped", &[(b"user.k", b"base"), (ACL_ACCESS, &list())], None);
    ours.mkdir("/job/dir");
    link(&ours.client, "/job", "link", "base");
    link(&ours.client, "/job", "to_file", "base");
    let root = ours.client.stat("/job").expect("there").ino;
    let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
    let realm = ours.decouple(root, policy).expect("decoupled");

    let here = realm.client();
    for file in ["plain", "sparse", "to_link", "stripped", "gone", "fifo"] {
        here.write_file(format!("/{file}"), b"by us").expect("written");
    }
    dress(here, "/plain", &[(b"user.ours", b"ours"), (b"user.k", b"ours")], Some(0o600));
    dress(here, "/dir", &[(b"user.k", b"ours")], Some(0o711));
    for name in ["link", "to_file"] {
        here.remove(format!("/{name}")).expect("removed");
        link(here, "/", name, "ours");
    }
    link(here, "/", "new", "ours");

    let there = others.client.rooted(root);
    there.write_file("/plain", &[7; 30_000]).expect("written");
    dress(&there, "/plain", &[(b"user.k", b"theirs"), (ACL_ACCESS, &list())], Some(0o6760));
    there.write_file("/stripped", b"by them").expect("written");
    let stripped = there.stat("/stripped").expect("there").ino;
    for name in [&b"user.k"[..], ACL_ACCESS] {
        there.removexattr(&there.caller(), stripped, name).expect("removed");
    }
    dress(&there, "/stripped", &[], Some(0o640));
    let fh = there.open_path("/sparse", OpenFlags::READ_WRITE).expect("opened");
    there.write(&there.caller(), fh, 5_000_000, b"behind a hole").expect("written");
    there.release(fh).expect("closed");
    there
        .set_attr_path("/sparse", AttrChange { size: Some(9_000_000), ..AttrChange::default() })
        .expect("grown");
    dress(&there, "/sparse", &[], None);
    dress(&there, "/dir", &[(b"user.k", b"theirs"), (ACL_DEFAULT, &list())], Some(0o2755));
    for name in ["link", "to_file", "to_link", "gone", "fifo"] {
        there.remove(format!("/{name}")).expect("removed");
    }
    link(&there, "/", "link", "theirs");
    dress(&there, "/link", &[], None);
    there.create_file("/to_file", b"a file of theirs").expect("made");
    dress(&there, "/to_file", &[(b"user.k", b"theirs")], Some(0o555));
    link(&there, "/", "to_link", "theirs");
    dress(&there, "/to_link", &[], None);
    link(&there, "/", "new", "theirs");
    dress(&there, "/new", &[], None);
    let mode = Mode(0o604);
    there.mknod(&there.caller(), root, b"fifo", Kind::Fifo, mode, 0).expect("made");
    dress(&there, "/fifo", &[], None);

    let paths = ["/plain", "/sparse", "/stripped", "/dir", "/link", "/to_file", "/to_link", "/new", "/fifo"];
    let theirs = paths.map(|path| whole(&there, path));
    assert!(realm.merge(&|_| {}).expect("compared").stopped);
    // A file that was removed and made again is listed twice.
    let contested: BTreeSet<String> =
        realm.conflicts().expect("reported").into_iter().map(|conflict| conflict.path).collect();
    for path in &contested {
        let resolved = realm.resolve_conflict(path.as_bytes(), Choice::Theirs);
        resolved.unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    for (path, theirs) in paths.iter().zip(&theirs) {
        assert!(
            whole(here, path) == *theirs,
            "{path} here: {:?}, theirs {:?}",
            whole(here, path).0,
            theirs.0
        );
    }
    assert_eq!(here.lstat("/gone"), Err(Refusal::NotFound));
    let allocated = |client: &Client| client.lstat("/sparse").expect("there").allocated;
    assert!(allocated(here) <= allocated(&there), "the hole is filled: {} bytes", allocated(here));
    merge(&realm);
    for (path, theirs) in paths.iter().zip(&theirs) {
        let merged = whole(&there, path);
        assert!(
            merged == *theirs,
            "{path} merged: {:?} {:?}, theirs {:?} {:?}",
            merged.0,
            merged.2,
            theirs.0,
            theirs.2
        );
    }
    assert_eq!(there.lstat("/gone"), Err(Refusal::NotFound));
}

/// Equal contents under one name do not settle the others' changes to the file itself.
#[test]
fn equal_contents_do_not_settle_other_changes_to_the_file() {
    for is_moved_here in [false, true] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.embedded());
        ours.mkdir("/job");
        for file in ["a", "kept"] {
            ours.client.create_file(format!("/job/{file}"), b"before").expect("made");
        }
        let root = ours.client.stat("/job").expect("there").ino;
        let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
        let realm = ours.decouple(root, policy).expect("decoupled");
        let (here, there) = (realm.client(), others.client.rooted(root));
        here.write_file("/kept", b"by us").expect("written");
        let path = if is_moved_here {
            // Ours moves the file to a name at which theirs make one; theirs remove it.
            here.rename_path("/a", "/b").expect("moved");
            there.create_file("/b", b"theirs").expect("made");
            there.remove("/a").expect("removed");
            "b"
        } else {
            // Theirs move it away, and make another one in its place.
            here.write_file("/a", b"by us").expect("written");
            there.write_file("/a", b"by them").expect("written");
            there.rename_path("/a", "/c").expect("moved");
            there.create_file("/a", b"theirs").expect("made");
            "a"
        };
        assert!(realm.merge(&|_| {}).expect("compared").stopped);
        if !is_moved_here {
            // The file is under another name there: ours gives it that name, too.
            let refused = realm.resolve_conflict(b"a", Choice::Theirs).expect_err("two files");
            assert_eq!(refused.refusal(), Refusal::Exists);
            here.rename_path("/a", "/c").expect("moved");
        }
        for conflict in realm.conflicts().expect("reported") {
            realm.resolve_conflict(conflict.path.as_bytes(), Choice::Theirs).expect("resolved");
        }
        let report = realm.merge(&|_| {}).expect("merged");
        assert!(!report.stopped, "moved here: {is_moved_here}: {report:?}");
        assert_eq!(there.read_file(format!("/{path}")), Ok(b"theirs".to_vec()));
        assert_eq!(there.read_file("/c").ok(), (!is_moved_here).then(|| b"by them".to_vec()));
        assert_eq!(there.read_file("/kept"), Ok(b"by us".to_vec()));
    }
}

/// Equal files on both sides are matched once, whatever ours did to the name before.
#[test]
fn a_file_that_moved_and_is_the_same_on_both_sides_is_merged() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.embedded());
    ours.mkdir("/job");
    ours.client.create_file("/job/c", &[1; 20_000]).expect("made");
    let root = ours.client.stat("/job").expect("there").ino;
    let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
    let realm = ours.decouple(root, policy).expect("decoupled");
    let (here, there) = (realm.client(), others.client.rooted(root));
    there.set_attr_path("/c", AttrChange { size: Some(11), ..AttrChange::default() }).expect("cut");
    here.rename_path("/c", "/b").expect("moved");
    dress(here, "/b", &[], None);
    here.set_attr_path("/b", AttrChange { size: Some(11), ..AttrChange::default() }).expect("cut");
    dress(&there, "/c", &[], None);
    there.rename_path("/c", "/b").expect("moved");
    let report = realm.merge(&|_| {}).expect("merged");
    if report.stopped {
        assert_eq!(report.sent, 0, "{report:?}");
        for conflict in realm.conflicts().expect("reported") {
            realm.resolve_conflict(conflict.path.as_bytes(), Choice::Theirs).expect("resolved");
        }
        merge(&realm);
    }
    assert_eq!(there.read_file("/b"), Ok(vec![1; 11]));
    assert_eq!(there.lstat("/c"), Err(Refusal::NotFound));
}

/// A copy of a file of theirs takes the place of a file that ours removed, also if theirs changed or replaced that one.
#[test]
fn a_file_removed_here_and_resolved_to_theirs_conflicts_once() {
    for is_replaced in [false, true] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.embedded());
        ours.mkdir("/job");
        ours.client.create_file("/job/d", b"before").expect("made");
        let root = ours.client.stat("/job").expect("there").ino;
        let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
        let realm = ours.decouple(root, policy).expect("decoupled");
        let (here, there) = (realm.client(), others.client.rooted(root));
        here.remove("/d").expect("removed");
        if is_replaced {
            there.create_file("/new", b"theirs").expect("made");
            there.rename_path("/new", "/d").expect("replaced");
        } else {
            there.write_file("/d", b"theirs").expect("written");
        }
        assert!(realm.merge(&|_| {}).expect("compared").stopped);
        realm.resolve_conflict(b"d", Choice::Theirs).expect("resolved");
        let report = realm.merge(&|_| {}).expect("merged");
        assert!(!report.stopped && report.conflict_count == 0, "replaced: {is_replaced}: {report:?}");
        assert_eq!(there.read_file("/d"), Ok(b"theirs".to_vec()));
    }
}

/// A resolution concerns one path: other names of a file keep our version.
#[test]
fn one_name_of_a_file_is_resolved_to_theirs_and_the_other_keeps_ours() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.embedded());
    ours.mkdir("/job");
    ours.client.create_file("/job/a", b"before").expect("made");
    let root = ours.client.stat("/job").expect("there").ino;
    let file = ours.client.stat("/job/a").expect("there").ino;
    ours.client.link(&ours.client.caller(), file, root, b"b").expect("linked");
    let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
    let realm = ours.decouple(root, policy).expect("decoupled");
    let (here, there) = (realm.client(), others.client.rooted(root));
    here.write_file("/b", b"ours").expect("written");
    there.create_file("/new", b"theirs").expect("made");
    there.rename_path("/new", "/b").expect("replaced");
    let report = realm.merge(&|_| {}).expect("compared");
    assert!(report.stopped && report.conflicts.iter().all(|conflict| conflict.path == "b"), "{report:?}");
    realm.resolve_conflict(b"b", Choice::Theirs).expect("resolved");
    assert_eq!(here.read_file("/a"), Ok(b"ours".to_vec()));
    // Theirs took a name of the file, which counts as a change of it under the other.
    for conflict in realm.conflicts().expect("reported").into_iter().filter(|conflict| !conflict.resolved) {
        realm.resolve_conflict(conflict.path.as_bytes(), Choice::Ours).expect("resolved");
    }
    merge(&realm);
    assert_eq!(there.read_file("/a"), Ok(b"ours".to_vec()));
    assert_eq!(there.read_file("/b"), Ok(b"theirs".to_vec()));
}

/// Ours replaces a file of the others at a name, and then removes its own other name.
#[test]
fn a_file_whose_other_name_ours_replaces_gets_the_name_that_others_took() {
    for (on_conflict, beside) in [("overwrite", None), ("keep_both", Some("b.theirs"))] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.embedded());
        ours.mkdir("/job");
        ours.client.create_file("/job/a", b"before").expect("made");
        let root = ours.client.stat("/job").expect("there").ino;
        let file = ours.client.stat("/job/a").expect("there").ino;
        ours.client.link(&ours.client.caller(), file, root, b"b").expect("linked");
        let policy = format!(
            "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: {on_conflict}\n"
        );
        let realm = ours.decouple(root, &policy).expect("decoupled");
        let (here, there) = (realm.client(), others.client.rooted(root));
        here.write_file("/b", b"ours").expect("written");
        there.create_file("/new", b"theirs").expect("made");
        there.rename_path("/new", "/b").expect("replaced");
        here.create_file("/new", b"saved").expect("made");
        here.rename_path("/new", "/a").expect("saved");
        let report = merge(&realm);
        assert!(report.conflict_count > 0, "{report:?}");
        let names: BTreeSet<String> =
            there.list("/").expect("listed").into_iter().map(|entry| entry.name.to_string()).collect();
        let expect = ["a", "b"].into_iter().chain(beside).map(str::to_owned).collect();
        assert_eq!(names, expect, "{on_conflict}");
        assert_eq!(there.read_file("/a"), Ok(b"saved".to_vec()));
        assert_eq!(there.read_file("/b"), Ok(b"ours".to_vec()));
        if let Some(beside) = beside {
            assert_eq!(there.read_file(format!("/{beside}")), Ok(b"theirs".to_vec()));
        }
    }
}

/// Others saved a file anew. A further name of the old one that ours gave and took again leaves nothing to contradict that.
#[test]
fn a_link_that_is_removed_again_brings_no_file_back() {
    for (on_conflict, is_compared) in
        [("abort", false), ("abort", true), ("overwrite", false), ("keep_both", false)]
    {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.embedded());
        ours.mkdir("/job");
        ours.client.create_file("/job/d", b"before").expect("made");
        ours.client.create_file("/job/e", b"alone").expect("made");
        let root = ours.client.stat("/job").expect("there").ino;
        let policy = format!(
            "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: {on_conflict}\n"
        );
        let realm = ours.decouple(root, &policy).expect("decoupled");
        let (here, there) = (realm.client(), others.client.rooted(root));
        there.create_file("/new", b"theirs").expect("made");
        there.rename_path("/new", "/d").expect("saved");
        let (dir, caller) = (here.stat("/").expect("there").ino, here.caller());
        let mut changed = Time(0);
        for (file, link) in [("/d", "c"), ("/e", "f")] {
            here.link(&caller, here.stat(file).expect("there").ino, dir, link.as_bytes()).expect("linked");
            if is_compared && link == "c" {
                assert!(realm.merge(&|_| {}).expect("compared").stopped);
                realm.resolve_conflict(b"c", Choice::Theirs).expect("resolved");
                assert_eq!(here.lstat("/c"), Err(Refusal::NotFound));
                continue;
            }
            here.remove(format!("/{link}")).expect("removed");
            changed = here.lstat(file).expect("there").ctime;
        }
        let report = realm.merge(&|_| {}).expect("merged");
        assert!(report.ended && report.conflict_count == 0, "{on_conflict}: {report:?}");
        let names: BTreeSet<String> =
            there.list("/").expect("listed").into_iter().map(|entry| entry.name.to_string()).collect();
        assert_eq!(names, ["d", "e"].map(str::to_owned).into(), "{on_conflict}");
        assert_eq!(there.read_file("/d"), Ok(b"theirs".to_vec()), "{on_conflict}");
        assert_eq!(there.lstat("/e").expect("there").ctime, changed, "{on_conflict}");
    }
}

/// A file that ours wrote and then removed, and that others removed too, does not come back for a moment, also where its
/// name is another file's.
#[test]
fn a_file_removed_by_both_takes_no_name_from_others() {
    for is_name_taken in [false, true] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.embedded());
        ours.mkdir("/job");
        ours.client.create_file("/job/b", b"before").expect("made");
        let root = ours.client.stat("/job").expect("there").ino;
        let policy =
            "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: overwrite\n";
        let realm = ours.decouple(root, policy).expect("decoupled");
        let (here, there) = (realm.client(), others.client.rooted(root));
        // The merge gives the directory of ours the name, and puts the file of both beside it.
        here.mkdir_all("/d").expect("made");
        there.rename_path("/b", "/d").expect("moved");
        realm.sync(&|_| {}).expect("merged");
        assert_eq!(there.read_file("/d.theirs"), Ok(b"before".to_vec()));
        there.create_file("/new", b"theirs").expect("made");
        there.rename_path("/new", "/d.theirs").expect("saved");
        if is_name_taken {
            there.create_file("/b", b"another").expect("made");
        }
        here.write_file("/b", b"ours").expect("written");
        here.remove("/b").expect("removed");
        merge(&realm);
        assert_eq!(there.read_file("/d.theirs"), Ok(b"theirs".to_vec()), "name taken: {is_name_taken}");
        assert_eq!(there.lstat("/b"), Err(Refusal::NotFound));
    }
}

/// A file was made in a directory, and moved out of it, which others removed meanwhile.
#[test]
fn a_name_that_passed_through_a_removed_directory_is_compared() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.embedded());
    ours.mkdir("/job");
    ours.client.mkdir_all("/job/dir").expect("made");
    let root = ours.client.stat("/job").expect("there").ino;
    let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
    let realm = ours.decouple(root, policy).expect("decoupled");
    let (here, there) = (realm.client(), others.client.rooted(root));
    there.remove("/dir").expect("removed");
    here.create_file("/dir/new", b"ours").expect("made");
    here.rename_path("/dir/new", "/f").expect("moved");
    let report = realm.merge(&|_| {}).expect("compared");
    assert!(report.stopped && report.sent == 0, "{report:?}");
    for conflict in realm.conflicts().expect("reported") {
        realm.resolve_conflict(conflict.path.as_bytes(), Choice::Ours).expect("resolved");
    }
    assert!(merge(&realm).ended);
    assert_eq!(there.read_file("/f"), Ok(b"ours".to_vec()));
}

/// A file that is at the path here or was, and that others have elsewhere, is not lost by a resolution to theirs.
#[test]
fn theirs_is_refused_where_others_have_the_file_under_another_name() {
    type Deed = fn(&Client);
    let edits: Deed = |c| c.write_file("/f", b"ours").expect("written");
    let removes: Deed = |c| c.remove("/f").expect("removed");
    let renames: Deed = |c| c.rename_path("/f", "/mine").expect("renamed");
    let covers: Deed = |c| c.rename_path("/o", "/f").expect("renamed");
    let moves: Deed = |c| c.rename_path("/f", "/theirs").expect("renamed");
    let moves_and_edits: Deed = |c| {
        c.write_file("/f", b"theirs").expect("written");
        c.rename_path("/f", "/theirs").expect("renamed");
    };
    let writes: Deed = |c| c.write_file("/f", b"theirs").expect("written");
    for (ours_does, others_do) in [
        (edits, moves),
        (edits, moves_and_edits),
        (removes, moves),
        (removes, moves_and_edits),
        (renames, moves),
        (covers, writes),
        (covers, moves_and_edits),
    ] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.embedded());
        ours.mkdir("/job");
        for (file, content) in [("/job/f", b"before"), ("/job/o", b"-other")] {
            ours.client.create_file(file, content).expect("made");
        }
        let root = ours.client.stat("/job").expect("there").ino;
        let policy = "consistency: weak\ndurability: local\ninterfere_policy: allow\non_conflict: abort\n";
        let realm = ours.decouple(root, policy).expect("decoupled");
        let (here, there) = (realm.client(), others.client.rooted(root));
        ours_does(here);
        others_do(&there);
        assert!(realm.merge(&|_| {}).expect("compared").stopped);
        let mut is_refused = false;
        for conflict in realm.conflicts().expect("reported") {
            match realm.resolve_conflict(conflict.path.as_bytes(), Choice::Theirs) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.refusal(), Refusal::Exists, "{error}");
                    is_refused = true;
                }
            }
        }
        assert!(is_refused, "{:?}", realm.conflicts());
        assert!(realm.merge(&|_| {}).expect("compared").stopped);
        let content = |path: &str| there.read_file(path).ok();
        let files = ["/f", "/theirs", "/mine"].iter().filter_map(|path| content(path)).count();
        assert!(files >= 1 && content("/o").is_some(), "nothing is lost");
    }
}
