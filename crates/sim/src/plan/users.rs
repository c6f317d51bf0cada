//! Several users act in the directories of clients, with modes, owners and access control lists that allow some of it.
//!
//! ```text
//!   root:    mkdir d0 ─ chown d0 first:team ─ chmod d0 2750 ─ …
//!   first:                      create d0/f1 ─ setfacl -m u:second:rw d0/f1 ─ …
//!   second:                                         open d0/f1 ─ rename d0/f1 d1/f2 ─ …
//! ```
//!
//! Files have no set-id bits: which changes of content clear them is no question of this judge.

use std::time::Duration;

use super::{Maker, OWN, Plan, Role, Step};
use crate::history::Action;
use crate::model::List;
use crate::random::Random;
use crate::users::{TEAM, User};

/// Modes of directories; each allows some users to search, list or change names, and others not.
const DIR_MODES: [u16; 10] = [0o700, 0o711, 0o750, 0o755, 0o770, 0o777, 0o1777, 0o1770, 0o2775, 0o2750];
/// Modes of files, one of which keeps its owner out.
const FILE_MODES: [u16; 6] = [0o600, 0o640, 0o644, 0o660, 0o666, 0o066];

/// In every fourth run.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Random::new(plan.seed, 25);
    if !random.chance(1, 4) {
        return;
    }
    plan.setup.own_mode = *random.pick(&[0o777, 0o777, 0o1777, 0o755]);
    let often = *random.pick(&[1, 2]);
    let is_visitor: Vec<bool> =
        (0..plan.clients.len()).map(|client| plan.role(client) == Some(&Role::Visitor)).collect();
    for (n, steps) in plan.clients.iter_mut().enumerate().filter(|(n, _)| !is_visitor[*n]) {
        let mut maker =
            Maker { random: Random::new(plan.seed, 300 + n as u64), client: n, made: 0, version: 0 };
        for mut step in std::mem::take(steps) {
            let is_free = is_free(&mut step.action);
            if is_free {
                step.user = *random.pick(&User::ALL);
            }
            steps.push(step);
            // No more than the others' steps, so that a run ends in time.
            while is_free && random.chance(often, often + 2) {
                let (user, action) = draw(&mut maker);
                let pause = Duration::from_micros(random.below(2_000));
                steps.push(Step { pause, user, action });
            }
        }
    }
}

/// Whether an action is one that any user may try: in a client's own directory, and no mark of a job.
fn is_free(action: &mut Action) -> bool {
    let is_open = matches!(action, Action::Write { .. } | Action::PunchHole { .. });
    let mut paths = action.paths_mut();
    let own = paths.iter().all(|path| path.starts_with(OWN) && !path.contains(super::MARK));
    is_open || (own && paths.pop().is_some())
}

fn draw(maker: &mut Maker) -> (User, Action) {
    let mut user = *maker.random.pick(&User::ALL);
    let action = match maker.random.below(20) {
        0 => Action::Mkdir { path: maker.own_dir(), mode: *maker.random.pick(&DIR_MODES) },
        1..=3 => Action::Chmod { path: maker.own_dir(), mode: *maker.random.pick(&DIR_MODES) },
        4 => Action::Chmod { path: maker.own(), mode: *maker.random.pick(&FILE_MODES) },
        5 | 6 => {
            let path = if maker.random.chance(2, 3) { maker.own_dir() } else { maker.own() };
            if maker.random.chance(2, 3) {
                user = User::Root;
            }
            let ids = [None, Some(0), Some(101), Some(102), Some(TEAM)];
            let uid = ids[maker.random.below(4) as usize];
            Action::Chown { path, uid, gid: *maker.random.pick(&ids) }
        }
        7..=10 => {
            let default = maker.random.chance(1, 2);
            let path = if default || maker.random.chance(1, 2) { maker.own_dir() } else { maker.own() };
            Action::SetList { path, default, list: list(&mut maker.random) }
        }
        11 => Action::Rename { from: maker.own_dir(), to: maker.inner_dir() },
        12 => Action::Rename { from: maker.inner_dir(), to: maker.own_dir() },
        13 => Action::List { path: maker.own_dir() },
        14 | 15 => Action::ReadFile { path: maker.own() },
        16 => Action::Stat { path: maker.own_dir() },
        17 => Action::Create { path: format!("{}/f1", maker.inner_dir()), content: vec![9; 9] },
        _ => Action::Stat { path: maker.own() },
    };
    (user, action)
}

/// A list, or none.
fn list(random: &mut Random) -> Option<List> {
    if random.chance(1, 5) {
        return None;
    }
    let mut rights = || *random.pick(&[0, 4, 5, 6, 7, 7]);
    let (owner, group, other, mask) = (rights(), rights(), rights(), rights());
    let (named, of_team) = (rights(), rights());
    let mut list = List { owner, users: Vec::new(), group, groups: Vec::new(), mask: None, other };
    if random.chance(3, 4) {
        let user = *random.pick(&User::ALL);
        list.users.push((user.id(), named));
    }
    if random.chance(1, 3) {
        list.groups.push((TEAM, of_team));
    }
    let is_needed = !list.users.is_empty() || !list.groups.is_empty();
    list.mask = (is_needed || random.chance(1, 3)).then_some(mask);
    Some(list)
}

impl Maker {
    fn inner_dir(&mut self) -> String {
        format!("{OWN}/d{}/e", self.random.below(2))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::draw;
    use super::*;

    #[test]
    fn in_some_runs_all_users_act_and_elsewhere_only_root() {
        let users = |seed| draw(seed, 100).clients.into_iter().flatten().map(|step| step.user).collect();
        let seen: Vec<BTreeSet<User>> = (0..40).map(users).collect();
        let all = seen.iter().filter(|users| users.len() == User::ALL.len()).count();
        let alone = seen.iter().filter(|users| **users == BTreeSet::from([User::Root])).count();
        assert!((5..20).contains(&all) && all + alone == 40, "{all} and {alone}");
    }
}
