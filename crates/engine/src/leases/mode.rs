//! Whether one session holds all leases that the table does not name, and whether one may come to.
//!
//! ```text
//!                          mode  │ FirstJoined   Rejoined   AllBack   Alone    Released  DecouplingBegun
//!   ─────────────────────────────┼──────────────────────────────────────────────────────────────────────
//!   Open                         │ Holder        Gathering  –         Holder   –         Decoupled
//!   Holder, HandedOver           │ –             –          –         –        Open      …Decoupled
//!   Gathering                    │ –             –          Open      –        –         GatheringDecoupled
//!   Decoupled                    │ –             Gathering… –         –        –         –
//!   GatheringDecoupled           │ –             –          Decoupled –        –         –
//!   HolderDecoupled, HandedOver… │ –             –          –         –        Decoupled –
//! ```
//!
//! `HandedOver` is a holder that has nothing buffered; `DecouplingsEnded` undoes `DecouplingBegun`. The
//! tests hold the whole table.
//!
//! Invariants:
//! - A session comes to hold everything only in `Open`: neither while sessions come back after a restart nor while
//!   something is decoupled, because merges would have to recall inodes from it.
//! - A lease that its holder has handed over counts only until new leases are given again.

use crate::sessions::Slot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Sessions hold what the table says.
    Open,
    /// The same. Sessions come back after a restart.
    Gathering,
    /// The same. Something is decoupled.
    Decoupled,
    /// The same. Sessions come back, and something is decoupled.
    GatheringDecoupled,
    /// This session holds all that the table does not give to others.
    Holder(Slot),
    /// The same. It has nothing buffered, and no new leases are given.
    HandedOver(Slot),
    /// As `Holder`. Something was decoupled since it came to hold everything.
    HolderDecoupled(Slot),
    /// As `HandedOver`. Something was decoupled since it came to hold everything.
    HandedOverDecoupled(Slot),
}

/// A change of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A session joined, and there is no other.
    FirstJoined(Slot),
    /// A session of before a restart came back.
    Rejoined,
    /// All have come back that will.
    AllBack,
    /// There is this session only, and nothing is being recalled.
    Alone(Slot),
    /// The session left, or gave up all that it held.
    Released(Slot),
    /// The session acknowledged that it has nothing buffered.
    HandedOver(Slot),
    /// New leases are given, or were since the last pause.
    LeasesGiven,
    /// At least one directory is decoupled.
    DecouplingBegun,
    /// No directory is decoupled any more.
    DecouplingsEnded,
}

impl Mode {
    /// The session that holds all that the table does not give to others.
    #[inline]
    pub(crate) fn holder(self) -> Option<Slot> {
        match self {
            Mode::Holder(slot)
            | Mode::HandedOver(slot)
            | Mode::HolderDecoupled(slot)
            | Mode::HandedOverDecoupled(slot) => Some(slot),
            Mode::Open | Mode::Gathering | Mode::Decoupled | Mode::GatheringDecoupled => None,
        }
    }

    /// Whether a session that is alone holds everything, without a table.
    pub(crate) fn lets_one_hold_all(self) -> bool {
        match self {
            Mode::Open | Mode::Holder(_) | Mode::HandedOver(_) => true,
            Mode::Gathering
            | Mode::Decoupled
            | Mode::GatheringDecoupled
            | Mode::HolderDecoupled(_)
            | Mode::HandedOverDecoupled(_) => false,
        }
    }

    /// The holder, if it may have something buffered.
    pub(crate) fn buffering_holder(self) -> Option<Slot> {
        match self {
            Mode::Holder(slot) | Mode::HolderDecoupled(slot) => Some(slot),
            Mode::Open
            | Mode::Gathering
            | Mode::Decoupled
            | Mode::GatheringDecoupled
            | Mode::HandedOver(_)
            | Mode::HandedOverDecoupled(_) => None,
        }
    }

    pub(crate) fn after(self, change: Change) -> Mode {
        use Mode::{
            Decoupled, Gathering, GatheringDecoupled, HandedOver, HandedOverDecoupled, Holder,
            HolderDecoupled, Open,
        };
        match change {
            Change::FirstJoined(slot) | Change::Alone(slot) => match self {
                Open => Holder(slot),
                Gathering
                | Decoupled
                | GatheringDecoupled
                | Holder(_)
                | HandedOver(_)
                | HolderDecoupled(_)
                | HandedOverDecoupled(_) => self,
            },
            Change::Rejoined => match self {
                Open => Gathering,
                Decoupled => GatheringDecoupled,
                Gathering
                | GatheringDecoupled
                | Holder(_)
                | HandedOver(_)
                | HolderDecoupled(_)
                | HandedOverDecoupled(_) => self,
            },
            Change::AllBack => match self {
                Gathering => Open,
                GatheringDecoupled => Decoupled,
                Open
                | Decoupled
                | Holder(_)
                | HandedOver(_)
                | HolderDecoupled(_)
                | HandedOverDecoupled(_) => self,
            },
            Change::Released(slot) => match self {
                Holder(holder) | HandedOver(holder) if holder == slot => Open,
                HolderDecoupled(holder) | HandedOverDecoupled(holder) if holder == slot => Decoupled,
                Open
                | Gathering
                | Decoupled
                | GatheringDecoupled
                | Holder(_)
                | HandedOver(_)
                | HolderDecoupled(_)
                | HandedOverDecoupled(_) => self,
            },
            Change::HandedOver(slot) => match self {
                Holder(holder) if holder == slot => HandedOver(slot),
                HolderDecoupled(holder) if holder == slot => HandedOverDecoupled(slot),
                Open
                | Gathering
                | Decoupled
                | GatheringDecoupled
                | Holder(_)
                | HandedOver(_)
                | HolderDecoupled(_)
                | HandedOverDecoupled(_) => self,
            },
            Change::LeasesGiven => match self {
                HandedOver(holder) => Holder(holder),
                HandedOverDecoupled(holder) => HolderDecoupled(holder),
                Open | Gathering | Decoupled | GatheringDecoupled | Holder(_) | HolderDecoupled(_) => self,
            },
            Change::DecouplingBegun => match self {
                Open => Decoupled,
                Gathering => GatheringDecoupled,
                Holder(holder) => HolderDecoupled(holder),
                HandedOver(holder) => HandedOverDecoupled(holder),
                Decoupled | GatheringDecoupled | HolderDecoupled(_) | HandedOverDecoupled(_) => self,
            },
            Change::DecouplingsEnded => match self {
                Decoupled => Open,
                GatheringDecoupled => Gathering,
                HolderDecoupled(holder) => Holder(holder),
                HandedOverDecoupled(holder) => HandedOver(holder),
                Open | Gathering | Holder(_) | HandedOver(_) => self,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Slot = Slot(1);
    const B: Slot = Slot(2);
    /// Every change, about session A or, the primed ones, about B.
    const CHANGES: [(&str, Change); 13] = [
        ("first", Change::FirstJoined(A)),
        ("rejoined", Change::Rejoined),
        ("back", Change::AllBack),
        ("alone", Change::Alone(A)),
        ("alone'", Change::Alone(B)),
        ("released", Change::Released(A)),
        ("released'", Change::Released(B)),
        ("handed", Change::HandedOver(A)),
        ("handed'", Change::HandedOver(B)),
        ("given", Change::LeasesGiven),
        ("begun", Change::DecouplingBegun),
        ("ended", Change::DecouplingsEnded),
        ("first'", Change::FirstJoined(B)),
    ];
    /// The mode after each of them, in this order; `.` is the same mode.
    const TABLE: &str = "
        O   | H G . H H' . . . . . D . H'
        G   | . . O . . . . . . . GD . .
        D   | . GD . . . . . . . . . O .
        GD  | . . D . . . . . . . . G .
        H   | . . . . . O . HO . . HD . .
        HO  | . . . . . O . . . H HOD . .
        HD  | . . . . . D . HOD . . . H .
        HOD | . . . . . D . . . HD . HO .
    ";

    fn mode(name: &str) -> Mode {
        match name {
            "O" => Mode::Open,
            "G" => Mode::Gathering,
            "D" => Mode::Decoupled,
            "GD" => Mode::GatheringDecoupled,
            "H" => Mode::Holder(A),
            "H'" => Mode::Holder(B),
            "HO" => Mode::HandedOver(A),
            "HD" => Mode::HolderDecoupled(A),
            "HOD" => Mode::HandedOverDecoupled(A),
            _ => panic!("no mode {name}"),
        }
    }

    #[test]
    fn every_mode_and_change_is_in_the_table() {
        let mut seen = Vec::new();
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, after) = line.split_once('|').expect("a row");
            let before = mode(name.trim());
            let after: Vec<&str> = after.split_whitespace().collect();
            assert_eq!(after.len(), CHANGES.len(), "{name}");
            for ((what, change), cell) in CHANGES.iter().zip(after) {
                let expect = if cell == "." { before } else { mode(cell) };
                assert_eq!(before.after(*change), expect, "{name}after {what}");
                // Reached modes are rows of their own, but for who the holder is.
                seen.push(before.after(*change));
            }
            seen.push(before);
        }
        let mut kinds: Vec<String> = seen
            .iter()
            .map(|mode| format!("{mode:?}").split('(').next().unwrap_or_default().to_owned())
            .collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), 8, "all modes have a row: {kinds:?}");
    }

    #[test]
    fn a_session_comes_to_hold_everything_only_where_nothing_forbids_it() {
        for before in ["O", "G", "D", "GD", "H", "HO", "HD", "HOD"].map(mode) {
            for (what, change) in CHANGES {
                let after = before.after(change);
                let comes = before.holder().is_none() && after.holder().is_some();
                assert!(!comes || before == Mode::Open, "{before:?} after {what}");
                assert!(after.buffering_holder().is_none_or(|slot| after.holder() == Some(slot)));
                // Only a pause that ends, or the end of the holder, forgets that it handed over.
                if matches!(before, Mode::HandedOver(_) | Mode::HandedOverDecoupled(_))
                    && after.buffering_holder().is_some()
                {
                    assert_eq!(change, Change::LeasesGiven);
                }
            }
        }
    }
}
