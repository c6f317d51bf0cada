//! Lives whose session ended. The client sends its operations again, the server may refuse some, and the client's next sync reports
//! that with EIO (S82, S143): then the tree is no prefix of the life, since independent operations after a refused one are there.

use std::collections::BTreeMap;

use chiton_types::Refusal;

use super::Life;
use crate::history::{Action, Answer, CallId, ClientId, Happened};

/// The ended lives of each client that no sync has made durable yet.
#[derive(Default)]
pub(super) struct Late(BTreeMap<ClientId, Waiting>);

#[derive(Default)]
struct Waiting {
    lives: Vec<Life>,
    /// The session of some of their operations has ended.
    is_late: bool,
    /// The sync that is under way.
    sync: Option<CallId>,
}

impl Late {
    /// The client continues in another directory. Returns a life that is judged whatever becomes of the session: one of a client that
    /// works apart.
    pub(super) fn keep(&mut self, client: ClientId, life: Option<Life>, is_apart: bool) -> Option<Life> {
        let life = life?;
        if is_apart {
            return Some(life);
        }
        self.0.entry(client).or_default().lives.push(life);
        None
    }

    /// The session of a life has ended.
    pub(super) fn begin(&mut self, client: ClientId, mut life: Life) {
        let under_way = life.under_way.as_ref().filter(|under_way| matches!(under_way.action, Action::Sync));
        let under_way = under_way.map(|under_way| under_way.call);
        life.cut_off();
        let waiting = self.0.entry(client).or_default();
        waiting.sync = waiting.sync.or(under_way);
        waiting.lives.push(life);
    }

    /// Takes note of an event; returns lives of which nothing was lost.
    pub(super) fn note(&mut self, event: &Happened) -> Vec<Life> {
        match event {
            Happened::Invoked { client, call, action: Action::Sync, .. } => {
                if let Some(waiting) = self.0.get_mut(client) {
                    waiting.sync = Some(*call);
                }
            }
            Happened::SessionLost { client } => self.0.entry(*client).or_default().is_late = true,
            Happened::Returned { client, call, answer } => {
                let Some(waiting) = self.0.get_mut(client) else { return Vec::new() };
                let is_sync = waiting.sync == Some(*call);
                match answer {
                    // Something was lost, or an action whose outcome nobody knows.
                    Answer::Refused(Refusal::Io) if waiting.is_late => drop(self.0.remove(client)),
                    Answer::Done if is_sync => {
                        return self.0.remove(client).map(|waiting| waiting.lives).unwrap_or_default();
                    }
                    _ if is_sync => waiting.sync = None,
                    _ => {}
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// At the end: lives whose sessions lasted. Of the others nobody knows what was lost.
    pub(super) fn rest(self) -> impl Iterator<Item = Life> {
        self.0.into_values().filter(|waiting| !waiting.is_late).flat_map(|waiting| waiting.lives)
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::Plates;

    use super::*;
    use crate::users::User;

    const CLIENT: ClientId = ClientId(3);

    fn life() -> Life {
        Life::new(Plates::one(64), "/own3-0".into(), 0o755, CallId(1))
    }

    fn sync(call: u64) -> Happened {
        Happened::Invoked { client: CLIENT, call: CallId(call), user: User::Root, action: Action::Sync }
    }

    fn returned(call: u64, answer: Answer) -> Happened {
        Happened::Returned { client: CLIENT, call: CallId(call), answer }
    }

    #[test]
    fn a_life_is_judged_after_the_sync_that_reports_no_loss() {
        let mut late = Late::default();
        assert!(late.keep(CLIENT, Some(life()), false).is_none());
        let judged = [
            Happened::SessionLost { client: CLIENT },
            returned(6, Answer::Done),
            sync(7),
            returned(7, Answer::Refused(Refusal::NoSpace)),
            sync(8),
            returned(8, Answer::Done),
            returned(8, Answer::Done),
        ]
        .map(|event| {
            if matches!(event, Happened::SessionLost { .. }) {
                late.begin(CLIENT, life());
            }
            late.note(&event).len()
        });
        assert_eq!(judged, [0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(late.rest().count(), 0);
    }

    #[test]
    fn a_life_is_not_judged_after_a_loss() {
        let mut late = Late::default();
        assert!(late.keep(CLIENT, Some(life()), false).is_none());
        let events = [
            Happened::SessionLost { client: CLIENT },
            sync(7),
            returned(7, Answer::Refused(Refusal::Io)),
            sync(8),
            returned(8, Answer::Done),
        ];
        assert!(events.iter().all(|event| late.note(event).is_empty()));
        // A client that works apart needs no session, and one whose session lasts is judged.
        assert!(late.keep(CLIENT, Some(life()), true).is_some());
        assert!(late.keep(CLIENT, Some(life()), false).is_none());
        assert!(late.note(&returned(9, Answer::Refused(Refusal::Io))).is_empty());
        assert_eq!(late.rest().count(), 1);
    }
}
