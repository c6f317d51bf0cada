//! Contents of files that two branches changed: one side's version stays whole, and the other is kept or named, or
//! texts are merged (S105 to S107 of semantics.md).

use std::sync::Arc;

use chiton_client::{Client, OpenFlags};
use chiton_decoupled::{MergeReport, Realm};
use chiton_model::{AttrChange, SetTime, XattrHow};
use chiton_policy::OnConflict;
use chiton_types::{Attr, Ino, Mode, Refusal, Time};

use crate::site::{Party, Site, merge};

/// Over the limit of inline content.
const LARGE: usize = 20_000;

fn of(byte: u8) -> Vec<u8> {
    vec![byte; LARGE]
}

fn write_at(client: &Client, path: &str, offset: u64, bytes: &[u8]) {
    let fh = client.open_path(path, OpenFlags::READ_WRITE).expect("there");
    client.write(&client.caller(), fh, offset, bytes).expect("written");
    client.release(fh).expect("closed");
}

/// As editors save: a new file takes the place of the old.
fn save(client: &Client, path: &str, content: &[u8]) {
    let temporary = format!("{path}.tmp");
    client.create_file(&temporary, content).expect("made");
    client.rename_path(&temporary, path).expect("renamed");
}

fn dress(client: &Client, path: &str, mode: u16, value: &str, time: i64) {
    let (ino, caller) = (client.stat(path).expect("there").ino, client.caller());
    client.setxattr(&caller, ino, b"user.k", value.as_bytes(), XattrHow::Set).expect("set");
    let change =
        AttrChange { mode: Some(Mode(mode)), mtime: Some(SetTime::At(Time(time))), ..AttrChange::default() };
    client.setattr(&caller, ino, change, None).expect("set");
}

fn dressed(client: &Client, path: &str) -> (u16, String, i64) {
    let attr = client.stat(path).expect("there");
    let value = client.getxattr(&client.caller(), attr.ino, b"user.k").expect("set");
    (attr.mode.0, String::from_utf8(value).expect("text"), attr.mtime.0)
}

/// Two branches of a directory in which `base` made files.
struct Two {
    _site: Site,
    party: Party,
    root: Ino,
    one: Arc<Realm>,
    two: Arc<Realm>,
}

fn two(base: impl FnOnce(&Client)) -> Two {
    let site = Site::new();
    let party = site.connected();
    let root = party.mkdir("/t").ino;
    base(&party.client);
    let one = party.branch(root, "one").expect("made");
    let two = party.branch(root, "two").expect("made");
    Two { _site: site, party, root, one, two }
}

impl Two {
    fn merged(&self, on_conflict: OnConflict) -> MergeReport {
        assert_eq!(merge(&self.one).conflict_count, 0);
        let report = self.two.merge_with(Some(on_conflict), &|_| {}).expect("merged");
        assert!(report.ended && report.lost_count == 0, "{report:?}");
        report
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Refusal> {
        self.party.client.read_file(path)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .party
            .client
            .list("/t")
            .expect("a directory")
            .into_iter()
            .map(|e| e.name.to_string())
            .collect();
        names.sort();
        names
    }
}

fn mixed(a: &[(usize, usize, u8)]) -> Vec<u8> {
    let mut content = of(b'.');
    a.iter().for_each(|(from, to, byte)| content[*from..*to].fill(*byte));
    content
}

#[test]
fn of_a_file_that_both_wrote_in_part_one_is_there_whole() {
    for on_conflict in [OnConflict::Overwrite, OnConflict::KeepBoth] {
        let t = two(|base| base.write_file("/t/f", &of(b'.')).expect("written"));
        write_at(t.one.client(), "/f", 3_000, &[b'1'; 9_000]);
        dress(t.one.client(), "/f", 0o640, "first", 111);
        write_at(t.two.client(), "/f", 9_000, &[b'2'; 9_000]);
        dress(t.two.client(), "/f", 0o755, "second", 222);
        let report = t.merged(on_conflict);
        assert_eq!(report.conflict_count, 1, "{report:?}");
        assert_eq!(t.read("/t/f"), Ok(mixed(&[(9_000, 18_000, b'2')])));
        assert_eq!(dressed(&t.party.client, "/t/f"), (0o755, "second".to_owned(), 222));
        if on_conflict == OnConflict::Overwrite {
            assert_eq!(t.names(), ["f"]);
        } else {
            assert_eq!(t.names(), ["f", "f.theirs"]);
            assert_eq!(t.read("/t/f.theirs"), Ok(mixed(&[(3_000, 12_000, b'1')])));
            assert_eq!(dressed(&t.party.client, "/t/f.theirs"), (0o640, "first".to_owned(), 111));
        }
    }
}

#[test]
fn truncation_and_partial_writes_are_not_mixed() {
    for on_conflict in [OnConflict::Overwrite, OnConflict::KeepBoth] {
        let t = two(|base| {
            base.write_file("/t/f", &of(b'.')).expect("written");
            base.write_file("/t/g", b"small").expect("written");
        });
        t.one.client().write_file("/f", b"small now").expect("written");
        t.one.client().write_file("/g", &of(b'1')).expect("written");
        write_at(t.two.client(), "/f", 100, b"22");
        write_at(t.two.client(), "/g", 0, b"S");
        assert_eq!(t.merged(on_conflict).conflict_count, 2);
        assert_eq!(t.read("/t/f"), Ok(mixed(&[(100, 102, b'2')])));
        assert_eq!(t.read("/t/g"), Ok(b"Small".to_vec()));
        if on_conflict == OnConflict::KeepBoth {
            assert_eq!(t.read("/t/f.theirs"), Ok(b"small now".to_vec()));
            assert_eq!(t.read("/t/g.theirs"), Ok(of(b'1')));
        }
    }
}

#[test]
fn a_merge_after_a_sync_builds_on_the_sync() {
    let t = two(|base| base.write_file("/t/f", &of(b'.')).expect("written"));
    write_at(t.two.client(), "/f", 0, b"22");
    assert_eq!(t.two.sync(&|_| {}).expect("synced").conflict_count, 0);
    write_at(t.one.client(), "/f", 10_000, b"11");
    assert_eq!(merge(&t.one).conflict_count, 1, "the sync of the other is what others did");
    write_at(t.two.client(), "/f", 15_000, b"22");
    assert_eq!(merge(&t.two).conflict_count, 1);
    assert_eq!(t.read("/t/f"), Ok(mixed(&[(0, 2, b'2'), (15_000, 15_002, b'2')])));
}

#[test]
fn attributes_set_by_ours_keep_the_content_that_theirs_wrote_until_ours_writes() {
    let t = two(|base| {
        base.write_file("/t/f", &of(b'.')).expect("written");
        base.write_file("/t/g", &of(b'.')).expect("written");
    });
    for path in ["/f", "/g"] {
        write_at(t.one.client(), path, 0, b"11");
        dress(t.two.client(), path, 0o700, "two", 5);
    }
    write_at(t.two.client(), "/g", 9_000, b"22");
    dress(t.two.client(), "/g", 0o700, "two", 5);
    t.merged(OnConflict::Overwrite);
    assert_eq!(t.read("/t/f"), Ok(mixed(&[(0, 2, b'1')])));
    assert_eq!(t.read("/t/g"), Ok(mixed(&[(9_000, 9_002, b'2')])));
    for path in ["/t/f", "/t/g"] {
        assert_eq!(dressed(&t.party.client, path), (0o700, "two".to_owned(), 5));
    }
}

/// Copies a file by sharing its blocks, as `cp` does.
fn copy(client: &Client, from: &str, to: &str) {
    let caller = client.caller();
    client.create_file(to, b"").expect("made");
    let from = client.open_path(from, OpenFlags::READ).expect("there");
    let to = client.open_path(to, OpenFlags::READ_WRITE).expect("there");
    assert_eq!(client.copy_range(&caller, from, 0, to, 0, LARGE as u64), Ok(LARGE as u64));
    client.release(to).expect("closed");
    client.release(from).expect("closed");
}

/// S105: copies of one file, before and after the merge of the first, have what ours saw, and do not make the file itself that
/// of the others.
#[test]
fn copies_have_their_makers_version_and_leave_the_source_as_it_was() {
    type Deed = fn(&Client);
    let stays: Deed = |_| {};
    let saved: Deed = |theirs| save(theirs, "/f", b"new");
    let removed: Deed = |theirs| theirs.remove("/f").expect("removed");
    for (n, after) in [stays, saved, removed].into_iter().enumerate() {
        for is_written in [false, true] {
            let t = two(|base| base.write_file("/t/f", &of(b'.')).expect("written"));
            write_at(t.one.client(), "/f", 0, &of(b'1'));
            after(t.one.client());
            let ours = t.two.client();
            copy(ours, "/f", "/copy");
            copy(ours, "/f", "/second");
            if is_written {
                write_at(ours, "/f", 9_000, b"22");
            }
            t.merged(OnConflict::Overwrite);
            assert_eq!(t.read("/t/copy"), Ok(of(b'.')), "{n} {is_written}");
            assert_eq!(t.read("/t/second"), Ok(of(b'.')), "{n} {is_written}");
            let expect = match (is_written, n) {
                (true, _) => Ok(mixed(&[(9_000, 9_002, b'2')])),
                (false, 0) => Ok(of(b'1')),
                (false, 1) => Ok(b"new".to_vec()),
                (false, _) => Err(Refusal::NotFound),
            };
            assert_eq!(t.read("/t/f"), expect, "{n} {is_written}");
        }
    }
}

/// A copy changes nothing of its source, so it contradicts no change of that.
#[test]
fn a_copy_that_others_made_is_no_conflict_with_a_change_of_the_source() {
    let t = two(|base| base.write_file("/t/f", &of(b'.')).expect("written"));
    copy(t.one.client(), "/f", "/copy");
    write_at(t.two.client(), "/f", 9_000, b"22");
    let report = t.merged(OnConflict::KeepBoth);
    assert_eq!(
        (report.conflict_count, t.names()),
        (0, vec!["copy".to_owned(), "f".to_owned()]),
        "{report:?}"
    );
    assert_eq!(t.read("/t/copy"), Ok(of(b'.')));
    assert_eq!(t.read("/t/f"), Ok(mixed(&[(9_000, 9_002, b'2')])));
}

#[test]
fn however_theirs_saved_ours_has_the_name_and_theirs_goes_or_stands_beside_it() {
    for on_conflict in [OnConflict::Overwrite, OnConflict::KeepBoth] {
        for (theirs_saves, ours_saves) in [(true, false), (false, true), (true, true)] {
            let t = two(|base| base.write_file("/t/f", &of(b'.')).expect("written"));
            match theirs_saves {
                true => save(t.one.client(), "/f", b"theirs"),
                false => t.one.client().write_file("/f", b"theirs").expect("written"),
            }
            match ours_saves {
                true => save(t.two.client(), "/f", &mixed(&[(7, 8, b'2')])),
                false => write_at(t.two.client(), "/f", 7, b"2"),
            }
            let report = t.merged(on_conflict);
            assert_eq!(report.conflict_count, 1, "{report:?}");
            assert_eq!(t.read("/t/f"), Ok(mixed(&[(7, 8, b'2')])), "{theirs_saves} {ours_saves}");
            let expect: &[&str] =
                if on_conflict == OnConflict::Overwrite { &["f"] } else { &["f", "f.theirs"] };
            assert_eq!(t.names(), expect, "{theirs_saves} {ours_saves}");
        }
    }
}

#[test]
fn directories_of_one_name_become_one_though_one_branch_was_made_later() {
    let site = Site::new();
    let party = site.connected();
    let root = party.mkdir("/t").ino;
    let one = party.branch(root, "one").expect("made");
    one.client().mkdir_all("/new").expect("made");
    one.client().create_file("/new/one", b"1").expect("made");
    one.client().create_file("/file", b"1").expect("made");
    let two = party.branch(root, "two").expect("made");
    two.client().mkdir_all("/new").expect("made");
    two.client().create_file("/new/two", b"2").expect("made");
    two.client().create_file("/file", b"2").expect("made");
    merge(&one);
    let paths: Vec<String> =
        two.diff().expect("reported").conflicts.into_iter().map(|line| line.path).collect();
    assert_eq!(paths, ["file"]);
    let stopped = two.merge_with(Some(OnConflict::Abort), &|_| {}).expect("answered");
    assert!(stopped.stopped && stopped.sent == 0, "{stopped:?}");
    assert_eq!(merge(&two).conflict_count, 1);
    let found: Vec<String> = crate::tree::tree(&party.client, "/t").into_keys().collect();
    assert_eq!(found, ["/file", "/new", "/new/one", "/new/two"]);
    assert_eq!(party.client.read_file("/t/file"), Ok(b"2".to_vec()));
}

const BASE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";

#[test]
fn texts_of_which_both_changed_other_lines_become_one_however_both_saved() {
    for (theirs_saves, ours_saves) in [(false, false), (true, false), (false, true), (true, true)] {
        let t = two(|base| base.write_file("/t/f", BASE.as_bytes()).expect("written"));
        for (realm, saves, from, to) in
            [(&t.one, theirs_saves, "one", "ONE"), (&t.two, ours_saves, "six", "SIX")]
        {
            let content = BASE.replace(from, to).into_bytes();
            match saves {
                true => save(realm.client(), "/f", &content),
                false => realm.client().write_file("/f", &content).expect("written"),
            }
        }
        dress(t.one.client(), "/f", 0o640, "first", 1);
        let report = t.merged(OnConflict::Merge);
        let outcomes: Vec<&str> = report.conflicts.iter().map(|line| &line.resolution[..]).collect();
        assert_eq!(outcomes, ["merged line by line"], "{theirs_saves} {ours_saves}: {report:?}");
        let expect = BASE.replace("one", "ONE").replace("six", "SIX");
        assert_eq!(String::from_utf8(t.read("/t/f").expect("there")), Ok(expect));
        assert_eq!(t.names(), ["f"]);
        let (mode, value, _) = dressed(&t.party.client, "/t/f");
        assert_eq!((mode, &value[..]), (0o640, "first"), "what theirs alone set");
    }
}

#[test]
fn unmergeable_and_binary_files_are_both_kept() {
    let t = two(|base| {
        for path in ["/t/lines", "/t/binary", "/t/linked"] {
            base.write_file(path, BASE.as_bytes()).expect("written");
        }
        let ino = base.stat("/t/linked").expect("there").ino;
        let dir = base.stat("/t").expect("there").ino;
        base.link(&base.caller(), ino, dir, b"other").expect("linked");
    });
    for (realm, to) in [(&t.one, "uno"), (&t.two, "eins")] {
        realm.client().write_file("/lines", BASE.replace("one", to).as_bytes()).expect("written");
        realm.client().write_file("/binary", format!("{to}\0").as_bytes()).expect("written");
        realm.client().write_file("/new", to.as_bytes()).expect("written");
        realm.client().write_file("/linked", to.as_bytes()).expect("written");
    }
    assert_eq!(t.merged(OnConflict::Merge).conflict_count, 4);
    assert_eq!(
        t.names(),
        [
            "binary",
            "binary.theirs",
            "lines",
            "lines.theirs",
            "linked",
            "linked.theirs",
            "new",
            "new.theirs",
            "other"
        ]
    );
    assert_eq!(t.read("/t/lines"), Ok(BASE.replace("one", "eins").into_bytes()));
    assert_eq!(t.read("/t/lines.theirs"), Ok(BASE.replace("one", "uno").into_bytes()));
}

#[test]
fn equal_changes_are_no_conflict() {
    for on_conflict in [OnConflict::Overwrite, OnConflict::KeepBoth, OnConflict::Abort, OnConflict::Merge] {
        let t = two(|base| base.write_file("/t/f", &of(b'.')).expect("written"));
        for (realm, saves) in [(&t.one, true), (&t.two, false)] {
            match saves {
                true => save(realm.client(), "/f", &of(b'x')),
                false => realm.client().write_file("/f", &of(b'x')).expect("written"),
            }
            realm.client().write_file("/new", &of(b'n')).expect("written");
        }
        merge(&t.one);
        assert_eq!(t.two.diff().expect("reported").conflicts, []);
        let report = t.two.merge_with(Some(on_conflict), &|_| {}).expect("merged");
        assert!(report.ended && report.conflict_count == 0, "{report:?}");
        assert_eq!(t.names(), ["f", "new"]);
        assert_eq!((t.read("/t/f"), t.read("/t/new")), (Ok(of(b'x')), Ok(of(b'n'))));
    }
}

/// The merged text is written as ours, and the client dies before the merge. The next client merges it again, and
/// no line appears twice.
#[test]
fn a_client_death_after_a_text_merge_merges_the_text_once() {
    let t = two(|base| base.write_file("/t/f", BASE.as_bytes()).expect("written"));
    t.one.client().write_file("/f", BASE.replace("one", "ONE").as_bytes()).expect("written");
    merge(&t.one);
    // As the client left it: its own content has the lines of both, and the server was not notified.
    let both = BASE.replace("one", "ONE").replace("six", "SIX");
    t.two.client().write_file("/f", both.as_bytes()).expect("written");
    t.two.client().sync().expect("durable");
    t.two.abandon();
    let two = t.party.realms.open_branch(t.root, two_name()).expect("gone on with");
    let report = two.merge_with(Some(OnConflict::Merge), &|_| {}).expect("merged");
    assert!(report.ended, "{report:?}");
    assert_eq!(String::from_utf8(t.read("/t/f").expect("there")), Ok(both));
    assert_eq!(t.names(), ["f"]);
}

fn two_name() -> &'static chiton_types::Name {
    static NAME: std::sync::OnceLock<chiton_types::Name> = std::sync::OnceLock::new();
    NAME.get_or_init(|| chiton_types::Name::new(b"two").expect("a name"))
}

#[test]
fn a_file_that_was_unlinked_while_open_is_there_after_the_merge() {
    let site = Site::new();
    let party = site.connected();
    let realm = party.take("/job", "consistency: weak\ndurability: local\n");
    let ours = realm.client();
    ours.create_file("/made", &of(b'm')).expect("made");
    ours.create_file("/tiny", b"tiny").expect("made");
    let open = |path: &str| -> (Attr, u64) {
        let attr = ours.stat(path).expect("there");
        let fh = ours.open(&ours.caller(), attr.ino, OpenFlags::READ).expect("opened");
        ours.remove(path).expect("removed");
        (attr, fh)
    };
    let (made, tiny) = (open("/made").0, open("/tiny").0);
    merge(&realm);
    let global = &party.client;
    for (attr, content) in [(made, of(b'm')), (tiny, b"tiny".to_vec())] {
        let fh = global.open(&global.caller(), attr.ino, OpenFlags::READ).expect("held");
        assert_eq!(global.read(fh, 0, LARGE), Ok(content));
        global.release(fh).expect("closed");
    }
    assert_eq!(global.list("/job").expect("a directory").len(), 0);
}

/// S105: a file that ours changed and then removed does not conflict with a removal by others, if no trace of the
/// change is left.
#[test]
fn a_file_removed_by_both_is_gone_whatever_ours_did_before() {
    let base = |client: &Client| {
        for file in ["edited", "moved", "over", "into", "linked", "kept"] {
            client.create_file(format!("/t/{file}"), &of(1)).expect("made");
        }
        for dir in ["dir", "through"] {
            client.mkdir_all(format!("/t/{dir}")).expect("made");
        }
    };
    let remove = |client: &Client, paths: &[&str]| {
        paths.iter().for_each(|path| client.remove(path).unwrap_or_else(|e| panic!("{path}: {e}")));
    };
    for on_conflict in [OnConflict::Abort, OnConflict::KeepBoth, OnConflict::Overwrite] {
        let two = two(base);
        let (one, theirs) = (two.one.client(), two.two.client());
        write_at(one, "/edited", 5, b"ours");
        dress(one, "/edited", 0o600, "ours", 9);
        one.rename_path("/moved", "/over").expect("moved");
        dress(one, "/dir", 0o700, "ours", 9);
        one.rename_path("/into", "/dir/into").expect("moved");
        one.create_file("/dir/new", b"new").expect("made");
        let (root, caller) = (one.root(), one.caller());
        let file = one.stat("/linked").expect("there").ino;
        one.link(&caller, file, root, b"further").expect("linked");
        remove(one, &["/edited", "/over", "/dir/into", "/dir/new", "/dir", "/linked", "/further"]);
        write_at(theirs, "/edited", 9, b"theirs");
        remove(theirs, &["/edited", "/moved", "/into", "/dir", "/linked"]);
        two.two.merge(&|_| {}).expect("merged");
        let report = two.one.merge_with(Some(on_conflict), &|_| {}).expect("merged");
        assert!(!report.stopped && report.conflict_count == 0, "{on_conflict:?}: {report:?}");
        // The same for a file that ours replaced.
        assert_eq!(two.names(), ["kept", "through"], "{on_conflict:?}");
    }
    // Ours moved a file through a directory that others removed: a conflict. The merge reports it before it sends
    // anything.
    let two = two(base);
    let one = two.one.client();
    write_at(one, "/kept", 5, b"ours");
    one.create_file("/through/new", b"new").expect("made");
    one.rename_path("/through/new", "/new").expect("moved");
    remove(one, &["/through"]);
    remove(two.two.client(), &["/through"]);
    two.two.merge(&|_| {}).expect("merged");
    assert!(two.one.conflicts().expect("reported").iter().any(|one| one.path == "through"));
    let report = two.one.merge_with(Some(OnConflict::Abort), &|_| {}).expect("compared");
    assert!(report.stopped && report.sent == 0, "{report:?}");
    assert_eq!(two.read("/t/kept"), Ok(of(1)));
}

/// S105: a temporary name of ours prevents nothing, or is a conflict before anything is merged.
#[test]
fn names_that_are_given_up_again_do_not_stop_a_merge_in_its_midst() {
    let base = |client: &Client| {
        for file in ["a", "b", "kept"] {
            client.create_file(format!("/t/{file}"), &of(1)).expect("made");
        }
    };
    let link = |client: &Client, from: &str, to: &str| {
        let ino = client.stat(from).expect("there").ino;
        client.link(&client.caller(), ino, client.root(), to.as_bytes()).expect("linked");
    };
    let two_of = |ours: &dyn Fn(&Client), theirs: &dyn Fn(&Client)| {
        let two = two(base);
        write_at(two.one.client(), "/kept", 5, b"ours");
        ours(two.one.client());
        theirs(two.two.client());
        two.two.merge(&|_| {}).expect("merged");
        two
    };
    // Theirs has a file where ours had a further name of one.
    let two = two_of(
        &|ours| {
            ours.create_file("/new", b"new").expect("made");
            for from in ["/a", "/new"] {
                link(ours, from, "passing");
                ours.remove("/passing").expect("removed");
            }
        },
        &|theirs| theirs.write_file("/passing", b"theirs").expect("made"),
    );
    let report = two.one.merge_with(Some(OnConflict::Abort), &|_| {}).expect("merged");
    assert!(!report.stopped && report.conflict_count == 0, "{report:?}");
    assert_eq!(two.names(), ["a", "b", "kept", "new", "passing"]);
    assert_eq!(two.read("/t/passing"), Ok(b"theirs".to_vec()));

    // Ours moves a file over there, or there and back, where theirs did something.
    type Act<'a> = &'a dyn Fn(&Client);
    let there_and_back: Act<'_> = &|ours| {
        ours.rename_path("/a", "/passing").expect("moved");
        ours.rename_path("/passing", "/a").expect("moved");
    };
    let on: Act<'_> = &|ours| {
        ours.rename_path("/a", "/passing").expect("moved");
        ours.rename_path("/passing", "/c").expect("moved");
    };
    let puts: Act<'_> = &|theirs| theirs.write_file("/passing", b"theirs").expect("made");
    let removes: Act<'_> = &|theirs| theirs.remove("/a").expect("removed");
    let moves: Act<'_> = &|theirs| theirs.rename_path("/a", "/d").expect("moved");
    for (ours, theirs, path) in [
        (there_and_back, puts, "passing"),
        (on, puts, "passing"),
        (there_and_back, removes, "a"),
        (there_and_back, moves, "a"),
    ] {
        let two = two_of(ours, theirs);
        let conflicts = two.one.conflicts().expect("reported");
        assert!(conflicts.iter().any(|conflict| conflict.path == path), "{path}: {conflicts:?}");
        let report = two.one.merge_with(Some(OnConflict::Abort), &|_| {}).expect("compared");
        assert!(report.stopped && report.sent == 0, "{path}: {report:?}");
        assert_eq!(two.read("/t/kept"), Ok(of(1)));
        let diff = two.one.diff().expect("reported");
        assert!(
            diff.conflicts.iter().any(|line| diff.changes.iter().all(|change| change.path != line.path)),
            "{diff:?}"
        );
    }
    // Without a change by others there is no conflict.
    let two = two_of(there_and_back, &|_| {});
    assert_eq!(two.one.diff().expect("reported").conflicts, []);
}
