//! `chiton policy`: policies of subtrees.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use chiton_policy::{Explanation, Fault, PRESETS, Policy, PolicyFile, Support, preset};
use chiton_types::Time;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::Value;

use crate::args::Target;
use crate::commands::realm;
use crate::failure::{Class, Failure, Outcome};
use crate::{reach, target};

/// The attribute under which a directory's own policy is seen and set.
const OWN: &str = "chiton.policy";
/// In place of a file: the policy comes from a pipe.
const STANDARD_INPUT: &str = "-";

const EXAMPLES: &str = "\
Examples:
  chiton policy set /mnt/chiton/scratch ramdisk     nothing below is durable, nothing waits for the disk
  chiton policy set /mnt/chiton/job my.yml          a policy of your own
  echo 'placement: near' | chiton policy set /mnt/chiton/build -
  chiton policy explain /mnt/chiton/job/out         the policy that holds there: its steps, waits and guarantees
  chiton policy list /mnt/chiton --history          all policies, and their changes with times
  chiton policy rm /mnt/chiton/scratch              the policy of the directory around holds again
  chiton policy presets                             the policies that ship
  chiton policy presets batchfs > my.yml            a policy to change
  chiton policy explain my.yml --json               the meaning of the file

A policy is seen and set through any mount, also as an attribute: getfattr -n chiton.policy DIR,
setfattr -n chiton.policy -v ramdisk DIR.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) what: PolicyCommand,
}

/// Commands for policies.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Give a directory of a mount, and all below it, a policy.
    #[command(
        after_help = "Examples:\n  chiton policy set /mnt/chiton/scratch ramdisk\n  chiton policy set /mnt/chiton/job my.yml --json\n  chiton policy set /mnt/chiton/job --interfere block --inodes 100\n\nKeys that the policy lacks are inherited from the directory around."
    )]
    Set(Set),
    /// Print the policy that is set on a directory, as it was set.
    #[command(
        after_help = "Examples:\n  chiton policy get /mnt/chiton/job\n  chiton policy get /mnt/chiton/job > job.yml"
    )]
    Get(At),
    /// List the policies of a file system.
    #[command(
        after_help = "Examples:\n  chiton policy list /mnt/chiton\n  chiton policy list /mnt/chiton --history --json"
    )]
    List(List),
    /// Remove the policy of a directory: that of the directory around holds again.
    #[command(after_help = "Examples:\n  chiton policy rm /mnt/chiton/job")]
    Rm(At),
    /// Draw a policy: its mechanisms, their order, and which failures the data survive.
    #[command(after_help = "Examples:\n  chiton policy explain posix\n  chiton policy explain my.yml --json")]
    Explain(Explain),
    /// List the policies that ship, or print one.
    #[command(after_help = "Examples:\n  chiton policy presets\n  chiton policy presets hdfs > hdfs.yml")]
    Presets(Presets),
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// A directory of a mount.
    pub(crate) path: PathBuf,
    /// A policy file, a preset's name, or - for standard input.
    #[arg(required_unless_present_any = ["interfere", "inodes"])]
    pub(crate) policy: Option<String>,
    /// The rights of other clients while one has decoupled the subtree: allow, block or block_writes.
    #[arg(long)]
    pub(crate) interfere: Option<String>,
    /// How many inodes the job will make.
    #[arg(long)]
    pub(crate) inodes: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct At {
    /// A directory of a mount.
    pub(crate) path: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Show all changes of policies, with time and user.
    #[arg(long)]
    pub(crate) history: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A path of a mount, a policy file, a preset's name, or - for a policy from standard input.
    pub(crate) what: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

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
        PolicyCommand::Set(args) => set(args),
        PolicyCommand::Get(args) => get(args),
        PolicyCommand::List(args) => list(args),
        PolicyCommand::Rm(args) => remove(args),
        PolicyCommand::Explain(args) => explain(args),
        PolicyCommand::Presets(args) => list_presets(args),
    }
}

fn set(args: &Set) -> Outcome {
    let mut text = match &args.policy {
        Some(policy) => read_policy(policy)?,
        None => String::new(),
    };
    let name = args.policy.as_deref().map_or("the options", shown_name);
    let given = [
        ("interfere_policy", args.interfere.clone()),
        ("allocated_inodes", args.inodes.map(|n| n.to_string())),
    ];
    for (key, value) in given {
        if let Some(value) = value {
            text = with_key(&text, key, &value);
        }
    }
    reach::answering(&args.path)?;
    // Syntax errors are reported here, with their position; the server checks again in the context of other
    // policies.
    let given = Given::new(name, text)?;
    rustix::fs::setxattr(&args.path, OWN, given.text.as_bytes(), XattrFlags::empty()).map_err(|errno| {
        let fault = if errno == Errno::INVAL { given.fault() } else { None };
        fault.unwrap_or_else(|| refused(&args.path, "set a policy on", errno))
    })?;
    if args.json {
        println!("{}", effective(&args.path)?);
    } else {
        let value = effective(&args.path)?;
        let of = |key: &str| value[key].as_str().unwrap_or("?").to_owned();
        println!(
            "{at}: {} (consistency {}, durability {}); chiton policy explain {at} draws it",
            of("composition"),
            of("consistency"),
            of("durability"),
            at = args.path.display(),
        );
    }
    Ok(())
}

/// A policy with one key more, or another value of it.
fn with_key(text: &str, key: &str, value: &str) -> String {
    let mut lines: Vec<String> =
        text.lines().filter(|line| !line.starts_with(&format!("{key}:"))).map(str::to_owned).collect();
    lines.push(format!("{key}: {value}"));
    lines.join("\n") + "\n"
}

fn get(args: &At) -> Outcome {
    reach::answering(&args.path)?;
    let text = match attribute(&args.path, OWN) {
        Err(Errno::NODATA) => {
            let at = args.path.display();
            return Err(Failure::absent(format!(
                "{at} has no own policy; chiton policy explain {at} shows the inherited one"
            )));
        }
        text => text.map_err(|errno| refused(&args.path, "read the policy of", errno))?,
    };
    if args.json {
        println!("{}", serde_json::json!({ "path": args.path, "text": text }));
    } else {
        print!("{text}");
    }
    Ok(())
}

fn remove(args: &At) -> Outcome {
    reach::answering(&args.path)?;
    rustix::fs::removexattr(&args.path, OWN).map_err(|errno| match errno {
        Errno::NODATA => Failure::absent(format!(
            "{0} has no own policy; chiton policy explain {0} shows the inherited one",
            args.path.display()
        )),
        errno => refused(&args.path, "remove the policy of", errno),
    })?;
    if args.json {
        println!("{}", effective(&args.path)?);
    } else {
        println!("{} now inherits its policy", args.path.display());
    }
    Ok(())
}

fn list(args: &List) -> Outcome {
    let client = target::client(&args.target.target)?;
    let all = target::admin(&client, "policies")?;
    if args.target.json {
        println!("{all}");
        return Ok(());
    }
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let (rows, columns): (_, &[&str]) = match args.history {
        true => (&all["history"], &["version", "time_ns", "uid", "path", "text"]),
        false => (&all["policies"], &["path", "composition", "data", "interfere_policy", "version"]),
    };
    table.set_header(columns.iter().map(|column| column.trim_end_matches("_ns").replace('_', " ")));
    for row in rows.as_array().into_iter().flatten() {
        table.add_row(columns.iter().map(|column| match *column {
            "text" => row["text"].as_str().map_or("removed".to_owned(), first_line),
            "time_ns" => {
                row["time_ns"].as_i64().map_or_else(String::new, |ns| chiton_model::text::utc(Time(ns)))
            }
            column => shown(&row[column]),
        }));
    }
    println!("{}", table.trim_fmt());
    Ok(())
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(|line| line.trim_start_matches(['#', ' '])).find(|line| !line.is_empty());
    line.map_or("(empty)".to_owned(), |line| line.chars().take(60).collect())
}

/// The policy that holds at a path, explained by its server.
fn effective(path: &Path) -> Outcome<Value> {
    let text = attribute(path, "chiton.policy.effective")
        .map_err(|errno| refused(path, "ask for the policy of", errno))?;
    serde_json::from_str(&text).map_err(|e| Failure::failed(format!("the server's answer is not JSON: {e}")))
}

fn attribute(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = vec![0u8; 64 << 10];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    String::from_utf8(value).map_err(|_| Errno::ILSEQ)
}

/// The meaning of a refusal here, with advice.
fn refused(path: &Path, what: &str, errno: Errno) -> Failure {
    let at = path.display();
    let why = match errno {
        Errno::XDEV => {
            let links = attribute(path, "chiton.policy.crossing").unwrap_or_default();
            format!("these files have names both inside and outside of it; remove one side first:\n{links}")
        }
        Errno::PERM | Errno::ACCESS => {
            let owner =
                std::fs::metadata(path).map_or_else(|_| "?".to_owned(), |meta| meta.uid().to_string());
            format!(
                "root and the owner of the file system may set any policy, the owner of the directory (user {owner}) one that \
                 is not weaker than the policy around it: ask one of them, or make a directory of your own and set it there"
            )
        }
        Errno::NOTDIR => {
            "it is not a directory; set a policy on a directory, for everything below it".to_owned()
        }
        Errno::OPNOTSUPP if attribute(path, "chiton.policy.effective").is_err() => {
            return Failure::absent(format!("{at} is not in a mount of Chiton; mount one with chiton mount"));
        }
        Errno::OPNOTSUPP => {
            "the server does not support it: chiton policy explain FILE names the unsupported part; a file system with several \
             plates, which chiton status shows, takes durability none with decoupled clients only"
                .to_owned()
        }
        Errno::INVAL => "it contradicts the policies around or below it: chiton policy explain and \
                         chiton policy list show both"
            .to_owned(),
        Errno::BUSY => {
            let held = realm::held(path);
            return Failure::new(held.class, format!("cannot {what} {at}: {held}"));
        }
        Errno::NOENT => return Failure::absent(format!("{at} does not exist; name a directory that does")),
        errno => errno.to_string(),
    };
    Failure::failed(format!("cannot {what} {at}: {why}"))
}

fn explain(args: &Explain) -> Outcome {
    let path = Path::new(&args.what);
    reach::answering(path)?;
    if preset(&args.what).is_none() && (path.is_dir() || attribute(path, "chiton.policy.effective").is_ok()) {
        return explain_path(path, args.json);
    }
    let text = read_policy(&args.what)?;
    let explanation = PolicyFile::parse(&text)
        .and_then(|file| {
            let policy = Policy::resolve(&file, &Policy::default())?;
            Ok(Explanation::of_file(&file, &policy, &Support::LOCAL))
        })
        .map_err(|fault| Failure::failed(format!("{}: {fault}", shown_name(&args.what))))?;
    if args.json {
        println!("{}", serde_json::to_string(&explanation).map_err(Failure::failed)?);
    } else {
        println!("{}\n\n{explanation}", shown_name(&args.what));
    }
    Ok(())
}

fn explain_path(path: &Path, json: bool) -> Outcome {
    let value = effective(path)?;
    if json {
        println!("{value}");
        return Ok(());
    }
    let drawn = value["drawn"].as_str().unwrap_or_default();
    let root = value["root"].as_str().unwrap_or("?");
    let whose = match value["version"].as_u64() {
        _ if value["decoupled"] == true => {
            "decoupled, with this policy until it is merged or discarded (details: chiton decoupled)"
                .to_owned()
        }
        Some(0) | None => "no policy: the default holds".to_owned(),
        Some(version) => format!("the policy of {root} in the file system, version {version}"),
    };
    println!("{}: {whose}\n\n{drawn}", path.display());
    Ok(())
}

/// The text of a policy: of standard input, of a file if there is one of this name, else of a preset.
fn read_policy(what: &str) -> Outcome<String> {
    if what == STANDARD_INPUT {
        // One byte more shows that there is more.
        let mut bytes = Vec::new();
        let read =
            std::io::stdin().lock().take(chiton_policy::FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|e| Failure::failed(format!("cannot read the policy from standard input: {e}")))?;
        return text_of(shown_name(what), bytes);
    }
    let path = Path::new(what);
    reach::answering(path)?;
    if !path.is_file() {
        let names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        let found = preset(what).map(|p| p.text.to_owned());
        return found.ok_or_else(|| {
            Failure::absent(format!(
                "{what} is neither a file nor a preset; the presets are {}",
                names.join(", ")
            ))
        });
    }
    let too_long = std::fs::metadata(path).is_ok_and(|m| m.len() > chiton_policy::FILE_BYTES_MAX as u64);
    if too_long {
        return Err(is_too_long(what));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::failed(format!("cannot read {what}: {e}")))?;
    text_of(what, bytes)
}

fn is_too_long(what: &str) -> Failure {
    let most = chiton_policy::FILE_BYTES_MAX;
    Failure::failed(format!("{what} is too long: a policy has at most {most} bytes"))
}

/// The name of a policy in messages.
fn shown_name(what: &str) -> &str {
    if what == STANDARD_INPUT { "standard input" } else { what }
}

fn text_of(what: &str, bytes: Vec<u8>) -> Outcome<String> {
    if bytes.len() > chiton_policy::FILE_BYTES_MAX {
        return Err(is_too_long(what));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.split(|byte| *byte == b'\n').next_back().unwrap_or_default();
        let column = String::from_utf8_lossy(line).chars().count() + 1;
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::failed(format!("{what}: line {line}, column {column}: this is not valid UTF-8"))
    })
}

/// A policy that the user gave to a command, checked as far as this process can.
pub(crate) struct Given {
    pub(crate) text: String,
    name: String,
    /// Why it makes no sense alone. With the policy of the directory around it may.
    fault: Option<Fault>,
}

impl Given {
    /// Reads it. The name is that of a file or a preset, or `-`: standard input.
    ///
    /// # Errors
    /// It is no policy, or none that is carried out: with line and column.
    pub(crate) fn read(name: &str) -> Outcome<Given> {
        Given::new(shown_name(name), read_policy(name)?)
    }

    fn new(name: &str, text: String) -> Outcome<Given> {
        let failed = |fault: Fault| Failure::failed(format!("{name}: {fault}"));
        let file = PolicyFile::parse(&text).map_err(failed)?;
        let own = Policy::resolve(&file, &Policy::default());
        if let Ok(policy) = &own {
            Support::LOCAL.check(&file, policy).map_err(failed)?;
        }
        Ok(Given { text, name: name.to_owned(), fault: own.err() })
    }

    /// Why it makes no sense alone, which may be why the server refused it.
    pub(crate) fn fault(&self) -> Option<Failure> {
        self.fault.as_ref().map(|fault| Failure::failed(format!("{}: {fault}", self.name)))
    }

    /// A more precise reason for a failure with this policy.
    pub(crate) fn explain(given: Option<&Given>, failure: Failure) -> Failure {
        match given.and_then(Given::fault) {
            Some(fault) if failure.class == Class::Failed => fault,
            _ => failure,
        }
    }
}

fn list_presets(args: &Presets) -> Outcome {
    if let Some(name) = &args.name {
        let found = preset(name).ok_or_else(|| {
            Failure::absent(format!("no preset is called {name}: chiton policy presets lists all"))
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
        let policy = PolicyFile::parse(preset.text).and_then(|file| {
            let policy = Policy::resolve(&file, &Policy::default())?;
            Support::LOCAL.check(&file, &policy)
        });
        let not_yet = if policy.is_err() { " (not supported by this version)" } else { "" };
        table.add_row([preset.name.to_owned(), format!("{}{not_yet}", preset.summary())]);
    }
    println!("{}", table.trim_fmt());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::with_key;

    #[test]
    fn a_key_given_as_an_option_replaces_that_of_the_file() {
        let text = with_key("data: lazy\ninterfere_policy: allow\n", "interfere_policy", "block");
        assert_eq!(text, "data: lazy\ninterfere_policy: block\n");
    }
}
