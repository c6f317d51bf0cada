//! Resolves conflicts that stopped a merge (`on_conflict: abort`) one by one; the user then merges again.

use std::path::{Path, PathBuf};

use chiton_fuse::ControlRequest;
use clap::Args;

use super::Within;
use super::at_mount::MountedPath;
use super::merged::Merged;
use crate::failure::{Class, Failure, Outcome};

/// The version to keep.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Side {
    /// Our present version.
    #[arg(long)]
    pub(crate) ours: bool,
    /// The version of the others: it is copied here, with owner, mode, times and extended attributes.
    #[arg(long)]
    pub(crate) theirs: bool,
    /// The content of this file: it is written here. A symbolic link is copied as one.
    #[arg(long, value_name = "FILE")]
    pub(crate) merged: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A merge with on_conflict: abort stops as long as both sides did something to one path. Resolve each, then merge again. A resolution holds for the changes that others had made by then: if they change the path again, it is a conflict again. --ours changes nothing here. --theirs makes the path here as others have it: type, content, target of a symbolic link, owner, mode, times and extended attributes, access control lists among them; a directory that is not here comes with all that is in it. A directory here in which something was changed gives way to nothing: move files that you want to keep out of it, or remove it, first. --merged writes the content of FILE over the file that is here, which keeps its attributes; where no regular file is here, or FILE is a symbolic link, FILE is copied with its attributes. The merge then carries over the path as it is here.\n\nExamples:\n  chiton merge /mnt/chiton/job --on-conflict abort      exit code 5: there are conflicts\n  chiton conflicts /mnt/chiton/job\n  chiton resolve /mnt/chiton/job/a --theirs\n  chiton resolve /mnt/chiton/job/b --merged /tmp/b.merged\n  chiton merge /mnt/chiton/job --on-conflict abort"
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
    let place = MountedPath::find(&args.path)?;
    place.ask(&ControlRequest::Conflicts { ino: place.ino })?.show(args.json)
}

pub(crate) fn resolve(args: &Resolve) -> Outcome {
    let path = std::path::absolute(&args.path)
        .map_err(|e| Failure::failed(format!("{}: {e}", args.path.display())))?;
    if let Some(file) = &args.side.merged {
        Merged::read(file)?.put(&path)?;
    }
    // If ours removed the path, use a directory above it.
    let mut failure = None;
    for dir in path.ancestors().skip(1) {
        let rest = path.strip_prefix(dir).unwrap_or(Path::new(""));
        let asked = MountedPath::find(dir).and_then(|place| {
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
