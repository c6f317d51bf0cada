//! `./x bench`: the program's own benchmark, built for speed.

use std::process::Command;

use crate::run::{Build, Result, programs, shown};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let programs = programs(Build::Release)?;
    shown(Command::new(programs.join("chiton")).arg("bench").arg("all").args(args))
}
