//! Why a directory cannot be decoupled or branched: the one obstacle, its holder, and the command to run next.
//!
//! The server only answers that something is in the way (EBUSY). Its lists of decouplings and policies show which
//! of several obstacles it is.

use chiton_client::Client;
use chiton_types::{Ino, Refusal};
use chiton_wire::RealmInfo;

use crate::branches::text;
use crate::calls::Calls;
use crate::error::RealmError;

/// Finds what keeps `root` from being decoupled or branched. If the obstacle has gone, the error advises to run the
/// command again.
pub(crate) fn obstacle(calls: &Calls, global: &Client, root: Ino, is_branch: bool) -> RealmError {
    let gone = || {
        RealmError::new(
            Refusal::Busy,
            "another client had decoupled the directory, or one around or in it, until a moment ago",
            "run the command again",
        )
    };
    let Ok(all) = calls.list() else { return gone() };
    let found = all.iter().find_map(|info| Some((info, relation(calls, global, info, root, is_branch)?)));
    if let Some((info, relation)) = found {
        return held(info, relation);
    }
    match is_branch.then(|| policy_below(global, root)).flatten() {
        Some(path) => RealmError::new(
            Refusal::Busy,
            format!(
                "{path}, which lies in the directory, has a policy of its own, and a branch has only one policy"
            ),
            format!(
                "remove that policy (chiton policy rm, on {path} in the mount), or branch {path} instead"
            ),
        ),
        None => gone(),
    }
}

/// The caller owns the directory, and its policy does not let an owner have what was asked for.
pub(crate) fn not_for_its_owner() -> RealmError {
    RealmError::new(
        Refusal::NotPermitted,
        "the policy of the directory does not let its owner decouple it so: `owner_decouples` sets the least durability, and an owner \
         may ask for a limited number of inode numbers (`allocated_inodes`)",
        "`chiton policy explain` shows both: ask for a policy that is as durable, or ask an administrator",
    )
}

/// Where a decoupling lies, seen from the directory that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Same,
    Above,
    Below,
}

/// How a decoupling is in the way; `None` if it is not.
fn relation(
    calls: &Calls,
    global: &Client,
    info: &RealmInfo,
    root: Ino,
    is_branch: bool,
) -> Option<Relation> {
    if info.root == root {
        // Branches stand beside each other, and beside the decoupling that is none.
        return (info.branch.is_none() && !is_branch).then_some(Relation::Same);
    }
    if leads_through(global, &info.path, root) {
        return Some(Relation::Below);
    }
    let around = calls.of(root).ok().and_then(|(_, info)| info);
    let is_around = around.is_some_and(|around| around.claim.realm == info.claim.realm);
    // The server reports decouplings around a directory, but no branches around it.
    (is_around || info.branch.is_some()).then_some(Relation::Above)
}

/// Whether the way to `path` leads through the directory.
fn leads_through(global: &Client, path: &[u8], dir: Ino) -> bool {
    let ends = (1..path.len()).filter(|end| path[*end] == b'/');
    let mut on_the_way = ends.map(|end| &path[..end]).chain([&b"/"[..]]);
    on_the_way.any(|path| global.lstat(path).is_ok_and(|attr| attr.ino == dir))
}

fn held(info: &RealmInfo, relation: Relation) -> RealmError {
    let path = String::from_utf8_lossy(&info.path);
    let id = info.claim.realm;
    let by = if info.is_attached { info.owner.clone() } else { format!("{}, which is gone", info.owner) };
    let held = match (relation, &info.branch) {
        (Relation::Same, _) => format!("{path} is already decoupled by {by}"),
        (Relation::Above, None) => format!("{path}, in which the directory lies, is decoupled by {by}"),
        (Relation::Below, None) => format!("{path}, which lies in the directory, is decoupled by {by}"),
        (Relation::Above, Some(branch)) => {
            format!("{path}, in which the directory lies, has the branch {}{}", text(branch), used(info))
        }
        (Relation::Below, Some(branch)) => {
            format!("{path}, which lies in the directory, has the branch {}{}", text(branch), used(info))
        }
    };
    let next = match &info.branch {
        Some(branch) => format!(
            "merge or delete it first: chiton branch merge (or delete) {path} {}, with {path} in a mount",
            text(branch)
        ),
        None if info.is_attached => format!(
            "chiton merge or chiton discard on {path} in that mount ends it; chiton recouple MOUNTPOINT --id {id} --force does so from here"
        ),
        None => format!(
            "chiton recover where its journal is ({}) merges it; chiton recouple MOUNTPOINT --id {id} --force ends it without",
            info.journal_at
        ),
    };
    RealmError::new(Refusal::Busy, held, next)
}

/// The client that has a branch. The name of a mount's client repeats that of the branch:
/// "branch try1 of /mnt/job, mount /work/try1, process 7".
pub(crate) fn client_of(info: &RealmInfo) -> &str {
    info.owner.rfind(", mount ").map_or(&info.owner, |at| &info.owner[at + 2..])
}

/// The words behind a branch's name.
fn used(info: &RealmInfo) -> String {
    if info.is_attached { format!(", in use by {}", client_of(info)) } else { String::new() }
}

fn policy_below(global: &Client, root: Ino) -> Option<String> {
    let report: serde_json::Value = serde_json::from_slice(&global.admin("policies").ok()?).ok()?;
    let paths = report["policies"].as_array()?.iter().filter_map(|policy| policy["path"].as_str());
    let mut below = paths.filter(|path| leads_through(global, path.as_bytes(), root));
    below.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use chiton_model::merge::MergeState;
    use chiton_types::{Name, Position, RealmId, Time};
    use chiton_wire::Claim;

    use super::*;

    #[test]
    fn a_message_has_one_cause_the_holder_and_the_next_command() {
        let info = |is_attached, branch: Option<&str>| RealmInfo {
            claim: Claim { realm: RealmId(4), generation: 1 },
            root: Ino(9),
            path: b"/job".to_vec(),
            above: None,
            branch: branch.map(|name| Name::new(name.as_bytes()).expect("a name")),
            owner: "mount /mnt, process 7".to_owned(),
            is_attached,
            is_own: false,
            journal_at: "vm:/var/lib/chiton".to_owned(),
            policy: Vec::new(),
            since: Time(0),
            base: Position(0),
            state: MergeState::default(),
            reserved: 0,
            used: 0,
            is_merging: false,
        };
        let check = |info: RealmInfo, relation, cause: &str, next: &str| {
            let said = held(&info, relation).to_string();
            assert!(said.starts_with(cause) && said.contains(next), "{said}");
        };
        let (alive, dead) = (|| info(true, None), || info(false, None));
        let end = "chiton recouple MOUNTPOINT --id 4 --force";
        check(
            alive(),
            Relation::Same,
            "/job is already decoupled by mount /mnt, process 7; chiton merge",
            end,
        );
        check(
            dead(),
            Relation::Above,
            "/job, in which the directory lies, is decoupled by mount /mnt, process 7, which is gone",
            "(vm:/var/lib/chiton)",
        );
        check(dead(), Relation::Below, "/job, which lies in the directory, is decoupled by", end);
        let branch = |is_attached| RealmInfo {
            owner: "branch try1 of /mnt/job, mount /work/try1, process 7".to_owned(),
            ..info(is_attached, Some("try1"))
        };
        check(
            branch(false),
            Relation::Below,
            "/job, which lies in the directory, has the branch try1; merge or delete it first",
            "chiton branch merge (or delete) /job try1",
        );
        check(
            branch(true),
            Relation::Above,
            "/job, in which the directory lies, has the branch try1, in use by mount /work/try1, process 7; merge",
            "chiton branch merge (or delete) /job try1",
        );
    }
}
