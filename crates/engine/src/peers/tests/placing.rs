//! Policies that clients set, and the parts of directories to which they send names.

use chiton_model::{Op, PartRange, XattrHow, part_of};
use chiton_types::{Ino, Name};

use super::cluster::Cluster;

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
}
