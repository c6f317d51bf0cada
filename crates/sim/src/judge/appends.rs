//! Files to which all clients append: the contents and sizes that readers anywhere see.
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
    /// The client has the file open that it asks about.
    is_open: bool,
}

pub(super) fn judge(history: &History) -> Option<Violation> {
    let mut appends = Appends::default();
    let mut open: BTreeMap<CallId, UnderWay<'_>> = BTreeMap::new();
    // Clients that lost something and have not asked since.
    let mut in_doubt: BTreeSet<ClientId> = BTreeSet::new();
    // The files that each client has open for certain.
    let mut opens: BTreeSet<(ClientId, &str)> = BTreeSet::new();
    // When each client lost something last: it closes everything after the call that was under way.
    let mut lost_at: BTreeMap<ClientId, u64> = BTreeMap::new();
    let stale = take_overs(history);
    for (at, event) in (1..).zip(&history.events) {
        match &event.what {
            Happened::Invoked { client, call, action, .. } => {
                let record = match action {
                    Action::Append { path, bytes } => Some(appends.begins(*client, path, bytes, at)),
                    Action::CloseAppended { path } => {
                        opens.remove(&(*client, path));
                        None
                    }
                    _ => None,
                };
                let is_open = matches!(action, Action::Stat { path } if opens.contains(&(*client, path)));
                open.insert(*call, UnderWay { action, begun: at, record, is_open });
            }
            Happened::Returned { client, call, answer } => {
                // A client that gets that answer closes everything, and starts with a new session.
                if matches!(answer, Answer::Refused(refusal) if is_of_the_outside(*refusal)) {
                    opens.retain(|(other, _)| other != client);
                }
                let Some(UnderWay { action, begun, record, is_open }) = open.remove(call) else { continue };
                let is_stale = stale.iter().any(|(from, to)| begun < *to && *from < at);
                match (action, answer) {
                    (Action::Append { path, .. }, Answer::Written(_)) => {
                        if lost_at.get(client).is_none_or(|lost| *lost < begun) {
                            opens.insert((*client, path));
                        }
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
                    ) if is_of_the_outside(*refusal) => appends.reported_loss(*client, at),
                    (Action::ReadFile { path }, Answer::Bytes(bytes))
                        if path.starts_with(TAIL) && !is_stale =>
                    {
                        appends.read(path, begun, at, bytes);
                    }
                    (Action::Stat { path }, Answer::Attr(seen)) if path.starts_with(TAIL) && !is_stale => {
                        // The asking client may have lost its descriptors meanwhile.
                        let is_open = is_open && opens.contains(&(*client, path));
                        appends.size(path, (begun, at), seen.size, is_open);
                    }
                    _ => {}
                }
            }
            Happened::SessionLost { client } | Happened::DataLost { client, .. } => {
                in_doubt.insert(*client);
                lost_at.insert(*client, at);
                opens.retain(|(other, _)| other != client);
            }
            Happened::ClientCrashed { client } => {
                appends.gone(*client);
                opens.retain(|(other, _)| other != client);
            }
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
