//! Long runs: `./x fuzz`.

use std::process::ExitCode;

#[global_allocator]
static MEMORY: chiton_fuzz::Watched = chiton_fuzz::Watched;

fn main() -> ExitCode {
    chiton_fuzz::command()
}
