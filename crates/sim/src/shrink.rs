//! Looks for a shorter run that fails in the same way.
//!
//! Faults first, then the steps of each client, in ever smaller pieces (Zeller and Hildebrandt's delta debugging);
//! the remaining parts keep their times. Every try is a complete run; the number of tries is bounded.

use crate::canary::Canary;
use crate::kept_parts::Keep;
use crate::plan::Plan;
use crate::run::{Outcome, run};

/// Maximum number of runs.
pub const TRIES_MAX: usize = 400;

/// The shortest part of a plan that still fails by the same checker, found in at most `tries_max` runs, and its
/// result.
pub fn shrink(plan: &Plan, outcome: Outcome, canary: Option<Canary>, tries_max: usize) -> (Keep, Outcome) {
    let mut search = Search { plan, best: Keep::all(plan), outcome, canary, tries_left: tries_max };
    loop {
        let before = search.best.size();
        search.pieces(|keep| &mut keep.faults);
        for client in 0..plan.clients.len() {
            search.pieces(|keep| &mut keep.clients[client]);
        }
        if search.best.size() == before || search.tries_left == 0 {
            return (search.best, search.outcome);
        }
    }
}

/// The checker by which a shorter run must fail too: one that names a promise, if there is one.
fn wanted(outcome: &Outcome) -> &'static str {
    let says_little = |checker: &str| matches!(checker, "healing" | "liveness");
    let mut checkers = outcome.violations.iter().map(|violation| violation.checker);
    checkers.find(|checker| !says_little(checker)).unwrap_or(outcome.violations[0].checker)
}

struct Search<'a> {
    plan: &'a Plan,
    best: Keep,
    outcome: Outcome,
    canary: Option<Canary>,
    tries_left: usize,
}

impl Search<'_> {
    /// Takes away pieces of a list, large ones first.
    fn pieces(&mut self, list: impl Fn(&mut Keep) -> &mut Vec<usize>) {
        let mut piece = list(&mut self.best).len();
        while piece > 0 {
            let mut from = 0;
            while from < list(&mut self.best).len() {
                let to = (from + piece).min(list(&mut self.best).len());
                let mut shorter = self.best.clone();
                list(&mut shorter).drain(from..to);
                if !self.fails(shorter) {
                    from = to;
                }
            }
            piece /= 2;
        }
    }

    fn fails(&mut self, keep: Keep) -> bool {
        if self.tries_left == 0 {
            return false;
        }
        self.tries_left -= 1;
        let outcome = run(&keep.of(self.plan).expect("a part of this plan"), self.canary);
        let wanted = wanted(&self.outcome);
        let same = outcome.violations.iter().any(|violation| violation.checker == wanted);
        if same {
            (self.best, self.outcome) = (keep, outcome);
        }
        same
    }
}
