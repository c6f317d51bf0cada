//! Exactly-once: a job that runs on while its server is killed and started again misses nothing that it was answered,
//! and nothing happens twice (S26).
//!
//! A deed is an operation with a unique effect that can be counted afterwards: a file that no other operation
//! creates, a record that no other appends. Its outcome is the answer to its caller.
//!
//! | answer | seen afterwards |
//! |---|---|
//! | done | once |
//! | refused | never: no other deed has this effect, so a refusal means that it was carried out before, or that it was lost |
//! | nothing (its client died first) | at most once |
//! | (no call) | never |
//!
//! The deeds of one caller appear in their order.

use std::collections::BTreeMap;

use chiton_types::Refusal;

use crate::checkers::violation;
use crate::history::Violation;

const CHECKER: &str = "exactly-once";

/// The answer to a deed's caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeedAnswer {
    Done,
    /// It was refused, with the reason.
    Refused(Refusal),
    /// The caller died before the answer.
    Unanswered,
}

/// A deed: its caller, its effect, its answer. In the order in which each caller began them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    pub by: u32,
    /// A text that only this operation writes: it shows how often it was carried out.
    pub token: String,
    pub answer: DeedAnswer,
}

/// Compares the answers with the effects.
///
/// # Errors
/// The first deed that is missing, there twice, there against its refusal, or out of order.
///
/// # Panics
/// If two deeds have one token.
pub fn check(deeds: &[Deed], found: &[String]) -> Result<(), Violation> {
    let by_token: BTreeMap<&str, (usize, &Deed)> =
        deeds.iter().enumerate().map(|(n, deed)| (deed.token.as_str(), (n, deed))).collect();
    assert_eq!(by_token.len(), deeds.len(), "tokens of deeds are unique");
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for token in found {
        *counts.entry(token).or_default() += 1;
    }
    for (token, count) in &counts {
        let Some((_, deed)) = by_token.get(token) else {
            return Err(violation(CHECKER, format!("{token:?} is there, nobody asked for it")));
        };
        let who = deed.by;
        match deed.answer {
            _ if *count > 1 => {
                return Err(violation(CHECKER, format!("{token:?} of caller {who} is there {count} times")));
            }
            DeedAnswer::Refused(refusal) => {
                return Err(violation(
                    CHECKER,
                    format!("{token:?} exists, although caller {who} was refused: {refusal}"),
                ));
            }
            DeedAnswer::Done | DeedAnswer::Unanswered => {}
        }
    }
    for deed in deeds {
        match deed.answer {
            DeedAnswer::Done if !counts.contains_key(deed.token.as_str()) => {
                return Err(violation(
                    CHECKER,
                    format!("{:?} is missing, although caller {} got success", deed.token, deed.by),
                ));
            }
            // Only an earlier attempt of the same deed can have stood in its way.
            DeedAnswer::Refused(Refusal::Exists) => {
                return Err(violation(
                    CHECKER,
                    format!(
                        "{:?} of caller {} was refused because it was done before: it was carried out twice",
                        deed.token, deed.by
                    ),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the effects appear in the order of each caller (records of a log).
///
/// # Errors
/// The first record that stands before an earlier one of its caller.
pub fn check_order(deeds: &[Deed], found: &[String]) -> Result<(), Violation> {
    let by_token: BTreeMap<&str, (usize, &Deed)> =
        deeds.iter().enumerate().map(|(n, deed)| (deed.token.as_str(), (n, deed))).collect();
    let mut last: BTreeMap<u32, (usize, &str)> = BTreeMap::new();
    for token in found {
        let Some((n, deed)) = by_token.get(token.as_str()) else { continue };
        if let Some((before, other)) = last.insert(deed.by, (*n, token))
            && before > *n
        {
            return Err(violation(
                CHECKER,
                format!("caller {} did {token:?} before {other:?}, it lies after it", deed.by),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(by: u32, token: &str, answer: DeedAnswer) -> Deed {
        Deed { by, token: token.to_owned(), answer }
    }

    fn found(tokens: &[&str]) -> Vec<String> {
        tokens.iter().map(|token| (*token).to_owned()).collect()
    }

    fn deeds() -> Vec<Deed> {
        vec![
            deed(1, "a", DeedAnswer::Done),
            deed(2, "b", DeedAnswer::Done),
            deed(1, "c", DeedAnswer::Refused(Refusal::NoSpace)),
            deed(1, "d", DeedAnswer::Unanswered),
        ]
    }

    #[test]
    fn right_results_pass() {
        for tokens in [&["a", "b"][..], &["b", "a"], &["a", "b", "d"]] {
            assert_eq!(check(&deeds(), &found(tokens)), Ok(()), "{tokens:?}");
        }
    }

    #[test]
    fn wrong_results_are_named() {
        let cases: [(&[&str], &str); 5] = [
            (&["a"], "\"b\" is missing"),
            (&["a", "b", "b"], "\"b\" of caller 2 is there 2 times"),
            (&["a", "b", "c"], "\"c\" exists, although caller 1 was refused: no space left"),
            (&["a", "b", "d", "d"], "\"d\" of caller 1 is there 2 times"),
            (&["a", "b", "x"], "nobody asked"),
        ];
        for (tokens, expect) in cases {
            let said = check(&deeds(), &found(tokens)).expect_err(expect).what;
            assert!(said.contains(expect), "{said:?} does not say {expect:?}");
        }
        // The answer of the first try was lost, and the second was carried out anew.
        let twice = [deed(1, "a", DeedAnswer::Refused(Refusal::Exists))];
        assert!(check(&twice, &[]).unwrap_err().what.contains("carried out twice"));
    }

    #[test]
    fn the_order_of_each_caller_counts() {
        let deeds =
            [deed(1, "a", DeedAnswer::Done), deed(2, "x", DeedAnswer::Done), deed(1, "b", DeedAnswer::Done)];
        assert_eq!(check_order(&deeds, &found(&["x", "a", "b"])), Ok(()));
        assert_eq!(check_order(&deeds, &found(&["a", "b", "x"])), Ok(()));
        assert!(check_order(&deeds, &found(&["b", "x", "a"])).is_err());
    }
}
