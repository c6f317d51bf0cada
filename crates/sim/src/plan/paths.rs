//! With several plates, clients move directories about and use paths below them at the same time.
//!
//! ```text
//!   client 0:   rename /paths/t0/d1 /paths/t2/d0       exchange /paths/t2/d0/d1 /paths/t1/d0 …
//!   client 1:      stat /paths/t0/d1/d0/f1     create /paths/t2/d0/f0 …
//! ```

use std::time::Duration;

use super::{Plan, Step};
use crate::history::Action;
use crate::random::Random;

/// The directory below which that happens.
pub(crate) const PATHS: &str = "/paths";
/// Number of directories in it that stay: `/paths/t0` and on.
pub(crate) const TOPS: u64 = 3;
/// Names at each level below: of directories, and of files.
const NAMES: u64 = 2;
/// Most of a burst's actions.
const BURST_MAX: u64 = 6;

/// In two of three runs.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Random::new(plan.seed, 15);
    if plan.setup.plates == 1 || random.chance(1, 3) {
        return;
    }
    for steps in &mut plan.clients {
        for step in std::mem::take(steps) {
            steps.push(step);
            if random.chance(1, 3) {
                let pause_us = *random.pick(&[50, 300, 5_000]);
                for _ in 0..random.between(1, BURST_MAX) {
                    let pause = Duration::from_micros(random.below(pause_us));
                    steps.push(Step::by_root(pause, action(&mut random)));
                }
            }
        }
    }
}

/// A directory below the tops.
fn dir(random: &mut Random) -> String {
    let mut path = format!("{PATHS}/t{}", random.below(TOPS));
    for _ in 0..random.between(1, 2) {
        path.push_str(&format!("/d{}", random.below(NAMES)));
    }
    path
}

/// A file in a top or in a directory below.
fn file(random: &mut Random) -> String {
    let dir = if random.chance(1, 4) { format!("{PATHS}/t{}", random.below(TOPS)) } else { dir(random) };
    format!("{dir}/f{}", random.below(NAMES))
}

fn action(random: &mut Random) -> Action {
    match random.below(18) {
        0..3 => Action::Mkdir { path: dir(random), mode: 0o755 },
        3..5 => Action::Create { path: file(random), content: Vec::new() },
        5..9 => Action::Rename { from: dir(random), to: dir(random) },
        9 => Action::Rename { from: file(random), to: file(random) },
        10 => Action::Exchange { from: dir(random), to: dir(random) },
        11 => Action::Unlink { path: file(random) },
        12 => Action::Rmdir { path: dir(random) },
        13 => Action::Link { from: file(random), to: file(random) },
        14 => Action::Stat { path: dir(random) },
        _ => Action::Stat { path: file(random) },
    }
}
