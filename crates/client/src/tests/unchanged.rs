//! "A client sends again, after a restart of the server, what was answered and is not durable": but nothing that has no
//! place in the journal, since it changed nothing.

use chiton_model::{Op, Outcome, RenameHow};
use chiton_types::{Cred, Epoch, Ino, Name, Position, SessionId, Time};
use chiton_wire::{Answer, Call, LeaseMode, Reply};

use crate::session::Session;

const NOTHING: Position = Position(0);

fn rename(to: &str) -> Op {
    let (from_name, to_name) = (Name::try_from("a").expect("a name"), Name::try_from(to).expect("a name"));
    Op::Rename { from: Ino::ROOT, from_name, to: Ino::ROOT, to_name, how: RenameHow::Replace }
}

fn outcome() -> Outcome {
    Outcome { attr: None, gone: None, other: None, time: Time(5) }
}

fn reply(id: u64, answer: Answer) -> Reply {
    Reply { id, epoch: Epoch(1), durable: Position(3), result: Ok(answer) }
}

#[test]
fn what_changed_nothing_is_not_sent_again() {
    let mut session = Session::new(SessionId(1), 1, 1, Position(3));
    let request = |session: &mut Session, call| session.issue(&Cred::ROOT, call);
    // The one before it is not durable, so no later one can be settled.
    let changed = request(&mut session, Call::Op { op: rename("b"), open: false });
    let answer =
        |position| Answer::Op { position, outcome: outcome(), lease: LeaseMode::None, parent_leased: false };
    session.answered(&changed, &reply(1, answer(Position(4))));
    let alone = request(&mut session, Call::Op { op: rename("a"), open: false });
    session.answered(&alone, &reply(2, answer(NOTHING)));
    let ops = vec![rename("a"), rename("c"), rename("a")];
    let batch = request(&mut session, Call::Batch { ops, stop_on_failure: false });
    let results = [NOTHING, Position(5), NOTHING].map(|position| Ok((position, outcome()))).to_vec();
    session.answered(&batch, &reply(3, Answer::Batch(results)));
    let unanswered = request(&mut session, Call::Op { op: rename("d"), open: false });
    let names = |resends: &[crate::session::Resend]| -> Vec<String> {
        resends
            .iter()
            .map(|resend| match &resend.request.call {
                Call::Op { op: Op::Rename { to_name, .. }, .. } => to_name.to_string(),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(session.resend_count(), 3);
    assert_eq!(names(&session.resume(2, Position(3))), ["b", "c", "d"]);
    // Sent again, the last one changes nothing there, either.
    session.resent(unanswered.seq, &[Some((NOTHING, outcome()))], Position(3));
    assert_eq!(names(&session.resume(3, Position(3))), ["b", "c"]);
    assert!(!session.take_lost());
}
