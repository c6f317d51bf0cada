//! TLS: each side checks the other, and a peer that cannot be trusted learns why.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use chiton_auth::{Access, Authority, Credentials, Grant, Validity};
use chiton_transport::*;
use chiton_types::{SessionId, Take};
use chiton_wire::*;

use crate::rig::*;

/// An authority, and a server with a certificate of it.
struct Site {
    authority: Authority,
    server: Credentials,
    dir: tempfile::TempDir,
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

const WRITER: Grant = Grant::Client(Access::ReadWrite);

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(&dir.path().join("authority"), now(), 1).unwrap();
        let server = credentials(&authority, "node1", Grant::Server, now());
        Site { authority, server, dir }
    }

    fn client(&self) -> Credentials {
        credentials(&self.authority, "alice", WRITER, now())
    }

    fn start(&self, options: ServeOptions) -> Server {
        let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().clone();
        let test = Arc::new(Test::default());
        let listener = listener.with_credentials(Some(self.server.clone()));
        let serving = serve(vec![listener], test.clone(), options, None).unwrap();
        Server { test, serving, address, dir: tempfile::tempdir().unwrap() }
    }
}

/// A certificate of one day from `begin` on.
fn credentials(authority: &Authority, name: &str, grant: Grant, begin: i64) -> Credentials {
    static SERIALS: AtomicU64 = AtomicU64::new(2);
    let serial = u128::from(SERIALS.fetch_add(1, Ordering::Relaxed)) << 8;
    let issued = authority.issue(name, &grant, Validity { now: begin, days: 1 }, serial).unwrap();
    Credentials::from_pem(&issued.identity).unwrap()
}

fn open(server: &Server, credentials: Option<&Credentials>) -> Result<Connection, OpenError> {
    let opened = Connection::open(&server.address, credentials, &hello(Channel::Main), CONNECT_TIMEOUT);
    opened.map(|(connection, _)| connection)
}

fn raw(address: &Address) -> TcpStream {
    let Address::Tcp(host_port) = address else { panic!("{address}") };
    TcpStream::connect(host_port).unwrap()
}

#[test]
fn both_sides_know_each_other_and_messages_of_all_sizes_arrive() {
    let site = Site::new();
    let server = site.start(ServeOptions::default());
    let client = site.client();
    let connection = open(&server, Some(&client)).unwrap();
    // Sizes around those of a record, a part and a read buffer; requests of them, too.
    for (id, len) in (1..).zip([0, 1, 16_383, 16_385, 65_536, 65_537, 300_000, 5 << 20]) {
        let got = connection.call(&request(id, get(len))).unwrap();
        assert_eq!(got.result, Ok(Answer::Bytes(vec![3; len as usize])));
        let block = chiton_types::BlockId { writer: 1, number: id };
        let put = Call::PutBlock { block, bytes: vec![7; len as usize] };
        assert_eq!(connection.call(&request(1000 + id, put)).unwrap().result, Ok(Answer::Done));
    }
    // Many callers, many requests in flight, while long replies fill the socket.
    thread::scope(|scope| {
        for caller in 1..=4u64 {
            let connection = &connection;
            scope.spawn(move || {
                for n in 0..100 {
                    let id = caller * 10_000 + n;
                    connection.send(&request(id, get(20_000)));
                }
                for n in 0..100 {
                    let id = caller * 10_000 + n;
                    assert_eq!(connection.wait(id).unwrap().id, id);
                }
            });
        }
    });
    connection.send(&request(5, COMMIT));
    connection.flush();
    let (sender, id) = server.test.wait_until(|state| state.parked.pop_front());
    assert_eq!(sender.certified().as_ref(), Some(client.own()));
    sender.send(&reply(id, Answer::Done)).unwrap();
    assert_eq!(connection.wait(5).unwrap().id, 5);
}

#[test]
fn recalls_and_peer_channels_have_tls_too() {
    let site = Site::new();
    let server = site.start(ServeOptions::default());
    let client = site.client();
    let channel = hello(Channel::Recall);
    let (recalls, _) =
        RecallChannel::open(&server.address, Some(&client), &channel, CONNECT_TIMEOUT).unwrap();
    assert_eq!(recalls.next().unwrap().id, 1);
    recalls.done(RecallDone { id: 1 }).unwrap();
    server.test.wait_until(|state| state.recalls_done.pop());
    let speaker = Hello { resume: Some((SessionId(7), 1)), ..hello(Channel::Peer) };
    let peer = PeerChannel::open(&server.address, Some(&site.server), &speaker, CONNECT_TIMEOUT).unwrap();
    drop(server);
    peer.wait_for_end();
    probe_is_answered(&site);
}

fn probe_is_answered(site: &Site) {
    let server = site.start(ServeOptions::default());
    let nameless = probe(&server.address, Some(&site.client()), CONNECT_TIMEOUT);
    assert!(nameless.is_ok(), "{nameless:?}");
}

#[test]
fn each_side_learns_why_the_other_is_not_trusted() {
    let (site, other) = (Site::new(), Site::new());
    let server = site.start(ServeOptions::default());
    let check = |client: Option<Credentials>, at_client: &str, at_server: &str| {
        let why = open(&server, client.as_ref()).unwrap_err();
        assert!(
            matches!(
                why,
                OpenError::Untrusted(_) | OpenError::Refused { reason: RefuseReason::Untrusted, .. }
            ),
            "{why:?}"
        );
        assert!(why.to_string().contains(at_client), "{why}");
        match server.closed() {
            Closed::Untrusted(why) => assert!(why.contains(at_server), "{why}"),
            other => panic!("{other:?}"),
        }
    };
    check(None, "speaks only TLS here: name an identity", "speaks without TLS");
    // The client finds out first that the other authority did not sign the server's certificate.
    check(Some(other.client()), "signed by another authority", "does not know the authority");
    let expired = credentials(&site.authority, "old", WRITER, now() - 3 * 86_400);
    check(Some(expired), "this identity has expired", "has expired");

    // A client's certificate does not make a server.
    let pretender = Site { server: site.client(), ..Site::new() }.start(ServeOptions::default());
    let why = open(&pretender, Some(&site.client())).unwrap_err();
    assert!(why.to_string().contains("is not that of a server"), "{why}");
    assert!(site.dir.path().exists());
    assert!(open(&server, Some(&site.client())).is_ok());
}

#[test]
fn a_client_with_another_authority_is_refused_by_the_server() {
    let (site, other) = (Site::new(), Site::new());
    let server = site.start(ServeOptions::default());
    // It knows the server's authority, and shows a certificate of its own.
    let own =
        other.authority.issue("mallory", &WRITER, Validity { now: now(), days: 1 }, 9).unwrap().identity;
    let known = site.authority.issue("bob", &WRITER, Validity { now: now(), days: 1 }, 9).unwrap().identity;
    let last = |text: &str| text.rfind("-----BEGIN CERT").unwrap();
    let mixed = format!("{}{}", &own[..last(&own)], &known[last(&known)..]);
    let why = open(&server, Some(&Credentials::from_pem(&mixed).unwrap())).unwrap_err();
    assert!(why.to_string().contains("does not know the authority that signed this identity"), "{why}");
    match server.closed() {
        Closed::Untrusted(why) => assert!(why.contains("signed by another authority"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_without_tls_is_recognised() {
    let site = Site::new();
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().clone();
    let test = Arc::new(Test::default());
    let serving = serve(vec![listener], test.clone(), ServeOptions::default(), None).unwrap();
    let server = Server { test, serving, address, dir: tempfile::tempdir().unwrap() };
    let why = open(&server, Some(&site.client())).unwrap_err();
    assert!(matches!(why, OpenError::Untrusted(_)), "{why:?}");
    assert!(why.to_string().contains("the server speaks without TLS"), "{why}");
    assert!(matches!(server.closed(), Closed::Untrusted(why) if why.contains("the client speaks TLS")));
}

#[test]
fn garbage_and_half_handshakes_cost_only_their_connection() {
    let site = Site::new();
    let options = ServeOptions { greet_within: Duration::from_secs(1), ..ServeOptions::default() };
    let server = site.start(options);
    let witness = open(&server, Some(&site.client())).unwrap();
    let mut next = 1;
    let mut check = |bytes: &[u8], expect: &str| {
        let mut socket = raw(&server.address);
        let _ = socket.write_all(bytes);
        let _ = socket.read_to_end(&mut Vec::new());
        let why = server.closed().to_string();
        assert!(why.contains(expect), "{bytes:?}: {why}");
        next += 1;
        assert!(witness.call(&request(next, Call::Ping)).is_ok(), "{expect}");
    };
    check(b"GET / HTTP/1.1\r\n\r\n", "speaks without TLS");
    check(&[22, 3, 1, 0, 4, 99, 0, 0, 0], "TLS fails");
    check(&[22, 3, 1, 0xff, 0xff, 1, 1, 1, 1], "no TLS");
    check(&[22, 9], "speaks without TLS");
    // It begins a handshake, and says nothing more.
    check(&[22, 3, 1], "no greeting in time");
    check(&[], "no greeting in time");
    // A plain client gets an answer that it can read.
    let mut socket = raw(&server.address);
    socket.write_all(&hello_frame()).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let welcome = Welcome::decode(&mut Take::new(&answer[5..])).unwrap();
    assert!(matches!(welcome, Welcome::Refused { reason: RefuseReason::Untrusted, .. }), "{welcome:?}");
}

#[test]
fn a_client_does_not_wait_for_ever_for_a_handshake() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let open = || {
        let limit = Duration::from_millis(100);
        Connection::open(&address, Some(&site.client()), &hello(Channel::Main), limit)
            .unwrap_err()
            .to_string()
    };
    assert!(open().contains("does not answer with TLS"));
    thread::scope(|scope| {
        scope.spawn(|| {
            // The first is the connection from before.
            drop(listener.accept());
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 64]);
            let _ = socket.write_all(&[22, 3, 3, 0, 9]);
            // Kept until the client ends it.
            let _ = socket.read_to_end(&mut Vec::new());
        });
        assert!(open().contains("does not answer with TLS"));
    });
}
