//! Features that only a mount has: mappings, direct I/O, execution, and its start and end.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use chiton_fuse::{Mount, MountError, MountOptions};

use super::fixture::{MountedHere, Served, unmount};
use super::mounted::{Mounted, as_user};
use super::subject::{BOB, FsUnderTest, ROOT};

/// A shared mapping of a whole file.
pub(crate) struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    pub(crate) fn of(file: &File, len: usize) -> Mapping {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of an open file.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapping { at: at.cast(), len }
    }

    pub(crate) fn store(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: within the mapping; nothing in this process holds a reference into it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len()) };
    }

    pub(crate) fn load(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: as above.
        (0..len).map(|i| unsafe { self.at.add(offset + i).read_volatile() }).collect()
    }

    pub(crate) fn sync(&self) {
        // SAFETY: the whole mapping.
        assert_eq!(unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped once, unmapped once.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// S42: mappings and system calls see each other on one mount.
#[test]
fn mappings_and_calls_see_each_other() {
    let mounted = MountedHere::new();
    let path = mounted.fs.dir.join("f");
    let file = File::options().create_new(true).read(true).write(true).open(&path).expect("create");
    file.write_all_at(&[1; 20_000], 0).expect("write");
    let mapping = Mapping::of(&file, 20_000);
    assert_eq!(mapping.load(19_990, 10), [1; 10]);
    mapping.store(5_000, b"stored");
    let mut got = [0; 6];
    file.read_exact_at(&mut got, 5_000).expect("read");
    assert_eq!(&got, b"stored");
    file.write_all_at(b"written", 12_000).expect("write");
    assert_eq!(mapping.load(12_000, 7), b"written");
    mapping.sync();
    drop(mapping);
    drop(file);
    let content = std::fs::read(&path).expect("read");
    assert_eq!((&content[5_000..5_006], &content[12_000..12_007]), (&b"stored"[..], &b"written"[..]));
}

/// S43: O_DIRECT without alignment.
#[test]
fn direct_io_needs_no_alignment() {
    let mounted = MountedHere::new();
    let path = mounted.fs.dir.join("f");
    let direct = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .expect("open");
    direct.write_all_at(b"odd place", 12_345).expect("write");
    let mut got = [0; 9];
    direct.read_exact_at(&mut got, 12_345).expect("read");
    assert_eq!(&got, b"odd place");
    assert_eq!(std::fs::read(&path).expect("read").len(), 12_354);
}

/// S32: execution needs the right to execute, and no right to read.
#[test]
fn execution_asks_for_execution() {
    let mounted = MountedHere::new();
    let program = mounted.fs.dir.join("true");
    std::fs::copy("/bin/true", &program).expect("copy");
    let run = |mode: u32| {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).expect("chmod");
        let path = std::ffi::CString::new(program.to_str().expect("text")).expect("no NUL");
        as_user(BOB, || {
            super::process::Child::fork(|| {
                let arguments = [path.as_ptr(), std::ptr::null()];
                // SAFETY: live strings, ended by null.
                unsafe {
                    libc::execv(path.as_ptr(), arguments.as_ptr());
                    *libc::__errno_location()
                }
            })
            .status()
        })
    };
    assert_eq!(run(0o711), 0);
    assert_eq!(run(0o744), libc::EACCES);
}

/// A program that runs is not emptied by an open with O_TRUNC, which is refused (ETXTBSY).
#[test]
fn a_running_program_is_not_truncated() {
    let mounted = MountedHere::new();
    let program = mounted.fs.dir.join("sleep");
    std::fs::copy("/bin/sleep", &program).expect("copy");
    let before = std::fs::read(&program).expect("read");
    let mut running = std::process::Command::new(&program).arg("600").spawn().expect("it runs");
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_TRUNC)
        .open(&program)
        .map_err(|error| error.raw_os_error());
    let after = std::fs::read(&program).expect("read");
    running.kill().expect("kill");
    running.wait().expect("wait");
    assert_eq!(opened.map(drop), Err(Some(libc::ETXTBSY)));
    assert!(after == before, "{} bytes are left of {}", after.len(), before.len());
}

/// S22: unmounting loses nothing; S38: the next mount reads what this one wrote.
#[test]
fn unmounting_pushes_and_commits() {
    let served = Served::new();
    let dir = served.mountpoint("mnt");
    let fs = Mounted { dir: dir.clone() };
    for round in 0..3u8 {
        let mount = Mount::start(served.embedded(), &dir, MountOptions::default()).expect("a mount");
        if round > 0 {
            assert_eq!(fs.get(ROOT, "/f").expect("get"), vec![round - 1; 100_000]);
        }
        fs.put(ROOT, "/f", &vec![round; 100_000]).expect("put");
        if round == 1 {
            // As an administrator does it, while the process waits.
            let waiting = std::thread::spawn(move || mount.wait());
            let status = std::process::Command::new("umount").arg(&dir).status().expect("umount");
            assert!(status.success());
            waiting.join().expect("no panic").expect("a clean end");
        } else {
            unmount(mount);
        }
        assert!(dir.read_dir().expect("readable").next().is_none(), "nothing is mounted");
    }
}

/// The errors of a failed mount name the cause.
#[test]
fn mounting_refuses_bad_mount_points() {
    let served = Served::new();
    let dir = served.mountpoint("mnt");
    let check = |at: &Path, options: MountOptions, expect: &str| {
        let error = Mount::start(served.embedded(), at, options).expect_err("refused");
        let (kind, words) = (format!("{error:?}"), error.to_string());
        assert!(kind.starts_with(expect), "{kind}: {words}");
        assert!(words.len() > 20 && !words.contains("os error 0"), "{words}");
    };
    check(&served.scratch.path().join("none"), MountOptions::default(), "NotFound");
    let file = served.scratch.path().join("file");
    std::fs::write(&file, "").expect("write");
    check(&file, MountOptions::default(), "NotDir");
    check(&served.scratch.path().join("data"), MountOptions::default(), "NotEmpty");
    check(&dir, MountOptions { threads: Some(0), ..MountOptions::default() }, "Options");
    check(&dir, MountOptions { fs_name: "a,b".to_owned(), ..MountOptions::default() }, "Options");

    let mount = Mount::start(served.embedded(), &dir, MountOptions::default()).expect("a mount");
    check(&dir, MountOptions::default(), "AlreadyMounted");
    let held = File::create(dir.join("f")).expect("create");
    let (error, mount) = mount.unmount().expect_err("in use");
    assert!(matches!(error, MountError::Busy(_)), "{error}");
    drop(held);
    unmount(mount.expect("still mounted"));
}

/// A mount for reading changes nothing.
#[test]
fn read_only_mounts_refuse_changes() {
    let served = Served::new();
    let dir = served.mountpoint("mnt");
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let mount = Mount::start(served.embedded(), &dir, options).expect("a mount");
    let fs = Mounted { dir };
    assert_eq!(fs.mkdir(ROOT, "/d", 0o755), Err(libc::EROFS));
    assert_eq!(fs.chmod(ROOT, "/", 0o700), Err(libc::EROFS));
    drop(mount);
}

/// S15: a write of 1 MiB is seen whole, with read-ahead and without.
#[test]
fn large_files_pass_through_the_page_cache() {
    let mounted = MountedHere::new();
    let path = mounted.fs.dir.join("f");
    let part: Vec<u8> = (0..1_000_003u32).map(|i| (i % 251) as u8).collect();
    let mut file = File::create(&path).expect("create");
    for _ in 0..20 {
        file.write_all(&part).expect("write");
    }
    file.sync_all().expect("fsync");
    let mut got = Vec::new();
    File::open(&path).expect("open").read_to_end(&mut got).expect("read");
    assert_eq!(got.len(), 20 * part.len());
    assert!(got.chunks(part.len()).all(|chunk| chunk == part));
}
