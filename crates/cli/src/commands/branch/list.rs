//! Which branches there are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use chiton_decoupled::Branch;
use chiton_policy::{Policy, PolicyFile};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::List;
use super::left::sweep;
use super::tree::{Tree, failure};
use crate::failure::Outcome;

pub(super) fn list(args: &List) -> Outcome {
    let tree = Tree::find(&args.at, "chiton branch list", Some(5))?;
    sweep(&tree);
    let mut all = tree.realms.branches(None).map_err(failure)?;
    all.retain(|branch| path(branch).starts_with(&tree.path));
    if args.at.json {
        println!("{}", Value::from(all.iter().map(as_json).collect::<Vec<_>>()));
        return tree.close();
    }
    if all.is_empty() {
        println!("no branches of {}", tree.said);
        return tree.close();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["path", "branch", "since", "in use by", "durability", "journal"]);
    for branch in &all {
        table.add_row([
            path(branch).display().to_string(),
            branch.name(),
            chiton_model::text::utc(branch.info.since),
            user(branch).unwrap_or_default(),
            policy(branch).map_or("?".to_owned(), |policy| policy.durability().name().to_owned()),
            branch.info.journal_at.clone(),
        ]);
    }
    println!("{}", table.trim_fmt());
    tree.close()
}

fn path(branch: &Branch) -> &Path {
    Path::new(OsStr::from_bytes(&branch.info.path))
}

fn policy(branch: &Branch) -> Option<Policy> {
    let file = PolicyFile::parse(std::str::from_utf8(&branch.info.policy).ok()?).ok()?;
    Policy::resolve(&file, &Policy::default()).ok()
}

/// The mount point of a branch, or the other client that has it.
fn user(branch: &Branch) -> Option<String> {
    let user = branch.left.as_ref().and_then(|left| left.user.as_ref());
    match user {
        Some(user) => Some(user.mountpoint.display().to_string()),
        None => branch.is_in_use().then(|| branch.info.owner.clone()),
    }
}

fn as_json(branch: &Branch) -> Value {
    let user = branch.left.as_ref().and_then(|left| left.user.as_ref());
    json!({
        "path": path(branch).display().to_string(),
        "branch": branch.name(),
        "realm": branch.info.claim.realm.0,
        "in_use": branch.is_in_use(),
        "mountpoint": user.map(|user| &user.mountpoint),
        "pid": user.map(|user| user.pid),
        "durability": policy(branch).map(|policy| policy.durability().name()),
        "journal_at": branch.info.journal_at,
        "since_ns": branch.info.since.0,
        "inodes_used": branch.info.used,
    })
}
