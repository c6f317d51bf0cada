//! Two mounts of one server, each with its own connection.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use chiton_client::{Client, ClientOptions};
use chiton_fuse::{Mount, MountOptions};
use chiton_transport::Address;

use super::fixture::Served;
use super::kernel::Mapping;
use super::locks::flock;
use super::mounted::Mounted;
use super::subject::{BOB, FsUnderTest, ROOT};

pub(crate) struct TwoMounts {
    pub(crate) a: Mounted,
    pub(crate) b: Mounted,
    mounts: Option<(Mount, Mount)>,
    // Dropped last.
    served: Served,
}

impl TwoMounts {
    /// Both mounts use a connection.
    pub(crate) fn new() -> TwoMounts {
        TwoMounts::with_client().0
    }

    /// Both mounts use a connection. The client is that of `b`.
    pub(crate) fn with_client() -> (TwoMounts, Arc<Client>) {
        let (served, address) = TwoMounts::serve(1);
        let client = connected(&address);
        let (mount_a, a) = mount(&served, connected(&address), "a");
        let (mount_b, b) = mount(&served, client.clone(), "b");
        (TwoMounts { a, b, mounts: Some((mount_a, mount_b)), served }, client)
    }

    /// The server is in the process of `a`, which was alone at first.
    pub(crate) fn beside_the_server() -> TwoMounts {
        let (served, address) = TwoMounts::serve(1);
        let (mount_a, a) = mount(&served, served.embedded(), "a");
        let (mount_b, b) = mount(&served, connected(&address), "b");
        TwoMounts { a, b, mounts: Some((mount_a, mount_b)), served }
    }

    /// One mount in the process of a server with several plates, and one with a connection to each of them.
    pub(crate) fn over_plates(plates: u16) -> TwoMounts {
        let (served, address) = TwoMounts::serve(plates);
        let (mount_a, a) = mount(&served, served.embedded(), "a");
        let (mount_b, b) = mount(&served, connected(&address), "b");
        TwoMounts { a, b, mounts: Some((mount_a, mount_b)), served }
    }

    /// A client in the process of the server, without a mount.
    pub(crate) fn client_beside(&self) -> Arc<Client> {
        self.served.embedded()
    }

    /// Both kinds, one after the other.
    pub(crate) fn all() -> impl Iterator<Item = TwoMounts> {
        [TwoMounts::new as fn() -> TwoMounts, TwoMounts::beside_the_server].into_iter().map(|make| make())
    }

    /// As [`TwoMounts::beside_the_server`]; `open` runs while `a` is alone.
    pub(crate) fn after_alone<T>(open: impl FnOnce(&Mounted) -> T) -> (TwoMounts, T) {
        let (served, address) = TwoMounts::serve(1);
        let (mount_a, a) = mount(&served, served.embedded(), "a");
        let opened = open(&a);
        let (mount_b, b) = mount(&served, connected(&address), "b");
        (TwoMounts { a, b, mounts: Some((mount_a, mount_b)), served }, opened)
    }

    fn serve(plates: u16) -> (Served, Address) {
        let served = Served::with_plates(plates);
        let address = Address::Unix(served.scratch.path().join("socket"));
        served.server.serve(std::slice::from_ref(&address)).expect("a socket");
        (served, address)
    }
}

fn connected(address: &Address) -> Arc<Client> {
    Arc::new(Client::connect(address, ClientOptions::default()).expect("a connection"))
}

fn mount(served: &Served, client: Arc<Client>, name: &str) -> (Mount, Mounted) {
    mount_with(served, client, name, MountOptions::default())
}

fn mount_with(served: &Served, client: Arc<Client>, name: &str, options: MountOptions) -> (Mount, Mounted) {
    let dir = served.mountpoint(name);
    let mount = Mount::start(client, &dir, options).expect("a mount");
    (mount, Mounted { dir })
}

impl Drop for TwoMounts {
    fn drop(&mut self) {
        drop(self.mounts.take());
    }
}

/// S1, S4: names, present and absent, and attributes are never stale.
#[test]
fn names_and_attributes_are_never_stale() {
    for two in TwoMounts::all() {
        let (mut near, mut far) = (&two.a, &two.b);
        near.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        for round in 0..30 {
            let (f, g) = (format!("/d/f{round}"), format!("/d/g{round}"));
            assert_eq!(far.stat(ROOT, &f), Err(libc::ENOENT));
            near.put(ROOT, &f, b"x").expect("put");
            let ino = far.stat(ROOT, &f).expect("made elsewhere").ino;
            near.chmod(ROOT, &f, 0o600).expect("chmod");
            assert_eq!(far.stat(ROOT, &f).expect("stat").mode & 0o777, 0o600);
            near.rename(ROOT, &f, &g, 0).expect("rename");
            assert_eq!(far.stat(ROOT, &f), Err(libc::ENOENT));
            assert_eq!(far.stat(ROOT, &g).expect("renamed elsewhere").ino, ino);
            assert!(far.names("/d").contains(&format!("g{round}")));
            if round % 3 == 0 {
                near.unlink(ROOT, &g).expect("unlink");
                assert_eq!(far.stat(ROOT, &g), Err(libc::ENOENT));
            }
            std::mem::swap(&mut near, &mut far);
        }
    }
}

/// S30: narrowing on one mount is in force on the other.
#[test]
fn narrowing_reaches_the_other_mount() {
    for two in TwoMounts::all() {
        two.a.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        two.a.put(ROOT, "/d/f", b"x").expect("put");
        for _ in 0..10 {
            two.b.stat(BOB, "/d/f").expect("open to all");
            two.a.chmod(ROOT, "/d", 0o700).expect("chmod");
            assert_eq!(two.b.stat(BOB, "/d/f"), Err(libc::EACCES));
            two.a.chmod(ROOT, "/d", 0o755).expect("chmod");
        }
    }
}

/// S2: content is never stale, through descriptors that stay open.
#[test]
fn content_is_never_stale() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", &[0; 30_000]).expect("put");
        let open =
            |fs: &Mounted| File::options().read(true).write(true).open(fs.dir.join("f")).expect("open");
        let writers = [open(&two.a), open(&two.b)];
        let readers = [&two.a, &two.b].map(|fs| File::open(fs.dir.join("f")).expect("open"));
        for round in 1..60u8 {
            let writer = &writers[usize::from(round % 2)];
            writer.write_all_at(&[round; 20_000], u64::from(round) * 100).expect("write");
            for reader in &readers {
                let mut got = [0; 20_000];
                reader.read_exact_at(&mut got, u64::from(round) * 100).expect("read");
                assert!(got == [round; 20_000], "round {round}");
            }
        }
    }
}

/// S2: two mounts that both have read a file and both write it do not wait for each other.
#[test]
fn readers_that_become_writers_take_turns() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", &[0; 200_000]).expect("put");
        std::thread::scope(|scope| {
            for (fs, half) in [(&two.a, 0u64), (&two.b, 100_000)] {
                scope.spawn(move || {
                    let file = File::options().read(true).write(true).open(fs.dir.join("f")).expect("open");
                    let reader = File::open(fs.dir.join("f")).expect("open");
                    for round in 1..40u8 {
                        let mut seen = [0; 1000];
                        reader.read_exact_at(&mut seen, half).expect("read");
                        assert!(seen.iter().all(|&b| b == round - 1), "round {round}");
                        file.write_all_at(&[round; 1000], half).expect("write");
                    }
                });
            }
        });
    }
}

/// S2, S44: nor if one of them was alone when it opened the file, and its kernel keeps pages of its writes.
#[test]
fn a_file_opened_alone_is_written_in_turns() {
    const SLOT: u64 = 100;
    let open = |fs: &Mounted| {
        let mut options = File::options();
        options.read(true).write(true).create(true).open(fs.dir.join("f")).expect("open")
    };
    let (two, early) = TwoMounts::after_alone(|a| {
        let files = [open(a), open(a)];
        files[0].write_all_at(&[0; 100_000], 0).expect("write");
        files
    });
    let writers: Vec<File> = early.into_iter().chain([open(&two.b), open(&two.b)]).collect();
    std::thread::scope(|scope| {
        for (n, file) in (0..).zip(&writers) {
            scope.spawn(move || {
                for round in 1..100u8 {
                    let at = n * SLOT;
                    file.write_all_at(&[round; SLOT as usize], at).expect("write");
                    let mut seen = [0; SLOT as usize];
                    file.read_exact_at(&mut seen, at).expect("read");
                    // S44: the kernel of a descriptor that was opened alone may have to drop an older page first.
                    let begun = Instant::now();
                    while n < 2 && seen[0] < round && begun.elapsed() < Duration::from_secs(10) {
                        file.read_exact_at(&mut seen, at).expect("read");
                    }
                    assert_eq!(seen, [round; SLOT as usize]);
                    // A page that the other mount writes.
                    file.read_exact_at(&mut seen, 90_000).expect("read");
                }
            });
        }
    });
    for fs in [&two.a, &two.b] {
        let bytes = fs.get(ROOT, "/f").expect("get");
        assert!(bytes[..4 * SLOT as usize].iter().all(|&byte| byte == 99));
        assert!(bytes[4 * SLOT as usize..].iter().all(|&byte| byte == 0));
    }
}

/// S2, S90: a writer that was alone when it opened the file does not wait for its readers either.
#[test]
fn a_file_opened_alone_is_followed_by_readers() {
    let (two, log) = TwoMounts::after_alone(|a| {
        File::options().write(true).create(true).truncate(true).open(a.dir.join("log")).expect("open")
    });
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let file = File::open(two.b.dir.join("log")).expect("open");
                let (mut at, mut bytes) = (0, vec![0; 100_000]);
                loop {
                    let was_over = is_over.load(Ordering::SeqCst);
                    let n = file.read_at(&mut bytes, at).expect("read");
                    assert!(bytes[..n].iter().all(|&byte| byte == b'x'), "at {at}");
                    at += n as u64;
                    if n == 0 && was_over {
                        break;
                    }
                }
                assert_eq!(at, 1000 * 1000);
            });
        }
        for _ in 0..1000 {
            (&log).write_all(&[b'x'; 1000]).expect("write");
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

/// S42: unsynced stores into mappings reach a client that writes the file elsewhere, and do not hang it.
#[test]
fn mappings_that_are_not_synced_are_written_back_for_others() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", &[0; 20_000]).expect("put");
        let open =
            |fs: &Mounted| File::options().read(true).write(true).open(fs.dir.join("f")).expect("open");
        let files = [open(&two.a), open(&two.b)];
        let mappings = [Mapping::of(&files[0], 20_000), Mapping::of(&files[1], 20_000)];
        for round in 1..20u8 {
            // One mount, or both, each in its own page.
            mappings[0].store(100, &[round; 50]);
            if round % 2 == 0 {
                mappings[1].store(10_000, &[round; 50]);
            }
            let writer = &files[usize::from(round % 3 == 0)];
            writer.write_all_at(&[round; 50], 15_000).expect("write");
            for file in &files {
                let mut seen = [0; 50];
                file.read_exact_at(&mut seen, 15_000).expect("read");
                assert_eq!(seen, [round; 50]);
            }
        }
        mappings.iter().for_each(Mapping::sync);
        for fs in [&two.a, &two.b] {
            let bytes = fs.get(ROOT, "/f").expect("get");
            assert_eq!(bytes[100..150], [19; 50]);
            assert_eq!(bytes[10_000..10_050], [18; 50]);
            assert_eq!(bytes[15_000..15_050], [19; 50]);
        }
    }
}

/// S42: each mount has one thread, which waits until the kernel of the other one has written back its pages.
#[test]
fn mounts_whose_threads_all_wait_write_back_for_each_other() {
    let (served, address) = TwoMounts::serve(1);
    let one_thread = || MountOptions { threads: Some(1), ..MountOptions::default() };
    let (mount_a, a) = mount_with(&served, connected(&address), "a", one_thread());
    let (mount_b, b) = mount_with(&served, connected(&address), "b", one_thread());
    let two = TwoMounts { a, b, mounts: Some((mount_a, mount_b)), served };
    two.a.put(ROOT, "/f", &[0; 8192]).expect("put");
    two.a.put(ROOT, "/g", &[0; 8192]).expect("put");
    let meet = Barrier::new(2);
    std::thread::scope(|scope| {
        for (fs, mine, other) in [(&two.a, "f", "g"), (&two.b, "g", "f")] {
            let meet = &meet;
            scope.spawn(move || {
                let open =
                    |name| File::options().read(true).write(true).open(fs.dir.join(name)).expect("open");
                let (mine, other) = (open(mine), open(other));
                let mapping = Mapping::of(&mine, 8192);
                for round in 1..10u8 {
                    mapping.store(100, &[round; 50]);
                    meet.wait();
                    other.write_all_at(&[round; 50], 5000).expect("write");
                    let mut seen = [0; 50];
                    other.read_exact_at(&mut seen, 100).expect("read");
                    assert_eq!(seen, [round; 50]);
                    meet.wait();
                }
            });
        }
    });
}

/// S16: appends of both mounts follow one another.
#[test]
fn appends_of_both_mounts_lose_nothing() {
    const LINES: usize = 150;
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/log", b"").expect("put");
        std::thread::scope(|scope| {
            for (fs, who) in [(&two.a, 'a'), (&two.b, 'b')] {
                scope.spawn(move || {
                    let mut file = File::options().append(true).open(fs.dir.join("log")).expect("open");
                    for line in 0..LINES {
                        file.write_all(format!("{who}{line}\n").as_bytes()).expect("append");
                    }
                });
            }
        });
        for fs in [&two.a, &two.b] {
            let text = String::from_utf8(fs.get(ROOT, "/log").expect("get")).expect("text");
            for who in ['a', 'b'] {
                let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(who)).collect();
                let expect: Vec<String> = (0..LINES).map(|line| format!("{who}{line}")).collect();
                assert_eq!(lines, expect);
            }
        }
    }
}

/// S14: O_EXCL over two mounts.
#[test]
fn exclusive_creation_has_one_winner() {
    for two in TwoMounts::all() {
        for round in 0..30 {
            let path = format!("/lock{round}");
            let won: Vec<bool> = std::thread::scope(|scope| {
                [&two.a, &two.b]
                    .map(|fs| {
                        let path = &path;
                        scope.spawn(move || match fs.open(ROOT, path, libc::O_CREAT | libc::O_EXCL, 0o600) {
                            Ok(fd) => fs.close(fd).is_ok(),
                            Err(errno) => {
                                assert_eq!(errno, libc::EEXIST);
                                false
                            }
                        })
                    })
                    .map(|thread| thread.join().expect("no panic"))
                    .to_vec()
            });
            assert_eq!(won.iter().filter(|&&won| won).count(), 1, "round {round}");
        }
    }
}

/// S4: two mounts that both make and look up names in one directory do not wait for each other.
#[test]
fn makers_in_one_directory_take_turns() {
    for two in TwoMounts::all() {
        two.a.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        std::thread::scope(|scope| {
            for (fs, who) in [(&two.a, "a"), (&two.b, "b"), (&two.a, "c"), (&two.b, "d")] {
                scope.spawn(move || {
                    for i in 0..60 {
                        let (made, moved) = (format!("/d/{who}{i}"), format!("/d/{who}{i}.moved"));
                        assert_eq!(fs.stat(ROOT, &made), Err(libc::ENOENT));
                        fs.put(ROOT, &made, b"").expect("put");
                        fs.rename(ROOT, &made, &moved, 0).expect("rename");
                        fs.stat(ROOT, &moved).expect("renamed");
                        if i % 2 == 0 {
                            fs.unlink(ROOT, &moved).expect("unlink");
                        }
                    }
                });
            }
        });
        assert_eq!(two.a.names("/d").len(), 120);
        assert_eq!(two.a.names("/d"), two.b.names("/d"));
    }
}

/// S45: locks hold over both mounts.
#[test]
fn locks_hold_over_both_mounts() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", b"").expect("put");
        let open =
            |fs: &Mounted| File::options().read(true).write(true).open(fs.dir.join("f")).expect("open");
        let (a, b) = (open(&two.a), open(&two.b));
        assert_eq!(flock(a.as_raw_fd(), libc::LOCK_EX), 0);
        assert_eq!(flock(b.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB), libc::EAGAIN);
        assert_eq!(flock(a.as_raw_fd(), libc::LOCK_UN), 0);
        assert_eq!(flock(b.as_raw_fd(), libc::LOCK_SH), 0);
        assert_eq!(flock(a.as_raw_fd(), libc::LOCK_SH), 0);
        drop(b);
        assert_eq!(flock(a.as_raw_fd(), libc::LOCK_EX), 0);
    }
}

/// S42: the other mount sees a store into a mapping after msync, in both directions.
#[test]
fn mappings_are_seen_after_msync() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", &[0; 8192]).expect("put");
        let open =
            |fs: &Mounted| File::options().read(true).write(true).open(fs.dir.join("f")).expect("open");
        let (a, b) = (open(&two.a), open(&two.b));
        let mapping = Mapping::of(&a, 8192);
        for round in 1..10u8 {
            mapping.store(100, &[round; 50]);
            mapping.sync();
            let mut got = [0; 50];
            b.read_exact_at(&mut got, 100).expect("read");
            assert_eq!(got, [round; 50]);
            b.write_all_at(&[round + 100; 50], 5000).expect("write");
            assert_eq!(mapping.load(5000, 50), [round + 100; 50]);
        }
    }
}

/// Restores the kernel's limit of pages in one request.
struct PagesLimit(String);

const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";

impl PagesLimit {
    /// `None`: this kernel has no such setting, or does not let us.
    fn raise(pages: u32) -> Option<PagesLimit> {
        let before = std::fs::read_to_string(PAGES_LIMIT).ok()?;
        std::fs::write(PAGES_LIMIT, pages.to_string()).ok()?;
        Some(PagesLimit(before))
    }
}

impl Drop for PagesLimit {
    fn drop(&mut self) {
        std::fs::write(PAGES_LIMIT, self.0.trim()).expect("as it was");
    }
}

/// Several processes' worth of appenders on two mounts, each with a buffer that begins within a page.
fn append_whole_records(len: usize) {
    const RECORDS: usize = 5;
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/log", b"").expect("put");
        std::thread::scope(|scope| {
            for (id, fs) in [&two.a, &two.b, &two.a, &two.b].into_iter().enumerate() {
                scope.spawn(move || {
                    let file = File::options().append(true).open(fs.dir.join("log")).expect("open");
                    let mut room = vec![b'a' + id as u8; len + 2 * 4096];
                    let start = room.as_ptr().align_offset(4096) + 1 + 997 * id;
                    let record = &mut room[start..start + len];
                    for _ in 0..RECORDS {
                        assert_eq!((&file).write(record).expect("append"), len);
                    }
                });
            }
        });
        let log = std::fs::read(two.b.dir.join("log")).expect("read");
        assert_eq!(log.len(), 4 * RECORDS * len);
        let mut counts = [0; 4];
        for record in log.chunks(len) {
            assert!(record.iter().all(|&byte| byte == record[0]), "a record of {len} bytes is torn");
            counts[usize::from(record[0] - b'a')] += 1;
        }
        assert_eq!(counts, [RECORDS; 4]);
    }
}

/// S15, S16: an append of up to 1 MiB less a page arrives whole from any buffer, and one of 1 MiB where the kernel lets a request have
/// 257 pages.
#[test]
fn large_appends_from_unaligned_buffers_arrive_whole() {
    append_whole_records((1 << 20) - 4096);
    if let Some(_raised) = PagesLimit::raise(257) {
        append_whole_records(1 << 20);
    }
}

/// S96: `..` of a working directory that another mount moved is where it was moved to.
#[test]
fn the_parent_of_a_working_directory_follows_a_move_elsewhere() {
    for two in TwoMounts::all() {
        for dir in ["/from", "/from/work", "/to"] {
            two.a.mkdir(ROOT, dir, 0o755).expect("mkdir");
        }
        let to = two.b.stat(ROOT, "/to").expect("stat").ino;
        // A shell in the directory, which prints its path on request.
        let mut shell = std::process::Command::new("sh")
            .current_dir(two.b.dir.join("from/work"))
            .args(["-c", "while read -r _; do stat -c %i ..; readlink /proc/self/cwd; done"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let (mut ask, mut said) =
            (shell.stdin.take().expect("piped"), BufReader::new(shell.stdout.take().expect("piped")).lines());
        let mut look = || {
            writeln!(ask).expect("asked");
            let mut line = || said.next().expect("a line").expect("text");
            (line(), line())
        };
        let from = two.b.stat(ROOT, "/from").expect("stat").ino;
        assert_eq!(look().0, from.to_string());
        let moves = [("/from/work", "/to/moved", to), ("/to/moved", "/from/back", from)];
        for (old, new, parent) in moves {
            two.a.rename(ROOT, old, new, 0).expect("rename");
            // Polled, since no operation waits for it.
            let place = two.b.dir.join(&new[1..]);
            let expect = (parent.to_string(), place.to_str().expect("text").to_owned());
            let mut tries = 0;
            while look() != expect {
                tries += 1;
                assert!(tries < 500, "{:?} should be {expect:?}", look());
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        drop(ask);
        shell.wait().expect("it ends");
    }
}

/// S27: an unmount loses nothing, also of files that were acknowledged and not yet sent.
#[test]
fn unmount_sends_pending_operations() {
    let (served, address) = TwoMounts::serve(1);
    let (other_mount, other) = mount(&served, connected(&address), "other");
    for round in 0..5 {
        let (mount, mounted) = mount(&served, connected(&address), &format!("short-{round}"));
        let dir = format!("/d{round}");
        mounted.mkdir(ROOT, &dir, 0o755).expect("mkdir");
        for n in 0..20 {
            mounted.put(ROOT, &format!("{dir}/f{n}"), b"x").expect("put");
        }
        drop(mount);
        assert_eq!(other.names(&dir).len(), 20);
        for n in 0..20 {
            assert_eq!(other.get(ROOT, &format!("{dir}/f{n}")), Ok(b"x".to_vec()), "{dir}/f{n}");
        }
    }
    drop(other_mount);
}
