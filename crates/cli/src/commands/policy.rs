//! `chiton policy`: what subtrees ask for.

use std::path::Path;

use chiton_policy::{Explanation, PRESETS, Policy, PolicyFile, preset};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};

use crate::failure::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  chiton policy presets                             what ships
  chiton policy presets batchfs > my.yml            a policy to change
  chiton policy explain batchfs                     what it means: who does what, who waits, what survives
  chiton policy explain my.yml --json";

/// Options of `chiton policy`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) what: PolicyCommand,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Draw a policy: its mechanisms, what waits for what, what survives which failure.
    #[command(after_help = "Examples:\n  chiton policy explain posix\n  chiton policy explain my.yml --json")]
    Explain(Explain),
    /// List the policies that ship, or print one.
    #[command(after_help = "Examples:\n  chiton policy presets\n  chiton policy presets hdfs > hdfs.yml")]
    Presets(Presets),
}

/// Options of `chiton policy explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A preset's name or a policy file.
    pub(crate) what: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `chiton policy presets`.
#[derive(Debug, Args)]
pub(crate) struct Presets {
    /// Print this one, as a file.
    pub(crate) name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &PolicyArgs) -> Outcome {
    match &args.what {
        PolicyCommand::Explain(args) => explain(args),
        PolicyCommand::Presets(args) => list_presets(args),
    }
}

fn explain(args: &Explain) -> Outcome {
    let text = read_policy(&args.what)?;
    let policy = PolicyFile::parse(&text)
        .and_then(|file| Policy::resolve(&file, &Policy::default()))
        .map_err(|fault| Failure::failed(format!("{}: {fault}", args.what)))?;
    let explanation = Explanation::of(&policy);
    if args.json {
        println!("{}", serde_json::to_string(&explanation).map_err(Failure::failed)?);
    } else {
        println!("{}\n\n{explanation}", args.what);
    }
    Ok(())
}

/// The text of a policy: of a file if there is one of this name, else of a preset.
fn read_policy(what: &str) -> Outcome<String> {
    let path = Path::new(what);
    if !path.is_file() {
        let names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        let found = preset(what).map(|p| p.text.to_owned());
        return found.ok_or_else(|| {
            Failure::absent(format!("{what} is neither a file nor a preset ({})", names.join(", ")))
        });
    }
    let too_long = std::fs::metadata(path).is_ok_and(|m| m.len() > chiton_policy::FILE_BYTES_MAX as u64);
    if too_long {
        let most = chiton_policy::FILE_BYTES_MAX;
        return Err(Failure::failed(format!("{what}: a policy has at most {most} bytes")));
    }
    std::fs::read_to_string(path).map_err(|e| Failure::failed(format!("cannot read {what}: {e}")))
}

fn list_presets(args: &Presets) -> Outcome {
    if let Some(name) = &args.name {
        let found = preset(name).ok_or_else(|| {
            Failure::absent(format!("there is no preset {name}: chiton policy presets lists them"))
        })?;
        if args.json {
            println!("{}", serde_json::json!({ "name": found.name, "text": found.text }));
        } else {
            print!("{}", found.text);
        }
        return Ok(());
    }
    if args.json {
        let all: Vec<_> = PRESETS
            .iter()
            .map(|p| serde_json::json!({ "name": p.name, "summary": p.summary(), "text": p.text }))
            .collect();
        println!("{}", serde_json::Value::from(all));
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for preset in PRESETS {
        table.add_row([preset.name, preset.summary()]);
    }
    println!("{}", table.trim_fmt());
    Ok(())
}
