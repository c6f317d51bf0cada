//! Names: making, moving and removing them.

use super::fixture::over_both;
use super::subject::{ALICE, ROOT};

/// S1: an acknowledged change is visible.
#[test]
fn a_created_file_exists_until_it_is_removed() {
    over_both(|fs| {
        fs.mkdir(ROOT, "/d", 0o750).expect("mkdir");
        assert_eq!(fs.mkdir(ROOT, "/d", 0o755), Err(libc::EEXIST));
        fs.put(ROOT, "/d/f", b"content").expect("put");
        fs.symlink(ROOT, "d/f", "/l").expect("symlink");
        fs.mkfifo(ROOT, "/d/p", 0o600).expect("mkfifo");
        fs.link(ROOT, "/d/f", "/d/g").expect("link");
        assert_eq!(fs.names("/"), ["d", "l"]);
        assert_eq!(fs.names("/d"), ["f", "g", "p"]);
        let (f, g) = (fs.stat(ROOT, "/d/f").expect("f"), fs.stat(ROOT, "/d/g").expect("g"));
        assert_eq!((f.ino, f.nlink, f.size, f.mode), (g.ino, 2, 7, libc::S_IFREG | 0o644));
        assert_eq!(fs.readlink("/l").expect("readlink"), b"d/f");
        assert_eq!(fs.stat(ROOT, "/d/p").expect("p").mode, libc::S_IFIFO | 0o600);
        assert_eq!(fs.rmdir(ROOT, "/d"), Err(libc::ENOTEMPTY));
        assert_eq!(fs.unlink(ROOT, "/d"), Err(libc::EISDIR));
        assert_eq!(fs.rmdir(ROOT, "/l"), Err(libc::ENOTDIR));
        for path in ["/d/f", "/d/g", "/d/p", "/l"] {
            fs.unlink(ROOT, path).expect("unlink");
            assert_eq!(fs.stat(ROOT, path), Err(libc::ENOENT), "{path}");
            assert_eq!(fs.unlink(ROOT, path), Err(libc::ENOENT), "{path}");
        }
        fs.rmdir(ROOT, "/d").expect("rmdir");
        assert_eq!(fs.names("/"), [""; 0]);
    });
}

/// S13: rename replaces, refuses or exchanges as asked.
#[test]
fn rename_replaces_refuses_and_exchanges() {
    over_both(|fs| {
        let (replace, no_replace, exchange) = (0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE);
        fs.mkdir(ROOT, "/a", 0o755).expect("mkdir");
        fs.mkdir(ROOT, "/b", 0o755).expect("mkdir");
        fs.put(ROOT, "/a/one", b"1").expect("put");
        fs.put(ROOT, "/b/two", b"2").expect("put");
        assert_eq!(fs.rename(ROOT, "/a/one", "/b/two", no_replace), Err(libc::EEXIST));
        fs.rename(ROOT, "/a/one", "/b/two", exchange).expect("exchange");
        assert_eq!((fs.get(ROOT, "/a/one"), fs.get(ROOT, "/b/two")), (Ok(b"2".to_vec()), Ok(b"1".to_vec())));
        assert_eq!(fs.rename(ROOT, "/a/one", "/b/none", exchange), Err(libc::ENOENT));
        fs.rename(ROOT, "/a/one", "/b/two", replace).expect("replace");
        assert_eq!((fs.names("/a"), fs.names("/b")), (vec![], vec!["two".to_owned()]));
        assert_eq!(fs.get(ROOT, "/b/two"), Ok(b"2".to_vec()));
        // Directories: over an empty one only, not over a file, not into themselves.
        fs.mkdir(ROOT, "/a/sub", 0o755).expect("mkdir");
        assert_eq!(fs.rename(ROOT, "/a", "/b", replace), Err(libc::ENOTEMPTY));
        assert_eq!(fs.rename(ROOT, "/a", "/b/two", replace), Err(libc::ENOTDIR));
        assert_eq!(fs.rename(ROOT, "/b/two", "/a", replace), Err(libc::EISDIR));
        assert_eq!(fs.rename(ROOT, "/a", "/a/sub/deeper", replace), Err(libc::EINVAL));
        fs.mkdir(ROOT, "/empty", 0o755).expect("mkdir");
        fs.rename(ROOT, "/a", "/empty", replace).expect("over an empty directory");
        assert_eq!(fs.names("/"), ["b", "empty"]);
        assert_eq!(fs.names("/empty"), ["sub"]);
    });
}

/// S9: link counts and sizes of directories.
#[test]
fn directories_count_their_subdirectories() {
    over_both(|fs| {
        fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        let nlink = |expect: u64| assert_eq!(fs.stat(ROOT, "/d").expect("stat").nlink, expect);
        nlink(2);
        fs.mkdir(ROOT, "/d/a", 0o755).expect("mkdir");
        fs.mkdir(ROOT, "/d/b", 0o755).expect("mkdir");
        fs.put(ROOT, "/d/f", b"").expect("put");
        nlink(4);
        assert_eq!(fs.stat(ROOT, "/d").expect("stat").size, 96);
        fs.rename(ROOT, "/d/a", "/moved", 0).expect("rename");
        nlink(3);
        fs.rmdir(ROOT, "/d/b").expect("rmdir");
        nlink(2);
    });
}

/// S6: names are bytes.
#[test]
fn names_are_1_to_255_bytes_of_any_kind() {
    over_both(|fs| {
        let long = "é".repeat(127) + "x";
        assert_eq!(long.len(), 255);
        let too_long = "n".repeat(256);
        for name in [&long, " ", "a\nb", "\u{1}", "-rf", "...", "%2F", "*"] {
            let path = format!("/{name}");
            fs.put(ROOT, &path, name.as_bytes()).expect("put");
            assert_eq!(fs.get(ROOT, &path).expect("get"), name.as_bytes());
            assert!(fs.names("/").contains(&name.to_owned()), "{name:?}");
            fs.unlink(ROOT, &path).expect("unlink");
        }
        let path = format!("/{too_long}");
        assert_eq!(fs.stat(ROOT, &path), Err(libc::ENAMETOOLONG));
        assert_eq!(fs.mkdir(ROOT, &path, 0o755), Err(libc::ENAMETOOLONG));
        assert_eq!(fs.put(ROOT, &path, b""), Err(libc::ENAMETOOLONG));
        assert_eq!(fs.symlink(ROOT, "x", &path), Err(libc::ENAMETOOLONG));
        fs.put(ROOT, "/f", b"").expect("put");
        assert_eq!(fs.rename(ROOT, "/f", &path, 0), Err(libc::ENAMETOOLONG));
        assert_eq!(fs.link(ROOT, "/f", &path), Err(libc::ENAMETOOLONG));
    });
}

/// S7: targets of symbolic links.
#[test]
fn symbolic_links_hold_up_to_4095_bytes() {
    over_both(|fs| {
        let most = "t".repeat(4095);
        fs.symlink(ROOT, &most, "/l").expect("symlink");
        assert_eq!(fs.readlink("/l").expect("readlink"), most.as_bytes());
        assert_eq!(fs.stat(ROOT, "/l").expect("stat").size, 4095);
        fs.put(ROOT, "/f", b"").expect("put");
        assert_eq!(fs.readlink("/f"), Err(libc::EINVAL));
    });
}

/// S14: O_EXCL, and creating an existing name.
#[test]
fn creating_opens_an_existing_file_unless_exclusive() {
    over_both(|fs| {
        let (create, exclusive) = (libc::O_CREAT | libc::O_RDWR, libc::O_EXCL);
        let fd = fs.open(ROOT, "/f", create | exclusive, 0o600).expect("made");
        fs.write_at(ROOT, fd, 0, b"abc").expect("write");
        fs.close(fd).expect("close");
        assert_eq!(fs.open(ROOT, "/f", create | exclusive, 0o600), Err(libc::EEXIST));
        let fd = fs.open(ROOT, "/f", create, 0o644).expect("opened");
        assert_eq!(fs.read_at(fd, 0, 9), Ok(b"abc".to_vec()));
        fs.close(fd).expect("close");
        assert_eq!(fs.stat(ROOT, "/f").expect("stat").mode & 0o777, 0o600);
        let fd = fs.open(ROOT, "/f", create | libc::O_TRUNC, 0o644).expect("emptied");
        assert_eq!(fs.fstat(fd).expect("fstat").size, 0);
        fs.close(fd).expect("close");
        fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        assert_eq!(fs.open(ROOT, "/d", create, 0o644), Err(libc::EISDIR));
        // In a directory of root, a user may open an existing file and create none.
        fs.chmod(ROOT, "/f", 0o666).expect("chmod");
        let fd = fs.open(ALICE, "/f", create, 0o644).expect("who may not create may open");
        fs.close(fd).expect("close");
        assert_eq!(fs.open(ALICE, "/new", create, 0o644), Err(libc::EACCES));
    });
}

/// S28, S11: an open file outlives its name.
#[test]
fn an_open_file_outlives_its_name() {
    over_both(|fs| {
        let fd = fs.open(ROOT, "/f", libc::O_CREAT | libc::O_RDWR, 0o644).expect("open");
        fs.write_at(ROOT, fd, 0, b"before").expect("write");
        fs.unlink(ROOT, "/f").expect("unlink");
        assert_eq!(fs.stat(ROOT, "/f"), Err(libc::ENOENT));
        fs.write_at(ROOT, fd, 6, b" and after").expect("write");
        assert_eq!(fs.read_at(fd, 0, 99), Ok(b"before and after".to_vec()));
        let stat = fs.fstat(fd).expect("fstat");
        assert_eq!((stat.nlink, stat.size), (0, 16));
        // A new file of that name is another one.
        fs.put(ROOT, "/f", b"new").expect("put");
        assert_ne!(fs.stat(ROOT, "/f").expect("stat").ino, stat.ino);
        assert_eq!(fs.read_at(fd, 0, 6), Ok(b"before".to_vec()));
        fs.close(fd).expect("close");
        assert_eq!(fs.get(ROOT, "/f"), Ok(b"new".to_vec()));
    });
}

/// S12: inode numbers are not used again.
#[test]
fn inode_numbers_are_not_used_again() {
    over_both(|fs| {
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..50 {
            fs.put(ROOT, "/f", b"").expect("put");
            assert!(seen.insert(fs.stat(ROOT, "/f").expect("stat").ino), "round {round}");
            fs.unlink(ROOT, "/f").expect("unlink");
        }
    });
}

/// S7: deep trees.
#[test]
fn trees_may_be_deep() {
    over_both(|fs| {
        let mut path = String::new();
        // Within one system call's path, with the mount point before it.
        while path.len() < 3_900 {
            path += "/d";
            fs.mkdir(ROOT, &path, 0o755).expect("mkdir");
        }
        fs.put(ROOT, &format!("{path}/f"), b"deep").expect("put");
        assert_eq!(fs.get(ROOT, &format!("{path}/f")), Ok(b"deep".to_vec()));
        assert_eq!(fs.names(&path), ["f"]);
    });
}
