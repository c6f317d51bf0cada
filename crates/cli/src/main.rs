//! `chiton`: the one command. It translates words into calls and answers into words; it decides nothing.

mod args;
mod background;
mod bench;
mod commands;
mod duration;
mod failure;
mod progress;
mod size;
mod target;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Chiton, Command};

fn main() -> ExitCode {
    chiton_bench::mdtest::child_main_if_requested();
    let chiton = Chiton::parse();
    let result = match chiton.command {
        Command::Format(args) => commands::format::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::umount::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Df(args) => commands::df::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Flush(args) => commands::flush::run(&args),
        Command::Policy(args) => commands::policy::run(&args),
        Command::Journal(args) => commands::journal::run(&args),
        Command::Dump(args) => commands::dump::run_dump(&args),
        Command::Load(args) => commands::dump::run_load(&args),
        Command::Fsck(args) => return commands::fsck::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("chiton: {failure}");
            failure.exit_code()
        }
    }
}
