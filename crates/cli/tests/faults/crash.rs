//! `kill -9` in a loop, under load, with content checks: everything that was promised survives, and every survivor
//! is whole (S18, S25, S26, S27).
//!
//! Each writer creates files `0, 1, 2 …`: written under another name, closed, renamed, and the one 40 before
//! removed. So after a crash a writer's files must be a run of numbers without gaps, not longer than 41, that ends
//! at or after the promised number. Longer: `cargo xtask crash --rounds N`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use crate::rig::{
    Later, Mounted, Process, Random, Scratch, abort_mount, check_whole, is_root, serve, sync_dir, until,
    write_checkable,
};

const WRITERS: usize = 3;
const KEPT: u64 = 40;

fn rounds() -> u64 {
    std::env::var("CHITON_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

fn seed() -> u64 {
    let seed = std::env::var("CHITON_CRASH_SEED").ok().and_then(|n| n.parse().ok());
    seed.unwrap_or_else(|| u64::from(std::process::id()))
}

/// The acknowledgements of one writer.
#[derive(Default)]
struct Writer {
    /// Files renamed into place and answered: all below.
    answered: AtomicU64,
    /// All files below this number are durable by an fsync.
    promised: AtomicU64,
}

/// The load on one mount.
struct Load {
    dir: PathBuf,
    writers: [Writer; WRITERS],
    stop: AtomicBool,
}

impl Load {
    fn new(dir: &Path) -> Load {
        for n in 0..WRITERS {
            fs::create_dir_all(dir.join(format!("w{n}"))).expect("a folder");
        }
        sync_dir(dir).expect("an fsync");
        Load { dir: dir.to_owned(), writers: Default::default(), stop: AtomicBool::new(false) }
    }

    /// The path of a file.
    fn path(&self, writer: usize, number: u64) -> PathBuf {
        self.dir.join(format!("w{writer}/{number}"))
    }

    fn name(writer: usize, number: u64) -> u64 {
        (writer as u64) << 32 | number
    }

    /// Writes until stopped, or until the mount is gone.
    fn write(&self, writer: usize, random: &mut Random) -> std::io::Result<()> {
        let new = self.dir.join(format!("w{writer}/new"));
        while !self.stop.load(SeqCst) {
            let number = self.writers[writer].answered.load(SeqCst);
            let len = if random.below(8) == 0 { random.below(400_000) } else { random.below(6_000) };
            write_checkable(&new, Load::name(writer, number), len as usize)?;
            fs::rename(&new, self.path(writer, number))?;
            if number >= KEPT {
                fs::remove_file(self.path(writer, number - KEPT))?;
            }
            self.writers[writer].answered.store(number + 1, SeqCst);
            if random.below(6) == 0 {
                // It promises all that was answered before it was asked, of every writer of the mount.
                let answered = self.writers.each_ref().map(|w| w.answered.load(SeqCst));
                sync_dir(&self.dir)?;
                for (writer, answered) in self.writers.iter().zip(answered) {
                    writer.promised.fetch_max(answered, SeqCst);
                }
            }
        }
        Ok(())
    }

    /// Runs `faults` while the writers write; they end with it.
    fn run(&self, seed: u64, faults: impl FnOnce(&dyn Fn(u64))) {
        self.stop.store(false, SeqCst);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS)
                .map(|n| {
                    let mut random = Random(seed.wrapping_add(n as u64 * 7919));
                    scope.spawn(move || self.write(n, &mut random))
                })
                .collect();
            let sum = || self.writers.iter().map(|w| w.answered.load(SeqCst)).sum::<u64>();
            let gone = || threads.iter().all(|thread| thread.is_finished());
            // Counted in work, so that a slow machine kills in the same places.
            let progress = |files: u64| {
                let start = sum();
                until("the writers get on", || sum() >= start + files || gone());
            };
            let _ends_them = EndWriters(self);
            faults(&progress);
        });
    }

    /// After a crash the files are a prefix of the acknowledged ones, whole, and reach at least the number from
    /// `least`. Lost files are written again.
    fn check(&self, least: impl Fn(&Writer) -> u64, seed: u64) {
        for (n, writer) in self.writers.iter().enumerate() {
            let mut numbers: Vec<u64> = fs::read_dir(self.dir.join(format!("w{n}")))
                .expect("the folder")
                .filter_map(|entry| entry.expect("an entry").file_name().to_str()?.parse().ok())
                .collect();
            numbers.sort_unstable();
            let (answered, least) = (writer.answered.load(SeqCst), least(writer));
            let said =
                || format!("seed {seed}, writer {n}: {numbers:?}, answered {answered}, promised {least}");
            for pair in numbers.windows(2) {
                assert_eq!(pair[0] + 1, pair[1], "a gap; {}", said());
            }
            let end = numbers.last().map_or(0, |last| last + 1);
            assert!(end >= least, "lost; {}", said());
            // One more than acknowledged: it was carried out without an answer.
            assert!(end <= answered + 1, "from nowhere; {}", said());
            let first = numbers.first().copied().unwrap_or(0);
            assert!(first + KEPT + 1 >= end, "removed files are back; {}", said());
            assert!(first <= end.saturating_sub(KEPT.min(end)), "too few are left; {}", said());
            for number in numbers {
                if let Err(why) = check_whole(&self.path(n, number), Load::name(n, number)) {
                    panic!("not whole: {why}; seed {seed}");
                }
            }
            writer.answered.store(end, SeqCst);
            let promised = writer.promised.load(SeqCst);
            writer.promised.store(promised.min(end), SeqCst);
            // The next remove of a run that lost its end must find its file.
            if end >= KEPT && first + KEPT > end {
                panic!("a file that should be left is gone: {first} to {end}");
            }
            for number in first..end.saturating_sub(KEPT) {
                let _ = fs::remove_file(self.path(n, number));
            }
        }
        sync_dir(&self.dir).expect("an fsync");
    }
}

/// Ends the writers, also if the test fails while they wait for a server that no one starts again: they would wait
/// for ever, and hide the failure.
struct EndWriters<'a>(&'a Load);

impl Drop for EndWriters<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, SeqCst);
        if thread::panicking() {
            abort_mount(&self.0.dir);
        }
    }
}

fn killed(mut process: Process) {
    process.kill();
    process.assert_sane();
}

/// S26: clients that live on miss nothing that they were answered.
#[test]
fn the_server_is_killed_under_load_and_its_clients_miss_nothing() {
    if !is_root() {
        return;
    }
    let (scratch, seed) = (Scratch::new(), seed());
    scratch.format();
    let mut server = Some(serve(&scratch, &[]));
    let mounted = Mounted::connected(&scratch, &[]);
    let load = Load::new(&mounted.dir);
    for round in 0..rounds() {
        let seed = seed.wrapping_add(round);
        let next = Later::serve(&scratch);
        load.run(seed, |progress| {
            progress(Random(seed).below(60));
            killed(server.take().expect("it runs"));
            server = Some(next.start());
            progress(10);
        });
        load.check(|writer| writer.answered.load(SeqCst), seed);
    }
    mounted.unmount();
}

/// S18, S25: a mount with the server inside.
#[test]
fn a_mount_with_its_server_is_killed_under_load() {
    if !is_root() {
        return;
    }
    let (scratch, seed) = (Scratch::new(), seed());
    scratch.format();
    let mut mounted = Mounted::embedded(&scratch, &[]);
    let load = Load::new(&mounted.dir);
    for round in 0..rounds() {
        let seed = seed.wrapping_add(round);
        load.run(seed, |progress| {
            progress(Random(seed).below(200));
            mounted.process.kill();
        });
        drop(mounted);
        mounted = Mounted::embedded(&scratch, &[]);
        load.check(|writer| writer.promised.load(SeqCst), seed);
    }
    mounted.unmount();
}

/// S27: the server keeps files that a client had closed when the client dies.
#[test]
fn the_server_keeps_closed_files_of_a_killed_mount() {
    if !is_root() {
        return;
    }
    let (scratch, seed) = (Scratch::new(), seed());
    scratch.format();
    let _server = serve(&scratch, &["--session-time", "2"]);
    let mut mounted = Mounted::connected(&scratch, &[]);
    let load = Load::new(&mounted.dir);
    for round in 0..rounds() {
        let seed = seed.wrapping_add(round);
        load.run(seed, |progress| {
            progress(Random(seed).below(100));
            mounted.process.kill();
        });
        drop(mounted);
        mounted = Mounted::connected(&scratch, &[]);
        load.check(|writer| writer.answered.load(SeqCst), seed);
    }
    mounted.unmount();
}

/// S18, S25: both at once.
#[test]
fn server_and_mount_are_killed_under_load() {
    if !is_root() {
        return;
    }
    let (scratch, seed) = (Scratch::new(), seed());
    scratch.format();
    let mut server = serve(&scratch, &["--session-time", "2"]);
    let mut mounted = Mounted::connected(&scratch, &[]);
    let load = Load::new(&mounted.dir);
    for round in 0..rounds() {
        let seed = seed.wrapping_add(round);
        load.run(seed, |progress| {
            progress(Random(seed).below(100));
            server.kill();
            mounted.process.kill();
        });
        drop((server, mounted));
        server = serve(&scratch, &["--session-time", "2"]);
        mounted = Mounted::connected(&scratch, &[]);
        load.check(|writer| writer.promised.load(SeqCst), seed);
    }
    mounted.unmount();
}

/// A torn last write is distinguished from corruption, and loses nothing that was promised.
#[test]
fn a_torn_last_write_of_the_journal_costs_nothing_promised() {
    if !is_root() {
        return;
    }
    let (scratch, mut random) = (Scratch::new(), Random(seed()));
    scratch.format();
    for round in 0..3u64 {
        let mounted = Mounted::embedded(&scratch, &[]);
        for earlier in 0..round {
            check_whole(&mounted.path(&earlier.to_string()), earlier).expect("promised");
        }
        write_checkable(&mounted.path(&round.to_string()), round, 3000).expect("a write");
        sync_dir(&mounted.dir).expect("an fsync");
        mounted.kill();
        let mut segments: Vec<PathBuf> = fs::read_dir(scratch.data().join("journal"))
            .expect("the journal")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        segments.sort();
        // The beginning of a frame of 200 bytes, or of nothing at all.
        let mut torn = 200u32.to_le_bytes().to_vec();
        torn.extend((0..random.below(150)).map(|_| random.next() as u8));
        if round == 2 {
            torn.fill(0);
        }
        crate::rig::append_bytes(segments.last().expect("a segment"), &torn);
    }
    let mounted = Mounted::embedded(&scratch, &[]);
    for round in 0..3 {
        check_whole(&mounted.path(&round.to_string()), round).expect("promised");
    }
    assert!(mounted.process.said().contains("harmless"), "{}", mounted.process.said());
    mounted.unmount();
}
