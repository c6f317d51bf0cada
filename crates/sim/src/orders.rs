//! Every order in which the messages of a few calls over plates can arrive, on the real engines.
//!
//! ```text
//!   plates:  engine ◀── links of messages ──▶ engine         a step: one message arrives, one plate commits, or one client asks
//!   search:  all steps that can be next ─▶ each of them ─▶ … ─▶ at rest ─▶ judge: the naive model, in some order of the calls
//! ```
//!
//! Steps at different plates commute. So a state that was reached before by other orders of such steps
//! is not searched again: it is identified by the messages that each plate has received, in their order.
//!
//! Invariants:
//! - The search leaves no order out, unless it reports that it has met its limit.

pub mod scenario;

mod judge;
mod plate;
mod world;

use std::collections::BTreeSet;

use crate::model::Model;
use scenario::Scenario;
use world::World;

pub use world::Step;

/// When what a plate has written becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// In the step that writes it: messages alone are ordered.
    AtOnce,
    /// In a step of its own, at any time.
    AnyTime,
}

/// A rule that is broken on purpose, so that the judge must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Guards on rows of other plates end as soon as they are granted.
    GuardsLeftOut,
    /// The token of moves does.
    TokenLeftOut,
}

/// The counts and the fault of a search.
#[derive(Clone, Debug, Default)]
pub struct Searched {
    /// Number of different states that were reached.
    pub states: usize,
    /// Ends at which the judge looked.
    pub ends: usize,
    /// The limit of states was met: orders are left out.
    pub is_cut_off: bool,
    /// The steps of the first way to an end.
    pub first: Vec<Step>,
    /// The first fault that the judge found, and the steps that lead there.
    pub wrong: Option<(String, Vec<Step>)>,
}

/// Searches all orders of a scenario, up to so many states.
pub fn search(scenario: &Scenario, commits: Commits, broken: Option<Broken>, states_max: usize) -> Searched {
    let mut searched = Searched::default();
    let mut seen = BTreeSet::new();
    let mut todo: Vec<Vec<Step>> = vec![Vec::new()];
    while let Some(mut steps) = todo.pop() {
        let (mut world, start, mut known) = replay(scenario, commits, broken, &steps);
        loop {
            let next = world.next();
            // For each step: the inputs that the plates have received after it.
            let mut new = next.into_iter().filter_map(|step| {
                let mut after = known.clone();
                let plate = &mut after[world.plate_at(step)];
                *plate = chained(*plate, &world.input(step));
                seen.insert(after.clone()).then_some((step, after))
            });
            let first = new.next();
            let others: Vec<Step> = new.map(|(step, _)| step).collect();
            todo.extend(others.into_iter().map(|step| {
                let mut steps = steps.clone();
                steps.push(step);
                steps
            }));
            searched.states = seen.len();
            if searched.states > states_max {
                searched.is_cut_off = true;
                return searched;
            }
            let Some((step, after)) = first else { break };
            world.step(step);
            steps.push(step);
            known = after;
        }
        if world.next().is_empty() {
            if searched.ends == 0 {
                searched.first.clone_from(&steps);
            }
            searched.ends += 1;
            if let Some(wrong) = judge::judge(&mut world, &start) {
                searched.wrong = Some((wrong, steps));
                return searched;
            }
        }
    }
    searched
}

/// All that happens when these steps are taken, in words.
pub fn trace(scenario: &Scenario, commits: Commits, broken: Option<Broken>, steps: &[Step]) -> Vec<String> {
    let (mut world, _) = scenario.begin(commits, broken);
    world.trace = Some(Vec::new());
    steps.iter().for_each(|step| world.step(*step));
    world.trace.take().unwrap_or_default()
}

/// The world after these steps, the tree before them, and the messages that each plate has received.
fn replay(
    scenario: &Scenario,
    commits: Commits,
    broken: Option<Broken>,
    steps: &[Step],
) -> (World, Model, Vec<u128>) {
    let (mut world, start) = scenario.begin(commits, broken);
    let mut known = vec![0; world.nodes.len()];
    for step in steps {
        let plate = world.plate_at(*step);
        known[plate] = chained(known[plate], &world.input(*step));
        world.step(*step);
    }
    (world, start, known)
}

/// A number for the messages that a plate has received, and then this one (FNV-1a).
fn chained(before: u128, input: &str) -> u128 {
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    let mix = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    let start = before.to_le_bytes().into_iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix);
    input.bytes().fold(start, mix)
}
