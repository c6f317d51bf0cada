//! The end of a client with pending operations: in order they are all sent, and a crash loses only those that no commit covers.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_runtime::RealWorld;
use chiton_types::{Cred, Ino, Mode, Name, PlateId, Position, Time};
use chiton_wire::Acknowledged;

use super::fake_server::FakeServer;
use crate::connected::{Connected, ConnectedOptions};
use crate::service::{Connection, Durability};
use crate::write_behind::{Limits, WriteBehind};

const DIR: Ino = Ino(9);

/// A client, and the write-behind that it shares.
struct Site {
    server: FakeServer,
    client: Connected,
    write_behind: Arc<WriteBehind>,
}

impl Site {
    fn new() -> Site {
        let server = FakeServer::default();
        let options = ConnectedOptions {
            identity: "test".into(),
            timeout: None,
            kept_bytes_max: 1 << 20,
            decouples: false,
            plate: PlateId(0),
            client: 7,
            ready_by: Duration::ZERO,
            filesystem: 0,
        };
        let write_behind = Arc::new(WriteBehind::new(Some(0), Limits::new(1 << 20)));
        let (dialer, inbox) = (Arc::new(server.clone()), Arc::default());
        let connected = Connected::connect(dialer, options, write_behind.clone(), inbox, Arc::new(RealWorld));
        Site { server, client: connected.expect("the fake accepts").0, write_behind }
    }

    /// Acknowledges a file with this number.
    fn acknowledge(&self, n: u64) {
        let name = Name::try_from(format!("f{n}").as_str()).expect("a name");
        let make = Make::File { content: Vec::new() };
        let op = Op::Make { parent: DIR, name, make, mode: Mode(0o644) };
        let acknowledged = Acknowledged { ino: Ino(100 + n), time: Time(1), open: false };
        let now = chiton_runtime::World::monotonic(&RealWorld);
        assert!(self.write_behind.queue.enqueue(&Cred::ROOT, &op, acknowledged, DIR, now));
    }

    /// One message is under way and waits at the server, and one waits for its answer.
    fn with_pending() -> Site {
        let site = Site::new();
        site.server.hold_pending();
        site.acknowledge(1);
        site.server.wait_held();
        (2..=5).for_each(|n| site.acknowledge(n));
        site
    }
}

/// The numbers of the files that a server has, in the order in which it made them; and how many are durable.
fn made(server: &FakeServer) -> (Vec<u64>, usize) {
    let fake = server.0.lock();
    (fake.journal.iter().map(|made| made.ino.0 - 100).collect(), fake.durable)
}

#[test]
fn client_that_ends_in_order_sends_all_pending_operations() {
    let Site { server, client, write_behind } = Site::with_pending();
    thread::scope(|scope| {
        let end = scope.spawn(|| drop(client));
        // The end waits for the server.
        while !write_behind.queue.is_leaving() {
            thread::yield_now();
        }
        assert_eq!(made(&server).0.len(), 0);
        server.release_pending();
        end.join().expect("it ends");
    });
    assert_eq!(made(&server).0, [1, 2, 3, 4, 5]);
}

#[test]
fn crash_of_a_client_loses_no_pending_operation_that_a_commit_covers() {
    let site = Site::new();
    (1..=3).for_each(|n| site.acknowledge(n));
    // An fsync waits for all pending operations, and then for the journal.
    site.client.commit(Position(0)).expect("durable");
    assert_eq!(made(&site.server), (vec![1, 2, 3], 3));
    site.server.hold_pending();
    site.acknowledge(4);
    site.server.wait_held();
    site.acknowledge(5);
    site.client.abandon();
    site.server.0.lock().cut();
    site.server.release_pending();
    let Site { server, client, .. } = site;
    drop(client);
    assert_eq!(made(&server).0, [1, 2, 3], "nothing is sent after the crash");
}

#[test]
fn lost_connection_sends_the_unsent_messages_again_in_order() {
    let site = Site::with_pending();
    site.server.0.lock().cut();
    site.server.release_pending();
    site.write_behind.flush(None);
    assert_eq!(made(&site.server).0, [1, 2, 3, 4, 5]);
    // A restart loses what is not durable, and the client sends it again.
    site.server.0.lock().restart();
    site.client.commit(Position(0)).expect("durable");
    assert_eq!(made(&site.server), (vec![1, 2, 3, 4, 5], 5));
}
