//! `chiton completions`.

use clap::CommandFactory;

use crate::args::{Chiton, Completions};
use crate::failure::Outcome;

pub(crate) fn run(args: &Completions) -> Outcome {
    clap_complete::generate(args.shell, &mut Chiton::command(), "chiton", &mut std::io::stdout());
    Ok(())
}
