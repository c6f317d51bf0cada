//! Policies that clients set, and the parts of directories to which they send names.

use chiton_model::{Op, PartRange, XattrHow, part_of};
use chiton_types::{Ino, Name};

use super::cluster::Cluster;
use super::plate::Node;

/// Sets one of three policies on a directory, or removes the one that it has.
pub(super) fn set_policy(ino: Ino, which: usize) -> Op {
    let name = b"chiton.policy".to_vec();
    let set =
        |text: &[u8]| Op::SetXattr { ino, how: XattrHow::Set, name: name.clone(), value: text.to_vec() };
    match which {
        0 => set(b"data: lazy\nplacement: near"),
        1 => set(b"data: close_to_open\nacknowledge: durable"),
        2 => set(b"huge: always"),
        _ => Op::RemoveXattr { ino, name },
    }
}

impl Cluster {
    /// Puts names into the parts that have them.
    pub(super) fn placed(&mut self, mut op: Op) -> Op {
        let names: Vec<(Ino, Name)> =
            op.footprint().names().map(|touch| (touch.dir, touch.name.clone())).collect();
        let places: Vec<Ino> = names
            .iter()
            .map(|(dir, name)| part_of(&self.parts(*dir), name.hash64()).unwrap_or(*dir))
            .collect();
        let placed = names.into_iter().zip(places).collect::<Vec<_>>();
        op.place_names(|dir, name| {
            let found = placed.iter().find(|((of, this), _)| (of, this) == (&dir, name));
            found.map_or(dir, |(_, place)| *place)
        });
        op
    }

    /// The parts of a directory, if it has any.
    pub(super) fn parts(&mut self, dir: Ino) -> Vec<PartRange> {
        let owner = usize::from(self.plates.of(dir).expect("a plate").0);
        self.nodes[owner].parts(dir)
    }

    /// All plates have the same policies, and know of each directory which one holds for it.
    pub(super) fn check_policies(&mut self) {
        let seed = self.seed;
        let policies = |node: &mut Node| {
            let ns = node.engine.namespace();
            let mut all: Vec<_> = ns.policies().map(|own| (own.ino, own.version, own.around)).collect();
            all.sort_unstable();
            (ns.policy_version(), all)
        };
        let (version, all) = policies(&mut self.nodes[0]);
        for node in &mut self.nodes {
            assert_eq!(policies(node), (version, all.clone()), "seed {seed}: plate {}", node.plate);
        }
        for (dir, ..) in &all {
            let owner = usize::from(self.plates.of(*dir).expect("a plate").0);
            let attr = self.nodes[owner].attr(*dir).expect("a directory with a policy");
            assert!(attr.nlink > 0, "seed {seed}: the directory {dir} has a policy, and no name");
        }
        let realm_of = |cluster: &mut Cluster, dir: Ino| {
            let mut at = dir;
            while at != Ino::ROOT && all.iter().all(|(root, ..)| *root != at) {
                let owner = usize::from(cluster.plates.of(at).expect("a plate").0);
                at = cluster.nodes[owner].attr(at).ok()?.parent;
            }
            Some(at)
        };
        for dir in self.dirs.clone() {
            let owner = usize::from(self.plates.of(dir).expect("a plate").0);
            let Some(attr) = self.nodes[owner].attr(dir).ok().filter(|attr| attr.nlink > 0) else { continue };
            let realm = realm_of(self, dir);
            for node in &mut self.nodes {
                if let Ok(known) = node.engine.namespace().realm(dir) {
                    assert_eq!(Some(known), realm, "seed {seed}: plate {} about {dir}", node.plate);
                }
            }
            let around = realm_of(self, attr.parent);
            if let Some((_, _, known)) = all.iter().find(|(root, ..)| *root == dir && dir != Ino::ROOT) {
                assert_eq!(Some(*known), around, "seed {seed}: the policy around {dir}");
            }
        }
    }
}
