//! Several engines, their journals, the messages between them, and clients that send again what a crash took: random schedules from
//! seeds, with crashes of plates at any moment.
//!
//! When all has come to rest: each operation that was answered with success stands in one journal, once; those that were refused in
//! none; the tree fits over plates; nothing is guarded, owed or under way.

mod checks;
mod cluster;
mod keeping;
mod load;
mod placing;
mod plate;
mod policies;
mod trees;

use chiton_model::{Make, Op, RenameHow, XattrHow};
use chiton_namespace::Fault;
use chiton_types::{Cred, Epoch, Ino, Mode, Name, PlateId, Plates, Position, Seq, SessionId};
use chiton_wire::{Again, Call, OpKey, PeerMessage, Request};

use cluster::{Client, Cluster, Sent, session};
use load::Load;

use super::Peers;
use crate::moment::Health;
use crate::parts::Queue;
use crate::step::{Command, Step};
use crate::wait_queue::Task;

fn check(seeds: std::ops::Range<u64>, plates: u16, clients: usize, faults: (usize, usize)) {
    check_load(Load::Mixed, seeds, plates, clients, faults);
}

fn check_load(
    load: Load,
    seeds: std::ops::Range<u64>,
    plates: u16,
    clients: usize,
    (crashes, cuts): (usize, usize),
) {
    let (mut runs, mut folds) = (0, 0);
    for seed in seeds {
        let mut cluster = Cluster::new(seed, plates, clients, load);
        cluster.run(crashes, cuts);
        cluster.check();
        (runs, folds) = (runs + 1, folds + cluster.steps_of_folds());
    }
    assert!(load != Load::Folds || folds > runs / 4, "{folds} steps of folds in {runs} runs");
}

/// S117.
#[test]
fn operations_over_two_plates_are_whole() {
    check(0..300, 2, 1, (0, 0));
    check(300..600, 2, 3, (0, 0));
}

/// S117.
#[test]
fn operations_over_plates_are_whole_through_crashes() {
    check(1_000..2_000, 2, 1, (3, 0));
    check(80_000..84_000, 2, 3, (4, 0));
    check(200_000..202_000, 4, 3, (5, 0));
}

/// S117. The plates of several servers lose their connections without dying.
#[test]
fn operations_over_plates_are_whole_through_broken_connections() {
    check(300_000..302_000, 2, 3, (0, 6));
    check(400_000..402_000, 3, 3, (3, 6));
}

/// `/p/a/a2` and `/q/b/b2` on random plates: `a` moves into `b2` and `b` into `a2` at the same time. The two moves have no row in
/// common, so nothing but the token keeps them apart. One of them is refused.
fn check_race(seeds: std::ops::Range<u64>, plates: u16, (crashes, cuts): (usize, usize)) {
    for seed in seeds {
        let mut cluster = Cluster::new(seed, plates, 2, Load::Moves);
        cluster.clients.iter_mut().for_each(|client| client.ops_left = 0);
        let mut made: Vec<(Ino, Name)> = Vec::new();
        for above in [None, None, Some(0), Some(1), Some(2), Some(3)] {
            let parent = above.map_or(Ino::ROOT, |above: usize| made[above].0);
            let name = Name::new(format!("{}", cluster.random.below(1_000_000)).as_bytes()).expect("a name");
            let op = Op::Make { parent, name: name.clone(), make: Make::Dir, mode: Mode(0o755) };
            let at = cluster.send(0, op);
            cluster.run(0, 0);
            let Some(Ok(again)) = cluster.clients[0].sent[at].answer else { panic!("seed {seed}: refused") };
            made.push((again.ino, name));
        }
        (0..usize::from(plates)).for_each(|at| cluster.commit_all(at));
        let (from, to) = ([made[0].0, made[1].0], [made[5].0, made[4].0]);
        let moves = [2, 3].into_iter().zip(from).zip(to).map(|((moved, from), to)| {
            let name: &Name = &made[moved].1;
            let how = RenameHow::Replace;
            Op::Rename { from, from_name: name.clone(), to, to_name: name.clone(), how }
        });
        for (client, op) in moves.enumerate() {
            cluster.send(client, op);
        }
        cluster.fault_every = 12;
        cluster.run(crashes, cuts);
        cluster.check();
        let last = |client: &Client| client.sent.last().expect("sent").answer.expect("answered").is_ok();
        let moved = cluster.clients.iter().filter(|client| last(client)).count();
        assert_eq!(moved, 1, "seed {seed}: one of the moves is refused");
    }
}

/// S118. Directories move between directories of all plates, at once: no loop, and each has one place.
#[test]
fn directories_that_move_at_once_make_no_loop() {
    check_load(Load::Moves, 500_000..501_000, 2, 3, (0, 0));
    check_load(Load::Moves, 600_000..601_500, 3, 4, (3, 3));
    check_race(700_000..702_000, 2, (2, 0));
    check_race(800_000..804_000, 3, (2, 1));
}

/// S144. Directories have parts on all plates: they are born, changed and removed as wholes.
#[test]
fn directories_with_parts_are_whole_through_crashes() {
    check_load(Load::Parts, 2_000_000..2_000_600, 2, 2, (0, 0));
    check_load(Load::Parts, 2_010_000..2_012_000, 2, 3, (3, 0));
    check_load(Load::Parts, 2_020_000..2_021_500, 3, 3, (3, 3));
}

/// S144. Directories are split while clients use them, and change their permissions: each name is in one part.
#[test]
fn directories_are_split_whole_through_crashes() {
    check_load(Load::Splits, 3_000_000..3_000_600, 2, 2, (0, 0));
    check_load(Load::Splits, 3_010_000..3_012_000, 2, 3, (3, 0));
    check_load(Load::Splits, 3_020_000..3_021_500, 3, 3, (3, 3));
}

/// S144. Directories get parts and lose them, again and again, while clients use them: each name is at one place.
#[test]
fn directories_are_folded_whole_through_crashes() {
    check_load(Load::Folds, 4_000_000..4_000_600, 2, 2, (0, 0));
    check_load(Load::Folds, 4_010_000..4_012_000, 2, 3, (3, 0));
    check_load(Load::Folds, 4_020_000..4_021_500, 3, 3, (3, 3));
}

/// S128. Policies are set while directories move: all plates agree on them, and on the realm of every directory.
#[test]
fn policies_hold_on_all_plates_while_directories_move() {
    check_load(Load::Policies, 900_000..901_000, 2, 2, (0, 0));
    check_load(Load::Policies, 910_000..912_000, 3, 3, (3, 3));
    check_load(Load::Policies, 1_910_600..1_911_000, 3, 3, (3, 3));
}

/// The effect brings the access lists with the inode.
#[test]
fn a_directory_born_elsewhere_inherits_the_default_list() {
    let mut cluster = Cluster::new(1, 2, 1, Load::Mixed);
    let mut list = 2u32.to_le_bytes().to_vec();
    // Owner, user 1000, group, mask, others.
    for (tag, permissions, id) in
        [(1u16, 7u16, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let set = Op::SetXattr {
        ino: Ino::ROOT,
        how: XattrHow::Set,
        name: b"system.posix_acl_default".to_vec(),
        value: list.clone(),
    };
    let name = |n: u8| Name::new(&[b'a' + n]).expect("a name");
    let make = |n| Op::Make { parent: Ino::ROOT, name: name(n), make: Make::Dir, mode: Mode(0o755) };
    for (at, op) in [set].into_iter().chain((0..8).map(make)).enumerate() {
        let sent = &mut cluster.clients[0].sent;
        sent.push(Sent {
            plate: 0,
            seq: Seq(at as u64 + 1),
            op,
            answer: None,
            first: None,
            is_settled: false,
        });
        cluster.ask(0, at, None);
        cluster.clients[0].ops_left = 0;
        cluster.run(0, 0);
    }
    cluster.check();
    let elsewhere: Vec<Ino> =
        cluster.dirs.iter().copied().filter(|ino| cluster.plates.of(*ino) == Some(PlateId(1))).collect();
    assert!(!elsewhere.is_empty(), "some of eight names are born on the other plate");
    for ino in elsewhere {
        let node = &mut cluster.nodes[1];
        let stored = loop {
            match node.engine.namespace().xattr(&Cred::ROOT, ino, b"system.posix_acl_default") {
                Err(Fault::Missing(needs)) => node.supply(&needs),
                stored => break stored,
            }
        };
        assert_eq!(stored, Ok(list.clone()), "{ino}");
    }
}

/// The answer to a mkdir is lost with its connection: sent again, it is answered with the same directory and its time, wherever that is,
/// also after the deciding plate has started again from its journal or from a checkpoint.
#[test]
fn a_repeated_mkdir_is_answered_with_its_directory() {
    for restart in [Restart::None, Restart::FromJournal, Restart::FromCheckpoint] {
        repeat_mkdirs(restart);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Restart {
    None,
    FromJournal,
    FromCheckpoint,
}

fn repeat_mkdirs(restart: Restart) {
    let mut cluster = Cluster::new(1, 2, 1, Load::Mixed);
    cluster.clients[0].ops_left = 0;
    for n in 0..8 {
        let name = Name::new(&[b'a' + n]).expect("a name");
        let op = Op::Make { parent: Ino::ROOT, name, make: Make::Dir, mode: Mode(0o750) };
        let seq = Seq(u64::from(n) + 1);
        let sent = Sent { plate: 0, seq, op, answer: None, first: None, is_settled: false };
        cluster.clients[0].sent.push(sent);
        cluster.ask(0, usize::from(n), None);
        cluster.run(0, 0);
        // The answer must be the first again: the harness compares the numbers and times.
        cluster.ask(0, usize::from(n), Some(Again::default()));
        if restart == Restart::FromCheckpoint {
            cluster.checkpoint(0);
        }
        if restart != Restart::None {
            cluster.clients[0].sent[usize::from(n)].is_settled = false;
            cluster.crash(0);
            cluster.run(0, 0);
        }
    }
    let is_elsewhere = |ino: &Ino| cluster.plates.of(*ino) == Some(PlateId(1));
    assert!(cluster.dirs.iter().any(is_elsewhere), "some of eight names are born on the other plate");
    cluster.check();
}

/// The directory was removed since, and its parent with it.
#[test]
fn a_repeated_mkdir_whose_parent_is_gone_is_not_refused() {
    let mut cluster = Cluster::new(1, 2, 1, Load::Mixed);
    cluster.clients[0].ops_left = 0;
    let name = |n: u8| Name::new(&[b'a' + n]).expect("a name");
    let mode = Mode(0o750);
    let mut is_seen = false;
    for n in 0..8 {
        let run = |cluster: &mut Cluster, op: Op| {
            let at = cluster.send(0, op);
            cluster.run(0, 0);
            at
        };
        let made = cluster.dirs.len();
        run(&mut cluster, Op::Make { parent: Ino::ROOT, name: name(n), make: Make::Dir, mode });
        let parent = cluster.dirs[made];
        let at = run(&mut cluster, Op::Make { parent, name: name(0), make: Make::Dir, mode });
        let child = cluster.dirs[made + 1];
        run(&mut cluster, Op::Rmdir { parent, name: name(0) });
        run(&mut cluster, Op::Rmdir { parent: Ino::ROOT, name: name(n) });
        // The harness refuses a refusal. It has no number to compare: nothing is known of a removed inode.
        cluster.clients[0].sent[at].answer = Some(Ok(Again::default()));
        cluster.ask(0, at, Some(Again::default()));
        cluster.run(0, 0);
        is_seen |= cluster.plates.of(parent) != cluster.plates.of(child);
    }
    assert!(is_seen, "some directory is born on another plate than its parent");
}

/// A plate whose disk is full cannot write a guard. The request waits until it can, and is not dropped.
#[test]
fn a_guard_waits_while_the_disk_is_full() {
    let mut cluster = Cluster::new(1, 2, 1, Load::Mixed);
    cluster.clients[0].ops_left = 0;
    let name = |n: u8| Name::new(&[b'a' + n]).expect("a name");
    for health in [Health::Full, Health::Failed] {
        let elsewhere = (0..8).find(|n| {
            let made = cluster.dirs.len();
            let make = Op::Make { parent: Ino::ROOT, name: name(*n), make: Make::Dir, mode: Mode(0o755) };
            cluster.send(0, make);
            cluster.run(0, 0);
            cluster.dirs.get(made).is_some_and(|ino| cluster.plates.of(*ino) == Some(PlateId(1)))
        });
        let name = name(elsewhere.expect("some of eight names are born on the other plate"));
        cluster.nodes[1].m.health = health;
        let rmdir = cluster.send(0, Op::Rmdir { parent: Ino::ROOT, name });
        while cluster.step() {}
        assert_eq!(cluster.clients[0].sent[rmdir].answer, None, "{health:?}");
        cluster.nodes[1].m.health = Health::Good;
        cluster.nodes[1].engine.room_changed();
        cluster.take(1);
        cluster.run(0, 0);
        assert!(matches!(cluster.clients[0].sent[rmdir].answer, Some(Ok(_))), "{health:?}");
    }
    cluster.check();
}

/// A plate that began operations before it knows its start would give them the keys of earlier ones.
#[test]
fn a_plate_that_is_greeted_before_it_has_greeted_says_nothing() {
    let mut cluster = Cluster::new(1, 2, 1, Load::Mixed);
    cluster.clients[0].ops_left = 0;
    cluster.run(0, 0);
    let durable = cluster.crash_ungreeted(1);
    cluster.nodes[0].engine.greet_peer(PlateId(1));
    cluster.take(0);
    while cluster.step() {}
    let peers = cluster.nodes[1].engine.peers.as_ref().expect("several plates");
    assert!(peers.opened_at.is_none() && peers.others[&PlateId(0)].boot == 0);
    cluster.greet_from(1, durable);
    cluster.run(0, 0);
    cluster.check();
}

/// The second of two requests for one guard would take it again when the operation has ended, and nobody would return it.
#[test]
fn plates_that_greet_each_other_at_once_ask_once_for_each_guard() {
    let mut cluster = Cluster::new(1, 2, 1, Load::Mixed);
    cluster.clients[0].ops_left = 0;
    let (name, _) = cluster.make_dir_elsewhere();
    cluster.nodes[1].m.health = Health::Full;
    let rmdir = cluster.send(0, Op::Rmdir { parent: Ino::ROOT, name });
    while cluster.step() {}
    for one_is_lost in [false, true] {
        cluster.links.clear();
        for (at, other) in [(0, PlateId(1)), (1, PlateId(0))] {
            cluster.nodes[at].engine.greet_peer(other);
            cluster.take(at);
        }
        if one_is_lost {
            // One greeting is lost.
            cluster.links.remove(&(0, 1));
        }
        while cluster.step() {}
        let engine = &cluster.nodes[1].engine;
        let is_guard = |task: &Task| matches!(task.asked_by_peer(), Some((_, PeerMessage::Guard { .. })));
        assert_eq!(engine.queue.waiting.select(|task, _| is_guard(task)).len(), 1, "{one_is_lost}");
    }
    cluster.nodes[1].m.health = Health::Good;
    cluster.nodes[1].engine.room_changed();
    cluster.take(1);
    cluster.run(0, 0);
    assert!(matches!(cluster.clients[0].sent[rmdir].answer, Some(Ok(_))));
    cluster.check();
}

/// A position that is durable already would hide a higher one, for which a commit is wanted.
#[test]
fn a_move_that_is_durable_asks_for_no_commit() {
    let plates = Plates::new(4, 2).expect("two plates");
    let mut peers = Peers::new(PlateId(0), plates).expect("several plates");
    peers.moves.insert(OpKey { session: SessionId(1), seq: Seq(1) }, Position(5));
    assert_eq!(peers.durable_wanted(), Some(Position(5)));
    peers.send_durable(Position(5), &mut Queue::default());
    assert_eq!(peers.durable_wanted(), None);
}

/// The guard that a request has waited for is there, and its session ends before the request continues. Its operation has no number,
/// so it is not sent again.
#[test]
fn a_session_that_ends_leaves_no_guards() {
    let mut cluster = Cluster::new(1, 2, 1, Load::Mixed);
    cluster.clients[0].ops_left = 0;
    let (name, _) = cluster.make_dir_elsewhere();
    let op = Op::Rmdir { parent: Ino::ROOT, name };
    let call = Call::Op { op, open: false };
    let (seq, cred) = (Seq(0), Cred::ROOT);
    let request = Request { id: 9, seq, settled: seq, epoch: Epoch(1), again: None, cred, call };
    let node = &mut cluster.nodes[0];
    let mut step = node.engine.request(session(0, 0), request, &node.m);
    while let Step::NeedRows(task, needs) = step {
        node.supply(&needs);
        step = node.engine.retry(task, &node.m);
    }
    assert!(matches!(step, Step::Waiting(_)), "{step:?}");
    let mut is_granted = false;
    for _ in 0..20 {
        for command in cluster.nodes[0].settle() {
            if let Command::Peer(_, message) = command {
                let node = &mut cluster.nodes[1];
                node.engine.peer(PlateId(0), message, &node.m);
            } else if let Command::Recall(holder, recall) = command {
                let node = &mut cluster.nodes[0];
                node.engine.recall_done(holder, recall.id, &node.m);
            }
        }
        cluster.commit_all(1);
        let messages = cluster.links.remove(&(1, 0)).unwrap_or_default();
        for message in messages {
            let ends = !is_granted && matches!(message, PeerMessage::Granted { .. });
            let node = &mut cluster.nodes[0];
            node.engine.peer(PlateId(1), message, &node.m);
            if ends {
                is_granted = true;
                node.engine.end_session(session(0, 0), &node.m);
            }
        }
    }
    assert!(is_granted, "the other plate granted a guard");
    for node in &cluster.nodes {
        let peers = node.engine.peers.as_ref().expect("several plates");
        assert!(peers.crossings.is_empty() && peers.guards.is_empty(), "plate {}", node.plate);
    }
}
