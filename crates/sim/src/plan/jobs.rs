//! Draws the plans of clients that decouple subtrees, and of their observers.
//!
//! A job's steps happen in its own directory, as those of other clients, but in the client's own engine. Marks
//! ([`MARK`]) are files that are created in order and stay: an observer that sees one sees the earlier ones.

use std::time::Duration;

use super::{Fault, KINDS, Maker, OWN, Plan, Step, THEIRS};
use crate::history::Action;
use crate::random::Random;

/// Begins the names of marks in a job's directory.
pub const MARK: &str = "/mark";
const LEVELS: [&str; 3] = ["none", "local", "global"];
const INTERFERENCE: [&str; 3] = ["allow", "block", "block_writes"];
/// The kinds of actions on a client's own files: the first ones.
const OWN_KINDS: usize = 18;

/// The role of a further client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// He works in a subtree that he takes for himself.
    Job(Job),
    /// It looks at the subtrees of others, and creates files there.
    Visitor,
}

/// The policy of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// `none`, `local` or `global`.
    pub durability: &'static str,
    /// `allow`, `block` or `block_writes`.
    pub interfere: &'static str,
    /// Interval of automatic merges, in milliseconds.
    pub sync_ms: Option<u64>,
    /// Inode numbers granted at once.
    pub inodes: u64,
}

impl Job {
    pub fn policy(&self) -> String {
        let Job { durability, interfere, inodes, .. } = self;
        let sync = self.sync_ms.map_or(String::new(), |ms| format!("sync_interval: {ms}ms\n"));
        format!(
            "consistency: weak\ndurability: {durability}\ninterfere_policy: {interfere}\nallocated_inodes: {inodes}\n{sync}"
        )
    }

    /// Whether data of a returned fsync survive the client's machine.
    pub fn is_kept(&self) -> bool {
        self.durability != "none"
    }
}

/// Adds jobs to some plans. Other draws stay the same.
pub(super) fn add(plan: &mut Plan, steps: usize) {
    let mut random = Random::new(plan.seed, 11);
    if !random.chance(1, 6) {
        return;
    }
    let first = plan.clients.len();
    let jobs = random.between(1, 2) as usize;
    let pause_us = *random.pick(&[2_000, 20_000, 200_000]);
    let count = steps / (jobs + 1) + 1;
    for n in 0..jobs {
        plan.setup.roles.push(Role::Job(draw_job(&mut random)));
        plan.clients.push(job_steps(&mut random, first + n, count, pause_us));
    }
    plan.setup.roles.push(Role::Visitor);
    let visits = (0..count).map(|n| {
        let client = first + random.below(jobs as u64) as usize;
        let action = match random.below(3) {
            0 => Action::Create { path: format!("{THEIRS}{client}/x{n}"), content: vec![b'x'; 10] },
            _ => Action::Follow { client, marks: Vec::new() },
        };
        Step::by_root(Duration::from_micros(random.below(pause_us)), action)
    });
    let visits = visits.collect();
    plan.clients.push(visits);
    let span = pause_us * count as u64 / 2;
    for _ in 0..random.below(5) {
        let at = Duration::from_micros(random.below(span.max(100_000)));
        let client = first + random.below(jobs as u64) as usize;
        let fault = draw_fault(&mut random, client, plan.setup.session_ms.into());
        plan.faults.push((at, fault));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

fn draw_job(random: &mut Random) -> Job {
    Job {
        durability: random.pick::<&str>(&LEVELS),
        interfere: random.pick::<&str>(&INTERFERENCE),
        sync_ms: random.chance(1, 3).then(|| random.between(50, 2_000)),
        inodes: *random.pick(&[5, 30, 1_000]),
    }
}

fn job_steps(random: &mut Random, client: usize, count: usize, pause_us: u64) -> Vec<Step> {
    let mut weights: Vec<u32> =
        (0..OWN_KINDS).map(|_| if random.chance(1, 4) { 0 } else { random.between(1, 20) as u32 }).collect();
    // Otherwise nothing may be left to do.
    weights[0] += 1;
    weights.resize(KINDS, 0);
    let ends = random.between(1, 6);
    let seed = random.next();
    let mut maker = Maker { random: Random::new(seed, 100), client, made: 0, version: 0 };
    let mut marks = 0;
    let step = |_| {
        let pause = Duration::from_micros(random.below(pause_us));
        let action = match random.below(100) {
            n if n < ends => Action::MergeAll,
            n if n < ends + 2 => Action::Discard,
            n if n < ends + 8 => Action::MergeSoFar,
            n if n < 30 => {
                marks += 1;
                Action::Create { path: format!("{OWN}{MARK}{marks}"), content: mark_content(marks) }
            }
            _ => maker.action(&weights),
        };
        Step::by_root(pause, action)
    };
    (0..count).map(step).collect()
}

fn mark_content(mark: u64) -> Vec<u8> {
    mark.to_string().into_bytes()
}

/// Whether a mark's content is its own.
pub fn is_content_of_mark(path: &str, content: &[u8]) -> bool {
    path.rsplit_once(MARK).is_some_and(|(_, number)| number.as_bytes() == content)
}

fn draw_fault(random: &mut Random, client: usize, session_ms: u64) -> Fault {
    let short = Duration::from_millis(random.between(10, 2_000));
    let long = Duration::from_millis(random.between(10, session_ms * 2));
    let late = random.chance(1, 2);
    match random.below(8) {
        0..=3 => Fault::CrashClient { client, down: short, late },
        4 => Fault::CrashServer { down: short },
        5 => Fault::PauseClient { client, time: long },
        6 => Fault::Isolate { client, time: long },
        _ => Fault::Cut { client, late },
    }
}
