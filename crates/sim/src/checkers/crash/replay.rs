//! The states that the model may be in after some entries of a history: with buffered content that is there or not, and
//! with content that was given up in part.

use std::collections::BTreeSet;

use chiton_types::{Ino, Time};

use super::Entry;
use crate::checkers::compare::difference;
use crate::model::{Change, Model};
use crate::tree::Tree;

/// Most files with buffered changes at a crash: each may be there or not.
const BUFFERED_FILES_MAX: usize = 10;
/// Most states that losses may have left.
const BRANCHES_MAX: usize = 4096;

/// The model on its way through a history: in more than one state once something was lost.
#[derive(Clone)]
pub(super) struct Replay {
    pub(super) branches: Vec<Branch>,
}

/// One of the states in which the model may be.
#[derive(Clone, PartialEq)]
pub(super) struct Branch {
    pub(super) model: Model,
    buffered: Vec<(Ino, Change, Time)>,
}

impl Replay {
    pub(super) fn new(start: &Model) -> Replay {
        Replay { branches: vec![Branch { model: start.clone(), buffered: Vec::new() }] }
    }

    /// `lives` says which files' plates have not ended.
    pub(super) fn step(&mut self, entry: &Entry, lives: &dyn Fn(Ino) -> bool) -> Result<(), String> {
        let Entry::Lost(ino) = entry else {
            return self.branches.iter_mut().try_for_each(|branch| branch.step(entry, lives));
        };
        let mut after: Vec<Branch> = Vec::new();
        for branch in self.branches.drain(..) {
            for left in branch.losses(*ino) {
                if !after.contains(&left) {
                    after.push(left);
                }
            }
        }
        assert!(after.len() <= BRANCHES_MAX, "{} states that losses may have left", after.len());
        self.branches = after;
        Ok(())
    }

    /// Whether a state without any buffered content fits.
    pub(super) fn fits_plainly(&self, found: &Tree) -> bool {
        self.branches.iter().any(|branch| {
            let mut closed = branch.model.clone();
            closed.close_all();
            difference(&closed, found).is_none()
        })
    }

    /// The difference to the first state, unless some state fits.
    pub(super) fn fits(&self, found: &Tree) -> Option<String> {
        let mut first = None;
        for branch in &self.branches {
            let difference = branch.fits(found)?;
            first.get_or_insert(difference);
        }
        first
    }
}

impl Branch {
    /// The possible states after buffered content of a file is given up, with some of the oldest writes pushed.
    fn losses(&self, ino: Ino) -> Vec<Branch> {
        let (of_file, rest): (Vec<_>, Vec<_>) =
            self.buffered.iter().cloned().partition(|(of, ..)| *of == ino);
        let left = |pushed: usize| {
            let mut branch = Branch { model: self.model.clone(), buffered: rest.clone() };
            apply_buffered(&mut branch.model, &of_file[..pushed]);
            branch
        };
        (0..=of_file.len()).map(left).collect()
    }

    fn step(&mut self, entry: &Entry, lives: &dyn Fn(Ino) -> bool) -> Result<(), String> {
        match entry {
            Entry::Act(action, time) => {
                let refused =
                    |refusal| format!("the model refuses {action:?}, which was carried out: {refusal:?}");
                self.model.apply(action, *time).map_err(refused)?;
            }
            Entry::Buffered(ino, action, time) => self.buffered.push((*ino, action.clone(), *time)),
            Entry::Pushed(which) => {
                let (due, rest) = std::mem::take(&mut self.buffered)
                    .into_iter()
                    .partition(|(ino, ..)| which.map_or_else(|| lives(*ino), |which| which == *ino));
                self.buffered = rest;
                apply_buffered(&mut self.model, &due);
            }
            Entry::Lost(_) | Entry::Durable => {}
        }
        Ok(())
    }

    /// The difference to the state without buffered content, unless some choice of it fits.
    fn fits(&self, found: &Tree) -> Option<String> {
        let mut closed = self.model.clone();
        closed.close_all();
        let plain = difference(&closed, found)?;
        let files: BTreeSet<Ino> = self.buffered.iter().map(|(ino, ..)| *ino).collect();
        assert!(files.len() <= BUFFERED_FILES_MAX, "{} files with buffered changes", files.len());
        for chosen in 1..1u32 << files.len() {
            let is_chosen =
                |ino: &Ino| files.iter().position(|file| file == ino).is_some_and(|n| chosen & (1 << n) != 0);
            let early: Vec<_> = self.buffered.iter().filter(|(ino, ..)| is_chosen(ino)).cloned().collect();
            // A push takes all that is buffered at its time: of each file, some of the oldest.
            for count in (1..=early.len()).rev() {
                let mut model = self.model.clone();
                apply_buffered(&mut model, &early[..count]);
                model.close_all();
                difference(&model, found)?;
            }
        }
        Some(plain)
    }
}

/// Applies buffered content; files that are gone are skipped.
fn apply_buffered(model: &mut Model, buffered: &[(Ino, Change, Time)]) {
    for (ino, action, time) in buffered {
        if model.node(*ino).is_some() {
            let done = model.apply(action, *time);
            assert_eq!(done, Ok(()), "the model refuses {action:?}, which was buffered");
        }
    }
}
