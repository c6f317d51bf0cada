//! Ten thousand clients come and go, in order and by cut connections: nothing of them stays.

use chiton_types::Ino;
use chiton_wire::{Call, Failure, Lock, LockKind, Query};

use crate::peer::Peer;
use crate::rig::{Process, Scratch, serve, until};

const CLIENTS: usize = 10_000;
/// At once, each with a socket here and one there: below the usual limit of 1,024 descriptors.
const WAVE: usize = 100;
/// More than the server may have grown by after ten thousand, in KiB: 4 KiB a client.
const GROWTH_KIB: u64 = 40 << 10;
/// Silent sessions expire soon; requests of an expired client are answered, too.
const SHORT: [&str; 2] = ["--session-time", "2"];

/// Concurrent clients, each with an open file and a lock; every other one ends its session, and the others'
/// connections are cut.
fn wave(socket: &std::path::Path, first: usize) {
    let identity = "a client with a long name ".repeat(8);
    let mut clients = Vec::new();
    for n in first..first + WAVE {
        let peer = Peer::begin(socket, &identity);
        let opened = peer.ask(Call::Query(Query::Open { ino: Ino::ROOT, want: 0, content: false }));
        assert!(opened.is_ok() || opened == Err(Failure::SessionGone), "{opened:?}");
        let lock = Lock {
            ino: Ino::ROOT,
            flock: true,
            owner: 1,
            start: 0,
            end: u64::MAX,
            kind: LockKind::Read,
            pid: 1,
        };
        let locked = peer.ask(Call::SetLock { lock, wait: false });
        assert!(locked.is_ok() || locked == Err(Failure::SessionGone), "{locked:?}");
        clients.push((n, peer));
    }
    for (n, peer) in clients {
        if n % 2 == 0 {
            peer.goodbye();
        }
    }
}

/// A server's counts of its clients.
#[derive(Debug)]
struct Figures {
    descriptors: usize,
    threads: u64,
    rss_kib: u64,
}

/// Waits until the server has no client but this one.
fn settled(server: &Process, socket: &std::path::Path) -> Figures {
    until("all sessions are forgotten", || {
        let peer = Peer::begin(socket, "who asks");
        let status = peer.status();
        let count = |what: &str| status[what].as_u64().unwrap_or_else(|| panic!("no {what} in {status}"));
        let settled = count("sessions") == 1 && count("open_inodes") == 0 && count("locks") == 0;
        peer.goodbye();
        settled
    });
    Figures {
        descriptors: server.descriptors(),
        threads: server.figure("Threads"),
        rss_kib: server.figure("VmRSS"),
    }
}

#[test]
fn ten_thousand_clients_come_and_go_and_nothing_stays() {
    let scratch = Scratch::new();
    // A disk on which an fsync costs nothing: each session is durable before it is answered.
    if !scratch.small_disk("512m") {
        return;
    }
    scratch.format();
    let mut server = serve(&scratch, &SHORT);
    let socket = scratch.data().join("socket");
    (0..10).for_each(|n| wave(&socket, n * WAVE));
    let before = settled(&server, &socket);
    (0..CLIENTS / WAVE).for_each(|n| wave(&socket, n * WAVE));
    // The memory of the server rises and falls by tens of MiB as its store fills and writes tables. A leak would be there at
    // every moment.
    let rounds: Vec<u64> = (0..10)
        .map(|_| {
            (0..10).for_each(|n| wave(&socket, n * WAVE));
            settled(&server, &socket).rss_kib
        })
        .collect();
    let least = rounds.iter().min().expect("ten");
    let mut after = settled(&server, &socket);
    // The store may temporarily have a file or two, and a thread, for its own work.
    until("no descriptor and no thread stays", || {
        after = settled(&server, &socket);
        after.descriptors <= before.descriptors + 8 && after.threads <= before.threads
    });
    println!("before {before:?}, after {after:?}, meanwhile {rounds:?} KiB");
    assert!(*least < before.rss_kib + GROWTH_KIB, "before {before:?}, then {rounds:?} KiB");
    server.assert_sane();
    // The journal and the rows contain nothing of them either: a restarted server waits for no client.
    server.kill();
    let server = serve(&scratch, &SHORT);
    let after_crash = settled(&server, &socket);
    println!("after a crash {after_crash:?}");
    let peer = Peer::begin(&socket, "the last");
    assert_eq!(peer.status()["sessions"], 1);
    server.assert_sane();
}
