//! The events of a decoupled journal and the calls that merge them, by hand.

use chiton_model::Event;
use chiton_types::{Ino, Kind, Mode, Position, Time};
use chiton_wire::{Claim, Failure, Granted, MergeBatch, Merged, RealmAnswer, RealmCall};

use crate::realms::Realms;
use crate::rig::{Asks, name};

pub(crate) fn make(parent: Ino, text: &str, ino: Ino, kind: Kind) -> Event {
    Event::Make {
        parent,
        name: name(text),
        ino,
        kind,
        mode: Mode(0o755),
        uid: 0,
        gid: 0,
        rdev: 0,
        time: Time(5),
        content: Vec::new(),
    }
}

pub(crate) fn removal(parent: Ino, text: &str, ino: Ino) -> Event {
    Event::Unlink { parent, name: name(text), ino, orphan: false, kind: Kind::File, time: Time(6) }
}

pub(crate) fn chmod(ino: Ino, mode: u16) -> Event {
    let mode = Some(Mode(mode));
    Event::SetAttr { ino, mode, uid: None, gid: None, size: None, atime: None, mtime: None, ctime: Time(7) }
}

pub(crate) fn number(granted: &Granted, n: u64) -> Ino {
    Ino(granted.ranges[0].0.0 + n)
}

pub(crate) fn batch(after: u64, upto: u64) -> MergeBatch {
    MergeBatch { after: Position(after), upto: Position(upto) }
}

pub(crate) fn call(claim: Claim, batch: MergeBatch, from: u64, events: &[Event], last: bool) -> RealmCall {
    let mut bytes = Vec::new();
    events.iter().for_each(|event| event.encode(&mut bytes));
    let count = events.len() as u32;
    RealmCall::Merge { claim, batch, from, count, events: bytes, last, blind: false }
}

pub(crate) fn answer(answer: Result<RealmAnswer, Failure>) -> Merged {
    match answer {
        Ok(RealmAnswer::Merged(merged)) => merged,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn merge(
    s: &impl Realms,
    claim: Claim,
    batch: MergeBatch,
    from: u64,
    events: &[Event],
    last: bool,
) -> Merged {
    answer(s.try_realm(call(claim, batch, from, events, last)))
}

/// One merge batch with all events.
pub(crate) fn merge_all(s: &impl Realms, claim: Claim, events: &[Event]) -> Merged {
    let state = s.realms().iter().find(|r| r.claim == claim).expect("there").state;
    let batch = MergeBatch { after: state.merged, upto: Position(state.merged.0 + events.len() as u64) };
    merge(s, claim, batch, 0, events, true)
}

/// A directory tree as names, with modes.
pub(crate) fn tree(s: &impl Asks, dir: Ino) -> Vec<(String, u16)> {
    let mut all = Vec::new();
    let mut todo = vec![(String::new(), dir)];
    while let Some((path, dir)) = todo.pop() {
        for (name, ino) in s.list(dir, false) {
            let attr = s.getattr(ino).expect("there").0;
            let path = format!("{path}/{name}");
            all.push((path.clone(), attr.mode.0));
            if attr.kind == Kind::Dir {
                todo.push((path, ino));
            }
        }
    }
    all.sort();
    all
}

/// The events of a job: directories, files, changes, removals.
pub(crate) fn job(granted: &Granted, root: Ino, dirs: u64, files: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let mut next = 0;
    for d in 0..dirs {
        let dir = number(granted, next);
        events.push(make(root, &format!("d{d}"), dir, Kind::Dir));
        next += 1;
        for f in 0..files {
            let ino = number(granted, next);
            events.push(make(dir, &format!("f{f}"), ino, Kind::File));
            events.push(chmod(ino, 0o640));
            if f % 3 == 2 {
                events.push(removal(dir, &format!("f{f}"), ino));
            }
            next += 1;
        }
    }
    events
}
