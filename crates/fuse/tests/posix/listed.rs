//! Listings with attributes, which the kernel keeps, while another mount changes what they said.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::plates::set;
use super::two_mounts::TwoMounts;

const PLATES: u16 = 3;
const FILES: usize = 120;
const ROUNDS: usize = 40;

/// Lists a directory again and again, to the end or up to some name, and looks at each name.
fn keep_listing(dir: &Path, most: usize, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for entry in fs::read_dir(dir).expect("listed").take(most) {
            // It may be gone by now.
            let _ = entry.expect("an entry").metadata();
        }
    }
}

/// Changes files on one mount: the other shows each change at once.
fn change(here: &Path, there: &Path) {
    for round in 0..ROUNDS {
        let (name, moved) = (format!("x{}", round % 7), format!("y{}", round % 7));
        let len = round % 5 + 1;
        fs::write(here.join(&name), vec![7; len]).expect("written");
        assert_eq!(fs::metadata(there.join(&name)).expect("made").len(), len as u64, "round {round}");
        let mode = 0o600 + round as u32 % 8;
        fs::set_permissions(here.join(&name), fs::Permissions::from_mode(mode)).expect("changed");
        assert_eq!(fs::metadata(there.join(&name)).expect("there").mode() & 0o777, mode, "round {round}");
        fs::rename(here.join(&name), here.join(&moved)).expect("moved");
        assert!(!there.join(&name).exists() && there.join(&moved).exists(), "round {round}");
        fs::remove_file(here.join(&moved)).expect("removed");
        assert!(!there.join(&moved).exists(), "round {round}");
    }
}

fn lists_beside_changes(mounts: &TwoMounts, dir: &str) {
    let (a, b) = (mounts.a.dir.join(dir), mounts.b.dir.join(dir));
    for n in 0..FILES {
        fs::write(a.join(format!("f{n}")), b"").expect("written");
    }
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        for dir in [&a, &b] {
            for most in [FILES / 3, usize::MAX] {
                threads.spawn(move || keep_listing(dir, most, is_over));
            }
        }
        let body = || {
            change(&a, &b);
            change(&b, &a);
        };
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        is_over.store(true, Ordering::Relaxed);
        changed.expect("each mount shows what the other has done");
    });
}

#[test]
fn what_a_listing_said_ends_with_a_change() {
    let mounts = TwoMounts::new();
    fs::create_dir(mounts.a.dir.join("dir")).expect("made");
    lists_beside_changes(&mounts, "dir");
}

#[test]
fn what_a_listing_said_ends_with_a_change_also_in_parts() {
    let mounts = TwoMounts::over_plates(PLATES);
    let top = mounts.a.dir.join("top");
    fs::create_dir(&top).expect("made");
    set(&top, Some("huge: always")).expect("the policy is set");
    fs::create_dir(top.join("dir")).expect("made");
    lists_beside_changes(&mounts, "top/dir");
}

/// Files of a directory that is scanned, and of one that is split.
const SCANNED: usize = 2000;

/// An extended attribute of a file that has none, as `ls -l` asks for it.
fn lacks_xattr(path: &Path, name: &OsStr) {
    let [path, name] = [path.as_os_str(), name].map(|text| CString::new(text.as_bytes()).expect("no NUL"));
    // SAFETY: both texts end with NUL, and no buffer is given.
    let len = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!((len, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENODATA)));
}

/// Scans a directory as `find` and `ls -l` do: first all names, then each of them.
fn scan(dir: &Path) {
    let paths: Vec<_> =
        fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(paths.len(), SCANNED);
    for path in paths {
        assert!(fs::symlink_metadata(&path).expect("there").is_file());
        lacks_xattr(&path, OsStr::new("system.posix_acl_access"));
        lacks_xattr(&path, OsStr::new("security.selinux"));
    }
}

#[test]
fn a_scan_asks_for_pages_and_not_for_names() {
    let (mounts, client) = TwoMounts::with_client();
    let (a, b) = (mounts.a.dir.join("dir"), mounts.b.dir.join("dir"));
    fs::create_dir(&a).expect("made");
    for n in 0..SCANNED {
        fs::write(a.join(format!("f{n}")), b"").expect("written");
    }
    // For a moment after a lease was recalled, nobody is given one.
    let least = (0..20).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let before = client.messages();
        scan(&b);
        client.messages() - before
    });
    let least = least.min().expect("rounds");
    assert!(least < SCANNED as u64 / 80, "{least} messages for {SCANNED} files");
    // The listing has shown which names there are not.
    let before = client.messages();
    for n in 0..100 {
        fs::File::create_new(b.join(format!("new{n}"))).expect("made");
    }
    let messages = client.messages() - before;
    assert!(messages < 150, "{messages} messages to make 100 files");
    for n in 0..100 {
        fs::remove_file(b.join(format!("new{n}"))).expect("removed");
    }
    let before = client.messages();
    for entry in fs::read_dir(&b).expect("listed") {
        fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    let messages = client.messages() - before;
    assert!(messages < SCANNED as u64 * 11 / 10, "{messages} messages to remove {SCANNED} files");
    assert_eq!(fs::read_dir(&a).expect("listed").count(), 0);
}

/// A listing by system calls with small buffers: the kernel has room for 24 entries with attributes in a reply.
struct SmallPages(fs::File);

impl SmallPages {
    fn open(dir: &Path) -> SmallPages {
        SmallPages(fs::File::open(dir).expect("opened"))
    }

    /// The next names; none at the end.
    fn next(&mut self) -> Vec<String> {
        let mut buffer = [0u8; 4096];
        // SAFETY: the call gets the true length of the buffer.
        let len = unsafe {
            libc::syscall(libc::SYS_getdents64, self.0.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
        };
        let len = usize::try_from(len).expect("listed");
        let (mut names, mut at) = (Vec::new(), 0);
        while at < len {
            // A `linux_dirent64`: inode, offset, length, type, name.
            let bytes = u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]);
            let name = CStr::from_bytes_until_nul(&buffer[at + 19..at + usize::from(bytes)]).expect("a name");
            names.push(name.to_str().expect("UTF-8").to_owned());
            at += usize::from(bytes);
        }
        names.retain(|name| name != "." && name != "..");
        names
    }

    fn rest(mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let names = self.next();
            if names.is_empty() {
                return all;
            }
            all.extend(names);
        }
    }
}

#[test]
fn a_listing_in_small_replies_keeps_what_did_not_fit() {
    let (mounts, client) = TwoMounts::with_client();
    let (a, b) = (mounts.a.dir.join("dir"), mounts.b.dir.join("dir"));
    fs::create_dir(&a).expect("made");
    for n in 0..SCANNED {
        fs::write(b.join(format!("f{n}")), b"").expect("written");
    }
    let least = (0..5).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let before = client.messages();
        let mut names = SmallPages::open(&b).rest();
        let messages = client.messages() - before;
        names.sort();
        names.dedup();
        assert_eq!(names.len(), SCANNED);
        messages
    });
    let least = least.min().expect("rounds");
    // Without the kept pages it takes 86.
    assert!(least < SCANNED as u64 / 80, "{least} messages for {SCANNED} files");
    // A kept page is shown as it is by then: names that either mount has removed are not.
    for remover in [&b, &a] {
        let mut pages = SmallPages::open(&b);
        let first = pages.next();
        assert!(first.len() < 40, "{} names in the first reply", first.len());
        let mut left: Vec<String> = fs::read_dir(&a)
            .expect("listed")
            .map(|entry| entry.expect("one").file_name().into_string().expect("UTF-8"))
            .collect();
        left.retain(|name| !first.contains(name));
        for name in left.iter().step_by(2) {
            fs::remove_file(remover.join(name)).expect("removed");
        }
        let mut shown = pages.rest();
        let mut expected: Vec<String> = left.into_iter().skip(1).step_by(2).collect();
        shown.sort();
        expected.sort();
        assert_eq!(shown, expected);
    }
}

/// Names of a listing after which attributes end that nobody has used.
const UNUSED: usize = 131_072;

#[test]
fn a_long_listing_has_attributes_only_as_long_as_they_are_used() {
    const NAMES: usize = UNUSED + 20_000;
    let (mounts, client) = TwoMounts::with_client();
    let dir = mounts.b.dir.join("dir");
    fs::create_dir(&dir).expect("made");
    let names: Vec<String> = (0..NAMES).map(|n| format!("f{n}")).collect();
    let maker = mounts.client_beside();
    for some in names.chunks(1_000) {
        assert!(maker.create_many("/dir", some).expect("asked").iter().all(Result::is_ok));
    }
    drop(maker);
    // Nobody looks at the first names: the last ones come without attributes, and are looked up.
    let listed: Vec<_> = fs::read_dir(&dir).expect("listed").map(|entry| entry.expect("an entry")).collect();
    assert!(listed.iter().all(|entry| entry.file_type().expect("known").is_file()));
    let mut shown: Vec<String> =
        listed.iter().map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    let mut expected = names;
    shown.sort();
    expected.sort();
    assert!(shown == expected, "{} names of {NAMES}", shown.len());
    let before = client.messages();
    let last = &listed[NAMES - 1_000..];
    assert!(last.iter().all(|entry| entry.metadata().expect("there").is_file()));
    let messages = client.messages() - before;
    assert!(messages >= 1_000, "{messages} messages to look at names that came without attributes");
    // A program that looks at each name finds attributes to the end.
    let before = client.messages();
    for entry in fs::read_dir(&dir).expect("listed") {
        assert!(entry.expect("an entry").metadata().expect("there").is_file());
    }
    let messages = client.messages() - before;
    assert!(messages < NAMES as u64 / 20, "{messages} messages to look at {NAMES} names");
}
