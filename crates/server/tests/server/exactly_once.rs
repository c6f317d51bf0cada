//! Clients over a socket: every operation takes effect once, across lost connections and restarts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{Asks, Rig, eventually, figure, file, make, name, quiet, session, unlink};
use chiton_model::{Body, Make, Op, Outcome};
use chiton_server::{Server, ServerOptions};
use chiton_transport::{Address, Connection, OpenError, RecallChannel};
use chiton_types::{Cred, Epoch, Ino, PlateId, Position, Refusal, Seq, SessionId, Time};
use chiton_wire::{
    Again, Answer, Call, Channel, Failure, Hello, LeaseMode, PROTOCOL_VERSION, Query, RecallDone, Reply,
    Request, Welcome,
};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A client that numbers its operations and decides itself what it sends again.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    session: SessionId,
    secret: u64,
}

fn hello(channel: Channel, resume: Option<(SessionId, u64)>, resend_count: u32) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        channel,
        resume,
        identity: "test".into(),
        resend_count,
        decouples: false,
        plate: PlateId(0),
    }
}

pub(crate) fn serve(server: &Server, dir: &Path) -> Address {
    let address = Address::Unix(dir.join("socket"));
    server.serve(std::slice::from_ref(&address)).expect("listens").remove(0)
}

impl Client {
    fn open(
        address: &Address,
        resume: Option<(SessionId, u64)>,
        resend_count: u32,
    ) -> Result<Client, OpenError> {
        let hello = hello(Channel::Main, resume, resend_count);
        let (connection, welcome) = Connection::open(address, &hello, TIMEOUT)?;
        let Welcome::Accepted { session, secret, .. } = welcome else { panic!("a refusal is an error") };
        Ok(Client { connection, session, secret })
    }

    pub(crate) fn new(address: &Address) -> Client {
        Client::open(address, None, 0).expect("connects")
    }

    /// Comes back on a new connection, and declares that it holds nothing.
    pub(crate) fn resume(&self, address: &Address, resend_count: u32) -> Client {
        let client = Client::open(address, Some((self.session, self.secret)), resend_count).expect("resumes");
        let nothing = Call::Reopen { opens: vec![], locks: vec![], dirty: vec![], names: vec![] };
        client.try_call(nothing).expect("declared");
        client
    }

    pub(crate) fn request(&self, seq: u64, again: Option<Again>, call: Call) -> Request {
        let id = self.connection.next_id();
        Request { id, seq: Seq(seq), settled: Seq(0), epoch: Epoch(1), again, cred: Cred::ROOT, call }
    }

    /// The connection on which it can be asked for leases.
    pub(crate) fn recalls(&self, address: &Address) -> RecallChannel {
        let hello = hello(Channel::Recall, Some((self.session, self.secret)), 0);
        RecallChannel::open(address, &hello, TIMEOUT).expect("connects").0
    }

    pub(crate) fn numbered(
        &self,
        seq: u64,
        again: Option<Again>,
        op: Op,
    ) -> Result<(Position, Outcome), Failure> {
        outcome(
            self.connection.call(&self.request(seq, again, Call::Op { op, open: false })).expect("answered"),
        )
    }
}

fn outcome(reply: Reply) -> Result<(Position, Outcome), Failure> {
    match reply.result? {
        Answer::Op { position, outcome, .. } => Ok((position, outcome)),
        other => panic!("{other:?}"),
    }
}

impl Asks for Client {
    fn try_call(&self, call: Call) -> Result<Answer, Failure> {
        self.connection.call(&self.request(0, None, call)).expect("answered").result
    }
}

/// What a client says about an operation that was answered like this.
fn again((position, outcome): &(Position, Outcome)) -> Option<Again> {
    let attr = outcome.attr.as_ref();
    Some(Again {
        boot: 1,
        position: *position,
        ino: attr.map(|attr| attr.ino).unwrap_or_default(),
        time: outcome.time,
    })
}

pub(crate) fn never_answered() -> Option<Again> {
    Some(Again::default())
}

#[test]
fn a_repeated_operation_is_answered_and_not_repeated() {
    let tmp = tempfile::tempdir().expect("a directory");
    let rig = Rig::new();
    let server = rig.start(quiet());
    let address = serve(&server, tmp.path());
    let c = Client::new(&address);
    let made = c.numbered(1, None, file(Ino::ROOT, "f")).expect("made");
    let removed = c.numbered(2, None, unlink(Ino::ROOT, "f")).expect("removed");
    assert_eq!(c.numbered(3, None, unlink(Ino::ROOT, "f")), Err(Failure::Refused(Refusal::NotFound)));
    // The connection breaks; everything is sent again.
    let c = c.resume(&address, 2);
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
    assert!(Client::open(&address, Some((c.session, c.secret ^ 1)), 0).is_err());
    c.try_call(Call::Bye).expect("ended");
    assert!(Client::open(&address, Some((c.session, c.secret)), 0).is_err());
    server.shutdown().expect("ends");
}

#[test]
fn a_crashed_server_gets_what_it_lost_in_its_former_order() {
    let tmp = tempfile::tempdir().expect("a directory");
    let mut rig = Rig::new();
    // Nothing is written unless somebody waits.
    let mut options = quiet();
    options.journal.flush_interval = Duration::from_secs(3600);
    options.grace_ms = 60_000;
    options.session_ms = 60_000;
    let server = rig.start(options.clone());
    let address = serve(&server, tmp.path());
    let (a, b) = (Client::new(&address), Client::new(&address));
    let kept = a.numbered(1, None, make(Ino::ROOT, "kept", Make::Dir)).expect("made");
    let dir = kept.1.attr.as_ref().expect("made").ino;
    server.checkpoint().expect("what is there by now is durable");
    let in_rows = a.numbered(2, None, file(dir, "in the journal")).expect("made");
    a.commit();
    // The rest is lost. b's directory is made in a's, a's file in that, and so on: only one order works.
    let lost_dir = b.numbered(1, None, make(dir, "b", Make::Dir)).expect("made");
    let lost = lost_dir.1.attr.as_ref().expect("made").ino;
    let lost_file = a.numbered(3, None, file(lost, "a")).expect("made");
    let file_ino = lost_file.1.attr.as_ref().expect("made").ino;
    let renamed = Op::Rename {
        from: lost,
        from_name: name("a"),
        to: dir,
        to_name: name("moved"),
        how: chiton_model::RenameHow::NoReplace,
    };
    let lost_rename = b.numbered(2, None, renamed.clone()).expect("renamed");
    rig.crash(&server);

    let server = rig.start(options);
    let address = serve(&server, tmp.path());
    // Somebody new has to wait.
    let newcomer = session(&server);
    std::thread::scope(|scope| {
        let early = scope.spawn(|| newcomer.lookup(dir, "moved").0.map(|attr| attr.ino));
        let (a2, b2) = (a.resume(&address, 4), b.resume(&address, 2));
        // b is faster, and sends an operation that was never answered along.
        let resend = |c: &Client, seq, again, op| {
            let request = c.request(seq, again, Call::Op { op, open: false });
            c.connection.send(&request);
            request.id
        };
        let b1 = resend(&b2, 1, again(&lost_dir), make(dir, "b", Make::Dir));
        let b2_id = resend(&b2, 2, again(&lost_rename), renamed);
        b2.connection.flush();
        let a1 = resend(&a2, 1, again(&kept), make(Ino::ROOT, "kept", Make::Dir));
        let a2_id = resend(&a2, 2, again(&in_rows), file(dir, "in the journal"));
        let a3 = resend(&a2, 3, again(&lost_file), file(lost, "a"));
        let a4 = resend(&a2, 4, never_answered(), unlink(dir, "in the journal"));
        a2.connection.flush();
        let get = |c: &Client, id| outcome(c.connection.wait(id).expect("answered")).expect("carried out");
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

/// A file's writer may say a later time than the server's clock shows: what follows does not take place then, neither at
/// first nor when it is sent again.
#[test]
fn what_is_sent_again_took_place_when_its_caller_was_told() {
    let tmp = tempfile::tempdir().expect("a directory");
    let mut rig = Rig::new();
    let mut options = quiet();
    options.journal.flush_interval = Duration::from_secs(3600);
    (options.grace_ms, options.session_ms) = (60_000, 60_000);
    let server = rig.start(options.clone());
    let address = serve(&server, tmp.path());
    let c = Client::new(&address);
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
    rig.crash(&server);

    let server = rig.start(options);
    let address = serve(&server, tmp.path());
    let c = c.resume(&address, 1);
    c.numbered(1, again(&removed), unlink(Ino::ROOT, "other")).expect("removed again");
    assert_eq!(c.getattr(Ino::ROOT).expect("there").0.mtime, before);
}

/// What changes nothing has no place among the operations: it is answered again as it was, and after a crash its client
/// has nothing to send.
#[test]
fn what_changed_nothing_is_never_carried_out_later() {
    let tmp = tempfile::tempdir().expect("a directory");
    let mut rig = Rig::new();
    let options = ServerOptions { grace_ms: 60_000, session_ms: 60_000, ..quiet() };
    let server = rig.start(options.clone());
    let address = serve(&server, tmp.path());
    let (a, b) = (Client::new(&address), Client::new(&address));
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
    let a = a.resume(&address, 1);
    again(&a);
    server.checkpoint().expect("with what is known of the session");
    rig.crash(&server);
    let server = rig.start(options);
    let address = serve(&server, tmp.path());
    let (a, b) = (a.resume(&address, 1), b.resume(&address, 0));
    b.try_call(Call::Ping).expect("back");
    again(&a);
    server.shutdown().expect("ends");
}

/// What is answered without attributes has a time, too: that of the directory it was in.
#[test]
fn what_is_carried_out_again_gets_the_time_of_the_first_time() {
    let tmp = tempfile::tempdir().expect("a directory");
    let mut rig = Rig::new();
    let mut options = quiet();
    options.journal.flush_interval = Duration::from_secs(3600);
    options.grace_ms = 60_000;
    options.session_ms = 60_000;
    let server = rig.start(options.clone());
    let address = serve(&server, tmp.path());
    let c = Client::new(&address);
    let made = c.numbered(1, None, make(Ino::ROOT, "d", Make::Dir)).expect("made");
    let rmdir = Op::Rmdir { parent: Ino::ROOT, name: name("d") };
    let removed = c.numbered(2, None, rmdir.clone()).expect("removed");
    assert_eq!(removed.1.attr, None);
    let mtime = c.getattr(Ino::ROOT).expect("there").0.mtime;
    assert_eq!(removed.1.time, mtime);
    rig.crash(&server);

    let server = rig.start(options);
    let c = c.resume(&serve(&server, tmp.path()), 2);
    // Both at once: neither is carried out before all have come.
    let resend = |seq, again, op| {
        let request = c.request(seq, again, Call::Op { op, open: false });
        c.connection.send(&request);
        request.id
    };
    let first = resend(1, again(&made), make(Ino::ROOT, "d", Make::Dir));
    let second = resend(2, again(&removed), rmdir.clone());
    c.connection.flush();
    let get = |id| outcome(c.connection.wait(id).expect("answered")).expect("carried out");
    get(first);
    let (_, done) = get(second);
    assert_eq!((done.time, c.getattr(Ino::ROOT).expect("there").0.mtime), (mtime, mtime));
    // Sent once more, by a client that goes on knowing it.
    let (_, repeated) = c.numbered(2, again(&removed), rmdir).expect("answered");
    assert_eq!(repeated.time, mtime);
}

#[test]
fn sessions_that_do_not_come_back_lose_what_they_held() {
    let tmp = tempfile::tempdir().expect("a directory");
    let mut rig = Rig::new();
    let options = ServerOptions { grace_ms: 300, session_ms: 2_000, ..quiet() };
    let server = rig.start(options.clone());
    let address = serve(&server, tmp.path());
    let (stays, leaves) = (Client::new(&address), Client::new(&address));
    let orphan = |c: &Client, text: &str| {
        let answer = c.try_call(Call::Op { op: file(Ino::ROOT, text), open: true });
        let Ok(Answer::Op { outcome, .. }) = answer else { panic!("{answer:?}") };
        c.op(unlink(Ino::ROOT, text));
        outcome.attr.expect("made").ino
    };
    let (kept, freed) = (orphan(&stays, "a"), orphan(&leaves, "b"));
    stays.commit();
    rig.crash(&server);
    let server = rig.start(options);
    let address = serve(&server, tmp.path());
    let stays = stays.resume(&address, 0);
    stays
        .try_call(Call::Reopen { opens: vec![(kept, 1)], locks: vec![], dirty: vec![], names: vec![] })
        .expect("declared");
    eventually("the window closes and the other's orphan is freed", || stays.getattr(freed).is_err());
    assert!(stays.getattr(kept).is_ok());
    assert!(Client::open(&address, Some((leaves.session, leaves.secret)), 0).is_err());
    // Who is silent for too long is over, too; a ping keeps a session.
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        stays.try_call(Call::Ping).expect("alive");
    }
    assert!(stays.getattr(kept).is_ok());
    drop(stays);
    eventually("silence ends the session", || figure(&server, "/sessions") == 0);
    eventually("and frees what it had open", || figure(&server, "/inodes") == 1);
}

#[test]
fn recalls_reach_clients_on_their_second_connection() {
    let tmp = tempfile::tempdir().expect("a directory");
    let rig = Rig::new();
    let server = rig.start(ServerOptions { session_ms: 1_500, ..quiet() });
    let address = serve(&server, tmp.path());
    let (holder, other) = (Client::new(&address), Client::new(&address));
    let ino = holder.create(Ino::ROOT, "f");
    let lease = |c: &Client| c.try_call(Call::Lease { ino, mode: LeaseMode::Exclusive });
    // Without a recall connection a session is given no lease.
    let Ok(Answer::Lease { mode, .. }) = lease(&other) else { panic!("no answer") };
    assert_eq!(mode, LeaseMode::None);
    let (channel, _never_answers) = (holder.recalls(&address), other.recalls(&address));
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
