//! `cargo xtask mix`: several change one subtree, merge, and die.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use chiton_runtime::{RealWorld, World};
use chiton_sim::mix::cells::{self, Switch};
use chiton_sim::mix::{Case, Met, Outcome, Step, run, shrink};
use clap::Parser;

/// A job that has decoupled a subtree, branches of it, and others who act in it: they merge, drop, die and resume,
/// and each entry is judged.
///
/// Examples:
///   cargo xtask mix --seeds 0..500       many
///   cargo xtask mix --seconds 60         fresh seeds for a minute
///   cargo xtask mix --wide --seconds 60  the same with larger files, written in part, saved by renames
///   cargo xtask mix --seed 42 --trace    one, with everything that happened
///   cargo xtask mix --plates 2 --seeds 0..500   over a file system with two plates
///   cargo xtask mix --cells              a policy changes between each two cells, and machines die at each write of that
///   cargo xtask mix --cells --only-cells 'weak-local to strong-none, both after 3 of journal' --trace
#[derive(Parser, Debug)]
#[command(verbatim_doc_comment)]
struct Args {
    /// Run this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds from A up to, not including, B.
    #[arg(long, value_parser = parse_range, value_name = "A..B")]
    seeds: Option<Range<u64>>,
    /// Run fresh seeds for this many seconds, and print the first.
    #[arg(long)]
    seconds: Option<u64>,
    /// Of the steps of the seed only these, as a failure prints them.
    #[arg(long, requires = "seed", value_delimiter = ',')]
    only: Option<Vec<usize>>,
    /// Print the events of the run.
    #[arg(long)]
    trace: bool,
    /// Continue after a failure, without shortening it.
    #[arg(long)]
    all: bool,
    /// Larger files too, written in part, saved by renames; sides that begin later.
    #[arg(long)]
    wide: bool,
    /// Number of plates of the file system.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8), conflicts_with = "cells")]
    plates: u16,
    /// Changes of policies between cells instead of mixes, with a death at every write.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "seconds", "only"])]
    cells: bool,
    /// Of these only those whose words begin so, as a failure prints them.
    #[arg(long, requires = "cells", value_name = "WORDS")]
    only_cells: Option<String>,
    /// Try only every n-th death.
    #[arg(long, requires = "cells", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    stride: u64,
    /// Vary settings and operations.
    #[arg(long, requires = "cells", default_value_t = 0)]
    round: u64,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let begun = RealWorld.monotonic();
    if args.cells {
        return switches(&args);
    }
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
        let case = if args.wide { Case::wide(seed) } else { Case::draw(seed) };
        let mut case = case.over(args.plates);
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

/// Every change of a policy, and every death in it.
fn switches(args: &Args) -> ExitCode {
    let begun = RealWorld.monotonic();
    let (mut played, mut struck, mut within, mut gone_on, mut failed) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut deaths = 0u64;
    let wanted = |switch: &Switch| match &args.only_cells {
        Some(words) => switch.to_string().starts_with(words.as_str()),
        None => true,
    };
    let has_pair = |switch: &Switch| match &args.only_cells {
        Some(words) => words.starts_with(&switch.to_string()) || wanted(switch),
        None => true,
    };
    for (from, to) in cells::pairs() {
        let whole = Switch::new(from, to, args.round);
        if !has_pair(&whole) {
            continue;
        }
        let first = whole.run(None);
        let mut all = vec![(whole, first)].into_iter().collect::<Vec<_>>();
        let strikes = whole.strikes(all[0].1.met.writes);
        let mut rest = strikes.into_iter().filter(|switch| {
            deaths += 1;
            deaths.is_multiple_of(args.stride) && wanted(switch)
        });
        while let Some((switch, outcome)) = all.pop().or_else(|| rest.next().map(|s| (s, s.run(None)))) {
            played += 1;
            struck += u64::from(outcome.met.struck);
            within += u64::from(outcome.met.within);
            gone_on += u64::from(outcome.met.gone_on);
            if args.trace {
                outcome.lines.iter().for_each(|(at, line)| println!("  {:>12.6} {line}", at.as_secs_f64()));
            }
            let Some(wrong) = outcome.wrong else { continue };
            failed += 1;
            println!("WRONG: {wrong}");
            println!("again: cargo xtask mix --cells --round {} --only-cells '{switch}' --trace", args.round);
            if !args.all {
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = (RealWorld.monotonic() - begun).as_secs_f64();
    println!(
        "{played} changes in {seconds:.1} s, {failed} wrong: a machine died in {struck}, in {within} before the change was \
         over, and {gone_on} times a decoupling was resumed"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The shortest case found that fails, and how to see it again.
fn shorter(args: &Args, seed: u64, case: &Case, wrong: &str) {
    if args.only.is_some() {
        return;
    }
    let short = shrink(case, wrong, 400);
    let outcome = run(&short);
    println!("  the directory's own durability: {}", short.ground.unwrap_or("none is set"));
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
    let wide = if args.wide { "--wide " } else { "" };
    let plates = if args.plates > 1 { format!("--plates {} ", args.plates) } else { String::new() };
    println!("again: cargo xtask mix {wide}{plates}--seed {seed} --only {}", only.join(","));
}

/// Prints the parties' events; with `all` also those of the network.
fn print_lines(outcome: &Outcome, all: bool) {
    let reported = ["step:", "side", "others", "dies:", "no start", "server:"];
    let is_printed = |line: &str| all || reported.iter().any(|begin| line.starts_with(begin));
    for (at, line) in outcome.lines.iter().filter(|(_, line)| is_printed(line)) {
        println!("  {:>12.6} {}", at.as_secs_f64(), line.chars().take(240).collect::<String>());
    }
}
