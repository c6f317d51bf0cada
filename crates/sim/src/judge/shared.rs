//! What all clients change: a few names in one directory, a few attributes of one file.

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::Refusal;

use crate::checkers::leases::Values;
use crate::checkers::linear::{self, Seen, Spec, Verdict};
use crate::history::{Action, Answer, CallId, ClientId, Happened, History, Violation};
use crate::plan::{BOARD, SHARED};

/// Steps of the search for an order.
const CONFIGURATIONS_MAX: usize = 200_000;

pub(super) fn judge(history: &History) -> Vec<Violation> {
    // What an answered call changed may be lost with its client: then no order need hold it.
    let lossy = history
        .events
        .iter()
        .any(|event| matches!(event.what, Happened::ClientCrashed { .. } | Happened::SessionLost { .. }));
    if lossy {
        return Vec::new();
    }
    let mut calls: BTreeMap<CallId, (ClientId, u64, &Action)> = BTreeMap::new();
    let mut names: Vec<Seen<Call, Said>> = Vec::new();
    let mut at_name: BTreeMap<CallId, usize> = BTreeMap::new();
    let mut values = Values::default();
    let mut found = Vec::new();
    for (at, event) in history.events.iter().enumerate() {
        let at = at as u64 + 1;
        match &event.what {
            Happened::Invoked { client, call, action } => {
                calls.insert(*call, (*client, at, action));
                if let Some(asked) = asked(action) {
                    at_name.insert(*call, names.len());
                    names.push(Seen { by: client.0, call: asked, begun: at, ended: None });
                }
                if let Action::SetXattr { path, name, value } = action
                    && path == BOARD
                {
                    values.write_begins(name, version(value), at);
                }
            }
            Happened::Returned { call, answer, .. } => {
                let Some((_, begun, action)) = calls.remove(call) else { continue };
                if matches!(answer, Answer::Refused(Refusal::NotConnected | Refusal::Io | Refusal::NoSpace)) {
                    continue;
                }
                if let Some(n) = at_name.get(call) {
                    names[*n].ended = Some((at, said(answer)));
                }
                match (action, answer) {
                    (Action::SetXattr { path, name, value }, Answer::Done) if path == BOARD => {
                        values.write_ends(name, version(value), at);
                    }
                    (Action::GetXattr { path, name }, Answer::Bytes(value)) if path == BOARD => {
                        found.extend(values.read(name, version(value), begun, at).err());
                    }
                    (Action::GetXattr { path, name }, Answer::Refused(Refusal::NoXattr)) if path == BOARD => {
                        found.extend(values.read(name, 0, begun, at).err());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    if let Verdict::Not(violation) = linear::check(&Names, &BTreeSet::new(), &names, CONFIGURATIONS_MAX) {
        found.push(violation);
    }
    found
}

/// `client-version` as one number, not 0.
fn version(value: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(value);
    let (client, version) = text.split_once('-').unwrap_or(("0", "0"));
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    (number(client) + 1) << 32 | number(version)
}

#[derive(Clone, Debug)]
enum Call {
    Make(String),
    Remove(String),
    Move(String, String),
    Look(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Said {
    Yes,
    No(Refusal),
}

/// Names that are there or not.
struct Names;

impl Spec for Names {
    type State = BTreeSet<String>;
    type Call = Call;
    type Answer = Said;

    fn step(&self, state: &BTreeSet<String>, call: &Call) -> (BTreeSet<String>, Said) {
        let mut after = state.clone();
        let said = match call {
            Call::Make(name) => match after.insert(name.clone()) {
                true => Said::Yes,
                false => Said::No(Refusal::Exists),
            },
            Call::Remove(name) => match after.remove(name) {
                true => Said::Yes,
                false => Said::No(Refusal::NotFound),
            },
            Call::Move(from, to) => match after.contains(from) {
                true => {
                    after.remove(from);
                    after.insert(to.clone());
                    Said::Yes
                }
                false => Said::No(Refusal::NotFound),
            },
            Call::Look(name) => match after.contains(name) {
                true => Said::Yes,
                false => Said::No(Refusal::NotFound),
            },
        };
        (after, said)
    }
}

fn asked(action: &Action) -> Option<Call> {
    let shared = |path: &String| path.starts_with(SHARED).then(|| path.clone());
    match action {
        Action::Create { path, .. } => Some(Call::Make(shared(path)?)),
        Action::Unlink { path } => Some(Call::Remove(shared(path)?)),
        Action::Rename { from, to } => Some(Call::Move(shared(from)?, shared(to)?)),
        Action::Stat { path } => Some(Call::Look(shared(path)?)),
        _ => None,
    }
}

fn said(answer: &Answer) -> Said {
    match answer {
        Answer::Refused(refusal) => Said::No(*refusal),
        _ => Said::Yes,
    }
}
