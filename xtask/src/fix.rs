//! Automatic fixes.

use crate::run::{Result, cargo, shown};

pub(crate) fn run() -> Result<()> {
    shown(&mut cargo(&["fmt", "--all"]))?;
    shown(&mut cargo(&["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"]))
}
