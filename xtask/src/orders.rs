//! `orders`: every order of the messages between plates, in `crates/sim`.

use crate::run::{Result, cargo, shown};

/// Builds the program as the tests do, with all assertions, and hands over to it.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let program = ["run", "--quiet", "--package", "chiton-sim", "--bin", "orders", "--"];
    shown(cargo(&program).args(args))
}
