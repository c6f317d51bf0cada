//! A client of two plates, each a server with sessions, a journal and connections of its own.

use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_runtime::sync::Mutex;
use chiton_types::{Cred, Ino, Mode, Name, PlateId, Position, Refusal};
use chiton_wire::{Answer, Call, Channel, Hello, Query, RefuseReason, Welcome};

use super::fake_server::{FakeServer, Fault};
use crate::wire::{Dialer, RecallWire, Wire};
use crate::{CallError, Client, ClientOptions, ConnectError, OpenFlags};

/// Dials the server of the plate that a greeting names.
#[derive(Clone)]
struct TwoPlates([FakeServer; 2]);

impl TwoPlates {
    fn server(&self, hello: &Hello) -> &FakeServer {
        &self.0[usize::from(hello.plate.0)]
    }
}

impl Dialer for TwoPlates {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        self.server(hello).dial(hello)
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        self.server(hello).dial_recall(hello)
    }
}

struct Site {
    client: Client,
    servers: [FakeServer; 2],
}

impl Site {
    fn new() -> Site {
        let servers = [0, 1].map(|plate| {
            let server = FakeServer::default();
            server.0.lock().plate_of_two = Some(plate);
            server
        });
        let user = Some((0, 0, Vec::new()));
        let options = ClientOptions { write_behind_after: Some(0), user, ..ClientOptions::default() };
        let dialer = Box::new(TwoPlates(servers.clone()));
        let client = Client::connect_by(dialer, |_| None, options).expect("both plates accept");
        Site { client, servers }
    }

    /// A directory of a plate.
    fn dir(&self, plate: usize) -> Ino {
        self.servers[plate].0.lock().ino(5)
    }

    /// Asks a plate to make a file, which is open then.
    fn make(&self, plate: usize, name: &str) -> Result<Ino, CallError> {
        let (name, make) = (Name::try_from(name).expect("a name"), Make::File { content: Vec::new() });
        let op = Op::Make { parent: self.dir(plate), name, make, mode: Mode(0o644) };
        match self.client.service().call(&Cred::ROOT, Call::Op { op, open: true })? {
            Answer::Op { outcome, .. } => Ok(outcome.attr.expect("made").ino),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a file by write-behind.
    fn make_locally(&self, plate: usize, name: &str) -> Ino {
        let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
        let made =
            self.client.create(&self.client.caller(), self.dir(plate), name.as_bytes(), Mode(0o644), flags);
        made.expect("made").0.attr.ino
    }

    fn names(&self, plate: usize) -> Vec<String> {
        self.servers[plate].0.lock().journal.iter().map(|made| made.name.to_string()).collect()
    }
}

#[test]
fn each_plate_has_a_session_and_carries_out_its_own() {
    let site = Site::new();
    let made = [0, 1].map(|plate| site.make(plate, "a").expect("made"));
    site.make(1, "b").expect("made");
    assert_eq!((site.names(0), site.names(1)), (vec!["a".into()], vec!["a".into(), "b".into()]));
    let sessions = made.map(|ino| site.client.service().session(ino));
    assert_ne!(sessions[0], sessions[1]);
    for (plate, ino) in made.into_iter().enumerate() {
        assert_eq!(site.servers[plate].0.lock().journal[0].session, sessions[plate]);
        let block = site.client.files.new_block(ino);
        assert_eq!(block.writer, sessions[plate].0);
        site.client.blocks().put(block, &[5; 300]).expect("put");
        assert_eq!(site.servers[plate].0.lock().puts, [block.number], "where the file is");
    }
}

#[test]
fn sync_makes_durable_what_each_plate_has_answered() {
    let site = Site::new();
    let commits = || [0, 1].map(|plate| site.servers[plate].0.lock().commits);
    site.make(0, "a").expect("made");
    site.make(1, "b").expect("made");
    site.client.sync().expect("durable");
    for server in &site.servers {
        assert_eq!(server.0.lock().durable, 1);
    }
    let before = commits();
    let there = site.make(1, "c").expect("made");
    site.client.service().commit_with(there).expect("durable");
    assert_eq!(site.servers[1].0.lock().durable, 2);
    assert_eq!(commits(), [before[0], before[1] + 1], "the first plate has nothing new");
}

#[test]
fn operation_takes_effect_once_whichever_plate_is_lost() {
    for fault in [Fault::RequestLost, Fault::ReplyLost, Fault::ServerDies] {
        let site = Site::new();
        site.make(0, "a").expect("made");
        site.servers[1].0.lock().faults.push_back(fault);
        site.make(1, "b").expect("carried out");
        site.make(0, "c").expect("made");
        site.client.sync().expect("durable");
        assert_eq!(
            (site.names(0), site.names(1)),
            (vec!["a".into(), "c".into()], vec!["b".into()]),
            "{fault:?}"
        );
        let fake = site.servers[0].0.lock();
        assert_eq!(fake.declared, None, "{fault:?}: its connection was not touched");
    }
}

#[test]
fn lost_connection_leaves_pending_operations_of_another_plate_alone() {
    let site = Site::new();
    for plate in 0..2 {
        let listed = site.client.readdir(&site.client.caller(), site.dir(plate), 0, 9, false);
        assert!(listed.expect("listed").1, "that is all");
    }
    let near = site.make(1, "open").expect("made");
    site.servers[0].hold_pending();
    let first = site.make_locally(0, "f0");
    assert_eq!(site.names(0), [""; 0], "not asked for");
    site.servers[0].wait_held();
    site.servers[1].0.lock().restart();
    site.make(1, "after").expect("made over a new connection");
    // Only what is of that plate is declared to it.
    let (opens, dirty, names) = site.servers[1].0.lock().declared.clone().expect("declared");
    assert_eq!((dirty, names), (vec![], vec![]));
    assert!(
        opens.iter().all(|(ino, _)| *ino != first) && opens.iter().any(|(ino, _)| *ino == near),
        "{opens:?}"
    );
    assert_eq!(site.servers[0].0.lock().declared, None);
    // The lease on the names there still holds.
    site.make_locally(0, "f1");
    assert_eq!(site.names(0), [""; 0], "not asked for");
    assert_eq!(site.client.service().unsettled(), 3, "a message to the first plate, two files of the second");
    site.servers[0].release_pending();
    site.client.sync().expect("nothing is lost");
    assert_eq!(site.names(0), ["f0", "f1"]);
}

#[test]
fn session_that_is_over_at_one_plate_loses_nothing_at_another() {
    let site = Site::new();
    let kept = site.make(0, "a").expect("made");
    site.make(1, "b").expect("made");
    site.servers[1].0.lock().faults.push_back(Fault::SessionExpires);
    assert_eq!(site.make(1, "c"), Err(Refusal::Io.into()), "never a silent retry");
    assert_eq!(
        site.client.service().commit(Position(0)),
        Err(Refusal::Io),
        "b was acknowledged, and may be lost"
    );
    assert_eq!(site.client.service().commit(Position(0)), Ok(()), "said once");
    assert_eq!(site.servers[0].0.lock().durable, 1);
    assert_eq!(site.servers[0].0.lock().opens.get(&kept), Some(&1));
    let open = Call::Query(Query::Open { ino: kept, want: 4, content: false });
    site.client.service().call(&Cred::ROOT, open).expect("the other session goes on");
}

#[test]
fn plate_that_is_not_there_is_an_error() {
    struct OnePlate(FakeServer);
    impl Dialer for OnePlate {
        fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
            if hello.plate != PlateId(0) {
                let message = "there is no plate 1".to_owned();
                return Ok((Welcome::Refused { reason: RefuseReason::NoPlate, message }, None));
            }
            self.0.dial(hello)
        }
        fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
            self.0.dial_recall(hello)
        }
    }
    let server = FakeServer::default();
    server.0.lock().plate_of_two = Some(0);
    let connected = Client::connect_by(Box::new(OnePlate(server)), |_| None, ClientOptions::default());
    let error = connected.err().expect("half a file system is none");
    assert_eq!(error.to_string(), "there is no plate 1");
}

/// A plate that is on its way to another server refuses so many greetings of this kind first.
struct Moving {
    plates: TwoPlates,
    channel: Channel,
    refusals: Mutex<usize>,
    patience: Duration,
}

impl Moving {
    fn connect(channel: Channel, refusals: usize, patience: Duration) -> Result<Client, ConnectError> {
        let servers = [0, 1].map(|plate| {
            let server = FakeServer::default();
            server.0.lock().plate_of_two = Some(plate);
            server
        });
        let dialer = Moving { plates: TwoPlates(servers), channel, refusals: Mutex::new(refusals), patience };
        Client::connect_by(Box::new(dialer), |_| None, ClientOptions::default())
    }

    fn refuses(&self, hello: &Hello) -> Option<Welcome> {
        let mut left = self.refusals.lock();
        if hello.plate != PlateId(1) || hello.channel != self.channel || *left == 0 {
            return None;
        }
        *left -= 1;
        let (reason, message) = (RefuseReason::NotReady, "the plate does not run; try again".to_owned());
        Some(Welcome::Refused { reason, message })
    }
}

impl Dialer for Moving {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        self.refuses(hello).map_or_else(|| self.plates.dial(hello), |refused| Ok((refused, None)))
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        self.refuses(hello).map_or_else(|| self.plates.dial_recall(hello), |refused| Ok((refused, None)))
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

#[test]
fn a_plate_that_moves_is_waited_for_within_the_time() {
    let long = Duration::from_secs(60);
    for channel in [Channel::Main, Channel::Recall] {
        let client = Moving::connect(channel, 3, long).expect("it runs in the end");
        assert_eq!(client.plates(), 2, "{channel:?}");
        assert!(Moving::connect(channel, 1, Duration::ZERO).is_err(), "{channel:?}: without patience");
    }
    let late = Moving::connect(Channel::Main, usize::MAX, Duration::from_millis(200));
    let error = late.err().expect("it never runs");
    assert_eq!(error.to_string(), "the plate does not run; try again");
}
