//! The words of `chiton journal`.

use std::path::PathBuf;

use chiton_admin::journal::{Filter, Output, Pointer, Range};
use chiton_etcd::EtcdAddress;
use chiton_model::Event;
use chiton_server::DataAddress;
use chiton_types::{Ino, SessionId};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  chiton journal inspect /srv/chiton                       is it whole? (also while it is in use)
  chiton journal export /srv/chiton journal.bin            everything that is whole, into a file
  chiton journal event get /srv/chiton list --type unlink --name report.txt
  chiton journal event get /srv/chiton summary --range 1000..2000
  chiton journal header get /srv/chiton                    pointers, and what must hold between them
  chiton journal event recover /srv/chiton --journal server --yes

Commands that only read may run beside a server. Commands that write are refused then; they name the journal
(--journal server), and does nothing but say what it would do until it is given --yes.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JournalArgs {
    #[command(subcommand)]
    pub(crate) command: JournalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Report whether the journal is whole, and where it is damaged.
    Inspect(Inspect),
    /// Write everything that is whole to a file.
    Export(Export),
    /// Put an export back into a journal that was reset.
    Import(Import),
    /// Drop all events that the metadata store lacks.
    Reset(Reset),
    /// Show or move the pointers: the positions that are trimmed, stored, written.
    Header {
        #[command(subcommand)]
        command: HeaderCommand,
    },
    /// Show, erase or apply events.
    Event {
        #[command(subcommand)]
        command: EventCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HeaderCommand {
    /// Show all pointers, and check their invariants.
    Get(HeaderGet),
    /// Move one pointer.
    Set(HeaderSet),
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventCommand {
    /// Show events.
    Get(EventGet),
    /// Erase events: each becomes one that does nothing.
    Splice(EventChange),
    /// Apply events to the metadata store, in order; ends at one that does not fit.
    Apply(EventChange),
    /// Apply events that are newer than every row of the metadata store; skips events that do not fit.
    Recover(EventChange),
}

/// The journal, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// The data directory, or s3://BUCKET/PREFIX.
    pub(crate) data: DataAddress,
    /// The plate whose journal is meant (chiton format --plates).
    #[arg(long, default_value_t = 0)]
    pub(crate) plate: u16,
    /// Of a cluster's data: its etcd, if that has another address than when the cluster was made.
    #[arg(long, value_name = "etcd://HOST:PORT,…")]
    pub(crate) monitor: Option<EtcdAddress>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The confirmation that a writing command needs.
#[derive(Debug, Args)]
pub(crate) struct Consent {
    /// The journal that is to be changed: `server`.
    #[arg(long)]
    pub(crate) journal: Option<String>,
    /// Carry it out. Without this, the command only reports its effect.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The events that are meant: those for which all of these hold.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Positions: 5..9, 5.., ..9 or 7.
    #[arg(long)]
    pub(crate) range: Option<Range>,
    /// Events that touch an inode at or below this path: /a/b.
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Events that touch this inode.
    #[arg(long)]
    pub(crate) inode: Option<u64>,
    /// Events of this type; may be repeated.
    #[arg(long = "type", value_parser = PossibleValuesParser::new(Event::TYPE_NAMES.iter().copied()))]
    pub(crate) types: Vec<String>,
    /// Events about this name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Events of this client: the number of its session.
    #[arg(long)]
    pub(crate) client: Option<u64>,
}

impl FilterArgs {
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            range: self.range,
            inode: self.inode.map(Ino),
            path: self.path.clone(),
            types: self.types.clone(),
            name: self.name.as_ref().map(|name| name.as_bytes().to_vec()),
            client: self.client.map(SessionId),
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal inspect /srv/chiton\n  chiton journal inspect /srv/chiton --json\n\nExit code 1 if it is damaged."
)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal export /srv/chiton journal.bin\n\nExit code 1 if events are lost; the file contains the rest."
)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) source: Source,
    /// The file to create.
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal reset /srv/chiton --journal server --yes\n  chiton journal import /srv/chiton journal.bin --journal server --yes"
)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) source: Source,
    /// The export.
    pub(crate) file: PathBuf,
    /// Replace lost events by events that do nothing.
    #[arg(long, conflicts_with = "stop_at_gap")]
    pub(crate) fill_gaps: bool,
    /// End before the first lost event.
    #[arg(long)]
    pub(crate) stop_at_gap: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal export /srv/chiton journal.bin\n  chiton journal reset /srv/chiton --journal server --yes"
)]
pub(crate) struct Reset {
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal header get /srv/chiton\n  chiton journal header get /srv/chiton --rows --json\n\nExit code 1 if an invariant is violated."
)]
pub(crate) struct HeaderGet {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Look also at every row of the metadata store.
    #[arg(long)]
    pub(crate) rows: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal header set /srv/chiton write_pos 5001 --journal server --yes    drop the events after position 5000\n  chiton journal header set /srv/chiton expire_pos 4001 --journal server --yes   the store holds all up to 4000"
)]
pub(crate) struct HeaderSet {
    #[command(flatten)]
    pub(crate) source: Source,
    /// trimmed_pos, expire_pos or write_pos.
    pub(crate) pointer: Pointer,
    /// The first position that is not trimmed, stored, written.
    pub(crate) position: u64,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// In which form events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// One line for each event.
    List,
    /// An object for each, one a line.
    Json,
    /// Counts only.
    Summary,
    /// An export of the operations that they belong to; needs --to.
    Binary,
}

impl Form {
    pub(crate) fn output(self) -> Output {
        match self {
            Form::List => Output::List,
            Form::Json => Output::Json,
            Form::Summary => Output::Summary,
            Form::Binary => Output::Binary,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal event get /srv/chiton list --range 100..200\n  chiton journal event get /srv/chiton json --path /build --type make --type unlink\n  chiton journal event get /srv/chiton summary --client 17\n  chiton journal event get /srv/chiton binary --inode 281474976710658 --to events.bin"
)]
pub(crate) struct EventGet {
    #[command(flatten)]
    pub(crate) source: Source,
    /// The form of the output.
    #[arg(value_enum, default_value_t = Form::List)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Write to this file instead of standard output.
    #[arg(long)]
    pub(crate) to: Option<PathBuf>,
}

/// Options of `event splice`, `apply` and `recover`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton journal event splice /srv/chiton --range 17..19 --journal server --yes\n  chiton journal event apply /srv/chiton --range ..5000 --journal server --yes\n  chiton journal event recover /srv/chiton --journal server --yes"
)]
pub(crate) struct EventChange {
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) consent: Consent,
}
