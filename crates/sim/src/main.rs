//! The command of the simulation.

use std::process::ExitCode;

fn main() -> ExitCode {
    chiton_sim::command::main()
}
