//! Clients append records to the same few files, while the server crashes, ends in order, or is replaced.
//!
//! ```text
//!   client 0:  append ─ append ────────── fsync ─ read
//!   client 1:       read ─ append ─ crash ───── append ─ fsync
//! ```
//!
//! Invariants:
//! - A record is one line, and no two records of a run are equal.

use std::time::Duration;

use super::{Fault, Plan, Step, TAIL, TAILS};
use crate::history::{Action, Handle};
use crate::random::Random;

/// Handles from here on are those through which a client appends.
const HANDLES_FROM: u32 = 1_000;

/// The handle through which a client appends to a file.
pub(crate) fn appends_by(path: &str) -> Handle {
    let number = path.strip_prefix(TAIL).and_then(|number| number.parse::<u32>().ok());
    Handle(HANDLES_FROM + number.unwrap_or(u32::MAX - HANDLES_FROM))
}

/// The file that a client appends to through this handle; `None` for all other handles.
pub(crate) fn appends_to(handle: Handle) -> Option<String> {
    Some(format!("{TAIL}{}", handle.0.checked_sub(HANDLES_FROM)?))
}

/// In every third run.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Random::new(plan.seed, 21);
    if !random.chance(1, 3) {
        return;
    }
    // A set of their own, so that the other actions stay as they were.
    let mut looks = Random::new(plan.seed, 24);
    let often = *random.pick(&[1, 2, 4]);
    let longest = *random.pick(&[1, 40, 3_000, 9_000]);
    for (client, steps) in plan.clients.iter_mut().enumerate() {
        let mut number = 0;
        for step in std::mem::take(steps) {
            steps.push(step);
            while random.chance(often, often + 2) {
                let action = action(&mut random, client, &mut number, longest);
                steps.push(Step::by_root(Duration::from_micros(random.below(20_000)), action));
                if looks.chance(1, 4) {
                    let path = format!("{TAIL}{}", looks.below(TAILS));
                    steps.push(Step::by_root(Duration::ZERO, Action::Stat { path }));
                }
            }
        }
    }
    restarts(plan, &mut random);
}

fn action(random: &mut Random, client: usize, number: &mut u64, longest: u64) -> Action {
    let path = format!("{TAIL}{}", random.below(TAILS));
    match random.below(12) {
        0 => Action::FsyncAppended { path },
        1 => Action::CloseAppended { path },
        2..=4 => Action::ReadFile { path },
        _ => {
            *number += 1;
            let mut bytes = format!("{client}-{number} ").into_bytes();
            bytes.resize(bytes.len() + random.below(longest) as usize, b'a' + (*number % 26) as u8);
            bytes.push(b'\n');
            Action::Append { path, bytes }
        }
    }
}

/// A few restarts more, some of them in pairs: the second comes soon after the first.
fn restarts(plan: &mut Plan, random: &mut Random) {
    let span: Duration =
        plan.clients.iter().map(|steps| steps.iter().map(|step| step.pause).sum()).max().unwrap_or_default();
    let micros = (span.as_micros() as u64).max(100_000);
    for _ in 0..random.below(5) {
        let mut at = Duration::from_micros(random.below(micros));
        for _ in 0..random.between(1, 2) {
            let down = Duration::from_millis(random.between(1, 300));
            let fault = match random.below(3) {
                0 => Fault::RestartServer { down },
                1 if plan.setup.whole => Fault::TakeOver { time: down },
                _ => Fault::CrashServer { down },
            };
            plan.faults.push((at, fault));
            at += down + Duration::from_millis(random.below(1_000));
        }
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_and_its_file_belong_together() {
        for path in ["/tail0", "/tail1"] {
            assert_eq!(appends_to(appends_by(path)).as_deref(), Some(path));
        }
        assert_eq!(appends_to(Handle(2)), None);
    }
}
