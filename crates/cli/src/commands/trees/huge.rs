//! `chiton huge`: directories whose names are on several plates.

use std::path::PathBuf;

use chiton_client::Client;
use chiton_model::{HASHES, PartRange, range_of};
use chiton_trees::Place;
use chiton_types::{Kind, Refusal, counted};
use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::Paths;
use super::place::{self, Said};
use crate::failure::{Failure, Outcome};
use crate::progress::Work;

/// The size that an entry adds to a directory.
const ENTRY_BYTES: u64 = 32;
/// From so many names on, several clients that create in a directory are held up by its one plate.
const MANY_NAMES: u64 = 8_000;

const EXAMPLES: &str = "\
Examples:
  chiton huge status /mnt/chiton/results     which plates have its names, and whether a split is worth while
  chiton huge split /mnt/chiton/results      spread its names over all plates
  chiton huge fold /mnt/chiton/results       bring them back to one

The policies `huge: always`, `threshold` and `auto` do so without a command; see docs/policies.md.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HugeArgs {
    #[command(subcommand)]
    pub(crate) what: Huge,
}

/// Commands for huge directories.
#[derive(Debug, Subcommand)]
pub(crate) enum Huge {
    /// Show which plates have the names of directories.
    #[command(
        after_help = "Each name is in the part whose range has its hash. The share is that of the range: names are spread evenly.\n\nExamples:\n  chiton huge status /mnt/chiton/results\n  chiton huge status --server tcp:server:7117 /results --json"
    )]
    Status(Paths),
    /// Spread the names of directories over all plates.
    #[command(
        after_help = "For directories in which many clients create files: one plate bounds how fast that is. Clients continue to work in them meanwhile. No client caches the names of such a directory any more, so one client alone is slower in it than before. The way back is chiton huge fold.\n\nThe server does the same automatically under the policies `huge: threshold` and `huge: auto`; see docs/policies.md. It asks for the owner of the directory, or root.\n\nExamples:\n  chiton huge split /mnt/chiton/results\n  chiton huge split --server tcp:server:7117 /results --json"
    )]
    Split(Paths),
    /// Bring the names of directories back to one plate.
    #[command(
        after_help = "For directories in which few clients create files any more: clients cache the names of a directory on one plate, and change them before a server knows of it. Each step brings the names of one plate, while clients wait; a plate with more than 16,384 names of the directory refuses it. The steps before it stay done.\n\nUnder `huge: threshold` and `huge: auto` the server splits the directory again when it has so many names and grows. The command asks for the owner of the directory, or root.\n\nExamples:\n  chiton huge fold /mnt/chiton/results\n  chiton huge fold --server tcp:server:7117 /results --json"
    )]
    Fold(Paths),
}

pub(crate) fn huge(args: &HugeArgs) -> Outcome {
    match &args.what {
        Huge::Status(paths) => each(paths, "huge status", |client, _, place| parts_of(client, place)),
        Huge::Split(paths) => each(paths, "huge split", split),
        Huge::Fold(paths) => each(paths, "huge fold", fold),
    }
}

/// Prints the parts of directories, one after the other.
fn each(
    Paths { paths, at }: &Paths,
    command: &str,
    mut act: impl FnMut(&Client, &Said, &Place) -> Outcome<Vec<PartRange>>,
) -> Outcome {
    let (client, said) = place::open(at, paths, command)?;
    let mut shown: Vec<Value> = Vec::new();
    for said in &said {
        let place = said.place(&client)?;
        if place.attr.kind != Kind::Dir {
            return Err(Failure::failed(format!("{} is no directory: name one", said.path.display())));
        }
        let parts = act(&client, said, &place)?;
        let names = client.getattr(place.attr.ino, None).map_or(place.attr.size, |entry| entry.attr.size);
        let plate = |part: &PartRange| client.plate_of(part.ino).0;
        let whole = vec![PartRange { first: 0, ino: place.attr.ino }];
        let parts = if parts.is_empty() { whole } else { parts };
        shown.push(json!({
            "path": said.path,
            "names": names / ENTRY_BYTES,
            "plates": client.plates(),
            "parts": parts.iter().map(|part| json!({
                "inode": part.ino.0,
                "plate": plate(part),
                "first_hash": part.first,
                "share": share(&parts, part),
            })).collect::<Vec<_>>(),
        }));
        if !at.json {
            print(said, &parts, names / ENTRY_BYTES, client.plates(), plate);
        }
    }
    if at.json {
        println!("{:#}", json!({ "directories": shown }));
    }
    Ok(())
}

fn parts_of(client: &Client, place: &Place) -> Outcome<Vec<PartRange>> {
    client
        .parts(place.attr.ino)
        .map_err(|refusal| Failure::failed(format!("cannot look at the parts: {refusal}")))
}

fn split(client: &Client, said: &Said, place: &Place) -> Outcome<Vec<PartRange>> {
    let work = Work::counting("splitting", "parts");
    let wanted = u64::from(client.plates());
    let parts = client.split(&client.caller(), place.attr.ino, |parts| {
        work.count(parts as u64, wanted.max(parts as u64));
    });
    let shown: &PathBuf = &said.path;
    let shown = shown.display();
    parts.map_err(|refusal| {
        Failure::failed(match refusal {
            Refusal::Unsupported => format!(
                "{shown} stays as it is: the file system has one plate; several come with chiton format --plates N, or a cluster"
            ),
            Refusal::CrossDevice => format!(
                "{shown} stays as it is: its policy, or a client that has decoupled it or something in it, keeps its names together; chiton policy explain says which policy holds"
            ),
            Refusal::NotPermitted => {
                format!("{shown} is not yours: its owner or root splits it")
            }
            other => format!("cannot split {shown}: {other}"),
        })
    })
}

fn fold(client: &Client, said: &Said, place: &Place) -> Outcome<Vec<PartRange>> {
    let work = Work::counting("folding", "parts left");
    let had = parts_of(client, place)?.len();
    let folded = client.fold(&client.caller(), place.attr.ino, |left| {
        work.count((had - left.min(had)) as u64, had as u64);
    });
    let shown = said.path.display();
    folded.map_err(|refusal| {
        Failure::failed(match refusal {
            Refusal::ArgTooBig => format!(
                "{shown} keeps parts: a plate has more than 16,384 of its names, and a step brings no more; chiton huge status shows the parts that are left"
            ),
            Refusal::Unsupported => {
                format!("{shown} stays as it is: the file system has one plate, which has all its names")
            }
            Refusal::NotPermitted => format!("{shown} is not yours: its owner or root folds it"),
            other => format!("cannot fold {shown}: {other}"),
        })
    })?;
    parts_of(client, place)
}

/// The part of all names that an inode has.
fn share(parts: &[PartRange], part: &PartRange) -> f64 {
    let (first, last) = range_of(parts, part.ino).unwrap_or_default();
    (last + 1 - first) as f64 / HASHES as f64
}

fn print(said: &Said, parts: &[PartRange], names: u64, plates: u16, plate: impl Fn(&PartRange) -> u16) {
    println!("{}: {}", said.path.display(), counted(names, "name"));
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["plate", "share", "inode"]);
    for part in parts {
        let share = format!("{:.1} %", share(parts, part) * 100.0);
        table.add_row([plate(part).to_string(), share, part.ino.0.to_string()]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", table.trim_fmt());
    if parts.len() == 1 && plates > 1 && names >= MANY_NAMES {
        println!(
            "One of {plates} plates has all names. If several clients create files in it: chiton huge split {}",
            said.path.display()
        );
    }
}
