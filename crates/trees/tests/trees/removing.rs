//! rm -r.

use std::sync::atomic::{AtomicBool, Ordering};

use chiton_model::AttrChange;
use chiton_trees::{Removed, remove, remove_each};
use chiton_types::{Mode, Refusal};

use crate::site::{Kept, PLATES, Site, chmod, fill, grow, place};

#[test]
fn everything_goes_and_nothing_else() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        client.mkdir_all("/kept/inside").expect("made");
        grow(&client, "/tree");
        let root = client.stat("/").expect("there").ino;
        client.symlink(&client.caller(), root, b"link", b"/kept").expect("made");
        let mut kept = Kept::default();
        let places = [place(&client, "/tree"), place(&client, "/link")];
        let done = remove_each(&client, &places, &mut kept);
        assert_eq!(kept.refused, [], "{plates} plates");
        let files = 12 * 7 + 11 + 1 + 1;
        assert_eq!(done, Removed { files, dirs: 1 + 12 + 60, ..Removed::default() });
        let left: Vec<String> =
            client.list("/").expect("listed").iter().map(|entry| entry.name.to_string()).collect();
        assert_eq!(left, ["kept"]);
        assert!(client.stat("/kept/inside").is_ok(), "links are not followed");
    }
}

#[test]
fn ten_thousand_names_take_few_messages() {
    const FILES: usize = 10_000;
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        fill(&client, "/tree", FILES);
        let before = client.messages();
        let done = remove_each(&client, &[place(&client, "/tree")], &mut Kept::default());
        let messages = client.messages() - before;
        assert_eq!(done, Removed { files: 10_000, dirs: 101, ..Removed::default() });
        // A question for each directory; the rest goes a thousand at a time.
        assert!(messages < 250, "{messages} messages, {plates} plates");
        assert_eq!(client.list("/").expect("listed").len(), 0);
    }
}

#[test]
fn a_tree_leaves_as_a_whole_on_one_plate_and_on_several() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        fill(&client, "/tree", 1_000);
        client.create_file("/file", b"x").expect("made");
        // Names that the client has acknowledged and not yet sent go with the tree.
        client.create_file("/tree/many-0/last", b"x").expect("made");
        let (before, places) = (client.messages(), [place(&client, "/tree"), place(&client, "/file")]);
        let mut kept = Kept::default();
        let done = remove(&client, &places, &mut kept);
        assert_eq!(kept.refused, []);
        assert_eq!(done, Removed { files: 1, trees: 1, ..Removed::default() }, "{plates} plates");
        assert!(client.messages() - before < 20, "no question for each directory, {plates} plates");
        assert_eq!(client.list("/").expect("listed").len(), 0);
        assert_eq!(client.stat("/tree").err(), Some(Refusal::NotFound));
        client.mkdir_all("/tree").expect("the name is free");
        assert_eq!(client.list("/tree").expect("listed").len(), 0);
        while client.statfs().expect("asked").inodes_used > 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        client.sync().expect("nothing of its own is lost");
    }
}

#[test]
fn names_of_one_directory_come_by_pages() {
    let site = Site::new(1);
    let client = site.client();
    client.mkdir_all("/wide").expect("made");
    let names: Vec<String> = (0..9_000).map(|n| format!("file-{n}")).collect();
    assert!(client.create_many("/wide", &names).expect("asked").iter().all(Result::is_ok));
    let done = remove_each(&client, &[place(&client, "/wide")], &mut Kept::default());
    assert_eq!(done, Removed { files: 9_000, dirs: 1, ..Removed::default() });
}

#[test]
fn refusals_are_reported_and_the_rest_goes() {
    for plates in PLATES {
        let site = Site::new(plates);
        let root = site.client();
        for dir in ["open", "open/below", "closed", "closed/below", "hidden", "hidden/below", "void"] {
            root.mkdir_all(format!("/tree/{dir}")).expect("made");
            root.create_file(format!("/tree/{dir}/file"), b"x").expect("made");
        }
        root.remove("/tree/void/file").expect("removed");
        let own = AttrChange { uid: Some(1000), ..AttrChange::default() };
        for path in
            ["/tree", "/tree/open", "/tree/open/below", "/tree/closed/below", "/tree/hidden", "/tree/void"]
        {
            root.set_attr_path(path, own).expect("changed");
        }
        // Nothing in it can be removed; nothing in the others can be listed, and one of them is empty.
        chmod(&root, "/tree/closed", 0o755);
        chmod(&root, "/tree/hidden", 0o300);
        chmod(&root, "/tree/void", 0o300);
        let user = root.acting_as(1000, 1000, &[]);
        let mut kept = Kept::default();
        let done = remove(&user, &[place(&user, "/tree")], &mut kept);
        kept.refused.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            // Its own file could go, and did; its name could not.
            ("/tree/closed/below".to_owned(), "remove", Refusal::Access),
            ("/tree/closed/file".to_owned(), "remove", Refusal::Access),
            ("/tree/hidden".to_owned(), "list", Refusal::Access),
        ];
        assert_eq!(kept.refused, expected, "{plates} plates: {done:?}");
        assert_eq!((done.files, done.dirs, done.refused), (3, 3, 3));
        assert!(root.stat("/tree/hidden/below/file").is_ok() && root.stat("/tree/closed/below").is_ok());
        assert_eq!(root.stat("/tree/open").err(), Some(Refusal::NotFound));
        assert_eq!(root.stat("/tree/void").err(), Some(Refusal::NotFound));
        // Root continues.
        let mut kept = Kept::default();
        remove(&root, &[place(&root, "/tree")], &mut kept);
        assert_eq!((kept.refused, root.stat("/tree").err()), (vec![], Some(Refusal::NotFound)));
    }
}

#[test]
fn changes_of_others_meanwhile_do_no_harm() {
    for plates in PLATES {
        let site = Site::new(plates);
        let (client, other) = (site.client(), site.client());
        fill(&client, "/tree", 6_000);
        other.mkdir_all("/elsewhere").expect("made");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                let mut made = 0;
                for n in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let dir = format!("/tree/many-{}", 59 - n % 60);
                    // Removed before, made in time, or moved out of the tree.
                    let _ = other.remove(format!("{dir}/file-{}", n % 100));
                    made += u64::from(other.create_file(format!("{dir}/new-{n}"), b"new").is_ok());
                    let _ =
                        other.rename_path(format!("{dir}/file-{}", (n + 1) % 100), format!("/elsewhere/{n}"));
                }
                made
            });
            let mut kept = Kept::default();
            let done = remove(&client, &[place(&client, "/tree")], &mut kept);
            is_over.store(true, Ordering::Relaxed);
            let made = busy.join().expect("no panic");
            let of_others = |(_, _, refusal): &(String, &str, Refusal)| *refusal == Refusal::NotEmpty;
            assert!(kept.refused.iter().all(of_others), "{:?}", kept.refused);
            assert!(done.files <= 6_000 + made, "{done:?}");
        });
        let mut kept = Kept::default();
        if client.stat("/tree").is_ok() {
            remove(&client, &[place(&client, "/tree")], &mut kept);
        }
        assert_eq!((kept.refused, client.stat("/tree").err()), (vec![], Some(Refusal::NotFound)));
        for moved in client.list("/elsewhere").expect("listed") {
            let found = client.stat(format!("/elsewhere/{}", moved.name)).map(|attr| attr.ino);
            assert_eq!(found, Ok(moved.ino), "what was moved out stays");
        }
    }
}

#[test]
fn work_ends_between_batches_and_can_be_continued() {
    let site = Site::new(3);
    let client = site.client();
    fill(&client, "/tree", 30_000);
    let mut kept = Kept { ends_after: Some(1_000), ..Kept::default() };
    let done = remove_each(&client, &[place(&client, "/tree")], &mut kept);
    assert!(done.stopped && done.files > 1_000 && done.files < 30_000, "{done:?}");
    assert_eq!(kept.refused, []);
    let rest = remove_each(&client, &[place(&client, "/tree")], &mut Kept::default());
    assert_eq!((done.files + rest.files, done.dirs + rest.dirs), (30_000, 301));
}

#[test]
fn sticky_directories_protect_files_of_others() {
    let site = Site::new(1);
    let root = site.client();
    root.mkdir_all("/tmp").expect("made");
    chmod(&root, "/tmp", 0o1777);
    root.create_file("/tmp/of-root", b"x").expect("made");
    let user = root.acting_as(1000, 1000, &[]);
    let dir = root.stat("/tmp").expect("there").ino;
    user.mkdir(&user.caller(), dir, b"own", Mode(0o755)).expect("made");
    let mut kept = Kept::default();
    remove(&user, &[place(&user, "/tmp")], &mut kept);
    assert_eq!(kept.refused, [("/tmp/of-root".to_owned(), "remove", Refusal::NotPermitted)]);
    assert_eq!(root.list("/tmp").expect("listed").len(), 1);
}
