//! Questions about subtrees to which clients are limited, where directories on the way are of other plates.
//!
//! ```text
//!   client ── lookup in d ──▶ 1   is d in r?   its parent c is on 2
//!                             1 ── AskSubtree(c in r?) ─▶ 2   c's parent b is on 3
//!                             1 ◀─ Subtree(onward: b) ─── 2
//!                             1 ── AskSubtree(b in r?) ─▶ 3   b's parent is r
//!          ◀── answer ─────── 1 ◀─ Subtree(found: r) ──── 3
//! ```
//!
//! Invariants:
//! - A question waits for rows and births, and if it asks for a path in quiet times, for pending names of clients. It waits for no guard
//!   and for no recovery, so operations that hold guards or are carried out again may ask it.
//! - An answer need not be durable: no row rests on it.
//! - Whatever cannot be found is outside.

use chiton_namespace::Fault;
use chiton_types::{Cred, Ino, Kind, Name, PlateId};
use chiton_wire::{PeerMessage, SUBTREE_ONWARD_MAX, SubtreeQuestion};

use super::Peers;
use crate::engine::Engine;
use crate::moment::Moment;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::subtree::Said;
use crate::wait_queue::Wait;

/// Most directories that one plate looks at for one question, and most questions to other plates: a path that leads further is outside.
const STEPS_MAX: usize = 4_096;

/// The inode whose plate is asked.
fn place(question: &SubtreeQuestion) -> Ino {
    match question {
        SubtreeQuestion::Within { ino, .. } => *ino,
        SubtreeQuestion::Path { from, .. } => *from,
    }
}

impl Peers {
    /// Questions about subtrees that another plate has not answered.
    pub(super) fn asked_of_subtrees(&self, plate: PlateId) -> Vec<PeerMessage> {
        let of_plate = self.asked_subtrees.iter().filter(|asked| self.plates.of(place(asked)) == Some(plate));
        of_plate.map(|question| PeerMessage::AskSubtree { question: question.clone() }).collect()
    }
}

impl Engine {
    /// The answer to a question about a subtree: the directory that it finds.
    pub(crate) fn find_in_subtree(
        &mut self,
        question: SubtreeQuestion,
        m: &Moment,
    ) -> Result<Option<Ino>, Stop> {
        let mut todo = vec![question];
        for _ in 0..STEPS_MAX {
            let Some(question) = todo.pop() else { return Ok(None) };
            let said = match self.shards.ns.owns(place(&question)) {
                true => self.find_here(&question, m)?,
                false => self.found_by_other(question, m)?,
            };
            if said.found.is_some() {
                return Ok(said.found);
            }
            todo.extend(said.onward);
        }
        Ok(None)
    }

    fn found_by_other(&mut self, question: SubtreeQuestion, m: &Moment) -> Result<Said, Stop> {
        let is_there = self.peers.as_ref().is_some_and(|peers| peers.other_of(place(&question)).is_some());
        match self.subtrees.known(&question, m.mono) {
            Some(said) => Ok(said),
            None if is_there => Err(Stop::Wait(Wait::Subtree(Box::new(question)))),
            None => Ok(Said::default()),
        }
    }

    /// As far as this plate has the directories.
    fn find_here(&mut self, question: &SubtreeQuestion, m: &Moment) -> Result<Said, Stop> {
        match question {
            SubtreeQuestion::Within { ino, root } => self.climb(*ino, *root),
            SubtreeQuestion::Path { settled, from, names } => self.descend(*from, names, *settled, m),
        }
    }

    fn climb(&mut self, ino: Ino, root: Ino) -> Result<Said, Stop> {
        self.await_birth(ino)?;
        let (mut said, mut todo) = (Said::default(), vec![ino]);
        for _ in 0..STEPS_MAX {
            let Some(at) = todo.pop() else { break };
            if at == root {
                return Ok(Said { found: Some(root), onward: Vec::new() });
            }
            if at == Ino::ROOT {
                continue;
            }
            if !self.shards.ns.owns(at) {
                if said.onward.len() < SUBTREE_ONWARD_MAX {
                    said.onward.push(SubtreeQuestion::Within { ino: at, root });
                }
                continue;
            }
            match self.shards.ns.parents(at) {
                // It is gone.
                Err(Fault::Refused(_) | Fault::Elsewhere(_)) => {}
                parents => todo.extend(parents?),
            }
        }
        Ok(said)
    }

    fn descend(&mut self, from: Ino, names: &[u8], settled: bool, m: &Moment) -> Result<Said, Stop> {
        let mut todo: Vec<&[u8]> =
            names.split(|b| *b == b'/').rev().filter(|name| !name.is_empty()).collect();
        let mut at = from;
        for _ in 0..STEPS_MAX {
            if !self.shards.ns.owns(at) {
                let rest: Vec<&[u8]> = todo.iter().rev().copied().collect();
                let onward = SubtreeQuestion::Path { settled, from: at, names: rest.join(&b'/') };
                return Ok(Said { found: None, onward: vec![onward] });
            }
            self.await_birth(at)?;
            let attr = match self.shards.ns.attr(at) {
                Err(Fault::Refused(_) | Fault::Elsewhere(_)) => return Ok(Said::default()),
                attr => attr?,
            };
            if attr.kind != Kind::Dir {
                return Ok(Said::default());
            }
            let Some(name) = todo.last() else {
                return Ok(Said { found: Some(at), onward: Vec::new() });
            };
            let Ok(name) = Name::new(name) else { return Ok(Said::default()) };
            if attr.is_parted()
                && let Some(part) =
                    self.queries(&Cred::ROOT, Slot::SERVER, m).part_for(&attr, name.as_bytes())?
            {
                at = part;
                continue;
            }
            if settled {
                self.clients.see_names(at, Slot::SERVER, m)?;
            }
            match self.shards.ns.lookup(&Cred::ROOT, at, &name) {
                Ok(Some(next)) => at = next,
                Ok(None) | Err(Fault::Refused(_) | Fault::Elsewhere(_)) => return Ok(Said::default()),
                Err(fault) => return Err(fault.into()),
            }
            todo.pop();
        }
        Ok(Said::default())
    }

    /// A request begins to wait for the answer of another plate.
    pub(super) fn ask_about_subtree(&mut self, question: &SubtreeQuestion) {
        let Some(peers) = &mut self.peers else { return };
        let Some(plate) = peers.other_of(place(question)) else { return };
        if peers.asked_subtrees.insert(question.clone()) && peers.others[&plate].boot != 0 {
            peers.send(plate, PeerMessage::AskSubtree { question: question.clone() }, &mut self.queue);
        }
    }

    /// Answers the question of another plate.
    pub(super) fn show_subtree(
        &mut self,
        to: PlateId,
        question: &SubtreeQuestion,
        m: &Moment,
    ) -> Result<(), Stop> {
        let Said { found, onward } = self.find_here(question, m)?;
        self.answer_about_subtree(to, question.clone(), found, onward);
        Ok(())
    }

    pub(super) fn answer_about_subtree(
        &mut self,
        to: PlateId,
        question: SubtreeQuestion,
        found: Option<Ino>,
        onward: Vec<SubtreeQuestion>,
    ) {
        if let Some(peers) = &self.peers {
            peers.send(to, PeerMessage::Subtree { question, found, onward }, &mut self.queue);
        }
    }

    /// Another plate has answered.
    pub(super) fn subtree_came(&mut self, from: PlateId, question: SubtreeQuestion, said: Said, m: &Moment) {
        let Some(peers) = &mut self.peers else { return };
        if peers.plates.of(place(&question)) != Some(from) || !peers.asked_subtrees.remove(&question) {
            return;
        }
        self.subtrees.learn(question.clone(), said, m.mono);
        self.wake_where(|wait| matches!(wait, Wait::Subtree(asked) if **asked == question));
    }
}
