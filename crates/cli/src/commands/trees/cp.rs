//! `chiton cp`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use chiton_client::{Client, Lookup};
use chiton_trees::{Copied, Copying, Place, Refused, Subject, Task, Totals, Watch, usage};
use chiton_types::{Ino, Kind, Name, counted};
use clap::Args;
use serde_json::json;

use super::place::{self, Said};
use super::report::Report;
use super::work::another_answer;
use super::{At, Here, carry_out};
use crate::failure::{Class, Failure, Outcome};
use crate::size;

#[derive(Debug, Args)]
#[command(
    after_help = "Copies within one file system. If DST is a directory, the copies get the names of their originals in it; else DST is the new name of the one SRC. Nothing that exists is changed: a name that is taken is refused.\n\nModes, times, extended attributes, symbolic links and hard links within the tree are kept, and owners if root copies. Policies are not copied. Files in blocks share them with their originals, so nothing is copied, whatever their size; between directories of different plates (docs/administration.md) the bytes are copied. With -r the server does the work as a job (chiton jobs), which Ctrl-C cancels; --here does it in this process. It is not atomic: others see a tree half copied, and a file that is changed meanwhile is copied as it was before or after. If the server of the job dies, another one completes the copy.\n\nExamples:\n  chiton cp -r /mnt/chiton/data /mnt/chiton/data.before\n  chiton cp -r /mnt/chiton/a /mnt/chiton/b /mnt/chiton/copies --json\n  chiton cp -r --server tcp:server:7117 /src /copy"
)]
pub(crate) struct Cp {
    /// Copy directories with everything in them.
    #[arg(long, short, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Paths to copy: of a mount, or with --server paths in the file system, from its root on.
    #[arg(required = true, value_name = "SRC")]
    pub(crate) from: Vec<PathBuf>,
    /// The copy, or a directory that gets the copies.
    #[arg(required = true, value_name = "DST")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) here: Here,
}

pub(crate) fn cp(args: &Cp) -> Outcome {
    let paths: Vec<PathBuf> = args.from.iter().chain([&args.to]).cloned().collect();
    let (client, mut said) = place::open(&args.at, &paths, "cp")?;
    let to = said.pop().expect("a place for each path");
    let to = Target::of(&client, &to)?;
    if let (Target::New(..), [_, _, ..]) = (&to, &said[..]) {
        return Err(Failure::failed(
            "several paths are copied into a directory, and the last path names none: make it first",
        ));
    }
    let mut report = Report::begin("copied", args.at.json)?;
    let (mut copies, mut shown) = (Vec::new(), Vec::new());
    for from in &said {
        match copyable(args, from, &client).and_then(|place| Ok((to.name(from)?, place))) {
            Ok(((into, name), place)) => {
                shown.push(to.shown(&args.to, &name));
                copies.push(Copying { from: Subject::from(&place), into, name, since: None });
            }
            Err(failure) => report.failed(failure),
        }
    }
    let is_job = args.recursive && !args.here.here;
    let task = Task::Copy(copies.clone());
    let left = || left(&client, &copies, &shown);
    let Totals::Copied(done) = carry_out(&client, &task, is_job, &mut report, &left)? else {
        return Err(another_answer());
    };
    let Copied { files, dirs, bytes, shared_bytes, .. } = done;
    let totals = json!({ "files": files, "directories": dirs, "bytes": bytes, "shared_bytes": shared_bytes });
    let bytes = size::human(bytes);
    report.end(
        totals,
        &format!("copied: {} ({bytes}) and {}", counted(files, "file"), counted(dirs, "directory")),
        "to copy the rest, remove the copy first",
    )
}

/// Where the copies go.
enum Target {
    Into(Ino),
    New(Ino, Name),
}

impl Target {
    fn of(client: &Client, said: &Said) -> Outcome<Target> {
        let Some((parent, name)) = said.new_name(client)? else { return Ok(Target::Into(client.root())) };
        let found = client.start_lookup(&client.caller(), parent, name.as_bytes()).wait();
        match found.map_err(|refusal| said.failure(refusal))? {
            Lookup::Absent { .. } => Ok(Target::New(parent, name)),
            Lookup::Found { attr, .. } if attr.kind == Kind::Dir => Ok(Target::Into(attr.ino)),
            Lookup::Found { .. } => Err(Failure::new(
                Class::Busy,
                format!("{} exists and is no directory: name a new path", said.path.display()),
            )),
        }
    }

    fn name(&self, from: &Said) -> Outcome<(Ino, Name)> {
        match self {
            Target::New(parent, name) => Ok((*parent, name.clone())),
            Target::Into(dir) => {
                let name = from.within.file_name().ok_or_else(|| {
                    Failure::failed(format!("{} has no name: name the copy", from.path.display()))
                })?;
                Ok((*dir, Name::new(name.as_bytes()).map_err(|refusal| from.failure(refusal))?))
            }
        }
    }
}

impl Target {
    /// The path of a copy, for messages.
    fn shown(&self, to: &Path, name: &Name) -> PathBuf {
        match self {
            Target::New(..) => to.to_owned(),
            Target::Into(_) => to.join(std::ffi::OsStr::from_bytes(name.as_bytes())),
        }
    }
}

/// The state of the copies after their job has ended early, and the next step of the user.
fn left(client: &Client, copies: &[Copying], shown: &[PathBuf]) -> String {
    let (mut words, mut is_any) = (Vec::new(), false);
    for (Copying { into, name, .. }, path) in copies.iter().zip(shown) {
        let path = path.display();
        words.push(match client.start_lookup(&client.caller(), *into, name.as_bytes()).wait() {
            Ok(Lookup::Absent { .. }) => format!("{path} is not there"),
            Ok(Lookup::Found { attr, .. }) => {
                is_any = true;
                let place = Place { path: Vec::new(), name: None, attr };
                let mut missed = Missed(0);
                match &usage(client, &[place], 0, &mut missed)[..] {
                    [all] if missed.0 == 0 => {
                        let files = counted(all.files, "file");
                        format!("{path} has {files} and {} so far", counted(all.dirs, "directory"))
                    }
                    _ => format!("{path} is there in part"),
                }
            }
            Err(refusal) => format!("{path} cannot be looked at ({refusal})"),
        });
    }
    let next = match is_any {
        true => "remove the copy (chiton rm -r) and run the command again; the original is as it was",
        false => "run the command again",
    };
    format!("{}: {next}", words.join(", "))
}

struct Missed(u64);

impl Watch for Missed {
    fn refused(&mut self, _refused: Refused) {
        self.0 += 1;
    }
}

fn copyable(args: &Cp, from: &Said, client: &Client) -> Outcome<Place> {
    let place = from.place(client)?;
    if place.attr.kind == Kind::Dir && !args.recursive {
        return Err(Failure::failed(format!(
            "cannot copy {}: it is a directory; add -r",
            from.path.display()
        )));
    }
    Ok(place)
}
