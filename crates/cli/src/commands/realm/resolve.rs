//! Conflicts that stopped a merge (`on_conflict: abort`): seen one by one, resolved, and then the merge is asked for again.

use std::path::{Path, PathBuf};

use chiton_mount::ControlRequest;
use clap::Args;

use super::Within;
use super::at_mount::Place;
use crate::failure::{Class, Failure, Outcome};

/// What is to hold.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Side {
    /// What is here, as it is now.
    #[arg(long)]
    pub(crate) ours: bool,
    /// What others made of it: it is copied here.
    #[arg(long)]
    pub(crate) theirs: bool,
    /// The content of this file: it is written here.
    #[arg(long, value_name = "FILE")]
    pub(crate) merged: Option<PathBuf>,
}

/// Options of `chiton resolve`.
#[derive(Debug, Args)]
#[command(
    after_help = "A merge with on_conflict: abort stops as long as both sides did something to one path. Resolve each, then merge again. A resolution holds for what others had done by then: if they change the path again, it is a conflict again. With --theirs and --merged what is written here is what the merge carries over; name, content, mode, owner and modification time are copied, extended attributes are not.\n\nExamples:\n  chiton merge /mnt/chiton/job --on-conflict abort      exit code 5: there are conflicts\n  chiton conflicts /mnt/chiton/job\n  chiton resolve /mnt/chiton/job/a --theirs\n  chiton resolve /mnt/chiton/job/b --merged /tmp/b.merged\n  chiton merge /mnt/chiton/job --on-conflict abort"
)]
pub(crate) struct Resolve {
    /// The path, in a subtree that its mount has decoupled, or in the mount of a branch.
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) side: Side,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn conflicts(args: &Within) -> Outcome {
    let place = Place::find(&args.path)?;
    place.ask(&ControlRequest::Conflicts { ino: place.ino })?.show(args.json)
}

pub(crate) fn resolve(args: &Resolve) -> Outcome {
    let path = std::path::absolute(&args.path)
        .map_err(|e| Failure::failed(format!("{}: {e}", args.path.display())))?;
    if let Some(file) = &args.side.merged {
        write_merged(file, &path)?;
    }
    // What ours removed is not there: a directory above it is.
    let mut failure = None;
    for dir in path.ancestors().skip(1) {
        let rest = path.strip_prefix(dir).unwrap_or(Path::new(""));
        let asked = Place::find(dir).and_then(|place| {
            let rest = rest.as_os_str().as_encoded_bytes().to_vec();
            place.ask(&ControlRequest::Resolve { ino: place.ino, rest, theirs: args.side.theirs })
        });
        match asked {
            Ok(done) => return done.show(args.json),
            Err(error) if error.class == Class::Absent && !dir.exists() => failure = failure.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| Failure::absent(format!("{} is in no mount", path.display()))))
}

/// Makes a file what both sides are to have. What is there keeps its inode, and with it its attributes.
pub(crate) fn write_merged(file: &Path, path: &Path) -> Outcome {
    let content =
        std::fs::read(file).map_err(|e| Failure::failed(format!("cannot read {}: {e}", file.display())))?;
    std::fs::write(path, content)
        .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
}
