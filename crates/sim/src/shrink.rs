//! Looks for a shorter run that fails in the same way.
//!
//! Faults first, then clients, then steps, in ever smaller pieces (Zeller and Hildebrandt's delta debugging), then the
//! pauses. Every try is a whole run of its own; the number of tries is bounded.

use std::time::Duration;

use crate::canary::Canary;
use crate::plan::{Plan, Step};
use crate::run::{Outcome, run};

/// Most runs that are tried.
const TRIES_MAX: usize = 400;

/// The shortest plan found that still fails by the same checker, and what it gave.
pub fn shrink(plan: &Plan, outcome: Outcome, canary: Option<Canary>) -> (Plan, Outcome) {
    let mut search = Search { best: plan.clone(), outcome, canary, tries: 0 };
    loop {
        let before = size(&search.best);
        search.pieces(|plan| plan.faults.len(), |plan, from, to| drop(plan.faults.drain(from..to)));
        for client in 0..search.best.clients.len() {
            search.pieces(
                |plan| plan.clients[client].len(),
                |plan, from, to| take_steps(&mut plan.clients[client], from, to),
            );
        }
        if size(&search.best) == before || search.tries >= TRIES_MAX {
            return (search.best, search.outcome);
        }
    }
}

/// Takes steps away; what comes after them keeps its time.
fn take_steps(steps: &mut Vec<Step>, from: usize, to: usize) {
    let pause: Duration = steps.drain(from..to).map(|step| step.pause).sum();
    if let Some(next) = steps.get_mut(from) {
        next.pause += pause;
    }
}

fn size(plan: &Plan) -> usize {
    plan.faults.len() + plan.clients.iter().map(Vec::len).sum::<usize>()
}

/// What a shorter run must fail by, too: a checker that names the promise, if there is one.
fn wanted(outcome: &Outcome) -> &'static str {
    let says_little = |checker: &str| matches!(checker, "healing" | "liveness");
    let mut checkers = outcome.violations.iter().map(|violation| violation.checker);
    checkers.find(|checker| !says_little(checker)).unwrap_or(outcome.violations[0].checker)
}

struct Search {
    best: Plan,
    outcome: Outcome,
    canary: Option<Canary>,
    tries: usize,
}

impl Search {
    /// Takes away pieces of a list, large ones first.
    fn pieces(&mut self, len: impl Fn(&Plan) -> usize, remove: impl Fn(&mut Plan, usize, usize)) {
        let mut piece = len(&self.best);
        while piece > 0 {
            let mut from = 0;
            while from < len(&self.best) {
                let to = (from + piece).min(len(&self.best));
                let mut shorter = self.best.clone();
                remove(&mut shorter, from, to);
                if !self.fails(shorter) {
                    from = to;
                }
            }
            piece /= 2;
        }
    }

    fn fails(&mut self, plan: Plan) -> bool {
        if self.tries >= TRIES_MAX {
            return false;
        }
        self.tries += 1;
        let outcome = run(&plan, self.canary);
        let wanted = wanted(&self.outcome);
        let same = outcome.violations.iter().any(|violation| violation.checker == wanted);
        if same {
            (self.best, self.outcome) = (plan, outcome);
        }
        same
    }
}
