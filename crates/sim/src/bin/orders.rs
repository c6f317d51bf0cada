//! `cargo xtask orders`: every order of the messages between plates.

use std::process::ExitCode;

use chiton_runtime::{RealWorld, World};
use chiton_sim::orders::scenario::{LOOKS, PAIRS, Scenario, Shape, TRIPLES};
use chiton_sim::orders::{Broken, Commits, search, trace};
use clap::Parser;

/// A few calls that change rows of several plates at once: every order in which their messages can arrive, on the real engines.
/// A judge looks at the answers and at the tree that is left.
///
/// Examples:
///   cargo xtask orders                        everything, over two and three plates: hours
///   cargo xtask orders --calls 2 --plates 2   two calls at once, over two plates
///   cargo xtask orders --stride 10            every 10th way to lay the directories on plates
///   cargo xtask orders --shape circle --plates 3 --on 0,1,2 --trace    one, and the first way through it
#[derive(Parser, Debug)]
#[command(verbatim_doc_comment)]
struct Args {
    /// Over so many plates; both if it is left out.
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=3))]
    plates: Option<u16>,
    /// Two or three calls at once, or 1: calls beside a client that looks on. All three if it is left out.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    calls: Option<u8>,
    /// Only the shape of this name.
    #[arg(long)]
    shape: Option<String>,
    /// Only with its directories on these plates.
    #[arg(long, requires = "shape", value_delimiter = ',')]
    on: Option<Vec<usize>>,
    /// Plates commit in the step in which they write, so only messages are ordered.
    #[arg(long)]
    commit_at_once: bool,
    /// Only every n-th way to lay the directories on plates.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    stride: u64,
    /// Leave a search after so many states, and say so.
    #[arg(long, default_value_t = 300_000)]
    states: usize,
    /// Break a rule on purpose: `guards` or `token`.
    #[arg(long, value_parser = parse_canary)]
    canary: Option<Broken>,
    /// Print what happened on the way to the fault, or on the first way if there is none.
    #[arg(long)]
    trace: bool,
}

fn parse_canary(text: &str) -> Result<Broken, String> {
    match text {
        "guards" => Ok(Broken::GuardsLeftOut),
        "token" => Ok(Broken::TokenLeftOut),
        _ => Err(format!("no canary {text:?}; there are guards and token")),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let begun = RealWorld.monotonic();
    let commits = if args.commit_at_once { Commits::AtOnce } else { Commits::AnyTime };
    let shapes = [(1, LOOKS), (2, PAIRS), (3, TRIPLES)].into_iter();
    let shapes = shapes.filter(|(calls, _)| args.calls.is_none_or(|only| only == *calls));
    let shapes: Vec<&Shape> = shapes.flat_map(|(_, shapes)| shapes).collect();
    let wanted = |shape: &&&Shape| args.shape.as_ref().is_none_or(|name| name == shape.name);
    let (mut scenarios, mut states, mut ends, mut cut_off) = (0u64, 0, 0, 0u64);
    for plates in [2, 3].into_iter().filter(|plates| args.plates.is_none_or(|only| only == *plates)) {
        for shape in shapes.iter().filter(wanted) {
            let all = Scenario::all(**shape, plates).step_by(args.stride as usize);
            for scenario in all.filter(|scenario| args.on.as_ref().is_none_or(|on| *on == scenario.on)) {
                let found = search(&scenario, commits, args.canary, args.states);
                (scenarios, states, ends) = (scenarios + 1, states + found.states, ends + found.ends);
                if found.is_cut_off {
                    cut_off += 1;
                    println!("{scenario} over {plates} plates: left after {} states", found.states);
                }
                let way = found.wrong.as_ref().map_or(&found.first, |(_, steps)| steps);
                if args.trace {
                    trace(&scenario, commits, args.canary, way).iter().for_each(|line| println!("  {line}"));
                }
                if let Some((wrong, _)) = found.wrong {
                    println!("WRONG: {scenario} over {plates} plates: {wrong}");
                    println!("again: cargo xtask orders {} --trace", again(&args, &scenario));
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    if scenarios == 0 {
        println!("no such scenario; the shapes are {:?}", shapes.iter().map(|s| s.name).collect::<Vec<_>>());
        return ExitCode::FAILURE;
    }
    let seconds = (RealWorld.monotonic() - begun).as_secs_f64();
    println!(
        "{scenarios} scenarios in {seconds:.1} s: {states} states, {ends} ends, none wrong; {cut_off} not searched whole"
    );
    ExitCode::SUCCESS
}

/// The options that lead to one scenario.
fn again(args: &Args, scenario: &Scenario) -> String {
    let on: Vec<String> = scenario.on.iter().map(ToString::to_string).collect();
    let mut words =
        format!("--plates {} --shape {} --on {}", scenario.plates, scenario.shape.name, on.join(","));
    if args.commit_at_once {
        words += " --commit-at-once";
    }
    match args.canary {
        Some(Broken::GuardsLeftOut) => words += " --canary guards",
        Some(Broken::TokenLeftOut) => words += " --canary token",
        None => {}
    }
    words
}
