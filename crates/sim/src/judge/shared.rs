//! Judges the shared state: a few names in one directory, paths below directories that move, a few attributes of one file, a few
//! small files.
//!
//! Invariants:
//! - If no order explains the answers, that is a violation, unless the server died and changes of a dead client, or
//!   of an expired session, were lost. From then until sessions have come back ([`spans`]) nothing is judged, and
//!   afterwards from any state on.
//! - A call without an answer may have taken effect, at any time.

mod names;
mod paths;
mod spans;

use std::collections::BTreeSet;

use chiton_types::Refusal;

use crate::checkers::leases::Values;
use crate::checkers::linear::{self, Seen, Verdict};
use crate::history::{Action, Answer, History, Violation};
use crate::plan::{BOARD, NOTE};
use names::{Call, Names, NamesAnswer, asked, said};
use spans::{CallRecord, Span};

/// Steps of the search for an order.
const CONFIGURATIONS_MAX: usize = 200_000;
/// Most names of which any may be there at first.
const NAMES_MAX: usize = 6;

pub(super) fn judge(history: &History) -> Vec<Violation> {
    let calls = spans::calls(history);
    let mut found = Vec::new();
    for span in spans::spans(history, &calls) {
        found.extend(judge_names(&calls, &span));
        found.extend(paths::judge(&calls, &span));
        found.extend(judge_values(&calls, &span));
    }
    found
}

/// From where to where a server that was replaced may still answer questions.
pub(super) fn take_overs(history: &History) -> Vec<(u64, u64)> {
    spans::take_overs(history)
}

/// Whether an action changes shared state.
fn changes(action: &Action) -> bool {
    let names = asked(action).is_some_and(|call| !matches!(call, Call::Look(_)));
    names || paths::changes(action) || write(action).is_some()
}

fn judge_names(calls: &[CallRecord<'_>], span: &Span) -> Option<Violation> {
    let mut seen: Vec<Seen<Call, NamesAnswer>> = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for call in calls.iter().filter(|call| call.begun < span.to) {
        let Some(asked) = asked(call.action) else { continue };
        match &asked {
            Call::Make(name) | Call::Remove(name) | Call::Look(name) => drop(names.insert(name.clone())),
            Call::Move(from, to) => names.extend([from.clone(), to.clone()]),
        }
        let ended = call.answered().map(|(at, answer)| (at, said(answer)));
        let ended = match ended {
            Some((at, _)) if at < span.from => continue,
            // Whether it took effect before or after the span began, or was cut off by its end, is not known.
            Some((at, _)) if at >= span.to || call.begun < span.from => None,
            ended => ended,
        };
        if ended.is_some() || !matches!(asked, Call::Look(_)) {
            seen.push(Seen { by: call.client.0, call: asked, begun: call.begun.max(span.from), ended });
        }
    }
    let starts: Vec<BTreeSet<String>> = match names.len() {
        _ if span.is_first => vec![BTreeSet::new()],
        0..=NAMES_MAX => (0..1u32 << names.len()).map(|chosen| subset(&names, chosen)).collect(),
        _ => return None,
    };
    let mut first = None;
    for start in starts {
        match linear::check(&Names, &start, &seen, CONFIGURATIONS_MAX) {
            Verdict::Not(violation) => first.get_or_insert(violation),
            Verdict::Linearizable(_) | Verdict::Undecided => return None,
        };
    }
    first
}

fn subset(names: &BTreeSet<String>, chosen: u32) -> BTreeSet<String> {
    names.iter().enumerate().filter(|(n, _)| chosen & (1 << n) != 0).map(|(_, name)| name.clone()).collect()
}

fn judge_values(calls: &[CallRecord<'_>], span: &Span) -> Vec<Violation> {
    let mut values = Values::default();
    for call in calls.iter().filter(|call| call.begun < span.to) {
        let Some((thing, version)) = write(call.action) else { continue };
        match call.answered() {
            // All before the span is as old as any.
            Some((at, answer)) if at < span.from => {
                if !matches!(answer, Answer::Refused(_)) {
                    values.write_begins(&thing, version, 0);
                    values.write_ends(&thing, version, span.from);
                }
            }
            // A call that began before the span may have taken effect before the lost changes.
            Some((at, answer)) if at < span.to && call.begun >= span.from => {
                if !matches!(answer, Answer::Refused(_)) {
                    values.write_begins(&thing, version, call.begun);
                    values.write_ends(&thing, version, at);
                }
            }
            _ => values.write_begins(&thing, version, call.begun),
        }
    }
    let mut found = Vec::new();
    for call in calls.iter().filter(|call| call.begun >= span.from) {
        let Some((at, answer)) = call.answered().filter(|(at, _)| *at < span.to) else { continue };
        if let Some((thing, version)) = read(call.action, answer) {
            found.extend(values.read(&thing, version, call.begun, at).err());
        }
    }
    found
}

/// The thing that a call writes as a whole, and its version.
fn write(action: &Action) -> Option<(String, u64)> {
    match action {
        Action::SetXattr { path, name, value } if path == BOARD => Some((name.clone(), version(value))),
        Action::WriteFile { path, bytes } if path.starts_with(NOTE) => Some((path.clone(), version(bytes))),
        _ => None,
    }
}

/// The version that a call read; version 0 is the initial one.
fn read(action: &Action, answer: &Answer) -> Option<(String, u64)> {
    match (action, answer) {
        (Action::GetXattr { path, name }, Answer::Bytes(value)) if path == BOARD => {
            Some((name.clone(), version(value)))
        }
        (Action::GetXattr { path, name }, Answer::Refused(Refusal::NoXattr)) if path == BOARD => {
            Some((name.clone(), 0))
        }
        (Action::ReadFile { path }, Answer::Bytes(bytes)) if path.starts_with(NOTE) => {
            Some((path.clone(), version(bytes)))
        }
        _ => None,
    }
}

/// `client-version` as one number, not 0; 0 for nothing.
fn version(value: &[u8]) -> u64 {
    if value.is_empty() {
        return 0;
    }
    let text = String::from_utf8_lossy(value);
    let (client, version) = text.trim_end().split_once('-').unwrap_or(("0", "0"));
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    (number(client) + 1) << 32 | number(version)
}

#[cfg(test)]
mod tests;
