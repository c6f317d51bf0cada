//! "A client keeps every operation until the server's durable position has passed it. After a reconnect or a
//! restart of the server it sends them again, in order, in a window before anything new."

use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_runtime::RealWorld;
use chiton_runtime::sync::Mutex;
use chiton_types::{BlockId, Cred, Ino, Mode, Name, PlateId, Position, Refusal, Seq, SessionId};
use chiton_wire::{Answer, Call, Failure, LeaseMode, Query, Recall};
use proptest::prelude::*;

use super::fake_server::{FakeServer, Fault, Made};
use crate::connected::{Connected, ConnectedOptions};
use crate::handler::Handler;
use crate::service::{CallError, Durability, Service, Session};
use crate::write_behind::WriteBehind;
use crate::{PlateInodes, RecallInbox};

fn connect(server: &FakeServer) -> Connected {
    keeping(server, 1 << 20)
}

/// A client that keeps at most so many bytes.
fn keeping(server: &FakeServer, kept_bytes_max: usize) -> Connected {
    keeping_with(server, kept_bytes_max, Arc::default())
}

/// The same, with an inbox for its recalls.
fn keeping_with(server: &FakeServer, kept_bytes_max: usize, inbox: Arc<RecallInbox>) -> Connected {
    let options = ConnectedOptions {
        identity: "test".into(),
        timeout: None,
        kept_bytes_max,
        decouples: false,
        plate: PlateId(0),
        client: 7,
        ready_by: Duration::ZERO,
        filesystem: 0,
    };
    let (dialer, write_behind) = (Arc::new(server.clone()), Arc::new(WriteBehind::off()));
    let connected = Connected::connect(dialer, options, write_behind, inbox, Arc::new(RealWorld));
    connected.expect("the fake accepts").0
}

fn make(name: &str) -> Op {
    let make = Make::File { content: Vec::new() };
    Op::Make { parent: Ino::ROOT, name: Name::try_from(name).expect("a name"), make, mode: Mode(0o644) }
}

fn create(client: &Connected, name: &str, open: bool) -> Result<Ino, CallError> {
    match client.call(&Cred::ROOT, Call::Op { op: make(name), open })? {
        Answer::Op { outcome, .. } => Ok(outcome.attr.expect("made").ino),
        other => panic!("{other:?}"),
    }
}

fn journal(server: &FakeServer) -> Vec<(String, Ino)> {
    server.0.lock().journal.iter().map(|made| (made.name.to_string(), made.ino)).collect()
}

#[test]
fn each_operation_takes_effect_once_whatever_is_lost() {
    for fault in [Fault::None, Fault::RequestLost, Fault::ReplyLost, Fault::ServerDies] {
        let server = FakeServer::default();
        let client = connect(&server);
        let mut answered = Vec::new();
        for name in ["a", "b", "c", "d"] {
            if name == "c" {
                server.0.lock().faults.push_back(fault);
            }
            answered.push((name.to_string(), create(&client, name, false).expect("carried out")));
        }
        assert_eq!(journal(&server), answered, "{fault:?}");
        assert!(!server.0.lock().overtaken, "{fault:?}: something new came before what is sent again");
    }
}

#[test]
fn what_is_durable_is_not_sent_again_and_what_is_not_keeps_its_inode_number() {
    let server = FakeServer::default();
    let client = connect(&server);
    let mut answered = Vec::new();
    for name in ["a", "b", "c"] {
        answered.push((name.to_string(), create(&client, name, false).expect("made")));
    }
    client.commit(Position(0)).expect("durable");
    for name in ["d", "e"] {
        answered.push((name.to_string(), create(&client, name, false).expect("made")));
    }
    server.0.lock().restart();
    assert_eq!(journal(&server).len(), 3, "d and e are lost with the server");
    answered.push(("f".into(), create(&client, "f", false).expect("made")));
    assert_eq!(journal(&server), answered);
    client.commit(Position(0)).expect("nothing was lost");
}

fn put(client: &Connected, number: u64) {
    let call = Call::PutBlock {
        block: BlockId { writer: client.session(Ino::ROOT).0, number },
        bytes: vec![5; 300],
    };
    client.call(&Cred::ROOT, call).expect("put");
}

#[test]
fn blocks_that_a_restart_lost_are_put_again_before_what_may_name_them() {
    let server = FakeServer::default();
    let client = connect(&server);
    put(&client, 1);
    client.commit(Position(0)).expect("durable");
    put(&client, 2);
    put(&client, 3);
    create(&client, "a", false).expect("made");
    // The server dies once more while it is given what it has lost.
    server.0.lock().faults.push_back(Fault::ServerDies);
    server.0.lock().restart();
    create(&client, "b", false).expect("made");
    let fake = server.0.lock();
    assert_eq!(fake.puts, [1, 2, 3, 2, 3, 2, 3], "the first is durable");
    assert_eq!(fake.puts_at_resend, fake.puts.len());
    assert_eq!(fake.blocks.keys().map(|block| block.number).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_block_of_what_a_restart_has_ended_keeps_nobody_from_coming_back() {
    let server = FakeServer::default();
    let client = connect(&server);
    let of_realm = |number| Call::PutBlock { block: BlockId { writer: 77, number }, bytes: vec![5; 300] };
    client.call(&Cred::ROOT, of_realm(1)).expect("put");
    put(&client, 2);
    server.0.lock().forgotten_writer = Some(77);
    server.0.lock().restart();
    create(&client, "a", false).expect("made");
    server.0.lock().restart();
    create(&client, "b", false).expect("made");
    assert_eq!(server.0.lock().puts, [1, 2, 1, 2, 2], "it is not tried again");
}

/// A client that keeps little.
fn forgetful(server: &FakeServer) -> Connected {
    keeping(server, 2_000)
}

#[test]
fn blocks_that_are_kept_are_bounded_by_commits() {
    let server = FakeServer::default();
    let client = forgetful(&server);
    for number in 1..=20 {
        put(&client, number);
    }
    let kept = server.0.lock().blocks.values().filter(|durable| !**durable).count();
    assert!(kept * 300 <= 2_000 + 300, "{kept} of 20 blocks are kept");
    server.0.lock().restart();
    create(&client, "a", false).expect("made");
    assert_eq!(server.0.lock().blocks.len(), 20);
}

#[test]
fn a_batch_is_sent_again_without_what_was_refused() {
    let server = FakeServer::default();
    let client = connect(&server);
    let batch = |names: &[&str]| {
        let ops = names.iter().map(|name| make(name)).collect();
        match client.call(&Cred::ROOT, Call::Batch { ops, stop_on_failure: false }) {
            Ok(Answer::Batch(results)) => results,
            other => panic!("{other:?}"),
        }
    };
    let results = batch(&["a", "refused", "b"]);
    assert_eq!(results[1], Err(Failure::Refused(Refusal::Exists)));
    server.0.lock().restart();
    // Lost with the server, and never answered: sent again whole.
    server.0.lock().faults.extend([Fault::None, Fault::None, Fault::ServerDies]);
    let results = batch(&["c", "refused2", "d"]);
    assert!(results[0].is_ok() && results[1].is_err() && results[2].is_ok());
    let names: Vec<String> = journal(&server).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
}

/// The client comes back too late. A request on its way had no answer, so it is a new operation of the next session, unless the server
/// carried it out before, or something is lost that it may rest on.
#[test]
fn what_an_ended_session_did_not_carry_out_is_asked_anew() {
    let faults = [
        (Fault::SessionExpires, true, &["a", "b", "c"][..]),
        // Its outcome is not known.
        (Fault::SessionExpiresBehind, false, &["a", "b", "c"]),
    ];
    for (fault, is_made, names) in faults {
        let server = FakeServer::default();
        server.0.lock().remembers_ended = true;
        let client = connect(&server);
        create(&client, "a", false).expect("made");
        server.0.lock().faults.push_back(fault);
        assert_eq!(create(&client, "b", false).is_ok(), is_made);
        assert_eq!(client.commit(Position(0)), Ok(()), "nothing acknowledged is lost");
        create(&client, "c", false).expect("made");
        assert_eq!(journal(&server).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
    }
}

/// A client that has made two files, which a crash takes, and whose session is over when it calls next.
fn late(server: &FakeServer) -> (Connected, Vec<(String, Ino)>) {
    server.0.lock().remembers_ended = true;
    let client = connect(server);
    let made = ["a", "b"].map(|name| (name.to_string(), create(&client, name, name == "b").expect("made")));
    server.0.lock().journal.clear();
    server.0.lock().faults.push_back(Fault::SessionExpires);
    (client, made.to_vec())
}

/// "A client that returns when its session is over sends its acknowledged operations again that the server has lost."
#[test]
fn late_operations_are_carried_out_before_what_has_no_answer() {
    for faults in [&[][..], &[Fault::RequestLost], &[Fault::ReplyLost], &[Fault::ReplyLost, Fault::ReplyLost]]
    {
        let server = FakeServer::default();
        let (client, mut made) = late(&server);
        server.0.lock().faults.extend(faults);
        made.push((
            "c".to_string(),
            create(&client, "c", false).expect("nothing is lost on which it may rest"),
        ));
        assert_eq!(journal(&server), made, "{faults:?}: once, in order, with their numbers");
        assert_eq!(server.0.lock().opens, [(made[1].1, 1)].into(), "{faults:?}");
        assert_eq!(client.commit(Position(0)), Ok(()), "{faults:?}");
    }
}

#[test]
fn late_operations_survive_the_death_of_the_server_that_carries_them_out() {
    for fault in [Fault::ServerDies, Fault::SessionExpires, Fault::SessionExpiresBehind] {
        let server = FakeServer::default();
        let (client, made) = late(&server);
        server.0.lock().faults.push_back(fault);
        create(&client, "c", false).expect("carried out");
        assert_eq!(journal(&server)[..2], made, "{fault:?}");
        server.0.lock().restart();
        create(&client, "d", false).expect("carried out");
        let names: Vec<String> = journal(&server).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b", "c", "d"], "{fault:?}");
        assert_eq!(client.commit(Position(0)), Ok(()), "{fault:?}");
    }
}

#[test]
fn contradicted_late_operation_fails_the_next_commit_and_what_may_rest_on_it() {
    let server = FakeServer::default();
    let (client, made) = late(&server);
    let other =
        Made { session: SessionId(1), seq: Seq(1), name: "a".try_into().expect("a name"), ino: Ino(77) };
    server.0.lock().journal.push(other);
    assert_eq!(create(&client, "c", false), Err(Refusal::Io.into()), "a is lost");
    assert_eq!(client.commit(Position(0)), Err(Refusal::Io));
    assert_eq!(client.commit(Position(0)), Ok(()), "said once");
    assert_eq!(journal(&server), [("a".to_string(), Ino(77)), made[1].clone()]);
    create(&client, "d", false).expect("the new session works");
}

#[test]
fn an_expired_session_gives_eio_to_callers_and_once_to_the_next_commit() {
    let server = FakeServer::default();
    let client = connect(&server);
    let before = client.session(Ino::ROOT);
    create(&client, "a", false).expect("made");
    server.0.lock().faults.push_back(Fault::SessionExpires);
    assert_eq!(create(&client, "b", false), Err(Refusal::Io.into()), "never a silent retry");
    assert_ne!(client.session(Ino::ROOT), before);
    assert_eq!(client.commit(Position(0)), Err(Refusal::Io), "a was acknowledged, and may be lost");
    assert_eq!(client.commit(Position(0)), Ok(()), "said once");
    create(&client, "c", false).expect("the new session works");
    let names: Vec<String> = journal(&server).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn closes_wait_for_company_and_opens_are_declared_again() {
    let server = FakeServer::default();
    let client = connect(&server);
    let inos: Vec<Ino> =
        (0..40).map(|n| create(&client, &format!("f{n}"), true).expect("made and open")).collect();
    client.commit(Position(0)).expect("durable");
    for &ino in &inos[..35] {
        client.closed(ino);
    }
    client
        .call(&Cred::ROOT, Call::Query(Query::Open { ino: inos[39], want: 4, content: false }))
        .expect("opened");
    assert!(server.0.lock().close_messages <= 3, "closes travel together");
    server.0.lock().restart();
    create(&client, "after", false).expect("made");
    let expect: Vec<(Ino, u32)> =
        inos[35..].iter().map(|&ino| (ino, 1 + u32::from(ino == inos[39]))).collect();
    assert_eq!(server.0.lock().opens.iter().map(|(&i, &n)| (i, n)).collect::<Vec<_>>(), expect);
}

#[test]
fn recalls_reach_the_handler_before_they_are_acknowledged() {
    struct Log(Mutex<Vec<(Ino, LeaseMode)>>);
    impl Handler for Log {
        fn dirty(&self, _: &PlateInodes) -> Vec<Ino> {
            Vec::new()
        }

        fn stop_write_behind(&self, _: Ino) {}
        fn grown(&self, _: Ino, _: chiton_wire::Grown) {}
        fn weaken(&self, _: Ino, _: LeaseMode) {}

        fn recall(&self, ino: Ino, keep: LeaseMode) {
            self.0.lock().push((ino, keep));
        }
        fn recall_all(&self, _: &PlateInodes, _: LeaseMode) {}
        fn void(&self, _: &PlateInodes, _: Option<&std::collections::BTreeSet<Ino>>) {
            self.0.lock().push((Ino(0), LeaseMode::None));
        }
    }
    let server = FakeServer::default();
    let inbox = Arc::<RecallInbox>::default();
    let client = keeping_with(&server, 1 << 20, inbox.clone());
    let log = Arc::new(Log(Mutex::default()));
    let handler: Arc<dyn Handler> = log.clone();
    inbox.set_handler(Arc::downgrade(&handler));
    let mark = client.recalls().now();
    let recalls = server.0.lock().recall.clone().expect("connected");
    recalls.send(Recall { id: 9, ino: Ino(4), keep: LeaseMode::Shared, grown: None });
    recalls.wait_done(9);
    assert_eq!(*log.0.lock(), [(Ino(4), LeaseMode::Shared)]);
    assert!(client.recalls().recalled_since(mark, Ino(4)));
    server.0.lock().cut();
    create(&client, "a", false).expect("made");
    assert_eq!(log.0.lock().last(), Some(&(Ino(0), LeaseMode::None)), "a new connection voids leases");
}

#[test]
fn memory_for_what_is_not_durable_is_bounded() {
    let server = FakeServer::default();
    let client = forgetful(&server);
    for n in 0..100 {
        create(&client, &format!("f{n}"), false).expect("made");
        let fake = server.0.lock();
        assert!(fake.journal.len() - fake.durable <= 12, "callers make a commit when too much is kept");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(Fault),
    Pipelined(Vec<Fault>),
    Commit,
    Restart,
    Cut,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::None),
        1 => Just(Fault::RequestLost),
        1 => Just(Fault::ReplyLost),
        1 => Just(Fault::ServerDies),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => fault().prop_map(Step::Create),
        2 => prop::collection::vec(fault(), 1..6).prop_map(Step::Pipelined),
        1 => Just(Step::Commit),
        1 => Just(Step::Restart),
        1 => Just(Step::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// The journal holds every answered operation once, in the order of the answers, whatever breaks and whenever.
    #[test]
    fn histories_of_failures_leave_every_operation_once_and_in_order(steps in prop::collection::vec(step(), 1..20)) {
        let server = FakeServer::default();
        let client = connect(&server);
        let mut answered = Vec::new();
        for step in steps {
            let fresh = answered.len();
            match step {
                Step::Create(fault) => {
                    server.0.lock().faults.push_back(fault);
                    let name = format!("f{fresh}");
                    let ino = create(&client, &name, false).expect("carried out");
                    answered.push((name, ino));
                }
                Step::Pipelined(faults) => {
                    let count = faults.len();
                    server.0.lock().faults.extend(faults);
                    let names: Vec<String> = (0..count).map(|n| format!("f{}", fresh + n)).collect();
                    let started: Vec<_> = names
                        .iter()
                        .map(|name| client.start(&Cred::ROOT, Call::Op { op: make(name), open: false }))
                        .collect();
                    for (name, underway) in names.into_iter().zip(started) {
                        let Ok(Answer::Op { outcome, .. }) = underway.wait() else { panic!("not carried out") };
                        answered.push((name, outcome.attr.expect("made").ino));
                    }
                }
                Step::Commit => client.commit(Position(0)).expect("nothing was lost"),
                Step::Restart => server.0.lock().restart(),
                Step::Cut => server.0.lock().cut(),
            }
        }
        server.0.lock().faults.clear();
        // The operations still missing come with the next connection, before this one.
        let last = create(&client, "last", false).expect("made");
        answered.push(("last".into(), last));
        prop_assert_eq!(journal(&server), answered);
        prop_assert!(!server.0.lock().overtaken);
    }
}
