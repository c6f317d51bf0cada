//! The properties of a cluster at rest: its answers, its journals, its tree.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{Op, PartRange};
use chiton_types::{Attr, Ino, Kind, Position};

use super::cluster::{Cluster, Sent, session};
use super::plate::Node;
use crate::volatile::NOT_JOURNALLED;

impl Cluster {
    pub(super) fn check(&mut self) {
        let seed = self.seed;
        for (at, client) in self.clients.iter().enumerate() {
            let waiting: Vec<_> = self.nodes.iter().map(|node| node.engine.queue.waiting.waits()).collect();
            assert!(
                !self.is_busy(at) && client.ops_left == 0,
                "seed {seed}: client {at} waits for ever: {waiting:?}"
            );
        }
        for node in &self.nodes {
            let peers = node.engine.peers.as_ref().expect("several plates");
            let plate = node.plate;
            assert!(peers.guards.is_empty(), "seed {seed}: plate {plate} guards {:?}", peers.guards.keys());
            assert!(peers.crossings.is_empty(), "seed {seed}: plate {plate}: {:?}", peers.crossings.keys());
            assert!(peers.others.values().all(|peer| peer.owed.is_empty()), "seed {seed}: {plate} owes");
            assert!(
                peers.tasks.is_empty() && node.engine.queue.waiting.len() == 0,
                "seed {seed}: {plate} waits"
            );
        }
        for (at, client) in self.clients.iter().enumerate() {
            for sent in &client.sent {
                let id = session(at, sent.plate);
                let frames = self.nodes[sent.plate].frames.iter();
                let count = frames.filter(|frame| (frame.session, frame.seq) == (id, sent.seq)).count();
                let is_change = match &sent.answer {
                    Some(Ok(again)) => again.position != Position(0),
                    _ => false,
                };
                let what = &sent.op;
                assert_eq!(count, usize::from(is_change), "seed {seed}: {what:?}: {:?}", sent.answer);
            }
        }
        self.check_tree();
        self.check_policies();
        self.check_freed();
    }

    /// Steps of folding directories that have changed something.
    pub(super) fn steps_of_folds(&self) -> usize {
        let sent = self.clients.iter().flat_map(|client| &client.sent);
        let is_step = |sent: &&Sent| matches!((&sent.op, sent.answer), (Op::Fold { .. }, Some(Ok(again))) if again.position != NOT_JOURNALLED);
        sent.filter(is_step).count()
    }

    /// Every name has its inode, which knows its directory; no inode is without a name.
    fn check_tree(&mut self) {
        let seed = self.seed;
        let mut seen = BTreeSet::from([Ino::ROOT]);
        let mut names_of_files: BTreeMap<Ino, (Vec<Ino>, Attr)> = BTreeMap::new();
        let mut counts: BTreeMap<Ino, usize> = BTreeMap::new();
        let mut todo = vec![Ino::ROOT];
        while let Some(dir) = todo.pop() {
            let at = usize::from(self.plates.of(dir).expect("a plate").0);
            let attr = self.nodes[at].attr(dir).expect("it was reached");
            let mut entries = self.nodes[at].entries(dir);
            let mut links = attr.nlink as usize;
            let mut inodes = vec![dir];
            for PartRange { ino: part, .. } in self.parts(dir).into_iter().filter(|part| part.ino != dir) {
                let owner = usize::from(self.plates.of(part).expect("a plate").0);
                let of_part = self.nodes[owner].attr(part).expect("a directory has all its parts");
                assert_eq!((of_part.parent, of_part.mode), (dir, attr.mode), "seed {seed}: part {part}");
                entries.extend(self.nodes[owner].entries(part));
                links += of_part.nlink as usize - 2;
                inodes.push(part);
                assert!(seen.insert(part), "seed {seed}: {part} is a part twice");
            }
            let subdirectories = entries.iter().filter(|(_, _, kind)| *kind == Kind::Dir).count();
            assert_eq!(links, 2 + subdirectories, "seed {seed}: links of {dir}");
            for (name, ino, kind) in entries {
                let owner = usize::from(self.plates.of(ino).expect("a plate").0);
                let attr = self.nodes[owner].attr(ino);
                let attr = attr
                    .unwrap_or_else(|_| panic!("seed {seed}: {name:?} in {dir} bears {ino}, which is gone"));
                assert_eq!(attr.kind, kind, "seed {seed}: {name:?} in {dir}");
                let is_new = seen.insert(ino);
                if kind == Kind::Dir {
                    assert!(inodes.contains(&attr.parent), "seed {seed}: {name:?}");
                    assert!(is_new, "seed {seed}: {ino} has two names");
                    todo.push(ino);
                } else {
                    names_of_files.entry(ino).or_insert((Vec::new(), attr)).0.extend(&inodes);
                    *counts.entry(ino).or_insert(0) += 1;
                }
            }
        }
        for (ino, (dirs, attr)) in names_of_files {
            assert_eq!(attr.nlink as usize, counts[&ino], "seed {seed}: names of {ino}");
            assert!(dirs.contains(&attr.parent), "seed {seed}: {ino} is in {dirs:?}, not in {}", attr.parent);
        }
        // A file over which another was renamed stays a while for those that have just looked it up.
        let named = |node: &mut Node| {
            let ns = node.engine.namespace();
            ns.inode_count() - ns.orphans().len() as u64
        };
        let count: u64 = self.nodes.iter_mut().map(named).sum();
        // Each plate's rows of an empty file system count the root, which the first owns.
        let roots = self.nodes.len() as u64 - 1;
        assert_eq!(count - roots, seen.len() as u64, "seed {seed}: an inode has no name");
    }
}
