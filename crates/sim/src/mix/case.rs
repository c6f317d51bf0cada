//! The steps of a case, all drawn from a seed before it begins.

use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Side(usize),
    /// In the global namespace.
    Theirs,
}

/// A change as numbers: their meaning depends on the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed {
    pub kind: u8,
    pub a: u64,
    pub b: u64,
    pub c: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Server,
    /// The machine of a decoupling's client.
    Side(usize),
    Both(usize),
}

/// The disk whose writes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfDisk {
    /// The server's: journal, objects, rows.
    Server,
    /// The client's journal on its machine's disk.
    Side(usize),
}

/// A machine dies after this many more changes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    pub victim: Victim,
    pub of: OfDisk,
    pub after: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A decoupling, or a branch, begins.
    Begin(usize),
    Do(Actor, Deed),
    /// Makes changes in a decoupling durable.
    Fsync(usize),
    /// Merges the changes so far.
    Sync(usize),
    /// Merges everything, and ends the decoupling.
    Merge(usize),
    Discard(usize),
    /// Compares without a merge.
    Diff(usize),
    /// Its client ends in order, and another resumes it.
    Leave(usize),
    /// An administrator ends it by force; its changes become a branch, on which the client continues.
    EndByForce(usize),
    /// Waits for so many milliseconds.
    Wait(u64),
    /// From here on, one after the other.
    Arm(Vec<Arm>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideSetup {
    /// Whether it is a branch.
    pub branch: bool,
    /// `weak` or `invisible`.
    pub consistency: &'static str,
    /// `none`, `local` or `global`.
    pub durability: &'static str,
    /// `allow`, `block_writes` or `block`.
    pub interfere: &'static str,
    /// `overwrite`, `abort` or `keep_both`.
    pub on_conflict: &'static str,
    /// The line of the policy about automatic merges.
    pub sync: Option<String>,
    /// Inode numbers granted at once.
    pub inodes: u64,
}

impl SideSetup {
    pub fn policy(&self) -> String {
        let SideSetup { consistency, durability, interfere, on_conflict, inodes, .. } = self;
        let sync = self.sync.as_deref().unwrap_or_default();
        format!(
            "consistency: {consistency}\ndurability: {durability}\ninterfere_policy: {interfere}\n\
             on_conflict: {on_conflict}\nallocated_inodes: {inodes}\n{sync}\n"
        )
    }

    /// It may be merged at any time.
    pub fn merges_by_itself(&self) -> bool {
        self.sync.is_some() && !self.branch
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub seed: u64,
    /// The directory's durability for clients that use the server, if its own policy has one.
    pub ground: Option<&'static str>,
    pub sides: Vec<SideSetup>,
    pub steps: Vec<Step>,
    /// See [`Case::wide`].
    pub is_wide: bool,
    /// The server runs so many. Then the directory keeps its own on its plate.
    pub plates: u16,
}

/// Kinds of deeds of every case.
const KINDS: usize = 12;
/// Kinds of deeds of wide cases only: see [`super::acts::acts`].
pub(super) const WIDE: std::ops::Range<u8> = 12..17;

impl Case {
    pub fn draw(seed: u64) -> Case {
        let mut random = Random::new(seed, 20);
        let sides: Vec<SideSetup> = draw_sides(&mut random);
        let keeps_out = sides.iter().any(|side| side.interfere != "allow");
        let deadly = random.chance(1, 2);
        let weights: Vec<u32> =
            (0..KINDS).map(|_| if random.chance(1, 4) { 0 } else { random.between(1, 20) as u32 }).collect();
        let weights = [&[weights[0] + 3, weights[1] + 1], &weights[2..]].concat();
        let deed = |random: &mut Random| Deed {
            kind: random.weighted(&weights) as u8,
            a: random.next(),
            b: random.next(),
            c: random.next(),
        };
        let mut steps = Vec::new();
        for _ in 0..random.below(14) {
            steps.push(Step::Do(Actor::Theirs, deed(&mut random)));
        }
        let mut begun = Vec::new();
        for n in 0..sides.len() {
            steps.push(Step::Begin(n));
            begun.push(n);
            if !keeps_out && random.chance(1, 3) {
                steps.push(Step::Do(Actor::Theirs, deed(&mut random)));
            }
        }
        for _ in 0..random.between(4, 36) {
            let side = *random.pick(&begun);
            let step = match random.below(100) {
                0..45 => Step::Do(Actor::Side(side), deed(&mut random)),
                45..76 if keeps_out => Step::Do(Actor::Side(side), deed(&mut random)),
                45..76 => Step::Do(Actor::Theirs, deed(&mut random)),
                76..79 => Step::Fsync(side),
                79..85 => Step::Sync(side),
                85..87 => Step::Merge(side),
                87 => Step::Discard(side),
                88..90 => Step::Diff(side),
                90..92 => Step::Leave(side),
                92..94 => Step::Begin(side),
                94..96 => Step::Wait(random.between(1, 3_000)),
                _ if deadly => draw_arms(&mut random, &sides),
                _ => Step::Wait(1),
            };
            steps.push(step);
        }
        let mut left = begun;
        while !left.is_empty() {
            let side = left.swap_remove(random.below(left.len() as u64) as usize);
            if deadly && random.chance(2, 3) {
                steps.push(draw_arms(&mut random, &sides));
            }
            steps.push(if random.chance(1, 8) { Step::Discard(side) } else { Step::Merge(side) });
        }
        let grounds = [None, None, None, Some("none"), Some("local"), Some("global")];
        Case { seed, ground: *Random::new(seed, 24).pick(&grounds), sides, steps, is_wide: false, plates: 1 }
    }

    /// The same over a file system with so many plates. These have no subtree without a journal (S131).
    pub fn over(self, plates: u16) -> Case {
        let ground = self.ground.filter(|durability| plates == 1 || *durability != "none");
        Case { plates, ground, ..self }
    }

    /// The case of a seed with forced ends of jobs, and with changes to larger files: files over the limit of
    /// inline content, written in place in part, saved by a rename, and their times; and sides that begin after
    /// others have created files.
    pub fn wide(seed: u64) -> Case {
        let mut case = Case::draw(seed);
        let mut random = Random::new(seed, 27);
        let wider = |deed: &mut Deed, random: &mut Random| {
            if random.chance(2, 3) {
                deed.kind = WIDE.start + random.below(u64::from(WIDE.end - WIDE.start)) as u8;
            }
        };
        let mut steps = Vec::new();
        let mut begun = Vec::new();
        let keeps_out = case.sides.iter().any(|side| side.interfere != "allow");
        for mut step in case.steps {
            if let Step::Do(_, deed) = &mut step {
                wider(deed, &mut random);
            }
            let begins = if let Step::Begin(n) = step { Some(n) } else { None };
            steps.push(step);
            let Some(n) = begins.filter(|n| !begun.contains(n)) else { continue };
            begun.push(n);
            for _ in 0..random.below(5) {
                let mut deed = Deed {
                    kind: random.below(2) as u8,
                    a: random.next(),
                    b: random.next(),
                    c: random.next(),
                };
                wider(&mut deed, &mut random);
                let who = match random.below(begun.len() as u64 + 1) as usize {
                    at if at < begun.len() || keeps_out => Actor::Side(begun[at % begun.len()]),
                    _ => Actor::Theirs,
                };
                steps.push(Step::Do(who, deed));
            }
        }
        let mut random = Random::new(seed, 31);
        for step in &mut steps {
            if let Step::Diff(n) = *step
                && random.chance(1, 2)
            {
                *step = Step::EndByForce(n);
            }
        }
        case.steps = steps;
        case.is_wide = true;
        case
    }
}

fn draw_sides(random: &mut Random) -> Vec<SideSetup> {
    let job = random.chance(3, 4);
    let branches = if job { random.below(3) } else { random.between(1, 3) };
    // A policy that blocks also excludes merges of branches.
    let interfere =
        if branches == 0 && random.chance(1, 5) { *random.pick(&["block", "block_writes"]) } else { "allow" };
    let total = u64::from(job) + branches;
    (0..total)
        .map(|n| {
            let branch = !job || n > 0;
            let consistency = *random.pick(&["weak", "weak", "invisible"]);
            let interval = random.between(1, 2_000);
            let sync = match random.below(6) {
                0 if consistency == "weak" => Some(format!("sync_interval: {interval}ms")),
                1 if consistency == "weak" => Some(format!("sync_updates: {}", random.between(1, 20))),
                2 if consistency == "weak" => Some("sync_when_idle: true".to_owned()),
                _ => None,
            };
            SideSetup {
                branch,
                consistency,
                durability: random.pick::<&str>(if branch {
                    &["local", "global"]
                } else {
                    &["none", "local", "global"]
                }),
                interfere,
                on_conflict: random.pick::<&str>(&["overwrite", "keep_both", "abort"]),
                sync: sync.filter(|_| !branch),
                inodes: *random.pick(&[5, 30, 1_000]),
            }
        })
        .collect()
}

fn draw_arms(random: &mut Random, sides: &[SideSetup]) -> Step {
    let arm = |random: &mut Random| {
        let side = random.below(sides.len() as u64) as usize;
        let has_disk = sides[side].durability == "local";
        Arm {
            victim: match random.below(5) {
                0 | 1 => Victim::Server,
                2 | 3 => Victim::Side(side),
                _ => Victim::Both(side),
            },
            of: if has_disk && random.chance(1, 3) { OfDisk::Side(side) } else { OfDisk::Server },
            after: if random.chance(3, 4) { random.between(1, 12) } else { random.between(1, 60) },
        }
    };
    Step::Arm((0..random.between(1, 4)).map(|_| arm(random)).collect())
}
