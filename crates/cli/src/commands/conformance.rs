//! `chiton conformance`: whether a server keeps the rules of directory objects.

use std::process::ExitCode;

use chiton_conformance::{CLAUSES, Checked, Difference, Report, Target, Verdict};
use chiton_transport::Address;
use chiton_types::Name;
use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table, presets};

use crate::failure::{Class, Failure, Outcome};
use crate::identity;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton conformance directory --server unix:/srv/chiton/socket\n  chiton conformance directory --server tcp:server:7117 --path /scratch --json"
)]
pub(crate) struct ConformanceArgs {
    #[command(subcommand)]
    command: ConformanceCommand,
}

#[derive(Debug, Subcommand)]
enum ConformanceCommand {
    /// Check every clause of docs/directory-object.md, by the wire protocol alone.
    ///
    /// It works in a directory that it makes, conformance-NUMBER, and removes that in the end. It acts as user 0 and, in its own directory,
    /// as users 471101 and 471102.
    #[command(
        after_help = "On a file system with several plates, the clauses about names are checked twice: in directories as they are made, and in directories\nthat were split. A clause about parts is not applicable with one plate.\n\nExit codes: 0 every clause that applies is kept, 1 a clause is not, or the scratch directory cannot be made or removed, 2 wrong usage,\n4 no server answers.\n\nExamples:\n  chiton conformance directory --server unix:/srv/chiton/socket\n  chiton conformance directory --server tcp:server:7117 --path /scratch\n  chiton conformance directory --server unix:/srv/chiton/socket --clause D45 --clause D46 --json"
    )]
    Directory(Directory),
}

#[derive(Debug, Args)]
struct Directory {
    /// The address of the server: tcp:HOST:PORT or unix:PATH. Of a cluster any server will do.
    #[arg(long, value_name = "ADDRESS")]
    server: Address,
    /// The directory in which the scratch directory is made.
    #[arg(long, default_value = "/", value_name = "DIR")]
    path: String,
    /// Check this clause only; may be repeated.
    #[arg(long = "clause", value_name = "NUMBER", value_parser = clause_number)]
    clauses: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn clause_number(text: &str) -> Result<String, String> {
    let is_known = CLAUSES.iter().any(|clause| clause.number == text);
    let unknown = || format!("docs/directory-object.md has no clause {text}");
    is_known.then(|| text.to_owned()).ok_or_else(unknown)
}

pub(crate) fn run(args: &ConformanceArgs) -> ExitCode {
    let ConformanceCommand::Directory(args) = &args.command;
    match check(args) {
        Ok(report) => {
            show(&report, args.json);
            if report.conforms() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => {
            chiton_runtime::log_line!("chiton: {failure}");
            failure.exit_code()
        }
    }
}

fn check(args: &Directory) -> Outcome<Report> {
    let names = args.path.split('/').filter(|name| !name.is_empty());
    let path: Result<Vec<Name>, _> = names.map(Name::try_from).collect();
    let path = path.map_err(|why| Failure::usage(format!("--path {}: {why}", args.path)))?;
    let target = Target { address: args.server.clone(), credentials: identity::credentials()?, path };
    let is_chosen = |number: &str| args.clauses.is_empty() || args.clauses.iter().any(|c| c == number);
    chiton_conformance::run(&target, is_chosen, |_| {}).map_err(|error| {
        let class = match error {
            chiton_conformance::SuiteError::Open(_) => Class::Absent,
            chiton_conformance::SuiteError::Scratch(_) => Class::Failed,
        };
        Failure::new(class, format!("the server at {} cannot be checked: {error}", args.server))
    })
}

fn show(report: &Report, json: bool) {
    if json {
        println!("{}", report.json());
        return;
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["clause", "about", "directory", "verdict"]);
    for Checked { clause, state, verdict } in &report.checked {
        let verdict = match verdict {
            Verdict::Passed => "passed".to_owned(),
            Verdict::Failed(_) => "FAILED".to_owned(),
            Verdict::NotApplicable(why) => format!("not applicable: {why}"),
        };
        table.add_row([clause.number.to_owned(), clause.title.to_owned(), state.to_string(), verdict]);
    }
    println!("{}", table.trim_fmt());
    for Checked { clause, state, verdict } in &report.checked {
        if let Verdict::Failed(Difference { step, expected, seen }) = verdict {
            println!("\n{} ({}), directory {state}", clause.number, clause.title);
            println!("  step      {step}\n  expected  {expected}\n  seen      {seen}");
        }
    }
    let (passed, failed, not_applicable) = report.counts();
    println!("\n{passed} passed, {failed} failed, {not_applicable} not applicable");
}
