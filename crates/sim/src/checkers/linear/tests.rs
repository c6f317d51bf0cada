use super::*;

/// A number with write, read and compare-and-swap.
struct Register;

#[derive(Clone, Copy, Debug)]
enum Call {
    Write(u8),
    Read,
    Swap(u8, u8),
}

impl Spec for Register {
    type State = u8;
    type Call = Call;
    type Answer = u8;

    fn step(&self, state: &u8, call: &Call) -> (u8, u8) {
        match *call {
            Call::Write(value) => (value, 0),
            Call::Read => (*state, *state),
            Call::Swap(from, to) if from == *state => (to, 1),
            Call::Swap(..) => (*state, 0),
        }
    }
}

fn seen(by: u32, call: Call, begun: u64, ended: u64, answer: u8) -> Seen<Call, u8> {
    Seen { by, call, begun, ended: Some((ended, answer)) }
}

fn unanswered(by: u32, call: Call, begun: u64) -> Seen<Call, u8> {
    Seen { by, call, begun, ended: None }
}

fn judge(history: &[Seen<Call, u8>]) -> Verdict {
    check(&Register, &0, history, 100_000)
}

fn is_right(history: &[Seen<Call, u8>]) -> bool {
    match judge(history) {
        Verdict::Linearizable(order) => {
            // The order that was found is one: replay it.
            let mut state = 0;
            for n in order {
                let (next, answer) = Register.step(&state, &history[n].call);
                assert!(history[n].ended.as_ref().is_none_or(|(_, reported)| *reported == answer));
                state = next;
            }
            true
        }
        Verdict::Not(_) => false,
        Verdict::Undecided => panic!("undecided"),
    }
}

#[test]
fn calls_side_by_side_may_take_effect_in_any_order() {
    use Call::{Read, Swap, Write};
    let side_by_side = [seen(1, Write(1), 0, 10, 0), seen(2, Read, 1, 9, 0), seen(3, Read, 2, 8, 1)];
    assert!(is_right(&side_by_side));
    let swaps = [seen(1, Swap(0, 1), 0, 10, 1), seen(2, Swap(1, 2), 1, 9, 1), seen(3, Swap(2, 3), 2, 8, 1)];
    assert!(is_right(&swaps));
    assert!(is_right(&[]));
}

#[test]
fn answers_without_an_order_are_noticed() {
    use Call::{Read, Swap, Write};
    let stale = [seen(1, Write(1), 0, 1, 0), seen(2, Read, 2, 3, 0)];
    assert!(!is_right(&stale), "a read after the answer of a write does not see it");
    let back = [seen(1, Write(1), 0, 10, 0), seen(2, Read, 1, 2, 1), seen(3, Read, 3, 4, 0)];
    assert!(!is_right(&back), "seen, and then not any more");
    let both = [seen(1, Swap(0, 1), 0, 10, 1), seen(2, Swap(0, 2), 1, 9, 1)];
    assert!(!is_right(&both), "two take the same thing");
    let said = match judge(&stale) {
        Verdict::Not(violation) => violation.what,
        other => panic!("{other:?}"),
    };
    assert!(said.contains("2: Read -> 0 from 2 to 3 (would be 1)"), "{said}");
}

#[test]
fn calls_without_an_answer_may_have_taken_effect() {
    use Call::{Read, Write};
    let lost = unanswered(1, Write(1), 0);
    assert!(is_right(&[lost.clone(), seen(2, Read, 1, 2, 0), seen(2, Read, 3, 4, 1)]), "late");
    assert!(is_right(&[lost.clone(), seen(2, Read, 1, 2, 0)]), "never");
    assert!(!is_right(&[lost.clone(), seen(2, Read, 1, 2, 1), seen(2, Read, 3, 4, 0)]), "and undone");
    assert!(!is_right(&[seen(2, Read, 1, 2, 1), unanswered(1, Write(1), 3)]), "before it began");
}

#[test]
fn a_search_beyond_its_limit_decides_nothing() {
    let many: Vec<_> = (0..20).map(|n| seen(n, Call::Write(n as u8), u64::from(n), 100, 0)).collect();
    let mut history = many;
    history.push(seen(99, Call::Read, 200, 201, 77));
    assert_eq!(check(&Register, &0, &history, 1_000), Verdict::Undecided);
}
