//! Moves of directories to another parent, changes of policies, and trees that clients remove. Each holds the token, a guard at the first
//! plate, so that no two moves together make a loop, no directory leaves the subtree of a policy that is being set, and none comes into a
//! tree that is being removed.
//!
//! Invariants:
//! - The token is held until the deciding frame and all effects of the move are durable, also where the move owes no effect, and
//!   through a restart of the decider.
//! - The directory that gets a policy stays guarded as long: the plate that removes it must know of its policy.
//! - With the token at hand the parents above the target stay as they are, guarded or not.

use std::collections::BTreeSet;

use chiton_model::{Event, FrameEvents, Op, Over};
use chiton_namespace::{Fault, PlanState};
use chiton_types::{Ino, Kind, Name, Position};
use chiton_wire::{OpKey, PeerMessage};

use super::crossing::policy_of;
use super::order::Row;
use super::{Guard, Peers, is_key_of_server};
use crate::engine::Engine;
use crate::parts::Queue;

/// Whether an operation gives a directory another parent, if it is carried out on this state. Also a rename of a file over a directory, since
/// its refusal depends on the parents above.
pub(super) fn is_move<S: PlanState>(state: &S, op: &Op) -> Result<bool, Fault> {
    let Op::Rename { from, from_name, to, to_name, .. } = op else { return Ok(false) };
    if from == to {
        return Ok(false);
    }
    Ok(is_dir(state, *from, from_name)? || is_dir(state, *to, to_name)?)
}

/// Whether a name bears a directory. The plan refuses a name that cannot be found.
fn is_dir<S: PlanState>(state: &S, dir: Ino, name: &Name) -> Result<bool, Fault> {
    let bearer = || -> Result<bool, Fault> {
        let dir = state.inode(dir)?;
        if dir.kind != Kind::Dir {
            return Ok(false);
        }
        match state.entry(&dir, name)? {
            Some(ino) => Ok(state.inode(ino)?.kind == Kind::Dir),
            None => Ok(false),
        }
    };
    match bearer() {
        Err(Fault::Refused(_)) => Ok(false),
        found => found,
    }
}

/// Whether events give a directory another parent.
pub(crate) fn moves_directory(events: &[Event]) -> bool {
    events.iter().any(|event| {
        let Event::Rename { from, to, kind, over, .. } = event else { return false };
        let is_exchanged = matches!(over, Over::Exchanged { kind: Kind::Dir, .. });
        from != to && (*kind == Kind::Dir || is_exchanged)
    })
}

/// Whether events take the name of a directory that stays as an orphan.
fn removes_tree(events: &[Event]) -> bool {
    matches!(events.first(), Some(Event::Unlink { kind: Kind::Dir, orphan: true, .. }))
}

impl Peers {
    /// After a start: the moves whose effects are owed keep the token.
    pub(super) fn restore_moves(&mut self) {
        let mut policies = Vec::new();
        for owed in self.others.values().flat_map(|peer| peer.owed.values()) {
            let events = FrameEvents::new(owed.position, owed.count, &owed.events);
            let events: Vec<Event> = events.filter_map(|event| Some(event.ok()?.1)).collect();
            let policy_of = policy_of(&events);
            let removes_tree = removes_tree(&events) && !is_key_of_server(owed.key);
            if policy_of.is_some() || moves_directory(&events) || removes_tree {
                // The journal held it: it is durable.
                self.moves.insert(owed.key, Position(0));
            }
            policies.extend(policy_of.map(|ino| (ino, owed.key)));
        }
        for (ino, key) in policies {
            self.policy_decided(key);
            self.note_guard(
                ino,
                Guard { holder: self.plate, key, boot: self.boot, attempt: 0, position: Position(0) },
            );
        }
        if self.plate != Row::TOKEN.plate || self.guards.contains_key(&Row::TOKEN.ino) {
            return;
        }
        if let Some((&key, _)) = self.moves.first_key_value() {
            let (holder, boot, attempt) = (self.plate, self.boot, 0);
            let guard = Guard { holder, key, boot, attempt, position: Position(0) };
            self.note_guard(Row::TOKEN.ino, guard);
        }
    }

    /// The operations that keep the token.
    pub(super) fn keys_of_moves(&self) -> impl Iterator<Item = OpKey> {
        self.moves.keys().copied()
    }

    /// The lowest position of a move that is not durable: others wait for the token. (One that is durable must not be named: it would
    /// hide that a commit is wanted.)
    pub(super) fn move_wanted(&self) -> Option<Position> {
        self.moves.values().copied().filter(|position| *position > self.durable).min()
    }

    /// Returns the token of moves that are durable everywhere. True if there are such.
    fn return_tokens(&mut self, durable: Position, queue: &mut Queue) -> bool {
        let owed: BTreeSet<OpKey> =
            self.others.values().flat_map(|peer| peer.owed.values()).map(|owed| owed.key).collect();
        let is_done = |(key, position): &(&OpKey, &Position)| **position <= durable && !owed.contains(key);
        let done: Vec<OpKey> = self.moves.iter().filter(is_done).map(|(key, _)| *key).collect();
        for &key in &done {
            self.moves.remove(&key);
            self.end_own_guards(key, &[]);
            if self.plate != Row::TOKEN.plate {
                self.send(Row::TOKEN.plate, PeerMessage::Release { key }, queue);
            }
        }
        !done.is_empty()
    }
}

impl Engine {
    /// Returns the token of moves that are durable everywhere.
    pub(crate) fn return_tokens(&mut self, durable: Position) {
        let Some(peers) = self.peers.as_mut().filter(|peers| !peers.moves.is_empty()) else { return };
        if peers.return_tokens(durable, &mut self.queue) {
            self.wake_unguarded();
        }
    }
}
