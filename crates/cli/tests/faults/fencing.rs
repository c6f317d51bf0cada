//! One server for a data directory: the lock decides, a take-over ends the holder.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;

use crate::rig::{
    Mounted, Process, Scratch, check_whole, chiton, is_root, now, serve, until, write_checkable,
};

/// A second server of the same directory.
fn second(scratch: &Scratch, more: &[&str]) -> std::process::Output {
    chiton().arg("serve").arg("--data").arg(scratch.data()).args(more).output().expect("runs")
}

#[test]
fn a_second_server_learns_the_holder_and_the_next_step() {
    let scratch = Scratch::new();
    scratch.format();
    let mut first = serve(&scratch, &[]);
    let start = now();
    let out = second(&scratch, &[]);
    eprintln!("refused within {:?}", start.elapsed());
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    for words in [&format!("process {} on", first.pid()), "serve --data", "for ", "--take-over"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(first.lives());
}

#[test]
fn a_take_over_ends_a_stopped_holder_which_never_writes_again() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mut first = serve(&scratch, &[]);
    let mounted = Mounted::connected(&scratch, &[]);
    fs::write(mounted.path("before"), "promised").expect("a write");
    crate::rig::sync_dir(&mounted.dir).expect("an fsync");
    fs::write(mounted.path("answered"), "not yet durable, perhaps").expect("a write");
    first.signal(Signal::STOP);
    let log = scratch.path("second.log");
    let mut command = chiton();
    command.args(["serve", "--take-over", "--data"]).arg(scratch.data());
    let mut taken = Process::start(command, log);
    taken.says("serving ", 1);
    // It is dead, whether it is continued or not. (It may be reaped already: then there is no process to signal.)
    let journal = || {
        let names = fs::read_dir(scratch.data().join("journal")).expect("the journal");
        let mut sizes: Vec<_> = names.map(|e| e.expect("an entry").file_name()).collect();
        sizes.sort();
        sizes
    };
    let before = journal();
    let status = first.ended();
    assert_eq!(status.signal(), Some(9), "{status}");
    assert!(journal().len() >= before.len());
    // The clients continue with the second, and lose nothing (S26).
    assert_eq!(fs::read_to_string(mounted.path("before")).expect("it is there"), "promised");
    assert_eq!(
        fs::read_to_string(mounted.path("answered")).expect("it is there"),
        "not yet durable, perhaps"
    );
    fs::write(mounted.path("after"), "x").expect("a write");
    mounted.unmount();
    taken.assert_sane();
}

#[test]
fn a_take_over_of_a_holder_that_runs_ends_it_in_order() {
    let scratch = Scratch::new();
    scratch.format();
    let mut first = serve(&scratch, &[]);
    let mut command = chiton();
    command.args(["serve", "--take-over", "--data"]).arg(scratch.data());
    let mut taken = Process::start(command, scratch.path("second.log"));
    taken.says("serving ", 1);
    assert!(first.ended().success(), "{}", first.said());
    assert!(first.said().contains("shutting down"), "{}", first.said());
}

/// S87: programs that work on a mount while servers take over from each other, live, meet no error.
#[test]
fn programs_on_a_mount_notice_no_live_take_over() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mut server = serve(&scratch, &[]);
    let mounted = Mounted::connected(&scratch, &[]);
    let (stop, next, count) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let path = |n: usize| mounted.path(&format!("file {n}"));
    std::thread::scope(|scope| {
        let end = StopAtDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                let _end = StopAtDrop(&stop);
                while !stop.load(Ordering::SeqCst) {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    write_checkable(&path(n), n as u64, n * 997 % 50_000)
                        .unwrap_or_else(|e| panic!("file {n}: {e}"));
                    if n.is_multiple_of(3) {
                        let synced = fs::File::open(path(n)).and_then(|file| file.sync_all());
                        synced.unwrap_or_else(|e| panic!("file {n} is not synced: {e}"));
                    }
                    check_whole(&path(n), n as u64).unwrap_or_else(|why| panic!("file {n}: {why}"));
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..3 {
            let before = count.load(Ordering::SeqCst);
            until("the programs work", || {
                stop.load(Ordering::SeqCst) || count.load(Ordering::SeqCst) > before + 30
            });
            let log = scratch.path(&format!("after-{before}.log"));
            let mut command = chiton();
            command.args(["serve", "--take-over", "--data"]).arg(scratch.data());
            let mut taken = Process::start(command, log);
            taken.says("serving ", 1);
            assert!(server.ended().success(), "{}", server.said());
            server = taken;
        }
        let before = count.load(Ordering::SeqCst);
        until("the programs work", || {
            stop.load(Ordering::SeqCst) || count.load(Ordering::SeqCst) > before + 30
        });
        assert!(!stop.load(Ordering::SeqCst), "a program met an error");
        drop(end);
    });
    for n in 0..next.load(Ordering::SeqCst) {
        check_whole(&path(n), n as u64).unwrap_or_else(|why| panic!("file {n}: {why}"));
    }
    mounted.unmount();
    server.assert_sane();
}

/// Ends the programs also when a check fails.
struct StopAtDrop<'a>(&'a AtomicBool);

impl Drop for StopAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
