//! Calls over two plates of which each notes what it is asked.

mod parted;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chiton_model::{AttrChange, Make, Op, Outcome, RenameHow, XattrHow};
use chiton_runtime::sync::Mutex;
use chiton_types::{
    Attr, BlockId, Cred, Ino, Kind, Mode, Name, Plates, Position, RealmId, Refusal, SessionId, ShardId, Time,
    access,
};
use chiton_wire::{
    Answer, Call, Claim, DirEntry, Failure, LeaseMode, Lock, LockKind, Query, RealmCall, Stat, StatFs,
    StatTarget,
};

use super::Routed;
use crate::service::{CallError, Connection, Durability, PlateLookup, Service, Session, Underway};
use crate::tests::fake_server::attr;
use crate::{CancelToken, Recalls};

/// The number of a request that waits for a lock.
const LOCK_REQUEST: u64 = 17;

type Script = dyn Fn(&Call) -> Result<Answer, CallError> + Send + Sync;

/// The events of the calls, each with its plate.
type Log = Arc<Mutex<Vec<(u16, &'static str)>>>;

/// A plate that answers by a script.
struct Plate {
    number: u16,
    script: Box<Script>,
    asked: Mutex<Vec<Call>>,
    log: Log,
    needs_commit: bool,
    recalls: Recalls,
}

/// A call that is carried out when it is waited for.
struct Slow(Arc<Plate>, Call);

impl Future for Slow {
    type Output = Result<Answer, CallError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready((self.0.script)(&self.1))
    }
}

impl Underway for Slow {
    fn wait(self: Box<Self>) -> Result<Answer, CallError> {
        self.0.log.lock().push((self.0.number, "answered"));
        (self.0.script)(&self.1)
    }
}

/// The service of a plate.
struct Asked(Arc<Plate>);

impl Service for Asked {
    fn call(&self, _: &Cred, call: Call) -> Result<Answer, CallError> {
        self.0.asked.lock().push(call.clone());
        (self.0.script)(&call)
    }

    fn start(&self, _: &Cred, call: Call) -> Box<dyn Underway> {
        self.0.asked.lock().push(call.clone());
        self.0.log.lock().push((self.0.number, "asked"));
        Box::new(Slow(self.0.clone(), call))
    }

    /// It returns as if it still waited.
    fn call_cancellable(&self, cred: &Cred, call: Call, token: &CancelToken) -> Result<Answer, CallError> {
        assert!(token.waits_as(LOCK_REQUEST));
        self.call(cred, call)
    }
}

impl Session for Asked {
    fn session(&self, _: Ino) -> SessionId {
        SessionId(70 + u64::from(self.0.number))
    }
    fn valid_until(&self, _: Ino) -> Duration {
        Duration::from_secs(u64::from(self.0.number))
    }
    fn recalls(&self) -> &Recalls {
        &self.0.recalls
    }
    fn settle(&self) -> Result<(), CallError> {
        self.0.log.lock().push((self.0.number, "settled"));
        Ok(())
    }
    fn closed(&self, _: Ino) {
        self.0.log.lock().push((self.0.number, "closed"));
    }
}

impl Durability for Asked {
    fn durable(&self) -> Position {
        Position(0)
    }
    fn commit(&self, _: Position) -> Result<(), Refusal> {
        self.0.log.lock().push((self.0.number, "committed"));
        Ok(())
    }
    fn needs_commit(&self) -> bool {
        self.0.needs_commit
    }
}

impl PlateLookup for Asked {}

impl Connection for Asked {
    fn is_embedded(&self) -> bool {
        false
    }
    fn is_away(&self) -> bool {
        self.0.number == 1
    }
    fn unsettled(&self) -> usize {
        3 + usize::from(self.0.number)
    }
}

struct Site {
    routed: Routed,
    plates: [Arc<Plate>; 2],
    log: Log,
}

impl Site {
    fn new(script: impl Fn(u16, &Call) -> Result<Answer, CallError> + Send + Sync + 'static) -> Site {
        Site::needing(script, [true, true])
    }

    /// Plates of which only some have something to commit.
    fn needing(
        script: impl Fn(u16, &Call) -> Result<Answer, CallError> + Send + Sync + 'static,
        needs_commit: [bool; 2],
    ) -> Site {
        let (script, log) = (Arc::new(script), Log::default());
        let plates = [0, 1].map(|number| {
            let script = script.clone();
            Arc::new(Plate {
                number,
                script: Box::new(move |call| script(number, call)),
                asked: Mutex::default(),
                log: log.clone(),
                needs_commit: needs_commit[usize::from(number)],
                recalls: Recalls::default(),
            })
        });
        let service = |plate: &Arc<Plate>| Arc::new(Asked(plate.clone())) as Arc<dyn Service>;
        let two = Plates::new(2, 2).expect("two plates");
        Site { routed: Routed::new(two, plates.iter().map(service).collect()), plates, log }
    }

    fn asked(&self, plate: usize) -> Vec<Call> {
        self.plates[plate].asked.lock().clone()
    }

    /// The plates that are asked for a call.
    fn way(&self, call: Call) -> Vec<usize> {
        drop(self.routed.call(&Cred::ROOT, call));
        (0..2).filter(|plate| !std::mem::take(&mut *self.plates[*plate].asked.lock()).is_empty()).collect()
    }
}

fn name(s: &str) -> Name {
    Name::try_from(s).expect("a name")
}

/// An inode of a plate.
fn ino(plate: u16, number: u64) -> Ino {
    Ino::new(ShardId(plate), number)
}

fn make(parent: Ino, s: &str) -> Op {
    Op::Make { parent, name: name(s), make: Make::File { content: Vec::new() }, mode: Mode(0o644) }
}

fn dir(ino: Ino) -> Attr {
    Attr { kind: Kind::Dir, mode: Mode(0o755), ..attr(ino) }
}

fn done(_: u16, _: &Call) -> Result<Answer, CallError> {
    Ok(Answer::Done)
}

#[test]
fn each_call_goes_to_the_plate_of_its_inode() {
    let site = Site::new(done);
    let there = ino(1, 9);
    let op = |op| Call::Op { op, open: false };
    let lock = Lock { ino: there, flock: false, owner: 1, start: 0, end: 9, kind: LockKind::Read, pid: 1 };
    let block = |writer| BlockId { writer, number: 5 };
    let (here, to_name) = (ino(0, 8), name("b"));
    let rename = Op::Rename { from: here, from_name: name("a"), to: there, to_name, how: RenameHow::Replace };
    let set_xattr =
        Op::SetXattr { ino: there, name: b"user.x".to_vec(), value: Vec::new(), how: XattrHow::Set };
    let calls = [
        op(make(there, "a")),
        op(Op::Unlink { parent: there, name: name("a") }),
        op(rename),
        op(Op::Link { ino: here, parent: there, name: name("c") }),
        op(Op::SetAttr { ino: there, change: AttrChange::default() }),
        op(set_xattr),
        Call::Batch { ops: vec![make(there, "a"), make(there, "b")], stop_on_failure: false },
        Call::Query(Query::Lookup { parent: there, name: name("a") }),
        Call::Query(Query::GetAttr { ino: there }),
        Call::Query(Query::Open { ino: there, want: access::READ, content: false }),
        Call::Query(Query::Access { ino: there, want: access::READ }),
        Call::Query(Query::ReadDir { dir: there, cookie: 0, entries_max: 9, plus: true, part_end: None }),
        Call::Query(Query::ReadDir { dir: there, cookie: 0, entries_max: 9, plus: false, part_end: None }),
        Call::Query(Query::ReadLink { ino: there }),
        Call::Query(Query::GetXattr { ino: there, name: b"user.x".to_vec() }),
        Call::Query(Query::ListXattr { ino: there }),
        Call::Query(Query::Map { ino: there, offset: 0, len: 1 }),
        Call::Lease { ino: there, mode: LeaseMode::Shared },
        Call::LeaseNames { dir: there, numbers: 9 },
        Call::Grown { ino: there, size: 1, last: 0 },
        Call::SetLock { lock, wait: false },
        Call::GetLock { lock },
        Call::PutBlock { block: block(71), bytes: Vec::new() },
        Call::GetBlock { block: block(71), offset: 0, len: 1 },
        Call::Realm(Box::new(RealmCall::BlockedBy { ino: there, name: None })),
        // The plate is in the number.
        Call::Realm(Box::new(RealmCall::End {
            claim: Claim { realm: RealmId(3), generation: 1 },
            force: false,
        })),
    ];
    for call in calls {
        assert_eq!(site.way(call.clone()), [1], "{call:?}");
    }
    let calls = [
        op(make(here, "a")),
        Call::PutBlock { block: block(70), bytes: Vec::new() },
        Call::GetBlock { block: block(12), offset: 0, len: 1 },
        Call::Admin { what: "status".into() },
        // There is no such shard.
        Call::Query(Query::GetAttr { ino: ino(9, 9) }),
    ];
    for call in calls {
        assert_eq!(site.way(call.clone()), [0], "{call:?}");
    }
    site.routed.closed(there);
    assert_eq!(site.log.lock().last(), Some(&(1, "closed")));
    assert_eq!((site.routed.session(here), site.routed.session(there)), (SessionId(70), SessionId(71)));
    assert_eq!(site.routed.valid_until(there), Duration::from_secs(1));
    assert!(site.routed.is_away(), "one is");
    assert_eq!(site.routed.unsettled(), 3 + 4);
}

#[test]
fn operation_over_plates_waits_for_what_others_have_acknowledged() {
    let site = Site::new(done);
    let settles = |op: Op| {
        site.log.lock().clear();
        drop(site.routed.call(&Cred::ROOT, Call::Op { op, open: false }));
        site.log.lock().iter().map(|(plate, _)| *plate).collect::<Vec<_>>()
    };
    let (here, there) = (ino(0, 8), ino(1, 9));
    let none: [u16; 0] = [];
    assert_eq!(settles(make(here, "a")), none);
    assert_eq!(settles(Op::Unlink { parent: there, name: name("a") }), none);
    assert_eq!(settles(Op::Rmdir { parent: here, name: name("a") }), [1], "it may live anywhere");
    assert_eq!(settles(Op::Link { ino: here, parent: there, name: name("a") }), [0]);
}

/// The root is on plate 0; `near` and `far` are directories in it, `far` on plate 1; `far/file`, `far/up` (a symbolic link to
/// `../near`).
fn tree(plate: u16, call: &Call) -> Result<Answer, CallError> {
    let found = |attr: Attr, parent_leased| {
        Ok(Answer::Attr { attr, lease: LeaseMode::Shared, parent_leased, parent_open: true })
    };
    let (near, far) = (ino(0, 10), ino(1, 20));
    let in_far = |ino| Attr { parent: far, ..attr(ino) };
    match (plate, call) {
        (0, Call::Query(Query::Lookup { parent: Ino::ROOT, name })) => match name.as_bytes() {
            b"near" => found(dir(near), true),
            b"far" => Ok(Answer::Elsewhere { ino: far, parent_leased: true, parent_open: false }),
            b"gone" => Ok(Answer::Elsewhere { ino: ino(1, 99), parent_leased: true, parent_open: false }),
            _ => Ok(Answer::Absent { parent_leased: true, parent_open: true }),
        },
        (1, Call::Query(Query::Lookup { name, .. })) => match name.as_bytes() {
            b"file" => found(in_far(ino(1, 21)), true),
            b"up" => found(Attr { kind: Kind::Symlink, ..in_far(ino(1, 22)) }, true),
            _ => Ok(Answer::Absent { parent_leased: true, parent_open: true }),
        },
        (0, Call::Query(Query::GetAttr { ino: Ino::ROOT })) => found(dir(Ino::ROOT), false),
        (0, Call::Query(Query::GetAttr { ino })) if *ino == near => found(dir(near), false),
        (1, Call::Query(Query::GetAttr { ino })) if *ino == far => found(dir(far), false),
        (_, Call::Query(Query::GetAttr { .. })) => Err(Refusal::Stale.into()),
        (_, Call::Query(Query::StatEach { targets, .. })) => stats(plate, targets),
        (1, Call::Query(Query::ReadLink { .. })) => Ok(Answer::Bytes(b"../near".to_vec())),
        (_, Call::Query(Query::Access { ino, .. })) if *ino == far => Ok(Answer::Done),
        (0, Call::Query(Query::ReadDir { .. })) => {
            let entry = |name: Name, ino, attr: Option<Attr>| DirEntry {
                cookie: name.hash64(),
                name,
                ino,
                kind: Kind::Dir,
                attr: attr.map(|attr| (attr, LeaseMode::Shared)),
            };
            let entries = vec![
                entry(name("far"), far, None),
                entry(name("gone"), ino(1, 99), None),
                entry(name("near"), near, Some(dir(near))),
            ];
            Ok(Answer::Entries { entries, end: true, parent_leased: true, parent_open: false })
        }
        (0 | 1, call) => panic!("plate {plate} does not know {call:?}"),
        (2.., _) => panic!("there are two plates"),
    }
}

/// As [`tree`] answers for each target alone.
fn stats(plate: u16, targets: &[StatTarget]) -> Result<Answer, CallError> {
    let one = |target: &StatTarget| {
        let query = match target {
            StatTarget::Inode(ino) => Query::GetAttr { ino: *ino },
            StatTarget::Name { parent, name } => Query::Lookup { parent: *parent, name: name.clone() },
            StatTarget::Open { ino, want } => Query::Open { ino: *ino, want: *want, content: false },
        };
        match tree(plate, &Call::Query(query)) {
            Ok(Answer::Attr { attr, lease, .. }) => Ok(Stat::Attr { attr, lease }),
            Ok(Answer::Elsewhere { ino, .. }) => Ok(Stat::Elsewhere(ino)),
            Ok(_) => Ok(Stat::Absent),
            Err(CallError::Refused(refusal)) => Err(Failure::Refused(refusal)),
            Err(CallError::NeedGroups) => Err(Failure::NeedGroups),
        }
    };
    Ok(Answer::Stats(targets.iter().map(one).collect()))
}

#[test]
fn many_questions_are_one_message_to_each_plate_and_one_to_the_owners() {
    let site = Site::new(tree);
    let (far, root) = (ino(1, 20), Ino::ROOT);
    let named = |parent, s| StatTarget::Name { parent, name: name(s) };
    let targets = vec![
        named(far, "file"),
        named(root, "far"),
        named(root, "none"),
        StatTarget::Inode(ino(0, 10)),
        named(root, "gone"),
        named(far, "up"),
    ];
    let ask = |stop_on_failure| {
        let query = Query::StatEach { stop_on_failure, leases: false, targets: targets.clone() };
        match site.routed.call(&Cred::ROOT, Call::Query(query)) {
            Ok(Answer::Stats(stats)) => stats,
            answer => panic!("{answer:?}"),
        }
    };
    let shown = |stats: Vec<Result<Stat, Failure>>| -> Vec<Result<Option<Ino>, Failure>> {
        let of = |stat| match stat {
            Stat::Attr { attr, .. } => Some(attr.ino),
            Stat::Absent => None,
            Stat::Elsewhere(ino) => panic!("{ino:?} is not asked for"),
        };
        stats.into_iter().map(|stat| stat.map(of)).collect()
    };
    let first = [Ok(Some(ino(1, 21))), Ok(Some(far)), Ok(None)];
    let rest = [Ok(Some(ino(0, 10))), Err(Failure::Refused(Refusal::Stale)), Ok(Some(ino(1, 22)))];
    assert_eq!(shown(ask(false)), [&first[..], &rest[..]].concat());
    // One for each plate, one for the inodes that plate 0 named, and those for a name whose inode is always gone.
    let counts = |asked: &[Call]| -> Vec<usize> {
        let of = |call: &Call| match call {
            Call::Query(Query::StatEach { targets, .. }) => targets.len(),
            call => panic!("{call:?}"),
        };
        asked.iter().map(of).collect()
    };
    assert_eq!(counts(&site.asked(0))[..2], [4, 1]);
    assert_eq!(counts(&site.asked(1))[..2], [2, 2]);
    assert_eq!(shown(ask(true)), first);
}

#[test]
fn opens_behind_a_failure_that_stops_the_rest_are_closed() {
    let site = Site::new(|plate, call| match (plate, call) {
        (0, Call::Query(Query::StatEach { .. })) => {
            Ok(Answer::Stats(vec![Err(Failure::Refused(Refusal::Access))]))
        }
        _ => Ok(Answer::Stats(vec![Ok(Stat::Attr { attr: attr(ino(1, 9)), lease: LeaseMode::None })])),
    });
    let open = |ino| StatTarget::Open { ino, want: access::READ };
    for (targets, closed) in
        [([open(ino(0, 8)), open(ino(1, 9))], true), ([open(ino(1, 9)), open(ino(0, 8))], false)]
    {
        site.log.lock().clear();
        let query = Query::StatEach { stop_on_failure: true, leases: false, targets: targets.to_vec() };
        drop(site.routed.call(&Cred::ROOT, Call::Query(query)));
        assert_eq!(site.log.lock().contains(&(1, "closed")), closed, "{targets:?}");
    }
}

#[test]
fn lookup_ends_at_the_owner() {
    let site = Site::new(tree);
    let ask = |parent, s| Call::Query(Query::Lookup { parent, name: name(s) });
    let (far, root) = (ino(1, 20), Ino::ROOT);
    let found =
        Answer::Attr { attr: dir(far), lease: LeaseMode::Shared, parent_leased: true, parent_open: false };
    assert_eq!(site.routed.call(&Cred::ROOT, ask(root, "far")), Ok(found.clone()));
    assert_eq!(site.asked(1), [Call::Query(Query::GetAttr { ino: far })]);
    assert_eq!(site.routed.start(&Cred::ROOT, ask(root, "far")).wait(), Ok(found));
    let absent = Ok(Answer::Absent { parent_leased: true, parent_open: true });
    assert_eq!(site.routed.call(&Cred::ROOT, ask(root, "none")), absent);
    // A name that goes each time that it is looked for is not found, and not looked for endlessly.
    let before = site.asked(0).len();
    assert_eq!(site.routed.call(&Cred::ROOT, ask(root, "gone")), Err(Refusal::Stale.into()));
    assert_eq!(site.routed.start(&Cred::ROOT, ask(root, "gone")).wait(), Err(Refusal::Stale.into()));
    assert_eq!(site.asked(0).len() - before, 2 * super::LOOKUP_TRIES);
}

#[test]
fn listing_with_attributes_asks_the_owners() {
    let site = Site::new(tree);
    let list =
        Call::Query(Query::ReadDir { dir: Ino::ROOT, cookie: 0, entries_max: 9, plus: true, part_end: None });
    let Ok(Answer::Entries { entries, end: true, .. }) = site.routed.call(&Cred::ROOT, list) else {
        panic!("not listed")
    };
    let known: Vec<_> = entries.iter().map(|entry| entry.attr.as_ref().map(|(attr, _)| attr.ino)).collect();
    assert_eq!(known, [Some(ino(1, 20)), None, Some(ino(0, 10))], "one is gone meanwhile");
    assert_eq!(*site.log.lock(), [(0, "asked"), (0, "answered"), (1, "asked"), (1, "answered")]);
    let inodes = vec![StatTarget::Inode(ino(1, 20)), StatTarget::Inode(ino(1, 99))];
    let query = Query::StatEach { stop_on_failure: false, leases: true, targets: inodes };
    assert_eq!(site.asked(1), [Call::Query(query)]);
}

#[test]
fn path_is_one_question_with_the_sessions_of_all_plates() {
    let site = Site::new(|_, _| Ok(Answer::Done));
    let resolve = |from, path: &[u8], sessions: &[u64]| {
        let sessions = sessions.iter().map(|session| SessionId(*session)).collect();
        Call::Query(Query::Resolve { from, path: path.to_vec(), follow: true, sessions })
    };
    let far = ino(1, 20);
    for (from, path, plate) in [(Ino::ROOT, "far/file", 0), (far, "file", 1), (far, "/file", 0)] {
        let before = site.asked(plate).len();
        let ask = resolve(from, path.as_bytes(), &[]);
        assert_eq!(site.routed.call(&Cred::ROOT, ask.clone()), Ok(Answer::Done));
        assert_eq!(site.routed.start(&Cred::ROOT, ask).wait(), Ok(Answer::Done));
        let question = resolve(from, path.as_bytes(), &[70, 71]);
        assert_eq!(site.asked(plate)[before..], [question.clone(), question]);
    }
    assert_eq!((site.asked(0).len(), site.asked(1).len()), (4, 2));
}

/// Makes each name but `refused`, and notes nothing.
fn maker(plate: u16, call: &Call) -> Result<Answer, CallError> {
    if let Call::Query(Query::Parts { .. }) = call {
        return Ok(Answer::Bytes(Vec::new()));
    }
    let Call::Batch { ops, stop_on_failure } = call else { return Ok(Answer::Done) };
    let mut results = Vec::new();
    for op in ops {
        let name = op.footprint().names().next().expect("it makes a name").name.clone();
        results.push(match name.as_bytes() {
            b"refused" => Err(Failure::Refused(Refusal::Exists)),
            b"lost" => return Err(Refusal::NotConnected.into()),
            bytes => {
                let attr = Attr { position: Position(7), ..attr(ino(plate, u64::from(bytes[0]))) };
                let outcome = Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) };
                Ok((Position(7), outcome))
            }
        });
        if *stop_on_failure && results.last().is_some_and(Result::is_err) {
            break;
        }
    }
    Ok(Answer::Batch(results))
}

#[test]
fn batch_over_plates_keeps_its_order() {
    let site = Site::new(maker);
    let batch = |names: &[(u16, &str)], stop_on_failure| {
        let ops = names.iter().map(|(plate, s)| make(ino(*plate, 5), s)).collect();
        let answer = site.routed.start(&Cred::ROOT, Call::Batch { ops, stop_on_failure }).wait();
        let Answer::Batch(results) = answer? else { panic!("another answer") };
        let made = |(_, outcome): (Position, Outcome)| outcome.attr.expect("made").ino;
        Ok::<_, CallError>(results.into_iter().map(|one| one.map(made)).collect::<Vec<_>>())
    };
    let at = |plate, s: &str| Ok::<Ino, Failure>(ino(plate, u64::from(s.as_bytes()[0])));
    let exists = Err(Failure::Refused(Refusal::Exists));
    let names = [(0, "a"), (0, "b"), (1, "c"), (0, "refused"), (0, "d"), (1, "e")];
    let all = vec![at(0, "a"), at(0, "b"), at(1, "c"), exists.clone(), at(0, "d"), at(1, "e")];
    assert_eq!(batch(&names, false), Ok(all.clone()));
    let runs = [(0, "asked"), (0, "answered"), (1, "asked"), (1, "answered")];
    let at_once = [(0, "asked"), (1, "asked"), (0, "answered"), (1, "answered")];
    assert_eq!(
        *site.log.lock(),
        [at_once, at_once].concat(),
        "both plates at once; first, whether there are parts"
    );
    site.log.lock().clear();
    assert_eq!(batch(&names, true), Ok(all[..4].to_vec()));
    assert_eq!(*site.log.lock(), [&runs[..], &runs[..2]].concat(), "nothing is asked after a failure");
    // One message is lost as a whole. The operations that other plates have carried out stand.
    let lost = Err(Failure::Refused(Refusal::NotConnected));
    let names = [(0, "a"), (1, "lost"), (1, "b"), (0, "c")];
    assert_eq!(batch(&names, false), Ok(vec![at(0, "a"), lost.clone(), lost.clone(), at(0, "c")]));
    assert_eq!(batch(&names, true), Ok(vec![at(0, "a"), lost]));
    assert_eq!(batch(&[(1, "lost"), (0, "a")], true), Err(Refusal::NotConnected.into()));
    assert_eq!(batch(&[(1, "lost"), (1, "b")], false), Err(Refusal::NotConnected.into()));
}

#[test]
fn commit_asks_plates_at_once() {
    let site = Site::new(done);
    assert_eq!(site.routed.commit(Position(0)), Ok(()));
    assert_eq!(*site.log.lock(), [(0, "asked"), (1, "asked"), (0, "answered"), (1, "answered")]);
    // Of a file: the positions of this client's answers, and of others' writes to that file.
    let of_file = |needs_commit, at: u16| {
        let site = Site::needing(done, needs_commit);
        assert_eq!(site.routed.commit_with(ino(at, 5)), Ok(()));
        (0..2).filter(|plate| site.log.lock().iter().any(|(of, _)| of == plate)).collect::<Vec<u16>>()
    };
    assert_eq!(of_file([false, false], 1), [1]);
    assert_eq!(of_file([false, true], 1), [1]);
    assert_eq!(of_file([true, false], 1), [0, 1]);
    let site = Site::new(|plate, _| match plate {
        0 => Err(Refusal::NoSpace.into()),
        _ => Ok(Answer::Done),
    });
    assert_eq!(site.routed.commit(Position(0)), Err(Refusal::NoSpace));
    assert_eq!(site.asked(1).len(), 1, "the other is durable all the same");
}

#[test]
fn totals_are_those_of_all_plates() {
    let site = Site::new(|plate, _| {
        let totals = [
            StatFs { bytes_total: 100, bytes_free: 50, inodes_used: 3 },
            StatFs { bytes_total: 900, bytes_free: 900, inodes_used: 4 },
        ];
        Ok(Answer::StatFs(totals[usize::from(plate)]))
    });
    let expect = StatFs { bytes_total: 100, bytes_free: 50, inodes_used: 7 };
    assert_eq!(site.routed.call(&Cred::ROOT, Call::Query(Query::StatFs)), Ok(Answer::StatFs(expect)));
}

#[test]
fn what_a_plate_says_of_anothers_inode_has_neither_position_nor_lease() {
    let site = Site::new(|_, _| {
        let made = Attr { position: Position(500), ..dir(ino(1, 33)) };
        let outcome = Outcome { attr: Some(made), gone: None, other: None, time: Time(0) };
        let lease = LeaseMode::Shared;
        Ok(Answer::Op { position: Position(500), outcome, lease, parent_leased: true })
    });
    let ask = |parent| {
        let op = Op::Make { parent, name: name("d"), make: Make::Dir, mode: Mode(0o755) };
        let call = Call::Op { op, open: false };
        let answers = [
            site.routed.call(&Cred::ROOT, call.clone()),
            site.routed.start(&Cred::ROOT, call.clone()).wait(),
            site.routed.call_in(SessionId(70), &Cred::ROOT, call),
        ];
        answers.map(|answer| match answer {
            Ok(Answer::Op { position, outcome, lease, .. }) => {
                (position, outcome.attr.expect("made").position, lease)
            }
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(ask(ino(0, 5)), [(Position(500), Position(0), LeaseMode::None); 3]);
    assert_eq!(ask(ino(1, 5)), [(Position(500), Position(500), LeaseMode::Shared); 3]);
}

#[test]
fn wait_for_a_lock_is_cancelled_where_it_waits() {
    let token = CancelToken::new();
    let cancelled = token.clone();
    let site = Site::new(move |_, call| {
        if matches!(call, Call::CancelLock { .. }) {
            cancelled.over();
        }
        Ok(Answer::Done)
    });
    let there = ino(1, 9);
    let lock = Lock { ino: there, flock: false, owner: 1, start: 0, end: 9, kind: LockKind::Read, pid: 1 };
    let call = Call::SetLock { lock, wait: true };
    assert_eq!(site.routed.call_cancellable(&Cred::ROOT, call, &token), Ok(Answer::Done));
    token.cancel(&site.routed);
    assert_eq!(site.asked(1).last(), Some(&Call::CancelLock { id: LOCK_REQUEST }));
    assert_eq!(site.asked(0), []);
}
