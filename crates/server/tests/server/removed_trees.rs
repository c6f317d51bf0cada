//! Trees that are removed as one operation: they are gone at once, and freed afterwards, whatever happens meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chiton_model::{AttrChange, Op, RenameHow, XattrHow};
use chiton_server::{EmbeddedSession, Server};
use chiton_types::{Attr, Cred, Ino, Refusal};
use chiton_wire::{Answer, Call, Failure, LeaseMode, Query};

use crate::rig::{Asks, Rig, eventually, figure, file, name, quiet, refused, session};

/// Of the directory `a` of the root.
fn remove(ino: Ino) -> Op {
    Op::RemoveTree { parent: Ino::ROOT, name: name("a"), ino }
}

fn call(op: Op) -> Call {
    Call::Op { op, open: false }
}

/// Makes directories three deep with files in all of them, below a new directory. Its number, and a directory at the bottom.
fn grow(s: &impl Asks, top: &str, width: usize, files: usize) -> (Ino, Ino) {
    let root = s.mkdir(Ino::ROOT, top);
    let mut dirs = vec![root];
    let mut last = root;
    for depth in 0..3 {
        let mut below = Vec::new();
        for dir in dirs {
            for n in 0..files {
                s.create(dir, &format!("file{n}"));
            }
            for n in 0..if depth < 2 { width } else { 0 } {
                below.push(s.mkdir(dir, &format!("dir{n}")));
            }
        }
        last = below.last().copied().unwrap_or(last);
        dirs = below;
    }
    (root, last)
}

fn all_is_freed(server: &Server) {
    eventually("all is freed", || figure(server, "/inodes") == 1 && figure(server, "/orphans") == 0);
}

/// A session that keeps its leases until it may return them.
fn stubborn(server: &Server) -> (EmbeddedSession, Arc<AtomicBool>) {
    let lets_go = Arc::new(AtomicBool::new(false));
    let theirs = lets_go.clone();
    let on_recall = move |_| {
        while !theirs.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    (server.session_embedded("stubborn", Box::new(on_recall)).expect("a session"), lets_go)
}

/// The inode of a name, on which the session holds a lease from now on.
fn hold(s: &EmbeddedSession, dir: Ino, text: &str) -> Ino {
    let ino = s.lookup(dir, text).0.expect("it is there").ino;
    match s.try_call(Call::Lease { ino, mode: LeaseMode::Exclusive }) {
        Ok(Answer::Lease { mode: LeaseMode::Exclusive, .. }) => ino,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_removed_tree_is_gone_at_once_and_freed_afterwards() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (top, bottom) = grow(&s, "a", 5, 40);
    let (reader, lets_go) = stubborn(&server);
    let held = hold(&reader, bottom, "file7");
    let files = figure(&server, "/inodes");
    s.op(remove(top));
    assert_eq!(s.lookup(Ino::ROOT, "a").0, None);
    assert_eq!(s.getattr(Ino::ROOT).expect("it is there").0.nlink, 2);
    assert_eq!(refused(s.try_call(call(remove(top)))), Refusal::NotFound);
    // The leases of another client are recalled for what they are on, and hold up nothing else.
    eventually("all but that is freed", || figure(&server, "/inodes") == files - 30 - (31 * 40 - 1));
    assert_eq!(reader.list(bottom, false), [("file7".to_owned(), held)]);
    lets_go.store(true, Ordering::SeqCst);
    all_is_freed(&server);
    assert_eq!(s.getattr(bottom).map(drop), Err(Failure::Refused(Refusal::Stale)));
}

#[test]
fn freeing_continues_after_a_crash() {
    for checkpoint in [false, true] {
        let mut rig = Rig::new();
        let server = rig.start(quiet());
        let (s, (reader, lets_go)) = (session(&server), stubborn(&server));
        let (top, bottom) = grow(&s, "a", 4, 30);
        let kept = s.create(Ino::ROOT, "kept");
        hold(&reader, bottom, "file7");
        s.op(remove(top));
        s.commit();
        if checkpoint {
            eventually("only that is left", || figure(&server, "/inodes") == 4);
            server.checkpoint().expect("a half freed tree is written");
        }
        rig.crash(&server);
        lets_go.store(true, Ordering::SeqCst);
        drop((s, reader));
        let server = rig.start(quiet());
        let s = session(&server);
        assert_eq!(s.list(Ino::ROOT, false), [("kept".to_owned(), kept)]);
        eventually("the rest is freed", || {
            figure(&server, "/inodes") == 2 && figure(&server, "/orphans") == 0
        });
    }
}

#[test]
fn a_tree_that_is_not_in_memory_is_removed() {
    for uid in [0, 7] {
        let rig = Rig::new();
        let cred = Cred::new(uid, uid, &[]);
        let server = rig.start(quiet());
        let s = session(&server);
        s.op(Op::SetAttr {
            ino: Ino::ROOT,
            change: AttrChange { mode: Some(chiton_types::Mode(0o777)), ..AttrChange::default() },
        });
        let (top, _) = grow(&As(&s, cred.clone()), "a", 6, 300);
        drop(s);
        server.shutdown().expect("ends");
        let server = rig.start(quiet());
        let s = session(&server);
        As(&s, cred).op(remove(top));
        all_is_freed(&server);
    }
}

#[test]
fn open_files_of_a_removed_tree_live_until_they_are_closed() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (top, bottom) = grow(&s, "a", 2, 2);
    let answer = s.try_call(Call::Op { op: file(bottom, "open"), open: true });
    let Ok(Answer::Op { outcome, .. }) = answer else { panic!("{answer:?}") };
    let open = outcome.attr.expect("made").ino;
    s.query(Query::Open { ino: top, want: chiton_types::access::READ, content: false })
        .expect("a directory that is read");
    s.op(remove(top));
    eventually("all else is freed", || figure(&server, "/inodes") == 3);
    assert_eq!(s.getattr(open).expect("it is open").0.nlink, 0);
    assert_eq!(s.list(top, false), []);
    assert_eq!(refused(s.try_call(call(file(top, "new")))), Refusal::NotFound);
    s.try_call(Call::Closed { inos: vec![open, top] }).expect("closed");
    all_is_freed(&server);
}

/// A session's calls by another user.
struct As<'a>(&'a EmbeddedSession, Cred);

impl Asks for As<'_> {
    fn try_call(&self, call: Call) -> Result<Answer, Failure> {
        self.0.ask(&self.1, call)
    }
}

#[test]
fn only_root_and_the_owner_of_all_directories_remove_a_tree_as_one() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let owner = As(&s, Cred::new(7, 7, &[]));
    let set = |ino, change: AttrChange| s.op(Op::SetAttr { ino, change });
    let mode = |mode| AttrChange { mode: Some(chiton_types::Mode(mode)), ..AttrChange::default() };
    let of = |uid| AttrChange { uid: Some(uid), ..AttrChange::default() };
    set(Ino::ROOT, mode(0o777));
    let (top, bottom) = grow(&owner, "a", 3, 3);
    let is_refused = |why: &str, refusal| {
        assert_eq!(refused(owner.try_call(call(remove(top)))), refusal, "{why}");
        assert!(s.lookup(Ino::ROOT, "a").0.is_some(), "{why}");
    };
    set(bottom, of(8));
    is_refused("a directory of another owner", Refusal::NotPermitted);
    set(bottom, of(7));
    set(bottom, mode(0o555));
    is_refused("a directory that its owner may not change", Refusal::Access);
    set(bottom, mode(0o755));
    let kept = s.lookup(bottom, "file1").0.expect("there").ino;
    s.op(Op::SetFlags { ino: kept, flags: Attr::IMMUTABLE });
    is_refused("an immutable file, which its owner may not remove", Refusal::NotPermitted);
    s.op(Op::SetFlags { ino: kept, flags: 0 });
    set(Ino::ROOT, mode(0o755));
    is_refused("the directory above", Refusal::Access);
    set(Ino::ROOT, mode(0o777));
    let stranger = As(&s, Cred::new(9, 9, &[]));
    assert_eq!(refused(stranger.try_call(call(remove(top)))), Refusal::NotPermitted);
    // A file of another owner in a directory of the caller's may go, as with unlink.
    let theirs = s.create(bottom, "theirs");
    set(theirs, of(8));
    owner.op(remove(top));
    assert_eq!(s.lookup(Ino::ROOT, "a").0, None);
    all_is_freed(&server);
    // Root needs to own nothing, and could make mutable what is immutable.
    let (top, bottom) = grow(&owner, "a", 3, 3);
    set(bottom, mode(0));
    let kept = s.lookup(bottom, "file1").0.expect("there").ino;
    s.op(Op::SetFlags { ino: kept, flags: Attr::IMMUTABLE });
    s.op(remove(top));
    all_is_freed(&server);
}

#[test]
fn trees_that_are_governed_within_are_not_removed_as_one() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (top, bottom) = grow(&s, "a", 2, 2);
    let is_refused = |why: &str, refusal| {
        assert_eq!(refused(s.try_call(call(remove(top)))), refusal, "{why}");
        assert!(s.lookup(Ino::ROOT, "a").0.is_some(), "{why}");
    };
    let policy = b"chiton.policy".to_vec();
    let value = b"durability: local".to_vec();
    s.op(Op::SetXattr { ino: bottom, name: policy.clone(), value, how: XattrHow::Set });
    is_refused("a policy inside", Refusal::CrossDevice);
    s.op(Op::RemoveXattr { ino: bottom, name: policy.clone() });
    let value = b"durability: none".to_vec();
    s.op(Op::SetXattr { ino: top, name: policy.clone(), value, how: XattrHow::Set });
    is_refused("a subtree that is not journalled", Refusal::CrossDevice);
    s.op(Op::RemoveXattr { ino: top, name: policy });
    assert_eq!(
        refused(s.try_call(call(Op::RemoveTree { parent: bottom, name: name("file0"), ino: bottom }))),
        Refusal::NotDir
    );
    s.op(remove(top));
    all_is_freed(&server);
}

#[test]
fn names_leave_a_removed_tree_and_no_directory_enters_it() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let (s, (reader, lets_go)) = (session(&server), stubborn(&server));
    let (top, bottom) = grow(&s, "a", 2, 2);
    let live = s.mkdir(Ino::ROOT, "live");
    let held = hold(&reader, bottom, "file1");
    s.op(remove(top));
    let rename = |from, text: &str, to| {
        let (from_name, to_name) = (name(text), name("moved"));
        call(Op::Rename { from, from_name, to, to_name, how: RenameHow::Replace })
    };
    assert_eq!(
        refused(s.try_call(rename(Ino::ROOT, "live", bottom))),
        Refusal::NotFound,
        "it would be freed"
    );
    // Names that the server has not freed yet may be moved out.
    reader.try_call(rename(bottom, "file1", live)).expect("moved");
    lets_go.store(true, Ordering::SeqCst);
    eventually("the rest is freed", || figure(&server, "/inodes") == 3);
    assert_eq!(s.list(live, false), [("moved".to_owned(), held)]);
}
