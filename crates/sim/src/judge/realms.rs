//! Judges observations of other clients' decoupled subtrees: no answer contradicts `interfere_policy` (S59), a
//! reader that sees a mark sees the earlier ones (S60), and a merge without conflicts reports none.

use std::collections::BTreeMap;

use chiton_types::{Ino, Refusal};

use crate::history::{Action, Answer, CallId, ClientId, Happened, History, Violation};

const CHECKER: &str = "subtrees";

pub(super) fn judge(history: &History) -> Vec<Violation> {
    let mut watch = Watch::default();
    let mut found: Vec<Violation> = Vec::new();
    for event in &history.events {
        let wrong = watch.saw(&event.what);
        found.extend(wrong.map(|what| Violation { checker: CHECKER, what }));
    }
    // The first violation is enough.
    found.truncate(1);
    found
}

#[derive(Default)]
struct Watch {
    /// Number of live servers.
    alive: u32,
    /// Decoupled subtrees whose policy survives their clients, with the policy's treatment of others.
    taken: BTreeMap<ClientId, (String, &'static str)>,
    /// Looks in flight, with their paths, the last mark first.
    looks: BTreeMap<CallId, Vec<String>>,
    /// Creations by others in flight, while a subtree was decoupled all the time.
    visits: BTreeMap<CallId, (ClientId, String, &'static str)>,
}

impl Watch {
    fn saw(&mut self, what: &Happened) -> Option<String> {
        match what {
            Happened::ServerStarted { .. } => {
                self.alive += 1;
                self.looks.clear();
                self.visits.clear();
            }
            // Merged changes that are not durable may be lost, and be merged again.
            Happened::ServerCrashed { .. } => {
                self.alive = self.alive.saturating_sub(1);
                self.looks.clear();
                // Operations that were answered before are carried out again, whoever has the subtree by then.
                self.visits.clear();
            }
            Happened::MergeTrouble { client, what } => {
                return Some(format!("client {}: {what}", client.0));
            }
            Happened::Decoupled { client, root, kept: true, interfere, .. } => {
                self.taken.insert(*client, (root.clone(), interfere));
            }
            Happened::IsOver { client, .. } => self.over(*client),
            Happened::Invoked { client, call, action, .. } => self.invoked(*client, *call, action),
            Happened::Returned { call, answer, .. } => return self.returned(*call, answer),
            _ => {}
        }
        None
    }

    fn invoked(&mut self, client: ClientId, call: CallId, action: &Action) {
        match action {
            Action::MergeAll | Action::Discard => self.over(client),
            Action::Follow { marks, .. } if self.alive == 1 => {
                self.looks.insert(call, marks.iter().rev().cloned().collect());
            }
            Action::Create { path, .. } => {
                let within = |(_, (root, _)): &(&ClientId, &(String, &'static str))| {
                    path.strip_prefix(root.as_str()).is_some_and(|rest| rest.starts_with("/theirs/"))
                };
                if let Some((owner, (_, interfere))) = self.taken.iter().find(within)
                    && *owner != client
                    && self.alive == 1
                {
                    self.visits.insert(call, (*owner, path.clone(), interfere));
                }
            }
            _ => {}
        }
    }

    /// A decoupling has ended, or may have.
    fn over(&mut self, client: ClientId) {
        self.taken.remove(&client);
        self.visits.retain(|_, (owner, ..)| *owner != client);
    }

    fn returned(&mut self, call: CallId, answer: &Answer) -> Option<String> {
        if let Some((_, path, interfere)) = self.visits.remove(&call) {
            return match (interfere, answer) {
                ("allow", Answer::Refused(Refusal::Busy)) => {
                    Some(format!("{path}: was refused, `interfere_policy: allow` lets others act"))
                }
                ("block" | "block_writes", Answer::Attr(_)) => {
                    Some(format!("{path}: was made by another, against `interfere_policy: {interfere}`"))
                }
                _ => None,
            };
        }
        let (Some(asked), Answer::Names(seen)) = (self.looks.remove(&call), answer) else { return None };
        if let Some((path, _)) = seen.iter().find(|(_, ino)| *ino == Ino(0)) {
            return Some(format!("{path} is seen with other content than it was made with"));
        }
        let first = seen.first().and_then(|(path, _)| asked.iter().position(|asked| asked == path))?;
        let missing = asked[first..].iter().find(|path| seen.iter().all(|(seen, _)| seen != *path))?;
        Some(format!("{} is seen, and not {missing}, which was made before it", seen[0].0))
    }
}
