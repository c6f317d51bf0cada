//! Which operations write-behind acknowledges and which it does not, beside a server that never gets the pending ones.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use chiton_model::{AttrChange, Body, Make, Op, Outcome, RenameHow, SetTime, XattrHow};
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::{RealWorld, SharedWorld, World};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Name, Position, Refusal, SessionId, Time};
use chiton_wire::{Acknowledged, Answer, Call, LeaseMode, Query};
use tempfile::TempDir;

use super::drain::drain;
use super::near::Near;
use crate::data::{BlockIo, DirectBlocks};
use crate::handler::Handler;
use crate::service::Groups;
use crate::write_behind::{Limits, WriteBehind, WriteBehinds};
use crate::{
    CallError, Caller, Client, ClientOptions, Connection, Durability, Lookup, OpenFlags, PlateLookup,
    Recalls, Service, Session, Underway,
};

/// First of the numbers that are granted.
const FIRST: u64 = 1 << 40;
const FLAGS: OpenFlags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };

/// A server in this process that is treated as one far away. It gives leases on names. Nothing sends it
/// pending operations.
struct Silent {
    inner: Near,
    asked: Mutex<Vec<Call>>,
    /// Calls that are started are not answered.
    is_slow: Mutex<bool>,
    changed: Condvar,
    me: Weak<Silent>,
}

impl Service for Silent {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        if let Call::LeaseNames { dir, .. } = &call {
            let Answer::Attr { attr, .. } =
                self.inner.call(cred, Call::Query(Query::GetAttr { ino: *dir }))?
            else {
                panic!("no attributes")
            };
            let first = Ino::new(dir.shard(), FIRST);
            let numbers = (first, Ino(first.0 + 1_000));
            return Ok(Answer::Names { leased: true, attr, numbers, now: RealWorld.now() });
        }
        self.asked.lock().push(call.clone());
        self.inner.call(cred, call)
    }
    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        let me = self.me.upgrade().expect("alive");
        Box::new(Slow(me, self.inner.start(cred, call)))
    }
}

impl Session for Silent {
    fn session(&self, _ino: Ino) -> SessionId {
        self.inner.session(Ino::ROOT)
    }
    fn closed(&self, _ino: Ino) {}
    fn valid_until(&self, _ino: Ino) -> Duration {
        Duration::MAX
    }
    fn recalls(&self) -> &Recalls {
        self.inner.recalls()
    }
}

impl Durability for Silent {
    fn durable(&self) -> Position {
        self.inner.durable()
    }
    fn commit(&self, upto: Position) -> Result<(), Refusal> {
        self.inner.commit(upto)
    }
}

impl PlateLookup for Silent {}

impl Connection for Silent {
    fn is_embedded(&self) -> bool {
        false
    }
}

fn name(s: &str) -> Name {
    Name::try_from(s).expect("a name")
}

/// An answer that comes when the server is not slow.
struct Slow(Arc<Silent>, Box<dyn Underway>);

impl Future for Slow {
    type Output = Result<Answer, CallError>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        unreachable!("nobody waits so")
    }
}

impl Underway for Slow {
    fn wait(self: Box<Self>) -> Result<Answer, CallError> {
        let mut is_slow = self.0.is_slow.lock();
        while *is_slow {
            self.0.changed.wait(&mut is_slow);
        }
        drop(is_slow);
        self.1.wait()
    }
}

struct Site {
    _dir: TempDir,
    _server: Arc<Server>,
    client: Client,
    service: Arc<Silent>,
    /// A directory that was made here.
    dir: Ino,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let data = dir.path().join("data");
        let owner = FormatOptions { uid: rustix::process::geteuid().as_raw(), ..FormatOptions::default() };
        Server::format(&data, &owner, &world).expect("formatted");
        let server = Server::start(&data, ServerOptions::default(), world).expect("started");
        let inner = Near::begin(&server, "silent");
        let service = Arc::new_cyclic(|me| Silent {
            inner,
            asked: Mutex::default(),
            is_slow: Mutex::default(),
            changed: Condvar::new(),
            me: me.clone(),
        });
        let blocks: Arc<dyn BlockIo> = Arc::new(DirectBlocks::new(server.objects()));
        let options = ClientOptions { write_behind_after: Some(0), ..ClientOptions::default() };
        let limits = Limits { age: Duration::MAX, ..Limits::new(usize::MAX) };
        let write_behind = Arc::new(WriteBehind::new(options.write_behind_after, limits));
        write_behind.queue.set_up(true);
        let inbox = &service.inner.inbox;
        let write_behind = WriteBehinds::one(write_behind);
        let client = Client::build(service.clone(), inbox, write_behind, Some(blocks), 1, options);
        let dir_ino = client.mkdir_all("dir").expect("made").ino;
        service.asked.lock().clear();
        Site { _dir: dir, _server: server, client, service, dir: dir_ino }
    }

    fn create(&self, name: &str) -> (Attr, u64) {
        self.create_in(self.dir, name)
    }

    fn create_in(&self, dir: Ino, name: &str) -> (Attr, u64) {
        let caller = self.client.caller();
        let made = self.client.create(&caller, dir, name.as_bytes(), Mode(0o640), FLAGS);
        made.map(|(entry, fh)| (entry.attr, fh)).expect("made")
    }

    /// Carries something out that the client has not heard of.
    fn inside(&self, op: Op) -> Result<Outcome, CallError> {
        match self.service.inner.call(&self.client.caller().cred(), Call::Op { op, open: false })? {
            Answer::Op { outcome, .. } => Ok(outcome),
            other => panic!("{other:?}"),
        }
    }

    /// The inode called `a` in a directory.
    fn there(&self, dir: Ino) -> Ino {
        let call = Call::Query(Query::Lookup { parent: dir, name: name("a") });
        match self.service.inner.call(&Cred::ROOT, call) {
            Ok(Answer::Attr { attr, .. }) => attr.ino,
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, fh: u64, at: u64, bytes: &[u8]) {
        self.client.write(&self.client.caller(), fh, at, bytes).expect("written");
    }

    /// The operations queued since the last call, in words.
    fn queued(&self) -> Vec<String> {
        let in_words = |(_, op, one): (Cred, Op, Acknowledged)| {
            let n = one.ino.counter().wrapping_sub(FIRST);
            match op {
                Op::Make { name, make: Make::File { .. }, .. } => format!("file {name} {n}"),
                Op::Make { name, make: Make::Dir, .. } => format!("dir {name} {n}"),
                Op::Make { name, make: Make::Symlink { .. }, .. } => format!("symlink {name} {n}"),
                Op::Unlink { name, .. } => format!("unlink {name}"),
                Op::Write { ino, body: Body::Inline(bytes), size, .. } => {
                    assert_eq!((ino, size), (one.ino, bytes.len() as u64));
                    format!("write {size} {n}")
                }
                Op::SetAttr { ino, .. } => {
                    assert_eq!(ino, one.ino);
                    format!("attributes {n}")
                }
                op => format!("{op:?}"),
            }
        };
        drain(&self.client.core.write_behind.of(Ino::ROOT).queue).into_iter().map(in_words).collect()
    }

    /// How often the server was asked since this was last asked for.
    fn asked(&self) -> usize {
        std::mem::take(&mut *self.service.asked.lock()).len()
    }
}

#[test]
fn a_small_file_is_made_written_read_and_closed_without_a_question() {
    let site = Site::new();
    let (made, fh) = site.create("a");
    site.write(fh, 0, b"hello");
    site.client.flush(fh).expect("closed");
    assert_eq!(site.queued(), ["file a 0", "write 5 0"]);
    // Written again it is queued again, as a whole.
    site.write(fh, 5, b" world");
    assert_eq!(site.client.read(fh, 0, 100).expect("read"), b"hello world");
    let open = site.client.getattr(made.ino, None).expect("known").attr;
    assert_eq!(open.size, 11);
    site.client.release(fh).expect("closed");
    assert_eq!(site.queued(), ["write 11 0"]);
    let closed = site.client.getattr(made.ino, None).expect("known").attr;
    assert_eq!((closed.size, closed.allocated, closed.mtime), (11, 11, open.mtime));
    assert!(closed.mtime >= made.mtime.min(open.mtime) && closed.ctime >= closed.mtime);
    assert_eq!((closed.ino, closed.mode, closed.btime), (made.ino, Mode(0o640), made.btime));
    assert_eq!(site.asked(), 0);
}

#[test]
fn attributes_of_what_was_made_are_changed_without_a_question() {
    let site = Site::new();
    let (caller, client) = (site.client.caller(), &site.client);
    let (made, fh) = site.create("a");
    site.write(fh, 0, b"hello");
    let at = Time(1_000_000_000);
    let times = AttrChange { mtime: Some(SetTime::At(at)), atime: Some(SetTime::Now), ..Default::default() };
    let set = client.setattr(&caller, made.ino, times, Some(fh)).expect("set").attr;
    assert_eq!((set.mtime, set.size), (at, 5));
    assert!(set.atime >= made.atime && set.ctime >= made.ctime);
    let mode = AttrChange { mode: Some(Mode(0o600)), ..Default::default() };
    client.setattr(&caller, made.ino, mode, None).expect("set");
    // As a kernel asks for a chown.
    let owner = AttrChange { uid: Some(made.uid), kill_setid: true, ..Default::default() };
    client.setattr(&caller, made.ino, owner, None).expect("set");
    let expected = ["file a 0", "write 5 0", "attributes 0", "attributes 0", "attributes 0"];
    assert_eq!(site.queued(), expected);
    client.release(fh).expect("closed");
    let seen = client.getattr(made.ino, None).expect("known").attr;
    assert_eq!((seen.mode, seen.mtime, seen.size), (Mode(0o600), at, 5));
    assert_eq!((site.asked(), site.queued().len()), (0, 0));
    // The earlier write must not set the time afterwards: it goes first; and a later write sets it.
    let (_, fh) = site.create("b");
    site.write(fh, 0, b"x");
    let ino = Ino(made.ino.0 + 1);
    client.setattr(&caller, ino, times, Some(fh)).expect("set");
    site.write(fh, 1, b"y");
    client.release(fh).expect("closed");
    assert_eq!(site.queued(), ["file b 1", "write 1 1", "attributes 1", "write 2 1"]);
    assert!(client.getattr(ino, None).expect("known").attr.mtime > at);
    // A size is asked for, and so is everything of what may be seen by others.
    let size = AttrChange { size: Some(1), ..Default::default() };
    assert_eq!(client.setattr(&caller, ino, size, None).map(drop), Err(Refusal::Stale));
    client.handler.recall(made.ino, LeaseMode::Shared);
    assert_eq!(client.setattr(&caller, made.ino, mode, None).map(drop), Err(Refusal::Stale));
    assert_eq!(site.queued().len(), 0);
}

#[test]
fn a_directory_that_only_its_owner_may_search_is_worked_in_without_a_question() {
    let site = Site::new();
    let (caller, client) = (site.client.caller(), &site.client);
    site.create("a");
    let mode = AttrChange { mode: Some(Mode(0o700)), ..Default::default() };
    client.setattr(&caller, site.dir, mode, None).expect("set");
    assert_eq!(site.asked(), 1);
    site.create("b");
    assert!(matches!(client.lookup(&caller, site.dir, b"b"), Ok(Lookup::Found { .. })));
    assert!(matches!(client.lookup(&caller, site.dir, b"c"), Ok(Lookup::Absent { .. })));
    assert_eq!((site.asked(), site.queued()), (0, vec!["file a 0".to_owned(), "file b 1".to_owned()]));
    // Of others it is the server that says no.
    let no_groups: Arc<[u32]> = Arc::new([]);
    let stranger = Caller { uid: 4_711, gid: 4_711, groups: Groups::Known(&no_groups) };
    assert_eq!(client.lookup(&stranger, site.dir, b"b").map(drop), Err(Refusal::Access));
    assert!(site.asked() > 0);
}

#[test]
fn that_what_was_made_has_no_security_attributes_is_known() {
    let site = Site::new();
    let (caller, client) = (site.client.caller(), &site.client);
    let (made, _) = site.create("a");
    let get = |name: &[u8]| client.getxattr(&caller, made.ino, name);
    assert_eq!((get(b"security.capability"), site.asked()), (Err(Refusal::NoXattr), 0));
    assert_eq!(get(b"user.a"), Err(Refusal::Stale), "the operation never reached the server");
    let set = client.setxattr(&caller, made.ino, b"security.capability", b"x", XattrHow::Set);
    assert_eq!(set, Err(Refusal::Stale));
    site.asked();
    assert_eq!((get(b"security.capability"), site.asked()), (Err(Refusal::NoXattr), 0), "it was refused");
    // The server says that there is one now.
    let (ino, name, value) = (made.ino, b"security.capability".to_vec(), b"x".to_vec());
    let op = Op::SetXattr { ino, name, value, how: XattrHow::Set };
    let attr = Some(Attr { flags: Attr::XATTRS, ..made.clone() });
    let outcome = Outcome { attr, gone: None, other: None, time: made.ctime };
    let core = &client.core;
    let recalls = site.service.recalls();
    core.changed(recalls, core.cache.since(recalls), &[(&op, &outcome, LeaseMode::None)]);
    assert_eq!((get(b"security.capability"), site.asked()), (Err(Refusal::Stale), 1));
}

#[test]
fn pending_operation_is_not_earlier_than_changes_of_the_server() {
    let site = Site::new();
    let (made, _) = site.create("a");
    // The server's clock is ahead of its last time that is known here.
    let later = Time(made.ctime.0 + 3_600_000_000_000);
    let op = Op::Rmdir { parent: site.dir, name: name("d") };
    let outcome = Outcome { attr: None, gone: None, other: None, time: later };
    let core = &site.client.core;
    let recalls = site.service.recalls();
    core.changed(recalls, core.cache.since(recalls), &[(&op, &outcome, LeaseMode::None)]);
    let (next, _) = site.create("b");
    assert_eq!(site.queued(), ["file a 0", "file b 1"]);
    assert!(next.btime >= later, "{:?} {later:?}", next.btime);
}

#[test]
fn what_others_may_have_seen_is_written_by_asking() {
    type Ends = fn(&Site, Ino);
    let ends: [(&str, Ends); 4] = [
        ("recalled", |site, ino| site.client.handler.recall(ino, LeaseMode::Shared)),
        ("the directory is", |site, _| site.client.handler.recall(site.dir, LeaseMode::Shared)),
        ("linked", |site, ino| {
            let linked = site.client.link(&site.client.caller(), ino, Ino::ROOT, b"elsewhere");
            assert_eq!(linked.map(drop), Err(Refusal::Stale), "the operation never reached the server");
        }),
        ("moved", |site, _| {
            let (caller, how) = (site.client.caller(), RenameHow::Replace);
            let moved = site.client.rename(&caller, site.dir, b"a", Ino::ROOT, b"a", how);
            assert_eq!(moved, Err(Refusal::NotFound), "the operation never reached the server");
        }),
    ];
    for (what, end) in ends {
        let site = Site::new();
        let (made, fh) = site.create("a");
        end(&site, made.ino);
        site.asked();
        let written = site.client.write(&site.client.caller(), fh, 0, b"hello");
        let closed = written.and_then(|_| site.client.flush(fh));
        assert_eq!(closed, Err(Refusal::Stale), "{what}: the operation never reached the server");
        assert_eq!(site.queued(), ["file a 0"], "{what}");
        assert!(site.asked() > 0, "{what}");
    }
}

#[test]
fn what_is_large_is_written_by_asking() {
    let site = Site::new();
    let (_, fh) = site.create("large");
    site.write(fh, 0, &[7; 100_000]);
    assert_eq!(site.client.flush(fh), Err(Refusal::Stale), "the operation never reached the server");
    assert_eq!(site.queued(), ["file large 0"]);
}

#[test]
fn what_was_made_is_removed_and_made_again_without_a_question() {
    let site = Site::new();
    let caller = site.client.caller();
    let lookup = || site.client.lookup(&caller, site.dir, b"a").expect("known");
    for n in 0..3 {
        let (made, fh) = site.create("a");
        site.write(fh, 0, b"hello");
        site.client.release(fh).expect("closed");
        assert!(matches!(lookup(), Lookup::Found { attr, .. } if attr.ino == made.ino));
        site.client.unlink(&caller, site.dir, b"a").expect("removed");
        assert!(matches!(lookup(), Lookup::Absent { .. }));
        assert_eq!(site.queued(), [format!("file a {n}"), format!("write 5 {n}"), "unlink a".to_owned()]);
    }
    // An open file stays usable.
    let (_, fh) = site.create("a");
    site.write(fh, 0, b"hello");
    site.client.unlink(&caller, site.dir, b"a").expect("removed");
    assert_eq!(site.client.read(fh, 0, 9).expect("read"), b"hello");
    assert_eq!(site.queued(), ["file a 3", "unlink a"]);
    assert_eq!(site.asked(), 0);
    assert_eq!(site.client.unlink(&caller, site.dir, b"a"), Err(Refusal::NotFound), "the server says so");
}

/// Something in a directory that was there before, and whether it is removed without a question.
#[test]
fn what_was_there_is_removed_without_a_question_if_nothing_else_is_to_be_known() {
    type Before = fn(&Site, Ino);
    let nothing: Before = |_, _| {};
    let cases: [(&str, bool, Before); 5] = [
        ("a file", true, nothing),
        ("a file with another name", false, |site, dir| {
            let answer = site.inside(Op::Link { ino: site.there(dir), parent: Ino::ROOT, name: name("b") });
            assert!(answer.is_ok());
        }),
        ("a file that is recalled", false, |site, dir| {
            site.client.list("there").expect("listed");
            site.client.handler.recall(site.there(dir), LeaseMode::Shared);
        }),
        ("a file of a directory that is recalled", false, |site, dir| {
            site.client.list("there").expect("listed");
            site.client.core.write_behind.of(dir).asked_change(dir);
            let _ = site.client.mkdir(&site.client.caller(), dir, b"first", Mode(0o755)).expect("made");
            site.client.handler.recall(dir, LeaseMode::Shared);
        }),
        ("while something is moved", false, |site, dir| {
            let (from_name, to_name) = (name("x"), name("y"));
            let op = Op::Rename { from: dir, from_name, to: dir, to_name, how: RenameHow::Replace };
            let pause = site.client.core.write_behind.pause_for(&Call::Op { op, open: false });
            std::mem::forget(pause);
        }),
    ];
    for (what, without, before) in cases {
        let site = Site::new();
        let made = site.inside(Op::Make {
            parent: Ino::ROOT,
            name: name("there"),
            make: Make::Dir,
            mode: Mode(0o755),
        });
        let dir = made.expect("made").attr.expect("made").ino;
        let make = Make::File { content: b"hello".to_vec() };
        site.inside(Op::Make { parent: dir, name: name("a"), make, mode: Mode(0o644) }).expect("made");
        if what != "a file that is recalled" {
            before(&site, dir);
            site.client.list("there").expect("listed");
        } else {
            before(&site, dir);
        }
        site.queued();
        site.asked();
        site.client.unlink(&site.client.caller(), dir, b"a").expect("removed");
        assert_eq!(site.queued(), if without { vec!["unlink a"] } else { vec![] }, "{what}");
        assert_eq!(site.asked() == 0, without, "{what}");
    }
}

#[test]
fn server_refuses_removals_without_permission() {
    let site = Site::new();
    let caller = site.client.caller();
    let change = AttrChange { mode: Some(Mode(0o1777)), ..AttrChange::default() };
    site.client.setattr(&caller, site.dir, change, None).expect("changed");
    site.client.list("dir").expect("listed");
    let (_, fh) = site.create("a");
    site.client.release(fh).expect("closed");
    let stranger = Caller { uid: 12_345, gid: 12_345, groups: caller.groups };
    let made = site.client.mknod(&stranger, site.dir, b"theirs", Kind::File, Mode(0o644), 0).expect("made");
    assert_eq!((made.attr.uid, made.attr.gid), (12_345, 12_345));
    assert_eq!(site.queued(), ["file a 0", "file theirs 1"]);
    site.asked();
    let removed = site.client.unlink(&stranger, site.dir, b"a");
    assert_eq!(
        (removed, site.asked()),
        (Err(Refusal::NotFound), 1),
        "asked, and the operation never reached the server"
    );
    site.client.unlink(&stranger, site.dir, b"theirs").expect("removed");
    assert_eq!(site.queued(), ["unlink theirs"]);
}

#[test]
fn a_tree_is_unpacked_all_the_way_down_without_a_question() {
    let site = Site::new();
    let caller = site.client.caller();
    let mut dir = site.dir;
    for depth in 0..4u64 {
        let made = site.client.mkdir(&caller, dir, b"down", Mode(0o750)).expect("made").attr;
        assert_eq!((made.kind, made.nlink, made.size, made.parent), (Kind::Dir, 2, 0, dir));
        assert_eq!((made.mode, made.uid), (Mode(0o750), caller.uid));
        dir = made.ino;
        let link = site.client.symlink(&caller, dir, b"link", b"to/where").expect("made").attr;
        assert_eq!((link.kind, link.mode, link.size, link.parent), (Kind::Symlink, Mode(0o777), 8, dir));
        let (_, fh) = site.create_in(dir, "file");
        site.write(fh, 0, b"hello");
        site.client.release(fh).expect("closed");
        site.client.unlink(&caller, dir, b"link").expect("removed");
        let n = depth * 3;
        let expected = [
            format!("dir down {n}"),
            format!("symlink link {}", n + 1),
            format!("file file {}", n + 2),
            format!("write 5 {}", n + 2),
            "unlink link".to_owned(),
        ];
        assert_eq!(site.queued(), expected);
        assert_eq!(site.asked(), 0);
    }
    // Whether a group's bit stays is decided by the rules of the server, too.
    let odd = site.client.mkdir(&caller, dir, b"odd", Mode(0o2750)).expect("made").attr;
    assert_eq!((odd.mode, site.asked()), (Mode(0o2750), 0));
    assert_eq!(site.queued(), ["dir odd 12"]);
    assert_eq!(site.client.symlink(&caller, dir, b"empty", b"").map(drop), Err(Refusal::Stale));
    let long = site.client.symlink(&caller, dir, b"long", &[b'x'; 5_000]).map(drop);
    assert_eq!((long, site.asked()), (Err(Refusal::Stale), 2), "the server says why not");
    assert_eq!(site.queued(), [""; 0]);
}

#[test]
fn operation_that_nobody_waits_for_ends_no_write_behind_for_long() {
    let site = Site::new();
    let (_, fh) = site.create("a");
    site.client.release(fh).expect("closed");
    site.queued();
    let (from_name, to_name) = (name("x"), name("y"));
    let op = Op::Rename { from: site.dir, from_name, to: site.dir, to_name, how: RenameHow::Replace };
    *site.service.is_slow.lock() = true;
    drop(site.client.service().start(&Cred::ROOT, Call::Op { op, open: false }));
    let make = |n: u64| {
        let (caller, name) = (site.client.caller(), format!("f{n}"));
        let made = site.client.mknod(&caller, site.dir, name.as_bytes(), Kind::File, Mode(0o644), 0);
        assert!(made.is_ok());
        site.queued().len()
    };
    assert_eq!(make(0), 0, "it may still be carried out");
    *site.service.is_slow.lock() = false;
    site.service.changed.notify_all();
    let mut n = 1;
    while make(n) == 0 {
        std::thread::yield_now();
        n += 1;
    }
}
