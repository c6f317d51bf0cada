//! Trees that clients remove as wholes, while the plates free what was in them.

use chiton_model::{Op, part_of};
use chiton_types::{Ino, Kind, Name};

use super::check_load;
use super::cluster::Cluster;
use super::load::Load;
use crate::step::Progress;

/// Steps without progress after which a plate rests. A real one begins again with the next tick, which these schedules do not have.
const IDLE_TIMES: usize = 3;

impl Cluster {
    /// The operation that removes a tree. Without one that bears the name, it removes nothing.
    pub(super) fn remove_tree(&mut self, parent: Ino, name: Name) -> Op {
        let place = part_of(&self.parts(parent), name.hash64()).unwrap_or(parent);
        let owner = usize::from(self.plates.of(place).expect("a plate").0);
        let is_there = self.nodes[owner].attr(place).is_ok();
        let entries = if is_there { self.nodes[owner].entries(place) } else { Vec::new() };
        let bearer = entries.into_iter().find(|(other, ..)| *other == name);
        Op::RemoveTree { parent, name, ino: bearer.map_or(Ino::ROOT, |(_, ino, _)| ino) }
    }

    /// Plates that may have something to free.
    pub(super) fn freeing(&self) -> Vec<usize> {
        if !matches!(self.load, Load::Trees | Load::TreesWithParts) {
            return Vec::new();
        }
        let plates = self.nodes.iter().enumerate();
        let is_idle = |at: usize| self.idle.get(&at).is_some_and(|times| *times >= IDLE_TIMES);
        plates.filter(|(at, _)| !is_idle(*at)).map(|(at, _)| at).collect()
    }

    /// A step of a plate's own work.
    pub(super) fn free(&mut self, at: usize) {
        let idle = self.idle.get(&at).copied().unwrap_or_default();
        let node = &mut self.nodes[at];
        match node.engine.run_background(&node.m) {
            Progress::NeedRows(needs) => {
                node.supply(&needs);
                self.take(at);
            }
            Progress::More => self.take(at),
            Progress::Idle => {
                self.take(at);
                if !self.nodes[at].engine.take_background_due() {
                    self.idle.insert(at, idle + 1);
                }
            }
        }
    }

    /// Nothing is left of removed trees. An inode that a rename replaced stays a while.
    pub(super) fn check_freed(&mut self) {
        if !matches!(self.load, Load::Trees | Load::TreesWithParts) {
            return;
        }
        let seed = self.seed;
        for node in &mut self.nodes {
            for orphan in node.engine.namespace().orphans() {
                let is_dir = node.attr(orphan).expect("an orphan exists").kind == Kind::Dir;
                let has_names = is_dir && !node.entries(orphan).is_empty();
                assert!(!has_names, "seed {seed}: plate {} has not freed {orphan}", node.plate);
            }
        }
    }

    /// Trees that were removed.
    fn trees_removed(&self) -> usize {
        let sent = self.clients.iter().flat_map(|client| &client.sent);
        sent.filter(|sent| matches!((&sent.op, sent.answer), (Op::RemoveTree { .. }, Some(Ok(_))))).count()
    }
}

/// S141. Trees over plates are removed while others use their entries: they go as wholes, and all of them is freed, once.
#[test]
fn trees_over_plates_are_removed_and_freed_through_crashes() {
    check_load(Load::Trees, 5_000_000..5_000_600, 2, 2, (0, 0));
    check_load(Load::Trees, 5_010_000..5_012_000, 2, 3, (3, 0));
    check_load(Load::Trees, 5_020_000..5_021_500, 3, 3, (3, 3));
}

/// S141. The same with directories that have parts on all plates.
#[test]
fn trees_with_parts_are_removed_and_freed_through_crashes() {
    check_load(Load::TreesWithParts, 5_100_000..5_100_600, 2, 2, (0, 0));
    check_load(Load::TreesWithParts, 5_110_000..5_112_000, 2, 3, (3, 0));
    check_load(Load::TreesWithParts, 5_120_000..5_121_500, 3, 3, (3, 3));
}

/// The schedules do remove trees.
#[test]
fn schedules_remove_trees() {
    let mut removed = 0;
    for seed in 5_200_000..5_200_100 {
        let mut cluster = Cluster::new(seed, 2, 3, Load::Trees);
        cluster.run(0, 0);
        cluster.check();
        removed += cluster.trees_removed();
    }
    assert!(removed > 50, "{removed} trees in 100 schedules");
}
