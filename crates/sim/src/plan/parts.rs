//! With several plates, the server splits directories that have a few names while clients work in them, and clients fold and split
//! directories as an administrator does.
//!
//! ```text
//!   policy of the root:   huge: threshold, huge_threshold: 5
//!   client 0:   create /own0-0/f4 (the fifth name) … create /own0-0/f5          fold /own0-0
//!   server:                                        │ split /own0-0 over both plates │
//! ```

use std::time::Duration;

use super::{Fault, LOG, OWN, PATHS, Plan, SHARED, Step, TOPS};
use crate::history::Action;
use crate::random::Random;

/// Thresholds, of which a run has one.
const THRESHOLDS: [u64; 6] = [4, 4, 5, 6, 8, 12];
/// Most of the microseconds from the beginning of a step to a death in it: some steps are over by then, and the next has begun.
const AMID_US_MAX: u64 = 4_000;
/// Names in the shared directory that nobody changes: with those that clients make it is split and not from the start.
pub(crate) const IDLE: u64 = 3;

/// In three of four runs.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Random::new(plan.seed, 16);
    if plan.setup.plates == 1 || random.chance(1, 4) {
        return;
    }
    plan.setup.split_at = Some(*random.pick(&THRESHOLDS));
    let one_in = *random.pick(&[8, 20, 60]);
    let span: Duration =
        plan.clients.iter().map(|steps| steps.iter().map(|step| step.pause).sum()).max().unwrap_or_default();
    let micros = (span.as_micros() as u64).max(100_000);
    for _ in 0..random.below(4) {
        let plate = random.below(plan.setup.plates.into()) as u16;
        let down = Duration::from_millis(random.between(1, 500));
        let at = Duration::from_micros(random.below(micros));
        plan.faults.push((at, Fault::CrashPlate { plate, amid: None, down }));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
    for (_, fault) in &mut plan.faults {
        if let Fault::CrashPlate { amid, .. } = fault
            && random.chance(2, 3)
        {
            *amid = Some(Duration::from_micros(random.below(AMID_US_MAX)));
        }
    }
    let clients = plan.clients.len() as u64;
    let has_paths = plan.has_paths();
    for steps in &mut plan.clients {
        for step in std::mem::take(steps) {
            steps.push(step);
            if random.chance(1, one_in) {
                let path = dir(&mut random, clients, has_paths);
                let action = match random.below(4) {
                    0 => Action::Split { path },
                    _ => Action::Fold { path },
                };
                steps.push(Step::by_root(Duration::from_micros(random.below(20_000)), action));
            }
        }
    }
}

fn dir(random: &mut Random, clients: u64, has_paths: bool) -> String {
    match random.below(9) {
        0 => LOG.to_owned(),
        1 | 2 => SHARED.to_owned(),
        3 if has_paths => format!("{PATHS}/t{}", random.below(TOPS)),
        4 => "/".to_owned(),
        5 => format!("{OWN}/d{}", random.below(2)),
        6 => super::company::home_of(random.below(clients)),
        _ => OWN.to_owned(),
    }
}
