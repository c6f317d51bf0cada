//! `cargo xtask mix`: several change one subtree, merge, and die.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use chiton_sim::mix::{Case, Met, Outcome, Step, run, shrink};
use chiton_world::{RealWorld, World};
use clap::Parser;

/// A job that has decoupled a subtree, branches of it, and others who act in it; they merge, drop, die and go on, and
/// each entry is judged.
///
/// Examples:
///   cargo xtask mix --seeds 0..500       many
///   cargo xtask mix --seconds 60         fresh seeds for a minute
///   cargo xtask mix --seed 42 --trace    one, with everything that happened
#[derive(Parser, Debug)]
#[command(verbatim_doc_comment)]
struct Args {
    /// One seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds from A up to, not including, B.
    #[arg(long, value_parser = parse_range, value_name = "A..B")]
    seeds: Option<Range<u64>>,
    /// Fresh seeds for so many seconds; the first is printed.
    #[arg(long)]
    seconds: Option<u64>,
    /// Of the steps of the seed only these, as a failure prints them.
    #[arg(long, requires = "seed", value_delimiter = ',')]
    only: Option<Vec<usize>>,
    /// Prints what happened.
    #[arg(long)]
    trace: bool,
    /// Goes on after a failure, and does not make it shorter.
    #[arg(long)]
    all: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let begun = RealWorld.monotonic();
    let seeds: Box<dyn Iterator<Item = u64>> = match (&args.seed, &args.seeds, &args.seconds) {
        (Some(seed), ..) => Box::new(std::iter::once(*seed)),
        (_, Some(range), _) => Box::new(range.clone()),
        (.., Some(seconds)) => {
            let first = RealWorld.random() >> 24;
            println!("fresh seeds from {first} on, for {seconds} s");
            let end = begun + Duration::from_secs(*seconds);
            Box::new((first..).take_while(move |_| RealWorld.monotonic() < end))
        }
        _ => Box::new(0..100),
    };
    let (mut met, mut cases, mut failed) = (Met::default(), 0u64, 0u64);
    for seed in seeds {
        let mut case = Case::draw(seed);
        if let Some(only) = &args.only {
            case.steps = only.iter().filter_map(|n| case.steps.get(*n).cloned()).collect();
        }
        let outcome = run(&case);
        cases += 1;
        met += outcome.met;
        if args.trace {
            print_lines(&outcome, true);
        }
        let Some(wrong) = &outcome.wrong else { continue };
        failed += 1;
        println!("seed {seed}: {wrong}");
        if !args.all {
            shorter(&args, seed, &case, wrong);
            break;
        }
    }
    let seconds = (RealWorld.monotonic() - begun).as_secs_f64();
    println!("{cases} cases in {seconds:.1} s, {failed} wrong: {met:?}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The shortest case found that fails, and how to see it again.
fn shorter(args: &Args, seed: u64, case: &Case, wrong: &str) {
    if args.only.is_some() {
        return;
    }
    let short = shrink(case, wrong, 400);
    let outcome = run(&short);
    for side in &short.sides {
        println!("  {side:?}");
    }
    print_lines(&outcome, false);
    println!("shorter: {}", outcome.wrong.as_deref().unwrap_or("it does not fail now"));
    let mut rest: Vec<(usize, &Step)> = case.steps.iter().enumerate().collect();
    let mut only = Vec::new();
    for step in &short.steps {
        let Some(at) = rest.iter().position(|(_, other)| *other == step) else { continue };
        only.push(rest[at].0.to_string());
        rest.drain(..=at);
    }
    println!("again: cargo xtask mix --seed {seed} --only {}", only.join(","));
}

/// What the parties said, without `all` nothing of what the network saw.
fn print_lines(outcome: &Outcome, all: bool) {
    let told = ["step:", "side", "others", "dies:", "no start", "server:"];
    let is_told = |line: &str| all || told.iter().any(|begin| line.starts_with(begin));
    for (at, line) in outcome.lines.iter().filter(|(_, line)| is_told(line)) {
        println!("  {:>12.6} {}", at.as_secs_f64(), line.chars().take(240).collect::<String>());
    }
}
