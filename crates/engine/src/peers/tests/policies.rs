//! Policies of several plates: the names that clients hold when one changes, files with names on both sides of its border, and orphans
//! whose policy another plate knows.

use chiton_model::{Make, Op, RenameHow, XattrHow};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, PlateId, Seq};
use chiton_wire::{Answer, Call, PeerMessage, Request};

use super::check_load;
use super::cluster::{Cluster, session};
use super::load::Load;
use crate::step::{Command, Progress, Step};

fn name(text: &str) -> Name {
    Name::try_from(text).expect("a name")
}

/// Carries out an operation of the first client. Returns its place.
fn run(cluster: &mut Cluster, op: Op) -> usize {
    let at = cluster.send(0, op);
    cluster.run(0, 0);
    assert!(
        matches!(cluster.clients[0].sent[at].answer, Some(Ok(_))),
        "{:?}",
        cluster.clients[0].sent[at].answer
    );
    at
}

fn make(cluster: &mut Cluster, parent: Ino, text: &str, make: Make) -> Ino {
    let at = run(cluster, Op::Make { parent, name: name(text), make, mode: Mode(0o755) });
    cluster.clients[0].sent[at].first.expect("it is answered").ino
}

/// A directory of the root that a plate owns.
fn dir_on(cluster: &mut Cluster, plate: PlateId) -> Ino {
    let plates = cluster.plates;
    (0..100)
        .map(|n| make(cluster, Ino::ROOT, &format!("{}-{n}", plate.0), Make::Dir))
        .find(|ino| plates.of(*ino) == Some(plate))
        .expect("one of many names is born there")
}

fn set_policy(ino: Ino, text: &str) -> Op {
    let (name, value) = (b"chiton.policy".to_vec(), text.as_bytes().to_vec());
    Op::SetXattr { ino, how: XattrHow::Set, name, value }
}

fn idle(plates: u16, clients: usize) -> Cluster {
    let mut cluster = Cluster::new(1, plates, clients, Load::Mixed);
    cluster.clients.iter_mut().for_each(|client| client.ops_left = 0);
    cluster
}

/// The first client gets the names in a directory exclusively.
fn hold_names(cluster: &mut Cluster, at: usize, dir: Ino) {
    let call = Call::LeaseNames { dir, numbers: 8 };
    let (seq, cred) = (Seq(0), Cred::ROOT);
    let request = Request { id: 9, seq, settled: seq, epoch: Epoch(1), again: None, cred, call };
    for _ in 0..10 {
        let node = &mut cluster.nodes[at];
        let mut step = node.engine.request(session(0, at), request.clone(), &node.m);
        while let Step::NeedRows(task, needs) = step {
            node.supply(&needs);
            step = node.engine.retry(task, &node.m);
        }
        let Step::Done(reply) = step else {
            cluster.take(at);
            cluster.run(0, 0);
            continue;
        };
        assert!(matches!(reply.result, Ok(Answer::Names { leased: true, .. })), "{:?}", reply.result);
        cluster.take(at);
        return;
    }
    panic!("the names are not leased");
}

/// The recalls that a plate commands: its messages are delivered, the recalls are not.
fn recalls_of(cluster: &mut Cluster, at: usize) -> Vec<u64> {
    let mut recalls = Vec::new();
    for command in cluster.nodes[at].settle() {
        match command {
            Command::Recall(holder, recall) => {
                assert_eq!(holder, session(0, at));
                recalls.push(recall.id);
            }
            Command::Peer(to, message) => {
                cluster.links.entry((at, usize::from(to.0))).or_default().push_back(message);
            }
            Command::Reply(..) | Command::DropSession(..) | Command::Log(_) | Command::Denied(_) => {
                panic!("{command:?}")
            }
        }
    }
    recalls
}

/// The plate 1 commits, and the plate 0 takes what it sends.
fn deliver_back(cluster: &mut Cluster) {
    cluster.commit_all(1);
    for message in cluster.links.remove(&(1, 0)).unwrap_or_default() {
        let node = &mut cluster.nodes[0];
        node.engine.peer(PlateId(1), message, &node.m);
        cluster.take(0);
    }
}

/// Until the plate 1 receives [`PeerMessage::RecallNames`]; its other messages and commits continue.
fn until_names_are_recalled(cluster: &mut Cluster) -> Vec<u64> {
    for _ in 0..50 {
        cluster.commit_all(0);
        for message in cluster.links.remove(&(0, 1)).unwrap_or_default() {
            let recalls = matches!(message, PeerMessage::RecallNames { .. });
            let node = &mut cluster.nodes[1];
            node.engine.peer(PlateId(0), message, &node.m);
            if recalls {
                return recalls_of(cluster, 1);
            }
            cluster.take(1);
        }
        deliver_back(cluster);
    }
    panic!("no names are recalled");
}

/// S128. A client that acknowledges creates on another plate does so under the policies before, so the change is answered when it has
/// given its names back. The answer of that plate may be lost with a connection.
#[test]
fn a_change_of_a_policy_waits_for_names_that_are_held_at_another_plate() {
    for is_cut in [false, true] {
        let mut cluster = idle(2, 2);
        let dir = dir_on(&mut cluster, PlateId(1));
        hold_names(&mut cluster, 1, dir);
        let set = cluster.send(1, set_policy(Ino::ROOT, "data: lazy"));
        let recalls = until_names_are_recalled(&mut cluster);
        assert!(!recalls.is_empty(), "the client is asked for its names");
        cluster.run(0, 0);
        assert_eq!(cluster.clients[1].sent[set].answer, None, "the client holds its names");
        let node = &mut cluster.nodes[1];
        for id in recalls {
            node.engine.recall_done(session(0, 1), id, &node.m);
        }
        cluster.take(1);
        if is_cut {
            let sent = cluster.links.remove(&(1, 0)).unwrap_or_default();
            assert!(
                sent.iter().any(|message| matches!(message, PeerMessage::NamesRecalled { .. })),
                "{sent:?}"
            );
            cluster.links.clear();
            for (at, other) in [(0, PlateId(1)), (1, PlateId(0))] {
                cluster.nodes[at].engine.greet_peer(other);
                cluster.take(at);
            }
        }
        cluster.run(0, 0);
        assert!(matches!(cluster.clients[1].sent[set].answer, Some(Ok(_))), "the names are given back");
        cluster.check();
    }
}

/// S128. Files keep their names on both sides of a border that a policy draws, and each side can be changed and removed.
#[test]
fn files_keep_their_names_across_a_new_border() {
    check_load(Load::LinkedPolicies, 920_000..920_400, 2, 2, (0, 0));
    check_load(Load::LinkedPolicies, 930_000..930_800, 3, 3, (3, 3));
}

/// The policy of an orphan is that of its last directory, which may be on another plate. After a restart its own plate must ask for it.
#[test]
fn an_orphan_is_freed_by_the_policy_that_another_plate_knows() {
    let mut cluster = idle(2, 1);
    let (near, far) = (dir_on(&mut cluster, PlateId(0)), dir_on(&mut cluster, PlateId(1)));
    run(&mut cluster, set_policy(near, "data: lazy"));
    let file = || Make::File { content: Vec::new() };
    let orphan = make(&mut cluster, Ino::ROOT, "f", file());
    make(&mut cluster, far, "g", file());
    let rename = |from, from_name: &str, to, to_name: &str| {
        let (from_name, to_name) = (name(from_name), name(to_name));
        Op::Rename { from, from_name, to, to_name, how: RenameHow::Replace }
    };
    run(&mut cluster, rename(Ino::ROOT, "f", far, "f"));
    run(&mut cluster, rename(far, "g", far, "f"));
    assert_eq!(cluster.nodes[0].engine.namespace().orphans(), [orphan], "what was replaced stays a while");
    cluster.checkpoint(0);
    cluster.crash(0);
    cluster.run(0, 0);
    for _ in 0..20 {
        let node = &mut cluster.nodes[0];
        while let progress @ (Progress::More | Progress::NeedRows(_)) = node.engine.run_background(&node.m) {
            if let Progress::NeedRows(needs) = progress {
                node.supply(&needs);
            }
        }
        cluster.take(0);
        cluster.run(0, 0);
    }
    assert_eq!(cluster.nodes[0].engine.namespace().orphans(), []);
    cluster.check();
}

/// The plate 0 decides directories in `dir`. Before the birth of one of them arrives at the plate 1, that plate is asked for its realm.
fn ask_before_the_birth(cluster: &mut Cluster, dir: Ino) -> Ino {
    let version = cluster.nodes[0].engine.namespace().policy_version();
    for n in 0..100 {
        let name = name(&format!("d{n}"));
        cluster.send(0, Op::Make { parent: dir, name: name.clone(), make: Make::Dir, mode: Mode(0o755) });
        let mut asked = None;
        for _ in 0..20 {
            cluster.commit_all(0);
            for message in cluster.links.remove(&(0, 1)).unwrap_or_default() {
                if matches!(message, PeerMessage::Effect { .. }) {
                    let entries = cluster.nodes[0].entries(dir);
                    let (_, ino, _) = *entries.iter().find(|entry| entry.0 == name).expect("it is decided");
                    assert_eq!(cluster.plates.of(ino), Some(PlateId(1)));
                    let node = &mut cluster.nodes[1];
                    node.engine.peer(PlateId(0), PeerMessage::AskRealm { ino, version }, &node.m);
                    cluster.take(1);
                    asked = Some(ino);
                }
                let node = &mut cluster.nodes[1];
                node.engine.peer(PlateId(0), message, &node.m);
                cluster.take(1);
            }
            deliver_back(cluster);
        }
        cluster.run(0, 0);
        if let Some(ino) = asked {
            return ino;
        }
    }
    panic!("one of many names is born there");
}

/// A plate remembers the answer about a realm until the next change of a policy, so it is not given before the directory is born: a
/// rename or link within one realm does not become EXDEV.
#[test]
fn a_directory_that_is_asked_about_before_its_birth_has_its_realm() {
    let mut cluster = idle(2, 1);
    let dir = dir_on(&mut cluster, PlateId(0));
    run(&mut cluster, set_policy(dir, "data: lazy"));
    let born = ask_before_the_birth(&mut cluster, dir);
    make(&mut cluster, dir, "f", Make::File { content: Vec::new() });
    let how = RenameHow::Replace;
    run(&mut cluster, Op::Rename { from: dir, from_name: name("f"), to: born, to_name: name("f"), how });
    cluster.check();
}
