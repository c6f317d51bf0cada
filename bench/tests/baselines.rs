//! Small runs of every baseline: the counts are right, and nothing stays behind.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use chiton_bench::echo::{self, EchoOptions, Transport};
use chiton_bench::group_commit::{self, GroupCommitOptions};
use chiton_bench::seqio::{self, SeqioOptions};
use chiton_bench::trivial_mount::TrivialMount;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a directory")
        .map(|e| e.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

fn is_mounted(dir: &Path) -> bool {
    let here = dir.to_str().expect("text");
    fs::read_to_string("/proc/self/mounts")
        .expect("mounts")
        .lines()
        .any(|l| l.split(' ').nth(1) == Some(here))
}

#[test]
fn trivial_mount_is_a_file_system() {
    let scratch = scratch();
    let mount = TrivialMount::spawn(scratch.path()).expect("a mount");
    let dir = mount.dir().to_path_buf();
    assert!(is_mounted(&dir));

    fs::create_dir_all(dir.join("a/b")).expect("mkdir");
    fs::write(dir.join("a/f"), b"hello").expect("write");
    let file = fs::File::options().read(true).write(true).open(dir.join("a/f")).expect("open");
    file.write_at(b"far", 100_000).expect("write past the end");
    assert_eq!(file.metadata().expect("stat").size(), 100_003);
    file.set_len(3).expect("truncate");
    fs::rename(dir.join("a/f"), dir.join("a/b/g")).expect("rename");
    assert_eq!(fs::read(dir.join("a/b/g")).expect("read"), b"hel");
    symlink("b/g", dir.join("a/l")).expect("symlink");
    assert_eq!(fs::read(dir.join("a/l")).expect("read through a link"), b"hel");
    assert_eq!(names(&dir.join("a")), ["b", "l"]);
    assert_eq!(fs::metadata(dir.join("a")).expect("stat").nlink(), 3);

    let busy = fs::remove_dir(dir.join("a/b")).expect_err("not empty");
    assert_eq!(busy.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    let twice = fs::File::create_new(dir.join("a/b/g")).expect_err("exists");
    assert_eq!(twice.kind(), std::io::ErrorKind::AlreadyExists);

    fs::remove_file(dir.join("a/b/g")).expect("unlink");
    let mut still = [0; 3];
    file.read_exact_at(&mut still, 0).expect("an open file outlives its name");
    assert_eq!(&still, b"hel");
    drop(file);
    fs::remove_dir_all(dir.join("a")).expect("remove all");
    assert!(names(&dir).is_empty());

    for i in 0..3_000 {
        fs::File::create_new(dir.join(format!("file-{i}"))).expect("create");
    }
    assert_eq!(names(&dir).len(), 3_000);
    mount.unmount().expect("a clean unmount");
    assert!(!is_mounted(&dir));
    assert!(names(&dir).is_empty());
}

#[test]
fn dropping_a_busy_mount_detaches_it() {
    let scratch = scratch();
    let mount = TrivialMount::spawn(scratch.path()).expect("a mount");
    let held = fs::File::create_new(mount.dir().join("held")).expect("create");
    drop(mount);
    assert!(!is_mounted(&scratch.path().canonicalize().expect("a path")));
    drop(held);
}

#[test]
fn echo_answers_every_message() {
    for transport in [Transport::Unix, Transport::Tcp] {
        for (options, round_trips, records) in [
            (EchoOptions::one_at_a_time(transport, 100), 100, 100),
            (EchoOptions::pipelined(transport, 1_000), 1_000, 1_000),
            (EchoOptions::many_connections(transport, 10), 640, 640),
            (EchoOptions::batched(transport, 10), 10, 10_000),
        ] {
            let rate = echo::measure(&options).expect("an echo");
            assert_eq!((rate.round_trips, rate.records), (round_trips, records), "{options:?}");
            assert!(rate.seconds > 0.0);
        }
    }
}

#[test]
fn group_commit_makes_every_record_durable() {
    let scratch = scratch();
    for waiters in [1, 8] {
        let standard = GroupCommitOptions::standard(scratch.path().into(), 20);
        let rate = group_commit::measure(&GroupCommitOptions { waiters, ..standard }).expect("a run");
        assert_eq!(rate.records, 20 * waiters as u64);
        assert!((20..=rate.records).contains(&rate.commits), "{rate:?}");
    }
    assert!(names(scratch.path()).is_empty());
}

#[test]
fn seqio_reads_its_writes() {
    let scratch = scratch();
    let options = SeqioOptions { dir: scratch.path().into(), file_bytes: 4 << 20, call_bytes: 1 << 20 };
    let rate = seqio::measure(&options).expect("a run");
    assert!(rate.write_mib_per_second > 0.0 && rate.read_mib_per_second > 0.0);
    assert!(names(scratch.path()).is_empty());
}
