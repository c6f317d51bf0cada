//! Decoupled realms: taken, kept from others, resumed, given back.

use chiton_model::{AttrChange, Op, RenameHow, XattrHow};
use chiton_namespace::Need;
use chiton_server::EmbeddedSession;
use chiton_types::{BlockId, Cred, Ino, Kind, Position, RealmId, Refusal, ShardId, access};
use chiton_wire::{
    Answer, Call, Claim, Failure, FoundRows, Granted, LeaseMode, Query, RealmAnswer, RealmCall, RealmInfo,
    StatTarget,
};

use crate::rig::{Asks, Rig, file, name, quiet, refused, session, unlink};

pub(crate) trait Realms: Asks {
    fn try_realm(&self, call: RealmCall) -> Result<RealmAnswer, Failure> {
        match self.try_call(Call::Realm(Box::new(call)))? {
            Answer::Realm(answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }

    fn try_decouple(&self, root: Ino, nonce: u64, policy: &str) -> Result<Box<Granted>, Failure> {
        let (journal_at, policy) = ("here".to_owned(), policy.as_bytes().to_vec());
        match self.try_realm(RealmCall::Decouple { root, branch: None, nonce, journal_at, policy })? {
            RealmAnswer::Granted(granted) => Ok(granted),
            other => panic!("{other:?}"),
        }
    }

    fn decouple(&self, root: Ino, nonce: u64, policy: &str) -> Box<Granted> {
        self.try_decouple(root, nonce, policy).expect("granted")
    }

    fn attach(&self, realm: RealmId, nonce: u64) -> Box<Granted> {
        match self.try_realm(RealmCall::Attach { realm, nonce, journal_at: "there".into() }) {
            Ok(RealmAnswer::Granted(granted)) => granted,
            other => panic!("{other:?}"),
        }
    }

    fn end(&self, claim: Claim, force: bool) -> Result<RealmAnswer, Failure> {
        self.try_realm(RealmCall::End { claim, force })
    }

    fn realms(&self) -> Vec<RealmInfo> {
        match self.try_realm(RealmCall::List) {
            Ok(RealmAnswer::Realms(all)) => all,
            other => panic!("{other:?}"),
        }
    }

    fn rows(&self, claim: Claim, needs: Vec<Need>) -> Vec<FoundRows> {
        match self.try_realm(RealmCall::Rows { claim, needs }) {
            Ok(RealmAnswer::Rows(rows)) => rows,
            other => panic!("{other:?}"),
        }
    }
}

impl<T: Asks> Realms for T {}

/// Another user's calls over a session.
struct User<'a>(&'a EmbeddedSession, Cred);

impl Asks for User<'_> {
    fn try_call(&self, call: Call) -> Result<Answer, Failure> {
        self.0.ask(&self.1, call)
    }
}

fn user(s: &EmbeddedSession, uid: u32) -> User<'_> {
    User(s, Cred::new(uid, uid, &[]))
}

fn rename(from: Ino, from_name: &str, to: Ino, to_name: &str) -> Call {
    let (from_name, to_name) = (name(from_name), name(to_name));
    Call::Op { op: Op::Rename { from, from_name, to, to_name, how: RenameHow::Replace }, open: false }
}

fn op(op: Op) -> Call {
    Call::Op { op, open: false }
}

fn chmod(ino: Ino) -> Call {
    let mode = Some(chiton_types::Mode(0o700));
    op(Op::SetAttr { ino, change: AttrChange { mode, ..AttrChange::default() } })
}

fn busy(s: &impl Asks, call: Call) {
    let what = format!("{call:?}");
    assert_eq!(s.try_call(call), Err(Failure::Refused(Refusal::Busy)), "{what}");
}

#[test]
fn a_subtree_is_taken_once_and_survives_the_server() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "job");
    let below = s.mkdir(dir, "below");
    s.create(below, "f");
    let policy = "consistency: weak\ndurability: local\nallocated_inodes: 500\ninterfere_policy: block";
    let granted = s.decouple(below, 7, policy);
    assert_eq!(granted.claim, Claim { realm: RealmId(1), generation: 1 });
    assert_eq!((granted.root.ino, granted.shards), (below, 4));
    let [(first, end)] = granted.ranges[..] else { panic!("{:?}", granted.ranges) };
    assert_eq!((first.shard(), end.0 - first.0), (below.shard(), 500));
    assert_eq!(s.decouple(below, 7, policy), granted, "asked again it is answered again");
    for other in [Ino::ROOT, dir, below] {
        assert_eq!(s.try_decouple(other, 8, policy).unwrap_err(), Failure::Refused(Refusal::Busy));
    }
    let [info] = &s.realms()[..] else { panic!("one") };
    assert_eq!((info.path.as_slice(), info.reserved, info.used), (&b"/job/below"[..], 500, 0));
    assert!(info.is_own && info.is_attached);
    // Files made meanwhile have other numbers.
    let made = s.create(dir, "outside");
    assert!(made < first || made >= end);
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    let [info] = &s.realms()[..] else { panic!("one") };
    assert!(!info.is_own && !info.is_attached);
    assert_eq!(info.claim.generation, 1);
    busy(&s, Call::Query(Query::GetAttr { ino: below }));
    let stale = s.try_realm(RealmCall::Rows { claim: granted.claim, needs: vec![Need::Inode(below)] });
    assert_eq!(stale, Err(Failure::Refused(Refusal::Stale)), "another session's claim");
    let attached = s.attach(RealmId(1), 9);
    assert_eq!(attached.claim.generation, 2);
    assert_eq!((attached.base, attached.writer), (granted.base, granted.writer));
    assert_eq!((&attached.ranges, &attached.policy), (&granted.ranges, &granted.policy));
    assert_eq!(s.attach(RealmId(1), 9), attached);
    assert_eq!(s.end(granted.claim, false), Err(Failure::Refused(Refusal::Stale)));
    assert_eq!(s.end(attached.claim, false), Ok(RealmAnswer::Ended));
    assert_eq!(s.end(attached.claim, false), Ok(RealmAnswer::Ended), "already");
    assert!(s.realms().is_empty());
    assert_eq!(s.lookup(below, "f").0.map(|attr| attr.kind), Some(Kind::File));
    server.checkpoint().expect("checkpoint");
    // Numbers of decouplings and of inodes are never used again.
    let again = s.decouple(below, 7, policy);
    assert_eq!(again.claim.realm, RealmId(2));
    assert!(again.ranges[0].0 >= end);
    assert!(again.writer > granted.writer);
}

#[test]
fn rows_and_journal_know_the_same_decouplings() {
    // Once from the journal alone, once from rows, once from rows and journal.
    for checkpoints in [vec![], vec![0, 1, 2, 3], vec![1]] {
        let mut rig = Rig::new();
        let server = rig.start(quiet());
        let s = session(&server);
        let dirs: Vec<Ino> = ["a", "b", "c"].map(|name| s.mkdir(Ino::ROOT, name)).into();
        let mut granted = Vec::new();
        for (n, dir) in dirs.iter().enumerate() {
            granted.push(s.decouple(*dir, n as u64, "interfere_policy: allow\nallocated_inodes: 20000"));
            assert_eq!(granted[n].ranges.len(), 4, "many are spread over the shards");
            if checkpoints.contains(&n) {
                server.checkpoint().expect("checkpoint");
            }
        }
        let shard = ShardId(3);
        let more = s.try_realm(RealmCall::Grant { claim: granted[2].claim, shard, count: 3_000_000 });
        let Ok(RealmAnswer::Ranges(more)) = more else { panic!("{more:?}") };
        assert_eq!(more[0].1.0 - more[0].0.0, 3_000_000);
        s.end(granted[1].claim, false).expect("ends");
        if checkpoints.contains(&3) {
            server.checkpoint().expect("checkpoint");
        }
        let before = s.realms();
        drop(s);
        rig.crash(&server);
        let server = rig.start(quiet());
        let s = session(&server);
        let of = |all: &[RealmInfo]| -> Vec<_> {
            all.iter().map(|r| (r.claim, r.root, r.base, r.reserved, r.policy.clone())).collect()
        };
        assert_eq!(of(&s.realms()), of(&before));
        assert_eq!(before.len(), 2);
        assert_eq!(before[1].reserved, 3_020_000);
        assert!(
            s.try_realm(RealmCall::Attach { realm: RealmId(2), nonce: 1, journal_at: String::new() })
                .is_err()
        );
        assert_eq!(s.decouple(dirs[1], 9, "").claim.realm, RealmId(4));
    }
}

#[test]
fn block_keeps_others_out_and_block_writes_lets_them_look() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let (s, other) = (session(&server), session(&server));
    let out = s.mkdir(Ino::ROOT, "out");
    let job = s.mkdir(out, "job");
    let dir = s.mkdir(job, "dir");
    let f = s.create(dir, "f");
    for (policy, may_look) in [("interfere_policy: block", false), ("interfere_policy: block_writes", true)] {
        let granted = other.decouple(job, u64::from(may_look), policy);
        // The owner's own session is like any other: it acts through the realm.
        for s in [&s, &other] {
            let changes = [
                op(file(dir, "new")),
                op(unlink(dir, "f")),
                op(Op::Rmdir { parent: job, name: name("dir") }),
                op(Op::Link { ino: f, parent: out, name: name("f") }),
                op(Op::SetXattr { ino: f, name: b"user.a".into(), value: vec![1], how: XattrHow::Set }),
                chmod(f),
                chmod(job),
                rename(dir, "f", dir, "g"),
                Call::Query(Query::Open { ino: f, want: access::WRITE, content: false }),
                Call::Lease { ino: f, mode: LeaseMode::Exclusive },
                // Its root, and the directories above that.
                rename(out, "job", out, "other"),
                rename(Ino::ROOT, "out", Ino::ROOT, "other"),
                op(Op::Rmdir { parent: out, name: name("job") }),
                op(Op::SetXattr {
                    ino: dir,
                    name: b"chiton.policy".into(),
                    value: vec![],
                    how: XattrHow::Set,
                }),
            ];
            changes.into_iter().for_each(|call| busy(s, call));
            let batch = Call::Batch {
                ops: vec![file(out, "x"), file(dir, "x"), unlink(out, "x")],
                stop_on_failure: false,
            };
            let Ok(Answer::Batch(results)) = s.try_call(batch) else { panic!("answered") };
            let refused: Vec<bool> = results.iter().map(Result::is_err).collect();
            assert_eq!(refused, [false, true, false]);
            let looks = [
                Call::Query(Query::GetAttr { ino: f }),
                Call::Query(Query::Lookup { parent: dir, name: name("f") }),
                Call::Query(Query::Lookup { parent: out, name: name("job") }),
                Call::Query(Query::Open { ino: f, want: access::READ, content: false }),
                Call::Query(Query::ReadDir {
                    dir: job,
                    cookie: 0,
                    entries_max: 10,
                    plus: false,
                    part_end: None,
                }),
                Call::Query(Query::Map { ino: f, offset: 0, len: 10 }),
                Call::Query(Query::Resolve {
                    from: Ino::ROOT,
                    path: b"/out/job/dir".to_vec(),
                    follow: true,
                    sessions: vec![],
                }),
                Call::Lease { ino: f, mode: LeaseMode::Shared },
            ];
            for look in looks {
                let (what, answer) = (format!("{look:?}"), s.try_call(look));
                assert_eq!(answer.is_ok(), may_look, "{what}: {answer:?}");
            }
            let targets = vec![
                StatTarget::Inode(f),
                StatTarget::Name { parent: out, name: name("job") },
                StatTarget::Inode(out),
                StatTarget::Name { parent: dir, name: name("f") },
                StatTarget::Open { ino: f, want: access::READ },
                StatTarget::Open { ino: f, want: access::WRITE },
            ];
            let answer = s.query(Query::StatEach { stop_on_failure: false, leases: false, targets });
            let Ok(Answer::Stats(stats)) = answer else { panic!("{answer:?}") };
            let seen: Vec<bool> = stats.iter().map(Result::is_ok).collect();
            assert_eq!(seen, [may_look, may_look, true, may_look, may_look, false], "{stats:?}");
            s.try_call(Call::Closed { inos: vec![f, f] }).expect("closes always pass");
            assert_eq!(s.list(out, false), [("job".to_owned(), job)], "the name is listed");
            let plus =
                s.query(Query::ReadDir { dir: out, cookie: 0, entries_max: 9, plus: true, part_end: None });
            let Ok(Answer::Entries { entries, .. }) = plus else { panic!("{plus:?}") };
            assert_eq!(entries[0].attr.is_some(), may_look);
        }
        other.end(granted.claim, false).expect("ends");
        s.op(file(dir, policy));
    }
    let granted = other.decouple(job, 9, "interfere_policy: allow");
    s.op(file(dir, "theirs"));
    assert_eq!(refused(s.try_call(rename(dir, "theirs", out, "theirs"))), Refusal::CrossDevice);
    assert_eq!(
        refused(s.try_call(op(Op::Link { ino: f, parent: out, name: name("f") }))),
        Refusal::CrossDevice
    );
    busy(&s, rename(out, "job", out, "other"));
    let RealmAnswer::Of { root, decoupled } = s.try_realm(RealmCall::Of { ino: f }).expect("known") else {
        panic!("answered otherwise")
    };
    assert_eq!((root, decoupled.map(|info| info.claim)), (Ino::ROOT, Some(granted.claim)));
}

#[test]
fn who_may_and_what_may_be_decoupled() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let theirs = s.mkdir(Ino::ROOT, "theirs");
    let f = s.create(theirs, "f");
    let nested = s.mkdir(theirs, "nested");
    let change = AttrChange { uid: Some(77), ..AttrChange::default() };
    s.op(Op::SetAttr { ino: theirs, change });
    assert_eq!(
        user(&s, 78).try_decouple(theirs, 1, "").unwrap_err(),
        Failure::Refused(Refusal::NotPermitted)
    );
    // An owner may have it weakly for a time, but not without durability: `owner_decouples` is `local`.
    let weaker = "consistency: weak\ndurability: none";
    assert_eq!(
        user(&s, 77).try_decouple(theirs, 1, weaker).unwrap_err(),
        Failure::Refused(Refusal::NotPermitted)
    );
    let weak = user(&s, 77).decouple(theirs, 9, "consistency: weak\ndurability: local");
    assert_eq!(s.end(weak.claim, false), Ok(RealmAnswer::Ended));
    assert_eq!(s.try_decouple(theirs, 1, "no: key").unwrap_err(), Failure::Refused(Refusal::Invalid));
    assert_eq!(s.try_decouple(f, 1, "").unwrap_err(), Failure::Refused(Refusal::NotDir));
    assert_eq!(s.try_decouple(Ino(1 << 40), 1, "").unwrap_err(), Failure::Refused(Refusal::Stale));
    s.op(Op::Link { ino: f, parent: Ino::ROOT, name: name("outside") });
    assert_eq!(s.try_decouple(theirs, 1, "").unwrap_err(), Failure::Refused(Refusal::CrossDevice));
    s.op(unlink(Ino::ROOT, "outside"));
    let policy =
        Op::SetXattr { ino: nested, name: b"chiton.policy".into(), value: vec![], how: XattrHow::Set };
    s.op(policy);
    let branch = RealmCall::Decouple {
        root: theirs,
        branch: Some(name("try")),
        nonce: 1,
        journal_at: String::new(),
        policy: b"durability: local".into(),
    };
    assert_eq!(s.try_realm(branch).unwrap_err(), Failure::Refused(Refusal::Busy), "a branch ends nowhere");
    s.op(Op::RemoveXattr { ino: nested, name: b"chiton.policy".into() });
    let granted = user(&s, 77).try_decouple(theirs, 1, "").expect("one's own, as it is");
    assert_eq!(user(&s, 78).end(granted.claim, true), Err(Failure::Refused(Refusal::NotPermitted)));
    let attach = RealmCall::Attach { realm: granted.claim.realm, nonce: 5, journal_at: String::new() };
    assert_eq!(user(&s, 78).try_realm(attach), Err(Failure::Refused(Refusal::NotPermitted)));
    assert_eq!(user(&s, 77).end(granted.claim, true), Ok(RealmAnswer::Ended));
    let unknown = Claim { realm: RealmId(99), generation: 1 };
    assert_eq!(s.end(unknown, false), Err(Failure::Refused(Refusal::Invalid)));
}

/// S58a: a directory with a policy of its own is not in the subtree.
#[test]
fn a_subtree_ends_at_the_next_policy() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let (s, other) = (session(&server), session(&server));
    let job = s.mkdir(Ino::ROOT, "job");
    let (above, outside) = (s.mkdir(job, "above"), s.mkdir(Ino::ROOT, "outside"));
    let border = s.mkdir(above, "border");
    let (in_job, in_border) = (s.create(above, "f"), s.create(border, "f"));
    let set = |ino, value: &str| {
        op(Op::SetXattr { ino, name: b"chiton.policy".into(), value: value.into(), how: XattrHow::Set })
    };
    s.try_call(set(border, "consistency: weak\ndurability: local")).expect("set");
    let granted = s.decouple(job, 1, "interfere_policy: block");
    assert_eq!(granted.borders, [border]);
    // The others are kept out above the border, and not below it.
    busy(&other, op(file(above, "x")));
    other.try_call(op(file(border, "x"))).expect("not in the subtree");
    other.try_call(chmod(in_border)).expect("not in the subtree");
    busy(&other, chmod(in_job));
    let of = |ino| match s.try_realm(RealmCall::Of { ino }).expect("known") {
        RealmAnswer::Of { root, decoupled } => (root, decoupled.map(|info| info.claim)),
        other => panic!("{other:?}"),
    };
    assert_eq!((of(in_job), of(border)), ((Ino::ROOT, Some(granted.claim)), (border, None)));
    // Borders stay borders.
    for value in ["", "durability: none"] {
        busy(&s, set(border, value));
        busy(&s, set(above, value));
    }
    busy(&s, op(Op::RemoveXattr { ino: border, name: b"chiton.policy".into() }));
    s.try_call(set(outside, "durability: none")).expect("elsewhere");
    // The client learns that there is a border, and nothing of its content.
    assert_eq!(s.rows(granted.claim, vec![Need::Inode(border)])[0].rows.len(), 1);
    for need in [Need::Dir(border), Need::Entry(border, name("f")), Need::Inode(in_border)] {
        let refused = s.try_realm(RealmCall::Rows { claim: granted.claim, needs: vec![need] });
        assert_eq!(refused, Err(Failure::Refused(Refusal::CrossDevice)));
    }
    // It can be decoupled on its own meanwhile, also by others, and neither is in the other's way.
    let theirs = other.decouple(border, 2, "interfere_policy: block");
    assert!(theirs.borders.is_empty());
    busy(&s, op(file(border, "y")));
    assert_eq!(s.try_decouple(above, 3, "").unwrap_err(), Failure::Refused(Refusal::Busy));
    s.end(granted.claim, false).expect("ends");
    busy(&s, op(file(border, "y")));
    s.try_call(op(file(above, "y"))).expect("everybody's again");
    busy(&s, rename(job, "above", Ino::ROOT, "above"));
    other.end(theirs.claim, false).expect("ends");
    s.try_call(op(file(border, "y"))).expect("everybody's again");
}

#[test]
fn leases_are_given_back_before_the_grant_and_again_after_its_end() {
    use std::sync::{Arc, Mutex};
    let rig = Rig::new();
    let server = rig.start(quiet());
    let recalled = Arc::new(Mutex::new(Vec::new()));
    let noting = |who: &'static str| {
        let recalled = recalled.clone();
        server
            .session_embedded(who, Box::new(move |r| recalled.lock().unwrap().push((who, r.ino))))
            .expect("a session")
    };
    let first = noting("first");
    let (job, out) = (first.mkdir(Ino::ROOT, "job"), first.mkdir(Ino::ROOT, "out"));
    let f = first.create(job, "f");
    let other = noting("other");
    // The first session holds everything; after one recall for all, nobody does.
    let granted = other.decouple(job, 1, "interfere_policy: block_writes");
    assert_eq!(*recalled.lock().unwrap(), [("first", Ino(0))]);
    let leased = |s: &EmbeddedSession, ino| s.getattr(ino).expect("there").1;
    assert_eq!((leased(&first, f), leased(&other, f)), (LeaseMode::Shared, LeaseMode::Shared));
    assert_eq!(leased(&first, out), LeaseMode::Shared);
    other.end(granted.claim, false).expect("ends");
    recalled.lock().unwrap().clear();
    let granted = other.decouple(job, 2, "interfere_policy: block");
    let mut asked = recalled.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, [("first", f), ("other", f)], "only those in the subtree");
    other.end(granted.claim, false).expect("ends");
    drop(first);
    assert_eq!(leased(&other, f), LeaseMode::Exclusive, "alone again");
}

#[test]
fn rows_are_those_of_the_store_and_only_of_the_subtree() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let job = s.mkdir(Ino::ROOT, "job");
    let secret = s.create(Ino::ROOT, "secret");
    let f = s.create(job, "f");
    s.op(Op::SetXattr { ino: f, name: b"user.a".into(), value: vec![1], how: XattrHow::Set });
    let body = chiton_model::Body::Inline(b"content".to_vec());
    s.op(Op::Write {
        ino: f,
        body,
        size: 7,
        mtime: Default::default(),
        kill_setid: false,
        hold: Default::default(),
    });
    let large = s.mkdir(job, "large");
    let ops: Vec<Op> = (0..6_000).map(|n| file(large, &format!("file {n}"))).collect();
    s.try_call(Call::Batch { ops, stop_on_failure: true }).expect("made");
    let gone = s.create(job, "gone");
    s.op(unlink(job, "gone"));
    let granted = s.decouple(job, 1, "interfere_policy: block");
    let needs = vec![
        Need::Inode(job),
        Need::Inode(f),
        Need::Inode(gone),
        Need::Inode(Ino::ROOT),
        Need::Dir(job),
        Need::Content(f),
        Need::Xattrs(f),
        Need::Chunks(f),
        Need::Chunk(f, 0),
        Need::Entry(large, name("file 17")),
        Need::Entry(large, name("none")),
    ];
    let warm = s.rows(granted.claim, needs.clone());
    assert_eq!(
        warm.iter().map(|found| found.rows.len()).collect::<Vec<_>>(),
        [1, 1, 0, 1, 2, 1, 1, 0, 0, 1, 0]
    );
    let slices = |s: &EmbeddedSession, claim| {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let found = s.rows(claim, vec![Need::Slice { dir: large, after, rows: 1000 }]).remove(0);
            names.extend(found.rows.iter().map(|(key, _)| key.clone()));
            if found.exhausted {
                return names;
            }
            after = u64::from_be_bytes(found.rows.last().expect("more").0[9..17].try_into().unwrap());
        }
    };
    let listed = slices(&s, granted.claim);
    assert!(listed.len() == 6_000 && listed.is_sorted());
    for need in [Need::Dir(Ino::ROOT), Need::Inode(secret), Need::Content(secret)] {
        let outside = s.try_realm(RealmCall::Rows { claim: granted.claim, needs: vec![need] });
        assert_eq!(outside, Err(Failure::Refused(Refusal::CrossDevice)));
    }
    // A server that has nothing in memory says the same.
    server.checkpoint().expect("checkpoint");
    drop(s);
    server.shutdown().expect("ends");
    let server = rig.start(quiet());
    let s = session(&server);
    let claim = s.attach(granted.claim.realm, 2).claim;
    assert_eq!(s.rows(claim, needs), warm);
    assert_eq!(slices(&s, claim), listed);
}

#[test]
fn blocks_of_a_decoupling_are_its_own_and_swept_after_its_end() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let (s, other) = (session(&server), session(&server));
    let job = s.mkdir(Ino::ROOT, "job");
    let granted = s.decouple(job, 1, "");
    let block = BlockId { writer: granted.writer, number: 1 };
    let put = || Call::PutBlock { block, bytes: chiton_objects::encode_block(&[b"bytes"]) };
    assert_eq!(refused(other.try_call(put())), Refusal::NotPermitted);
    assert_eq!(s.try_call(put()), Ok(Answer::Done));
    s.commit();
    let blocks = |rig: &Rig| {
        use chiton_objects::Objects;
        rig.objects.list("blocks/", None, 10).expect("lists").len()
    };
    drop((s, other));
    rig.crash(&server);
    let server = rig.start(quiet());
    server.tidy().expect("tidies");
    assert_eq!(blocks(&rig), 1, "the decoupling lives on");
    let s = session(&server);
    let claim = s.attach(granted.claim.realm, 2).claim;
    s.end(claim, false).expect("ends");
    assert_eq!(refused(s.try_call(put())), Refusal::NotPermitted);
    server.tidy().expect("tidies");
    assert_eq!(blocks(&rig), 0);
    assert!(server.durable() > Position(0));
}

#[test]
fn who_may_not_or_cannot_decouple_is_served_as_if_it_were_strong() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let decoupler = session(&server);
    let job = decoupler.mkdir(Ino::ROOT, "job");
    let nested = decoupler.mkdir(job, "nested");
    let change = AttrChange { mode: Some(chiton_types::Mode(0o777)), ..AttrChange::default() };
    decoupler.op(Op::SetAttr { ino: job, change });
    let policy = |ino, text: &str| Op::SetXattr {
        ino,
        name: b"chiton.policy".into(),
        value: text.into(),
        how: XattrHow::Set,
    };
    decoupler.op(policy(job, "batchfs"));
    decoupler.decouple_first();
    let undecoupled = || refused(decoupler.try_call(op(file(job, "x")))) == Refusal::Undecoupled;
    assert!(undecoupled());
    user(&decoupler, 77).create(job, "by one who may not take it");
    decoupler.op(policy(nested, "consistency: strong\ndurability: local"));
    decoupler.create(nested, "another policy begins there");
    assert!(undecoupled(), "the rest is to be decoupled all the same");
    let granted = decoupler.decouple(job, 1, "");
    let text = String::from_utf8(granted.policy.clone()).expect("text");
    assert!(text.contains("composition: append_client_journal + local_persist + volatile_apply"), "{text}");
}
