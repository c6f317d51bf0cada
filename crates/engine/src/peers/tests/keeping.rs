//! Leases of clients on directories between which they rename, and on files that they remove.

use chiton_model::{Make, Op, RenameHow};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, PlateId, Seq};
use chiton_wire::{Call, LeaseMode, Query, Request};

use super::cluster::{Cluster, session};
use super::load::Load;
use crate::moment::Health;

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

    fn make_file(&mut self, parent: Ino, text: &str) -> Ino {
        let make = Make::File { content: Vec::new() };
        let sent = self.send(0, Op::Make { parent, name: name(text), make, mode: Mode(0o644) });
        self.run(0, 0);
        self.clients[0].sent[sent].answer.expect("answered").expect("made").ino
    }

    /// A file of the other plate with a name in the root, which the first plate has.
    fn make_file_elsewhere(&mut self, dir: Ino, text: &str) -> Ino {
        let ino = self.make_file(dir, text);
        let (from_name, to_name, how) = (name(text), name(text), RenameHow::Replace);
        self.send(0, Op::Rename { from: dir, from_name, to: Ino::ROOT, to_name, how });
        self.run(0, 0);
        assert_eq!(self.plates.of(ino), Some(PlateId(1)));
        ino
    }

    fn unlink(&mut self, client: usize, text: &str) -> usize {
        self.send(client, Op::Unlink { parent: Ino::ROOT, name: name(text) })
    }

    /// How many recalls the other plate has sent while a client removed a file of it.
    fn recalls_of_unlink(&mut self, client: usize, text: &str) -> usize {
        let before = self.recalls[1];
        let sent = self.unlink(client, text);
        self.run(0, 0);
        assert!(matches!(self.clients[client].sent[sent].answer, Some(Ok(_))), "removed");
        self.recalls[1] - before
    }

    /// Both clients look at both directories, and one renames from plate to plate. Checks the leases of each afterwards.
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
    let (_, dir) = cluster.make_dir_elsewhere();
    cluster.make_file(Ino::ROOT, "f");
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

#[test]
fn an_unlink_takes_the_leases_on_the_file_from_all_but_its_client() {
    let mut cluster = Cluster::new(1, 2, 2, Load::Mixed);
    cluster.clients.iter_mut().for_each(|client| client.ops_left = 0);
    let (_, dir) = cluster.make_dir_elsewhere();
    (0..2).for_each(|client| cluster.greet(client, client as u64 + 1));
    // The clients that look at the file; the first one removes it.
    for (n, (looking, recalls)) in [(&[0][..], 0), (&[1], 1), (&[0, 1], 1)].into_iter().enumerate() {
        let file = cluster.make_file_elsewhere(dir, &format!("f{n}"));
        looking.iter().for_each(|client| cluster.look(*client, 1, file));
        assert_eq!(cluster.recalls_of_unlink(0, &format!("f{n}")), recalls, "{looking:?} looked");
    }
    // Of a file that stays, as it has another name or is open, the client learns anew what changes.
    let file = cluster.make_file_elsewhere(dir, "linked");
    cluster.send(0, Op::Link { ino: file, parent: dir, name: name("other") });
    cluster.run(0, 0);
    cluster.look(0, 1, file);
    assert_eq!(cluster.recalls_of_unlink(0, "linked"), 1);
    let file = cluster.make_file_elsewhere(dir, "open");
    cluster.look(0, 1, file);
    let slot = cluster.nodes[1].engine.clients.sessions.get(session(1, 1)).expect("a session").slot;
    cluster.nodes[1].engine.clients.opens.add(file, slot);
    assert_eq!(cluster.recalls_of_unlink(0, "open"), 1);
}

/// While an unlink waits for the plate of the file, others change its directory.
#[test]
fn an_unlink_that_waits_for_another_plate_holds_up_no_other_operation() {
    let mut cluster = Cluster::new(1, 2, 2, Load::Mixed);
    cluster.clients.iter_mut().for_each(|client| client.ops_left = 0);
    let (_, dir) = cluster.make_dir_elsewhere();
    for n in 0..2 {
        cluster.make_file_elsewhere(dir, &format!("f{n}"));
    }
    // The other plate cannot write a guard.
    cluster.nodes[1].m.health = Health::Full;
    let unlinks = [0, 1].map(|client| cluster.unlink(client, &format!("f{client}")));
    while cluster.step() {}
    let make = Make::File { content: Vec::new() };
    let made = cluster.send(1, Op::Make { parent: Ino::ROOT, name: name("new"), make, mode: Mode(0o644) });
    while cluster.step() {}
    assert!(matches!(cluster.clients[1].sent[made].answer, Some(Ok(_))), "made");
    for (client, sent) in unlinks.into_iter().enumerate() {
        assert_eq!(cluster.clients[client].sent[sent].answer, None);
    }
    cluster.nodes[1].m.health = Health::Good;
    cluster.nodes[1].engine.room_changed();
    cluster.take(1);
    cluster.run(0, 0);
    for (client, sent) in unlinks.into_iter().enumerate() {
        assert!(matches!(cluster.clients[client].sent[sent].answer, Some(Ok(_))), "removed");
    }
    cluster.check();
}
