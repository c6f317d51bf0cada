//! Judges files with one maker, numbers of inodes, and fencing.

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::{Epoch, Ino, PlateId, Position, Refusal};

use crate::checkers::exactly_once::{self, Deed, DeedAnswer};
use crate::checkers::fencing::Fencing;
use crate::checkers::inodes::Births;
use crate::history::{Action, Answer, CallId, ClientId, Happened, History, Violation};
use crate::plan::{LOG, OWN, VISITS};
use crate::tree::Tree;

pub(super) fn judge(history: &History, tree: Option<&Tree>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut births = Births::default();
    let mut fencing: BTreeMap<PlateId, Fencing> = BTreeMap::new();
    let mut deeds: Vec<Deed> = Vec::new();
    // Acknowledged deeds that are durable for sure, by client: the others may be lost with a dead client.
    let mut open: BTreeMap<CallId, usize> = BTreeMap::new();
    // Calls that had not been answered when their session was lost.
    let mut overtaken: BTreeSet<CallId> = BTreeSet::new();
    let mut makes: BTreeMap<CallId, ()> = BTreeMap::new();
    let mut fresh: BTreeMap<ClientId, Vec<usize>> = BTreeMap::new();
    let mut commits: BTreeMap<CallId, usize> = BTreeMap::new();
    let mut note = |result: Result<(), Violation>| found.extend(result.err());
    for event in &history.events {
        match &event.what {
            Happened::Invoked { client, call, action, .. } => {
                if let Action::Create { path, .. } = action
                    && let Some(token) = token_of(path)
                {
                    open.insert(*call, deeds.len());
                    deeds.push(Deed {
                        by: client.0,
                        token: token.to_owned(),
                        answer: DeedAnswer::Unanswered,
                    });
                }
                match action {
                    Action::Mkdir { .. } | Action::Create { .. } | Action::Symlink { .. } => {
                        makes.insert(*call, ());
                    }
                    Action::Sync | Action::FsyncDir | Action::Fsync { .. } => {
                        commits.insert(*call, fresh.get(client).map_or(0, Vec::len));
                    }
                    _ => {}
                }
            }
            Happened::Returned { client, call, answer } => {
                note(each_name_once(*call, answer));
                if let Some(deed) = open.remove(call) {
                    match answer {
                        // Whether it took effect is not known.
                        Answer::Refused(Refusal::NotConnected | Refusal::Io) => {}
                        Answer::Refused(refusal) => deeds[deed].answer = DeedAnswer::Refused(*refusal),
                        // Done in a session that was lost before the answer: the next call that commits reports the
                        // loss.
                        _ if overtaken.remove(call) => {}
                        _ => {
                            deeds[deed].answer = DeedAnswer::Done;
                            fresh.entry(*client).or_default().push(deed);
                        }
                    }
                }
                if let (Some(()), Answer::Attr(seen)) = (makes.remove(call), answer) {
                    note(births.born(seen.ino, (client.0.into(), call.0)));
                }
                if let Some(count) = commits.remove(call)
                    && *answer == Answer::Done
                {
                    let fresh = fresh.entry(*client).or_default();
                    fresh.drain(..count.min(fresh.len()));
                }
            }
            // No client is left to send again the operations that the server may lose.
            Happened::ClientCrashed { client } | Happened::SessionLost { client } => {
                overtaken.extend(
                    open.iter().filter(|(_, deed)| deeds[**deed].by == client.0).map(|(call, _)| *call),
                );
                for deed in fresh.remove(client).unwrap_or_default() {
                    deeds[deed].answer = DeedAnswer::Unanswered;
                }
            }
            Happened::ServerStarted { plate, epoch, found, .. } => {
                note(fencing.entry(*plate).or_default().took_over(Epoch(*epoch), Position(*found)));
            }
            Happened::Acknowledged { plate, epoch, durable, .. } => {
                note(fencing.entry(*plate).or_default().acknowledged(Epoch(*epoch), Position(*durable)));
            }
            _ => {}
        }
    }
    if let Some(tree) = tree {
        let there: Vec<String> =
            tree.nodes.keys().filter_map(|path| token_of(path)).map(str::to_owned).collect();
        note(exactly_once::check(&deeds, &there));
        let mut seen: BTreeMap<Ino, &str> = BTreeMap::new();
        for (path, node) in tree.nodes.iter().filter(|(_, node)| node.nlink == 1) {
            if let Some(other) = seen.insert(node.ino, path) {
                let what = format!("{path} and {other} are both inode {}, which has one name", node.ino);
                note(Err(Violation { checker: "structure", what }));
            }
        }
    }
    found
}

/// A listing has each name once, whatever others do in the directory, or the server with its parts.
fn each_name_once(call: CallId, answer: &Answer) -> Result<(), Violation> {
    let Answer::Names(names) = answer else { return Ok(()) };
    match names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            let what = format!("call {} lists {} twice", call.0, pair[0].0);
            Err(Violation { checker: "listings", what })
        }
        None => Ok(()),
    }
}

/// The unique effect behind a path that only one client creates: in the log, or in another client's subtree.
fn token_of(path: &str) -> Option<&str> {
    if path.starts_with(OWN) {
        return path.contains(VISITS).then_some(path);
    }
    path.strip_prefix(LOG).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::users::User;

    fn judged(events: &[&str]) -> Vec<String> {
        let client = ClientId(0);
        let mut history = History::default();
        for event in events {
            let (what, call) = event.split_at(1);
            let call = CallId(call.parse().unwrap_or(0));
            let path = format!("{LOG}c0-{}", call.0);
            history.push(
                Duration::ZERO,
                match what {
                    "(" => Happened::Invoked {
                        client,
                        call,
                        user: User::Root,
                        action: Action::Create { path, content: Vec::new() },
                    },
                    ")" => Happened::Returned { client, call, answer: Answer::Done },
                    "s" => Happened::Invoked { client, call, user: User::Root, action: Action::Sync },
                    "-" => Happened::Returned { client, call, answer: Answer::Refused(Refusal::Io) },
                    _ => Happened::SessionLost { client },
                },
            );
        }
        judge(&history, Some(&Tree::default())).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn a_name_that_is_listed_twice_is_noticed() {
        let listed = |names: &[&str]| {
            let names = names.iter().map(|name| ((*name).to_owned(), Ino(7))).collect();
            each_name_once(CallId(3), &Answer::Names(names)).is_ok()
        };
        assert!(listed(&["a", "b"]) && listed(&[]));
        assert!(!listed(&["a", "b", "b"]));
    }

    #[test]
    fn only_calls_in_flight_of_an_expired_session_may_be_missing() {
        for (events, missing) in [
            (&["(1", ")1"][..], true),
            (&["(1", "-1"], false),
            (&["(1", ")1", "x"], false),
            (&["(1", ")1", "s2", ")2", "x"], true),
            (&["(1", "x", ")1"], false),
            (&["x", "(1", ")1"], true),
            (&["(1", "x", ")1", "(2", ")2"], true),
        ] {
            let found = judged(events);
            assert_eq!(!found.is_empty(), missing, "{events:?}: {found:?}");
        }
    }
}
