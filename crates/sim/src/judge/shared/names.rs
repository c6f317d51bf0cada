//! The few names in one directory that all clients make, remove, move and look at.

use std::collections::BTreeSet;

use chiton_types::Refusal;

use crate::checkers::linear::Spec;
use crate::history::{Action, Answer};
use crate::plan::SHARED;

/// A call on the shared names.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Make(String),
    Remove(String),
    Move(String, String),
    Look(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NamesAnswer {
    Yes,
    No(Refusal),
}

/// The set of existing names.
pub(super) struct Names;

impl Spec for Names {
    type State = BTreeSet<String>;
    type Call = Call;
    type Answer = NamesAnswer;

    fn step(&self, state: &BTreeSet<String>, call: &Call) -> (BTreeSet<String>, NamesAnswer) {
        let mut after = state.clone();
        let said = match call {
            Call::Make(name) => match after.insert(name.clone()) {
                true => NamesAnswer::Yes,
                false => NamesAnswer::No(Refusal::Exists),
            },
            Call::Remove(name) => match after.remove(name) {
                true => NamesAnswer::Yes,
                false => NamesAnswer::No(Refusal::NotFound),
            },
            Call::Move(from, to) => match after.contains(from) {
                true => {
                    after.remove(from);
                    after.insert(to.clone());
                    NamesAnswer::Yes
                }
                false => NamesAnswer::No(Refusal::NotFound),
            },
            Call::Look(name) => match after.contains(name) {
                true => NamesAnswer::Yes,
                false => NamesAnswer::No(Refusal::NotFound),
            },
        };
        (after, said)
    }
}

/// The call on the shared names; `None`: the action is about something else.
pub(super) fn asked(action: &Action) -> Option<Call> {
    let shared = |path: &String| path.starts_with(SHARED).then(|| path.clone());
    match action {
        Action::Create { path, .. } => Some(Call::Make(shared(path)?)),
        Action::Unlink { path } => Some(Call::Remove(shared(path)?)),
        Action::Rename { from, to } => Some(Call::Move(shared(from)?, shared(to)?)),
        Action::Stat { path } => Some(Call::Look(shared(path)?)),
        _ => None,
    }
}

/// The answer's part about them.
pub(super) fn said(answer: &Answer) -> NamesAnswer {
    match answer {
        Answer::Refused(refusal) => NamesAnswer::No(*refusal),
        _ => NamesAnswer::Yes,
    }
}
