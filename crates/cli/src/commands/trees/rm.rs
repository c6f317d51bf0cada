//! `chiton rm`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use chiton_trees::{Place, Removal, Removed, Task, Totals, remove_whole, scan};
use chiton_types::{Kind, counted};
use clap::Args;
use serde_json::json;

use super::place::{self, Said};
use super::report::{AGAIN, Report};
use super::work::{another_answer, repeat};
use super::{Here, Paths, carry_out};
use crate::failure::{Class, Failure, Outcome};

#[derive(Debug, Args)]
#[command(
    after_help = "It removes the names that rm -r removes: a symbolic link itself, never the file that it leads to.\n\nFor root, or the owner of every directory in a tree, the tree leaves the file system at once, whatever its size. The server frees it in the background; chiton status counts the rest as orphans. The command removes name by name\n  with --each,\n  for other users than the owner,\n  where policies or decoupled subtrees are inside,\n  for an owner who is not root, if directories of the tree lie on several plates.\n\nName by name it is not atomic: others see a tree half removed. The server does the work as a job (chiton jobs), which Ctrl-C cancels. With --here this process does it: it asks the server directly, a thousand names in a message, while rm on a mount waits for each name, and Ctrl-C ends it after the messages under way.\n\nNames that others remove meanwhile are no failure. The command names each refused file, which stays with the directories that hold it, and then exits with 1.\n\nExamples:\n  chiton rm -r /mnt/chiton/build\n  chiton rm -r --dry-run /mnt/chiton/build\n  chiton rm -rf /mnt/chiton/old /mnt/chiton/older --json\n  chiton rm -r --server tcp:server:7117 /build"
)]
pub(crate) struct Rm {
    #[command(flatten)]
    pub(crate) paths: Paths,
    /// Remove directories with everything in them.
    #[arg(long, short, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Say nothing of paths that are not there.
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Remove name by name, also where a tree could leave at once: all space is free at the end, and the names are counted.
    #[arg(long)]
    pub(crate) each: bool,
    /// Print the names that would be removed, and remove nothing. Permissions are not checked.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) here: Here,
}

pub(crate) fn rm(args: &Rm) -> Outcome {
    let Paths { paths, at } = &args.paths;
    if let Some(path) = paths.iter().find(|path| ends_in_dots(path)) {
        return Err(Failure::failed(format!(
            "cannot remove {}: it names no entry of a directory",
            path.display()
        )));
    }
    let (client, said) = place::open(at, paths, "rm")?;
    let mut report = Report::begin(if args.dry_run { "would remove" } else { "removed" }, at.json)?;
    let mut places = Vec::new();
    for said in &said {
        match removable(args, said, &client) {
            Ok(place) => places.push(place),
            Err(failure) if args.force && failure.class == Class::Absent => {}
            Err(failure) => report.failed(failure),
        }
    }
    if args.dry_run {
        let (mut files, mut dirs) = (0u64, 0u64);
        let mut print = |seen: &chiton_trees::Seen<'_>| {
            *(if seen.attr.kind == Kind::Dir { &mut dirs } else { &mut files }) += 1;
            if !at.json {
                println!("{}", String::from_utf8_lossy(seen.path));
            }
            true
        };
        scan(&client, &places, &mut print, &mut report);
        let totals = json!({ "dry_run": true, "files": files, "directories": dirs });
        return report.end(
            totals,
            &format!("would be removed: {} and {}", counted(files, "file"), counted(dirs, "directory")),
            AGAIN,
        );
    }
    let (trees, rest) = match args.each {
        true => (0, places),
        false => remove_whole(&client, &places, &report),
    };
    let task = Task::Remove(rest.iter().filter_map(Removal::of).collect());
    // The server need not be asked about a name or two, nor where nothing is left.
    let is_job = args.recursive && !args.here.here && rest.iter().any(|place| place.attr.kind == Kind::Dir);
    let Totals::Removed(done) = carry_out(&client, &task, is_job, &mut report, &repeat)? else {
        return Err(another_answer());
    };
    let done = Removed { trees, ..done };
    let totals = json!({ "files": done.files, "directories": done.dirs, "trees": done.trees });
    let words = format!(
        "removed as a whole: {}; one by one: {} and {}",
        counted(done.trees, "tree"),
        counted(done.files, "file"),
        counted(done.dirs, "directory")
    );
    report.end(totals, &words, AGAIN)
}

fn removable(args: &Rm, said: &Said, client: &chiton_client::Client) -> Outcome<Place> {
    let shown = said.path.display();
    let place = said.place(client)?;
    if place.name.is_none() {
        return Err(Failure::failed(format!(
            "cannot remove {shown}: it is the root of the file system; name the files in it"
        )));
    }
    if place.attr.kind == Kind::Dir && !args.recursive {
        return Err(Failure::failed(format!("cannot remove {shown}: it is a directory; add -r")));
    }
    said.holds_no_mount()?;
    Ok(place)
}

/// Whether the last name of a path is `.` or `..`.
fn ends_in_dots(path: &Path) -> bool {
    let text = path.as_os_str().as_bytes();
    let end = text.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let name = text[..end].rsplit(|&b| b == b'/').next();
    name.is_some_and(|name| name == b"." || name == b"..")
}
