//! A run: every clause, in a scratch directory.

use std::fmt;
use std::sync::Arc;

use chiton_auth::Credentials;
use chiton_model::{Make, Op};
use chiton_runtime::{RealWorld, World};
use chiton_transport::{Address, OpenError};
use chiton_types::{Cred, Ino, Mode, Name, Refusal};
use chiton_wire::{DirEntry, Failure};

use crate::case::{Case, name};
use crate::clauses::{CLAUSES, In};
use crate::client::{Client, Found};
use crate::finding::{Difference, Finding};
use crate::report::{Checked, Report, State, Verdict};
use crate::server::Server;

/// The server under test.
#[derive(Clone)]
pub struct Target {
    pub address: Address,
    /// Of this process; connections over TCP have TLS with them.
    pub credentials: Option<Credentials>,
    /// The directory in which the scratch directory is made, from the root.
    pub path: Vec<Name>,
}

/// The reason for which the suite cannot be run.
#[derive(Debug)]
pub enum SuiteError {
    /// There is no connection to the server.
    Open(OpenError),
    /// The scratch directory cannot be made, or not removed: the step, and its failure.
    Scratch(String),
}

impl fmt::Display for SuiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuiteError::Open(e) => write!(f, "cannot begin a session: {e}"),
            SuiteError::Scratch(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SuiteError {}

impl From<OpenError> for SuiteError {
    fn from(e: OpenError) -> SuiteError {
        SuiteError::Open(e)
    }
}

/// Checks every clause, or those of which `is_chosen` says so, and removes the scratch directory. `progress` gets each check when it is over.
///
/// # Errors
/// If there is no server, or the scratch directory cannot be made or removed. Deviations of the server from the clauses are in
/// the report.
pub fn run(
    target: &Target,
    is_chosen: impl Fn(&str) -> bool,
    mut progress: impl FnMut(&Checked),
) -> Result<Report, SuiteError> {
    let client = Arc::new(Client::new(Server::connect(target)?));
    let parent = resolve(&client, &target.path)?;
    let scratch = name(&format!("conformance-{:016x}", RealWorld.random()));
    let top = make_dir(&client, parent, &scratch)?;
    let mut report = Report::default();
    for (at, clause) in CLAUSES.iter().enumerate().filter(|(_, clause)| is_chosen(clause.number)) {
        let has_plates = client.server.plate_count() > 1;
        let states: &[State] = match clause.checked {
            In::Both if has_plates => &[State::Made, State::Split],
            In::Both | In::Made => &[State::Made],
        };
        for &state in states {
            let dir = make_dir(&client, top, &name(&format!("clause{at}-{state:?}")))?;
            let verdict = match (clause.check)(&Case::new(&client, target, state, dir)) {
                Ok(()) => Verdict::Passed,
                Err(Finding::Failed(difference)) => Verdict::Failed(difference),
                Err(Finding::NotApplicable(why)) => Verdict::NotApplicable(why),
            };
            let checked = Checked { clause, state, verdict };
            progress(&checked);
            report.checked.push(checked);
        }
    }
    remove_tree(&client, parent, &scratch, top)?;
    Ok(report)
}

/// A step outside of all clauses went wrong.
fn broken(step: &str) -> impl FnOnce(Finding) -> SuiteError {
    move |finding| {
        SuiteError::Scratch(match finding {
            Finding::Failed(Difference { step: inner, expected, seen }) => {
                format!("{step}: {inner}: expected {expected}, but the server answered {seen}")
            }
            Finding::NotApplicable(why) => format!("{step}: {why}"),
        })
    }
}

fn refused(step: String) -> impl FnOnce(Failure) -> SuiteError {
    move |failure| {
        let why = match failure {
            Failure::Refused(refusal) => refusal.to_string(),
            other => format!("{other:?}"),
        };
        let next =
            "the suite acts as user 0, which must be allowed to change the directory that --path names";
        SuiteError::Scratch(format!("{step}: {why}; {next}"))
    }
}

fn resolve(client: &Client, path: &[Name]) -> Result<Ino, SuiteError> {
    let mut at = Ino::ROOT;
    for name in path {
        let step = format!("cannot find {name} of --path");
        let found = client.lookup(&Cred::ROOT, at, name).map_err(broken(&step))?;
        at = match found.map_err(refused(step.clone()))? {
            Found::Inode(attr) => attr.ino,
            Found::Absent => return Err(refused(step)(Failure::Refused(Refusal::NotFound))),
        };
    }
    Ok(at)
}

fn make_dir(client: &Client, parent: Ino, name: &Name) -> Result<Ino, SuiteError> {
    let step = format!("cannot make the scratch directory {name}");
    let op = Op::Make { parent, name: name.clone(), make: Make::Dir, mode: Mode(0o777) };
    let done = client.operate(&Cred::ROOT, &op, false).map_err(broken(&step))?;
    let attr = done.map_err(refused(step.clone()))?.attr;
    attr.map(|attr| attr.ino).ok_or(SuiteError::Scratch(format!("{step}: no attributes in the answer")))
}

/// Removes a directory with everything in it, name by name: no clause has to hold for that.
fn remove_tree(client: &Client, parent: Ino, name: &Name, dir: Ino) -> Result<(), SuiteError> {
    let step = format!("cannot remove the scratch directory {name}");
    loop {
        let page = client.page(&Cred::ROOT, (dir, 0), 1024, false).map_err(broken(&step))?;
        let (entries, _) = page.map_err(refused(step.clone()))?;
        for DirEntry { name, ino, kind, .. } in &entries {
            if *kind == chiton_types::Kind::Dir {
                remove_tree(client, dir, name, *ino)?;
                continue;
            }
            let op = Op::Unlink { parent: dir, name: name.clone() };
            client.operate(&Cred::ROOT, &op, false).map_err(broken(&step))?.map_err(refused(step.clone()))?;
        }
        if entries.is_empty() {
            break;
        }
    }
    let op = Op::Rmdir { parent, name: name.clone() };
    client.operate(&Cred::ROOT, &op, false).map_err(broken(&step))?.map_err(refused(step))?;
    Ok(())
}
