//! Permissions of operations.

use super::fixture::over_both;
use super::subject::{ALICE, BOB, ROOT, User};

/// S29: owner, group, others, decide in this order.
#[test]
fn the_first_class_that_fits_decides() {
    over_both(|fs| {
        // Of alice; group 1400, which is one of alice's and not of bob's, or 1401, which is bob's.
        let check = |mode: u32, gid: u32, user: User, flags: i32, expect: Result<(), i32>| {
            fs.put(ROOT, "/f", b"x").expect("put");
            fs.chown(ROOT, "/f", Some(ALICE.uid), Some(gid)).expect("chown");
            fs.chmod(ROOT, "/f", mode).expect("chmod");
            let opened = fs.open(user, "/f", flags, 0).map(|fd| fs.close(fd).expect("close"));
            assert_eq!(opened, expect, "{mode:o} {gid} {user:?} {flags:o}");
            let want = if flags == libc::O_RDONLY { libc::R_OK } else { libc::W_OK };
            assert_eq!(fs.access(user, "/f", want), expect, "access {mode:o} {gid} {user:?}");
            fs.unlink(ROOT, "/f").expect("unlink");
        };
        let (read, write, no) = (libc::O_RDONLY, libc::O_WRONLY, Err(libc::EACCES));
        check(0o400, 1400, ALICE, read, Ok(()));
        check(0o400, 1400, ALICE, write, no);
        check(0o077, 1400, ALICE, read, no);
        check(0o040, 1401, BOB, read, Ok(()));
        check(0o040, 1400, BOB, read, no);
        check(0o020, 1401, BOB, write, Ok(()));
        check(0o604, 1401, BOB, read, no);
        check(0o604, 1400, BOB, read, Ok(()));
        check(0o000, 1400, ROOT, write, Ok(()));
    });
}

/// S29: the right to search is asked on every component.
#[test]
fn directories_guard_their_names() {
    over_both(|fs| {
        fs.mkdir(ROOT, "/d", 0o711).expect("mkdir");
        fs.mkdir(ROOT, "/d/e", 0o755).expect("mkdir");
        fs.put(ROOT, "/d/e/f", b"x").expect("put");
        assert_eq!(fs.get(BOB, "/d/e/f"), Ok(b"x".to_vec()));
        assert_eq!(fs.list(BOB, "/d"), Err(libc::EACCES));
        assert_eq!(fs.mkdir(BOB, "/d/mine", 0o755), Err(libc::EACCES));
        assert_eq!(fs.unlink(BOB, "/d/e/f"), Err(libc::EACCES));
        // Sticky: only owners remove.
        fs.mkdir(ROOT, "/tmp", 0o1777).expect("mkdir");
        fs.chmod(ROOT, "/tmp", 0o1777).expect("chmod");
        fs.put(ALICE, "/tmp/alices", b"x").expect("put");
        assert_eq!(fs.unlink(BOB, "/tmp/alices"), Err(libc::EPERM));
        assert_eq!(fs.rename(BOB, "/tmp/alices", "/tmp/bobs", 0), Err(libc::EPERM));
        fs.unlink(ALICE, "/tmp/alices").expect("unlink");
    });
}

/// S30: narrowing is in force at once, also for cached names, present and absent.
#[test]
fn narrowing_is_in_force_at_once() {
    over_both(|fs| {
        for round in 0..20 {
            let dir = format!("/d{round}");
            fs.mkdir(ROOT, &dir, 0o755).expect("mkdir");
            fs.mkdir(ROOT, &format!("{dir}/sub"), 0o755).expect("mkdir");
            fs.put(ROOT, &format!("{dir}/sub/f"), b"x").expect("put");
            let (deep, absent) = (format!("{dir}/sub/f"), format!("{dir}/none"));
            fs.stat(BOB, &deep).expect("cached");
            assert_eq!(fs.stat(BOB, &absent), Err(libc::ENOENT));
            fs.chmod(ROOT, &dir, 0o700).expect("chmod");
            assert_eq!(fs.stat(BOB, &deep), Err(libc::EACCES), "round {round}");
            assert_eq!(fs.stat(BOB, &absent), Err(libc::EACCES), "round {round}");
            fs.stat(ROOT, &deep).expect("root may");
            assert_eq!(fs.stat(BOB, &deep), Err(libc::EACCES), "after root looked, round {round}");
            fs.chmod(ROOT, &dir, 0o755).expect("chmod");
            fs.stat(BOB, &deep).expect("open again");
        }
    });
}

/// S29, S33: the rights to change modes and owners, and the bits that such a change clears.
#[test]
fn owners_change_modes_and_root_changes_owners() {
    over_both(|fs| {
        let mode = |path: &str| fs.stat(ROOT, path).expect("stat").mode & 0o7777;
        fs.put(ROOT, "/f", b"x").expect("put");
        fs.chown(ROOT, "/f", Some(ALICE.uid), Some(ALICE.gid)).expect("chown");
        assert_eq!(fs.chmod(BOB, "/f", 0o777), Err(libc::EPERM));
        assert_eq!(fs.chown(ALICE, "/f", Some(BOB.uid), None), Err(libc::EPERM));
        assert_eq!(fs.chown(ALICE, "/f", None, Some(BOB.gid)), Err(libc::EPERM));
        fs.chown(ALICE, "/f", None, Some(1400)).expect("to one of the owner's groups");
        fs.chmod(ALICE, "/f", 0o6755).expect("chmod");
        assert_eq!(mode("/f"), 0o6755);
        fs.chown(ALICE, "/f", None, Some(ALICE.gid)).expect("chgrp");
        assert_eq!(mode("/f"), 0o755, "a change of owner clears set-id bits");
        // Of a group that the owner is not in, the set-group-id bit is not given.
        fs.chown(ROOT, "/f", None, Some(BOB.gid)).expect("chown");
        fs.chmod(ALICE, "/f", 0o2755).expect("chmod");
        assert_eq!(mode("/f"), 0o755);
        // Writing clears, unless root writes.
        fs.chmod(ROOT, "/f", 0o6777).expect("chmod");
        let fd = fs.open(ROOT, "/f", libc::O_WRONLY, 0).expect("open");
        fs.write_at(ROOT, fd, 0, b"y").expect("write");
        fs.close(fd).expect("close");
        assert_eq!(mode("/f"), 0o6777);
        let fd = fs.open(BOB, "/f", libc::O_WRONLY, 0).expect("open");
        fs.write_at(BOB, fd, 0, b"z").expect("write");
        assert_eq!(fs.fstat(fd).expect("fstat").mode & 0o7777, 0o777, "before it is closed");
        fs.close(fd).expect("close");
        assert_eq!(mode("/f"), 0o777);
        fs.chmod(ROOT, "/f", 0o4777).expect("chmod");
        fs.truncate(BOB, "/f", 0).expect("truncate");
        assert_eq!(mode("/f"), 0o777);
    });
}

/// S29: a new inode belongs to its maker, and to the group of a set-group-id directory.
#[test]
fn a_new_inode_belongs_to_its_maker() {
    over_both(|fs| {
        fs.mkdir(ROOT, "/d", 0o777).expect("mkdir");
        fs.put(ALICE, "/d/f", b"").expect("put");
        let stat = fs.stat(ROOT, "/d/f").expect("stat");
        assert_eq!((stat.uid, stat.gid), (ALICE.uid, ALICE.gid));
        fs.chown(ROOT, "/d", None, Some(4321)).expect("chown");
        fs.chmod(ROOT, "/d", 0o2777).expect("chmod");
        fs.put(ALICE, "/d/g", b"").expect("put");
        fs.mkdir(ALICE, "/d/sub", 0o755).expect("mkdir");
        assert_eq!(fs.stat(ROOT, "/d/g").expect("stat").gid, 4321);
        let sub = fs.stat(ROOT, "/d/sub").expect("stat");
        assert_eq!((sub.gid, sub.mode & 0o7777), (4321, 0o2755));
    });
}
