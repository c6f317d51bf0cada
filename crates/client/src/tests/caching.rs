//! The cache learns only what it may, from answers that were overtaken too, and saves messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chiton_model::{AttrChange, Make, Op, Outcome};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Name, Position, Refusal, SessionId, Time};
use chiton_wire::{Answer, Call, LeaseMode};

use super::fake_server::attr;
use super::near::Near;
use crate::cache::Cache;
use crate::complete_dirs::Part;
use crate::data::{BlockIo, DirectBlocks};
use crate::{
    CallError, Client, ClientOptions, Connection, Durability, Lookup, PlateInodes, PlateLookup, Recalls,
    Service, Session, Underway,
};

const DIR: Ino = Ino(1);

fn name(s: &str) -> Name {
    Name::try_from(s).expect("a name")
}

fn leased() -> (Cache, Recalls) {
    let (cache, recalls) = (Cache::new(100, Arc::default(), true), Recalls::default());
    let since = cache.since(&recalls);
    cache.learn_dir(&recalls, since, DIR, true, true);
    (cache, recalls)
}

fn make(s: &str) -> Op {
    Op::Make { parent: DIR, name: name(s), make: Make::File { content: Vec::new() }, mode: Mode(0o644) }
}

fn made(ino: u64) -> Outcome {
    Outcome { attr: Some(attr(Ino(ino))), gone: None, other: None, time: Time(0) }
}

#[test]
fn names_are_believed_under_a_lease_until_it_is_recalled() {
    let (cache, recalls) = leased();
    let since = cache.since(&recalls);
    cache.learn_name(&recalls, since, DIR, &name("a"), Some(Ino(7)));
    cache.learn_name(&recalls, since, DIR, &name("b"), None);
    cache.learn_name(&recalls, since, Ino(2), &name("a"), Some(Ino(8)));
    assert_eq!(cache.name(DIR, &name("a")), Some((Some(Ino(7)), true)));
    assert_eq!(cache.name(DIR, &name("b")), Some((None, true)));
    assert_eq!(cache.name(Ino(2), &name("a")), None, "no lease on that directory");
    recalls.note(DIR);
    cache.recalled(DIR);
    assert_eq!(cache.name(DIR, &name("a")), None);
    // A new lease does not revive what was learned under the old one.
    cache.learn_dir(&recalls, cache.since(&recalls), DIR, true, true);
    assert_eq!(cache.name(DIR, &name("b")), None);
}

#[test]
fn an_answer_that_a_recall_overtook_teaches_nothing() {
    let (cache, recalls) = (Cache::new(100, Arc::default(), true), Recalls::default());
    let since = cache.since(&recalls);
    recalls.note(DIR);
    cache.recalled(DIR);
    cache.learn_dir(&recalls, since, DIR, true, true);
    cache.learn_name(&recalls, since, DIR, &name("a"), None);
    assert_eq!(cache.name(DIR, &name("a")), None);
    assert!(!cache.is_open(DIR));
    let since = cache.since(&recalls);
    recalls.note(Ino(7));
    cache.learn_attr(&recalls, since, &attr(Ino(7)), LeaseMode::Shared);
    assert_eq!(cache.attr(Ino(7)), None);
}

#[test]
fn own_changes_are_known_at_once_and_beat_answers_that_were_under_way() {
    let (cache, recalls) = leased();
    let asked = cache.since(&recalls);
    let since = cache.since(&recalls);
    cache.changed(&recalls, since, [(&make("a"), &made(7), LeaseMode::Exclusive)].into_iter());
    assert_eq!(cache.name(DIR, &name("a")), Some((Some(Ino(7)), true)));
    assert!(cache.attr(Ino(7)).is_some());
    cache.learn_name(&recalls, asked, DIR, &name("a"), None);
    assert_eq!(cache.name(DIR, &name("a")), Some((Some(Ino(7)), true)), "that lookup was before");
    // Two changes of one name, answered in the wrong order: ask.
    let (first, second) = (cache.since(&recalls), cache.since(&recalls));
    let unlink = Op::Unlink { parent: DIR, name: name("a") };
    cache.changed(&recalls, second, [(&unlink, &Outcome::default(), LeaseMode::None)].into_iter());
    cache.changed(&recalls, first, [(&make("a"), &made(8), LeaseMode::Exclusive)].into_iter());
    assert_eq!(cache.name(DIR, &name("a")), None);
    // A name that is unlinked is known to be absent, and its directory has other times.
    let since = cache.since(&recalls);
    cache.learn_attr(&recalls, since, &attr(DIR), LeaseMode::Shared);
    cache.changed(&recalls, since, [(&unlink, &Outcome::default(), LeaseMode::None)].into_iter());
    assert_eq!(cache.name(DIR, &name("a")), Some((None, true)));
    assert_eq!(cache.attr(DIR), None);
    // The operations of one call do not doubt each other.
    let since = cache.since(&recalls);
    let (x, y) = (make("x"), make("y"));
    let (made_x, made_y) = (made(20), made(21));
    let batch = [(&x, &made_x, LeaseMode::None), (&y, &made_y, LeaseMode::None)];
    cache.changed(&recalls, since, batch.into_iter());
    assert_eq!(cache.name(DIR, &name("y")), Some((Some(Ino(21)), true)));
    // Search rights may have changed: ask who may search.
    let change = AttrChange { mode: Some(Mode(0o700)), ..AttrChange::default() };
    let chmod = Op::SetAttr { ino: DIR, change };
    cache.changed(&recalls, cache.since(&recalls), [(&chmod, &made(DIR.0), LeaseMode::Shared)].into_iter());
    assert!(!cache.is_open(DIR));
    assert_eq!(cache.name(DIR, &name("a")), None);
}

fn mkdir(ino: u64, mode: u16) -> (Op, Outcome) {
    let op = Op::Make { parent: DIR, name: name("dir"), make: Make::Dir, mode: Mode(mode) };
    let attr = Attr { kind: Kind::Dir, mode: Mode(mode), ..attr(Ino(ino)) };
    (op, Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) })
}

fn make_in(parent: Ino, s: &str) -> Op {
    Op::Make { parent, name: name(s), make: Make::File { content: Vec::new() }, mode: Mode(0o644) }
}

/// An operation from its question to its answer.
fn done(cache: &Cache, recalls: &Recalls, op: &Op, outcome: &Outcome, lease: LeaseMode) {
    let ops = std::slice::from_ref(op);
    cache.begins(ops);
    cache.changed(recalls, cache.since(recalls), [(op, outcome, lease)].into_iter());
    cache.ended(ops, |_| true);
}

#[test]
fn in_a_directory_that_was_made_here_every_other_name_is_absent() {
    const NEW: Ino = Ino(50);
    let absent = Some((None, true));
    let (cache, recalls) = leased();
    let (op, outcome) = mkdir(NEW.0, 0o755);
    assert_eq!(cache.name(NEW, &name("a")), None);
    done(&cache, &recalls, &op, &outcome, LeaseMode::Shared);
    assert_eq!(cache.name(NEW, &name("a")), absent);
    // From the question on: others may see it before we have the answer.
    let a = make_in(NEW, "a");
    cache.begins(std::slice::from_ref(&a));
    assert_eq!(cache.name(NEW, &name("a")), None);
    assert_eq!(cache.name(NEW, &name("b")), absent);
    let since = cache.since(&recalls);
    cache.changed(&recalls, since, [(&a, &made(51), LeaseMode::Exclusive)].into_iter());
    cache.ended(&[a], |_| true);
    assert_eq!(cache.name(NEW, &name("a")), Some((Some(Ino(51)), true)));
    let renamed = |to: &str| Op::Rename {
        from: DIR,
        from_name: name("f"),
        to: NEW,
        to_name: name(to),
        how: chiton_model::RenameHow::Replace,
    };
    done(&cache, &recalls, &renamed("c"), &made(52), LeaseMode::None);
    let link = Op::Link { ino: Ino(52), parent: NEW, name: name("d") };
    cache.begins(&[link]);
    for (s, expect) in [("b", absent), ("c", None), ("d", None)] {
        assert_eq!(cache.name(NEW, &name(s)), expect, "{s}");
    }
    // One who may not search is answered by the server, and so is everybody after the lease was given back.
    recalls.note(NEW);
    cache.recalled(NEW);
    cache.learn_dir(&recalls, cache.since(&recalls), NEW, true, true);
    assert_eq!(cache.name(NEW, &name("b")), None);
    let (op, outcome) = mkdir(60, 0o700);
    done(&cache, &recalls, &op, &outcome, LeaseMode::Shared);
    assert_eq!(cache.name(Ino(60), &name("a")), Some((None, false)));
}

/// A rename between plates leaves its client the leases on both directories. Until it is answered the others may see it first.
#[test]
fn what_a_rename_changes_is_not_answered_from_the_cache_meanwhile() {
    const TO: Ino = Ino(50);
    let (cache, recalls) = leased();
    let learn = |dir, of: &str, ino| {
        let since = cache.since(&recalls);
        cache.learn_dir(&recalls, since, dir, true, true);
        cache.learn_name(&recalls, since, dir, &name(of), ino);
    };
    learn(DIR, "x", Some(Ino(51)));
    learn(DIR, "other", Some(Ino(52)));
    learn(TO, "y", None);
    let how = chiton_model::RenameHow::Replace;
    let op = Op::Rename { from: DIR, from_name: name("x"), to: TO, to_name: name("y"), how };
    let ops = std::slice::from_ref(&op);
    let before = cache.since(&recalls);
    cache.begins(ops);
    cache.begins(ops);
    for round in ["two", "one"] {
        // Also an answer that comes meanwhile may be of before.
        cache.learn_name(&recalls, before, TO, &name("y"), None);
        learn(TO, "y", None);
        learn(DIR, "x", Some(Ino(51)));
        assert_eq!(cache.name(DIR, &name("x")), None, "{round} under way");
        assert_eq!(cache.name(TO, &name("y")), None, "{round} under way");
        assert_eq!(cache.name(DIR, &name("other")), Some((Some(Ino(52)), true)));
        cache.changed(&recalls, cache.since(&recalls), [(&op, &made(51), LeaseMode::None)].into_iter());
        cache.ended(ops, |_| true);
    }
    cache.learn_name(&recalls, before, TO, &name("y"), None);
    assert_eq!(cache.name(TO, &name("y")), None, "an answer of before");
    learn(TO, "y", Some(Ino(51)));
    assert_eq!(cache.name(TO, &name("y")), Some((Some(Ino(51)), true)));
    // One that its caller gave up may be carried out at any time.
    cache.begins(ops);
    cache.ended(ops, |_| false);
    learn(TO, "y", None);
    learn(DIR, "x", Some(Ino(51)));
    assert_eq!((cache.name(DIR, &name("x")), cache.name(TO, &name("y"))), (None, None));
}

#[test]
fn a_directory_is_known_wholly_only_by_an_answer_that_nothing_overtook() {
    const NEW: Ino = Ino(50);
    let (op, outcome) = mkdir(NEW.0, 0o755);
    let check = |what: &str, lease, meanwhile: &dyn Fn(&Cache, &Recalls)| {
        let (cache, recalls) = leased();
        cache.begins(std::slice::from_ref(&op));
        let since = cache.since(&recalls);
        meanwhile(&cache, &recalls);
        cache.changed(&recalls, since, [(&op, &outcome, lease)].into_iter());
        cache.learn_dir(&recalls, cache.since(&recalls), NEW, true, true);
        cache.name(NEW, &name("x")).map(|known| assert_eq!(known, (None, true), "{what}")).is_some()
    };
    let x = make_in(NEW, "x");
    let nothing = |_: &Cache, _: &Recalls| {};
    assert!(check("nothing", LeaseMode::Shared, &nothing));
    assert!(!check("no lease", LeaseMode::None, &nothing));
    assert!(!check("recalled", LeaseMode::Shared, &|cache, recalls| {
        recalls.note(NEW);
        cache.recalled(NEW);
    }));
    // Another thread has looked it up, and makes something there.
    assert!(!check("being changed", LeaseMode::Shared, &|cache, _| cache.begins(std::slice::from_ref(&x))));
    assert!(!check("changed", LeaseMode::Shared, &|cache, recalls| {
        done(cache, recalls, &x, &made(51), LeaseMode::None);
    }));
}

#[test]
fn a_directory_that_was_listed_to_its_end_is_known_wholly() {
    let entries = [("a", 10), ("b", 20), ("c", 30)].map(|(s, cookie)| (name(s), cookie));
    // Listed in parts: from which cookie on, how many, the last.
    type Parts<'a> = &'a [(u64, usize, usize, bool)];
    let check = |what: &str, parts: Parts<'_>, between: &dyn Fn(&Cache, &Recalls), whole: bool| {
        let (cache, recalls) = leased();
        for (n, &(cookie, from, to, end)) in parts.iter().enumerate() {
            if n > 0 {
                between(&cache, &recalls);
            }
            let since = cache.since(&recalls);
            let mut names = entries[from..to].iter().map(|(name, cookie)| (name, *cookie));
            cache.listed(&recalls, DIR, Part { since, cookie, names: &mut names, end });
        }
        cache.learn_dir(&recalls, cache.since(&recalls), DIR, true, true);
        let expect = |known: bool| if whole && !known { Some((None, true)) } else { None };
        for (s, known) in [("a", true), ("b", true), ("c", true), ("x", false)] {
            assert_eq!(cache.name(DIR, &name(s)), expect(known), "{what}: {s}");
        }
    };
    let nothing = |_: &Cache, _: &Recalls| {};
    check("at once", &[(0, 0, 3, true)], &nothing, true);
    check("in parts", &[(0, 0, 1, false), (10, 1, 2, false), (20, 2, 3, true)], &nothing, true);
    check("in parts that overlap", &[(0, 0, 2, false), (10, 1, 2, false), (20, 2, 3, true)], &nothing, true);
    check("not to the end", &[(0, 0, 1, false), (10, 1, 3, false)], &nothing, false);
    check("not from the start", &[(10, 1, 3, true)], &nothing, false);
    check("with a gap", &[(0, 0, 1, false), (20, 2, 3, true)], &nothing, false);
    check("twice from the start", &[(0, 0, 1, false), (0, 0, 3, true)], &nothing, true);
    let parts: Parts<'_> = &[(0, 0, 1, false), (10, 1, 3, true)];
    check(
        "given back meanwhile",
        parts,
        &|cache, recalls| {
            recalls.note(DIR);
            cache.recalled(DIR);
            cache.learn_dir(recalls, cache.since(recalls), DIR, true, true);
        },
        false,
    );
    check(
        "changed here meanwhile",
        parts,
        &|cache, recalls| {
            done(cache, recalls, &make("y"), &made(9), LeaseMode::None);
            cache.recalled(Ino(9));
        },
        false,
    );
    check("being changed here", parts, &|cache, _| cache.begins(&[make("y")]), false);
    check(
        "void",
        parts,
        &|cache, recalls| {
            recalls.note_all();
            cache.void(&PlateInodes::all());
        },
        false,
    );
}

#[test]
fn names_of_whole_directories_are_noted_within_a_limit() {
    let (cache, recalls) = (Cache::new(10, Arc::default(), true), Recalls::default());
    for ino in 50..60 {
        let (op, outcome) = mkdir(ino, 0o755);
        done(&cache, &recalls, &op, &outcome, LeaseMode::Shared);
        assert_eq!(cache.name(Ino(ino), &name("a")), Some((None, true)));
    }
    done(&cache, &recalls, &make_in(Ino(59), "b"), &made(70), LeaseMode::None);
    for ino in 50..60 {
        assert_eq!(cache.name(Ino(ino), &name("a")), None, "too much: all is forgotten");
    }
    let none = Cache::new(0, Arc::default(), true);
    let (op, outcome) = mkdir(50, 0o755);
    done(&none, &recalls, &op, &outcome, LeaseMode::Shared);
    assert_eq!(none.name(Ino(50), &name("a")), None, "asking is as good");
}

/// A server in this process that is treated as one far away, and counts what it is asked.
struct Counting {
    inner: Near,
    asked: AtomicUsize,
}

impl Service for Counting {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.inner.call(cred, call)
    }
    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.inner.start(cred, call)
    }
}

impl Session for Counting {
    fn session(&self, _ino: Ino) -> SessionId {
        self.inner.session(Ino::ROOT)
    }
    fn closed(&self, ino: Ino) {
        self.inner.closed(ino);
    }
    fn valid_until(&self, _ino: Ino) -> Duration {
        Duration::MAX
    }
    fn recalls(&self) -> &Recalls {
        self.inner.recalls()
    }
}

impl Durability for Counting {
    fn durable(&self) -> Position {
        self.inner.durable()
    }
    fn commit(&self, upto: Position) -> Result<(), Refusal> {
        self.inner.commit(upto)
    }
}

impl PlateLookup for Counting {}

impl Connection for Counting {
    fn is_embedded(&self) -> bool {
        false
    }
}

fn counting(server: &Arc<Server>) -> (Client, Arc<Counting>) {
    let inner = Near::begin(server, "counted");
    let service = Arc::new(Counting { inner, asked: AtomicUsize::new(0) });
    let blocks: Arc<dyn BlockIo> = Arc::new(DirectBlocks::new(server.objects()));
    let client =
        Client::over(service.clone(), &service.inner.inbox, Some(blocks), 1, ClientOptions::default());
    (client, service)
}

#[test]
fn what_is_known_costs_no_message_until_another_changes_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let world: SharedWorld = Arc::new(RealWorld);
    let data = dir.path().join("data");
    let owner = FormatOptions { uid: rustix::process::geteuid().as_raw(), ..FormatOptions::default() };
    Server::format(&data, &owner, &world).expect("formatted");
    let server = Server::start(&data, ServerOptions::default(), world).expect("started");
    let ((here, count), (there, _)) = (counting(&server), counting(&server));
    here.mkdir_all("dir").expect("made");
    there.create_file("dir/file", b"content").expect("made");
    let look = |what: &str| {
        let before = count.asked.load(Ordering::Relaxed);
        let (found, none) = (here.stat("dir/file").map(|attr| attr.mode.0), here.stat("dir/none").map(drop));
        let dir = here.stat("dir").expect("there").ino;
        let lookup = here.lookup(&here.caller(), dir, b"none").expect("asked");
        let asked = count.asked.load(Ordering::Relaxed) - before;
        assert_eq!(matches!(lookup, Lookup::Absent { .. }), none == Err(Refusal::NotFound), "{what}");
        (found, none, asked)
    };
    // Leases that were fought over are given again after a moment.
    let settled = |what: &str| loop {
        for name in ["dir", "file", "none"] {
            let parent = if name == "dir" { Ino::ROOT } else { here.stat("dir").expect("there").ino };
            here.lookup(&here.caller(), parent, name.as_bytes()).expect("asked");
        }
        let (found, none, asked) = look(what);
        if asked == 0 {
            return (found, none);
        }
        std::thread::yield_now();
    };
    assert_eq!(settled("at first"), (Ok(0o644), Err(Refusal::NotFound)));
    assert_eq!(look("again"), (Ok(0o644), Err(Refusal::NotFound), 0));
    there.create_file("dir/none", b"").expect("made");
    assert_eq!(look("a name came").1, Ok(()));
    assert_eq!(settled("a name came"), (Ok(0o644), Ok(())));
    let file = there.stat("dir/file").expect("there").ino;
    let change = AttrChange { mode: Some(Mode(0o600)), ..AttrChange::default() };
    there.setattr(&there.caller(), file, change, None).expect("changed");
    assert_eq!(look("a mode changed").0, Ok(0o600));
    there.remove("dir/file").expect("removed");
    there.remove("dir/none").expect("removed");
    assert_eq!(look("names went").0, Err(Refusal::NotFound));
    assert_eq!(settled("names went"), (Err(Refusal::NotFound), Err(Refusal::NotFound)));
    // In a directory of one's own no name is asked about before it is made, until another client makes one.
    let own = here.mkdir(&here.caller(), Ino::ROOT, b"own", Mode(0o755)).expect("made").attr.ino;
    let absent = |name: &str| {
        let before = count.asked.load(Ordering::Relaxed);
        let found = here.lookup(&here.caller(), own, name.as_bytes()).expect("asked");
        (matches!(found, Lookup::Absent { .. }), count.asked.load(Ordering::Relaxed) - before)
    };
    for name in ["one", "two"] {
        assert_eq!(absent(name), (true, 0), "before it is made");
        here.create_file(format!("own/{name}"), b"").expect("made");
        assert_eq!(absent(name), (false, 0), "afterwards");
    }
    there.create_file("own/three", b"").expect("made");
    assert_eq!(absent("three"), (false, 1), "somebody else came");
    loop {
        let (listed, end) = here.readdir(&here.caller(), own, 0, 100, false).expect("listed");
        assert!(end && listed.len() == 3);
        // A lease that was fought over is given again after a moment.
        if absent("four") == (true, 0) && absent("five") == (true, 0) {
            break;
        }
        std::thread::yield_now();
    }
    there.create_file("own/five", b"").expect("made");
    assert_eq!(absent("five"), (false, 1), "and came again");
    drop((here, there));
    server.shutdown().expect("shut down");
}
