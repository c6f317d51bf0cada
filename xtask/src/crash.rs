//! `cargo xtask crash`: the tests that kill real processes under load, for many rounds.

use crate::run::{Result, cargo, shown};

/// Runs them; `--rounds N`, `--seed N`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut command =
        cargo(&["test", "--package", "chiton", "--test", "faults", "crash", "--", "--nocapture"]);
    command.env("CHITON_CRASH_ROUNDS", "100");
    for pair in args.chunks(2) {
        match pair {
            [name, n] if name == "--rounds" => command.env("CHITON_CRASH_ROUNDS", n),
            [name, n] if name == "--seed" => command.env("CHITON_CRASH_SEED", n),
            _ => return Err("usage: cargo xtask crash [--rounds N] [--seed N]".to_owned()),
        };
    }
    shown(&mut command)
}
