//! Capabilities, user namespaces, and the kernel's protections, as on local file systems.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::fixture::MountedHere;
use super::process::Child;
use super::subject::{ALICE, BOB, FsUnderTest, ROOT};

const CHOWN: u32 = 0;
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const FOWNER: u32 = 3;
const SYS_ADMIN: u32 = 21;

/// Runs each call in a child process with only this user and these capabilities; returns the errno, 0 for success.
fn act(uid: u32, capabilities: &[u32], call: impl FnOnce() -> i32) -> i32 {
    let set = capabilities.iter().fold(0u32, |set, one| set | 1 << one);
    Child::fork(|| {
        // SAFETY: plain system calls on live memory.
        unsafe {
            libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0);
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>());
            libc::syscall(libc::SYS_setresgid, uid, uid, uid);
            libc::syscall(libc::SYS_setresuid, uid, uid, uid);
            let (header, data) = ([0x2008_0522u32, 0], [set, set, 0, 0, 0, 0]);
            if libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) != 0 {
                return 255;
            }
        }
        call()
    })
    .status()
}

/// Of a system call that was made just now.
fn errno(result: impl Into<i64>) -> i32 {
    // SAFETY: the errno of this thread.
    if result.into() < 0 { unsafe { *libc::__errno_location() } } else { 0 }
}

fn at(mounted: &MountedHere, path: &str) -> CString {
    CString::new(format!("{}{path}", mounted.fs.dir.display())).expect("text")
}

/// S100: "Capabilities decide as on local Linux file systems … User 0 without them is an ordinary user."
#[test]
fn capabilities_count_and_the_number_of_root_does_not() {
    let mounted = MountedHere::new();
    mounted.fs.put(ROOT, "/secret", b"x").expect("put");
    mounted.fs.chmod(ROOT, "/secret", 0o600).expect("chmod");
    mounted.fs.chown(ROOT, "/secret", Some(ALICE.uid), Some(ALICE.gid)).expect("chown");
    mounted.fs.setxattr(ROOT, "/secret", "trusted.t", b"1", 0).expect("set");
    let path = at(&mounted, "/secret");
    let name = CString::new("trusted.t").expect("text");
    // SAFETY (all): live strings.
    let open = |flags| errno(unsafe { libc::open(path.as_ptr(), flags) });
    let chmod = || errno(unsafe { libc::chmod(path.as_ptr(), 0o600) });
    let chown = |uid: u32| errno(unsafe { libc::chown(path.as_ptr(), uid, u32::MAX) });
    let list = || errno(unsafe { libc::listxattr(path.as_ptr(), std::ptr::null_mut(), 0) } as i64);
    let trusted =
        || errno(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), c"2".as_ptr().cast(), 1, 0) });
    let (read, write) = (libc::O_RDONLY, libc::O_WRONLY);
    // Root without capabilities.
    assert_eq!(act(0, &[], || open(read)), libc::EACCES);
    assert_eq!(act(0, &[], || open(write)), libc::EACCES);
    assert_eq!(act(0, &[], chmod), libc::EPERM);
    assert_eq!(act(0, &[], || chown(7)), libc::EPERM);
    assert_eq!(act(0, &[], trusted), libc::EPERM);
    assert_eq!(act(0, &[DAC_OVERRIDE], || open(write)), 0);
    // A user with some.
    assert_eq!(act(BOB.uid, &[], || open(read)), libc::EACCES);
    assert_eq!(act(BOB.uid, &[DAC_READ_SEARCH], || open(read)), 0);
    assert_eq!(act(BOB.uid, &[DAC_READ_SEARCH], || open(write)), libc::EACCES);
    assert_eq!(act(BOB.uid, &[DAC_OVERRIDE], || open(write)), 0);
    assert_eq!(act(BOB.uid, &[CHOWN], chmod), libc::EPERM);
    assert_eq!(act(BOB.uid, &[FOWNER], chmod), 0);
    assert_eq!(act(BOB.uid, &[SYS_ADMIN], trusted), 0);
    assert_eq!(act(BOB.uid, &[SYS_ADMIN], list), 0);
    assert_eq!(act(BOB.uid, &[FOWNER], || chown(BOB.uid)), libc::EPERM);
    assert_eq!(act(BOB.uid, &[CHOWN], || chown(BOB.uid)), 0);
    assert_eq!(act(BOB.uid, &[], || open(write)), 0, "it is Bob's now");
}

/// S100: "In a user namespace they count over inodes whose owner and group have a number in that namespace …"
#[test]
fn root_of_a_user_namespace_has_capabilities_over_mapped_inodes() {
    const FIRST: u32 = 100_000;
    let mounted = MountedHere::new();
    mounted.fs.mkdir(ROOT, "/c", 0o755).expect("mkdir");
    mounted.fs.chown(ROOT, "/c", Some(FIRST), Some(FIRST)).expect("chown");
    mounted.fs.put(ROOT, "/outside", b"x").expect("put");
    mounted.fs.chmod(ROOT, "/outside", 0o600).expect("chmod");
    let paths = ["/c/f", "/c/d", "/c/d/g", "/outside"].map(|path| at(&mounted, path));
    let [file, dir, deep, outside] = &paths;
    let pipe = || {
        let mut ends = [0; 2];
        // SAFETY: two numbers in live memory, and descriptors that only this process has.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            ends.map(|fd| OwnedFd::from_raw_fd(fd))
        }
    };
    let ([ready_in, ready_out], [mapped_in, mapped_out]) = (pipe(), pipe());
    let child = Child::fork(|| {
        let mut byte = 0u8;
        // SAFETY: plain system calls on live memory.
        unsafe {
            if libc::unshare(libc::CLONE_NEWUSER) != 0 {
                return 200;
            }
            libc::write(ready_out.as_raw_fd(), (&raw const byte).cast(), 1);
            libc::read(mapped_in.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>());
            libc::syscall(libc::SYS_setresgid, 0, 0, 0);
            libc::syscall(libc::SYS_setresuid, 0, 0, 0);
            let fd = libc::open(file.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600);
            let checks = [
                fd >= 0,
                libc::chown(file.as_ptr(), 1000, 1000) == 0,
                libc::open(file.as_ptr(), libc::O_RDWR) >= 0,
                libc::chmod(file.as_ptr(), 0o640) == 0,
                libc::mkdir(dir.as_ptr(), 0o700) == 0,
                libc::chown(dir.as_ptr(), 33, 33) == 0,
                libc::open(deep.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600) >= 0,
                // Root of the namespace has no rights on an inode whose owner has no number in it.
                libc::open(outside.as_ptr(), libc::O_RDONLY) < 0 && errno(-1) == libc::EACCES,
                libc::chmod(outside.as_ptr(), 0o777) < 0 && errno(-1) == libc::EPERM,
            ];
            for (at, check) in checks.iter().enumerate() {
                if !check {
                    return at as i32 + 1;
                }
            }
        }
        0
    });
    // The end of the child is an end of the pipe, too.
    drop((ready_out, mapped_in));
    let mut byte = 0u8;
    // SAFETY: one byte of live memory.
    let ready = unsafe { libc::read(ready_in.as_raw_fd(), (&raw mut byte).cast(), 1) };
    assert_eq!(
        ready, 1,
        "this machine allows root no user namespace (unshare(2)); in a chroot Linux allows none"
    );
    for kind in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{}/{kind}", child.pid), format!("0 {FIRST} 65536")).expect("mapped");
    }
    // SAFETY: one byte of live memory.
    assert_eq!(unsafe { libc::write(mapped_out.as_raw_fd(), (&raw const byte).cast(), 1) }, 1);
    assert_eq!(child.status(), 0, "the check of this number fails");
    let owner = |path| mounted.fs.stat(ROOT, path).map(|stat| (stat.uid, stat.gid, stat.mode & 0o777));
    assert_eq!(owner("/c/f"), Ok((FIRST + 1000, FIRST + 1000, 0o640)));
    assert_eq!(owner("/c/d/g"), Ok((FIRST, FIRST, 0o600)));
}

fn setting(name: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/sys/fs/{name}")).expect("a setting of Linux");
    text.trim().parse().expect("a number")
}

/// S101: links to files of others, symbolic links, files and pipes in sticky directories follow the machine's
/// settings.
#[test]
fn protections_of_the_machine_hold_on_a_mount() {
    let mounted = MountedHere::new();
    let fs = &mounted.fs;
    fs.mkdir(ROOT, "/tmp", 0o1777).expect("mkdir");
    fs.put(ROOT, "/tmp/secret", b"x").expect("put");
    fs.chmod(ROOT, "/tmp/secret", 0o600).expect("chmod");
    fs.put(ROOT, "/tmp/shared", b"x").expect("put");
    fs.chmod(ROOT, "/tmp/shared", 0o666).expect("chmod");
    let expect = |errno, on| if on { Err(errno) } else { Ok(()) };
    let links = setting("protected_hardlinks") > 0;
    assert_eq!(fs.link(ALICE, "/tmp/secret", "/tmp/mine"), expect(libc::EPERM, links));
    assert_eq!(fs.link(ALICE, "/tmp/shared", "/tmp/ours"), Ok(()));
    assert_eq!(fs.link(ROOT, "/tmp/secret", "/tmp/roots"), Ok(()));
    fs.put(ALICE, "/tmp/hers", b"x").expect("put");
    fs.chmod(ALICE, "/tmp/hers", 0o600).expect("chmod");
    assert_eq!(fs.link(ALICE, "/tmp/hers", "/tmp/hers too"), Ok(()));
    // The kernel's own.
    fs.symlink(ALICE, "shared", "/tmp/way").expect("symlink");
    let symlinks = setting("protected_symlinks") > 0;
    assert_eq!(fs.get(BOB, "/tmp/way").map(drop), expect(libc::EACCES, symlinks));
    fs.chmod(ALICE, "/tmp/hers", 0o666).expect("chmod");
    let regular = setting("protected_regular") > 0;
    let made = fs.open(BOB, "/tmp/hers", libc::O_CREAT | libc::O_WRONLY, 0o600).and_then(|fd| fs.close(fd));
    assert_eq!(made, expect(libc::EACCES, regular));
    fs.mkfifo(ALICE, "/tmp/pipe", 0o666).expect("mkfifo");
    fs.chmod(ALICE, "/tmp/pipe", 0o666).expect("chmod");
    let fifos = setting("protected_fifos") > 0;
    let flags = libc::O_CREAT | libc::O_RDWR | libc::O_NONBLOCK;
    let made = fs.open(BOB, "/tmp/pipe", flags, 0o600).and_then(|fd| fs.close(fd));
    assert_eq!(made, expect(libc::EACCES, fifos));
}
