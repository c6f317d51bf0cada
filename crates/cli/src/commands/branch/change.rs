//! Making, comparing, merging and dropping branches.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use chiton_decoupled::{Branch, Choice, MergeProgress, Realm, RealmError, User};
use chiton_fuse::{ControlRequest, GiveBack};
use chiton_policy::OnConflict;
use chiton_types::counted;
use serde::Serialize;
use serde_json::{Value, json};

use super::tree::{Tree, failure, name};
use super::{Create, Delete, Diff, Merge, Resolve, Where};
use crate::commands::policy::Given;
use crate::commands::realm::{
    Done, Merged, MountedPath, conflicts_text, diff_text, is_directory, merge_report,
};
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;

/// How often, and for how long, the end of a mount is waited for that was taken away.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: u32 = 200;

pub(super) fn create(args: &Create) -> Outcome {
    let at = &args.at;
    let given = args.policy.as_deref().map(Given::read).transpose()?;
    let tree = Tree::find(at, "chiton branch create", Some(5))?;
    if at.server.is_none() {
        is_directory(&at.path, "branch")?;
    }
    let policy = given.as_ref().map(|given| given.text.as_bytes());
    let made = tree.realms.create_branch(&tree.client.caller(), tree.root, &name(&args.name)?, policy);
    let claim = made.map_err(|error| Given::explain(given.as_ref(), failure(error)))?;
    if at.json {
        let path = tree.path.display().to_string();
        println!("{}", json!({ "branch": args.name, "realm": claim.realm.0, "path": path }));
    } else {
        println!("branch {} of {}: chiton branch mount {1} {0} DIR", args.name, tree.said);
    }
    tree.close()
}

pub(super) fn diff(args: &Diff) -> Outcome {
    preview(&args.at, &args.name, None)
}

/// Shows what a merge would do, with this treatment of conflicts if one is given.
fn preview(at: &Where, name: &str, on_conflict: Option<OnConflict>) -> Outcome {
    let word = on_conflict.map(|on_conflict| on_conflict.word().to_owned());
    let ask = |ino| ControlRequest::Diff { ino, on_conflict: word.clone() };
    with_branch(at, name, "chiton branch diff", &ask, &|realm| {
        let diff = realm.diff_with(on_conflict)?;
        done(&diff, diff_text(&diff), 0)
    })
}

pub(super) fn conflicts(args: &Diff) -> Outcome {
    let ask = |ino| ControlRequest::Conflicts { ino };
    with_branch(&args.at, &args.name, "chiton branch conflicts", &ask, &|realm| {
        let all = realm.conflicts()?;
        done(&all, conflicts_text(&all), 0)
    })
}

pub(super) fn resolve(args: &Resolve) -> Outcome {
    let within = args.within.strip_prefix("/").unwrap_or(&args.within);
    let path = within.as_os_str().as_bytes().to_vec();
    let mut tree = Tree::find(&args.at, "chiton branch resolve", None)?;
    let name = name(&args.name)?;
    let branch = tree.branch(&args.at, &name)?;
    let merged = args.side.merged.as_deref().map(Merged::read).transpose()?;
    let done = match user(&branch) {
        Some(user) => {
            if let Some(merged) = merged {
                merged.put(&user.mountpoint.join(within))?;
            }
            let request = ControlRequest::Resolve { ino: tree.root.0, rest: path, theirs: args.side.theirs };
            ask(&tree, user, &request)?
        }
        None => {
            let realm = tree.realms.open_branch(tree.root, &name).map_err(failure)?;
            if let Some(merged) = merged {
                let written = merged.put_in(realm.client(), &[b"/", &path[..]].concat());
                written.map_err(|e| Failure::failed(format!("cannot write {}: {e}", within.display())))?;
            }
            let choice = if args.side.theirs { Choice::Theirs } else { Choice::Ours };
            realm.resolve_conflict(&path, choice).map_err(failure)?;
            Done { report: json!({ "resolved": true }), text: "resolved".to_owned(), exit_code: 0 }
        }
    };
    tree.close()?;
    done.show(args.at.json)
}

pub(super) fn rebase(args: &Diff) -> Outcome {
    let name = name(&args.name)?;
    let mut tree = Tree::find(&args.at, "chiton branch rebase", None)?;
    tree.branch(&args.at, &name)?;
    let report = tree.realms.rebase_branch(tree.root, &name).map_err(failure)?;
    let text = match report.stopped {
        true => {
            let merged = merge_report(&report);
            format!("{merged}not rebased: settle the conflicts with chiton branch resolve, then rebase again")
        }
        false => format!("branch {} is rebased: {} repeated", args.name, counted(report.events, "change")),
    };
    let exit_code = if report.stopped { Class::Conflict as u8 } else { 0 };
    let done = done(&report, text, exit_code).map_err(failure)?;
    tree.close()?;
    done.show(args.at.json)
}

pub(super) fn merge(args: &Merge) -> Outcome {
    if args.dry_run {
        return preview(&args.at, &args.name, args.on_conflict);
    }
    let ask = |ino: u64| {
        let on_conflict = args.on_conflict.map(|on_conflict| on_conflict.word().to_owned());
        ControlRequest::GiveBack {
            ino,
            how: GiveBack::Merge,
            force: args.force,
            on_conflict,
            accept_truncated: args.at.accept_truncated,
        }
    };
    with_branch(&args.at, &args.name, "chiton branch merge", &ask, &|realm| {
        let work = Work::counting("merging", "events");
        let report = |so_far: MergeProgress| work.count(so_far.events_done, so_far.events_total);
        let report = realm.as_named_here(realm.merge_with(args.on_conflict, &report)?);
        done(&report, merge_report(&report), if report.stopped { Class::Conflict as u8 } else { 0 })
    })
}

pub(super) fn delete(args: &Delete) -> Outcome {
    let (at, name) = (&args.at, name(&args.name)?);
    let mut tree = Tree::find(at, "chiton branch delete", Some(5))?;
    let branch = tree.branch(at, &name)?;
    match user(&branch).filter(|_| args.force) {
        Some(user) => {
            let how = GiveBack::Discard;
            let request = ControlRequest::GiveBack {
                ino: tree.root.0,
                how,
                force: true,
                on_conflict: None,
                accept_truncated: false,
            };
            ask(&tree, user, &request)?;
        }
        None => tree.realms.delete_branch(tree.root, &name, args.force).map_err(failure)?,
    }
    match at.json {
        true => println!("{}", json!({ "branch": args.name, "deleted": true })),
        false => println!("branch {} of {} is deleted", args.name, tree.said),
    }
    tree.close()
}

/// Does something with a branch: through the mount that has it, or in this process.
fn with_branch(
    at: &Where,
    named: &str,
    who: &str,
    request: &dyn Fn(u64) -> ControlRequest,
    here: &dyn Fn(&Realm) -> Result<Done, RealmError>,
) -> Outcome {
    let name = name(named)?;
    let mut tree = Tree::find(at, who, None)?;
    let branch = tree.branch(at, &name)?;
    let done = match user(&branch) {
        Some(user) => ask(&tree, user, &request(tree.root.0))?,
        None => {
            let realm = tree.realms.open_branch(tree.root, &name).map_err(failure)?;
            here(&realm).map_err(failure)?
        }
    };
    tree.close()?;
    done.show(at.json)
}

/// The process whose mount has the branch.
fn user(branch: &Branch) -> Option<&User> {
    branch.left.as_ref()?.user.as_ref()
}

/// Asks the mount of a branch. If the branch is over then, its end is waited for.
fn ask(tree: &Tree, user: &User, request: &ControlRequest) -> Outcome<Done> {
    let done = MountedPath::at(tree.root.0, user.control.clone()).ask(request)?;
    let words = format!("/proc/{}/cmdline", user.pid);
    for _ in 0..LOOKS {
        // A zombie has no command line. A process that serves several branches continues without the socket of this
        // one.
        let is_there = user.control.exists() && std::fs::read(&words).is_ok_and(|words| !words.is_empty());
        if done.report["ended"] != true || !is_there {
            return Ok(done);
        }
        std::thread::sleep(LOOK);
    }
    let at = user.mountpoint.display();
    chiton_runtime::log_line!("chiton: the mount at {at} is still in use; it ends when its last user ends");
    Ok(done)
}

fn done(report: &impl Serialize, text: String, exit_code: u8) -> Result<Done, RealmError> {
    let report = serde_json::to_value(report).unwrap_or(Value::Null);
    Ok(Done { report, text, exit_code })
}
