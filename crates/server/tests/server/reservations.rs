//! Inode numbers that decouplings are promised: shown, kept, and refused when there are none.

use chiton_engine::mark_key;
use chiton_journal::PlaceError;
use chiton_metastore::Batch;
use chiton_types::{Ino, Position, Refusal, ShardId};
use chiton_wire::{Call, Failure, RealmAnswer, RealmCall};

use crate::realms::Realms;
use crate::rig::{Asks, Rig, eventually, figure, quiet, refused, session};

const RESERVED: &str = "/inode_numbers/reserved_by_decouplings";
const JOB: &str = "consistency: weak\ndurability: local\n";

fn no_space<T: std::fmt::Debug>(result: Result<T, Failure>) {
    assert_eq!(result.expect_err("refused"), Failure::Refused(Refusal::NoSpace));
}

#[test]
fn what_decouplings_are_promised_is_shown_until_they_end() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (a, b) = (s.mkdir(Ino::ROOT, "a"), s.mkdir(Ino::ROOT, "b"));
    assert_eq!(figure(&server, RESERVED), 0);
    let first = s.decouple(a, 1, &format!("{JOB}allocated_inodes: 500\n"));
    assert_eq!(figure(&server, RESERVED), 500);
    let second = s.decouple(b, 2, JOB);
    assert_eq!(figure(&server, RESERVED), 600, "100 if nothing is said");
    let more = RealmCall::Grant { claim: second.claim, shard: ShardId(1), count: 1_000 };
    assert!(matches!(s.try_realm(more), Ok(RealmAnswer::Ranges(_))));
    assert_eq!(figure(&server, RESERVED), 1_600);
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    assert_eq!(figure(&server, RESERVED), 1_600, "they are kept for them");
    let s = session(&server);
    s.end(first.claim, true).expect("over");
    assert_eq!(figure(&server, RESERVED), 1_100);
    s.end(second.claim, true).expect("over");
    assert_eq!((figure(&server, RESERVED), figure(&server, "/decouplings")), (0, 0));
}

#[test]
fn without_space_nothing_is_promised() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (a, b) = (s.mkdir(Ino::ROOT, "a"), s.mkdir(Ino::ROOT, "b"));
    let granted = s.decouple(a, 1, JOB);
    rig.place.set_trouble(Some(PlaceError::NoSpace("full".into())));
    s.create(Ino::ROOT, "answered, not durable");
    assert_eq!(refused(s.try_call(Call::Commit { upto: Position(0) })), Refusal::NoSpace);
    no_space(s.try_decouple(b, 2, JOB));
    no_space(s.try_realm(RealmCall::Grant { claim: granted.claim, shard: ShardId(0), count: 100 }));
    assert_eq!((figure(&server, RESERVED), figure(&server, "/decouplings")), (100, 1));
    rig.place.set_trouble(None);
    eventually("it is granted when there is space again", || s.try_decouple(b, 2, JOB).is_ok());
    assert_eq!(figure(&server, RESERVED), 200);
}

/// There are 2^48 numbers in a shard. A client that asks for numbers in several shards gets them in all or in none.
#[test]
fn more_numbers_than_there_are_are_refused_and_none_of_them_is_taken() {
    let rig = Rig::new();
    let (key, nearly_all) = (mark_key(ShardId(3)), (1u64 << 48) - (8 << 20));
    let mark = nearly_all.to_le_bytes();
    let meta = (rig.stores().open_meta)().expect("opened");
    meta.commit(&Batch::from_iter([(&key[..], Some(&mark[..]))])).expect("stored");
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "job");
    let before = s.create(Ino::ROOT, "before");
    for nonce in 0..50 {
        no_space(s.try_decouple(dir, nonce, &format!("{JOB}allocated_inodes: {}\n", 1u64 << 40)));
    }
    assert_eq!((figure(&server, RESERVED), figure(&server, "/decouplings")), (0, 0));
    let after = s.create(Ino::ROOT, "after");
    assert!(after.0 - before.0 < 1 << 20, "{before} and {after}: numbers are passed over");
    // A smaller request is granted.
    let granted = s.decouple(dir, 99, &format!("{JOB}allocated_inodes: 20000\n"));
    assert_eq!((granted.ranges.len(), figure(&server, RESERVED)), (4, 20_000));
    no_space(s.try_realm(RealmCall::Grant { claim: granted.claim, shard: ShardId(3), count: 1 << 30 }));
    assert_eq!(figure(&server, RESERVED), 20_000);
}
