//! Sessions that decouple subtrees are notified when it is time; others are served as if they were strong.

use chiton_model::{AttrChange, Op, RenameHow, XattrHow};
use chiton_types::{Ino, Mode, Refusal, access};
use chiton_wire::{Call, Failure, Query};

use crate::realms::Realms;
use crate::rig::{Asks, Rig, file, name, quiet, session, unlink};

fn op(op: Op) -> Call {
    Call::Op { op, open: false }
}

fn open(ino: Ino, want: u8) -> Call {
    Call::Query(Query::Open { ino, want, content: false })
}

fn chmod(ino: Ino) -> Call {
    op(Op::SetAttr { ino, change: AttrChange { mode: Some(Mode(0o700)), ..AttrChange::default() } })
}

fn truncate(ino: Ino) -> Call {
    let change = AttrChange { size: Some(0), size_by_handle: true, ..AttrChange::default() };
    op(Op::SetAttr { ino, change })
}

fn policy(ino: Ino, text: &str) -> Call {
    let value = text.as_bytes().to_vec();
    op(Op::SetXattr { ino, name: b"chiton.policy".to_vec(), value, how: XattrHow::Set })
}

fn rename(from: Ino, from_name: &str, to: Ino) -> Call {
    let (from_name, to_name) = (name(from_name), name("moved"));
    op(Op::Rename { from, from_name, to, to_name, how: RenameHow::Replace })
}

#[test]
fn the_first_change_of_who_decouples_is_refused_until_somebody_has() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let (plain, decoupling) = (session(&server), session(&server));
    decoupling.decouple_first();
    let dir = plain.mkdir(Ino::ROOT, "job");
    let below = plain.mkdir(dir, "below");
    let (f, outside) = (plain.create(below, "f"), plain.create(Ino::ROOT, "outside"));
    let is = |call: Call, refusal: Option<Refusal>| {
        let (what, answer) = (format!("{call:?}"), decoupling.try_call(call));
        assert_eq!(answer.err(), refusal.map(Failure::Refused), "{what}");
    };
    is(chmod(f), None);
    is(policy(dir, "batchfs"), None);
    let first = Some(Refusal::Undecoupled);
    is(chmod(f), first);
    is(op(file(below, "new")), first);
    is(op(unlink(below, "f")), first);
    is(open(f, access::READ | access::WRITE), first);
    is(rename(below, "f", dir), first);
    // Looking, changing something elsewhere, finishing earlier work, crossing the border.
    is(open(f, access::READ), None);
    is(Call::Query(Query::Lookup { parent: below, name: name("f") }), None);
    is(chmod(outside), None);
    is(truncate(f), None);
    is(rename(below, "f", Ino::ROOT), Some(Refusal::CrossDevice));
    is(rename(Ino::ROOT, "outside", below), Some(Refusal::CrossDevice));
    is(policy(dir, "interfere_policy: allow\nconsistency: weak\ndurability: local"), None);
    is(chmod(f), first);
    plain.create(below, "of-others");

    // From then on it is what the policy says of others; the owner acts in its realm.
    let granted = decoupling.decouple(dir, 1, "");
    is(chmod(f), None);
    decoupling.end(granted.claim, false).expect("ended");
    is(chmod(f), first);
    let granted = plain.decouple(dir, 2, "batchfs");
    is(chmod(f), Some(Refusal::Busy));
    plain.end(granted.claim, false).expect("ended");
    is(policy(dir, "posix"), None);
    is(chmod(f), None);
}
