//! Two sessions on one server: nobody reads what is stale.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::rig::{Asks, Rig, eventually, file, quiet, refused, session, unlink};
use chiton_model::{Body, Hold, Op, XattrHow};
use chiton_runtime::sync::Mutex;
use chiton_server::{EmbeddedSession, Server, ServerOptions};
use chiton_types::{Ino, Refusal, Time, access};
use chiton_wire::{Answer, Call, Failure, LeaseMode, Lock, LockKind, Query, Recall, StatTarget};

/// A session whose names are cached under leases on their directory.
struct Caching {
    session: EmbeddedSession,
    names: Arc<Mutex<Cached>>,
}

#[derive(Default)]
struct Cached {
    names: BTreeMap<(Ino, String), Option<Ino>>,
    /// Raised by each recall: an answer that was under way meanwhile is not cached.
    recalls: u64,
    hits: u64,
}

impl Caching {
    fn new(server: &Server) -> Caching {
        let names = Arc::new(Mutex::new(Cached::default()));
        let theirs = names.clone();
        let on_recall = move |recall: Recall| {
            let mut cached = theirs.lock();
            cached.recalls += 1;
            cached.names.retain(|(dir, _), _| *dir != recall.ino);
        };
        Caching {
            session: server.session_embedded("caching", Box::new(on_recall)).expect("a session"),
            names,
        }
    }

    fn lookup(&self, dir: Ino, text: &str) -> Option<Ino> {
        let key = (dir, text.to_owned());
        let recalls = {
            let mut cached = self.names.lock();
            if let Some(&found) = cached.names.get(&key) {
                cached.hits += 1;
                return found;
            }
            cached.recalls
        };
        let (attr, leased) = self.session.lookup(dir, text);
        let found = attr.map(|attr| attr.ino);
        let mut cached = self.names.lock();
        if leased && cached.recalls == recalls {
            cached.names.insert(key, found);
        }
        found
    }
}

#[test]
fn open_is_counted_once_while_another_target_of_its_request_waits() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let recalls = Arc::new(AtomicU32::new(0));
    let counted = recalls.clone();
    let on_recall = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let writer = server.session_embedded("writer", Box::new(on_recall)).expect("a session");
    let (waits, other) = (writer.create(Ino::ROOT, "waits"), writer.create(Ino::ROOT, "other"));
    let exclusive = Call::Lease { ino: waits, mode: LeaseMode::Exclusive };
    writer.try_call(exclusive).expect("granted");
    let reader = session(&server);
    let targets = [other, waits, other].map(|ino| StatTarget::Open { ino, want: access::READ });
    let query = Query::StatEach { stop_on_failure: false, leases: false, targets: targets.to_vec() };
    let Ok(Answer::Stats(stats)) = reader.query(query) else { panic!("not answered") };
    assert!(stats.iter().all(Result::is_ok), "{stats:?}");
    assert!(recalls.load(Ordering::SeqCst) > 0, "one of them waited");
    reader.op(unlink(Ino::ROOT, "other"));
    reader.try_call(Call::Closed { inos: vec![other] }).expect("closed");
    assert!(reader.getattr(other).is_ok(), "it is open once more");
    reader.try_call(Call::Closed { inos: vec![other] }).expect("closed");
    eventually("it is freed", || reader.getattr(other).is_err());
}

#[test]
fn names_are_never_stale() {
    let rig = Rig::new();
    let server = rig.start(ServerOptions { lease_rest_ms: 0, ..quiet() });
    let sessions = [Caching::new(&server), Caching::new(&server)];
    let dir = sessions[0].session.mkdir(Ino::ROOT, "d");
    // Each thread owns the names of its parity: it must see the names that it made or removed,
    // and so must the other once it was notified (through `truth`), whatever is cached where.
    let truth: [Mutex<Option<Ino>>; 8] = Default::default();
    std::thread::scope(|scope| {
        for (me, mine) in sessions.iter().enumerate() {
            let truth = &truth;
            scope.spawn(move || {
                let mut state = 7 + me as u64;
                for _ in 0..1_500 {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let n = (state >> 33) as usize % truth.len();
                    let text = format!("n{n}");
                    let mut true_ino = truth[n].lock();
                    assert_eq!(mine.lookup(dir, &text), *true_ino, "session {me} sees a stale {text}");
                    if n % 2 == me && state >> 40 & 3 == 0 {
                        *true_ino = match *true_ino {
                            None => Some(mine.session.create(dir, &text)),
                            Some(_) => {
                                mine.session.op(unlink(dir, &text));
                                None
                            }
                        };
                        // A client updates its own cache itself.
                        let known = *true_ino;
                        let mut cached = mine.names.lock();
                        cached.names.entry((dir, text)).and_modify(|found| *found = known);
                    }
                }
            });
        }
    });
    let hits: u64 = sessions.iter().map(|s| s.names.lock().hits).sum();
    assert!(hits > 0, "nothing was ever cached");
}

#[test]
fn a_writer_is_asked_to_write_back_before_others_read() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let writer: Arc<OnceLock<EmbeddedSession>> = Arc::default();
    let handler = writer.clone();
    let write_back = move |recall: Recall| {
        assert_eq!(recall.keep, LeaseMode::Shared, "a reader leaves the writer its cache");
        let body = Body::Inline(b"buffered".to_vec());
        let op = Op::Write {
            ino: recall.ino,
            body,
            size: 8,
            mtime: Time(5),
            kill_setid: false,
            hold: Default::default(),
        };
        handler.get().expect("set").op(op);
    };
    let s = server.session_embedded("writer", Box::new(write_back)).expect("a session");
    let ino = s.create(Ino::ROOT, "f");
    assert!(writer.set(s).is_ok());
    let reader = session(&server);
    // stat asks nobody: it says so by giving no lease.
    let (attr, lease) = reader.getattr(ino).expect("there");
    assert_eq!((attr.size, lease), (0, LeaseMode::None));
    let Ok(Answer::Attr { attr, lease, .. }) =
        reader.query(Query::Open { ino, want: access::READ, content: false })
    else {
        panic!("not opened")
    };
    assert_eq!((attr.size, lease), (8, LeaseMode::Shared));
    let answer = reader.query(Query::Map { ino, offset: 0, len: 8 });
    let Ok(Answer::Map { content: chiton_wire::Content::Inline(bytes), .. }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(bytes, b"buffered");
    // The recalled writer asks again for its lease, and gets it once the reader has returned its own.
    let again = Call::Lease { ino, mode: LeaseMode::Exclusive };
    let Ok(Answer::Lease { mode, .. }) = writer.get().expect("set").try_call(again) else {
        panic!("no lease")
    };
    assert_eq!(mode, LeaseMode::Exclusive);
}

/// S42: two that hold a file shared, and both have stores in mappings of it, write these when asked for the file: neither waits
/// for the other.
#[test]
fn mapped_pages_of_all_holders_are_written_before_one_writes() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    // The first session holds everything; these are ordinary.
    let first = session(&server);
    let ino = first.create(Ino::ROOT, "f");
    first.op(Op::Write {
        ino,
        body: Body::Inline(vec![0; 9]),
        size: 9,
        mtime: Time(5),
        kill_setid: false,
        hold: Hold::None,
    });
    let slots: [Arc<OnceLock<EmbeddedSession>>; 2] = Default::default();
    let wrote = Arc::new(AtomicU32::new(0));
    for slot in &slots {
        let (own, wrote) = (slot.clone(), wrote.clone());
        let write_back = move |recall: Recall| {
            if recall.keep > LeaseMode::None {
                return;
            }
            let own = own.get().expect("set");
            let (body, hold) = (Body::Inline(vec![7; 9]), Hold::Shared);
            // The server resumes the other side as soon as it has the write, so this thread counts it before it sends it.
            wrote.fetch_add(1, Ordering::SeqCst);
            own.op(Op::Write { ino, body, size: 9, mtime: Time(6), kill_setid: false, hold });
        };
        let holder = server.session_embedded("holder", Box::new(write_back)).expect("a session");
        let answer = holder.query(Query::Map { ino, offset: 0, len: 9 });
        assert!(matches!(answer, Ok(Answer::Map { lease: LeaseMode::Shared, .. })), "{answer:?}");
        assert!(slot.set(holder).is_ok());
    }
    let answer = first.try_call(Call::Lease { ino, mode: LeaseMode::Exclusive });
    let Ok(Answer::Lease { mode, attr, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!((mode, attr.mtime, wrote.load(Ordering::SeqCst)), (LeaseMode::Exclusive, Time(6), 2));
    // A write of one of them recalls the other's pages. That push may recall the writer's own, before or after the write: the two
    // do not wait for each other.
    let [a, b] = slots.each_ref().map(|slot| slot.get().expect("set"));
    for holder in [a, b] {
        holder.query(Query::Map { ino, offset: 0, len: 9 }).expect("map");
    }
    let hold = Hold::Shared;
    a.op(Op::Write { ino, body: Body::Inline(vec![8; 9]), size: 9, mtime: Time(7), kill_setid: false, hold });
    assert!(wrote.load(Ordering::SeqCst) > 2, "the other's pages come first");
    let (attr, _) = first.getattr(ino).expect("there");
    assert!([Time(6), Time(7)].contains(&attr.mtime), "{attr:?}");
}

/// The guarantee that a policy's `data` weakens, and for how long.
#[test]
fn who_writes_under_a_lazy_policy_is_asked_only_when_the_file_is_closed() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let on_recall = move |_: Recall| {
        count.fetch_add(1, Ordering::SeqCst);
    };
    let writer = server.session_embedded("writer", Box::new(on_recall)).expect("a session");
    let reader = session(&server);
    let set = |text: &[u8]| {
        let (name, value) = (b"chiton.policy".to_vec(), text.to_vec());
        writer.op(Op::SetXattr { ino: Ino::ROOT, name, value, how: XattrHow::Set });
    };
    let write = |ino, text: &[u8]| {
        let (body, size) = (Body::Inline(text.to_vec()), text.len() as u64);
        writer.op(Op::Write { ino, body, size, mtime: Time(5), kill_setid: false, hold: Default::default() });
    };
    // The content that the reader gets, and the lease on it.
    let read = |ino| {
        let answer = reader.query(Query::Map { ino, offset: 0, len: 99 });
        let Ok(Answer::Map { content, lease, .. }) = answer else { panic!("{answer:?}") };
        let chiton_wire::Content::Inline(bytes) = content else { panic!("not inline") };
        (String::from_utf8(bytes).expect("text"), lease)
    };
    for policy in ["data: lazy", "data: close_to_open", "hdfs"] {
        set(policy.as_bytes());
        let ino = writer.create(Ino::ROOT, policy);
        writer.query(Query::Open { ino, want: access::WRITE, content: false }).expect("open");
        // The first session holds all files; the server recalls this one once.
        reader.query(Query::Open { ino, want: access::READ, content: false }).expect("open");
        let lease = Call::Lease { ino, mode: LeaseMode::Exclusive };
        writer.try_call(lease.clone()).expect("a lease");
        write(ino, b"some");
        let before = asked.load(Ordering::SeqCst);
        reader.query(Query::Open { ino, want: access::READ, content: false }).expect("open");
        assert_eq!(read(ino), ("some".to_owned(), LeaseMode::None), "{policy}");
        write(ino, b"some more");
        assert_eq!(read(ino), ("some more".to_owned(), LeaseMode::None), "{policy}");
        assert_eq!(asked.load(Ordering::SeqCst), before, "{policy}: the writer is left alone");

        // A stronger policy holds at once, also for open files.
        set(b"data: linearizable");
        assert_eq!(read(ino).0, "some more", "{policy}");
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{policy}: the writer is asked again");

        // And under the weak one, a session that has closed the file returns its lease when nobody writes any more.
        set(policy.as_bytes());
        writer.try_call(lease).expect("a lease");
        write(ino, b"all of it");
        writer.try_call(Call::Closed { inos: vec![ino, ino] }).expect("closed");
        assert_eq!(read(ino).0, "all of it", "{policy}");
        assert_eq!(
            asked.load(Ordering::SeqCst),
            before + 2,
            "{policy}: a lease that nobody uses is given back"
        );
    }
}

#[test]
fn locks_wait_across_sessions_and_end_with_theirs() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let (a, b) = (session(&server), session(&server));
    let ino = a.create(Ino::ROOT, "f");
    let lock = |owner, kind| Lock { ino, flock: false, owner, start: 0, end: 9, kind, pid: 1 };
    let set = |lock, wait| Call::SetLock { lock, wait };
    assert_eq!(a.try_call(set(lock(1, LockKind::Write), false)), Ok(Answer::Done));
    assert_eq!(refused(b.try_call(set(lock(1, LockKind::Read), false))), Refusal::WouldBlock);
    let Ok(Answer::Lock(Some(found))) = b.try_call(Call::GetLock { lock: lock(1, LockKind::Read) }) else {
        panic!("no conflict")
    };
    assert_eq!(found.kind, LockKind::Write);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| b.try_call(set(lock(1, LockKind::Read), true)));
        crate::rig::eventually("b waits", || crate::rig::figure(&server, "/waiting") == 1);
        // A wait can be given up …
        b.try_call(Call::CancelLock { id: 0 }).expect("cancelled");
        assert_eq!(waiter.join().expect("joined"), Err(Failure::Refused(Refusal::Interrupted)));
        // … or ends with the holder's session.
        let waiter = scope.spawn(|| b.try_call(set(lock(1, LockKind::Read), true)));
        crate::rig::eventually("b waits again", || crate::rig::figure(&server, "/waiting") == 1);
        drop(a);
        assert_eq!(waiter.join().expect("joined"), Ok(Answer::Done));
    });
    assert_eq!(crate::rig::figure(&server, "/locks"), 1);
}

#[test]
fn only_own_blocks_and_no_operation_of_the_server() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let ino = s.create(Ino::ROOT, "f");
    let ask = |op| refused(s.try_call(Call::Op { op, open: false }));
    assert_eq!(ask(Op::Reclaim { ino }), Refusal::NotPermitted);
    let block = chiton_types::BlockId { writer: s.session().0 + 1, number: 1 };
    let extent = chiton_model::Extent { offset: 0, len: 4, block, block_offset: 0, shared: false };
    let body = Body::Extents(vec![extent]);
    assert_eq!(
        ask(Op::Write { ino, body, size: 4, mtime: Time(1), kill_setid: false, hold: Default::default() }),
        Refusal::NotPermitted
    );
    assert_eq!(ask(file(Ino(u64::MAX), "x")), Refusal::Stale);
}
