//! Directory streams.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};

use super::fixture::{MountedHere, over_both};
use super::subject::{FsUnderTest, ROOT};

/// S10: a name that stays is listed exactly once, while other names change.
#[test]
fn a_listing_shows_staying_names_exactly_once() {
    over_both(|fs| {
        fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        for i in 0..10_000 {
            let fd =
                fs.open(ROOT, &format!("/d/f{i}"), libc::O_CREAT | libc::O_WRONLY, 0o644).expect("create");
            fs.close(fd).expect("close");
        }
        assert_eq!(fs.list(ROOT, "/d").expect("list").len(), 10_000);
        for i in (0..10_000).step_by(2) {
            fs.unlink(ROOT, &format!("/d/f{i}")).expect("unlink");
        }
        let stay: BTreeSet<Vec<u8>> = (1..10_000).step_by(2).map(|i| format!("f{i}").into_bytes()).collect();
        let listed: BTreeSet<Vec<u8>> = fs.list(ROOT, "/d").expect("list").into_keys().collect();
        assert_eq!(listed, stay);
    });
}

/// S10: the same while other processes remove entries.
#[test]
fn a_listing_continues_while_others_remove() {
    let mounted = MountedHere::new();
    let fs = &mounted.fs;
    fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
    for i in 0..4_000 {
        fs.put(ROOT, &format!("/d/stay{i}"), b"").expect("put");
        fs.put(ROOT, &format!("/d/go{i}"), b"").expect("put");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..4_000 {
                fs.unlink(ROOT, &format!("/d/go{i}")).expect("unlink");
            }
            done.store(true, Ordering::Release);
        });
        loop {
            let last = done.load(Ordering::Acquire);
            let listed = fs.list(ROOT, "/d").expect("list");
            assert_eq!(listed.keys().filter(|name| name.starts_with(b"stay")).count(), 4_000);
            if last {
                assert_eq!(listed.len(), 4_000);
                break;
            }
        }
    });
}

/// S10: telldir and seekdir, also after the entry itself is gone.
#[test]
fn a_listing_is_resumed_at_any_entry() {
    let mounted = MountedHere::new();
    let fs = &mounted.fs;
    fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
    for i in 0..500 {
        fs.put(ROOT, &format!("/d/{i}"), b"").expect("put");
    }
    let path = CString::new(format!("{}/d", fs.dir.display())).expect("a path");
    // SAFETY: the stream is closed at the end, and names are copied before the next call.
    unsafe {
        let dir = libc::opendir(path.as_ptr());
        assert!(!dir.is_null());
        let next = || {
            let entry = libc::readdir64(dir);
            (!entry.is_null()).then(|| CStr::from_ptr((*entry).d_name.as_ptr()).to_owned())
        };
        let mut order = Vec::new();
        loop {
            let place = libc::telldir(dir);
            let Some(name) = next() else { break };
            order.push((place, name));
        }
        assert_eq!(order.len(), 502);
        let (place, name) = order[300].clone();
        libc::seekdir(dir, place);
        assert_eq!(next(), Some(name.clone()));
        for (_, gone) in &order[290..=300] {
            fs.unlink(ROOT, &format!("/d/{}", gone.to_str().expect("a number"))).expect("unlink");
        }
        libc::seekdir(dir, place);
        assert_eq!(next().as_ref(), Some(&order[301].1));
        libc::rewinddir(dir);
        assert_eq!(std::iter::from_fn(next).count(), 491);
        libc::closedir(dir);
    }
}

/// S11: a directory that is removed while it is open.
#[test]
fn a_removed_directory_that_is_open_is_empty() {
    let mounted = MountedHere::new();
    let fs = &mounted.fs;
    fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
    let dir = std::fs::File::open(fs.dir.join("d")).expect("open");
    fs.rmdir(ROOT, "/d").expect("rmdir");
    let stat = dir.metadata().expect("fstat");
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&stat), 0);
    let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir));
    let made = std::fs::File::create(format!("{through}/f"));
    assert_eq!(made.expect_err("nothing is made there").raw_os_error(), Some(libc::ENOENT));
    let names: Vec<_> = std::fs::read_dir(&through).expect("it can be listed").collect();
    assert!(names.is_empty());
}
