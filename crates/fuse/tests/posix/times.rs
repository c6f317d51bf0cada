//! Times.

use super::fixture::over_both;
use super::subject::{ALICE, BOB, ROOT};

const SECOND: i64 = 1_000_000_000;

/// S35, S37: given times are kept to the nanosecond, on both sides of 1970.
#[test]
fn given_times_are_kept() {
    over_both(|fs| {
        fs.put(ROOT, "/f", b"x").expect("put");
        for (access, change) in [(1, 2), (-1, -SECOND - 5), (1_700_000_000 * SECOND + 123_456_789, 0)] {
            let before = fs.stat(ROOT, "/f").expect("stat");
            fs.utimens(ROOT, "/f", Some((access, change))).expect("utimens");
            let stat = fs.stat(ROOT, "/f").expect("stat");
            assert_eq!((stat.atime, stat.mtime), (access, change));
            assert!(stat.ctime > before.ctime, "ctime is now");
        }
    });
}

/// S37: a write before utimens does not change the times that were set.
#[test]
fn writes_before_do_not_change_times_after() {
    over_both(|fs| {
        let fd = fs.open(ROOT, "/f", libc::O_CREAT | libc::O_RDWR, 0o644).expect("open");
        fs.write_at(ROOT, fd, 0, b"content").expect("write");
        fs.utimens(ROOT, "/f", Some((5, 6))).expect("utimens");
        fs.close(fd).expect("close");
        assert_eq!(fs.stat(ROOT, "/f").expect("stat").mtime, 6);
        let fd = fs.open(ROOT, "/f", libc::O_RDWR, 0).expect("open");
        fs.write_at(ROOT, fd, 0, b"more").expect("write");
        let now = fs.fstat(fd).expect("fstat").mtime;
        assert!(now > 1_000_000_000 * SECOND, "{now}");
        fs.close(fd).expect("close");
        assert_eq!(fs.stat(ROOT, "/f").expect("stat").mtime, now, "close changes nothing");
    });
}

/// S36: reading does not change atime.
#[test]
fn reading_leaves_no_trace() {
    over_both(|fs| {
        fs.put(ROOT, "/f", b"x").expect("put");
        let before = fs.stat(ROOT, "/f").expect("stat").atime;
        fs.get(ROOT, "/f").expect("get");
        assert_eq!(fs.stat(ROOT, "/f").expect("stat").atime, before);
    });
}

/// S35: changes of a directory are changes of its times.
#[test]
fn directories_carry_the_time_of_their_last_change() {
    over_both(|fs| {
        fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        let mut last = fs.stat(ROOT, "/d").expect("stat").mtime;
        let mut later = |what: &str| {
            let now = fs.stat(ROOT, "/d").expect("stat").mtime;
            assert!(now > last, "{what}");
            last = now;
        };
        fs.put(ROOT, "/d/f", b"").expect("put");
        later("create");
        fs.rename(ROOT, "/d/f", "/d/g", 0).expect("rename");
        later("rename");
        fs.unlink(ROOT, "/d/g").expect("unlink");
        later("unlink");
        fs.mkdir(ROOT, "/d/e", 0o755).expect("mkdir");
        later("mkdir");
    });
}

/// S29: setting times to now needs the right to write, to anything else ownership.
#[test]
fn setting_times_needs_rights() {
    over_both(|fs| {
        fs.put(ROOT, "/f", b"x").expect("put");
        fs.chown(ROOT, "/f", Some(ALICE.uid), None).expect("chown");
        fs.chmod(ROOT, "/f", 0o646).expect("chmod");
        fs.utimens(BOB, "/f", None).expect("a writer sets now");
        assert_eq!(fs.utimens(BOB, "/f", Some((1, 1))), Err(libc::EPERM));
        fs.utimens(ALICE, "/f", Some((1, 1))).expect("the owner sets anything");
        fs.chmod(ROOT, "/f", 0o644).expect("chmod");
        assert_eq!(fs.utimens(BOB, "/f", None), Err(libc::EACCES));
    });
}
