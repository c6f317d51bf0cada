//! `chiton recover`: the journals of subtrees whose mount died, without a new mount; and, offline, those that are merged
//! without a server.
//!
//! The offline merge is the same merge. This process opens the file system as a server does, serves no client, and
//! ends with a checkpoint. So the metadata store has the merged changes, and the next server replays no journal for
//! them.

use std::path::PathBuf;
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{
    LeftRealm, MergeProgress, Realm, RealmError, Realms, RealmsOptions, default_state_dir,
};
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, Server, ServerOptions, StartError};
use chiton_transport::Address;
use chiton_types::{Name, RealmId};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::Recover;
use super::text;
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;
use crate::{identity, reach, target};

/// Where journals of decoupled subtrees are: as it was given, or the usual place.
pub(crate) fn state_dir(given: Option<&PathBuf>) -> Outcome<PathBuf> {
    if let Some(dir) = given {
        return std::path::absolute(dir).map_err(|e| Failure::failed(format!("{}: {e}", dir.display())));
    }
    let none = "the directory for journals of decoupled subtrees is unknown: give --state-dir, or set HOME";
    default_state_dir().ok_or_else(|| Failure::failed(none))
}

pub(crate) fn recover(args: &Recover) -> Outcome {
    let says = args.merge || args.discard || args.offline || args.as_branch.is_some();
    if !args.id.is_empty() && !says {
        return Err(Failure::failed(
            "choose how to treat the journals: --merge, --discard or --as-branch NAME",
        ));
    }
    let dir = state_dir(args.state_dir.as_ref())?;
    let (client, server) = client(args)?;
    let client = Arc::new(client);
    let options = RealmsOptions {
        state_dir: dir.clone(),
        client: ClientOptions::default(),
        accept_truncated: args.accept_truncated,
    };
    let realms = Realms::new(client.clone(), options);
    let ended = match (&args.as_branch, says) {
        (Some(name), _) => as_branch(args, &realms, name),
        (None, true) => end_all(args, &realms),
        (None, false) => list(args, &realms, &dir),
    };
    let synced =
        client.sync().map_err(|r| Failure::failed(format!("not everything could be made durable: {r}")));
    drop((realms, client));
    let stopped = server.map_or(Ok(()), |server| server.shutdown().map_err(Failure::failed));
    ended.and(synced).and(stopped)
}

/// Of the server that serves the file system, or of one in this process.
fn client(args: &Recover) -> Outcome<(Client, Option<Arc<Server>>)> {
    let options = ClientOptions {
        identity: format!("chiton recover, process {}", std::process::id()),
        decouples: true,
        ..ClientOptions::default()
    };
    let connect = |address: &Address| {
        reach::probe(address, &address.to_string())?;
        Client::connect(address, identity::with(options.clone())?)
            .map_err(|e| Failure::absent(format!("no server answers at {address}: {e}")))
    };
    let data = match (&args.server, &args.data) {
        (Some(address), _) => return Ok((connect(address)?, None)),
        (None, Some(data)) => target::absolute(data)?,
        (None, None) => return Err(Failure::failed("name the file system: --data DIR or --server ADDRESS")),
    };
    match start(&data) {
        Ok(server) => {
            let client = chiton_embedded::client(&server, options).map_err(Failure::failed)?;
            Ok((client, Some(server)))
        }
        Err(error @ StartError::Held { .. }) if args.offline => Err(Failure::new(
            Class::Busy,
            format!("{error}; stop that server first, or recover through it, without --offline"),
        )),
        Err(StartError::Held { .. }) => Ok((connect(&Address::Unix(target::socket(&data)?))?, None)),
        Err(error) => Err(error.into()),
    }
}

fn start(data: &DataAddress) -> Result<Arc<Server>, StartError> {
    let work = Work::begin("replaying the journal");
    let progress = Arc::new(move |progress| work.report(progress));
    Server::start(
        data,
        ServerOptions { progress: Some(progress), ..ServerOptions::default() },
        Arc::new(RealWorld),
    )
}

fn list(args: &Recover, realms: &Realms, dir: &std::path::Path) -> Outcome {
    let left = realms.left().map_err(|error| failure(&error))?;
    if args.json {
        println!("{}", serde_json::to_string(&left).map_err(Failure::failed)?);
        return Ok(());
    }
    if left.is_empty() {
        println!("no journals of this file system are in {}", dir.display());
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["id", "inode of the root", "branch", "state", "journal"]);
    for LeftRealm { local, ended_as, exists } in &left {
        let state = match (local.in_use, ended_as, exists) {
            (_, Some(_), _) => "ended by force",
            (_, None, false) => "its decoupling is over",
            (true, None, true) => "a mount has it",
            (false, None, true) => "left",
        };
        table.add_row([
            local.realm.to_string(),
            local.root.to_string(),
            local.branch.as_ref().or(ended_as.as_ref()).cloned().unwrap_or_default(),
            state.to_owned(),
            format!("{}, {}", local.dir.display(), crate::size::human(local.journal_bytes)),
        ]);
    }
    println!("{}", table.trim_fmt());
    for next in advice(&left) {
        println!("{next}");
    }
    Ok(())
}

/// The commands to run next.
fn advice(left: &[LeftRealm]) -> impl Iterator<Item = &'static str> {
    let is_aside = |one: &LeftRealm| one.ended_as.is_some();
    let is_branch = |one: &LeftRealm| one.local.branch.is_some();
    let is_over = |one: &LeftRealm| !one.exists && !is_branch(one);
    let is_left = |one: &LeftRealm| one.exists && !is_branch(one) && !is_aside(one);
    let all: [(bool, &str); 4] = [
        (left.iter().any(is_left), "chiton recover --merge merges the journals, --discard drops them"),
        (
            left.iter().any(is_aside),
            "a decoupling that was ended by force waits as a branch: chiton recover --as-branch NAME gives it a name of yours, and \
             chiton branch diff, merge or delete ends it",
        ),
        (left.iter().any(is_branch), "branches wait for chiton branch merge or chiton branch delete"),
        (
            left.iter().any(is_over),
            "chiton recover --discard removes the journals of decouplings that are over",
        ),
    ];
    all.into_iter().filter_map(|(applies, next)| applies.then_some(next))
}

/// Turns a decoupling that was ended elsewhere into a branch.
fn as_branch(args: &Recover, realms: &Realms, text: &str) -> Outcome {
    let name = Name::new(text.as_bytes())
        .map_err(|_| Failure::failed(format!("{text:?} is no name: at most 255 bytes, without /")))?;
    let id = match args.id[..] {
        [] => None,
        [id] => Some(RealmId(id)),
        _ => return Err(Failure::failed("--as-branch names one branch: give one --id")),
    };
    let info = realms.rescue(id, &name).map_err(|error| failure(&error))?;
    let path = String::from_utf8_lossy(&info.path).into_owned();
    match args.json {
        true => println!("{}", json!({ "realm": info.claim.realm.0, "branch": text, "path": path })),
        false => println!(
            "decoupling {} of {path} is now branch {text}: chiton branch diff, mount, merge or delete MOUNT{path} {text}",
            info.claim.realm
        ),
    }
    Ok(())
}

/// Merges or drops all decouplings that can be resumed; the first failure is the command's.
fn end_all(args: &Recover, realms: &Realms) -> Outcome {
    let mut first = None;
    let (mut reports, mut count) = (Vec::new(), 0);
    if args.discard && args.id.is_empty() && !args.offline {
        for realm in realms.drop_over().map_err(|error| failure(&error))? {
            count += 1;
            reports.push(json!({ "realm": realm.0, "discarded": true }));
            if !args.json {
                println!("decoupling {realm} had ended: dropped");
            }
        }
    }
    let ids = match args.offline && args.id.is_empty() {
        true => realms.offline().map_err(|error| failure(&error))?,
        false => args.id.iter().map(|id| RealmId(*id)).collect(),
    };
    let found: Vec<_> = match ids.is_empty() && !args.offline {
        true => realms.recover(),
        false => ids.into_iter().map(|id| realms.adopt(id)).collect(),
    };
    for recovered in found {
        let ended = recovered.and_then(|realm| end(args, &realm));
        match ended {
            Ok((report, text)) => {
                count += 1;
                reports.push(report);
                if !args.json {
                    println!("{}", text.trim_end());
                }
            }
            Err(error) => {
                reports.push(json!({ "error": error.to_string() }));
                note(&mut first, error);
            }
        }
    }
    match args.json {
        true => println!("{}", Value::from(reports)),
        false if count == 0 && first.is_none() && args.offline => {
            println!("no journal waits for an offline merge");
        }
        false if count == 0 && first.is_none() => println!("no journals of this file system are left"),
        false => {}
    }
    // A decoupling that could not be ended stays for another attempt.
    for error in realms.close() {
        note(&mut first, error);
    }
    first.map_or(Ok(()), |error| Err(failure(&error)))
}

/// The first error is reported at the end of the command, the others immediately.
fn note(first: &mut Option<RealmError>, error: RealmError) {
    match first {
        None => *first = Some(error),
        Some(_) => chiton_runtime::log_line!("chiton: {error}"),
    }
}

fn end(args: &Recover, realm: &Realm) -> Result<(Value, String), RealmError> {
    if args.discard {
        realm.discard()?;
        let text = format!("decoupling {}: dropped", realm.id());
        return Ok((json!({ "realm": realm.id().0, "discarded": true }), text));
    }
    let work = Work::counting("merging", "events");
    let report = |so_far: MergeProgress| work.count(so_far.events_done, so_far.events_total);
    let report = realm.merge(&report)?;
    let said = text::merge_report(&report);
    if report.stopped {
        let what =
            format!("decoupling {}: a conflict stopped the merge (on_conflict: abort)\n{said}", realm.id());
        return Err(RealmError::new(chiton_types::Refusal::Exists, what, ""));
    }
    let text = format!("decoupling {}: {said}", realm.id());
    let mut value = serde_json::to_value(&report).unwrap_or_default();
    value["realm"] = realm.id().0.into();
    Ok((value, text))
}

fn failure(error: &RealmError) -> Failure {
    Failure::new(Class::of(error.exit_code()), error.to_string())
}
