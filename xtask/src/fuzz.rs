//! `fuzz`: hostile input for every reader of bytes from outside, in `crates/fuzz`.

use crate::run::{Result, cargo, shown};

/// Builds the program as the tests do, with all assertions, and hands over to it.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let program = ["run", "--quiet", "--package", "chiton-fuzz", "--bin", "chiton-fuzz", "--"];
    shown(cargo(&program).args(args))
}
