//! Requests of other plates whose rows cannot be read.

use chiton_types::Refusal;
use chiton_wire::{Failure, PeerMessage};

use crate::engine::Engine;

impl Engine {
    /// The rows that the first request of another plate needs cannot be read. False if there is none.
    pub(crate) fn fail_first_peer(&mut self) -> bool {
        let Some(peers) = &mut self.peers else { return false };
        let Some(task) = peers.tasks.pop_front() else { return false };
        if let Some((from, PeerMessage::Carry { number, .. })) = task.asked_by_peer() {
            let failure = Failure::Refused(Refusal::Io);
            peers.send(*from, PeerMessage::NotCarried { number: *number, failure }, &mut self.queue);
        }
        if let Some((from, PeerMessage::AskSubtree { question })) = task.asked_by_peer() {
            let question = question.clone();
            // A subtree that cannot be found is outside.
            let answer = PeerMessage::Subtree { question, found: None, onward: Vec::new() };
            peers.send(*from, answer, &mut self.queue);
        }
        // The others are asked again after the next greeting.
        if let Some((from, PeerMessage::Guard { key, attempt, ino, .. })) = task.asked_by_peer() {
            let granted = PeerMessage::Granted { key: *key, attempt: *attempt, ino: *ino, row: None };
            peers.send(*from, granted, &mut self.queue);
        }
        true
    }
}
