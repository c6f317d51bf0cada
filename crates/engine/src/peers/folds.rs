//! Steps of folding directories that this plate has decided ([`crate::fold`]).

use chiton_model::Event;
use chiton_types::{Ino, Position};

use super::Peers;
use crate::step::Stop;
use crate::wait_queue::Wait;

/// The last step of a directory.
#[derive(Clone, Copy)]
pub(super) struct FoldStep {
    /// Journal position of the decision.
    position: Position,
    /// With this step the folded parts end.
    is_last: bool,
}

impl Peers {
    /// A decision, which may be such a step.
    pub(super) fn note_fold(&mut self, events: &[Event], position: Position) {
        if let [Event::Parts { ino, .. }, Event::Folded { .. } | Event::Reclaim { .. }, ..] = events {
            let is_last = matches!(events[1], Event::Reclaim { .. });
            self.folds.insert(*ino, FoldStep { position, is_last });
        }
    }

    /// Waits until the steps of these directories are durable.
    pub(super) fn await_folds(&self, inodes: &[Ino]) -> Result<(), Stop> {
        let is_awaited =
            |(dir, step): &(&Ino, &FoldStep)| step.position > self.durable && inodes.contains(dir);
        match self.folds.iter().find(is_awaited) {
            Some((_, step)) => Err(Stop::Wait(Wait::Durable(step.position))),
            None => Ok(()),
        }
    }

    /// Nothing rests any more on last steps that are durable.
    pub(super) fn forget_ended_folds(&mut self, durable: Position) {
        self.folds.retain(|_, step| !step.is_last || step.position > durable);
    }

    /// Whether all inodes that were named in folded parts of a directory know it, durably.
    pub(crate) fn knows_home(&self, dir: Ino) -> bool {
        // Of an earlier start's the position is not known: it was before this one.
        let folded = self.folds.get(&dir).map(|step| step.position).or(self.opened_at);
        let is_done = |folded: Position| {
            let mut first = self.others.values().filter_map(|peer| peer.owed.values().next());
            first.all(|owed| owed.position > folded)
        };
        folded.is_some_and(is_done)
    }
}
