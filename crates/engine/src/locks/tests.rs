use chiton_types::Ino;
use chiton_wire::{Lock, LockKind};
use proptest::prelude::*;

use super::*;
use LockKind::{Read, Unlock, Write};

const INO: Ino = Ino(3);

fn owner(n: u64) -> Owner {
    Owner { slot: Slot(1 + (n % 2) as u32), owner: n }
}

fn posix(ino: Ino, start: u64, end: u64, kind: LockKind) -> Lock {
    Lock { ino, flock: false, owner: 0, start, end, kind, pid: 1 }
}

fn flock(kind: LockKind) -> Lock {
    Lock { flock: true, ..posix(INO, 0, u64::MAX, kind) }
}

/// Sets a lock; checks the verdict; returns who was woken.
fn set(locks: &mut Locks, who: u64, lock: Lock, ticket: Option<u64>, expect: Verdict) -> Vec<u64> {
    let mut granted = Vec::new();
    let verdict = locks.set(owner(who), &lock, ticket.map(Ticket), &mut granted);
    assert_eq!(verdict, expect, "owner {who}, {lock:?}");
    granted.into_iter().map(|t| t.0).collect()
}

#[test]
fn waiters_come_in_their_order() {
    let mut l = Locks::default();
    set(&mut l, 1, posix(INO, 0, 9, Write), None, Verdict::Granted);
    set(&mut l, 2, posix(INO, 5, 9, Write), Some(20), Verdict::Waits);
    set(&mut l, 3, posix(INO, 0, 9, Read), Some(30), Verdict::Waits);
    set(&mut l, 4, posix(INO, 0, 4, Read), Some(40), Verdict::Waits);
    set(&mut l, 5, posix(INO, 0, 4, Read), None, Verdict::Conflict);
    assert_eq!(set(&mut l, 1, posix(INO, 0, 9, Unlock), None, Verdict::Granted), [20, 40]);
    assert!(l.cancel(Ticket(30)) && !l.cancel(Ticket(30)));
    assert_eq!(set(&mut l, 2, posix(INO, 0, u64::MAX, Unlock), None, Verdict::Granted), [0u64; 0]);
    let mut granted = Vec::new();
    l.drop_slot(owner(4).slot, &mut granted);
    assert!(granted.is_empty() && l.len() == 0 && l.files.is_empty());
}

#[test]
fn circles_are_refused_across_files() {
    let mut l = Locks::default();
    let at = |ino| posix(Ino(ino), 0, 0, Write);
    for n in 1..=3 {
        set(&mut l, n, at(n), None, Verdict::Granted);
    }
    set(&mut l, 1, at(2), Some(1), Verdict::Waits);
    set(&mut l, 2, at(3), Some(2), Verdict::Waits);
    set(&mut l, 3, at(1), Some(3), Verdict::Deadlock);
    set(&mut l, 3, at(1), None, Verdict::Conflict);
    assert_eq!(set(&mut l, 3, posix(Ino(3), 0, 0, Unlock), None, Verdict::Granted), [2]);
    set(&mut l, 3, at(1), Some(3), Verdict::Waits);
}

#[test]
fn whole_file_locks_convert_without_deadlock() {
    let mut l = Locks::default();
    set(&mut l, 1, flock(Read), None, Verdict::Granted);
    set(&mut l, 2, flock(Read), None, Verdict::Granted);
    set(&mut l, 1, flock(Write), Some(1), Verdict::Waits);
    // The first gave up its lock when it began to wait.
    assert!(set(&mut l, 2, flock(Write), Some(2), Verdict::Granted).is_empty());
    assert_eq!(set(&mut l, 2, flock(Read), None, Verdict::Granted), [0u64; 0]);
    assert_eq!(set(&mut l, 2, flock(Unlock), None, Verdict::Granted), [1]);
    set(&mut l, 3, posix(INO, 0, 9, Write), None, Verdict::Granted);
    assert_eq!(l.get(owner(4), &flock(Read)).map(|lock| lock.owner), Some(1));
}

/// The naive model: the lock of each owner on each byte.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<(u64, u64), LockKind>,
}

impl Model {
    fn conflicts(&self, who: u64, start: u64, end: u64, kind: LockKind) -> bool {
        kind != Unlock
            && self.bytes.iter().any(|((other, byte), held)| {
                *other != who && (start..=end).contains(byte) && (*held == Write || kind == Write)
            })
    }

    fn set(&mut self, who: u64, start: u64, end: u64, kind: LockKind) {
        for byte in start..=end {
            self.bytes.remove(&(who, byte));
            if kind != Unlock {
                self.bytes.insert((who, byte), kind);
            }
        }
    }
}

proptest! {
    #[test]
    fn ranges_agree_with_bytes(
        steps in prop::collection::vec((0u64..4, 0u64..16, 0u64..16, 0u8..3), 1..120),
    ) {
        let (mut locks, mut model) = (Locks::default(), Model::default());
        for (who, a, b, kind) in steps {
            let kind = [Unlock, Read, Write][kind as usize];
            let lock = posix(INO, a.min(b), a.max(b), kind);
            let conflict = model.conflicts(who, lock.start, lock.end, kind);
            prop_assert_eq!(locks.get(owner(who), &lock).is_some(), conflict);
            let expect = if conflict { Verdict::Conflict } else { Verdict::Granted };
            prop_assert_eq!(locks.set(owner(who), &lock, None, &mut Vec::new()), expect);
            if !conflict {
                model.set(who, lock.start, lock.end, kind);
            }
            let mut bytes = BTreeMap::new();
            for held in locks.files.get(&INO).into_iter().flat_map(|file| file.posix.iter()) {
                for byte in held.start..=held.end {
                    let before = bytes.insert((held.owner.owner, byte), held.kind);
                    prop_assert_eq!(before, None, "an owner's ranges overlap");
                }
                let touches = locks.files[&INO].posix.iter().any(|other| {
                    other.owner == held.owner && other.kind == held.kind && other.start == held.end + 1
                });
                prop_assert!(!touches, "neighbours were not merged");
            }
            prop_assert_eq!(&bytes, &model.bytes);
        }
    }
}
