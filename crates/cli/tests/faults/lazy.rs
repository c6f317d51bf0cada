//! Files that are read while they are written, under policies whose `data` is weaker than `linearizable`.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::rig::until;
use crate::two::{Two, done, text};

/// Bytes of one record of a log.
const RECORD: usize = 1024;
/// Records that are written.
const RECORDS: usize = 400;

/// The record at each place of the log.
fn record(n: usize) -> Vec<u8> {
    format!("{n:>width$}", width = RECORD).into_bytes()
}

fn is_prefix(bytes: &[u8]) -> bool {
    bytes.chunks(RECORD).enumerate().all(|(n, chunk)| record(n).starts_with(chunk))
}

/// The table of use cases, U13: a reader that follows a log during writes always sees a prefix, and in the end all
/// of it.
#[test]
fn readers_of_a_log_that_is_being_written_see_a_prefix() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("hdfs");
    let mut log = File::create(near.join("log")).expect("a file");
    log.write_all(&record(0)).expect("a write");
    log.sync_all().expect("fsync");
    let is_written = AtomicBool::new(false);
    thread::scope(|scope| {
        let followers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut file = File::open(far.join("log")).expect("an open");
                    let (mut seen, mut looks) = (Vec::new(), 0);
                    loop {
                        // In this order: a record that was written before the end was announced must be found.
                        let is_last = is_written.load(Ordering::SeqCst);
                        file.read_to_end(&mut seen).expect("a read");
                        assert!(is_prefix(&seen), "look {looks}: no prefix in {} bytes", seen.len());
                        let mut from_its_start = Vec::new();
                        let mut again = File::open(far.join("log")).expect("an open");
                        again.read_to_end(&mut from_its_start).expect("a read");
                        assert!(is_prefix(&from_its_start), "look {looks}: from the start no prefix");
                        assert!(from_its_start.len() >= seen.len(), "look {looks}: it became shorter");
                        looks += 1;
                        if is_last {
                            return seen.len();
                        }
                    }
                })
            })
            .collect();
        for n in 1..RECORDS {
            log.write_all(&record(n)).expect("a write");
            if n % 40 == 0 {
                log.sync_data().expect("fdatasync");
            }
        }
        drop(log);
        is_written.store(true, Ordering::SeqCst);
        for follower in followers {
            assert_eq!(follower.join().expect("it reads"), RECORD * RECORDS);
        }
    });
}

/// A writer keeps its buffers until it flushes, or for about `flush_interval`; a stronger policy applies to open
/// files, and costs no copy.
#[test]
fn a_policy_decides_whether_an_open_writer_is_asked() {
    let Some(two) = Two::new() else { return };
    let (near, far) = two.job("hdfs");
    let writer =
        OpenOptions::new().create(true).truncate(true).write(true).open(near.join("out")).expect("a file");
    writer.write_all_at(&[1; 100_000], 0).expect("a write");
    writer.sync_all().expect("fsync");
    let reader = File::open(far.join("out")).expect("an open");
    let mut seen = [0; 100_000];
    reader.read_exact_at(&mut seen, 0).expect("a read");
    assert!(seen.iter().all(|byte| *byte == 1));

    done(&["policy", "set", text(&near), "posix"]);
    for n in 2..40 {
        writer.write_all_at(&[n; 100_000], 0).expect("a write");
        reader.read_exact_at(&mut seen, 0).expect("a read");
        assert!(seen.iter().all(|byte| *byte == n), "round {n}: a read sees the write before it");
    }

    done(&["policy", "set", text(&near), "hdfs"]);
    writer.write_all_at(&[50; 10], 100_000).expect("a write");
    until("what is written is seen after a while", || {
        far.join("out").metadata().expect("there").size() == 100_010
    });
    drop(writer);
    assert_eq!(fs::read(far.join("out")).expect("a read"), fs::read(near.join("out")).expect("a read"));
}
