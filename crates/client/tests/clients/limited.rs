//! Clients whose certificate is limited to a subtree: honest ones, and hostile ones that name inodes outside of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chiton_auth::{Access, Authority, Credentials, Grant, Subtree, Validity};
use chiton_client::{CallError, Client, ClientOptions, OpenFlags};
use chiton_model::field::Variants;
use chiton_model::{AttrChange, Body, Extent, Hold, Make, Op, RenameHow, XattrHow};
use chiton_runtime::sync::Mutex;
use chiton_runtime::{RealWorld, SharedWorld, thread};
use chiton_server::{FormatOptions, Server, ServerOptions, Trust};
use chiton_transport::{Address, CONNECT_TIMEOUT, Connection, OpenError};
use chiton_types::{BlockId, Cred, Ino, Mode, Name, PlateId, Position, RealmId, Refusal, SessionId, Time};
use chiton_wire::{
    Acknowledged, Answer, Call, Channel, Content, Hello, LeaseMode, Lock, LockKind, PROTOCOL_VERSION, Query,
    RealmCall, RefuseReason, Stat, StatTarget, Welcome,
};

/// How often something is looked for that must come, and the time between.
const LOOKS: usize = 300;
const PAUSE: Duration = Duration::from_millis(20);
const NOBODY: SessionId = SessionId(0);

/// A server with TLS, and an authority for its clients.
struct Fort {
    dir: tempfile::TempDir,
    authority: Authority,
    trust: Arc<Trust>,
    server: Mutex<Option<Arc<Server>>>,
    address: Address,
}

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

fn issue(authority: &Authority, name: &str, grant: &Grant) -> Credentials {
    let validity = Validity { now: world().now().0.div_euclid(1_000_000_000), days: 1 };
    let serial = u128::from(world().random()) << 8;
    let issued = authority.issue(name, grant, validity, serial).expect("a certificate");
    Credentials::from_pem(&issued.identity).expect("an identity")
}

impl Fort {
    fn new(plates: u16) -> Fort {
        let dir = tempfile::tempdir().expect("a directory");
        let user = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid: user, plates, ..FormatOptions::default() };
        Server::format(&dir.path().join("data"), &options, &world()).expect("formatted");
        let authority =
            Authority::init(&dir.path().join("authority"), 1_700_000_000, 1).expect("an authority");
        let trust = Arc::new(Trust::new(issue(&authority, "server", &Grant::Server)));
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let address = format!("tcp:{free}").parse().expect("an address");
        let fort = Fort { dir, authority, trust, server: Mutex::default(), address };
        fort.start();
        fort
    }

    fn start(&self) {
        let options = ServerOptions {
            log: Arc::new(|line| println!("server: {line}")),
            trust: Some(self.trust.clone()),
            ..ServerOptions::default()
        };
        let data: PathBuf = self.dir.path().join("data");
        let server = Server::start(&data, options, world()).expect("started");
        server.serve(std::slice::from_ref(&self.address)).expect("listening");
        *self.server.lock() = Some(server);
    }

    fn kill(&self) {
        let server = self.server.lock().take().expect("running");
        server.abandon();
    }

    fn credentials(&self, access: Access, path: &str) -> Credentials {
        let grant = match path {
            "/" => Grant::Client(access),
            path => Grant::Below(access, Subtree::new(path).expect("a path")),
        };
        issue(&self.authority, "alice", &grant)
    }

    fn try_client(&self, access: Access, path: &str) -> Result<Client, String> {
        let options = ClientOptions {
            credentials: Some(self.credentials(access, path)),
            timeout: Some(Duration::from_secs(30)),
            ..ClientOptions::default()
        };
        Client::connect(&self.address, options).map_err(|e| e.to_string())
    }

    fn client(&self, path: &str) -> Client {
        self.try_client(Access::ReadWrite, path).expect("connected")
    }

    /// Waits until the refusals have such a line.
    fn await_refusal(&self, text: &str) {
        let mut lines = Vec::new();
        for _ in 0..LOOKS {
            lines.extend(self.trust.take_refusals());
            if lines.iter().any(|line| line.contains(text)) {
                return;
            }
            thread::sleep(PAUSE);
        }
        panic!("no {text:?} in {lines:?}");
    }
}

fn names(client: &Client, path: &str) -> Vec<String> {
    client.list(path).expect("listed").iter().map(|entry| entry.name.to_string()).collect()
}

fn symlink(client: &Client, dir: Ino, name: &str, target: &str) {
    client.symlink(&client.caller(), dir, name.as_bytes(), target.as_bytes()).expect("made");
}

/// The server's answer to a call that this client's own checks would not send.
fn ask(client: &Client, call: Call) -> Result<Answer, Refusal> {
    client.service().call(&Cred::ROOT, call).map_err(|error| match error {
        CallError::Refused(refusal) => refusal,
        CallError::NeedGroups => panic!("root has no groups"),
    })
}

/// The subtree of one client, and files beside it.
fn furnish(root: &Client) -> (Ino, Ino) {
    let home = root.mkdir_all("/home/alice").expect("made").ino;
    for n in 0..8 {
        root.mkdir_all(format!("/home/alice/dir-{n}/sub")).expect("made");
    }
    root.create_file("/home/alice/file", b"content").expect("made");
    root.create_file("/home/alice/dir-1/sub/deep", &[7; 300_000]).expect("made");
    root.mkdir_all("/secret/dir").expect("made");
    root.create_file("/secret/key", &[9; 300_000]).expect("made");
    symlink(root, home, "link", "/file");
    symlink(root, home, "up", "../../secret/key");
    root.sync().expect("durable");
    (home, root.stat("/secret/key").expect("there").ino)
}

#[test]
fn subtree_is_the_root_of_a_limited_client() {
    for plates in [1, 3] {
        let fort = Fort::new(plates);
        let root = fort.client("/");
        let (home, _) = furnish(&root);
        let alice = fort.client("/home/alice");
        assert_eq!(alice.root(), home);
        let seen: BTreeSet<String> = names(&alice, "/").into_iter().collect();
        assert_eq!(seen, names(&root, "/home/alice").into_iter().collect());
        assert_eq!(alice.stat("/").expect("there").parent, home, "nothing is above");
        for path in ["/..", "/dir-1/../..", "/dir-1/sub/../../../../..", "."] {
            assert_eq!(alice.stat(path).expect(path).ino, home, "{path}");
        }
        assert_eq!(alice.read_file("/link").expect("begins at the root"), b"content");
        assert_eq!(alice.read_file("/dir-3/sub/../../../link").expect("the same"), b"content");
        for path in ["/up", "/secret/key", "/../secret/key", "/../../secret"] {
            assert_eq!(alice.stat(path), Err(Refusal::NotFound), "{path}");
        }
        assert_eq!(alice.read_file("/dir-1/sub/deep").expect("through the server"), [7; 300_000]);
        for n in 0..8 {
            alice.mkdir_all(format!("/dir-{n}/new/more")).expect("made");
            alice.write_file(format!("/dir-{n}/new/more/mine"), &[n; 200_000]).expect("written");
            alice
                .rename_path(format!("/dir-{n}/new/more/mine"), format!("/dir-{}/sub/mine", 7 - n))
                .expect("moved");
            root.read_file(format!("/home/alice/dir-{}/sub/mine", 7 - n)).expect("seen by others");
        }
        let other = fort.client("/home/alice");
        assert_eq!(other.read_file("/dir-7/sub/mine").expect("read"), [0; 200_000]);
        assert!(other.statfs().expect("answered").inodes_used > 0);
        for what in ["status", "df", "policies"] {
            assert_eq!(other.admin(what), Err(Refusal::NotPermitted), "{what}");
        }
        let reader = fort.try_client(Access::Read, "/home/alice/dir-7").expect("connected");
        assert_eq!(reader.read_file("/sub/mine").expect("read"), [0; 200_000]);
        assert_eq!(reader.write_file("/sub/mine", b"x"), Err(Refusal::ReadOnly));
        assert_eq!(reader.mkdir_all("/x").map(drop), Err(Refusal::ReadOnly));
        assert_eq!(root.read_file("/home/alice/dir-7/sub/mine").expect("as it was"), [0; 200_000]);
    }
}

#[test]
fn path_must_be_of_directories() {
    for plates in [1, 3] {
        let fort = Fort::new(plates);
        let root = fort.client("/");
        let home = furnish(&root).0;
        symlink(&root, Ino::ROOT, "short", "home");
        symlink(&root, home, "here", "dir-1");
        for path in
            ["/home/bob", "/home/alice/file", "/short/alice", "/home/alice/here", "/home/alice/link/x"]
        {
            let why = fort.try_client(Access::ReadWrite, path).map(drop).expect_err(path);
            assert!(
                why.contains(&format!("limited to {path}")) && why.contains("no such directory"),
                "{why}"
            );
        }
        root.mkdir_all("/home/bob").expect("made");
        let bob = fort.client("/home/bob");
        assert_eq!(names(&bob, "/"), [""; 0]);
    }
}

// ---- hostile clients ------------------------------------------------------------------------------------

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Operations that touch an inode or a directory outside, each with a directory inside where it has two. `kind`: its variant.
fn operations(out_file: Ino, out_dir: Ino, inside: Ino) -> Vec<Op> {
    let how = RenameHow::Replace;
    let (from_name, to_name) = (name("dir"), name("stolen"));
    let make = |make| Op::Make { parent: out_dir, mode: Mode(0o600), name: name("x"), make };
    let body = Body::Inline(vec![1]);
    let block = BlockId { writer: 1, number: 1 };
    let extents = vec![Extent { offset: 0, len: 1, block, block_offset: 0, shared: false }];
    vec![
        make(Make::Dir),
        make(Make::File { content: vec![1] }),
        Op::Link { parent: inside, ino: out_file, name: name("x") },
        Op::Link { parent: out_dir, ino: inside, name: name("x") },
        Op::Unlink { parent: out_dir, name: name("key") },
        Op::Rmdir { parent: out_dir, name: name("dir") },
        Op::Rename { from: out_dir, to: inside, how, from_name: from_name.clone(), to_name: to_name.clone() },
        Op::Rename { from: inside, to: out_dir, how, from_name: name("file"), to_name: to_name.clone() },
        Op::Rename { from: out_dir, to: inside, how: RenameHow::Exchange, from_name, to_name: name("file") },
        Op::SetAttr {
            ino: out_file,
            change: AttrChange { mode: Some(Mode(0o777)), ..AttrChange::default() },
        },
        Op::Write { ino: out_file, size: 1, mtime: Time(1), kill_setid: false, hold: Hold::Exclusive, body },
        Op::Clone { from: out_file, from_offset: 0, to: inside, to_offset: 0, len: 1 },
        Op::Clone { from: inside, from_offset: 0, to: out_file, to_offset: 0, len: 1 },
        Op::Remap { ino: out_file, expected: Position(1), extents },
        Op::SetXattr { ino: out_file, how: XattrHow::Set, name: b"user.x".to_vec(), value: vec![1] },
        Op::SetXattr { ino: out_dir, how: XattrHow::Set, name: b"chiton.policy".to_vec(), value: vec![] },
        Op::RemoveXattr { ino: out_file, name: b"user.x".to_vec() },
        Op::Reclaim { ino: out_file },
        Op::MakeUnnamed { parent: out_dir, mode: Mode(0o600) },
        Op::LinkUnnamed { parent: inside, ino: out_file, name: name("x") },
        Op::SetFlags { ino: out_file, flags: 0 },
        Op::RemoveTree { parent: out_dir, name: name("dir"), ino: out_dir },
        Op::Split { dir: out_dir },
        Op::Fold { dir: out_dir },
    ]
}

fn questions(out_file: Ino, out_dir: Ino) -> Vec<Query> {
    vec![
        Query::Lookup { parent: out_dir, name: name("key") },
        Query::GetAttr { ino: out_file },
        Query::GetAttr { ino: out_dir },
        Query::Open { ino: out_file, want: 0, content: false },
        Query::Access { ino: out_file, want: 0 },
        Query::ReadDir { dir: out_dir, cookie: 0, entries_max: 10, plus: true, part_end: Some(0) },
        Query::Parts { dir: out_dir },
        Query::NameOf { dir: out_dir, ino: out_file },
        Query::ReadLink { ino: out_file },
        Query::GetXattr { ino: out_file, name: b"user.x".to_vec() },
        Query::GetXattr { ino: out_dir, name: b"chiton.policy".to_vec() },
        Query::ListXattr { ino: out_file },
        Query::Map { ino: out_file, offset: 0, len: 1 },
        Query::Resolve { from: out_dir, path: b"key".to_vec(), follow: true, sessions: vec![] },
        Query::Resolve { from: out_dir, path: b"..".to_vec(), follow: true, sessions: vec![] },
    ]
}

fn calls(out_file: Ino, out_dir: Ino) -> Vec<Call> {
    let lock = |ino, kind| Lock { ino, flock: false, owner: 1, start: 0, end: 9, kind, pid: 1 };
    let unnamed = RealmCall::Of { ino: out_dir };
    let decouple = RealmCall::Decouple {
        root: out_dir,
        branch: None,
        nonce: 1,
        journal_at: String::new(),
        policy: Vec::new(),
    };
    vec![
        Call::Lease { ino: out_file, mode: LeaseMode::Shared },
        Call::Lease { ino: out_file, mode: LeaseMode::Exclusive },
        Call::LeaseNames { dir: out_dir, numbers: 4 },
        Call::Grown { ino: out_file, size: 1, last: 1 },
        Call::SetLock { lock: lock(out_file, LockKind::Read), wait: false },
        Call::GetLock { lock: lock(out_file, LockKind::Write) },
        Call::Realm(Box::new(unnamed)),
        Call::Realm(Box::new(decouple)),
        Call::Realm(Box::new(RealmCall::List)),
        Call::Realm(Box::new(RealmCall::BecomeBranch { realm: RealmId(1), name: None })),
    ]
}

/// Calls that are looked at elsewhere in the test.
const ELSEWHERE: &[&str] = &["Op", "Batch", "WriteBehind", "Late", "Query", "Reopen", "GetBlock", "Admin"];
/// Calls that reach nothing beyond the client's own session.
const OWN: &[&str] = &["Commit", "Closed", "Ended", "CancelLock", "PutBlock", "Ping", "Bye"];

/// The variants of these values, by their names when printed.
fn variants<T: std::fmt::Debug>(of: &[T]) -> BTreeSet<String> {
    let first = |value: &T| {
        let text = format!("{value:?}");
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    };
    of.iter().map(first).collect()
}

fn all<T: Variants<T>>(but: &[&str]) -> BTreeSet<String> {
    let variants = T::VARIANTS.iter().filter(|variant| !but.contains(variant));
    variants.map(|variant| (*variant).to_owned()).collect()
}

#[test]
fn whatever_a_hostile_client_names_outside_is_refused() {
    for plates in [1, 3] {
        let fort = Fort::new(plates);
        let root = fort.client("/");
        let (home, out_file) = furnish(&root);
        let before = root.stat("/secret/key").expect("there");
        let alice = fort.client("/home/alice");
        let denied =
            |call: Call| assert_eq!(ask(&alice, call.clone()).map(drop), Err(Refusal::Access), "{call:?}");
        // A directory of each plate that is outside, and those above.
        let mut outside = vec![root.stat("/secret").expect("there").ino, Ino::ROOT];
        outside.push(root.stat("/home").expect("there").ino);
        for n in 0..6 * plates {
            outside.push(root.mkdir_all(format!("/beside-{n}")).expect("made").ino);
        }
        for out_dir in outside {
            let (ops, queries, calls) =
                (operations(out_file, out_dir, home), questions(out_file, out_dir), calls(out_file, out_dir));
            // New calls have to be added here: either as one that is refused, or as one of the client's own session.
            assert_eq!(variants(&ops), all::<Op>(&[]));
            assert_eq!(variants(&queries), all::<Query>(&["StatFs", "StatEach"]));
            assert_eq!(variants(&calls), all::<Call>(&[ELSEWHERE, OWN].concat()));
            for op in ops {
                denied(Call::Op { op: op.clone(), open: true });
                let acknowledged = vec![Acknowledged { ino: Ino(0), time: Time(1), open: false }];
                let ops = vec![op.clone()];
                let batch = Call::Batch { stop_on_failure: false, ops: ops.clone() };
                if !matches!(op, Op::SetXattr { .. }) {
                    match ask(&alice, batch) {
                        Ok(Answer::Batch(results)) => {
                            assert!(results.len() == 1 && results[0].is_err(), "{op:?}: {results:?}");
                        }
                        answer => assert_eq!(answer.map(drop), Err(Refusal::Access), "{op:?}"),
                    }
                }
                // The same word for word, if it comes as something that the client had acknowledged.
                let pending = Call::WriteBehind { ops: ops.clone(), acknowledged: acknowledged.clone() };
                for call in [Call::Late { since: Position(1), ops, acknowledged }, pending] {
                    let all_refused = match ask(&alice, call.clone()) {
                        Ok(Answer::Batch(results)) => results.iter().all(Result::is_err),
                        Ok(Answer::WriteBehind(results)) => results.iter().all(Result::is_err),
                        Ok(_) => false,
                        Err(_) => true,
                    };
                    assert!(all_refused, "{call:?}");
                }
            }
            queries.into_iter().for_each(|query| denied(Call::Query(query)));
            calls.into_iter().for_each(denied);
            let targets = vec![
                StatTarget::Inode(out_file),
                StatTarget::Inode(home),
                StatTarget::Name { parent: out_dir, name: name("key") },
                StatTarget::Open { ino: out_file, want: 0 },
            ];
            let each = Query::StatEach { stop_on_failure: false, leases: true, targets };
            match ask(&alice, Call::Query(each)).expect("answered one by one") {
                Answer::Stats(stats) => {
                    let shown = stats.iter().filter(|stat| matches!(stat, Ok(Stat::Attr { .. }))).count();
                    assert!(stats.len() == 4 && shown == 1, "{stats:?}");
                }
                answer => panic!("{answer:?}"),
            }
        }
        assert_eq!(ask(&alice, Call::Admin { what: "status".into() }).map(drop), Err(Refusal::NotPermitted));

        // The declaration of a client after a start does not open it.
        let opens = vec![(out_file, 1)];
        let reopen = Call::Reopen { opens, locks: vec![], dirty: vec![out_file], names: vec![Ino::ROOT] };
        ask(&alice, reopen).expect("the rest counts");
        denied(Call::Query(Query::Map { ino: out_file, offset: 0, len: 1 }));

        // Blocks are named by numbers, too.
        let map = Query::Map { ino: out_file, offset: 0, len: 300_000 };
        let Ok(Answer::Map { content: Content::Extents { extents, .. }, .. }) = ask(&root, Call::Query(map))
        else {
            panic!("a large file lies in blocks")
        };
        let block = extents.iter().find(|extent| !extent.block.is_hole()).expect("a block").block;
        let get = Call::GetBlock { block, offset: 0, len: 16 };
        assert!(ask(&root, get.clone()).is_ok());
        assert_eq!(ask(&alice, get.clone()).map(drop), Err(Refusal::Stale));
        let stolen = Op::Write {
            ino: alice.stat("/file").expect("there").ino,
            size: u64::from(extents[0].len),
            mtime: Time(1),
            kill_setid: false,
            hold: Hold::Exclusive,
            body: Body::Extents(vec![extents[0]]),
        };
        assert!(ask(&alice, Call::Op { op: stolen, open: false }).is_err(), "a block of another writer");
        assert_eq!(ask(&alice, get).map(drop), Err(Refusal::Stale));
        let put = Call::PutBlock { block: BlockId { writer: NOBODY.0, number: 1 }, bytes: vec![1] };
        assert!(ask(&alice, put).is_err(), "in another's name");

        assert_eq!(root.stat("/secret/key").expect("there"), before, "nothing has changed");
        assert_eq!(names(&root, "/secret").len(), 2);
        fort.await_refusal("which is not in /home/alice");
        assert_eq!(alice.read_file("/file").expect("the client lives on"), b"content");
    }
}

#[test]
fn a_shared_block_is_read_through_the_file_inside() {
    for plates in [1, 3] {
        let fort = Fort::new(plates);
        let root = fort.client("/");
        furnish(&root);
        for n in 0..8 {
            let from = root.open_path("/secret/key", OpenFlags::READ).expect("open");
            let to = format!("/home/alice/dir-{n}/copy");
            root.create_file(&to, &[1; 100_000]).expect("made");
            let to = root.open_path(&to, OpenFlags::READ_WRITE).expect("open");
            root.copy_range(&root.caller(), from, 0, to, 0, 300_000).expect("shared");
            root.fsync(to, false).expect("durable");
        }
        let alice = fort.client("/home/alice");
        for n in 0..8 {
            assert_eq!(alice.read_file(format!("/dir-{n}/copy")).expect("read"), [9; 300_000], "{n}");
        }
    }
}

#[test]
fn a_directory_that_moves_out_is_closed_and_one_that_moves_in_is_open() {
    for plates in [1, 3] {
        let fort = Fort::new(plates);
        let root = fort.client("/");
        furnish(&root);
        let alice = fort.client("/home/alice");
        for n in 0..6 {
            let path = format!("/dir-{n}");
            alice.write_file(format!("{path}/sub/held"), b"held open").expect("written");
            let dirs = [&path, &format!("{path}/sub")].map(|path| alice.stat(path).expect("there").ino);
            let held = alice.open_path(format!("{path}/sub/held"), OpenFlags::READ).expect("open");
            root.rename_path(format!("/home/alice{path}"), format!("/out-{n}")).expect("moved");
            assert_eq!(alice.stat(&path), Err(Refusal::NotFound));
            for dir in dirs {
                let mut looks = 0..LOOKS;
                while ask(&alice, Call::Query(Query::GetAttr { ino: dir })).is_ok() {
                    looks.next().expect("it is closed within about a second");
                    thread::sleep(PAUSE);
                }
                let list = Query::Lookup { parent: dir, name: name("held") };
                assert_eq!(ask(&alice, Call::Query(list)).map(drop), Err(Refusal::Access));
            }
            assert_eq!(alice.read(held, 0, 100).expect("a descriptor stays"), b"held open");
            alice.release(held).expect("closed");
            let sub = alice
                .service()
                .call(&Cred::ROOT, Call::Query(Query::Lookup { parent: dirs[1], name: name("held") }));
            assert!(sub.is_err());
            root.rename_path(format!("/out-{n}"), format!("/home/alice/back-{n}")).expect("moved");
            let mut looks = 0..LOOKS;
            while alice.read_file(format!("/back-{n}/sub/held")).as_deref() != Ok(&b"held open"[..]) {
                looks.next().expect("it is open within about a second");
                thread::sleep(PAUSE);
            }
        }
    }
}

#[test]
fn a_file_with_several_names_needs_one_inside() {
    let fort = Fort::new(1);
    let root = fort.client("/");
    let (home, key) = furnish(&root);
    let alice = fort.client("/home/alice");
    let attr = Call::Query(Query::GetAttr { ino: key });
    assert_eq!(ask(&alice, attr.clone()).map(drop), Err(Refusal::Access));
    root.link(&root.caller(), key, home, b"shared").expect("linked");
    root.sync().expect("durable");
    assert_eq!(alice.read_file("/shared").expect("read"), [9; 300_000]);
    ask(&alice, attr.clone()).expect("it has a name inside");
    root.remove("/home/alice/shared").expect("removed");
    let mut looks = 0..LOOKS;
    while ask(&alice, attr.clone()).is_ok() {
        looks.next().expect("its last name inside is gone, and it is closed");
        thread::sleep(PAUSE);
    }
    assert_eq!(ask(&alice, attr).map(drop), Err(Refusal::Access));
}

#[test]
fn a_restart_keeps_the_limit_and_what_was_acknowledged() {
    for plates in [1, 3] {
        let fort = Fort::new(plates);
        let root = fort.client("/");
        let (_, key) = furnish(&root);
        let alice = fort.client("/home/alice");
        let held = alice.open_path("/dir-1/sub/deep", OpenFlags::READ_WRITE).expect("open");
        for n in 0..8 {
            alice.mkdir_all(format!("/dir-{n}/late/later")).expect("made");
            alice.create_file(format!("/dir-{n}/late/later/file"), b"not synced").expect("made");
        }
        alice.write(&alice.caller(), held, 0, b"buffered").expect("written");
        fort.kill();
        fort.start();
        for n in 0..8 {
            assert_eq!(
                alice.read_file(format!("/dir-{n}/late/later/file")).expect("sent again"),
                b"not synced"
            );
        }
        alice.fsync(held, false).expect("nothing is lost");
        assert_eq!(alice.read(held, 0, 8).expect("still open"), b"buffered");
        alice.sync().expect("nothing is lost");
        assert_eq!(ask(&alice, Call::Query(Query::GetAttr { ino: key })).map(drop), Err(Refusal::Access));
        assert_eq!(alice.stat("/..").expect("there").ino, alice.root());
        assert_eq!(&root.read_file("/home/alice/dir-1/sub/deep").expect("read")[..8], b"buffered");
    }
}

#[test]
fn a_session_keeps_its_limit() {
    let fort = Fort::new(1);
    furnish(&fort.client("/"));
    let hello = |resume| Hello {
        version: PROTOCOL_VERSION,
        channel: Channel::Main,
        resume,
        identity: "mallory".to_owned(),
        resend_count: 0,
        decouples: true,
        plate: PlateId(0),
        client: 0,
        filesystem: 0,
    };
    let open = |path: &str, resume| {
        let credentials = fort.credentials(Access::ReadWrite, path);
        Connection::open(&fort.address, Some(&credentials), &hello(resume), CONNECT_TIMEOUT)
    };
    let (_one, welcome) = open("/home/alice", None).expect("connected");
    let Welcome::Accepted { session, secret, objects, .. } = welcome else { panic!("{welcome:?}") };
    assert_eq!(objects, "", "blocks go through the server");
    for other in ["/", "/home"] {
        match open(other, Some((session, secret))).map(|(_, welcome)| welcome) {
            Err(OpenError::Refused { reason: RefuseReason::SessionGone, .. }) => {}
            resumed => panic!("{other}: {resumed:?}"),
        }
    }
    open("/home/alice", Some((session, secret))).expect("the same limit");
}
