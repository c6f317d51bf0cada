//! `chiton view`: a directory with unmerged journals merged into it.
//!
//! ```text
//!   PATH ─▶ Source: a server's view of its rows, or stores without a server
//!             │ preview                          journals: which, and where
//!             ▼                                       │
//!        Composition ◀─────────── merged one by one ──┘ ──▶ a listing, JSON, or a local directory
//! ```

mod journals;
mod mounted;
mod show;
mod source;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use chiton_decoupled::{Composed, Composition, RealmError};
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, Role, Server, ServerOptions};
use chiton_transport::Address;
use clap::Args;

use self::journals::Choice;
use self::source::Source;
use crate::failure::{Class, Failure, Outcome};

/// How often to begin again because a journal was merged meanwhile.
const TRIES: u32 = 5;

#[derive(Debug, Args)]
#[command(
    after_help = "Each line says type, size, where it comes from (global, or the journal that changed it last) and the path. A later journal prevails over an earlier one as --on-conflict overwrite does; conflicts are listed at the end, ours being the later journal's side. The command reads the journals as they are on disk when it begins; it first asks mounts on this machine to write out theirs. Jobs continue meanwhile. The command changes nothing: chiton merge merges. Only root and the user of the server may.\n\nExit codes: 0 shown, 1 a journal cannot be read, 3 another process has it, 4 nothing there, 5 shown, and there are conflicts.\n\nExamples:\n  chiton view /mnt/chiton/job                             all that is not merged there, in the order of the numbers\n  chiton view /mnt/chiton/job --journal 7 --journal 3     these, in this order (chiton decoupled lists them)\n  chiton view /mnt/chiton/src --journal try1 --journal try2     branches, by their names\n  chiton view /mnt/chiton/job --journal /var/lib/chiton/0123456789abcdef-7     by the directory in a state directory\n  chiton view /mnt/chiton/job --to /tmp/job               into an ordinary directory, for programs that read\n  chiton view --server tcp:server:7117 /job --json\n  chiton view --data /srv/chiton /job                     no server runs"
)]
pub(crate) struct View {
    /// The directory: a path of a mount, or with --server or --data a path in the file system.
    path: PathBuf,
    /// A journal: the number of a decoupling, the name of a branch, or the directory in a state directory. May be repeated:
    /// a later one prevails (default: all that are not merged at, below and around PATH).
    #[arg(long, value_name = "NUMBER|BRANCH|DIR")]
    journal: Vec<String>,
    /// The address of the server, if PATH is not in a mount: tcp:HOST:PORT, unix:PATH.
    #[arg(long, conflicts_with = "data")]
    server: Option<Address>,
    /// The data directory or s3://BUCKET/PREFIX, if PATH is not in a mount; no server has to run.
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
    data: Option<DataAddress>,
    /// Where mounts of this machine keep their journals (default: the directory that each has reported to the server).
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// Show journals that have lost durable events at their end, without these events.
    #[arg(long)]
    accept_truncated: bool,
    /// Write the tree into this directory of this machine, which is empty or not there: names, content, modes, owners,
    /// times, links, extended attributes.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &View) -> Outcome {
    let mut tries = 1;
    loop {
        let source = Source::find(args)?;
        match compose(args, &source) {
            Ok((composed, top)) => return show::show(args, &source, &composed, &top),
            // Another client merges it, or it has just ended.
            Err(_) if tries < TRIES && source.has_moved() => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The tree, and where its top is.
fn compose(args: &View, source: &Source) -> Outcome<(Composed, Vec<u8>)> {
    let role = Role::Preview { info: source.info.clone(), rows: source.rows.clone() };
    let preview = Server::start_as(role, ServerOptions::default(), Arc::new(RealWorld))?;
    let mut composition = Composition::begin(preview, source.blocks.clone()).map_err(|e| failure(&e))?;
    let named = source.path.as_os_str().as_bytes();
    let top = composition.real_path(named).unwrap_or_else(|| named.to_vec());
    let all = composition.decouplings().map_err(|e| failure(&e))?;
    source.note(&all);
    for choice in Choice::all(args, source, &all, &top)? {
        let journal = choice.journal(args, source)?;
        composition.merge_journal(&journal).map_err(|e| failure(&e))?;
    }
    Ok((composition.finish().map_err(|e| failure(&e))?, top))
}

fn failure(error: &RealmError) -> Failure {
    Failure::new(Class::of(error.exit_code()), error.to_string())
}
