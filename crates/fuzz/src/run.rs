//! Trying inputs, one after the other.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use chiton_runtime::{RealWorld, World};

use crate::memory::take_largest;
use crate::mutate::{Random, mutate};
use crate::targets::{TARGETS, Target};

/// More than any of the inputs may cost at once.
const ALLOCATION_BYTES_MAX: usize = 48 << 20;

const HELP: &str = "\
Usage: ./x fuzz [OPTIONS]

  --seconds N       how long, over all targets (60)
  --target NAME     only this one: wire, journal, event, replay, rows, policy, export, load
  --seed N          where to begin (1)
  --count N         so many inputs of each target, whatever time it takes
";

/// An input that a target did not survive.
#[derive(Debug)]
pub struct Failure {
    /// Name of the target.
    pub target: &'static str,
    /// The seed that makes the input.
    pub seed: u64,
    /// The message of the panic.
    pub why: String,
    /// The input that causes it.
    pub input: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { target, seed, why, input } = self;
        writeln!(f, "{target} fails: {why}")?;
        writeln!(f, "again: ./x fuzz --target {target} --seed {seed} --count 1")?;
        write!(f, "input ({} bytes): {}", input.len(), input.escape_ascii())
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub inputs: u64,
    /// Those that the target took for right.
    pub accepted: u64,
}

/// Tries the inputs of `seeds` while `has_time` returns true.
///
/// # Errors
/// The first that a target does not survive.
pub fn run(
    target: &'static Target,
    seeds: std::ops::Range<u64>,
    has_time: &mut dyn FnMut() -> bool,
) -> Result<Report, Failure> {
    let valid = (target.seeds)();
    let mut report = Report::default();
    for seed in seeds {
        if !has_time() {
            break;
        }
        let mut random = Random(seed);
        let mut input = valid[random.below(valid.len())].clone();
        let other = &valid[random.below(valid.len())];
        mutate(&mut input, other, &mut random);
        (target.repair)(&mut input, &mut random);
        take_largest();
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let largest = take_largest();
        let why = match result {
            Ok(accepted) => {
                report.accepted += u64::from(accepted);
                (largest > ALLOCATION_BYTES_MAX).then(|| format!("{largest} bytes were allocated at once"))
            }
            Err(panic) => Some(text(&*panic)),
        };
        if let Some(why) = why {
            return Err(Failure { target: target.name, seed, why, input });
        }
        report.inputs += 1;
    }
    Ok(report)
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => format!("panic: {text}"),
        (_, Some(text)) => format!("panic: {text}"),
        _ => "panic".to_owned(),
    }
}

pub fn command() -> ExitCode {
    match options().and_then(|(seconds, seed, count, targets)| {
        let share = Duration::from_secs(seconds) / targets.len() as u32;
        for target in targets {
            let begun = RealWorld.monotonic();
            let mut has_time = || count.is_some() || RealWorld.monotonic() - begun < share;
            let end = count.map_or(u64::MAX, |count| seed.saturating_add(count));
            let report = run(target, seed..end, &mut has_time).map_err(|failure| failure.to_string())?;
            let spent = RealWorld.monotonic() - begun;
            println!(
                "{:8} {} inputs in {:.0} s, {} of them right",
                target.name,
                report.inputs,
                spent.as_secs_f64(),
                report.accepted
            );
        }
        Ok(())
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

type Options = (u64, u64, Option<u64>, Vec<&'static Target>);

fn options() -> Result<Options, String> {
    let (mut seconds, mut seed, mut count, mut targets) = (60, 1, None, TARGETS.iter().collect::<Vec<_>>());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| HELP.to_owned())?;
        let number = || value.parse().map_err(|_| format!("{value:?} is no number\n\n{HELP}"));
        match arg.as_str() {
            "--seconds" => seconds = number()?,
            "--seed" => seed = number()?,
            "--count" => count = Some(number()?),
            "--target" => {
                targets.retain(|target| target.name == value);
                if targets.is_empty() {
                    return Err(format!("there is no target {value:?}\n\n{HELP}"));
                }
            }
            _ => return Err(HELP.to_owned()),
        }
    }
    Ok((seconds, seed, count, targets))
}
