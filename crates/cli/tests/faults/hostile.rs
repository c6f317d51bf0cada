//! A hostile peer: frames that are random, truncated, oversized, mutated or replayed, before and after the
//! handshake. It loses its connection; other clients do not notice, and nothing grows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chiton_transport::FrameKind;
use chiton_types::{Ino, Position, SessionId, Take};
use chiton_wire::{
    Answer, Call, Channel, FRAME_BYTES_MAX, LeaseMode, Lock, LockKind, Query, RefuseReason, Welcome,
};

use crate::peer::{Peer, Raw, find, framed, hello, make_file, request};
use crate::rig::{Process, Random, Scratch, serve, until};

/// More than the server may grow by, in KiB. The peers below announce more than ten times as much.
const GROWTH_KIB: u64 = 256 << 10;
const CASES: u64 = 240;
/// No session of these tests ends because a machine is slow.
const PATIENT: [&str; 2] = ["--session-time", "3600"];

fn started(scratch: &Scratch) -> Process {
    scratch.format();
    serve(scratch, &PATIENT)
}

/// Frames as a client sends them, to be spoilt.
fn templates() -> Vec<Vec<u8>> {
    let lock =
        Lock { ino: Ino::ROOT, flock: false, owner: 1, start: 0, end: 9, kind: LockKind::Write, pid: 1 };
    let ops = |n: usize| (0..n).filter_map(|i| op_of(make_file(&format!("hostile-{i}")))).collect();
    let calls = [
        make_file("hostile"),
        find("hostile"),
        Call::Batch { ops: ops(20), stop_on_failure: false },
        Call::Query(Query::ReadDir {
            dir: Ino::ROOT,
            cookie: 0,
            entries_max: 100,
            plus: true,
            part_end: None,
        }),
        Call::Query(Query::Resolve {
            from: Ino::ROOT,
            path: b"a/../b/c".to_vec(),
            follow: true,
            sessions: vec![],
        }),
        Call::Query(Query::Map { ino: Ino::ROOT, offset: 0, len: 1 << 40 }),
        Call::Commit { upto: Position(0) },
        Call::Lease { ino: Ino::ROOT, mode: LeaseMode::Shared },
        Call::Closed { inos: vec![Ino::ROOT; 50] },
        Call::Reopen {
            opens: vec![(Ino::ROOT, 3); 20],
            locks: vec![lock; 20],
            dirty: vec![Ino::ROOT; 20],
            names: vec![Ino(u64::MAX); 20],
        },
        Call::SetLock { lock, wait: false },
        Call::Admin { what: "status".to_owned() },
        Call::Ping,
    ];
    let requests = calls.into_iter().enumerate();
    let requests = requests.map(|(n, call)| request(n as u64 + 1, n as u64 + 1, call));
    let mut frames: Vec<_> =
        requests.map(|request| framed(FrameKind::Request, |out| request.encode(out))).collect();
    for channel in [Channel::Main, Channel::Recall] {
        let hello = hello(channel, Some((SessionId(1), 2)), "hostile");
        frames.push(framed(FrameKind::Hello, |out| hello.encode(out)));
    }
    frames
}

fn op_of(call: Call) -> Option<chiton_model::Op> {
    if let Call::Op { op, .. } = call { Some(op) } else { None }
}

/// Bytes that no client sends.
fn hostile_bytes(random: &mut Random, templates: &[Vec<u8>]) -> Vec<u8> {
    let noise = |random: &mut Random, len: u64| (0..len).map(|_| random.next() as u8).collect::<Vec<u8>>();
    let mut bytes = templates[random.below(templates.len() as u64) as usize].clone();
    match random.below(6) {
        // Random bytes; random bytes in a frame of the right length; a known kind with a random body.
        0 => {
            let len = random.below(2000);
            noise(random, len)
        }
        1 => {
            let len = random.below(2000) + 1;
            let body = noise(random, len);
            let kind = [FrameKind::Hello, FrameKind::Request, FrameKind::RecallDone, FrameKind::Reply];
            framed(kind[random.below(4) as usize], |out| out.extend_from_slice(&body))
        }
        // Cut off.
        2 => {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
            bytes
        }
        // A length that is not that of the body: the limit, just above, far above, 0, anything.
        3 => {
            let max = FRAME_BYTES_MAX as u32;
            let lengths = [max, max + 1, u32::MAX, 0, random.next() as u32];
            bytes[..4].copy_from_slice(&lengths[random.below(5) as usize].to_le_bytes());
            bytes
        }
        // A few bytes changed, behind the length.
        4 => {
            for _ in 0..=random.below(8) {
                let at = 4 + random.below(bytes.len() as u64 - 4) as usize;
                bytes[at] = random.next() as u8;
            }
            bytes
        }
        // Many times the same.
        _ => bytes.repeat(1 + random.below(40) as usize),
    }
}

#[test]
fn a_hostile_peer_loses_only_its_connection() {
    let scratch = Scratch::new();
    let mut server = started(&scratch);
    let socket = scratch.data().join("socket");
    let templates = templates();
    let (over, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut peer = Peer::begin(&socket, "well-behaved");
            while !over.load(Ordering::Relaxed) {
                let n = served.fetch_add(1, Ordering::Relaxed);
                peer.make_and_find(&format!("served-{n}"));
            }
            peer.goodbye();
        });
        let end = End(&over);
        let before = server.figure("VmRSS");
        for seed in 0..CASES {
            let mut random = Random(seed);
            let mut raw = Raw::connect(&socket);
            let shaken = random.below(3) > 0;
            if shaken {
                raw.shake();
            }
            for _ in 0..=random.below(4) {
                if !raw.send(&hostile_bytes(&mut random, &templates)) {
                    break;
                }
            }
            raw.finish();
            if seed % 40 == 0 {
                let seen = served.load(Ordering::Relaxed);
                until("the other client is served", || served.load(Ordering::Relaxed) > seen + 1);
            }
            assert!(server.lives(), "seed {seed}: {}", server.said());
        }
        let grown = server.figure("VmRSS").saturating_sub(before);
        assert!(grown < GROWTH_KIB, "grown by {grown} KiB");
        drop(end);
    });
    server.assert_sane();
    // Files that were written meanwhile exist after a crash, too.
    let count = served.load(Ordering::Relaxed);
    let peer = Peer::begin(&socket, "after");
    assert_eq!(peer.ask(Call::Commit { upto: Position(0) }), Ok(Answer::Done));
    server.kill();
    let server = serve(&scratch, &PATIENT);
    let peer = Peer::begin(&socket, "after the crash");
    for n in 0..count {
        let found = peer.ask(find(&format!("served-{n}")));
        assert!(matches!(found, Ok(Answer::Attr { .. })), "{n} of {count}: {found:?}");
    }
    server.assert_sane();
}

/// Ends the other client also when a check fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn announced_lengths_cost_no_memory() {
    const PEERS: u64 = 300;
    let scratch = Scratch::new();
    let server = started(&scratch);
    let socket = scratch.data().join("socket");
    let mut peer = Peer::begin(&socket, "well-behaved");
    peer.make_and_find("before");
    let before = server.figure("VmRSS");
    let mut raws = Vec::new();
    for n in 0..PEERS {
        let mut raw = Raw::connect(&socket);
        if n % 2 == 0 {
            raw.shake();
        }
        // The longest frame that is allowed, of which little comes: together they announce almost 5 GiB.
        let mut bytes = (FRAME_BYTES_MAX as u32).to_le_bytes().to_vec();
        bytes.push(if n % 2 == 0 { FrameKind::Request } else { FrameKind::Hello } as u8);
        bytes.resize(600, n as u8);
        assert!(raw.send(&bytes), "so far it is a frame");
        raws.push(raw);
    }
    // The same kind of lie within a frame: counts that the body cannot hold.
    for tag in 0..48u8 {
        let mut raw = Raw::connect(&socket);
        raw.shake();
        let mut body = vec![0; 41];
        body.push(tag);
        body.extend([0xff; 8]);
        body.push(0x7f);
        raw.send(&framed(FrameKind::Request, |out| out.extend_from_slice(&body)));
        raw.finish();
    }
    peer.make_and_find("during");
    let grown = server.figure("VmRSS").saturating_sub(before);
    assert!(grown < GROWTH_KIB, "grown by {grown} KiB");
    let open = server.descriptors();
    drop(raws);
    // Half of them announced too much for a greeting: these were closed for it.
    until("their descriptors are closed", || server.descriptors() + PEERS as usize / 2 <= open);
    peer.make_and_find("after");
    server.assert_sane();
}

#[test]
fn replayed_frames_act_once_and_a_session_needs_its_secret() {
    let scratch = Scratch::new();
    let server = started(&scratch);
    let socket = scratch.data().join("socket");
    // The same frame again, on its connection: the first answer again.
    let mut raw = Raw::connect(&socket);
    let Welcome::Accepted { session, secret, .. } = raw.shake() else { panic!("refused") };
    let once = framed(FrameKind::Request, |out| request(1, 1, make_file("once")).encode(out));
    assert!(raw.send(&once));
    let first = raw.reply();
    assert!(matches!(first.result, Ok(Answer::Op { .. })), "{first:?}");
    let position = |answer: &Result<Answer, _>| match answer {
        Ok(Answer::Op { position, .. }) => *position,
        _ => panic!("another answer"),
    };
    for _ in 0..3 {
        assert!(raw.send(&once));
        let again = raw.reply();
        assert_eq!(position(&again.result), position(&first.result), "done again");
    }
    // A greeting in the middle ends the connection.
    let greeting = hello(Channel::Main, None, "raw");
    assert!(raw.send(&framed(FrameKind::Hello, |out| greeting.encode(out))));
    while raw.frame().is_some() {}
    // The session belongs to another client: without the secret no peer resumes it, on neither channel.
    for channel in [Channel::Main, Channel::Recall] {
        for wrong in [0, !secret, secret ^ 1] {
            let mut thief = Raw::connect(&socket);
            let stolen = hello(channel, Some((session, wrong)), "thief");
            assert!(thief.send(&framed(FrameKind::Hello, |out| stolen.encode(out))));
            let (_, body) = thief.frame().expect("a refusal");
            let welcome = Welcome::decode(&mut Take::new(&body)).expect("decodes");
            let gone = matches!(welcome, Welcome::Refused { reason: RefuseReason::SessionGone, .. });
            assert!(gone, "{welcome:?}");
            thief.finish();
        }
    }
    Peer::begin(&socket, "well-behaved").make_and_find("after");
    server.assert_sane();
}

/// Lines that a peer causes are written a few times, then counted.
#[test]
fn malformed_connections_do_not_fill_the_log() {
    const PEERS: usize = 400;
    let scratch = Scratch::new();
    let server = started(&scratch);
    let socket = scratch.data().join("socket");
    for n in 0..PEERS {
        let mut raw = Raw::connect(&socket);
        if n % 2 == 0 {
            raw.shake();
        }
        raw.send(&[0xff; 64]);
        raw.finish();
    }
    Peer::begin(&socket, "well-behaved").make_and_find("after");
    let said = server.said();
    let lines = said.lines().filter(|line| line.contains(" ends: ")).count();
    assert!((1..PEERS / 4).contains(&lines), "{lines} lines for {PEERS} connections: {said}");
    server.assert_sane();
}
