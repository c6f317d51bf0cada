//! Requests of unusual programs: file handles, and inode numbers of 32 bits.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

use chiton_fuse::{Mount, MountOptions};

use super::file_handle::{Handle, forget_inodes};
use super::fixture::{MountedHere, Served, unmount};
use super::mounted::Mounted;
use super::subject::{FsUnderTest, ROOT};

/// S95: a file handle is good as long as its inode exists, also when the kernel has forgotten the inode, and when it was renamed.
#[test]
fn file_handles_outlive_the_kernels_memory() {
    let mounted = MountedHere::new();
    for dir in ["/d", "/d/e", "/other"] {
        mounted.fs.mkdir(ROOT, dir, 0o755).expect("mkdir");
    }
    mounted.fs.put(ROOT, "/d/e/f", b"kept").expect("put");
    let parent = mounted.fs.stat(ROOT, "/d").expect("stat").ino;
    let (file, dir) = (Handle::of(&mounted.fs.dir.join("d/e/f")), Handle::of(&mounted.fs.dir.join("d/e")));
    let root = File::open(&mounted.fs.dir).expect("open");
    forget_inodes();
    let mut content = String::new();
    file.open(&root, libc::O_RDONLY).expect("by handle").read_to_string(&mut content).expect("read");
    assert_eq!(content, "kept");
    forget_inodes();
    let opened = dir.open(&root, libc::O_RDONLY | libc::O_DIRECTORY).expect("by handle");
    let up = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join("..");
    assert_eq!(std::fs::metadata(up).expect("its parent").ino(), parent);
    let link = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string());
    assert_eq!(std::fs::read_link(link).expect("a path"), mounted.fs.dir.join("d/e"));
    drop(opened);
    mounted.fs.rename(ROOT, "/d/e/f", "/other/g", 0).expect("rename");
    forget_inodes();
    content.clear();
    file.open(&root, libc::O_RDONLY).expect("by handle").read_to_string(&mut content).expect("read");
    assert_eq!(content, "kept");
    mounted.fs.unlink(ROOT, "/other/g").expect("unlink");
    forget_inodes();
    let gone = file.open(&root, libc::O_RDONLY).expect_err("it has ended");
    assert_eq!(gone.raw_os_error(), Some(libc::ESTALE));
}

/// S95: a file handle is good through a later mount.
#[test]
fn file_handles_outlive_the_mount() {
    let served = Served::new();
    let dir = served.mountpoint("mnt");
    let mount = || Mount::start(served.embedded(), &dir, MountOptions::default()).expect("a mount");
    let first = mount();
    std::fs::create_dir(dir.join("d")).expect("mkdir");
    std::fs::write(dir.join("d/f"), "kept").expect("write");
    let handle = Handle::of(&dir.join("d/f"));
    unmount(first);
    let second = mount();
    let root = File::open(&dir).expect("open");
    let mut content = String::new();
    handle.open(&root, libc::O_RDONLY).expect("by handle").read_to_string(&mut content).expect("read");
    assert_eq!(content, "kept");
    drop(root);
    unmount(second);
}

/// S12: with `ino32` programs see inode numbers below 2^32, the same for each name of a file and in listings.
#[test]
fn inode_numbers_fit_in_32_bits_where_asked_for() {
    let served = Served::new();
    let dir = served.mountpoint("mnt");
    let options = MountOptions { ino32: true, ..MountOptions::default() };
    let mount = Mount::start(served.embedded(), &dir, options).expect("a mount");
    let fs = Mounted { dir: dir.clone() };
    for n in 0..20 {
        // Directories are spread over shards, which stand in the high bits.
        fs.mkdir(ROOT, &format!("/d{n}"), 0o755).expect("mkdir");
        fs.put(ROOT, &format!("/d{n}/f"), b"x").expect("put");
        fs.link(ROOT, &format!("/d{n}/f"), &format!("/d{n}/g")).expect("link");
    }
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..20 {
        let here = dir.join(format!("d{n}"));
        let ino = |path: &Path| std::fs::symlink_metadata(path).expect("stat").ino();
        assert!(seen.insert(ino(&here)) && seen.insert(ino(&here.join("f"))), "numbers are distinct");
        assert_eq!(ino(&here.join("f")), ino(&here.join("g")));
        for entry in here.read_dir().expect("listing") {
            let entry = entry.expect("entry");
            assert_eq!(entry.ino(), ino(&entry.path()));
        }
    }
    assert!(seen.iter().all(|ino| u32::try_from(*ino).is_ok()), "{seen:?}");
    unmount(mount);
}
