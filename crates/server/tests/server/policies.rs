//! Policies of subtrees: set, inherited, refused, and what they do to durability.

use chiton_model::{Op, XattrHow};
use chiton_policy::preset;
use chiton_server::EmbeddedSession;
use chiton_types::{Cred, Ino, Refusal};
use chiton_wire::{Answer, Call, Failure, Query};

use crate::rig::{Asks, Rig, figure, name, quiet, refused, session, unlink};

const OWN: &[u8] = b"chiton.policy";

fn set(s: &impl Asks, dir: Ino, text: &str) -> Result<Answer, Failure> {
    let (name, value) = (OWN.to_vec(), text.as_bytes().to_vec());
    let op = Op::SetXattr { ino: dir, name, value, how: XattrHow::Set };
    s.try_call(Call::Op { op, open: false })
}

fn remove(s: &impl Asks, dir: Ino) -> Result<Answer, Failure> {
    s.try_call(Call::Op { op: Op::RemoveXattr { ino: dir, name: OWN.to_vec() }, open: false })
}

fn attribute(s: &impl Asks, ino: Ino, name: &str) -> Result<String, Failure> {
    match s.query(Query::GetXattr { ino, name: name.as_bytes().to_vec() })? {
        Answer::Bytes(bytes) => Ok(String::from_utf8(bytes).expect("text")),
        other => panic!("{other:?}"),
    }
}

fn effective(s: &impl Asks, ino: Ino) -> serde_json::Value {
    serde_json::from_str(&attribute(s, ino, "chiton.policy.effective").expect("explained")).expect("JSON")
}

fn policies(s: &impl Asks) -> serde_json::Value {
    match s.try_call(Call::Admin { what: "policies".into() }) {
        Ok(Answer::Bytes(bytes)) => serde_json::from_slice(&bytes).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

fn names(s: &impl Asks, dir: Ino) -> Vec<String> {
    let mut names: Vec<String> = s.list(dir, false).into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

fn as_user<'a>(s: &'a EmbeddedSession, uid: u32) -> User<'a> {
    User(s, Cred::new(uid, uid, &[]))
}

/// A session's calls by another user.
struct User<'a>(&'a EmbeddedSession, Cred);

impl Asks for User<'_> {
    fn try_call(&self, call: Call) -> Result<Answer, Failure> {
        self.0.ask(&self.1, call)
    }
}

#[test]
fn policies_are_set_inherited_listed_and_survive() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let a = s.mkdir(Ino::ROOT, "a");
    let b = s.mkdir(a, "b");
    let f = s.create(b, "f");
    assert_eq!(effective(&s, f)["composition"], "rpcs + stream");
    let before = effective(&s, f)["epoch"].as_u64();
    set(&s, a, "durability: local\nallocated_inodes: 7").expect("set");
    assert!(effective(&s, f)["epoch"].as_u64() > before, "the maps' epoch grows");
    set(&s, b, "").expect("an empty file is a policy");
    assert_eq!(effective(&s, f)["composition"], "rpcs + local_persist", "and changes nothing");
    assert_eq!(effective(&s, f)["root"], "/a/b");
    assert_eq!(effective(&s, f)["settings"][0]["value"], "100");
    set(&s, b, "ramdisk").expect("a preset by name");
    assert_eq!(attribute(&s, b, "chiton.policy").as_deref(), Ok(preset("ramdisk").unwrap().text));
    assert_eq!(attribute(&s, f, "chiton.policy"), Err(Failure::Refused(Refusal::NoXattr)));
    s.op(Op::Rename {
        from: Ino::ROOT,
        from_name: name("a"),
        to: Ino::ROOT,
        to_name: name("z"),
        how: chiton_model::RenameHow::Replace,
    });
    s.commit();
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    assert_eq!(
        (effective(&s, a)["root"].as_str(), effective(&s, f)["root"].as_str()),
        (Some("/z"), Some("/z/b"))
    );
    let list = policies(&s);
    let paths: Vec<_> =
        list["policies"].as_array().unwrap().iter().map(|p| p["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/z", "/z/b"]);
    let history: Vec<_> =
        list["history"].as_array().unwrap().iter().map(|h| h["path"].as_str().unwrap()).collect();
    assert_eq!(history, ["/a", "/a/b", "/a/b"]);
    remove(&s, b).expect("removed");
    assert_eq!(effective(&s, f)["composition"], "rpcs + local_persist");
    assert_eq!(refused(remove(&s, b)), Refusal::NoXattr);
}

#[test]
fn what_makes_no_sense_or_cannot_be_carried_out_is_refused() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let a = s.mkdir(Ino::ROOT, "a");
    let b = s.mkdir(a, "b");
    let f = s.create(a, "f");
    for (text, refusal) in [
        ("composition: rpcs + append_client_journal", Refusal::Invalid),
        ("no: key", Refusal::Invalid),
        ("durability: none\nacknowledge: durable", Refusal::Invalid),
        ("durability: geo", Refusal::Unsupported),
        ("retain: 7d", Refusal::Unsupported),
    ] {
        assert_eq!(refused(set(&s, a, text)), refusal, "{text}");
    }
    assert_eq!(refused(set(&s, f, "")), Refusal::NotDir);
    set(&s, b, "acknowledge: durable").expect("set");
    assert_eq!(
        refused(set(&s, a, "durability: none")),
        Refusal::Invalid,
        "it would make the one below senseless"
    );
    s.op(Op::Link { ino: f, parent: Ino::ROOT, name: name("outside") });
    assert_eq!(refused(set(&s, a, "")), Refusal::CrossDevice);
    assert_eq!(attribute(&s, a, "chiton.policy.crossing").as_deref(), Ok("/outside\n/a/f\n"));
    s.op(unlink(Ino::ROOT, "outside"));
    set(&s, a, "").expect("nothing crosses any more");
}

#[test]
fn s52_owners_set_what_is_not_weaker_and_administrators_anything() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let theirs = s.mkdir(Ino::ROOT, "theirs");
    let change = chiton_model::AttrChange { uid: Some(77), ..Default::default() };
    s.op(Op::SetAttr { ino: theirs, change });
    let user = as_user(&s, 77);
    assert_eq!(refused(set(&as_user(&s, 78), theirs, "")), Refusal::NotPermitted);
    for weaker in ["durability: none", "durability: local", "allocated_inodes: 100001"] {
        assert_eq!(refused(set(&user, theirs, weaker)), Refusal::NotPermitted, "{weaker}");
    }
    set(&user, theirs, "acknowledge: durable\ninterfere_policy: block").expect("stronger");
    assert_eq!(refused(remove(&user, theirs)), Refusal::NotPermitted, "what is around is weaker");
    set(&s, theirs, "durability: none").expect("root may");
    set(&user, theirs, "durability: local").expect_err("weaker than what is around");
    set(&user, theirs, "durability: global").expect("as strong as what is around");
}

#[test]
fn s55_what_a_none_realm_loses_is_what_no_checkpoint_held() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let scratch = s.mkdir(Ino::ROOT, "scratch");
    set(&s, scratch, "ramdisk").expect("set");
    let old = s.mkdir(scratch, "old");
    server.checkpoint().expect("checkpoint");
    let bytes = figure(&server, "/journal/appended_bytes");
    for n in 0..1_000 {
        s.create(old, &format!("volatile {n}"));
    }
    s.create(Ino::ROOT, "durable");
    s.commit();
    let grown = figure(&server, "/journal/appended_bytes") - bytes;
    assert!(grown < 3_000, "{grown} bytes: changes without durability are not journalled");
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    assert_eq!(names(&s, Ino::ROOT), ["durable", "scratch"]);
    assert_eq!((names(&s, scratch), names(&s, old)), (vec!["old".to_owned()], vec![]));
    // An orderly end keeps all.
    s.create(scratch, "kept");
    drop(s);
    server.shutdown().expect("ends in order");
    let server = rig.start(quiet());
    assert_eq!(names(&session(&server), scratch), ["kept", "old"]);
}

#[test]
fn s54_a_switch_keeps_what_was_promised_before_and_holds_for_what_comes_after() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "dir");
    // From durable to none: durable changes stay so.
    s.create(dir, "durable before");
    s.commit();
    set(&s, dir, "durability: none").expect("set");
    s.create(dir, "volatile");
    s.commit();
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    assert_eq!(names(&s, dir), ["durable before"]);
    // From none to durable: later changes rest on all that is there.
    let sub = s.mkdir(dir, "sub");
    s.create(sub, "volatile, then not");
    set(&s, dir, "durability: local").expect("set");
    s.create(sub, "durable after");
    s.commit();
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    assert_eq!(names(&s, sub), ["durable after", "volatile, then not"]);
    // A durable subtree within one that is not.
    set(&s, dir, "ramdisk").expect("set");
    let inner = s.mkdir(dir, "inner");
    set(&s, inner, "posix").expect("set");
    s.create(inner, "durable");
    s.create(dir, "volatile");
    s.commit();
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    assert_eq!(
        (names(&s, inner), names(&s, dir)),
        (vec!["durable".to_owned()], vec!["durable before".to_owned(), "inner".to_owned(), "sub".to_owned()])
    );
}

#[test]
fn s53_answers_under_acknowledge_durable_survive_without_fsync() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "dir");
    set(&s, dir, "acknowledge: durable").expect("set");
    s.create(dir, "answered");
    let op = |text: &str| crate::rig::file(dir, text);
    s.try_call(Call::Batch { ops: vec![op("a"), op("b")], stop_on_failure: false }).expect("a batch");
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    assert_eq!(names(&session(&server), dir), ["a", "answered", "b"]);
}

/// Random changes in subtrees that are durable and not, policies that come and go, checkpoints and crashes: the
/// durable state is a prefix that holds all that was committed, and the journal always fits the checkpoint.
#[test]
fn crashes_at_any_time_leave_a_tree_that_is_whole() {
    for seed in 0..12u64 {
        let mut rig = Rig::new();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let loud = || chiton_server::ServerOptions {
            log: std::sync::Arc::new(move |line| eprintln!("seed {seed}: {line}")),
            ..quiet()
        };
        let mut server = rig.start(loud());
        let mut s = session(&server);
        let tops = [s.mkdir(Ino::ROOT, "t0"), s.mkdir(Ino::ROOT, "t1")];
        let mut subs: Vec<Ino> = tops.iter().map(|t| s.mkdir(*t, "sub")).collect();
        let always = s.mkdir(Ino::ROOT, "always");
        s.commit();
        let mut committed = 0;
        let mut made = 0u64;
        for _ in 0..150 {
            let top = tops[draw(2) as usize];
            let sub = subs[draw(2) as usize];
            let dir = if draw(2) == 0 { top } else { sub };
            let text = format!("f{}", draw(8));
            match draw(14) {
                0..=3 => drop(s.try_call(Call::Op { op: crate::rig::file(dir, &text), open: draw(4) == 0 })),
                4 | 5 => drop(s.try_call(Call::Op { op: unlink(dir, &text), open: false })),
                6 => {
                    let op = Op::Rename {
                        from: top,
                        from_name: name(&text),
                        to: sub,
                        to_name: name(&text),
                        how: chiton_model::RenameHow::Replace,
                    };
                    drop(s.try_call(Call::Op { op, open: false }));
                }
                7 | 8 => {
                    let policy = ["ramdisk", "posix", "durability: local", ""][draw(4) as usize];
                    drop(set(&s, dir, policy));
                }
                9 => drop(remove(&s, dir)),
                10 => {
                    let op = Op::Rmdir { parent: top, name: name("sub") };
                    drop(s.try_call(Call::Op { op, open: false }));
                    if let Ok(Answer::Op { outcome, .. }) = s.try_call(Call::Op {
                        op: crate::rig::make(top, "sub", chiton_model::Make::Dir),
                        open: false,
                    }) {
                        let at = tops.iter().position(|t| *t == top).unwrap();
                        subs[at] = outcome.attr.unwrap().ino;
                    }
                }
                11 => {
                    s.create(always, &format!("{made:05}"));
                    made += 1;
                }
                12 if draw(3) == 0 => server.checkpoint().expect("checkpoint"),
                12 => {
                    s.commit();
                    committed = made;
                }
                _ if draw(4) == 0 => {
                    drop(s);
                    rig.crash(&server);
                    drop(server);
                    server = rig.start(loud());
                    s = session(&server);
                    let there = names(&s, always);
                    assert!(there.len() as u64 >= committed, "seed {seed}: {} of {committed}", there.len());
                    assert!(
                        there.iter().enumerate().all(|(n, text)| *text == format!("{n:05}")),
                        "seed {seed}"
                    );
                    (made, committed) = (there.len() as u64, there.len() as u64);
                    for (n, top) in tops.iter().enumerate() {
                        // All that is listed is there.
                        let listed = s.list(*top, true);
                        subs[n] = match listed.iter().find(|(text, _)| text == "sub") {
                            Some((_, ino)) => *ino,
                            None => s.mkdir(*top, "sub"),
                        };
                        s.list(subs[n], true);
                    }
                }
                _ => {}
            }
        }
    }
}
