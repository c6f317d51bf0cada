//! The server's list of decoupled subtrees and their holders, and ending them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use chiton_client::{Client, ask};
use chiton_decoupled::{JournalAt, durable_upto, journal_at};
use chiton_fuse::ControlRequest;
use chiton_policy::{Policy, PolicyFile};
use chiton_runtime::{RealWorld, World};
use chiton_types::Refusal;
use chiton_wire::{Answer, Call, RealmAnswer, RealmCall, RealmInfo};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::at_mount::{Done, MountedPath};
use super::{Decoupled, Recouple};
use crate::failure::{Class, Failure, Outcome};
use crate::{reach, target};

pub(crate) fn decoupled(args: &Decoupled) -> Outcome {
    let client = target::client(&args.target)?;
    let all = all(&client)?;
    let used = used(Path::new(&args.target));
    if args.json {
        println!("{}", Value::from(all.iter().map(|info| as_json(info, &used)).collect::<Vec<_>>()));
        return Ok(());
    }
    if all.is_empty() {
        println!("nothing is decoupled");
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["id", "path", "whose", "there", "policy", "others", "since", "inodes", "journal"]);
    for info in &all {
        let policy = policy(info);
        let path = match &info.branch {
            Some(branch) => format!("{} branch {}", path(info), text(branch.as_bytes())),
            None => path(info),
        };
        table.add_row([
            info.claim.realm.to_string(),
            path,
            info.owner.clone(),
            if info.is_attached { "yes" } else { "gone" }.to_owned(),
            policy.as_ref().map_or("?".to_owned(), |policy| policy.composition.to_string()),
            policy.as_ref().map_or("?".to_owned(), |policy| policy.interfere.word().to_owned()),
            chiton_model::text::utc(info.since),
            match used.get(&info.claim.realm.0) {
                Some((used, granted)) => format!("{used} of {granted}"),
                None => format!("? of {}", info.reserved),
            },
            info.journal_at.clone(),
        ]);
    }
    println!("{}", table.trim_fmt());
    Ok(())
}

/// Inode numbers used and granted, by decoupling, in the mount that `target` is in: the server learns of new inodes
/// only in a merge.
fn used(target: &Path) -> BTreeMap<u32, (u64, u64)> {
    let is_in_mount =
        reach::mount_around(target).is_ok_and(|mount| mount.is_some_and(|mount| mount.is_ours()));
    let asked =
        is_in_mount.then(|| MountedPath::find(target).and_then(|place| place.ask(&ControlRequest::List)));
    let Some(Ok(Done { report, .. })) = asked else { return BTreeMap::new() };
    let read = |one: &Value| {
        let number = |name: &str| one[name].as_u64();
        let (granted, left) = (number("inodes_granted")?, number("inodes_left")?);
        Some((number("realm")? as u32, (granted.saturating_sub(left), granted)))
    };
    report.as_array().into_iter().flatten().filter_map(read).collect()
}

/// All decouplings of the file system.
fn all(client: &Client) -> Outcome<Vec<RealmInfo>> {
    match call(client, RealmCall::List) {
        Ok(RealmAnswer::Realms(all)) => Ok(all),
        Ok(_) => Err(Failure::failed(
            "the server's answer does not fit the request: use the same version of chiton for client and server",
        )),
        Err(refusal) => Err(Failure::failed(format!("the server does not list decouplings: {refusal}"))),
    }
}

/// The error for a path in a subtree that another client has decoupled: which client, and advice.
pub(crate) fn held(path: &Path) -> Failure {
    let said = path.display();
    let unknown = || {
        format!(
            "{said} is in a subtree that another client has decoupled; chiton decoupled MOUNTPOINT names it"
        )
    };
    Failure::new(Class::Busy, holder(path).unwrap_or_else(unknown))
}

fn holder(path: &Path) -> Option<String> {
    let mount = reach::mount_around(path).ok()??;
    let at = mount.dir.display().to_string();
    let within = mount.within();
    let client = target::client(&at).ok()?;
    let all = all(&client).ok()?;
    let is_in = |info: &&RealmInfo| {
        info.branch.is_none() && within.starts_with(OsStr::from_bytes(&info.path)) && !info.is_own
    };
    let info = all.iter().filter(is_in).max_by_key(|info| info.path.len())?;
    let id = info.claim.realm;
    let next = match info.is_attached {
        true => format!(
            "chiton merge or chiton discard in that mount gives it back; to end it from here: chiton recouple {at} --id {id} --force"
        ),
        false => format!(
            "that client is gone: chiton recover where its journal is ({}) merges its changes, chiton recouple {at} --id {id} \
             --force ends it without",
            info.journal_at
        ),
    };
    Some(format!("{} is decoupled by {} (number {id}); {next}", shown(&at, info), info.owner))
}

/// Where a decoupled subtree is in a mount.
fn shown(mountpoint: &str, info: &RealmInfo) -> String {
    format!("{}{}", mountpoint.trim_end_matches('/'), path(info)).trim_end_matches('/').to_owned()
}

fn call(client: &Client, call: RealmCall) -> Result<RealmAnswer, Refusal> {
    match ask(&**client.service(), &client.caller(), Call::Realm(Box::new(call)))? {
        Answer::Realm(answer) => Ok(answer),
        _ => Err(Refusal::Io),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(info: &RealmInfo) -> String {
    text(&info.path)
}

fn policy(info: &RealmInfo) -> Option<Policy> {
    let file = PolicyFile::parse(std::str::from_utf8(&info.policy).ok()?).ok()?;
    Policy::resolve(&file, &Policy::default()).ok()
}

fn as_json(info: &RealmInfo, used: &BTreeMap<u32, (u64, u64)>) -> Value {
    let policy = policy(info);
    json!({
        "realm": info.claim.realm.0,
        "generation": info.claim.generation,
        "root": info.root.0,
        "path": path(info),
        "branch": info.branch.as_ref().map(|name| text(name.as_bytes())),
        "owner": info.owner,
        "attached": info.is_attached,
        "journal_at": info.journal_at,
        "composition": policy.as_ref().map(|policy| policy.composition.to_string()),
        "interfere_policy": policy.as_ref().map(|policy| policy.interfere.word()),
        "since_ns": info.since.0,
        "base": info.base.0,
        "merged": info.state.merged.0,
        "inodes_reserved": info.reserved,
        "inodes_used": used.get(&info.claim.realm.0).map(|(used, _)| used),
    })
}

/// Ends the decoupling that `chiton recouple --force` means, if it is another client's; `None`: it is of the mount that
/// the path is in, or there is none.
pub(super) fn end_of_another(args: &Recouple) -> Outcome<Option<Done>> {
    let (client, info) = match args.id {
        Some(id) => {
            let client = target::client(&args.path.display().to_string())?;
            let info = all(&client)?.into_iter().find(|info| info.claim.realm.0 == id);
            let info = info.ok_or_else(|| {
                Failure::absent(format!(
                    "there is no decoupling {id}; chiton decoupled {} lists all",
                    args.path.display()
                ))
            })?;
            (client, info)
        }
        None => {
            let Some(mountpoint) = reach::mount_around(&args.path)?.map(|mount| mount.dir) else {
                return Err(Failure::absent(format!(
                    "{} is not in a mount of Chiton; name a path in one, or a server's address with --id",
                    args.path.display()
                )));
            };
            let client = target::client(&mountpoint.display().to_string())?;
            let absolute = std::path::absolute(&args.path).map_err(|e| {
                Failure::failed(format!("cannot find the full name of {}: {e}", args.path.display()))
            })?;
            let within = Path::new("/").join(absolute.strip_prefix(&mountpoint).unwrap_or(Path::new("")));
            let found = all(&client)?.into_iter().find(|info| {
                let root = Path::new(std::ffi::OsStr::from_bytes(&info.path));
                info.branch.is_none() && within.starts_with(root)
            });
            let Some(info) = found else { return Ok(None) };
            (client, info)
        }
    };
    // The mount that has it ends it better, since it has the journal. A dead mount cannot be asked.
    if args.id.is_none() && MountedPath::find(&args.path).is_ok_and(|place| place.has(info.claim.realm.0)) {
        return Ok(None);
    }
    if args.merge {
        return Err(Failure::new(
            Class::Failed,
            "the changes are in the journal of another client: only that client, or chiton recover where the journal is, merges them",
        ));
    }
    let drops = args.discard || info.branch.is_some();
    if !agreed(args, &client, &info, drops)? {
        return Err(Failure::failed("nothing was ended"));
    }
    let ending = match drops {
        true => RealmCall::End { claim: info.claim, force: true },
        false => RealmCall::BecomeBranch { realm: info.claim.realm, name: None },
    };
    match call(&client, ending) {
        Ok(RealmAnswer::Ended) => {}
        Ok(_) => {
            return Err(Failure::failed(
                "the server's answer does not fit the request: use the same version of chiton for client and server",
            ));
        }
        Err(refusal) => {
            return Err(Failure::failed(format!(
                "decoupling {} cannot be ended: {refusal}",
                info.claim.realm
            )));
        }
    }
    let left = all(&client)?.into_iter().find(|left| left.claim.realm == info.claim.realm);
    let branch = left.and_then(|left| left.branch).map(|name| text(name.as_bytes()));
    let (realm, owner) = (info.claim.realm, &info.owner);
    let text = match &branch {
        Some(branch) => format!(
            "decoupling {realm} of {path} has ended; the unmerged changes of {owner} wait as branch {branch} ({journal}): chiton \
             recover --as-branch NAME there names it, chiton branch merge or delete ends it",
            path = path(&info),
            journal = info.journal_at
        ),
        None => {
            format!(
                "decoupling {realm} of {} has ended; the unmerged changes of {owner} are dropped",
                path(&info)
            )
        }
    };
    Ok(Some(Done {
        report: json!({ "ended": true, "realm": realm.0, "path": path(&info), "branch": branch }),
        text,
        exit_code: 0,
    }))
}

/// Describes the decoupling that is about to be ended, and asks whether to end it.
fn agreed(args: &Recouple, client: &Client, info: &RealmInfo, drops: bool) -> Outcome<bool> {
    if args.yes {
        return Ok(true);
    }
    let unmerged = match journal_at(info, client.filesystem(), None) {
        Ok(JournalAt::Disk(dir)) => {
            durable_upto(&dir).map(|durable| durable.0.saturating_sub(info.state.merged.0))
        }
        _ => None,
    };
    let age = RealWorld.now().0.saturating_sub(info.since.0).max(0) / 1_000_000_000;
    let at_stake = at_stake(info, age, unmerged, drops);
    if !std::io::stdin().is_terminal() {
        return Err(Failure::failed(format!(
            "{at_stake}; nothing was ended, because standard input is no terminal for a confirmation: add --yes to end it"
        )));
    }
    chiton_runtime::log_line!("{at_stake}");
    let mut asking = std::io::stderr();
    let asked = asking.write_all(b"end it? [y/N] ").and_then(|()| asking.flush());
    asked.map_err(|e| {
        Failure::failed(format!("the terminal cannot be read for a confirmation: {e}; add --yes"))
    })?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|e| Failure::failed(format!("no answer: {e}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The decoupling's holder, its age, and the outcome of unmerged changes. `unmerged`: number of events, if the journal
/// is on this machine.
fn at_stake(info: &RealmInfo, age_seconds: i64, unmerged: Option<u64>, drops: bool) -> String {
    let unmerged = unmerged.map_or_else(
        || {
            format!(
                "how many durable events are not merged is known only where the journal is ({})",
                info.journal_at
            )
        },
        |count| format!("{count} durable events are not merged"),
    );
    format!(
        "decoupling {} of {}: {} has had it for {} ({}); {unmerged}, and they would {}",
        info.claim.realm,
        path(info),
        info.owner,
        in_words(age_seconds),
        if info.is_attached { "connected" } else { "gone" },
        if drops { "be dropped" } else { "wait as a branch" },
    )
}

/// A time in the two largest units that it has.
fn in_words(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_two_units() {
        for (seconds, words) in [(0, "0 s"), (61, "1 min 1 s"), (3_600, "1 h 0 min"), (90_061, "1 d 1 h")] {
            assert_eq!(in_words(seconds), words);
        }
    }
}
