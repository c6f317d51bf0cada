//! Requests to the mount that has a subtree.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use chiton_decoupled::{Diff, MergeReport, OpenConflict, RealmStatus, Stage};
use chiton_fuse::{ControlReply, ControlRequest, GiveBack, ask_control};
use chiton_policy::OnConflict;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use super::{Decouple, Discard, Merge, Recouple, Within, list, text};
use crate::commands::policy::Given;
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;
use crate::reach;

/// A path of a mount that can be asked.
pub(crate) struct MountedPath {
    pub(crate) ino: u64,
    socket: PathBuf,
}

/// The reply of a mount.
pub(crate) struct Done {
    pub(crate) report: Value,
    pub(crate) text: String,
    pub(crate) exit_code: u8,
}

impl MountedPath {
    /// Anything of a mount whose socket is known.
    pub(crate) fn at(ino: u64, socket: PathBuf) -> MountedPath {
        MountedPath { ino, socket }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Finds the mount and inode of `path`.
    pub(crate) fn find(path: &Path) -> Outcome<MountedPath> {
        let at = path.display();
        reach::answering(path)?;
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(errno) if errno == Errno::BUSY.raw_os_error() => list::held(path),
            _ if error.kind() == io::ErrorKind::NotFound => {
                Failure::absent(format!("{at} does not exist; name a path that does"))
            }
            _ => Failure::failed(format!("cannot look at {at}: {error}")),
        };
        let here = || Ok((std::fs::metadata(path)?.ino(), Self::control(path)?));
        let (ino, socket) = here().or_else(|error: io::Error| {
            let (ino, answers) = Self::lost(path, &error).ok_or(error)?;
            Ok((ino, Self::control(&answers)?))
        }).map_err(|error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::NODATA | Errno::OPNOTSUPP) => Failure::absent(format!(
                "{at} is not in a mount of Chiton that decouples directories: mount one (chiton mount, without --no-decouple)"
            )),
            _ => failed(error),
        })?;
        Ok(MountedPath { ino, socket })
    }

    /// The socket of the mount that `path` is in.
    fn control(path: &Path) -> io::Result<PathBuf> {
        let mut value = vec![0u8; 4096];
        let len = rustix::fs::getxattr(path, "chiton.control", &mut value[..])?;
        value.truncate(len);
        Ok(PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(value)))
    }

    /// The inode of the directory around `path` that returns EIO because its decoupling was ended by force, and the
    /// directory that lists it and answers.
    fn lost(path: &Path, error: &io::Error) -> Option<(u64, PathBuf)> {
        if error.raw_os_error() != Some(Errno::IO.raw_os_error()) {
            return None;
        }
        let path = std::path::absolute(path).ok()?;
        let answers = path.ancestors().find(|dir| std::fs::metadata(dir).is_ok())?;
        let name = path.strip_prefix(answers).ok()?.components().next()?;
        let mut listed = std::fs::read_dir(answers).ok()?.filter_map(Result::ok);
        let found = listed.find(|entry| entry.file_name() == name.as_os_str())?;
        Some((std::os::unix::fs::DirEntryExt::ino(&found), answers.to_owned()))
    }

    /// If the directory is in a mount of Chiton, makes that mount keep file systems that are mounted inside.
    pub(crate) fn keep_mounts(dir: &Path) -> Outcome {
        match MountedPath::find(dir) {
            Ok(place) => place.ask(&ControlRequest::KeepMounts).map(drop),
            Err(failure) if failure.class == Class::Absent => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Whether its mount has a decoupling.
    pub(crate) fn has(&self, realm: u32) -> bool {
        let all = self.ask(&ControlRequest::List).map(|done| done.report);
        all.is_ok_and(|all| all.as_array().is_some_and(|all| all.iter().any(|one| one["realm"] == realm)))
    }

    /// Requests the decoupling from the mount.
    pub(crate) fn decouple(&self, given: Option<&Given>) -> Outcome<Done> {
        let policy = given.map(|given| given.text.clone());
        let done = self.ask(&ControlRequest::Decouple { ino: self.ino, policy });
        done.map_err(|failure| Given::explain(given, failure))
    }

    /// Asks its mount; how far a merge is is shown.
    pub(crate) fn ask(&self, request: &ControlRequest) -> Outcome<Done> {
        let work = Work::counting("merging", "events");
        let mut pieces = String::new();
        let mut report = |word: ControlReply| match word {
            ControlReply::Progress(so_far) => work.count(so_far.events_done, so_far.events_total),
            ControlReply::Text(piece) => pieces.push_str(&piece),
            ControlReply::Done { .. } | ControlReply::Failed { .. } => {}
        };
        let reply = ask_control(&self.socket, request, &mut report).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    ": only root, the user of the mount and the owner of the subtree may ask it"
                }
                _ => "",
            };
            Failure::failed(format!("the mount does not answer on {}: {error}{hint}", self.socket.display()))
        })?;
        match reply {
            ControlReply::Done { report, exit_code } => {
                let (report, text) = shown(request, report, &pieces).map_err(|error| {
                    Failure::failed(format!(
                        "the report of the mount cannot be read: {error}; is it of another version?"
                    ))
                })?;
                Ok(Done { report, text, exit_code })
            }
            ControlReply::Failed { message, exit_code } => Err(Failure::new(Class::of(exit_code), message)),
            ControlReply::Progress(_) | ControlReply::Text(_) => {
                Err(Failure::failed("the mount ended its answer early; read its log"))
            }
        }
    }
}

/// The reply to a request as JSON and as text. `pieces`: the parts of it that came before.
fn shown(
    request: &ControlRequest,
    report: Value,
    pieces: &str,
) -> Result<(Value, String), serde_json::Error> {
    let text = match request {
        ControlRequest::Decouple { .. } => text::status(&RealmStatus::deserialize(&report)?),
        ControlRequest::GiveBack { .. } if report["discarded"] == true => {
            "dropped the changes; the directory is shared again".to_owned()
        }
        ControlRequest::Sync { .. } | ControlRequest::GiveBack { .. } => {
            text::merge_report(&MergeReport::deserialize(&report)?)
        }
        ControlRequest::Diff { .. } => {
            let diff: Diff = serde_json::from_str(pieces)?;
            return Ok((serde_json::to_value(&diff)?, text::diff(&diff)));
        }
        ControlRequest::Conflicts { .. } => text::conflicts(&Vec::<OpenConflict>::deserialize(&report)?),
        ControlRequest::Resolve { .. } => "resolved".to_owned(),
        ControlRequest::KeepMounts
        | ControlRequest::Segments { .. }
        | ControlRequest::Segment { .. }
        | ControlRequest::List
        | ControlRequest::Probe
        | ControlRequest::AwaitEnd => String::new(),
    };
    Ok((report, text))
}

impl Done {
    /// Prints it. A conflict that stopped a merge is a failure.
    pub(crate) fn show(&self, json: bool) -> Outcome {
        match json {
            true => println!("{}", self.report),
            false => println!("{}", self.text.trim_end()),
        }
        match self.exit_code {
            0 => Ok(()),
            code => Err(Failure::new(Class::of(code), STOPPED)),
        }
    }
}

const STOPPED: &str = "a conflict stopped the merge (on_conflict: abort), and unmerged changes are still here: chiton \
                       conflicts lists the changes of both sides, chiton resolve chooses one of them; then merge again";

pub(crate) fn decouple(args: &Decouple) -> Outcome {
    let given = args.policy.as_deref().map(Given::read).transpose()?;
    let place = MountedPath::find(&args.path)?;
    is_directory(&args.path, "decouple")?;
    let done = place.decouple(given.as_ref())?;
    if args.verbose && !args.json {
        println!("{}", stages(&done.report));
    }
    done.show(args.json)
}

/// Refuses a path whose server answers, and which is something other than a directory.
pub(crate) fn is_directory(path: &Path, doing: &str) -> Outcome {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_dir() => Err(Failure::failed(format!(
            "cannot {doing} {}: it is not a directory; name a directory",
            path.display()
        ))),
        // The command itself reports a path that cannot be looked at.
        _ => Ok(()),
    }
}

/// The stages of a decoupling as text; empty, if the mount does not report them.
fn stages(report: &Value) -> String {
    let all: Vec<Stage> = serde_json::from_value(report["stages"].clone()).unwrap_or_default();
    let seconds: f64 = all.iter().filter_map(|stage| stage.seconds).sum();
    let mut lines: Vec<String> = all.iter().map(text::stage).collect();
    let what = "none of it grows with the tree".to_owned();
    lines.push(text::stage(&Stage { name: "in all".to_owned(), seconds: Some(seconds), what }));
    lines.join("\n")
}

pub(crate) fn sync(args: &Within) -> Outcome {
    let place = MountedPath::find(&args.path)?;
    place.ask(&ControlRequest::Sync { ino: place.ino })?.show(args.json)
}

pub(crate) fn diff(args: &Within) -> Outcome {
    preview(&args.path, None, args.json)
}

/// Shows what a merge would do, with this treatment of conflicts if one is given.
fn preview(path: &Path, on_conflict: Option<OnConflict>, json: bool) -> Outcome {
    let place = MountedPath::find(path)?;
    let on_conflict = on_conflict.map(|on_conflict| on_conflict.word().to_owned());
    place.ask(&ControlRequest::Diff { ino: place.ino, on_conflict })?.show(json)
}

pub(crate) fn merge(args: &Merge) -> Outcome {
    if args.dry_run {
        return preview(&args.path, args.on_conflict, args.json);
    }
    let on_conflict = args.on_conflict.map(|on_conflict| on_conflict.word().to_owned());
    let place = MountedPath::find(&args.path)?;
    let request = ControlRequest::GiveBack {
        ino: place.ino,
        how: GiveBack::Merge,
        force: args.force,
        on_conflict,
        accept_truncated: args.accept_truncated,
    };
    place.ask(&request)?.show(args.json)
}

pub(crate) fn discard(args: &Discard) -> Outcome {
    give_back(&args.path, GiveBack::Discard, (args.force, false), args.json)
}

pub(crate) fn recouple(args: &Recouple) -> Outcome {
    if args.force
        && let Some(done) = list::end_of_another(args)?
    {
        return done.show(args.json);
    }
    let how = match (args.merge, args.discard) {
        (true, _) => GiveBack::Merge,
        (_, true) => GiveBack::Discard,
        _ => GiveBack::AsThePolicySays,
    };
    give_back(&args.path, how, (args.force, args.accept_truncated), args.json)
}

fn give_back(path: &Path, how: GiveBack, (force, accept_truncated): (bool, bool), json: bool) -> Outcome {
    let place = MountedPath::find(path)?;
    let (ino, on_conflict) = (place.ino, None);
    place.ask(&ControlRequest::GiveBack { ino, how, force, on_conflict, accept_truncated })?.show(json)
}
