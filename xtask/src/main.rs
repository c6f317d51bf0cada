//! All automation of the project. `./x` bootstraps it on a fresh machine; `cargo xtask` is the same without that.
//!
//! Has no dependencies, so that it builds in seconds.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes and real mounts: nothing here runs in a simulation"
)]

mod ace;
mod bench;
mod cluster;
mod crash;
mod demo;
mod figures;
mod fix;
mod fresh;
mod fuzz;
mod mix;
mod orders;
mod run;
mod serving;
mod sim;
mod stopwatch;
mod suites;
mod tree;
mod verify;

use std::process::ExitCode;

const HELP: &str = "\
Usage: ./x COMMAND [OPTIONS]

  demo [OPTIONS]    a mount on a local directory, real input through it, kill -9 in the middle, a table of what it did
                    (--small: fewer files; --dev: programs built as the tests are, not for speed)
  test              runs every check: format, clippy, tests, POSIX suites, demo
  test NAME         runs the tests whose name contains NAME
  test --quick      runs format, the libraries' own tests and a short simulation: under two minutes after the build,
                    on machines without /dev/fuse, too
  fresh [COMMAND]   makes a bare Debian with debootstrap and runs demo and test there, or COMMAND (--help says more)
  bench [OPTIONS]   figures beside baselines in the same run (--quick, --json, --only NAME; see --help)
  figures cudele    the paper's evaluation, measured here and drawn beside it (--small, --out DIR, or names: fig6a); figures fpfs: the thesis's
  ace [OPTIONS]     every short sequence of operations, crashed at every write (--length N, --json; see --help)
  sim [OPTIONS]     real servers and clients on a simulated world, with faults (--seed N, --seeds A..B, --seconds N)
  mix [OPTIONS]     several change one subtree, merge and die; each entry is judged (--seed N, --seeds A..B, --seconds N);
                    --cells: a policy changes between each two cells, with a death at each write
  orders [OPTIONS]  a few calls over several plates: every order in which their messages can arrive (--calls N, --plates N)
  cluster [OPTIONS] an etcd, several servers and mounts on this machine, until Ctrl-C; --check: load while servers are killed and
                    paused, then a comparison (--servers N, --standby N, --seconds N, --seed N; see --help)
  crash [OPTIONS]   kill -9 of real processes under load, with content checks (--rounds N, --seed N)
  fuzz [OPTIONS]    hostile input for everything that reads what others wrote (--seconds N, --target NAME)
  suites            only the POSIX suites (pjdfstest, fsx): on a mount, on a connected one beside another, and where directories have parts
  fix               writes what can be fixed by machine: format, clippy's suggestions
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let result = match command {
        "demo" => demo::run(rest),
        "test" | "verify" => verify::run(rest),
        "fresh" => fresh::run(rest),
        "bench" => bench::run(rest),
        "figures" => figures::run(rest),
        "cluster" => cluster::run(rest),
        "crash" => crash::run(rest),
        "ace" => ace::run(rest),
        "mix" => mix::run(rest),
        "orders" => orders::run(rest),
        "fuzz" => fuzz::run(rest),
        "sim" => sim::run(rest),
        "suites" => suites::run().map(|_| ()),
        "fix" => fix::run(),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("unknown command {other:?}\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("x {command}: {message}");
            ExitCode::FAILURE
        }
    }
}
