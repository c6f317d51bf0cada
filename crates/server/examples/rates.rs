//! Rates of a server in one process on a real directory: creates one at a time and in batches, replay, first answer
//! after a restart. `cargo run --release -p chiton-server --example rates -- [directory] [files]
//! [singles | batches | replay]`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{EmbeddedSession, FormatOptions, Server, ServerOptions};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, Position, Seq};
use chiton_wire::{Answer, Call, Query, Request};

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("chiton-rates"), PathBuf::from);
    let files: u64 = args.next().map_or(5_000_000, |n| n.parse().expect("a number of files"));
    let world: SharedWorld = Arc::new(RealWorld);
    let only = args.next();
    let wanted = |phase: &str| only.as_deref().is_none_or(|only| only == phase);
    // Each phase on a fresh file system.
    if wanted("singles") {
        singles(&dir, &world);
    }
    if wanted("batches") {
        batches(&dir, &world, files);
    }
    if wanted("replay") {
        replay(&dir, &world, 1_000_000);
    }
    std::fs::remove_dir_all(&dir).expect("removed");
}

fn fresh(dir: &PathBuf, world: &SharedWorld, options: ServerOptions) -> Arc<Server> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).expect("removed");
    }
    Server::format(dir, &FormatOptions::default(), world).expect("formats");
    Server::start(dir, options, world.clone()).expect("starts")
}

fn request(call: Call) -> Request {
    Request { id: 1, seq: Seq(0), settled: Seq(0), epoch: Epoch(1), again: None, cred: Cred::ROOT, call }
}

fn create(parent: Ino, n: u64) -> Op {
    let name = Name::new(format!("file.{n:08}").as_bytes()).expect("valid");
    Op::Make { parent, name, make: Make::File { content: Vec::new() }, mode: Mode(0o644) }
}

fn mkdir(s: &EmbeddedSession, text: &str) -> Ino {
    let name = Name::try_from(text).expect("valid");
    let op = Op::Make { parent: Ino::ROOT, name, make: Make::Dir, mode: Mode(0o755) };
    match s.call(request(Call::Op { op, open: false })).result {
        Ok(Answer::Op { outcome, .. }) => outcome.attr.expect("made").ino,
        other => panic!("{other:?}"),
    }
}

/// Prints the rate by the clock, and what the calling thread's processor time allows: other work on the machine
/// counts less there.
fn timed<R>(world: &SharedWorld, what: &str, n: u64, f: impl FnOnce() -> R) -> R {
    let (start, busy) = (world.monotonic(), processor_time());
    let result = f();
    let (took, busy) = (world.monotonic() - start, processor_time() - busy);
    let rate = |time: Duration| n as f64 / time.as_secs_f64();
    let each = busy.as_nanos() as f64 / n as f64;
    println!(
        "{what:<52} {:>12.1} /s, of processor time {:>12.1} /s {each:>8.0} ns each",
        rate(took),
        rate(busy)
    );
    result
}

fn processor_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn session(server: &Server) -> EmbeddedSession {
    server.session_embedded("rates", Box::new(|_| {})).expect("a session")
}

fn singles(dir: &PathBuf, world: &SharedWorld) {
    const FILES: u64 = 500_000;
    let server = fresh(dir, world, ServerOptions { checkpoint_rows: 10_000_000, ..ServerOptions::default() });
    let s = session(&server);
    let parent = mkdir(&s, "d");
    let requests: Vec<Request> =
        (0..FILES).map(|n| request(Call::Op { op: create(parent, n), open: false })).collect();
    timed(world, "creates, one at a time, no checkpoint meanwhile", FILES, || {
        for request in requests {
            let reply = s.call(request);
            assert!(reply.result.is_ok());
        }
    });
    let names: Vec<Request> = (0..FILES)
        .map(|n| {
            let name = Name::new(format!("file.{n:08}").as_bytes()).expect("valid");
            request(Call::Query(Query::Lookup { parent, name }))
        })
        .collect();
    timed(world, "lookups, one at a time", FILES, || {
        for request in names {
            assert!(s.call(request).result.is_ok());
        }
    });
    drop(s);
    server.shutdown().expect("ends");
}

fn batches(dir: &PathBuf, world: &SharedWorld, files: u64) {
    let server = fresh(dir, world, ServerOptions::default());
    let s = session(&server);
    let parent = mkdir(&s, "d");
    timed(world, "creates in batches of 1,000, in one directory", files, || {
        for first in (0..files).step_by(1_000) {
            let ops = (first..files.min(first + 1_000)).map(|n| create(parent, n)).collect();
            match s.call(request(Call::Batch { ops, stop_on_failure: false })).result {
                Ok(Answer::Batch(results)) => assert!(results.iter().all(Result::is_ok)),
                other => panic!("{other:?}"),
            }
        }
    });
    timed(world, "… and until all of it is durable", 1, || {
        s.call(request(Call::Commit { upto: Position(0) })).result.expect("durable");
    });
    println!("{}", server.report("metrics").expect("metrics"));
    drop(s);
    timed(world, "… and an orderly end", 1, || server.shutdown().expect("ends"));
}

fn replay(dir: &PathBuf, world: &SharedWorld, files: u64) {
    let never = ServerOptions {
        checkpoint_rows: usize::MAX,
        checkpoint_journal_bytes: u64::MAX,
        checkpoint_age: Duration::from_secs(1 << 20),
        ..ServerOptions::default()
    };
    let server = fresh(dir, world, never.clone());
    let s = session(&server);
    let parent = mkdir(&s, "d");
    for first in (0..files).step_by(1_000) {
        let ops = (first..first + 1_000).map(|n| create(parent, n)).collect();
        s.call(request(Call::Batch { ops, stop_on_failure: false })).result.expect("carried out");
    }
    s.call(request(Call::Commit { upto: Position(0) })).result.expect("durable");
    drop(s);
    server.abandon();
    drop(server);
    let ask = |server: &Server| {
        let name = Name::new(b"file.00000007").expect("valid");
        let s = session(server);
        s.call(request(Call::Query(Query::Lookup { parent, name }))).result.expect("answered");
    };
    let server = timed(world, "replay of the journal, first answer included", files, || {
        let server = Server::start(dir, never.clone(), world.clone()).expect("starts");
        ask(&server);
        server
    });
    server.shutdown().expect("ends");
    drop(server);
    let server = timed(world, "start after an orderly end, first answer included", 1, || {
        let server = Server::start(dir, never, world.clone()).expect("starts");
        ask(&server);
        server
    });
    server.shutdown().expect("ends");
}
