//! The parts of a run in which one order must explain all clients' changes.
//!
//! A server that dies loses changes that were not durable, and clients send them again, so no client notices. But
//! no client sends again the changes that were acknowledged to a client that died or lost its session, although
//! others may have seen them.
//!
//! ```text
//!   judged ───────────────▶│ server dies, and changes of a dead client may go with it
//!                          │  not judged │ first change that is answered after the restart: all are back, or given up
//!                                        └──────▶ judged, from any state on
//! ```
//! After a take-over the replaced server may still answer requests until it notices: until it is gone nothing is
//! judged, whatever was lost.

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::{Plates, Refusal};

use super::changes;
use crate::history::{Action, Answer, CallId, ClientId, Happened, History, ServerId};

/// A place in the history, from 1.
pub(super) type Moment = u64;

/// A call, as far as it is known.
pub(super) struct CallRecord<'a> {
    pub(super) client: ClientId,
    pub(super) action: &'a Action,
    pub(super) begun: Moment,
    pub(super) ended: Option<(Moment, &'a Answer)>,
    /// When the client died, or lost its session, if it did.
    life_ended: Option<Moment>,
    /// The client works in its own decoupled subtrees: its commits concern its own journal.
    is_apart: bool,
    /// The client may have acknowledged it by write-behind, and died before the server certainly knew of it (S27).
    may_be_lost: bool,
}

impl<'a> CallRecord<'a> {
    /// The answer, if it decides whether the call took effect.
    pub(super) fn answered(&self) -> Option<(Moment, &'a Answer)> {
        self.ended.filter(|(_, answer)| {
            !self.may_be_lost
                && !matches!(answer, Answer::Refused(Refusal::NotConnected | Refusal::Io | Refusal::NoSpace))
        })
    }

    fn is_commit(&self) -> bool {
        let commits = matches!(
            self.action,
            Action::Sync | Action::FsyncDir | Action::Fsync { .. } | Action::FsyncAppended { .. }
        );
        commits && !self.is_apart && self.ended.is_some_and(|(_, answer)| *answer == Answer::Done)
    }
}

/// Calls that begin from `from` on and before `to`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Moment,
    pub(super) to: Moment,
    /// The state before was empty.
    pub(super) is_first: bool,
}

/// All calls, in order.
pub(super) fn calls(history: &History) -> Vec<CallRecord<'_>> {
    let mut calls: Vec<CallRecord<'_>> = Vec::new();
    let mut open: BTreeMap<CallId, usize> = BTreeMap::new();
    let mut of_life: BTreeMap<ClientId, Vec<usize>> = BTreeMap::new();
    let mut apart: BTreeSet<ClientId> = BTreeSet::new();
    for (at, event) in (1..).zip(&history.events) {
        match &event.what {
            Happened::Invoked { client, call, action, .. } => {
                let is_apart = apart.contains(client);
                open.insert(*call, calls.len());
                of_life.entry(*client).or_default().push(calls.len());
                calls.push(CallRecord {
                    client: *client,
                    action,
                    begun: at,
                    ended: None,
                    life_ended: None,
                    is_apart,
                    may_be_lost: false,
                });
            }
            Happened::Returned { call, answer, .. } => {
                if let Some(n) = open.remove(call) {
                    calls[n].ended = Some((at, answer));
                }
            }
            Happened::WorksApart { client } => drop(apart.insert(*client)),
            Happened::ClientCrashed { client } | Happened::SessionLost { client } => {
                let of_life = of_life.remove(client).unwrap_or_default();
                let mut knows = false;
                for &n in of_life.iter().rev() {
                    calls[n].life_ended = Some(at);
                    // A change that write-behind cannot acknowledge reaches the server after all earlier ones.
                    let is_answered = calls[n].answered().is_some();
                    knows |= is_answered && goes_to_the_server(calls[n].action, history.plates);
                    let may_be_pending = match (calls[n].action, calls[n].ended) {
                        (Action::Create { .. } | Action::Mkdir { .. }, Some((_, answer))) => {
                            matches!(answer, Answer::Attr(_))
                        }
                        (Action::Unlink { .. }, Some((_, answer))) => *answer == Answer::Done,
                        _ => false,
                    };
                    calls[n].may_be_lost = !knows && is_answered && may_be_pending;
                }
            }
            _ => {}
        }
    }
    calls
}

/// Whether a call that is answered shows that the server knows of all that its client was answered before. With several plates
/// only a call that concerns all of them does.
fn goes_to_the_server(action: &Action, plates: Plates) -> bool {
    if plates.count() > 1 {
        return matches!(action, Action::FsyncDir | Action::Sync);
    }
    matches!(
        action,
        Action::Link { .. }
            | Action::Rmdir { .. }
            | Action::Rename { .. }
            | Action::Whiteout { .. }
            | Action::Exchange { .. }
            | Action::SetXattr { .. }
            | Action::FsyncDir
            | Action::Sync
    )
}

/// The present server died, or was replaced.
struct Break {
    /// Changes that are durable by then are safe.
    at: Moment,
    /// It answers nothing after that.
    until: Moment,
    is_take_over: bool,
}

fn breaks(history: &History) -> Vec<Break> {
    let mut breaks: Vec<Break> = Vec::new();
    let mut serving: Option<ServerId> = None;
    let mut paused: BTreeMap<ServerId, Moment> = BTreeMap::new();
    // Replaced servers, and their breaks.
    let mut replaced: BTreeMap<ServerId, usize> = BTreeMap::new();
    for (at, event) in (1..).zip(&history.events) {
        match &event.what {
            Happened::ServerPaused { server } => drop(paused.insert(*server, at)),
            Happened::ServerStarted { server, .. } => {
                if let Some(before) = serving.filter(|before| before != server) {
                    replaced.insert(before, breaks.len());
                    let at = paused.get(&before).copied().unwrap_or(at);
                    breaks.push(Break { at, until: Moment::MAX, is_take_over: true });
                }
                serving = Some(*server);
            }
            Happened::ServerCrashed { server } => {
                if let Some(n) = replaced.remove(server) {
                    breaks[n].until = at;
                } else if serving == Some(*server) {
                    serving = None;
                    breaks.push(Break { at, until: at, is_take_over: false });
                }
            }
            _ => {}
        }
    }
    breaks
}

/// From where to where a server that was replaced may still answer.
pub(super) fn take_overs(history: &History) -> Vec<(Moment, Moment)> {
    let breaks = breaks(history).into_iter().filter(|of| of.is_take_over);
    breaks.map(|of| (of.at, of.until)).collect()
}

/// Whether this may lose a change that other clients have seen.
fn loses(calls: &[CallRecord<'_>], of: &Break, plates: Plates) -> bool {
    let commits: Vec<(&CallRecord<'_>, Moment)> =
        calls.iter().filter(|call| call.is_commit()).filter_map(|call| Some((call, call.ended?.0))).collect();
    calls.iter().filter(|call| call.begun < of.until && changes(call.action)).any(|call| {
        let Some(life_ended) = call.life_ended else { return false };
        let Some((answered, answer)) = call.answered() else { return true };
        if matches!(answer, Answer::Refused(_)) {
            return false;
        }
        // A client need not commit what others did on other plates.
        let counts = |commit: &CallRecord<'_>| plates.count() == 1 || commit.client == call.client;
        let durable =
            commits.iter().any(|(commit, done)| counts(commit) && commit.begun > answered && *done < of.at);
        let came_back = commits.iter().any(|(commit, done)| {
            let same_life = commit.client == call.client && commit.life_ended == call.life_ended;
            same_life && commit.begun > answered.max(of.until) && *done < life_ended
        });
        !durable && !came_back
    })
}

/// Where the next server first answered a change that had not been requested before.
fn resumes(history: &History, calls: &[CallRecord<'_>], of: &Break) -> Option<Moment> {
    let started = if of.is_take_over {
        of.until
    } else {
        let mut later = (1..).zip(&history.events).skip(of.at as usize);
        later.find(|(_, event)| matches!(event.what, Happened::ServerStarted { .. }))?.0
    };
    let is_change = |action: &Action| {
        matches!(
            action,
            Action::Mkdir { .. }
                | Action::Create { .. }
                | Action::Unlink { .. }
                | Action::Rename { .. }
                | Action::SetXattr { .. }
        )
    };
    let changes = calls.iter().filter(|call| call.begun > started && is_change(call.action));
    let done = changes.filter_map(|call| call.ended.filter(|(_, said)| !matches!(said, Answer::Refused(_))));
    done.map(|(at, _)| at).min()
}

/// The spans of a run.
pub(super) fn spans(history: &History, calls: &[CallRecord<'_>]) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut from = Some(1);
    for of in breaks(history) {
        if from.is_none_or(|from| of.at > from) && !of.is_take_over && !loses(calls, &of, history.plates) {
            continue;
        }
        if let Some(from) = from.filter(|from| *from < of.at) {
            spans.push(Span { from, to: of.at, is_first: from == 1 });
        }
        // The next server may have died before the replaced one was gone: then nothing is judged before that.
        let Some(resumed) = resumes(history, calls, &of) else { return spans };
        from = from.max(Some(resumed));
    }
    let end = history.events.len() as Moment + 1;
    spans.extend(from.map(|from| Span { from, to: end, is_first: from == 1 }));
    spans
}
