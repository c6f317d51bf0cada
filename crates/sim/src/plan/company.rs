//! One client works alone for a while, then others visit: leases on names, and answers under them.
//!
//! ```text
//!   loner:   … make make write make remove │ make write …      in bursts, in the directory of its life
//!   others:  …          (elsewhere)        │ look … look …     there, at whatever is under way
//! ```

use std::time::Duration;

use super::{Maker, Plan, Step};
use crate::history::{Action, Handle};
use crate::random::Random;

/// In place of the directory of another client's life: this, and the client's number.
const PEEK: &str = "/peek";

/// In every second run.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Random::new(plan.seed, 9);
    let clients = plan.clients.len() as u64;
    if clients < 2 || random.chance(1, 2) {
        return;
    }
    plan.setup.write_behind_after = Some(0);
    let loner = random.below(clients) as usize;
    let mut maker = Maker { random: Random::new(plan.seed, 200), client: loner, made: 0, version: 0 };
    for (n, steps) in plan.clients.iter_mut().enumerate() {
        let before = std::mem::take(steps);
        let half = before.len() / 2;
        for (at, step) in before.into_iter().enumerate() {
            steps.push(step);
            if n == loner && random.chance(1, 4) {
                steps.extend((0..random.between(2, 8)).flat_map(|_| burst(&mut maker)));
            } else if n != loner && at >= half && random.chance(1, 3) {
                steps.push(look(&mut random, loner));
            }
        }
    }
}

/// Operations for write-behind, directly after the earlier ones.
fn burst(maker: &mut Maker) -> Vec<Step> {
    let path = maker.own();
    let handle = Handle(2);
    let actions = match maker.random.below(8) {
        0 => vec![Action::Mkdir { path: maker.own_dir(), mode: 0o755 }],
        1 => vec![Action::Symlink { path, target: "f1".to_owned() }],
        2 | 3 => vec![Action::Unlink { path }],
        4 => vec![Action::Create { path, content: vec![7; maker.random.below(300) as usize] }],
        _ => {
            let bytes = vec![maker.random.between(1, 255) as u8; maker.random.between(1, 500) as usize];
            let open = Action::Open { path, create: true, truncate: false, handle };
            vec![open, Action::Write { handle, offset: 0, bytes }, Action::Close { handle }]
        }
    };
    let step = |action| Step::by_root(Duration::from_micros(maker.random.below(200)), action);
    actions.into_iter().map(step).collect()
}

fn look(random: &mut Random, at: usize) -> Step {
    let dir = match random.below(3) {
        0 => format!("{PEEK}{at}/d{}", random.below(2)),
        _ => format!("{PEEK}{at}"),
    };
    let path = format!("{dir}/f{}", random.below(6));
    let action = match random.below(3) {
        0 => Action::List { path: dir },
        1 => Action::Stat { path },
        _ => Action::ReadFile { path },
    };
    Step::by_root(Duration::from_micros(random.below(20_000)), action)
}

/// In paths, stands for the present directory of a client.
pub(super) fn home_of(client: u64) -> String {
    format!("{PEEK}{client}")
}

/// The action in the present directory of `client`.
pub(crate) fn at_home(mut action: Action, root_of: impl Fn(usize) -> Option<String>) -> Option<Action> {
    for path in action.paths_mut() {
        if let Some(rest) = path.strip_prefix(PEEK) {
            let end = rest.find('/').unwrap_or(rest.len());
            *path = format!("{}{}", root_of(rest[..end].parse().ok()?)?, &rest[end..]);
        }
    }
    Some(action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::OWN;

    #[test]
    fn visitors_act_in_the_other_clients_directory() {
        let look = |path: &str| Action::List { path: path.to_owned() };
        let home = |n: usize| (n < 5).then(|| format!("{OWN}{n}-7"));
        assert_eq!(at_home(look("/peek2/d1"), home), Some(look("/own2-7/d1")));
        assert_eq!(at_home(look("/peek2"), home), Some(look("/own2-7")));
        assert_eq!(at_home(look("/peek9"), home), None);
        assert_eq!(at_home(look("/shared"), home), Some(look("/shared")));
    }
}
