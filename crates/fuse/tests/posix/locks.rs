//! Locks between processes.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use super::fixture::MountedHere;
use super::process::Child;
use super::subject::{FsUnderTest, ROOT};

fn range(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

/// fcntl(2) with a lock; its errno, or 0.
fn fcntl(fd: RawFd, command: i32, lock: &mut libc::flock) -> i32 {
    // SAFETY: a live descriptor and a live struct.
    if unsafe { libc::fcntl(fd, command, lock) } == 0 { 0 } else { errno() }
}

fn set(fd: RawFd, kind: i32, start: i64, len: i64) -> i32 {
    fcntl(fd, libc::F_SETLK, &mut range(kind, start, len))
}

fn set_waiting(fd: RawFd, kind: i32, start: i64, len: i64) -> i32 {
    fcntl(fd, libc::F_SETLKW, &mut range(kind, start, len))
}

/// flock(2); its errno, or 0.
pub(crate) fn flock(fd: RawFd, how: i32) -> i32 {
    // SAFETY: a live descriptor.
    if unsafe { libc::flock(fd, how) } == 0 { 0 } else { errno() }
}

fn errno() -> i32 {
    // SAFETY: errno of this thread; no allocation, as a forked child needs it.
    unsafe { *libc::__errno_location() }
}

/// open(2) without an allocation, for children.
fn open(path: &std::ffi::CStr) -> RawFd {
    // SAFETY: a live string.
    unsafe { libc::open(path.as_ptr(), libc::O_RDWR) }
}

fn file(dir: &Path) -> (File, std::ffi::CString) {
    let path = dir.join("f");
    let file =
        File::options().create(true).truncate(false).read(true).write(true).open(&path).expect("a file");
    let path = std::ffi::CString::new(path.to_str().expect("text")).expect("no NUL");
    (file, path)
}

/// S45: ranges of processes exclude each other, and F_GETLK finds them.
#[test]
fn ranges_exclude_other_processes() {
    let mounted = MountedHere::new();
    let (file, path) = file(&mounted.fs.dir);
    let fd = file.as_raw_fd();
    assert_eq!(set(fd, libc::F_WRLCK, 10, 10), 0);
    assert_eq!(set(fd, libc::F_RDLCK, 30, 0), 0);
    let parent = std::process::id() as i32;
    let child = Child::fork(|| {
        let fd = open(&path);
        let mut asked = range(libc::F_WRLCK, 0, 0);
        let checks = [
            set(fd, libc::F_WRLCK, 0, 11) == libc::EAGAIN,
            set(fd, libc::F_RDLCK, 19, 1) == libc::EAGAIN,
            set(fd, libc::F_WRLCK, 20, 10) == 0,
            set(fd, libc::F_RDLCK, 40, 5) == 0,
            set(fd, libc::F_WRLCK, 40, 5) == libc::EAGAIN,
            fcntl(fd, libc::F_GETLK, &mut asked) == 0,
            i32::from(asked.l_type) == libc::F_WRLCK && asked.l_start == 10 && asked.l_len == 10,
            asked.l_pid == parent,
        ];
        checks.iter().position(|ok| !ok).map_or(0, |at| 1 + at as i32)
    });
    assert_eq!(child.status(), 0, "the check of this number failed");
    // The child is gone, and its locks with it.
    assert_eq!(set(fd, libc::F_WRLCK, 0, 0), 0);
}

/// S49: closing any descriptor of the file drops the locks of the process.
#[test]
fn locks_go_with_their_owner() {
    let mounted = MountedHere::new();
    let (file, path) = file(&mounted.fs.dir);
    let fd = file.as_raw_fd();
    let try_in_child = || Child::fork(|| set(open(&path), libc::F_WRLCK, 0, 0)).status();
    assert_eq!(set(fd, libc::F_WRLCK, 0, 0), 0);
    assert_eq!(try_in_child(), libc::EAGAIN);
    drop(File::open(mounted.fs.dir.join("f")).expect("another descriptor"));
    assert_eq!(try_in_child(), 0);
    let (other, _) = self::file(&mounted.fs.dir);
    assert_eq!(flock(other.as_raw_fd(), libc::LOCK_EX), 0);
    let flock_in_child = || Child::fork(|| flock(open(&path), libc::LOCK_SH | libc::LOCK_NB)).status();
    assert_eq!(flock_in_child(), libc::EAGAIN);
    drop(other);
    // The kernel reports a last close asynchronously, and children of other tests may hold a copy for a moment.
    let mut tries = 0;
    while flock_in_child() != 0 {
        tries += 1;
        assert!(tries < 6_000, "the lock outlives its descriptor");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// S45: when a file is closed, the kernel says so later. Meanwhile another open file may have the address by which it names the owner
/// of a lock: each of the two loses its own lock by its own close.
#[test]
fn locks_of_files_that_are_opened_and_closed_in_a_hurry_stay_apart() {
    const THREADS: usize = 12;
    const ROUNDS: usize = 300;
    let mounted = MountedHere::new();
    let (_file, path) = file(&mounted.fs.dir);
    let holders = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (done, is_done) = std::sync::mpsc::channel();
    for _ in 0..THREADS {
        let (path, holders, done) = (path.clone(), holders.clone(), done.clone());
        std::thread::spawn(move || {
            let mut most = 0;
            for _ in 0..ROUNDS {
                let fd = open(&path);
                assert_eq!(flock(fd, libc::LOCK_EX), 0);
                most = most.max(1 + holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
                std::thread::yield_now();
                holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                // SAFETY: a descriptor of this thread, which it does not use again.
                unsafe { libc::close(fd) };
            }
            done.send(most)
        });
    }
    for _ in 0..THREADS {
        let most =
            is_done.recv_timeout(std::time::Duration::from_secs(120)).expect("a closed file holds a lock");
        assert_eq!(most, 1, "so many held it at once");
    }
}

/// S45: locks of flock(2) and of fcntl(2) are independent of each other, in one process and between processes.
#[test]
fn flock_and_ranges_do_not_meet() {
    let mounted = MountedHere::new();
    let (file, path) = file(&mounted.fs.dir);
    let fd = file.as_raw_fd();
    assert_eq!(flock(fd, libc::LOCK_EX), 0);
    assert_eq!(Child::fork(|| set(open(&path), libc::F_WRLCK, 5, 1)).status(), 0);
    assert_eq!(set_waiting(fd, libc::F_WRLCK, 0, 0), 0);
    assert_eq!(Child::fork(|| set(open(&path), libc::F_RDLCK, 5, 1)).status(), libc::EAGAIN);
    // Neither takes the other along.
    assert_eq!(flock(fd, libc::LOCK_UN), 0);
    assert_eq!(Child::fork(|| set(open(&path), libc::F_RDLCK, 5, 1)).status(), libc::EAGAIN);
    assert_eq!(Child::fork(|| flock(open(&path), libc::LOCK_EX | libc::LOCK_NB)).status(), 0);
    assert_eq!(flock(fd, libc::LOCK_SH), 0);
    assert_eq!(set(fd, libc::F_UNLCK, 0, 0), 0);
    let exclusive = || Child::fork(|| flock(open(&path), libc::LOCK_EX | libc::LOCK_NB)).status();
    assert_eq!(exclusive(), libc::EAGAIN);
    assert_eq!(Child::fork(|| set(open(&path), libc::F_WRLCK, 0, 0)).status(), 0);
}

/// S45: two open files of one process exclude each other by flock(2), and a wait ends when the other is unlocked.
#[test]
fn two_open_files_of_a_process_exclude_each_other() {
    let mounted = MountedHere::new();
    let (first, _) = file(&mounted.fs.dir);
    let (second, _) = file(&mounted.fs.dir);
    assert_eq!(flock(first.as_raw_fd(), libc::LOCK_EX), 0);
    assert_eq!(flock(second.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB), libc::EAGAIN);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| flock(second.as_raw_fd(), libc::LOCK_EX));
        // Longer than any look for those that wait for themselves would take.
        std::thread::sleep(std::time::Duration::from_millis(900));
        assert!(!waits.is_finished(), "the other open file has it");
        assert_eq!(flock(first.as_raw_fd(), libc::LOCK_UN), 0);
        assert_eq!(waits.join().expect("it ends"), 0);
    });
}

/// S49: a lock of an open file (F_OFD_SETLK) outlives other descriptors of the process, and goes with the open file.
#[test]
fn locks_of_an_open_file_go_with_it() {
    let mounted = MountedHere::new();
    let (file, path) = file(&mounted.fs.dir);
    assert_eq!(fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut range(libc::F_WRLCK, 0, 0)), 0);
    let try_in_child = || Child::fork(|| set(open(&path), libc::F_WRLCK, 0, 0)).status();
    assert_eq!(try_in_child(), libc::EAGAIN);
    drop(File::open(mounted.fs.dir.join("f")).expect("another descriptor"));
    assert_eq!(try_in_child(), libc::EAGAIN);
    drop(file);
    let mut tries = 0;
    while try_in_child() != 0 {
        tries += 1;
        assert!(tries < 6_000, "the lock outlives its open file");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// S45: a wait ends when the lock is dropped, and many waits do not delay other requests.
#[test]
fn lock_waits_end_with_the_lock_and_block_no_other_call() {
    let mounted = MountedHere::new();
    let (file, path) = file(&mounted.fs.dir);
    let fd = file.as_raw_fd();
    assert_eq!(set(fd, libc::F_WRLCK, 0, 0), 0);
    let children: Vec<Child> =
        (0..6).map(|_| Child::fork(|| set_waiting(open(&path), libc::F_WRLCK, 0, 0))).collect();
    for child in &children {
        child.wait_in(libc::SYS_fcntl);
    }
    mounted.fs.put(ROOT, "/other", b"goes on").expect("put");
    assert_eq!(mounted.fs.get(ROOT, "/other"), Ok(b"goes on".to_vec()));
    assert_eq!(set(fd, libc::F_UNLCK, 0, 0), 0);
    for child in children {
        assert_eq!(child.status(), 0);
    }
}

/// S48: a wait ends with a signal.
#[test]
fn waits_end_with_a_signal() {
    extern "C" fn nothing(_: i32) {}
    let mounted = MountedHere::new();
    let (file, path) = file(&mounted.fs.dir);
    assert_eq!(set(file.as_raw_fd(), libc::F_WRLCK, 0, 0), 0);
    let killed = Child::fork(|| set_waiting(open(&path), libc::F_WRLCK, 0, 0));
    let interrupted = Child::fork(|| {
        // SAFETY: installs a handler that does nothing; the struct is all zeros but for it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        }
        set_waiting(open(&path), libc::F_RDLCK, 0, 0)
    });
    killed.wait_in(libc::SYS_fcntl);
    interrupted.wait_in(libc::SYS_fcntl);
    killed.signal(libc::SIGKILL);
    interrupted.signal(libc::SIGUSR1);
    assert_eq!(interrupted.status(), libc::EINTR);
    assert_eq!(killed.status(), -libc::SIGKILL);
    // Neither is in the queue any more: the next one gets it.
    drop(file);
    assert_eq!(Child::fork(|| set(open(&path), libc::F_WRLCK, 0, 0)).status(), 0);
}
