//! Dump, load, dump is identical; loading changes no existing file; bad input gets an error with its line.

use std::sync::Arc;

use chiton_admin::dump::{DumpOptions, LoadError, LoadOptions, Loaded, dump, load};
use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_model::{AttrChange, SetTime, XattrHow};
use chiton_namespace::permission::{ACL_DEFAULT, Acl, AclEntry, AclTag};
use chiton_server::Server;
use chiton_types::{Attr, Ino, Kind, Mode, Time};
use proptest::prelude::*;

use crate::rig::{Rig, populate};

fn client(server: &Arc<Server>) -> Client {
    let user = Some((0, 0, Vec::new()));
    chiton_embedded::client(server, ClientOptions { user, ..ClientOptions::default() }).expect("a client")
}

fn text(client: &Client, root: &str) -> String {
    let mut out = Vec::new();
    let done = dump(client, root.as_bytes(), &mut out, DumpOptions { content: true }, &mut |_| {});
    assert_eq!(done.expect("dumps").unreadable, 0);
    String::from_utf8(out).expect("text")
}

fn try_load(client: &Client, into: &str, text: &str, options: LoadOptions) -> Result<Loaded, LoadError> {
    load(client, into.as_bytes(), &mut text.as_bytes(), options, &mut |_| {})
}

#[test]
fn a_tree_with_some_of_everything_goes_out_and_in() {
    let rig = Rig::new();
    rig.serve(|server| {
        populate(server);
        let client = client(server);
        let caller = client.caller();
        let odd = client.mkdir(&caller, Ino::ROOT, b"docs-\xff \n\\", Mode(0o2750)).expect("made").attr.ino;
        let (file, fh) =
            client.create(&caller, odd, b"file", Mode(0o644), OpenFlags::WRITE).expect("made");
        client.write(&caller, fh, 0, &[7; 70_000]).expect("written");
        client.write(&caller, fh, 9_000_000, b"far away").expect("written");
        client.release(fh).expect("closed");
        let at = |t| Some(SetTime::At(Time(t)));
        let change = AttrChange {
            mode: Some(Mode(0o4711)),
            uid: Some(12),
            gid: Some(34),
            atime: at(-5),
            mtime: at(1_700_000_000_123_456_789),
            ..AttrChange::default()
        };
        client.setattr(&caller, file.attr.ino, change, None).expect("set");
        client.setxattr(&caller, odd, b"user.\xc3\xa4", b"\0\xff", XattrHow::Set).expect("set");
        // The default list of a directory, and the list of one file.
        let entry = |tag, rights| AclEntry { tag, rights };
        let list = Acl::new(vec![
            entry(AclTag::Owner, 7),
            entry(AclTag::User(12), 5),
            entry(AclTag::OwningGroup, 4),
            entry(AclTag::Mask, 5),
            entry(AclTag::Other, 0),
        ]);
        let list = list.expect("a list").encode();
        client.setxattr(&caller, odd, ACL_DEFAULT, &list, XattrHow::Set).expect("set");
        let (listed, fh) =
            client.create(&caller, odd, b"listed", Mode(0o666), OpenFlags::WRITE).expect("made");
        client.release(fh).expect("closed");
        assert_eq!(listed.attr.flags, Attr::ACCESS_LIST | Attr::XATTRS);
        client.mknod(&caller, odd, b"disk", Kind::Block, Mode(0o600), 0x801).expect("made");
        let change = AttrChange { mtime: at(42), ..AttrChange::default() };
        client.setattr(&caller, odd, change, None).expect("set");
        let kept = client.mkdir(&caller, Ino::ROOT, b"kept", Mode(0o755)).expect("made").attr.ino;
        let (entry, fh) = client.create(&caller, kept, b"f", Mode(0o644), OpenFlags::WRITE).expect("made");
        client.release(fh).expect("closed");
        client.set_flags(&caller, entry.attr.ino, Attr::IMMUTABLE).expect("root may");
        client.set_flags(&caller, kept, Attr::APPEND_ONLY).expect("root may");
        let first = text(&client, "/");
        assert!(first.contains("file kept/f mode=0644 uid=0 gid=0 ") && first.contains(" size=0 flags=i"), "{first}");
        assert!(first.starts_with("chiton-dump 1\ndir . mode=0755 uid=0 gid=0 "), "{first}");
        assert!(first.contains("docs-\\xff\\x20\\x0a\\x5c/file mode=4711 uid=12 gid=34 atime=-5 mtime=1700000000123456789 size=9000008"));
        client.mkdir(&caller, Ino::ROOT, b"copy", Mode(0o700)).expect("made");
        // The root's dump is loaded below, and is the same from there.
        let loaded = try_load(&client, "/copy", &first, LoadOptions::default()).expect("loads");
        assert_eq!(loaded.inodes, first.lines().filter(|l| l.contains(" mode=")).count() as u64);
        assert_eq!(text(&client, "/copy"), first);
        assert_eq!(first.matches("\nx system.posix_acl_access ").count(), 2, "of the file and the device");
        assert_eq!(first.matches("\nx system.posix_acl_default ").count(), 1);
        // Names are taken: refused, and nothing is changed; resumed, nothing is to be done.
        let error = try_load(&client, "/copy", &first, LoadOptions::default()).expect_err("taken");
        assert!(error.to_string().contains("is there already"), "{error}");
        let resume = LoadOptions { resume: true, ..LoadOptions::default() };
        let again = try_load(&client, "/copy", &first, resume).expect("resumes");
        assert_eq!((again.inodes, again.bytes), (1, 0), "the root alone");
        assert_eq!(text(&client, "/copy"), first);
    });
}

/// A load that is cut off anywhere reports the place, and resumes to the same tree.
#[test]
fn an_interrupted_load_is_resumed() {
    let rig = Rig::new();
    rig.serve(|server| {
        populate(server);
        let client = client(server);
        let whole = text(&client, "/docs");
        let lines = whole.lines().count() as u64;
        for (n, part) in [0.1, 0.35, 0.5, 0.8, 0.99].into_iter().enumerate() {
            let into = format!("/into {n}");
            client.mkdir_all(&into).expect("made");
            let cut = &whole[..(whole.len() as f64 * part) as usize];
            let error = try_load(&client, &into, cut, LoadOptions::default()).expect_err("cut off");
            assert!(error.line <= lines && error.why.contains("cut off"), "{error}");
            let resume = LoadOptions { resume: true, ..LoadOptions::default() };
            try_load(&client, &into, &whole, resume).expect("goes on");
            assert_eq!(text(&client, &into), whole);
        }
    });
    assert_eq!(chiton_admin::fsck::findings(&*rig.meta, &*rig.objects).expect("checks"), []);
}

#[test]
fn an_error_in_a_dump_names_its_line_and_keeps_earlier_lines() {
    let rig = Rig::new();
    rig.serve(|server| {
        let client = client(server);
        client.mkdir_all("/from/a").expect("made");
        client.create_file("/from/a/f", b"content").expect("made");
        let good = text(&client, "/from");
        client.mkdir_all("/into").expect("made");
        client.create_file("/into/mine", b"precious").expect("made");
        let line = |from: &str, to: &str| good.replacen(from, to, 1);
        for (bad, at, why) in [
            (String::new(), 1, "cut off"),
            ("PK\x03\x04\n".to_owned(), 1, "a dump begins with"),
            (line("dir a", "dir a/b/c"), 3, "does not stand before it"),
            (line("dir a", "dir .."), 3, "no path"),
            (line("dir a", "dir mine"), 3, "is there already"),
            (line("size=7", "size=6"), 5, "past the file's size"),
            (line("size=7", "size=x"), 4, "not a number"),
            (line("d 0 Y29u", "d 0 Y*9u"), 5, "base64"),
            (line("d 0 Y29u", "d 0 Z29u"), 6, "checksum does not fit"),
            (line("inodes=3", "inodes=4"), 6, "inodes"),
        ] {
            let _ = client.admin("status");
            let error = try_load(&client, "/into", &bad, LoadOptions::default()).expect_err(why);
            assert!(error.line == at && error.why.contains(why), "{bad}\n{error}");
            assert_eq!(client.read_file("/into/mine").expect("there"), b"precious");
            for made in ["/into/a/f", "/into/a"] {
                // Entries that were loaded before the bad line stay; remove them for the next case.
                let _ = client.remove(made);
            }
            let left: Vec<_> =
                client.list("/into").expect("lists").into_iter().map(|l| l.name.to_string()).collect();
            assert_eq!(left, ["mine"], "{why}");
        }
    });
}

#[test]
fn a_dump_marks_missing_content_and_damaged_blocks() {
    let rig = Rig::new();
    rig.serve(|server| {
        let client = client(server);
        client.mkdir_all("/from").expect("made");
        client.create_file("/from/a", &[9; 200_000]).expect("made");
        client.create_file("/from/b", b"whole").expect("made");
        client.sync().expect("pushed");
        let mut out = Vec::new();
        dump(&client, b"/from", &mut out, DumpOptions { content: false }, &mut |_| {}).expect("dumps");
        let bare = String::from_utf8(out).expect("text");
        assert!(!bare.contains("\nd "));
        client.mkdir_all("/bare").expect("made");
        let error = try_load(&client, "/bare", &bare, LoadOptions::default()).expect_err("no content");
        assert!(error.why.contains("--no-content"), "{error}");
        let options = LoadOptions { no_content: true, ..LoadOptions::default() };
        try_load(&client, "/bare", &bare, options).expect("loads");
        assert_eq!(client.stat("/bare/a").expect("there").size, 200_000);
    });
    // A flipped byte in the one block.
    use chiton_objects::Objects;
    for object in rig.objects.list("blocks/", None, 10).expect("lists") {
        let mut bytes = rig.objects.get(&object.key, None).expect("reads");
        bytes[100_000] ^= 1;
        rig.objects.put(&object.key, &bytes).expect("puts");
    }
    rig.serve(|server| {
        let client = client(server);
        let mut out = Vec::new();
        let done = dump(&client, b"/from", &mut out, DumpOptions { content: true }, &mut |_| {});
        let out = String::from_utf8(out).expect("text");
        assert!(done.expect("dumps").unreadable > 0);
        assert!(out.contains("\nunreadable ") && out.contains("file b ") && out.contains("\nend "), "{out}");
        client.mkdir_all("/part").expect("made");
        let loaded = try_load(&client, "/part", &out, LoadOptions::default()).expect("loads");
        assert!(loaded.unreadable > 0);
        assert_eq!(client.read_file("/part/b").expect("there"), b"whole");
    });
}

/// A random inode: directory (by the number of directories so far), name, type.
type Wish = (u8, Vec<u8>, u8, Vec<(u16, u8, u16)>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dump_load_dump_is_identical(
        wishes in proptest::collection::vec(
            (any::<u8>(), proptest::collection::vec(any::<u8>(), 1..9), 0..7u8,
             proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u16>()), 0..4)),
            1..24,
        ),
    ) {
        let rig = Rig::new();
        rig.serve(|server| {
            let client = client(server);
            let from = client.mkdir_all("/from").expect("made").ino;
            let mut dirs = vec![from];
            let mut files = Vec::new();
            for wish in &wishes {
                make(&client, &mut dirs, &mut files, wish);
            }
            let first = text(&client, "/from");
            client.mkdir_all("/into").expect("made");
            try_load(&client, "/into", &first, LoadOptions::default()).expect("loads");
            assert_eq!(text(&client, "/into"), first);
        });
        assert_eq!(chiton_admin::fsck::findings(&*rig.meta, &*rig.objects).expect("checks"), []);
    }
}

fn make(client: &Client, dirs: &mut Vec<Ino>, files: &mut Vec<Ino>, (dir, name, what, parts): &Wish) {
    let caller = client.caller();
    let dir = dirs[*dir as usize % dirs.len()];
    let name: Vec<u8> = name.iter().map(|b| if matches!(b, 0 | b'/' | b'.') { b'_' } else { *b }).collect();
    let mode = Mode(0o600 | u16::from(name[0]) & 0o77);
    // Refusals (a name that is taken) leave the tree as it is.
    match what {
        0 | 1 => dirs.extend(client.mkdir(&caller, dir, &name, mode).ok().map(|made| made.attr.ino)),
        2 => drop(client.symlink(&caller, dir, &name, &name)),
        3 => drop(client.mknod(&caller, dir, &name, Kind::Fifo, mode, 0)),
        4 => {
            if let Some(file) = files.last() {
                let _ = client.link(&caller, *file, dir, &name);
            }
        }
        _ => {
            let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
            let Ok((entry, fh)) = client.create(&caller, dir, &name, mode, flags) else { return };
            files.push(entry.attr.ino);
            for &(offset, byte, len) in parts {
                client.write(&caller, fh, u64::from(offset) * 3, &vec![byte; len.into()]).expect("written");
            }
            client.release(fh).expect("closed");
            let _ = client.setxattr(&caller, entry.attr.ino, b"user.x", &name, XattrHow::Set);
        }
    }
}
