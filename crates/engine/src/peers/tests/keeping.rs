//! Leases of clients on directories between which they rename.

use chiton_model::{Make, Op, RenameHow};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, PlateId, Seq};
use chiton_wire::{Call, LeaseMode, Query, Request};

use super::cluster::{Cluster, session};
use super::load::Load;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Cluster {
    /// A client looks at a directory until it has a lease on it.
    fn look(&mut self, client: usize, at: usize, ino: Ino) {
        for _ in 0..3 {
            let call = Call::Query(Query::GetAttr { ino });
            let (seq, cred) = (Seq(0), Cred::ROOT);
            let request = Request { id: 9, seq, settled: seq, epoch: Epoch(1), again: None, cred, call };
            let node = &mut self.nodes[at];
            let mut step = node.engine.request(session(client, at), request, &node.m);
            while let crate::step::Step::NeedRows(task, needs) = step {
                node.supply(&needs);
                step = node.engine.retry(task, &node.m);
            }
            self.take(at);
        }
        assert!(self.lease(client, at, ino) >= LeaseMode::Shared);
    }

    fn lease(&self, client: usize, at: usize, ino: Ino) -> LeaseMode {
        let clients = &self.nodes[at].engine.clients;
        let slot = clients.sessions.get(session(client, at)).expect("a session").slot;
        clients.leases.mode(ino, slot)
    }

    /// All plates learn by which number a client is known.
    fn greet(&mut self, client: usize, number: u64) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.engine.note_greeting(session(client, at), number, false);
        }
    }

    /// Both clients look at both directories, and one renames from plate to plate: what each holds then.
    fn leases_after(&mut self, client: usize, op: Op, dirs: [(usize, Ino); 2]) -> [[LeaseMode; 2]; 2] {
        for looking in 0..2 {
            dirs.iter().for_each(|(at, ino)| self.look(looking, *at, *ino));
        }
        let sent = self.send(client, op);
        self.run(0, 0);
        assert!(matches!(self.clients[client].sent[sent].answer, Some(Ok(_))), "renamed");
        [0, 1].map(|client| dirs.map(|(at, ino)| self.lease(client, at, ino)))
    }
}

#[test]
fn a_rename_between_plates_takes_the_leases_on_its_directories_from_all_but_its_client() {
    const NOTHING: [LeaseMode; 2] = [LeaseMode::None; 2];
    const BOTH: [LeaseMode; 2] = [LeaseMode::Shared; 2];
    let mut cluster = Cluster::new(1, 2, 2, Load::Mixed);
    cluster.clients.iter_mut().for_each(|client| client.ops_left = 0);
    let dir = (0..8).find_map(|n| {
        let make = Make::Dir;
        cluster
            .send(0, Op::Make { parent: Ino::ROOT, name: name(&format!("d{n}")), make, mode: Mode(0o755) });
        cluster.run(0, 0);
        cluster.dirs.last().copied().filter(|ino| cluster.plates.of(*ino) == Some(PlateId(1)))
    });
    let dir = dir.expect("one of eight directories is born on the other plate");
    let make = Make::File { content: Vec::new() };
    cluster.send(0, Op::Make { parent: Ino::ROOT, name: name("f"), make, mode: Mode(0o644) });
    cluster.run(0, 0);
    (0..2).for_each(|client| cluster.greet(client, client as u64 + 1));

    let dirs = [(0, Ino::ROOT), (1, dir)];
    let how = RenameHow::Replace;
    let there = Op::Rename { from: Ino::ROOT, from_name: name("f"), to: dir, to_name: name("g"), how };
    let back = Op::Rename { from: dir, from_name: name("g"), to: Ino::ROOT, to_name: name("f"), how };
    assert_eq!(cluster.leases_after(0, there.clone(), dirs), [BOTH, NOTHING]);
    assert_eq!(cluster.leases_after(1, back.clone(), dirs), [NOTHING, BOTH]);
    // A client that has named no number keeps what it has at the plate that decides.
    cluster.greet(1, 0);
    assert_eq!(cluster.leases_after(1, there, dirs), [NOTHING, [LeaseMode::None, LeaseMode::Shared]]);
    assert_eq!(cluster.leases_after(1, back, dirs), [NOTHING, [LeaseMode::Shared, LeaseMode::None]]);
    // Neither is a number of another client its own.
    cluster.greet(0, 0);
    cluster.greet(0, 1);
    assert_eq!(cluster.nodes[0].engine.clients.sessions.slot_of_client(2), None);
    assert!(cluster.nodes[0].engine.clients.sessions.slot_of_client(1).is_some());
}
