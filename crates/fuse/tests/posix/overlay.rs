//! The features that overlayfs and container runtimes need of a layer: files without names, whiteouts, `trusted.`
//! attributes, types in listings.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::fixture::MountedHere;
use super::subject::{FsUnderTest, ROOT};
use super::two_mounts::TwoMounts;

fn unnamed(dir: &Path, flags: i32) -> std::io::Result<File> {
    File::options().read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE | flags).open(dir)
}

/// linkat(2) of an open file.
fn link(file: &File, to: &Path) -> std::io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no NUL");
    let to = CString::new(to.as_os_str().as_bytes()).expect("no NUL");
    let (from, to) = (from.as_ptr(), to.as_ptr());
    // SAFETY: live strings.
    let said = unsafe { libc::linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, libc::AT_SYMLINK_FOLLOW) };
    if said == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// S97: a file of O_TMPFILE has no name until it is linked; with O_EXCL it gets none, and one that lost its name neither.
#[test]
fn files_without_names_get_one_when_they_are_linked() {
    let mounted = MountedHere::new();
    let dir = &mounted.fs.dir;
    let mut file = unnamed(dir, 0).expect("O_TMPFILE");
    file.write_all(b"content").expect("write");
    assert_eq!(file.metadata().expect("stat").nlink(), 0);
    assert!(mounted.fs.names("/").is_empty());
    link(&file, &dir.join("f")).expect("a first name");
    assert_eq!(mounted.fs.get(ROOT, "/f"), Ok(b"content".to_vec()));
    let stat = mounted.fs.stat(ROOT, "/f").expect("stat");
    assert_eq!((stat.nlink, stat.mode & 0o7777), (1, 0o640));
    assert_eq!(stat.ino, file.metadata().expect("stat").ino());
    link(&file, &dir.join("g")).expect("a second");
    assert_eq!(mounted.fs.stat(ROOT, "/g").expect("stat").nlink, 2);
    // Taken again, they do not come back.
    mounted.fs.unlink(ROOT, "/f").expect("unlink");
    mounted.fs.unlink(ROOT, "/g").expect("unlink");
    assert_eq!(link(&file, &dir.join("h")).expect_err("lost").raw_os_error(), Some(libc::ENOENT));
    let exclusive = unnamed(dir, libc::O_EXCL).expect("O_TMPFILE");
    assert_eq!(link(&exclusive, &dir.join("h")).expect_err("O_EXCL").raw_os_error(), Some(libc::ENOENT));
    assert!(mounted.fs.names("/").is_empty());
}

/// S13: RENAME_WHITEOUT leaves the character device 0/0.
#[test]
fn a_rename_can_leave_a_whiteout() {
    let mounted = MountedHere::new();
    mounted.fs.put(ROOT, "/f", b"x").expect("put");
    mounted.fs.put(ROOT, "/g", b"y").expect("put");
    let both = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    assert_eq!(mounted.fs.rename(ROOT, "/f", "/g", both), Err(libc::EEXIST));
    mounted.fs.rename(ROOT, "/f", "/g", libc::RENAME_WHITEOUT).expect("rename");
    assert_eq!(mounted.fs.get(ROOT, "/g"), Ok(b"x".to_vec()));
    let left = std::fs::symlink_metadata(mounted.fs.dir.join("f")).expect("a whiteout");
    assert!(left.file_type().is_char_device());
    assert_eq!((left.rdev(), left.mode() & 0o7777), (0, 0));
    mounted.fs.unlink(ROOT, "/f").expect("unlink");
    mounted.fs.rename(ROOT, "/g", "/h", both).expect("rename");
    assert!(mounted.fs.dir.join("g").symlink_metadata().expect("a whiteout").file_type().is_char_device());
    let exchange = libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE;
    assert_eq!(mounted.fs.rename(ROOT, "/g", "/h", exchange), Err(libc::EINVAL));
}

/// A mount of the kernel's overlayfs.
struct Overlay(PathBuf);

impl Overlay {
    fn mount(lower: &Path, upper: &Path, work: &Path, at: &Path) -> Overlay {
        let options =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let said = std::process::Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(at)
            .output()
            .expect("mount(8)");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        Overlay(at.to_owned())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let said = std::process::Command::new("umount").arg(&self.0).status();
        assert!(said.expect("umount(8)").success());
    }
}

/// S98: overlayfs takes a directory of a mount as the layer that it writes to.
#[test]
fn overlayfs_writes_to_a_layer_on_a_mount() {
    let mounted = MountedHere::new();
    let scratch = tempfile::TempDir::new_in("/tmp").expect("a scratch directory");
    let (lower, merged) = (scratch.path().join("lower"), scratch.path().join("merged"));
    for dir in [&lower, &merged, &lower.join("d"), &lower.join("e")] {
        std::fs::create_dir(dir).expect("mkdir");
    }
    for name in ["kept", "changed", "removed", "renamed", "d/inner", "e/inner"] {
        std::fs::write(lower.join(name), name).expect("write");
    }
    let (upper, work) = (mounted.fs.dir.join("upper"), mounted.fs.dir.join("work"));
    std::fs::create_dir(&upper).expect("mkdir");
    std::fs::create_dir(&work).expect("mkdir");
    {
        let overlay = Overlay::mount(&lower, &upper, &work, &merged);
        let at = |name: &str| overlay.0.join(name);
        std::fs::write(at("changed"), b"new").expect("copied up");
        std::fs::remove_file(at("removed")).expect("a whiteout");
        std::fs::rename(at("renamed"), at("other")).expect("renamed with a whiteout");
        std::fs::remove_dir_all(at("d")).expect("a whiteout for all");
        std::fs::create_dir(at("d")).expect("an opaque directory");
        std::fs::write(at("d/fresh"), b"fresh").expect("write");
        std::fs::write(at("e/added"), b"added").expect("write");
        std::fs::remove_file(at("e/inner")).expect("a whiteout");
    }
    // The layer contains the whiteouts and attributes that overlayfs reads at the next mount.
    for name in ["removed", "renamed", "e/inner"] {
        let left = upper.join(name).symlink_metadata().expect("a whiteout");
        assert!(left.file_type().is_char_device() && left.rdev() == 0, "{name}");
    }
    let opaque = mounted.fs.getxattr(ROOT, "/upper/d", "trusted.overlay.opaque").expect("an attribute");
    assert_eq!(opaque, b"y");
    let overlay = Overlay::mount(&lower, &upper, &work, &merged);
    let read = |name: &str| {
        let mut content = String::new();
        File::open(overlay.0.join(name)).map(|mut file| file.read_to_string(&mut content).expect("read"))?;
        Ok::<String, std::io::Error>(content)
    };
    for (name, expect) in [
        ("kept", "kept"),
        ("changed", "new"),
        ("other", "renamed"),
        ("d/fresh", "fresh"),
        ("e/added", "added"),
    ] {
        assert_eq!(read(name).expect(name), expect);
    }
    for name in ["removed", "renamed", "d/inner", "e/inner"] {
        assert_eq!(read(name).expect_err(name).kind(), std::io::ErrorKind::NotFound);
    }
    let mut names: Vec<_> = std::fs::read_dir(&overlay.0)
        .expect("listing")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["changed", "d", "e", "kept", "other"]);
}

/// S98: names of a layer stay valid for overlayfs when directories change, also those that another mount changes.
#[test]
fn overlayfs_finds_its_layer_after_changes() {
    let mounts = TwoMounts::new();
    let (here, there) = (&mounts.a.dir, &mounts.b.dir);
    let scratch = tempfile::TempDir::new_in("/tmp").expect("a scratch directory");
    let (lower, merged) = (scratch.path().join("lower"), scratch.path().join("merged"));
    for dir in [&lower, &merged, &here.join("upper"), &here.join("work"), &here.join("else")] {
        std::fs::create_dir(dir).expect("mkdir");
    }
    std::fs::write(here.join("else/f"), b"old").expect("write");
    let overlay = Overlay::mount(&lower, &here.join("upper"), &here.join("work"), &merged);
    let at = |name: &str| overlay.0.join(name);
    let narrow = |path: PathBuf| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    for round in 0..5 {
        let (dir, file) = (at(&format!("d{round}/e")), at(&format!("d{round}/e/f")));
        std::fs::create_dir_all(&dir).expect("mkdir");
        std::fs::write(&file, b"x").expect("write");
        narrow(at(&format!("d{round}"))).expect("chmod");
        narrow(dir).expect("chmod below it");
        // A program looks at a file that the other mount then changes.
        assert!(std::fs::read(here.join("else/f")).is_ok());
        std::fs::write(there.join("else/f"), b"new").expect("written elsewhere");
        std::fs::rename(there.join("else/f"), there.join("else/g")).expect("moved elsewhere");
        std::fs::rename(there.join("else/g"), there.join("else/f")).expect("and back");
        narrow(there.join("else")).expect("chmod elsewhere");
        assert_eq!(std::fs::read(&file).expect("still there"), b"x", "round {round}");
        assert_eq!(std::fs::read_dir(at("")).expect("listing").count(), round + 1);
    }
}
