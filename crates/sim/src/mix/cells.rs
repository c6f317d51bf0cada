//! A subtree's policy changes from one cell of the table of levels to another while the subtree is in use, and machines die
//! just after the n-th write of the change (docs/semantics.md, S54): for every pair of cells, and every such write.
//!
//! ```text
//!   set A │ some operations, a file held open │ set B (merge first, decouple then, as the cells say) ‖ more operations │ more
//!                                             ╰──────── here a machine dies just after the n-th write ────────╯
//!   ─▶ the survivor continues, or a later life does ─▶ the crash oracle ─▶ set B, operations, all die ─▶ the crash oracle
//! ```
//!
//! The files that must exist, of those acknowledged before a death:
//!
//! | victim | carried out by the server | carried out by the client, and not merged |
//! |---|---|---|
//! | the server | all; under `none` the last checkpoint | all |
//! | the client's machine | all but buffers | up to the last fsync; under `none` merged files |
//! | both | up to the last fsync; under `none` the last checkpoint | up to the last fsync; under `none` merged files |
//!
//! and in all cases merged files, and files acknowledged before a decoupling began. The existing files are a
//! prefix, across the change too: so nothing that survives depends on lost data.

mod job;
mod later;
mod ledger;

use std::fmt;
use std::time::Duration;

use super::case::{Arm, Case, OfDisk, SideSetup, Victim};
use super::on_stage;
use super::stage::Purpose;
use crate::canary::Canary;
use crate::random::Random;

/// A cell of the table of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// `invisible`, `weak` or `strong`.
    pub consistency: &'static str,
    /// `none`, `local` or `global`.
    pub durability: &'static str,
}

impl Cell {
    pub fn all() -> impl Iterator<Item = Cell> {
        let of = |consistency| {
            ["none", "local", "global"].into_iter().map(move |durability| Cell { consistency, durability })
        };
        ["invisible", "weak", "strong"].into_iter().flat_map(of)
    }

    /// Whether the client carries out operations itself.
    pub fn is_decoupled(self) -> bool {
        self.consistency != "strong"
    }

    /// Whether data of a returned fsync survive.
    pub fn keeps(self) -> bool {
        self.durability != "none"
    }

    fn has_local_journal(self) -> bool {
        self.is_decoupled() && self.durability == "local"
    }

    fn policy(self) -> String {
        format!(
            "consistency: {}\ndurability: {}\ninterfere_policy: block_writes\nallocated_inodes: 30\n",
            self.consistency, self.durability
        )
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.consistency, self.durability)
    }
}

/// A rule that is broken on purpose: the oracle must see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Unsynced,
    /// The second cell's durability is set to `none`, whatever the case promises.
    Weaker,
}

/// A change of a policy, and the machine that dies during it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    pub from: Cell,
    pub to: Cell,
    /// The victim, and the write after which it dies, counted from the beginning of the change.
    pub strike: Option<Arm>,
    /// Varies settings and operations.
    pub round: u64,
}

/// The result of a switch.
#[derive(Debug, Default)]
pub struct Outcome {
    pub wrong: Option<String>,
    /// The events, one line each.
    pub lines: Vec<(Duration, String)>,
    pub met: Met,
}

/// Counts of a switch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    /// Writes of the server, and of the client's journals, from the beginning of the change to the end of the operations.
    pub writes: [u64; 2],
    pub struck: bool,
    /// The change was not over then.
    pub within: bool,
    /// A later life found the subtree decoupled.
    pub gone_on: bool,
}

/// Every pair of cells.
pub fn pairs() -> impl Iterator<Item = (Cell, Cell)> {
    Cell::all().flat_map(|from| Cell::all().map(move |to| (from, to)))
}

impl Switch {
    pub fn new(from: Cell, to: Cell, round: u64) -> Switch {
        Switch { from, to, strike: None, round }
    }

    /// All deaths that there are, by how many writes the change has without any.
    pub fn strikes(&self, writes: [u64; 2]) -> Vec<Switch> {
        let disks = [(OfDisk::Server, writes[0]), (OfDisk::Side(0), writes[1])];
        let mut all = Vec::new();
        for (of, count) in disks {
            // Of a journal that is older than the change, or of one that begins in it.
            let counts = of == OfDisk::Server || self.from.has_local_journal() || self.to.has_local_journal();
            for after in (1..=count).filter(|_| counts) {
                let victims = [Victim::Server, Victim::Side(0), Victim::Both(0)];
                let arms = victims.map(|victim| Arm { victim, of, after });
                all.extend(arms.map(|arm| Switch { strike: Some(arm), ..*self }));
            }
        }
        all
    }

    fn seed(&self) -> u64 {
        let pair = pairs().position(|pair| pair == (self.from, self.to)).expect("one of them");
        self.round * 81 + pair as u64
    }

    pub fn run(&self, broken: Option<Broken>) -> Outcome {
        let side = SideSetup {
            branch: false,
            consistency: self.to.consistency,
            durability: self.to.durability,
            interfere: "block_writes",
            on_conflict: "overwrite",
            sync: None,
            inodes: 30,
        };
        let case = Case {
            seed: self.seed(),
            ground: None,
            sides: vec![side],
            steps: Vec::new(),
            is_wide: false,
            plates: 1,
        };
        let canary = (broken == Some(Broken::Unsynced)).then_some(Canary::FsyncSkipped);
        let purpose = Purpose { decouples: true, awaits_journals: true, canary };
        let switch = *self;
        let (wrong, met, lines) = on_stage(&case, purpose, move |stage| {
            let mut met = Met::default();
            let random = Random::new(switch.seed(), 25);
            let played = later::play(stage, &switch, broken, random, &mut met);
            (played.err(), met)
        });
        Outcome { wrong: wrong.map(|why| format!("{self}: {why}")), lines, met }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.from, self.to)?;
        match self.strike {
            None => Ok(()),
            Some(Arm { victim, of, after }) => {
                let who = match victim {
                    Victim::Server => "server",
                    Victim::Side(_) => "client",
                    Victim::Both(_) => "both",
                };
                let of = if of == OfDisk::Server { "server" } else { "journal" };
                write!(f, ", {who} after {after} of {of}")
            }
        }
    }
}
