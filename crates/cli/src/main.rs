//! `chiton`: the one command. It translates words into calls and answers into words; it decides nothing.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes and real mounts: nothing here runs in a simulation"
)]

mod args;
mod at_rest;
mod background;
mod bench;
mod commands;
mod duration;
mod failure;
mod identity;
mod log_file;
mod monitor;
mod mount_helper;
mod progress;
mod reach;
mod size;
mod target;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Chiton, Command};

/// A server allocates and frees millions of small things, many on another thread than the one that made them, which
/// costs the C library's allocator up to 40 % of all processor time (docs/decisions/2026-11-22-allocator.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ends `chiton … | head` quietly, like other programs, when the reader has gone. (SIGPIPE stays ignored: sockets
/// would raise it as well.)
fn end_quietly_with_the_reader() {
    const ENDED_BY_SIGPIPE: i32 = 128 + 13;
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>();
        if let Some(cause) = said.and_then(|said| said.strip_prefix("failed printing to stdout: ")) {
            if cause.contains("(os error 32)") {
                std::process::exit(ENDED_BY_SIGPIPE);
            }
            chiton_runtime::log_line!("chiton: cannot write the output: {cause}");
            std::process::exit(1);
        }
        before(info);
    }));
}

fn main() -> ExitCode {
    chiton_bench::tasks::child_main_if_requested();
    end_quietly_with_the_reader();
    if let Some(code) = mount_helper::instead() {
        return code;
    }
    let chiton = Chiton::parse();
    identity::load(chiton.identity);
    if let Err(why) = chiton_runtime::log::install() {
        chiton_runtime::log_line!("chiton: {why}");
        return ExitCode::from(2);
    }
    if let Err(failure) = chiton.command.check_mounts() {
        chiton_runtime::log_line!("chiton: {failure}");
        return failure.exit_code();
    }
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
        Command::Decouple(args) => commands::realm::decouple(&args),
        Command::Sync(args) => commands::realm::sync(&args),
        Command::Diff(args) => commands::realm::diff(&args),
        Command::Conflicts(args) => commands::realm::conflicts(&args),
        Command::Resolve(args) => commands::realm::resolve(&args),
        Command::Merge(args) => commands::realm::merge(&args),
        Command::Discard(args) => commands::realm::discard(&args),
        Command::Recouple(args) => commands::realm::recouple(&args),
        Command::Decoupled(args) => commands::realm::decoupled(&args),
        Command::Recover(args) => commands::realm::recover(&args),
        Command::Run(args) => return commands::realm::run(&args),
        Command::Branch(args) => commands::branch::run(&args),
        Command::View(args) => commands::view::run(&args),
        Command::Auth(args) => commands::auth::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Journal(args) => commands::journal::run(&args),
        Command::Dump(args) => commands::dump::run_dump(&args),
        Command::Load(args) => commands::dump::run_load(&args),
        Command::Ls(args) => commands::trees::ls(&args),
        Command::Find(args) => commands::trees::find(&args),
        Command::Du(args) => commands::trees::du(&args),
        Command::Huge(args) => commands::trees::huge(&args),
        Command::Rm(args) => commands::trees::rm(&args),
        Command::Cp(args) => commands::trees::cp(&args),
        Command::Chmod(args) => commands::trees::chmod(&args),
        Command::Chown(args) => commands::trees::chown(&args),
        Command::Jobs(args) => commands::jobs::run(&args),
        Command::Fsck(args) => return commands::fsck::run(&args),
        Command::Conformance(args) => return commands::conformance::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            chiton_runtime::log_line!("chiton: {failure}");
            failure.exit_code()
        }
    }
}
