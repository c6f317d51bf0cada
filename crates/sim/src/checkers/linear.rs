//! Linearizability: the answers to concurrent callers fit one order of their calls, in which each takes effect at
//! one moment between its beginning and its answer (Herlihy and Wing 1990).
//!
//! The search is Wing and Gong's (1993) with Lowe's memory (2017): pick any call that no answered call precedes,
//! try it on the state, and continue. Configurations (calls taken, state) that were seen before are skipped.
//!
//! ```text
//!   A  ├── create x: done ──┤
//!   B       ├── lookup x: absent ──┤          B, A, C fits
//!   C                  ├── lookup x: found ─┤
//! ```
//!
//! Invariants:
//! - A call without an answer (its client died, or the run ended) may have taken effect at any time, or never.
//! - The search is bounded: a history that needs more is undecided, never "right".

#![expect(
    clippy::disallowed_types,
    reason = "a set of millions that is only asked for members: nothing depends on its order"
)]

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

use crate::checkers::violation;
use crate::history::Violation;

const CHECKER: &str = "linearizability";

/// The sequential specification that a history is checked against.
pub trait Spec {
    type State: Clone + Eq + Hash;
    type Call: Debug;
    type Answer: Debug + PartialEq;

    /// The state afterwards and the answer.
    fn step(&self, state: &Self::State, call: &Self::Call) -> (Self::State, Self::Answer);
}

/// A call as it was seen.
#[derive(Clone, Debug)]
pub struct Seen<C, A> {
    pub by: u32,
    pub call: C,
    /// The moment at which it began; moments are unique.
    pub begun: u64,
    /// The answer and its time; `None` without one.
    pub ended: Option<(u64, A)>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order: the calls by their place in the history.
    Linearizable(Vec<usize>),
    /// There is no order.
    Not(Violation),
    /// The search exceeded its limit of configurations.
    Undecided,
}

/// Looks for an order, in at most `configurations_max` steps.
pub fn check<S: Spec>(
    spec: &S,
    start: &S::State,
    history: &[Seen<S::Call, S::Answer>],
    configurations_max: usize,
) -> Verdict {
    let mut search =
        Search { spec, history, seen: HashSet::new(), left: configurations_max, best: Vec::new() };
    let mut order = Vec::new();
    let mut taken = vec![0u64; history.len().div_ceil(64)];
    match search.extend_order(start, &mut taken, &mut order) {
        Some(true) => Verdict::Linearizable(order),
        Some(false) => Verdict::Not(search.explain(start)),
        None => Verdict::Undecided,
    }
}

struct Search<'a, S: Spec> {
    spec: &'a S,
    history: &'a [Seen<S::Call, S::Answer>],
    seen: HashSet<(Vec<u64>, S::State)>,
    left: usize,
    /// The longest order so far.
    best: Vec<usize>,
}

fn has(taken: &[u64], n: usize) -> bool {
    taken[n / 64] & (1 << (n % 64)) != 0
}

impl<S: Spec> Search<'_, S> {
    /// True if the rest can be ordered from here; `None` if the limit is reached.
    fn extend_order(&mut self, state: &S::State, taken: &mut [u64], order: &mut Vec<usize>) -> Option<bool> {
        if order.len() > self.best.len() {
            self.best.clone_from(order);
        }
        // Before the first answer that is not yet explained, any call that had begun may take effect.
        let open = |n: &usize| !has(taken, *n);
        let ends = (0..self.history.len()).filter(open).filter_map(|n| self.history[n].ended.as_ref());
        let Some(horizon) = ends.map(|(end, _)| *end).min() else { return Some(true) };
        let candidates: Vec<usize> =
            (0..self.history.len()).filter(open).filter(|n| self.history[*n].begun < horizon).collect();
        for n in candidates {
            let call = &self.history[n];
            let (next, answer) = self.spec.step(state, &call.call);
            if call.ended.as_ref().is_some_and(|(_, reported)| *reported != answer) {
                continue;
            }
            taken[n / 64] |= 1 << (n % 64);
            if self.seen.insert((taken.to_vec(), next.clone())) {
                self.left = self.left.checked_sub(1)?;
                order.push(n);
                if self.extend_order(&next, taken, order)? {
                    return Some(true);
                }
                order.pop();
            }
            taken[n / 64] &= !(1 << (n % 64));
        }
        Some(false)
    }

    /// The longest order, and the right answers of the next calls after it.
    fn explain(&self, start: &S::State) -> Violation {
        let mut said = String::from("no order of these calls explains their answers. The longest that does:");
        let mut state = start.clone();
        let mut taken = vec![0u64; self.history.len().div_ceil(64)];
        for &n in &self.best {
            state = self.spec.step(&state, &self.history[n].call).0;
            taken[n / 64] |= 1 << (n % 64);
            said.push_str(&format!("\n  {}", self.line(n)));
        }
        said.push_str("\nNone of these can be next:");
        for n in (0..self.history.len()).filter(|n| !has(&taken, *n)) {
            let answer = self.spec.step(&state, &self.history[n].call).1;
            said.push_str(&format!("\n  {} (would be {answer:?})", self.line(n)));
        }
        violation(CHECKER, said)
    }

    fn line(&self, n: usize) -> String {
        let Seen { by, call, begun, ended } = &self.history[n];
        match ended {
            Some((end, answer)) => format!("{by}: {call:?} -> {answer:?} from {begun} to {end}"),
            None => format!("{by}: {call:?} from {begun}, not answered"),
        }
    }
}

#[cfg(test)]
mod tests;
