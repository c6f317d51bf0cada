//! `cargo xtask ace`: exhaustive small worlds.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use chiton_sim::ace::{self, Canary, Options, Report};

const HELP: &str = "\
Every sequence of up to 3 operations on a small tree, a crash at every write to the disk, the real server started on
what is left, and the result judged.

Usage: cargo xtask ace [OPTIONS]

  --length N       sequences of up to N steps, 1 to 3 (default 3)
  --threads N      how many at a time (default: one for each processor)
  --stride N       of the longest sequences only every N-th
  --only A,B,C     one workload, by its steps (what a failure prints)
  --objects        a journal of objects, as on S3, instead of files that grow
  --plates N       of a file system with N plates, 1 or 2 (default 1); 2 have some steps more
  --splits         of a file system with two plates that splits each directory when it has two names
  --canary NAME    the disk breaks a rule, to see that it is noticed: segments-not-synced, objects-not-synced,
                   half-commits, commits-forgotten, rotten-objects; with --plates 2 also
                   first-plate-not-synced, second-plate-not-synced, effects-forgotten
  --list           the steps, with their numbers
  --json           the result as JSON, on standard output

Examples:
  cargo xtask ace --length 2
  cargo xtask ace --only 9,45,10
  cargo xtask ace --length 2 --plates 2
  cargo xtask ace --length 1 --splits
  cargo xtask ace --length 1 --canary objects-not-synced

Exit code: 0 if every result was right, 1 if not, 2 if the options are wrong.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match Arguments::parse(&args) {
        Ok(asked) => asked.answer(),
        Err(message) => {
            eprintln!("ace: {message}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    options: Options,
    stride: u64,
    only: Option<Vec<usize>>,
    json: bool,
    help: bool,
    list: bool,
}

impl Arguments {
    fn parse(args: &[String]) -> Result<Arguments, String> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let options = Options { threads, ..Options::default() };
        let mut asked = Arguments { options, stride: 1, only: None, json: false, help: false, list: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            let number =
                |text: &String| text.parse::<u64>().map_err(|_| format!("{arg}: {text:?} is no number"));
            match arg.as_str() {
                "--length" => {
                    asked.options.length = number(value()?)? as usize;
                    if !(1..=3).contains(&asked.options.length) {
                        return Err("--length is 1, 2 or 3".to_owned());
                    }
                }
                "--threads" => asked.options.threads = number(value()?)?.clamp(1, 1024) as usize,
                "--stride" => asked.stride = number(value()?)?.max(1),
                "--only" => {
                    let steps = value()?
                        .split(',')
                        .map(|n| n.trim().parse().map_err(|_| format!("{n:?} is no step")));
                    asked.only = Some(steps.collect::<Result<_, String>>()?);
                }
                "--canary" => {
                    let name = value()?;
                    let known = Canary::ALL.iter().find(|(known, _)| known == name);
                    asked.options.canary = Some(known.ok_or(format!("unknown canary {name:?}"))?.1);
                }
                "--plates" => {
                    asked.options.plates = match number(value()?)? {
                        n @ (1 | 2) => n as u16,
                        _ => return Err("--plates is 1 or 2".to_owned()),
                    }
                }
                "--splits" => asked.options.splits = true,
                "--objects" => asked.options.journal_of_objects = true,
                "--json" => asked.json = true,
                "--list" => asked.list = true,
                "--help" | "-h" => asked.help = true,
                other => return Err(format!("unknown option {other:?}")),
            }
        }
        if asked.options.splits {
            asked.options.plates = 2;
        }
        asked.options.strides = vec![1; asked.options.length];
        *asked.options.strides.last_mut().expect("a length of 1 at least") = asked.stride;
        Ok(asked)
    }

    fn answer(&self) -> ExitCode {
        if self.help {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        if self.list {
            for n in 0..ace::vocabulary_len(&self.options) {
                println!("{n:3}  {}", ace::describe(&[n], &self.options));
            }
            return ExitCode::SUCCESS;
        }
        let report = match &self.only {
            Some(steps) => ace::run_one(steps, &self.options),
            None => ace::run(&self.options, &show_progress),
        };
        match report {
            Ok(report) => {
                if std::io::stderr().is_terminal() {
                    eprintln!();
                }
                if self.json {
                    print_json(&report)
                } else {
                    self.print(&report)
                }
                ExitCode::from(u8::from(!report.failures.is_empty()))
            }
            Err(message) => {
                eprintln!("ace: {message}");
                ExitCode::from(2)
            }
        }
    }

    fn print(&self, report: &Report) {
        println!(
            "{} workloads, {} crash points, {} crashes judged, {} different disks recovered, {:.1} s",
            report.workloads,
            report.crash_points,
            report.crashes,
            report.recoveries,
            report.elapsed.as_secs_f64()
        );
        for failure in &report.failures {
            println!("\nWRONG: {}\n  again: {}", failure.what, self.again(&failure.steps));
        }
        match report.failures.len() {
            0 => println!("every result is one that was promised"),
            n => println!("\n{n} workloads end in what was not promised"),
        }
    }

    /// The command that runs one workload in the same way.
    fn again(&self, steps: &[usize]) -> String {
        let steps: Vec<String> = steps.iter().map(usize::to_string).collect();
        let objects = if self.options.journal_of_objects { " --objects" } else { "" };
        let canary = Canary::ALL.iter().find(|(_, known)| self.options.canary == Some(*known));
        let canary = canary.map_or(String::new(), |(name, _)| format!(" --canary {name}"));
        let plates = match (self.options.plates, self.options.splits) {
            (1, _) => String::new(),
            (_, true) => " --splits".to_owned(),
            (plates, false) => format!(" --plates {plates}"),
        };
        format!("cargo xtask ace --only {}{plates}{objects}{canary}", steps.join(","))
    }
}

fn show_progress(done: u64, all: u64) {
    let mut err = std::io::stderr();
    // On a terminal one line that changes, elsewhere a line now and then.
    if err.is_terminal() {
        if done.is_multiple_of(16) || done == all {
            // Progress that cannot be shown is not worth an error.
            let _ = write!(err, "\r{done} of {all} workloads");
        }
    } else if done.is_multiple_of(all.div_ceil(20)) {
        let _ = writeln!(err, "{done} of {all} workloads");
    }
}

fn print_json(report: &Report) {
    let failures: Vec<serde_json::Value> = report
        .failures
        .iter()
        .map(|failure| serde_json::json!({ "steps": failure.steps, "what": failure.what }))
        .collect();
    let json = serde_json::json!({
        "workloads": report.workloads,
        "crash_points": report.crash_points,
        "crashes": report.crashes,
        "recoveries": report.recoveries,
        "seconds": report.elapsed.as_secs_f64(),
        "failures": failures,
    });
    println!("{json}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_repeated_as_it_was() {
        let check = |args: &[&str], expect: &str| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            assert_eq!(Arguments::parse(&args).unwrap().again(&[9, 45, 10]), expect);
        };
        check(&["--length", "2"], "cargo xtask ace --only 9,45,10");
        check(&["--plates", "2"], "cargo xtask ace --only 9,45,10 --plates 2");
        check(&["--splits"], "cargo xtask ace --only 9,45,10 --splits");
        check(
            &["--objects", "--canary", "rotten-objects"],
            "cargo xtask ace --only 9,45,10 --objects --canary rotten-objects",
        );
    }
}
