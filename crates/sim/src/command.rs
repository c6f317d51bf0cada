//! `chiton-sim`: runs seeds, and makes a failing one short.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use chiton_runtime::{RealWorld, World};
use clap::{Parser, ValueEnum};

use crate::canary::Canary;
use crate::kept_parts::Keep;
use crate::part_steps::StepCounts;
use crate::plan::{self, Plan};
use crate::run::{Outcome, run};
use crate::shrink::{TRIES_MAX, shrink};

/// Runs a cluster of real servers and clients on a simulated world, and checks the promises.
///
/// Examples:
///   chiton-sim --seed 42               one run, again the same
///   chiton-sim --seeds 0..500          many
///   chiton-sim --seconds 60            fresh seeds for a minute
///   chiton-sim --seed 42 --trace       with everything that happened
#[derive(Parser, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Run this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds from A up to, not including, B.
    #[arg(long, value_parser = parse_range, value_name = "A..B")]
    seeds: Option<Range<u64>>,
    /// Run fresh seeds for this many seconds, and print them.
    #[arg(long)]
    seconds: Option<u64>,
    /// About how many steps all clients take together.
    #[arg(long, default_value_t = 150)]
    steps: usize,
    /// Of a file system with this many plates.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    plates: u16,
    /// Print the events of the run.
    #[arg(long)]
    trace: bool,
    /// Only these parts of the plan, as a failure prints them: faults, then of each client its steps.
    #[arg(long, requires = "seed", value_name = "FAULTS/STEPS/..")]
    keep: Option<Keep>,
    /// Does not look for a shorter run that fails, too.
    #[arg(long)]
    no_shrink: bool,
    /// Breaks this rule on purpose: the run should fail.
    #[arg(long)]
    canary: Option<Canary>,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    Ok(number(from)?..number(to)?)
}

/// Sums over all runs.
#[derive(Default)]
struct Totals {
    runs: u64,
    simulated: Duration,
    calls: u64,
    steps: StepCounts,
}

pub fn main() -> ExitCode {
    let args = Args::parse();
    let begun = RealWorld.monotonic();
    let mut totals = Totals::default();
    let mut seeds: Box<dyn Iterator<Item = u64>> = match (&args.seed, &args.seeds, &args.seconds) {
        (Some(seed), ..) => Box::new(std::iter::once(*seed)),
        (_, Some(range), _) => Box::new(range.clone()),
        (.., Some(seconds)) => {
            let first = RealWorld.random() >> 24;
            println!("fresh seeds from {first} on, for {seconds} s");
            let end = begun + Duration::from_secs(*seconds);
            Box::new((first..).take_while(move |_| RealWorld.monotonic() < end))
        }
        _ => Box::new(0..20),
    };
    let ok = seeds.all(|seed| one(&args, seed, &mut totals));
    let real = RealWorld.monotonic() - begun;
    println!(
        "{} runs, {} calls, {:.0} simulated seconds in {:.1} s: {:.0} times as fast",
        totals.runs,
        totals.calls,
        totals.simulated.as_secs_f64(),
        real.as_secs_f64(),
        totals.simulated.as_secs_f64() / real.as_secs_f64()
    );
    if args.plates > 1 {
        println!("{}", totals.steps);
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(args: &Args, seed: u64, totals: &mut Totals) -> bool {
    let mut plan = plan::draw_over(args.plates, seed, args.steps);
    if let Some(keep) = &args.keep {
        match keep.of(&plan) {
            Ok(part) => plan = part,
            Err(why) => {
                println!("seed {seed} with --steps {}: {why}", args.steps);
                return false;
            }
        }
    }
    let outcome = run(&plan, args.canary);
    totals.runs += 1;
    totals.simulated += outcome.simulated;
    totals.calls += calls(&outcome);
    totals.steps += outcome.steps;
    if args.trace {
        print_lines(&outcome);
    }
    if outcome.violations.is_empty() {
        return true;
    }
    println!("seed {seed} fails:");
    print_violations(&outcome);
    if !args.no_shrink && args.keep.is_none() {
        let (keep, outcome) = shrink(&plan, outcome, args.canary, TRIES_MAX);
        let short = keep.of(&plan).expect("a part of this plan");
        println!(
            "\nthe shortest run found that fails ({} steps, {} faults):",
            steps(&short),
            short.faults.len()
        );
        print_plan(&short);
        if !args.trace {
            print_lines(&outcome);
        }
        print_violations(&outcome);
        println!("\nthe shortest again: {} --keep {keep}", again(args, seed));
    }
    match &args.keep {
        Some(keep) => println!("\nagain: {} --keep {keep}", again(args, seed)),
        None => println!("\nagain: {}", again(args, seed)),
    }
    false
}

/// The command that repeats a run.
fn again(args: &Args, seed: u64) -> String {
    let canary = args.canary.and_then(|canary| canary.to_possible_value());
    let canary = canary.map_or_else(String::new, |canary| format!(" --canary {}", canary.get_name()));
    let plates = match args.plates {
        1 => String::new(),
        plates => format!(" --plates {plates}"),
    };
    format!("cargo xtask sim --seed {seed} --steps {}{plates}{canary}", args.steps)
}

fn steps(plan: &Plan) -> usize {
    plan.clients.iter().map(Vec::len).sum()
}

fn calls(outcome: &Outcome) -> u64 {
    let returned =
        |event: &&crate::history::Event| matches!(event.what, crate::history::Happened::Returned { .. });
    outcome.history.events.iter().filter(returned).count() as u64
}

fn print_violations(outcome: &Outcome) {
    for violation in &outcome.violations {
        println!("  {}: {}", violation.checker, violation.what);
    }
}

fn print_plan(plan: &Plan) {
    println!("  {:?}", plan.setup);
    for (at, fault) in &plan.faults {
        println!("  at {at:?}: {fault:?}");
    }
}

fn print_lines(outcome: &Outcome) {
    for (at, line) in &outcome.lines {
        let mut line = line.clone();
        if line.len() > 220 {
            let cut = (0..=220).rev().find(|n| line.is_char_boundary(*n)).unwrap_or(0);
            line.truncate(cut);
            line.push('…');
        }
        println!("  {:>12.6} {line}", at.as_secs_f64());
    }
}
