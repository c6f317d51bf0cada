//! Several clients write behind on the same names of one directory, while the server crashes twice.
//!
//! A client that knows all names of a directory creates and removes some before it asks the server
//! ([`super::Setup::write_behind_after`]). When another client wants them, the first client sends its operations, and
//! releases the names.
//!
//! ```text
//!   client 0:  make make remove │                           make …
//!   client 1:                   │ crash ─ remove make ─ crash
//! ```

use std::time::Duration;

use super::{Fault, Plan, SHARED, Step};
use crate::history::Action;
use crate::random::Random;

/// In every fourth run.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Random::new(plan.seed, 22);
    if plan.clients.len() < 2 || !random.chance(1, 4) {
        return;
    }
    plan.setup.write_behind_after = Some(0);
    let names = random.between(1, 4);
    for steps in &mut plan.clients {
        for step in std::mem::take(steps) {
            steps.push(step);
            if random.chance(1, 4) {
                burst(&mut random, names, steps);
            }
        }
    }
    let span: Duration =
        plan.clients.iter().map(|steps| steps.iter().map(|step| step.pause).sum()).max().unwrap_or_default();
    let micros = (span.as_micros() as u64).max(100_000);
    for _ in 0..random.between(1, 4) {
        let first = Duration::from_micros(random.below(micros));
        let down = Duration::from_millis(random.between(1, 100));
        let second = first + down + Duration::from_millis(random.below(600));
        plan.faults.extend([first, second].map(|at| (at, Fault::CrashServer { down })));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

/// A look at all names, then a few of them are made and removed, one right after the other.
fn burst(random: &mut Random, names: u64, steps: &mut Vec<Step>) {
    let mut step = |pause: u64, action| steps.push(Step::by_root(Duration::from_micros(pause), action));
    step(random.below(20_000), Action::List { path: SHARED.to_owned() });
    for _ in 0..random.between(2, 8) {
        let path = format!("{SHARED}/x{}", random.below(names));
        let action = match random.below(5) {
            0 | 1 => Action::Unlink { path },
            _ => Action::Create { path, content: Vec::new() },
        };
        step(random.below(300), action);
    }
    if random.chance(1, 3) {
        step(random.below(300), Action::FsyncDir);
    }
}
