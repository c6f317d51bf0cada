//! `chiton journal`: look at a journal, take it out, put it back, change it.

mod args;
mod open;
mod read;
mod write;

pub(crate) use args::JournalArgs;
use args::{EventCommand, HeaderCommand, JournalCommand};

use crate::failure::{Class, Failure, Outcome};
use chiton_admin::journal::JournalToolError;

/// The one journal of a server.
const SERVER: &str = "server";

pub(crate) fn run(args: &JournalArgs) -> Outcome {
    match &args.command {
        JournalCommand::Inspect(args) => read::inspect(args),
        JournalCommand::Export(args) => read::export(args),
        JournalCommand::Import(args) => write::import(args),
        JournalCommand::Reset(args) => write::reset(args),
        JournalCommand::Header { command: HeaderCommand::Get(args) } => read::header(args),
        JournalCommand::Header { command: HeaderCommand::Set(args) } => write::header(args),
        JournalCommand::Event { command: EventCommand::Get(args) } => read::events(args),
        JournalCommand::Event { command: EventCommand::Splice(args) } => write::splice(args),
        JournalCommand::Event { command: EventCommand::Apply(args) } => write::apply(args, false),
        JournalCommand::Event { command: EventCommand::Recover(args) } => write::apply(args, true),
    }
}

impl From<JournalToolError> for Failure {
    fn from(error: JournalToolError) -> Failure {
        let class = match &error {
            JournalToolError::Journal(chiton_journal::JournalError::Absent) => Class::Absent,
            _ => Class::Failed,
        };
        Failure::new(class, error.to_string())
    }
}
