//! All checks, the fastest first; or some of them. Writes only below target.
//!
//! The last line is `total: N passed, M failed`, which counts the tests of cargo, the cases of the POSIX suites, and
//! each step as one.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::run::{Build, Result, cargo, programs, root, shown};
use crate::stopwatch::Stopwatch;
use crate::{cluster, demo, suites};

/// Seconds for fresh seeds in each run of all checks.
const FRESH_SECONDS: &str = "15";

#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
}

/// Seeds of the simulation over several plates.
const SEEDS_OVER_PLATES: &str = "0..30";
/// Seconds for fresh seeds over several plates, whose directories are split and folded.
const FRESH_SECONDS_OVER_PLATES: &str = "10";
/// Seeds of the simulation that the quick check runs.
const QUICK_SEEDS: &str = "0..3";

const USAGE: &str = "usage: ./x test [NAME | --quick]";

pub(crate) fn run(args: &[String]) -> Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => all(),
        ["--quick"] => quick(),
        [option, ..] if option.starts_with('-') => Err(USAGE.into()),
        [name] => named(name),
        _ => Err(USAGE.into()),
    }
}

/// The tests whose name contains `name`.
fn named(name: &str) -> Result<()> {
    let mut tests = Count::default();
    let result = cargo_test(&mut tests, &["--no-fail-fast", "--", name]);
    println!("\ntotal: {} passed, {} failed", tests.passed, tests.failed);
    result?;
    match tests.passed {
        0 => {
            Err(format!("no test has {name:?} in its name; cargo test --workspace -- --list names all tests"))
        }
        _ => Ok(()),
    }
}

/// The checks that need neither /dev/fuse nor root, in less than two minutes after the build.
fn quick() -> Result<()> {
    let mut count = Count::default();
    step(&mut count, "format", || shown(&mut cargo(&["fmt", "--all", "--check"])));
    let mut tests = Count::default();
    step(&mut count, "tests of the libraries", || cargo_test(&mut tests, &["--no-fail-fast", "--lib"]));
    step(&mut count, "simulation", || {
        shown(
            cargo(&["run", "--quiet", "--package", "chiton-sim", "--bin", "chiton-sim", "--"])
                .args(["--seeds", QUICK_SEEDS]),
        )
    });
    closing(count, tests)
}

fn closing(count: Count, tests: Count) -> Result<()> {
    let failed = count.failed + tests.failed;
    println!("\ntotal: {} passed, {failed} failed", count.passed + tests.passed);
    if failed == 0 { Ok(()) } else { Err("not everything passed; see above".into()) }
}

fn all() -> Result<()> {
    let mut count = Count::default();
    step(&mut count, "format", || shown(&mut cargo(&["fmt", "--all", "--check"])));
    step(&mut count, "clippy", || {
        shown(&mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    });
    let mut tests = Count::default();
    step(&mut count, "tests", || cargo_test(&mut tests, &["--no-fail-fast"]));
    // Only its unit tests: the libraries themselves would take the place of those that the other tests link.
    step(&mut count, "libchiton without its features", || {
        shown(&mut cargo(&["test", "--quiet", "--package", "chiton-ffi", "--no-default-features", "--lib"]))
    });
    step(&mut count, "simulation", simulation);
    for protocol in ["leases", "plates"] {
        step(&mut count, &format!("model of {protocol}"), || {
            shown(Command::new("python3").arg("-B").arg(root().join("spec").join(protocol).join("check.py")))
        });
    }
    let mut cases = Count::default();
    step(&mut count, "POSIX suites", || {
        let (passed, failed) = suites::run()?;
        cases = Count { passed, failed };
        if failed == 0 { Ok(()) } else { Err(format!("{failed} cases failed")) }
    });
    step(&mut count, "cluster under faults", cluster::check);
    step(&mut count, "demo", demo::check);
    tests.passed += cases.passed;
    tests.failed += cases.failed;
    closing(count, tests)
}

/// Runs of the simulation: some always the same, and as many fresh ones as the time allows. The first seed of these is
/// printed before them, and a failure prints the commands that repeat it.
fn simulation() -> Result<()> {
    let program = programs(Build::Dev)?.join("chiton-sim");
    shown(Command::new(&program).args(["--seeds", "0..20"]))?;
    for plates in ["2", "3"] {
        shown(Command::new(&program).args(["--plates", plates, "--seeds", SEEDS_OVER_PLATES]))?;
        shown(Command::new(&program).args(["--plates", plates, "--seconds", FRESH_SECONDS_OVER_PLATES]))?;
    }
    shown(Command::new(&program).args(["--seconds", FRESH_SECONDS]))
}

fn step(count: &mut Count, name: &str, f: impl FnOnce() -> Result<()>) {
    println!("\n==> {name}");
    let clock = Stopwatch::start();
    let result = f();
    println!("{name}: {:.0} s", clock.seconds());
    match result {
        Ok(()) => count.passed += 1,
        Err(message) => {
            count.failed += 1;
            println!("{name} FAILED: {message}");
        }
    }
}

/// Longer than all tests take with their build on a slow machine: a test that waits for ever ends then, as a failure.
const TESTS_LIMIT: &str = "45m";

/// Runs tests of all packages, shows their output, and adds up the closing lines.
fn cargo_test(count: &mut Count, which: &[&str]) -> Result<()> {
    let mut cargo = cargo(&["test", "--workspace"]);
    cargo.args(which);
    let mut child = Command::new("timeout")
        .args(["--kill-after=10s", TESTS_LIMIT])
        .arg(cargo.get_program())
        .args(cargo.get_args())
        .current_dir(root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run cargo test: {e}"))?;
    let stdout = child.stdout.take().ok_or("cargo test has no output")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|e| format!("cannot read the output of cargo test: {e}"))?;
        if let Some(rest) = line.strip_prefix("test result: ") {
            count.passed += before(rest, " passed");
            count.failed += before(rest, " failed");
        }
        println!("{line}");
    }
    let status = child.wait().map_err(|e| format!("cannot wait for cargo test: {e}"))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(124) => {
            Err(format!("cargo test did not end within {TESTS_LIMIT}; the last lines name the test that ran"))
        }
        _ => Err(format!("cargo test: {status}")),
    }
}

/// The number that stands before a word.
pub(crate) fn before(text: &str, word: &str) -> u64 {
    let head = text.split(word).next().unwrap_or_default();
    head.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
