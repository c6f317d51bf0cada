//! Extended attributes.

use super::fixture::over_both;
use super::subject::{ALICE, BOB, ROOT};

/// S51: set, get, list, remove.
#[test]
fn attributes_are_kept() {
    over_both(|fs| {
        fs.put(ROOT, "/f", b"x").expect("put");
        let path = "/f";
        assert_eq!(fs.getxattr(ROOT, path, "user.a"), Err(libc::ENODATA));
        fs.setxattr(ROOT, path, "user.a", b"one", 0).expect("set");
        fs.setxattr(ROOT, path, "user.b", b"", libc::XATTR_CREATE).expect("create");
        assert_eq!(fs.setxattr(ROOT, path, "user.a", b"x", libc::XATTR_CREATE), Err(libc::EEXIST));
        assert_eq!(fs.setxattr(ROOT, path, "user.c", b"x", libc::XATTR_REPLACE), Err(libc::ENODATA));
        fs.setxattr(ROOT, path, "user.a", &[7; 60_000], libc::XATTR_REPLACE).expect("replace");
        assert_eq!(fs.getxattr(ROOT, path, "user.a"), Ok(vec![7; 60_000]));
        assert_eq!(fs.getxattr(ROOT, path, "user.b"), Ok(vec![]));
        let mut names = fs.listxattr(path).expect("list");
        names.sort();
        assert_eq!(names, [b"user.a".to_vec(), b"user.b".to_vec()]);
        fs.removexattr(ROOT, path, "user.a").expect("remove");
        assert_eq!(fs.removexattr(ROOT, path, "user.a"), Err(libc::ENODATA));
        assert_eq!(fs.listxattr(path).expect("list"), [b"user.b".to_vec()]);
    });
}

/// S51: the rights to read and set attributes.
#[test]
fn attributes_follow_permissions() {
    over_both(|fs| {
        fs.put(ROOT, "/f", b"x").expect("put");
        fs.chown(ROOT, "/f", Some(ALICE.uid), None).expect("chown");
        fs.chmod(ROOT, "/f", 0o640).expect("chmod");
        fs.setxattr(ALICE, "/f", "user.a", b"1", 0).expect("owner");
        assert_eq!(fs.getxattr(BOB, "/f", "user.a"), Err(libc::EACCES));
        assert_eq!(fs.setxattr(BOB, "/f", "user.a", b"2", 0), Err(libc::EACCES));
        fs.setxattr(ROOT, "/f", "trusted.t", b"1", 0).expect("root");
        assert_eq!(fs.setxattr(ALICE, "/f", "trusted.t", b"2", 0), Err(libc::EPERM));
    });
}
