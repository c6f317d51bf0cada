//! Files to which all clients append: what readers anywhere see of them.
//!
//! Invariants:
//! - A client that lost its session, or data, learns so at its next fsync (S23, S26): if that succeeds, nothing is lost.
//! - While a server that was replaced may still answer, reads are not judged.

use std::collections::{BTreeMap, BTreeSet};

use super::shared::take_overs;
use super::{is_of_the_outside, last_tree};
use crate::checkers::appends::Appends;
use crate::history::{Action, Answer, CallId, ClientId, Happened, History, Violation};
use crate::plan::TAIL;

/// A call that is under way.
struct UnderWay<'a> {
    action: &'a Action,
    begun: u64,
    record: Option<usize>,
}

pub(super) fn judge(history: &History) -> Option<Violation> {
    let mut appends = Appends::default();
    let mut open: BTreeMap<CallId, UnderWay<'_>> = BTreeMap::new();
    // Clients that lost something and have not asked since.
    let mut in_doubt: BTreeSet<ClientId> = BTreeSet::new();
    let stale = take_overs(history);
    for (at, event) in (1..).zip(&history.events) {
        match &event.what {
            Happened::Invoked { client, call, action, .. } => {
                let record = match action {
                    Action::Append { path, bytes } => Some(appends.begins(*client, path, bytes, at)),
                    _ => None,
                };
                open.insert(*call, UnderWay { action, begun: at, record });
            }
            Happened::Returned { client, call, answer } => {
                let Some(UnderWay { action, begun, record }) = open.remove(call) else { continue };
                match (action, answer) {
                    (Action::Append { .. }, Answer::Written(_)) => {
                        appends.acknowledged(record.expect("an append has a record"), at);
                    }
                    (Action::FsyncAppended { path }, Answer::Done) => {
                        appends.synced(*client, Some(path), begun);
                    }
                    (Action::Sync, Answer::Done) => {
                        appends.synced(*client, None, begun);
                        in_doubt.remove(client);
                    }
                    (
                        Action::FsyncAppended { .. }
                        | Action::CloseAppended { .. }
                        | Action::Sync
                        | Action::FsyncDir
                        | Action::Fsync { .. },
                        Answer::Refused(refusal),
                    ) if is_of_the_outside(*refusal) => appends.told_of_loss(*client, at),
                    (Action::ReadFile { path }, Answer::Bytes(bytes))
                        if path.starts_with(TAIL)
                            && !stale.iter().any(|(from, to)| begun < *to && *from < at) =>
                    {
                        appends.read(path, begun, at, bytes);
                    }
                    _ => {}
                }
            }
            Happened::SessionLost { client } | Happened::DataLost { client, .. } => {
                in_doubt.insert(*client);
            }
            Happened::ClientCrashed { client } => appends.gone(*client),
            _ => {}
        }
    }
    in_doubt.into_iter().for_each(|client| appends.gone(client));
    if let Some(tree) = last_tree(history) {
        let end = history.events.len() as u64 + 1;
        for (path, node) in tree.nodes.iter().filter(|(path, _)| path.starts_with(TAIL)) {
            appends.read(path, end, end + 1, &node.content);
        }
    }
    appends.judge().err()
}
