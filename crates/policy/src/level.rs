//! The levels and Table I: which composition a pair of them is.

use serde::Serialize;

use crate::composition::Composition;
use crate::mechanism::{Mechanism, Role, fold};

use Mechanism::{AppendClientJournal, GlobalPersist, LocalPersist, Replicate, Rpcs, Stream, VolatileApply};

/// The time at which others see a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// Others see a change only after a user has merged the subtree.
    Invisible,
    /// Others see a change after the next merge: at intervals, when idle, or at the end.
    Weak,
    /// Others see a change as soon as it is acknowledged.
    Strong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Changes live in memory: any failure may lose them.
    None,
    /// Changes survive the end of the process, if the machine comes back.
    Local,
    /// Changes survive the loss of the machine.
    Global,
    /// Changes survive the loss of a site.
    Geo,
}

impl Consistency {
    /// All levels, the weakest first.
    pub const ALL: [Consistency; 3] = [Consistency::Invisible, Consistency::Weak, Consistency::Strong];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Invisible => "invisible",
            Consistency::Weak => "weak",
            Consistency::Strong => "strong",
        }
    }

    /// By name; the draft's are `none`, `eventual` and `global`.
    pub fn by_name(name: &str) -> Option<Consistency> {
        Some(match fold(name).as_str() {
            "invisible" | "none" => Consistency::Invisible,
            "weak" | "eventual" => Consistency::Weak,
            "strong" | "global" => Consistency::Strong,
            _ => return None,
        })
    }

    /// The level that a composition gives.
    pub fn of(composition: &Composition) -> Consistency {
        let all = composition.mechanisms();
        if all.contains(&Rpcs) {
            Consistency::Strong
        } else if all.iter().any(|m| m.role() == Role::Apply) {
            Consistency::Weak
        } else {
            Consistency::Invisible
        }
    }
}

impl Durability {
    /// All levels, the weakest first.
    pub const ALL: [Durability; 4] =
        [Durability::None, Durability::Local, Durability::Global, Durability::Geo];

    /// The paper's name (`geo` is CalvinFS's).
    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Local => "local",
            Durability::Global => "global",
            Durability::Geo => "geo",
        }
    }

    pub fn by_name(name: &str) -> Option<Durability> {
        let name = fold(name);
        Durability::ALL.into_iter().find(|d| d.name() == name)
    }

    /// The level that a composition gives.
    pub fn of(composition: &Composition) -> Durability {
        composition.mechanisms().into_iter().map(durability_of).max().unwrap_or(Durability::None)
    }
}

/// The level that one mechanism adds.
pub(crate) fn durability_of(mechanism: Mechanism) -> Durability {
    match mechanism {
        LocalPersist => Durability::Local,
        Stream | GlobalPersist => Durability::Global,
        Replicate => Durability::Geo,
        _ => Durability::None,
    }
}

/// A cell of Table I.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The column of the table.
    pub consistency: Consistency,
    /// The row of the table.
    pub durability: Durability,
    /// Mechanisms, one after the other.
    pub mechanisms: &'static [Mechanism],
}

const fn cell(consistency: Consistency, durability: Durability, mechanisms: &'static [Mechanism]) -> Cell {
    Cell { consistency, durability, mechanisms }
}

/// Table I, and the row that CalvinFS adds, of which only the strong cell makes sense: sites agree on operations
/// before anyone carries them out.
pub const CELLS: [Cell; 10] = [
    cell(Consistency::Invisible, Durability::None, &[AppendClientJournal]),
    cell(Consistency::Weak, Durability::None, &[AppendClientJournal, VolatileApply]),
    cell(Consistency::Strong, Durability::None, &[Rpcs]),
    cell(Consistency::Invisible, Durability::Local, &[AppendClientJournal, LocalPersist]),
    cell(Consistency::Weak, Durability::Local, &[AppendClientJournal, LocalPersist, VolatileApply]),
    cell(Consistency::Strong, Durability::Local, &[Rpcs, LocalPersist]),
    cell(Consistency::Invisible, Durability::Global, &[AppendClientJournal, GlobalPersist]),
    cell(Consistency::Weak, Durability::Global, &[AppendClientJournal, GlobalPersist, VolatileApply]),
    cell(Consistency::Strong, Durability::Global, &[Rpcs, Stream]),
    cell(Consistency::Strong, Durability::Geo, &[Rpcs, Replicate]),
];

/// The composition of a cell; `None` for the pairs that make no sense (`geo` with less than `strong`).
pub fn compose(consistency: Consistency, durability: Durability) -> Option<Composition> {
    let cell = CELLS.iter().find(|c| c.consistency == consistency && c.durability == durability)?;
    Some(Composition::serial(cell.mechanisms.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nine_cells_are_the_papers() {
        // Table I, typed off the paper.
        let paper = [
            ["append_client_journal", "append_client_journal + volatile_apply", "rpcs"],
            [
                "append_client_journal + local_persist",
                "append_client_journal + local_persist + volatile_apply",
                "rpcs + local_persist",
            ],
            [
                "append_client_journal + global_persist",
                "append_client_journal + global_persist + volatile_apply",
                "rpcs + stream",
            ],
        ];
        for (row, durability) in paper.iter().zip(Durability::ALL) {
            for (text, consistency) in row.iter().zip(Consistency::ALL) {
                let composition = compose(consistency, durability).unwrap();
                assert_eq!(composition.to_string(), *text);
                assert_eq!(Consistency::of(&composition), consistency);
                assert_eq!(Durability::of(&composition), durability);
            }
        }
    }

    #[test]
    fn names_of_levels_and_of_the_draft() {
        for c in Consistency::ALL {
            assert_eq!(Consistency::by_name(c.name()), Some(c));
        }
        for d in Durability::ALL {
            assert_eq!(Durability::by_name(d.name()), Some(d));
        }
        assert_eq!(Consistency::by_name("Eventual"), Some(Consistency::Weak));
        assert_eq!(Consistency::by_name("none"), Some(Consistency::Invisible));
        assert_eq!(Consistency::by_name("global"), Some(Consistency::Strong));
        assert_eq!(Durability::by_name("strong"), None);
    }
}
