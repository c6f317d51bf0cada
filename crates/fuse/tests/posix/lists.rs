//! Access control lists.

use chiton_namespace::permission::{Acl, AclEntry, AclTag};

use super::fixture::{MountedHere, over_both};
use super::mounted::as_user;
use super::subject::{ALICE, BOB, FsUnderTest, ROOT};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The value of an attribute: the permissions of owner, users, group, mask, others.
fn list(owner: u8, users: &[(u32, u8)], group: u8, mask: Option<u8>, other: u8) -> Vec<u8> {
    let entry = |tag, rights| AclEntry { tag, rights };
    let mut entries = vec![entry(AclTag::Owner, owner)];
    entries.extend(users.iter().map(|(uid, rights)| entry(AclTag::User(*uid), *rights)));
    entries.push(entry(AclTag::OwningGroup, group));
    entries.extend(mask.map(|mask| entry(AclTag::Mask, mask)));
    entries.push(entry(AclTag::Other, other));
    Acl::new(entries).expect("a list").encode()
}

fn mode(fs: &dyn FsUnderTest, path: &str) -> u32 {
    fs.stat(ROOT, path).expect("there").mode & 0o7777
}

/// S34: "The group's bits of the mode show the mask, and chmod changes it."
#[test]
fn a_list_decides_and_its_mask_is_in_the_mode() {
    over_both(|fs| {
        fs.put(ROOT, "/f", b"x").expect("put");
        fs.chmod(ROOT, "/f", 0o600).expect("chmod");
        assert_eq!(fs.get(ALICE, "/f"), Err(libc::EACCES));
        assert_eq!(fs.getxattr(ROOT, "/f", ACCESS), Err(libc::ENODATA));
        let wanted = list(6, &[(ALICE.uid, 6)], 0, Some(4), 0);
        fs.setxattr(ROOT, "/f", ACCESS, &wanted, 0).expect("set");
        assert_eq!(fs.getxattr(ROOT, "/f", ACCESS), Ok(wanted));
        assert_eq!(mode(fs, "/f"), 0o640);
        // The mask leaves reading.
        assert_eq!(fs.get(ALICE, "/f"), Ok(b"x".to_vec()));
        assert_eq!(fs.access(ALICE, "/f", libc::W_OK), Err(libc::EACCES));
        assert_eq!(fs.get(BOB, "/f"), Err(libc::EACCES));
        fs.chmod(ROOT, "/f", 0o660).expect("chmod");
        assert_eq!(fs.getxattr(ROOT, "/f", ACCESS), Ok(list(6, &[(ALICE.uid, 6)], 0, Some(6), 0)));
        assert_eq!(fs.access(ALICE, "/f", libc::W_OK), Ok(()));
        assert_eq!(fs.listxattr("/f"), Ok(vec![ACCESS.as_bytes().to_vec()]));
        // A list equal to the mode bits is stored as the mode.
        fs.setxattr(ROOT, "/f", ACCESS, &list(6, &[], 4, None, 4), 0).expect("set");
        assert_eq!((mode(fs, "/f"), fs.getxattr(ROOT, "/f", ACCESS)), (0o644, Err(libc::ENODATA)));
        fs.removexattr(ROOT, "/f", ACCESS).expect("none afterwards");
        // Only the owner sets a list, and an invalid value is refused.
        assert_eq!(fs.setxattr(BOB, "/f", ACCESS, &list(7, &[], 7, None, 7), 0), Err(libc::EPERM));
        assert_eq!(fs.setxattr(ROOT, "/f", ACCESS, &[2, 0, 0, 0, 1], 0), Err(libc::EINVAL));
        assert_eq!(fs.setxattr(ROOT, "/f", DEFAULT, &list(7, &[], 7, None, 7), 0), Err(libc::EACCES));
    });
}

/// S34: a new entry inherits its directory's default list, with any cache or write-behind before.
#[test]
fn new_entries_inherit_the_default_list() {
    over_both(|fs| {
        fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        fs.put(ROOT, "/d/before", b"x").expect("put");
        let default = list(7, &[(ALICE.uid, 7)], 5, Some(7), 0);
        fs.setxattr(ROOT, "/d", DEFAULT, &default, 0).expect("set");
        assert_eq!(mode(fs, "/d"), 0o755);
        fs.put(ROOT, "/d/f", b"x").expect("put");
        fs.mkdir(ROOT, "/d/sub", 0o777).expect("mkdir");
        assert_eq!(fs.getxattr(ROOT, "/d/before", ACCESS), Err(libc::ENODATA));
        assert_eq!(fs.getxattr(ROOT, "/d/f", ACCESS), Ok(list(6, &[(ALICE.uid, 7)], 5, Some(4), 0)));
        assert_eq!(fs.getxattr(ROOT, "/d/f", DEFAULT), Err(libc::ENODATA));
        assert_eq!(mode(fs, "/d/f"), 0o640);
        assert_eq!(fs.getxattr(ROOT, "/d/sub", ACCESS), Ok(list(7, &[(ALICE.uid, 7)], 5, Some(7), 0)));
        assert_eq!(fs.getxattr(ROOT, "/d/sub", DEFAULT), Ok(default.clone()));
        assert_eq!(mode(fs, "/d/sub"), 0o770);
        assert_eq!(fs.get(ALICE, "/d/f"), Ok(b"x".to_vec()));
        fs.put(ALICE, "/d/sub/hers", b"y").expect("the list lets her");
        assert_eq!(fs.put(BOB, "/d/sub/his", b"z"), Err(libc::EACCES));
        // A list can exclude one user from a directory that all others may search.
        fs.setxattr(ROOT, "/d", ACCESS, &list(7, &[(BOB.uid, 0)], 5, Some(5), 5), 0).expect("set");
        assert_eq!(mode(fs, "/d"), 0o755);
        assert_eq!(fs.stat(BOB, "/d/f").map(drop), Err(libc::EACCES));
        assert_eq!(fs.stat(ALICE, "/d/f").map(drop), Ok(()));
        fs.removexattr(ROOT, "/d", DEFAULT).expect("removed");
        fs.put(ROOT, "/d/after", b"x").expect("put");
        assert_eq!(fs.getxattr(ROOT, "/d/after", ACCESS), Err(libc::ENODATA));
    });
}

/// S34: "… the umask holds where there is no default list."
#[test]
fn the_umask_holds_where_there_is_no_default_list() {
    let mounted = MountedHere::new();
    let fs = &mounted.fs;
    fs.mkdir(ROOT, "/plain", 0o777).expect("mkdir");
    fs.mkdir(ROOT, "/listed", 0o777).expect("mkdir");
    fs.setxattr(ROOT, "/listed", DEFAULT, &list(7, &[], 7, None, 7), 0).expect("set");
    // In a child process, because the umask belongs to the process.
    let paths = ["plain", "listed"].map(|dir| {
        ["f", "d"]
            .map(|name| std::ffi::CString::new(format!("{}/{dir}/{name}", fs.dir.display())).expect("text"))
    });
    let child = super::process::Child::fork(|| {
        // SAFETY: live strings; the child makes system calls only.
        unsafe {
            libc::umask(0o027);
            for [file, dir] in &paths {
                let fd = libc::open(file.as_ptr(), libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o666);
                if fd < 0 || libc::mkdir(dir.as_ptr(), 0o777) != 0 {
                    return 1;
                }
            }
        }
        0
    });
    assert_eq!(child.status(), 0);
    let modes = |dir: &str| (mode(fs, &format!("/{dir}/f")), mode(fs, &format!("/{dir}/d")));
    assert_eq!(modes("plain"), (0o640, 0o750));
    assert_eq!(modes("listed"), (0o666, 0o777));
    // Other users still reach the root of the file system.
    assert!(as_user(BOB, || std::fs::read_dir(fs.dir.join("listed")).is_ok()));
}
