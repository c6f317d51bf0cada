//! Clients over a socket: every operation takes effect once, across lost connections and restarts.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{Asks, eventually, figure, file, make, name, quiet, session, unlink};
use crate::socket_rig::{Client, SocketRig, again, made_ino, never_answered, patient};
use chiton_model::{Body, Make, Op};
use chiton_server::{JOB_IDENTITY, ServerOptions};
use chiton_types::{Ino, Position, Refusal, Time};
use chiton_wire::{Answer, Call, Failure, LeaseMode, Query, RecallDone, TOOL_IDENTITY};

#[test]
fn a_repeated_operation_is_answered_and_not_repeated() {
    let rig = SocketRig::start(quiet());
    let c = rig.client();
    let made = c.numbered(1, None, file(Ino::ROOT, "f")).expect("made");
    let removed = c.numbered(2, None, unlink(Ino::ROOT, "f")).expect("removed");
    assert_eq!(c.numbered(3, None, unlink(Ino::ROOT, "f")), Err(Failure::Refused(Refusal::NotFound)));
    // The connection breaks; everything is sent again.
    let c = rig.resume(&c, 2);
    let (position, repeated) = c.numbered(1, never_answered(), file(Ino::ROOT, "f")).expect("answered");
    assert_eq!((position, repeated.attr), (made.0, None), "it was made then, and is gone now");
    assert_eq!(c.numbered(2, again(&removed), unlink(Ino::ROOT, "f")).map(|done| done.0), Ok(removed.0));
    assert_eq!(c.list(Ino::ROOT, false), []);
    // A refused one left no trace: it is tried again.
    c.numbered(4, None, file(Ino::ROOT, "f")).expect("made");
    c.numbered(3, never_answered(), unlink(Ino::ROOT, "f")).expect("there is one now");
    // A batch in the middle of which the connection broke.
    let ops: Vec<Op> = (0..10).map(|n| file(Ino::ROOT, &format!("b{n}"))).collect();
    let batch = |c: &Client| {
        let request =
            c.request(5, never_answered(), Call::Batch { ops: ops.clone(), stop_on_failure: false });
        c.connection.call(&request).expect("answered").result
    };
    let (first, second) = (batch(&c), batch(&c));
    assert_eq!(first, second);
    assert_eq!(c.list(Ino::ROOT, false).len(), 10);
    // A secret is needed, and a session.
    assert!(rig.open(Some((c.session.0, c.session.1 ^ 1)), 0).is_err());
    c.try_call(Call::Bye).expect("ended");
    assert!(rig.open(Some(c.session), 0).is_err());
    rig.server.shutdown().expect("ends");
}

#[test]
fn a_crashed_server_gets_what_it_lost_in_its_former_order() {
    let mut rig = SocketRig::start(patient());
    let (a, b) = (rig.client(), rig.client());
    let kept = a.numbered(1, None, make(Ino::ROOT, "kept", Make::Dir)).expect("made");
    let dir = made_ino(&kept);
    rig.server.checkpoint().expect("what is there by now is durable");
    let in_rows = a.numbered(2, None, file(dir, "in the journal")).expect("made");
    a.commit();
    // The rest is lost. b's directory is made in a's, a's file in that, and so on: only one order works.
    let lost_dir = b.numbered(1, None, make(dir, "b", Make::Dir)).expect("made");
    let lost = made_ino(&lost_dir);
    let lost_file = a.numbered(3, None, file(lost, "a")).expect("made");
    let file_ino = made_ino(&lost_file);
    let renamed = Op::Rename {
        from: lost,
        from_name: name("a"),
        to: dir,
        to_name: name("moved"),
        how: chiton_model::RenameHow::NoReplace,
    };
    let lost_rename = b.numbered(2, None, renamed.clone()).expect("renamed");
    rig.crash_and_restart();
    // A new client waits until the others have resent.
    let newcomer = session(&rig.server);
    std::thread::scope(|scope| {
        let early = scope.spawn(|| newcomer.lookup(dir, "moved").0.map(|attr| attr.ino));
        let (a2, b2) = (rig.resume(&a, 4), rig.resume(&b, 2));
        // b is faster, and sends an operation that was never answered along.
        let b1 = b2.send(1, again(&lost_dir), make(dir, "b", Make::Dir));
        let b2_id = b2.send(2, again(&lost_rename), renamed);
        b2.connection.flush();
        let a1 = a2.send(1, again(&kept), make(Ino::ROOT, "kept", Make::Dir));
        let a2_id = a2.send(2, again(&in_rows), file(dir, "in the journal"));
        let a3 = a2.send(3, again(&lost_file), file(lost, "a"));
        let a4 = a2.send(4, never_answered(), unlink(dir, "in the journal"));
        a2.connection.flush();
        let get = |c: &Client, id| c.wait(id).expect("carried out");
        assert_eq!(get(&b2, b1).1.attr.expect("there").ino, lost, "the number that its caller was told");
        assert_eq!(get(&b2, b2_id).1.attr.expect("there").ino, file_ino);
        assert_eq!(get(&a2, a1).0, kept.0, "known from the rows");
        assert_eq!(get(&a2, a2_id).0, in_rows.0, "known from the journal");
        assert_eq!(get(&a2, a3).1.attr.expect("there").ino, file_ino);
        get(&a2, a4);
        assert_eq!(early.join().expect("joined"), Some(file_ino), "new requests come after");
        let names: Vec<String> = a2.list(dir, false).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        // Numbers given out from now on are none of the former ones.
        assert_ne!(a2.create(dir, "new"), file_ino);
    });
}

/// A file's writer may say a later time than the server's clock shows: later operations
/// do not take place at that time, neither at first nor when they are sent again.
#[test]
fn what_is_sent_again_took_place_when_its_caller_was_told() {
    let mut rig = SocketRig::start(patient());
    let c = rig.client();
    let ino = c.create(Ino::ROOT, "written");
    c.op(Op::Link { ino, parent: Ino::ROOT, name: name("other") });
    let made = c.getattr(ino).expect("there").0;
    let body = Body::Inline(b"later".to_vec());
    let mtime = Time(made.ctime.0 + 30_000_000_000);
    c.op(Op::Write { ino, body, size: 5, mtime, kill_setid: false, hold: Default::default() });
    c.commit();
    let removed = c.numbered(1, None, unlink(Ino::ROOT, "other")).expect("removed");
    assert!(removed.1.time < mtime && removed.1.attr.as_ref().expect("there").ctime >= mtime);
    let before = c.getattr(Ino::ROOT).expect("there").0.mtime;
    assert_eq!(before, removed.1.time);
    rig.crash_and_restart();
    let c = rig.resume(&c, 1);
    c.numbered(1, again(&removed), unlink(Ino::ROOT, "other")).expect("removed again");
    assert_eq!(c.getattr(Ino::ROOT).expect("there").0.mtime, before);
}

/// An operation that changes nothing has no place in the journal: the server repeats its answer, and after a crash its client
/// has nothing to send.
#[test]
fn what_changed_nothing_is_never_carried_out_later() {
    let mut rig = SocketRig::start(ServerOptions { grace_ms: 60_000, session_ms: 60_000, ..quiet() });
    let (a, b) = (rig.client(), rig.client());
    let ino = b.create(Ino::ROOT, "kept");
    b.op(Op::Link { ino, parent: Ino::ROOT, name: name("other") });
    let onto_itself = |to: &str| Op::Rename {
        from: Ino::ROOT,
        from_name: name("kept"),
        to: Ino::ROOT,
        to_name: name(to),
        how: chiton_model::RenameHow::Replace,
    };
    for (seq, to) in [(1, "kept"), (2, "other")] {
        let (position, outcome) = a.numbered(seq, None, onto_itself(to)).expect("two names of one file");
        assert_eq!((position, outcome.attr.map(|attr| attr.ino)), (Position(0), Some(ino)), "{to}");
    }
    b.op(unlink(Ino::ROOT, "other"));
    // The answer was lost with the connection; now the same would rename.
    let again = |c: &Client| {
        let (position, _) = c.numbered(2, never_answered(), onto_itself("other")).expect("answered");
        assert_eq!(position, Position(0));
        assert_eq!(c.list(Ino::ROOT, false), [("kept".to_owned(), ino)]);
    };
    let a = rig.resume(&a, 1);
    again(&a);
    rig.server.checkpoint().expect("with what is known of the session");
    rig.crash_and_restart();
    let (a, b) = (rig.resume(&a, 1), rig.resume(&b, 0));
    b.try_call(Call::Ping).expect("back");
    again(&a);
    rig.server.shutdown().expect("ends");
}

/// An answer without attributes has a time, too: that of the directory in which the inode was.
#[test]
fn what_is_carried_out_again_gets_the_time_of_the_first_time() {
    let mut rig = SocketRig::start(patient());
    let c = rig.client();
    let made = c.numbered(1, None, make(Ino::ROOT, "d", Make::Dir)).expect("made");
    let rmdir = Op::Rmdir { parent: Ino::ROOT, name: name("d") };
    let removed = c.numbered(2, None, rmdir.clone()).expect("removed");
    assert_eq!(removed.1.attr, None);
    let mtime = c.getattr(Ino::ROOT).expect("there").0.mtime;
    assert_eq!(removed.1.time, mtime);
    rig.crash_and_restart();
    let c = rig.resume(&c, 2);
    // Both at once: neither is carried out before all have come.
    let first = c.send(1, again(&made), make(Ino::ROOT, "d", Make::Dir));
    let second = c.send(2, again(&removed), rmdir.clone());
    c.connection.flush();
    c.wait(first).expect("carried out");
    let (_, done) = c.wait(second).expect("carried out");
    assert_eq!((done.time, c.getattr(Ino::ROOT).expect("there").0.mtime), (mtime, mtime));
    // Sent once more, by a client that still knows it.
    let (_, repeated) = c.numbered(2, again(&removed), rmdir).expect("answered");
    assert_eq!(repeated.time, mtime);
}

#[test]
fn sessions_that_do_not_come_back_lose_what_they_held() {
    let mut rig = SocketRig::start(ServerOptions { grace_ms: 300, session_ms: 2_000, ..quiet() });
    let (stays, leaves) = (rig.client(), rig.client());
    let orphan = |c: &Client, text: &str| {
        let answer = c.try_call(Call::Op { op: file(Ino::ROOT, text), open: true });
        let Ok(Answer::Op { outcome, .. }) = answer else { panic!("{answer:?}") };
        c.op(unlink(Ino::ROOT, text));
        outcome.attr.expect("made").ino
    };
    let (kept, freed) = (orphan(&stays, "a"), orphan(&leaves, "b"));
    stays.commit();
    rig.crash_and_restart();
    let stays = rig.resume(&stays, 0);
    stays
        .try_call(Call::Reopen { opens: vec![(kept, 1)], locks: vec![], dirty: vec![], names: vec![] })
        .expect("declared");
    eventually("the window closes and the other's orphan is freed", || stays.getattr(freed).is_err());
    assert!(stays.getattr(kept).is_ok());
    assert!(rig.open(Some(leaves.session), 0).is_err());
    // A session that is silent for too long ends, too; a ping keeps it.
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        stays.try_call(Call::Ping).expect("alive");
    }
    assert!(stays.getattr(kept).is_ok());
    drop(stays);
    eventually("silence ends the session", || figure(&rig.server, "/sessions") == 0);
    eventually("and frees what it had open", || figure(&rig.server, "/inodes") == 1);
}

/// A restarted server waits for no client that cannot come back: that of a job ran inside the server, and a tool keeps nothing.
#[test]
fn jobs_and_tools_of_before_a_restart_are_not_waited_for() {
    let mut rig = SocketRig::start(ServerOptions { grace_ms: 60_000, session_ms: 60_000, ..quiet() });
    let mount = rig.client();
    let job = rig.client_named(&format!("{JOB_IDENTITY}7: cp for user 0"));
    let tool = rig.client_named(&format!("{TOOL_IDENTITY}process 1"));
    for (n, client) in [&mount, &job, &tool].into_iter().enumerate() {
        client.create(Ino::ROOT, &n.to_string());
        client.commit();
    }
    rig.crash_and_restart();
    let mount = rig.resume(&mount, 0);
    mount.create(Ino::ROOT, "later");
    assert!(rig.open(Some(job.session), 0).is_err() && rig.open(Some(tool.session), 0).is_err());
}

#[test]
fn recalls_reach_clients_on_their_second_connection() {
    let rig = SocketRig::start(ServerOptions { session_ms: 1_500, ..quiet() });
    let (holder, other) = (rig.client(), rig.client());
    let ino = holder.create(Ino::ROOT, "f");
    let lease = |c: &Client| c.try_call(Call::Lease { ino, mode: LeaseMode::Exclusive });
    // Without a recall connection a session is given no lease.
    let Ok(Answer::Lease { mode, .. }) = lease(&other) else { panic!("no answer") };
    assert_eq!(mode, LeaseMode::None);
    let (channel, _never_answers) = (rig.recalls(&holder), rig.recalls(&other));
    lease(&holder).expect("granted");
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let flag = done.clone();
        let holder = &holder;
        scope.spawn(move || {
            let recall = channel.next().expect("asked");
            assert_eq!((recall.ino, recall.keep), (ino, LeaseMode::None));
            // The holder's own requests go before those that wait, but for what would give it the lease again.
            let Ok(Answer::Map { lease, .. }) = holder.query(Query::Map { ino, offset: 0, len: 1 }) else {
                panic!("not answered")
            };
            assert_eq!(lease, LeaseMode::None);
            holder.op(Op::SetAttr { ino, change: chiton_model::AttrChange::default() });
            flag.store(true, std::sync::atomic::Ordering::SeqCst);
            channel.done(RecallDone { id: recall.id }).expect("sent");
        });
        lease(&other).expect("granted");
        assert!(done.load(std::sync::atomic::Ordering::SeqCst), "granted before it was given back");
    });
    // A holder that does not answer loses its session, even if it is there.
    let waiting = holder.request(0, None, Call::Lease { ino, mode: LeaseMode::Exclusive });
    holder.connection.send(&waiting);
    holder.connection.flush();
    eventually("the other is dropped", || {
        holder.try_call(Call::Ping).expect("alive");
        other.try_call(Call::Ping) == Err(Failure::SessionGone)
    });
    let Ok(Answer::Lease { mode, .. }) = holder.connection.wait(waiting.id).expect("answered").result else {
        panic!("not granted")
    };
    assert_eq!(mode, LeaseMode::Exclusive);
}
