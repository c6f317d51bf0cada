//! cp -r.

use chiton_client::Client;
use chiton_model::AttrChange;
use chiton_trees::{Copied, copy};
use chiton_types::{Name, Refusal};

use crate::site::{Kept, PLATES, Site, chmod, fill, grow, look, place};

fn copied(client: &Client, from: &str, into: &str, name: &str, kept: &mut Kept) -> Copied {
    let into = client.stat(into).expect("there").ino;
    copy(client, &place(client, from), into, &Name::try_from(name).expect("a name"), kept)
}

#[test]
fn copy_is_equal_and_stays_apart() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        grow(&client, "/tree");
        let before = look(&client, "/tree");
        let mut kept = Kept::default();
        let done = copied(&client, "/tree", "/", "copy", &mut kept);
        assert_eq!(kept.refused, [], "{plates} plates");
        assert_eq!((done.files, done.dirs), (12 * 7 + 11 + 1 + 1 - 1, 73), "{done:?}");
        let (originals, copies) = (look(&client, "/tree"), look(&client, "/copy"));
        for (path, original) in &originals {
            assert_eq!(copies.get(path), Some(original), "{path}, {plates} plates");
        }
        assert_eq!(copies.len(), originals.len());
        assert_eq!(originals, before, "the original is as it was");
        if plates == 1 {
            assert!(done.shared_bytes > 0 && done.shared_bytes <= done.bytes, "{done:?}");
        }
        client.write_file("/copy/dir-1/large", b"changed").expect("written");
        assert_eq!(look(&client, "/tree"), before, "blocks are shared, files are not");
    }
}

#[test]
fn writes_of_other_clients_are_in_the_copy() {
    let site = Site::new(1);
    let (client, other) = (site.client(), site.client());
    client.mkdir_all("/tree").expect("made");
    client.create_file("/tree/file", &[1; 50_000]).expect("made");
    let fh = other.open_path("/tree/file", chiton_client::OpenFlags::WRITE).expect("open");
    other.write(&other.caller(), fh, 0, &[2; 100_000]).expect("written");
    copied(&client, "/tree", "/", "copy", &mut Kept::default());
    assert_eq!(client.read_file("/copy/file"), Ok(vec![2; 100_000]));
    other.release(fh).expect("closed");
}

#[test]
fn users_copy_what_they_may_read_and_own_the_copy() {
    for plates in PLATES {
        let site = Site::new(plates);
        let root = site.client();
        fill(&root, "/tree", 200);
        root.create_file("/tree/secret", b"x").expect("made");
        chmod(&root, "/tree/secret", 0o600);
        chmod(&root, "/tree/many-0/file-1", 0o4755);
        chmod(&root, "/tree/many-1", 0o700);
        root.mkdir_all("/home").expect("made");
        root.set_attr_path("/home", AttrChange { uid: Some(1000), ..AttrChange::default() })
            .expect("changed");
        let user = root.acting_as(1000, 1000, &[]);
        let mut kept = Kept::default();
        copied(&user, "/tree", "/home", "copy", &mut kept);
        kept.refused.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("/tree/many-1".to_owned(), "list", Refusal::Access),
            ("/tree/secret".to_owned(), "copy", Refusal::Access),
        ];
        assert_eq!(kept.refused, expected, "{plates} plates");
        let copies = look(&root, "/home/copy");
        assert_eq!(copies.len(), 1 + 2 + 100);
        assert!(copies.values().all(|look| look.uid() == 1000));
        assert_eq!(copies["/many-0/file-1"].bits(), 0o755, "set-id bits were for the owner of the original");
    }
}

#[test]
fn taken_names_and_copies_into_themselves_are_refused() {
    let site = Site::new(3);
    let client = site.client();
    client.mkdir_all("/tree/a/b").expect("made");
    client.mkdir_all("/taken").expect("made");
    let before = look(&client, "/tree");
    let mut kept = Kept::default();
    copied(&client, "/tree", "/tree/a/b", "copy", &mut kept);
    copied(&client, "/tree", "/tree", "copy", &mut kept);
    copied(&client, "/tree", "/", "taken", &mut kept);
    let of = |doing, refusal| ("/tree".to_owned(), doing, refusal);
    let itself = of("copy into itself", Refusal::Invalid);
    assert_eq!(kept.refused, [itself.clone(), itself, of("copy", Refusal::Exists)]);
    assert_eq!(look(&client, "/tree"), before);
    assert_eq!(client.list("/taken").expect("listed").len(), 0);
}

#[test]
fn single_files_and_links_are_copied_too() {
    let site = Site::new(3);
    let client = site.client();
    client.create_file("/file", b"content").expect("made");
    let root = client.stat("/").expect("there").ino;
    client.symlink(&client.caller(), root, b"link", b"/file").expect("made");
    let mut kept = Kept::default();
    copied(&client, "/file", "/", "file-2", &mut kept);
    copied(&client, "/link", "/", "link-2", &mut kept);
    assert_eq!((kept.refused, client.read_file("/file-2")), (vec![], Ok(b"content".to_vec())));
    assert_eq!(client.readlink(client.lstat("/link-2").expect("there").ino), Ok(b"/file".to_vec()));
}

/// Ends a copy after so many names.
struct Until(u64, u64);

impl chiton_trees::Watch for Until {
    fn refused(&mut self, refused: chiton_trees::Refused) {
        panic!("{refused}");
    }

    fn progress(&mut self, names: u64) {
        self.1 = names;
    }

    fn is_stopped(&self) -> bool {
        self.1 >= self.0
    }
}

#[test]
fn a_copy_that_was_cut_off_is_completed() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        let caller = client.caller();
        grow(&client, "/tree");
        let originals = look(&client, "/tree");
        for cut in [0, 1, 30, 60, 10_000] {
            let name = format!("copy-{cut}");
            let name = Name::try_from(&name[..]).expect("a name");
            let path = format!("/{}", String::from_utf8_lossy(name.as_bytes()));
            client.mkdir_all("/clock").expect("made");
            let since = client.stat("/clock").expect("there").btime;
            let root = client.stat("/").expect("there").ino;
            copy(&client, &place(&client, "/tree"), root, &name, &mut Until(cut, 0));
            client.remove("/clock").expect("removed");
            if client.stat(format!("{path}/dir-1")).is_ok() {
                // As if a file had its content in part and no attributes, when the server died.
                client.unlink_many(format!("{path}/dir-1"), &["small".to_owned(), "large".to_owned()]).ok();
                client.create_file(format!("{path}/dir-1/small"), b"par").expect("made");
                chmod(&client, &format!("{path}/dir-1/small"), 0o600);
            }
            let mut kept = Kept::default();
            let done =
                chiton_trees::resume_copy(&client, &place(&client, "/tree"), (root, &name), since, &mut kept);
            assert_eq!(kept.refused, [], "{plates} plates, {cut} names");
            assert_eq!(done.dirs, 73, "{plates} plates, {cut} names");
            let copies = look(&client, &path);
            for (path, original) in &originals {
                assert_eq!(copies.get(path), Some(original), "{path}, {plates} plates, {cut} names");
            }
            assert_eq!(copies.len(), originals.len());
        }
        // Files that are older, or were changed since, belong to a user.
        client.mkdir_all("/mine/dir-1").expect("made");
        client.create_file("/mine/dir-1/small", b"mine").expect("made");
        client.mkdir_all("/later").expect("made");
        let since = client.stat("/later").expect("there").btime;
        let root = client.stat("/").expect("there").ino;
        let mut kept = Kept::default();
        let name = Name::try_from("mine").expect("a name");
        chiton_trees::resume_copy(&client, &place(&client, "/tree"), (root, &name), since, &mut kept);
        assert_eq!(kept.refused, [("/tree".to_owned(), "copy", Refusal::Exists)], "{plates} plates");
        let copied = client.stat("/copy-30/dir-1/small").expect("there");
        let change = AttrChange {
            mtime: Some(chiton_model::SetTime::At(chiton_types::Time(5))),
            ..AttrChange::default()
        };
        client.setattr(&caller, copied.ino, change, None).expect("changed");
        let mut kept = Kept::default();
        let (name, since) = (Name::try_from("copy-30").expect("a name"), chiton_types::Time(0));
        chiton_trees::resume_copy(&client, &place(&client, "/tree"), (root, &name), since, &mut kept);
        assert_eq!(
            kept.refused,
            [("/tree/dir-1/small".to_owned(), "copy", Refusal::Exists)],
            "{plates} plates"
        );
        assert_eq!(client.stat("/copy-30/dir-1/small").expect("there").mtime, chiton_types::Time(5));
    }
}
