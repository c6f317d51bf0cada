//! `./x bench`: the program's own benchmark, built for speed.

use std::process::Command;

use crate::run::{Result, release_programs, shown};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let programs = release_programs()?;
    shown(Command::new(programs.join("chiton")).arg("bench").arg("all").args(args))
}
