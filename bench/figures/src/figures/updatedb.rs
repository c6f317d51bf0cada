//! The macro benchmark that the paper's draft names (section 5.3): `updatedb`, which reads the names of a whole tree, beside a client that
//! creates in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use chiton_client::Client;
use chiton_types::{Ino, Mode};

use crate::load::look_and_create_one;
use crate::mount::{Mount, chiton, done};
use crate::setting::{now, timed};
use crate::site::{Party, Shape, Site, refused, set_policy};
use crate::{Result, Setting, Table};

/// Files of a folder.
const FOLDER_FILES: usize = 100;
/// Prefixes of the names of files that exist before, and of those created meanwhile.
const OLD: &str = "old-file.";
const NEW: &str = "new-file.";

/// The policies of the folder in which the other client creates.
const CREATORS: [&str; 2] = ["posix", "batchfs"];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let Some(chiton) = chiton(setting) else {
        setting.say("updatedb: left out: it needs root, /dev/fuse, and chiton beside this program");
        return Ok(());
    };
    let Some(updatedb) = updatedb() else {
        setting.say("updatedb: left out: it needs plocate (Debian: apt-get install plocate)");
        return Ok(());
    };
    let programs = Programs { chiton, updatedb };
    let folders = setting.scale.pick(3, 200, 2_000);
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        let local = on_the_local_disk(setting, &programs, folders)?;
        table.add("updatedb", "local disk", run, local, "s");
        let alone = on_a_mount(setting, &programs, folders, None)?;
        table.add("updatedb", "mount, alone", run, alone.updatedb, "s");
        for policy in CREATORS {
            let beside = on_a_mount(setting, &programs, folders, Some(policy))?;
            table.add("updatedb", format!("mount, beside a {policy} creator"), run, beside.updatedb, "s");
            table.add("creates alone", policy, run, beside.before, "creates/s");
            table.add("creates beside updatedb", policy, run, beside.meanwhile, "creates/s");
            table.add("creator's files in the listing", policy, run, beside.listed as f64, "files");
        }
        setting.say(format!("updatedb, run {}", run + 1));
    }
    table.add("tree", "files", 0, (folders * FOLDER_FILES) as f64, "files");
    table.add("tree", "folders", 0, folders as f64, "folders");
    setting.write("updatedb", &table)
}

/// The programs that run.
struct Programs {
    chiton: PathBuf,
    updatedb: PathBuf,
}

/// The updatedb of plocate, wherever it is installed. Other packages have one, too.
fn updatedb() -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/usr/local/sbin", "/usr/local/bin"];
    let found = ["updatedb.plocate", "updatedb"].into_iter().find_map(|name| {
        folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| {
            let said = Command::new(path).arg("--version").output();
            said.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("plocate"))
        })
    });
    found.filter(|_| Command::new("plocate").arg("--version").output().is_ok())
}

/// Seconds of the same tree on the disk on which the server's files are.
fn on_the_local_disk(setting: &Setting, programs: &Programs, folders: usize) -> Result<f64> {
    let scratch = setting.scratch()?;
    let tree = scratch.path().join("tree");
    for folder in 0..folders {
        let folder = tree.join(format!("folder{folder}"));
        fs::create_dir_all(&folder)?;
        for file in 0..FOLDER_FILES {
            fs::File::create(folder.join(format!("{OLD}{file}")))?;
        }
    }
    listing(programs, &tree, &scratch.path().join("db"), folders).map(|(seconds, _)| seconds)
}

/// Measurements on a mount.
struct OnAMount {
    /// Seconds of updatedb.
    updatedb: f64,
    /// Creates a second of the other client: before, and during updatedb.
    before: f64,
    meanwhile: f64,
    /// How many of its files updatedb met.
    listed: usize,
}

/// On a mount with empty caches. The other client, if there is one, creates in one more folder of the tree, with
/// this policy.
fn on_a_mount(
    setting: &Setting,
    programs: &Programs,
    folders: usize,
    creator: Option<&str>,
) -> Result<OnAMount> {
    let site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let tree = party.mkdir("/tree")?;
    set_policy(&party.client, tree, &setting.policy("posix")?)?;
    let names: Vec<String> = (0..FOLDER_FILES).map(|file| format!("{OLD}{file}")).collect();
    for folder in 0..folders {
        let dir = party.mkdir(&format!("/tree/folder{folder}"))?;
        let made = party.client.start_create_in(&party.client.caller(), dir, &names, Mode(0o644)).wait();
        made.map_err(refused)?.into_iter().try_for_each(|each| each.map(|_| ()).map_err(refused))?;
    }
    let mount = Mount::start(&programs.chiton, &site, "mnt")?;
    let (root, database) = (mount.dir().join("tree"), site.path("db"));
    let measured = match creator {
        None => {
            let (updatedb, listed) = listing(programs, &root, &database, folders)?;
            OnAMount { updatedb, before: 0.0, meanwhile: 0.0, listed }
        }
        Some(policy) => {
            let text = setting.policy(policy)?;
            beside(setting, &party, &text, policy, || listing(programs, &root, &database, folders))?
        }
    };
    mount.end()?;
    Ok(measured)
}

/// Creates for a while alone, then until the listing ends.
fn beside(
    setting: &Setting,
    party: &Party,
    text: &str,
    policy: &str,
    listing: impl FnOnce() -> Result<(f64, usize)>,
) -> Result<OnAMount> {
    let dir = party.mkdir("/tree/new")?;
    set_policy(&party.client, dir, text)?;
    let realm = if policy == "posix" { None } else { Some(party.take("/tree/new", text)?) };
    let client = realm.as_ref().map_or(&party.client, |realm| realm.client());
    let (is_listed, seconds) = (AtomicBool::new(false), setting.scale.pick(0.02, 0.3, 5.0));
    let (begun, begins) = mpsc::channel();
    let measured = thread::scope(|scope| {
        let creator = scope.spawn(|| -> Result<(f64, f64)> {
            let since = now();
            let (first, before) = create_until(client, dir, 0, || (now() - since).as_secs_f64() >= seconds)?;
            begun.send(()).map_err(|_| "nobody lists")?;
            let (_, meanwhile) = create_until(client, dir, first, || is_listed.load(Ordering::Relaxed))?;
            Ok((before, meanwhile))
        });
        // If it cannot create, the error is reported below.
        let listed = begins.recv().map_or_else(|_| Ok((0.0, 0)), |()| listing());
        is_listed.store(true, Ordering::Relaxed);
        let (before, meanwhile) = creator.join().map_err(|_| "the creator panicked")??;
        let (updatedb, listed) = listed?;
        Ok::<_, crate::Failure>(OnAMount { updatedb, before, meanwhile, listed })
    })?;
    if let Some(realm) = &realm {
        realm.abandon();
    }
    Ok(measured)
}

/// The number after that of the last file, and creates a second.
fn create_until(client: &Client, dir: Ino, first: usize, is_over: impl Fn() -> bool) -> Result<(usize, f64)> {
    let (begun, mut next) = (now(), first);
    while next == first || !is_over() {
        look_and_create_one(client, dir, &format!("{NEW}{next}"))?;
        next += 1;
    }
    Ok((next, (next - first) as f64 / (now() - begun).as_secs_f64()))
}

/// Runs updatedb: seconds, and how many of the files that are made meanwhile it met. Those that were there before must all be listed.
fn listing(programs: &Programs, tree: &Path, database: &Path, folders: usize) -> Result<(f64, usize)> {
    let mut command = Command::new(&programs.updatedb);
    command.arg("--database-root").arg(tree).arg("--output").arg(database);
    // Nothing is left out for being of this kind, below a certain path or a mount.
    command.args(["--prunefs", "", "--prunepaths", "", "--prunenames", "", "--prune-bind-mounts", "no"]);
    command.args(["--require-visibility", "no"]);
    let ((), seconds) = timed(|| done(&mut command))?;
    let count = |what: &str| -> Result<usize> {
        let out = Command::new("plocate").arg("--database").arg(database).args(["--count", what]).output()?;
        // It fails if there is nothing to find, and prints 0.
        let said = String::from_utf8_lossy(&out.stdout);
        said.trim().parse().map_err(|e| format!("plocate --count said {said:?}: {e}").into())
    };
    let (old, expect) = (count(OLD)?, folders * FOLDER_FILES);
    if old != expect {
        return Err(format!("updatedb listed {old} of {expect} files").into());
    }
    Ok((seconds, count(NEW)?))
}
