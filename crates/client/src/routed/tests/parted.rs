//! Operations on directories with parts.

use super::*;

/// Carries out operations, and answers with a directory with parts that is gone when it is asked for.
fn removing(plate: u16, call: &Call) -> Result<Answer, CallError> {
    match call {
        Call::Op { .. } => {
            let attr = Attr { flags: Attr::HAS_PARTS, ..dir(ino(plate, 7)) };
            let outcome = Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) };
            let (position, lease) = (Position(3), LeaseMode::None);
            Ok(Answer::Op { position, outcome, lease, parent_leased: false })
        }
        _ => Err(Refusal::Stale.into()),
    }
}

/// Otherwise the caller would hear that its operation was refused, or would send it a second time.
#[test]
fn operation_that_was_carried_out_is_answered_although_its_directory_is_gone_by_now() {
    let site = Site::new(removing);
    let op = Op::RemoveTree { parent: ino(0, 1), name: name("tree"), ino: ino(0, 7) };
    let call = || Call::Op { op: op.clone(), open: false };
    let answers = [site.routed.call(&Cred::ROOT, call()), site.routed.start(&Cred::ROOT, call()).wait()];
    for answer in answers {
        let Ok(Answer::Op { outcome, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(outcome.attr.map(|attr| attr.ino), Some(ino(0, 7)));
    }
    let ops = site.asked(0).iter().filter(|call| matches!(call, Call::Op { .. })).count();
    assert_eq!(ops, 2, "each is sent once");
}
