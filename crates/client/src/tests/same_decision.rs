//! Write-behind decides as the server does: random histories of one client over a namespace that answers it.
//!
//! ```text
//!   operation ─▶ client ─┬─ acknowledged ─▶ the namespace's plan of the operation, with all credentials, gives the same events
//!                        └─ asked ────────▶ the namespace answers                                     as what is queued
//!   afterwards: the attributes that the client was given are those of the namespace
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chiton_model::{AttrChange, Body, Event, Extent, Hold, Make, Op, Outcome, RenameHow, SetTime, XattrHow};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT, Acl, AclEntry, AclTag};
use chiton_namespace::{Context, Fault, Namespace, Need, RowChange, RowSource, Rows, plan};
use chiton_runtime::sync::Mutex;
use chiton_types::{
    Attr, BlockId, Cred, Ino, Kind, Mode, Name, Position, Privileges, Refusal, SessionId, Time,
};
use chiton_wire::{Acknowledged, Answer, Call, LeaseMode, Query};
use proptest::prelude::*;

use super::drain::drain;
use crate::handler::Handler;
use crate::service::{Groups, LookUp, Standing, ready};
use crate::write_behind::{Limits, WriteBehind, WriteBehinds};
use crate::{
    CallError, Caller, Client, ClientOptions, Connection, Durability, PlateLookup, RecallInbox, Recalls,
    Service, Session, Underway,
};

/// First of the numbers that are granted.
const GRANTED: u64 = 1 << 40;
const USERS: [u32; 4] = [0, 1, 2, 3];
/// User 2 and user 3 are members of a group beside their own; 3's is the one that directories may be given.
const SHARED_GROUP: u32 = 50;
const MODES: [u16; 12] =
    [0o644, 0o600, 0o755, 0o777, 0o1777, 0o2777, 0o2775, 0o2755, 0o700, 0o4755, 0o6777, 0o050];

/// The state of a server: the namespace, and a clock.
struct Tree {
    ns: Namespace,
    position: Position,
    clock: Time,
    next: u64,
    granted: u64,
    /// The operation under way, with all credentials of its caller.
    wanted: Option<(Op, Cred)>,
    acknowledged: usize,
}

impl Tree {
    fn new() -> Tree {
        struct Formatted(Vec<RowChange>);
        impl RowSource for Formatted {
            type Error = std::convert::Infallible;
            fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
                Ok(self.0.iter().find(|(k, _)| k == key).and_then(|(_, value)| value.clone()))
            }
            fn scan(&self, _: &[u8], _: &[u8], _: usize) -> Result<Rows, Self::Error> {
                Ok(Rows::new())
            }
        }
        let mut ns = Namespace::new();
        let rows = Formatted(Namespace::format_rows(Time(0), 0, 0));
        let Ok(root) = Namespace::fetch(&rows, &Need::Inode(Ino::ROOT));
        ns.install(root, ns.generation()).expect("a row just made");
        Tree {
            ns,
            position: Position(0),
            clock: Time(0),
            next: 2,
            granted: GRANTED,
            wanted: None,
            acknowledged: 0,
        }
    }

    fn events(&self, cred: &Cred, op: &Op, now: Time, offered: Ino) -> Result<(Vec<Event>, Outcome), Fault> {
        let context = Context { cred, now, offered, is_open: &|_| false, frees: false };
        let mut events = Vec::new();
        let planned = plan(&self.ns, op, &context, &mut events)?;
        let outcome = Outcome { attr: None, gone: planned.gone, other: planned.other, time: now };
        Ok((events, outcome))
    }

    fn apply(&mut self, events: &[Event]) {
        for event in events {
            self.position = self.position.next();
            self.ns.apply(event, self.position);
        }
    }

    /// Carries an operation out as one that was asked for.
    fn answer(&mut self, cred: &Cred, op: &Op) -> Result<Answer, CallError> {
        self.clock = Time(self.clock.0 + 1);
        let context =
            Context { cred, now: self.clock, offered: Ino(self.next), is_open: &|_| false, frees: false };
        let mut events = Vec::new();
        let planned = plan(&self.ns, op, &context, &mut events).map_err(refused)?;
        self.next += 1;
        self.apply(&events);
        let outcome = Outcome { time: self.clock, ..self.ns.outcome(planned) };
        let lease = outcome.attr.as_ref().map_or(LeaseMode::None, lease);
        Ok(Answer::Op { position: self.position, outcome, lease, parent_leased: true })
    }

    fn attr(&self, ino: Ino) -> Option<Attr> {
        self.ns.attr(ino).ok()
    }
}

fn refused(fault: Fault) -> CallError {
    match fault {
        Fault::Refused(refusal) => CallError::Refused(refusal),
        Fault::NeedGroups => CallError::NeedGroups,
        Fault::Elsewhere(ino) | Fault::Realm(ino) => panic!("there is one plate: {ino}"),
        // Nothing is ever evicted: an inode that is not in memory is gone.
        Fault::Missing(needs) => match needs[..] {
            [Need::Inode(_)] => CallError::Refused(Refusal::Stale),
            _ => panic!("everything is in memory: {needs:?}"),
        },
    }
}

fn lease(attr: &Attr) -> LeaseMode {
    if attr.kind == Kind::Dir { LeaseMode::Shared } else { LeaseMode::Exclusive }
}

/// A server with one client: it gives every lease, and checks pending operations.
struct Reference {
    tree: Mutex<Tree>,
    recalls: Recalls,
}

impl Reference {
    /// Carries out a pending operation, which must do the same as the operation that the caller wanted.
    fn check(&self, (cred, op, one): (Cred, Op, Acknowledged)) {
        let mut tree = self.tree.lock();
        let (wanted, full) = tree.wanted.take().expect("one operation for each that is wanted");
        let server = tree.events(&full, &wanted, one.time, one.ino);
        let queued = tree.events(&cred, &op, one.time, one.ino);
        let (events, _) = server.unwrap_or_else(|fault| panic!("{wanted:?} by {full:?}: {fault:?}"));
        assert_eq!(Ok(&events), queued.as_ref().map(|(events, _)| events), "{wanted:?} by {full:?}");
        tree.apply(&events);
        tree.clock = tree.clock.max(one.time);
        tree.acknowledged += 1;
    }
}

impl Service for Reference {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        let mut tree = self.tree.lock();
        match call {
            Call::Op { op, .. } => tree.answer(cred, &op),
            Call::LeaseNames { dir, .. } => {
                let attr = tree.ns.attr(dir).map_err(refused)?;
                let first = Ino(tree.granted);
                // So few that they are used up.
                tree.granted += 5;
                Ok(Answer::Names { leased: true, attr, numbers: (first, Ino(tree.granted)), now: tree.clock })
            }
            Call::Query(Query::GetAttr { ino }) => {
                let attr = tree.ns.attr(ino).map_err(refused)?;
                let lease = lease(&attr);
                Ok(Answer::Attr { attr, lease, parent_leased: false, parent_open: false })
            }
            call => panic!("not asked here: {call:?}"),
        }
    }
    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        ready(self.call(cred, call))
    }
}

impl Session for Reference {
    fn session(&self, _ino: Ino) -> SessionId {
        SessionId(1)
    }
    fn closed(&self, _: Ino) {}
    fn valid_until(&self, _ino: Ino) -> Duration {
        Duration::MAX
    }
    fn recalls(&self) -> &Recalls {
        &self.recalls
    }
}

impl Durability for Reference {
    fn durable(&self) -> Position {
        Position(0)
    }
    fn commit(&self, _: Position) -> Result<(), Refusal> {
        Ok(())
    }
}

impl PlateLookup for Reference {}

impl Connection for Reference {
    fn is_embedded(&self) -> bool {
        false
    }
}

/// A user whose groups and capabilities are looked up only where they decide.
#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    umask: u16,
}

impl LookUp for User {
    fn standing(&self) -> Standing {
        let groups: &[u32] = if self.uid >= 2 { &[SHARED_GROUP] } else { &[] };
        let privileges = if self.uid == 0 { Privileges::ALL } else { Privileges::NONE };
        Standing { groups: groups.into(), privileges }
    }
    fn umask(&self) -> u16 {
        self.umask
    }
}

#[derive(Clone, Debug)]
enum Step {
    Make { dir: usize, name: u8, make: u8, mode: Mode },
    Unlink { dir: usize, name: u8 },
    Rmdir { dir: usize, name: u8 },
    Rename { from: (usize, u8), to: (usize, u8) },
    Link { file: usize, dir: usize, name: u8 },
    Write { file: usize, bytes: usize, kill_setid: bool },
    WriteBlock { file: usize },
    Truncate { file: usize },
    SetFile { file: usize, change: AttrChange },
    SetDir { dir: usize, change: AttrChange },
    SetList { dir: usize, is_default: bool, is_empty: bool },
    SetFileList { file: usize },
    RecallDir { dir: usize },
    RecallFile { file: usize },
    TakesNone(bool),
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(&MODES[..]).prop_map(Mode)
}

fn change() -> impl Strategy<Value = AttrChange> {
    let id = || prop::option::weighted(0.3, prop::sample::select(vec![0, 1, 2, SHARED_GROUP]));
    let time = || prop::option::weighted(0.3, prop_oneof![Just(SetTime::Now), Just(SetTime::At(Time(77)))]);
    (prop::option::weighted(0.5, mode()), id(), id(), time(), time(), any::<bool>()).prop_map(
        |(mode, uid, gid, atime, mtime, kill_setid)| AttrChange {
            mode,
            uid,
            gid,
            atime,
            mtime,
            kill_setid,
            ..AttrChange::default()
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let (dir, name, file) = (|| 0..8usize, || 0..12u8, || 0..16usize);
    prop_oneof![
        40 => (dir(), name(), 0..6u8, mode())
            .prop_map(|(dir, name, make, mode)| Step::Make { dir, name, make, mode }),
        12 => (dir(), name()).prop_map(|(dir, name)| Step::Unlink { dir, name }),
        1 => (dir(), name()).prop_map(|(dir, name)| Step::Rmdir { dir, name }),
        1 => (dir(), name(), dir(), name())
            .prop_map(|(a, b, c, d)| Step::Rename { from: (a, b), to: (c, d) }),
        1 => (file(), dir(), name()).prop_map(|(file, dir, name)| Step::Link { file, dir, name }),
        20 => (file(), prop::sample::select(vec![0, 5, 4_096, 70_000]), any::<bool>())
            .prop_map(|(file, bytes, kill_setid)| Step::Write { file, bytes, kill_setid }),
        1 => file().prop_map(|file| Step::WriteBlock { file }),
        1 => file().prop_map(|file| Step::Truncate { file }),
        20 => (file(), change()).prop_map(|(file, change)| Step::SetFile { file, change }),
        2 => (dir(), change()).prop_map(|(dir, change)| Step::SetDir { dir, change }),
        1 => (dir(), any::<bool>(), any::<bool>())
            .prop_map(|(dir, is_default, is_empty)| Step::SetList { dir, is_default, is_empty }),
        1 => file().prop_map(|file| Step::SetFileList { file }),
        1 => dir().prop_map(|dir| Step::RecallDir { dir }),
        1 => file().prop_map(|file| Step::RecallFile { file }),
        1 => prop::bool::weighted(0.2).prop_map(Step::TakesNone),
    ]
}

fn user() -> impl Strategy<Value = User> {
    let umask = prop::sample::select(vec![0, 0o022, 0o027, 0o077]);
    (prop::sample::select(&USERS[..]), umask).prop_map(|(uid, umask)| User { uid, umask })
}

struct Site {
    client: Client,
    reference: Arc<Reference>,
    dirs: Vec<Ino>,
    files: Vec<Ino>,
}

impl Site {
    fn new() -> Site {
        let reference = Arc::new(Reference { tree: Mutex::new(Tree::new()), recalls: Recalls::default() });
        let options = ClientOptions { write_behind_after: Some(0), ..ClientOptions::default() };
        let limits = Limits { age: Duration::MAX, ..Limits::new(usize::MAX) };
        let write_behind = Arc::new(WriteBehind::new(options.write_behind_after, limits));
        write_behind.queue.set_up(true);
        let inbox = RecallInbox::default();
        let client =
            Client::build(reference.clone(), &inbox, WriteBehinds::one(write_behind), None, 1, options);
        let mut site = Site { client, reference, dirs: Vec::new(), files: Vec::new() };
        for (n, mode) in [0o777, 0o2777, 0o1777].into_iter().enumerate() {
            let name = name(n as u8);
            let op = Op::Make { parent: Ino::ROOT, name, make: Make::Dir, mode: Mode(mode) };
            site.operate(User { uid: 0, umask: 0 }, op);
        }
        assert_eq!(site.dirs.len(), 3);
        site
    }

    fn dir(&self, at: usize) -> Ino {
        self.dirs[at % self.dirs.len()]
    }

    fn file(&self, at: usize) -> Option<Ino> {
        self.files.get(at % self.files.len().max(1)).copied()
    }

    /// Carries out an operation as a program's: by write-behind if the client decides so, or the server does.
    fn operate(&mut self, user: User, op: Op) {
        let caller = Caller { uid: user.uid, gid: user.uid, groups: Groups::Lazy(&user) };
        self.reference.tree.lock().wanted = Some((op.clone(), caller.full_cred()));
        let acknowledged = match &op {
            Op::SetAttr { ino, change } if change.size.is_none() => {
                self.client.set_attr_locally(&caller, &op, *ino)
            }
            Op::Write { ino, .. } => {
                let core = &self.client.core;
                let known = core.cache.exclusive_attr(*ino);
                known.and_then(|known| self.client.service().write_locally(&caller.full_cred(), &op, &known))
            }
            _ => None,
        };
        let outcome = match acknowledged {
            Some(attr) => Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) },
            None => match self.client.operate(&caller, op.clone(), false) {
                Ok((outcome, ..)) => outcome,
                Err(_) => return,
            },
        };
        for pending in drain(&self.client.core.write_behind.of(Ino::ROOT).queue) {
            self.reference.check(pending);
        }
        let tree = self.reference.tree.lock();
        if let Some(attr) = &outcome.attr {
            let there = tree.attr(attr.ino).expect("it is there");
            let placed = |attr: &Attr| Attr { position: Position(0), ..attr.clone() };
            assert_eq!(placed(attr), placed(&there), "{op:?}");
            if let Op::Make { .. } = op {
                if attr.kind == Kind::Dir { self.dirs.push(attr.ino) } else { self.files.push(attr.ino) }
            }
        }
        if let Some(gone) = outcome.gone {
            assert!(tree.attr(gone.ino).is_none_or(|attr| attr.nlink == 0), "{op:?}");
        }
    }

    fn step(&mut self, user: User, step: Step) {
        let op = match step {
            Step::Make { dir, name: n, make, mode } => {
                let make = match make {
                    0 => Make::Dir,
                    1 => Make::Symlink { target: b"to/where".to_vec() },
                    2 => Make::File { content: vec![7; 5] },
                    3 => Make::Node { kind: Kind::Fifo, rdev: 0 },
                    _ => Make::File { content: Vec::new() },
                };
                Op::Make { parent: self.dir(dir), name: name(n), make, mode }
            }
            Step::Unlink { dir, name: n } => Op::Unlink { parent: self.dir(dir), name: name(n) },
            Step::Rmdir { dir, name: n } => Op::Rmdir { parent: self.dir(dir), name: name(n) },
            Step::Rename { from, to } => Op::Rename {
                from: self.dir(from.0),
                from_name: name(from.1),
                to: self.dir(to.0),
                to_name: name(to.1),
                how: RenameHow::Replace,
            },
            Step::Link { file, dir, name: n } => {
                let Some(ino) = self.file(file) else { return };
                Op::Link { ino, parent: self.dir(dir), name: name(n) }
            }
            Step::Write { file, bytes, kill_setid } => {
                let Some(ino) = self.file(file) else { return };
                let body = Body::Inline(vec![3; bytes]);
                write(ino, body, bytes as u64, kill_setid)
            }
            Step::WriteBlock { file } => {
                let Some(ino) = self.file(file) else { return };
                let block = BlockId { writer: 1, number: self.reference.tree.lock().position.0 };
                let extent = Extent { offset: 0, len: 4_096, block, block_offset: 0, shared: false };
                write(ino, Body::Extents(vec![extent]), 100_000, false)
            }
            Step::Truncate { file } => {
                let Some(ino) = self.file(file) else { return };
                Op::SetAttr { ino, change: AttrChange { size: Some(0), ..AttrChange::default() } }
            }
            Step::SetFile { file, change } => {
                let Some(ino) = self.file(file) else { return };
                Op::SetAttr { ino, change }
            }
            Step::SetDir { dir, change } => Op::SetAttr { ino: self.dir(dir), change },
            Step::SetList { dir, is_default, is_empty } => {
                let value = if is_empty { Vec::new() } else { list() };
                let name = if is_default { ACL_DEFAULT } else { ACL_ACCESS };
                Op::SetXattr { ino: self.dir(dir), name: name.to_vec(), value, how: XattrHow::Set }
            }
            Step::SetFileList { file } => {
                let Some(ino) = self.file(file) else { return };
                Op::SetXattr { ino, name: ACL_ACCESS.to_vec(), value: list(), how: XattrHow::Set }
            }
            Step::RecallDir { dir } => return self.recall(self.dir(dir)),
            Step::RecallFile { file } => return self.file(file).into_iter().for_each(|ino| self.recall(ino)),
            Step::TakesNone(takes_none) => {
                self.client.core.write_behind.of(Ino::ROOT).queue.set_up(!takes_none);
                return;
            }
        };
        self.operate(user, op);
    }

    fn recall(&self, ino: Ino) {
        self.reference.recalls.note(ino);
        self.client.handler.recall(ino, LeaseMode::None);
    }
}

fn name(n: u8) -> Name {
    Name::new(&[b'a' + n]).expect("a name")
}

fn write(ino: Ino, body: Body, size: u64, kill_setid: bool) -> Op {
    Op::Write { ino, body, size, mtime: Time(1_000), kill_setid, hold: Hold::default() }
}

/// User 1 and a group may write.
fn list() -> Vec<u8> {
    let entry = |tag, rights| AclEntry { tag, rights };
    let entries = vec![
        entry(AclTag::Owner, 7),
        entry(AclTag::User(1), 7),
        entry(AclTag::OwningGroup, 5),
        entry(AclTag::Group(SHARED_GROUP), 7),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, 1),
    ];
    Acl::new(entries).expect("a list").encode()
}

#[test]
fn write_behind_asks_or_decides_as_the_server() {
    let (acknowledged, steps) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let config = ProptestConfig { cases: 300, ..ProptestConfig::default() };
    proptest!(config, |(history in prop::collection::vec((user(), step()), 1..120))| {
        let mut site = Site::new();
        steps.fetch_add(history.len(), Ordering::Relaxed);
        for (user, step) in history {
            site.step(user, step);
        }
        acknowledged.fetch_add(site.reference.tree.lock().acknowledged, Ordering::Relaxed);
    });
    let (acknowledged, steps) = (acknowledged.into_inner(), steps.into_inner());
    assert!(acknowledged * 5 > steps, "{acknowledged} of {steps} steps were decided by the client");
}
