//! `ace`: exhaustive small worlds, in `crates/sim`.

use crate::run::{Result, cargo, shown};

/// Builds the program as the tests do (with all assertions: most of its time goes to waking threads, not to
/// computing) and hands over to it.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let program = ["run", "--quiet", "--package", "chiton-sim", "--bin", "ace", "--"];
    shown(cargo(&program).args(args))
}
