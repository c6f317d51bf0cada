//! The POSIX suites `pjdfstest` (one case for each rule) and `fsx` (random operations on one file, checked byte by
//! byte, mmap included), on Chiton's mounts. Both are cargo packages, installed below target.
//!
//! ```text
//!   alone:   suites ─▶ mount with its server
//!   beside:  suites ─▶ mount ─▶ server ◀─ mount ◀─ a neighbour that lists, stats and reads the same tree all the time
//!   parts:   suites ─▶ mount ─▶ server with two plates: each directory has two parts, from its birth or from two names on
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::run::{Build, Mounted, Result, captured, cargo, fresh_dir, programs, root, shown, target};
use crate::serving::Serving;
use crate::verify::before;

const PJDFSTEST: &str = "0.2.2";
const FSX: &str = "0.3.2";
/// Of a file the neighbour reads as much.
const NEIGHBOUR_BYTES: u64 = 64 << 10;
/// Between two rounds of the neighbour.
const NEIGHBOUR_PAUSE: Duration = Duration::from_millis(2);

/// Numbers of passed and failed cases, and the output.
#[derive(Default)]
struct Outcome {
    passed: u64,
    failed: u64,
    said: Vec<String>,
}

/// Policies under which all directories get parts.
const PARTED: [(&str, &str); 2] =
    [("always", "huge: always\n"), ("threshold", "huge: threshold\nhuge_threshold: 2\n")];

/// Runs both suites on all kinds of mounts at once; returns how many cases passed and failed.
pub(crate) fn run() -> Result<(u64, u64)> {
    let suites = install()?;
    let programs = programs(Build::Dev)?;
    if is_root()? {
        dummy_user()?;
    }
    let outcomes = thread::scope(|scope| {
        let alone = scope.spawn(|| alone(&suites, &programs));
        let beside = scope.spawn(|| beside(&suites, &programs));
        let parted = scope.spawn(|| parted(&suites, &programs));
        [("alone", alone), ("beside", beside), ("parts", parted)].map(|(name, run)| (name, run.join()))
    });
    let mut count = (0, 0);
    for (name, outcome) in outcomes {
        let outcome = outcome.map_err(|_| format!("the suites on a mount {name} panicked"))??;
        outcome.said.iter().for_each(|line| println!("{name}: {line}"));
        count = (count.0 + outcome.passed, count.1 + outcome.failed);
    }
    Ok(count)
}

fn alone(suites: &Path, programs: &Path) -> Result<Outcome> {
    let work = fresh_place("chiton-suites")?;
    let mount = Mounted::start(programs, &fresh_dir("suites-data")?, &work)?;
    let outcome = on(suites, &work)?;
    mount.unmount()?;
    Ok(outcome)
}

fn beside(suites: &Path, programs: &Path) -> Result<Outcome> {
    let home = fresh_dir("suites-served")?;
    let server = Serving::start(programs, &[], &home.join("data"))?;
    let places = [fresh_place("chiton-suites-a")?, fresh_place("chiton-suites-b")?];
    let [mount, neighbour] = [0, 1]
        .map(|n| Mounted::beside(programs, &server.socket, &home.join(format!("state-{n}")), &places[n]));
    let (mount, neighbour) = (mount?, neighbour?);
    let over = AtomicBool::new(false);
    let (outcome, seen) = thread::scope(|scope| {
        let looking = scope.spawn(|| look_until(&over, &places[1]));
        let outcome = on(suites, &places[0]);
        over.store(true, Ordering::Relaxed);
        (outcome, looking.join())
    });
    let (mut outcome, (rounds, wrong)) = (outcome?, seen.map_err(|_| "the neighbour panicked".to_owned())?);
    outcome.said.push(format!("the neighbour looked {rounds} times, and met {} errors", wrong.len()));
    outcome.said.extend(wrong.iter().take(20).cloned());
    match wrong.is_empty() && rounds > 0 {
        true => outcome.passed += 1,
        false => outcome.failed += 1,
    }
    neighbour.unmount()?;
    mount.unmount()?;
    Ok(outcome)
}

/// On directories that have parts on two plates.
fn parted(suites: &Path, programs: &Path) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, policy) in PARTED {
        let home = fresh_dir(&format!("suites-parts-{name}"))?;
        let server = Serving::of_plates(programs, 2, &[], &home.join("data"))?;
        // The address of a Unix socket is at most 107 bytes long, and the suite's names are long.
        let work = fresh_place("chiton-parts")?;
        let mount = Mounted::beside(programs, &server.socket, &home.join("state"), &work)?;
        let file = home.join("policy.yml");
        std::fs::write(&file, policy).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        captured(Command::new(programs.join("chiton")).args(["policy", "set"]).arg(&work).arg(&file))?;
        // The directory that carries the policy stays as it was under one of them.
        let below = work.join("d");
        std::fs::create_dir(&below).map_err(|e| format!("cannot make {}: {e}", below.display()))?;
        let of_policy = on(suites, &below)?;
        mount.unmount()?;
        outcome.passed += of_policy.passed;
        outcome.failed += of_policy.failed;
        outcome.said.extend(of_policy.said.into_iter().map(|line| format!("{name}: {line}")));
    }
    Ok(outcome)
}

/// A directory that other users reach: pjdfstest changes its user.
fn fresh_place(name: &str) -> Result<PathBuf> {
    let place = Path::new("/var/tmp").join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).map_err(|e| format!("cannot make {}: {e}", place.display()))?;
    Ok(place)
}

/// Runs both suites in a directory.
fn on(suites: &Path, work: &Path) -> Result<Outcome> {
    let configs = root().join("crates/fuse/tests/suites");
    let mut outcome = Outcome::default();
    if is_root()? {
        pjdfstest(suites, &configs, work, &mut outcome)?;
    } else {
        outcome.said.push("pjdfstest: not run, it needs root (it changes users)".into());
    }
    for (config, seed) in [("fsx.toml", "42"), ("fsx-alloc.toml", "7")] {
        let file = work.join(format!("fsx-{seed}"));
        let result = fsx(suites, &configs.join(config), seed, &file);
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        outcome.said.push(format!("fsx {config} seed {seed}: {word}"));
        match result {
            Ok(()) => outcome.passed += 1,
            Err(message) => {
                outcome.failed += 1;
                outcome.said.push(message);
            }
        }
    }
    Ok(outcome)
}

fn pjdfstest(suites: &Path, configs: &Path, work: &Path, outcome: &mut Outcome) -> Result<()> {
    let dir = work.join("pjdfstest");
    std::fs::create_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    let out = Command::new(suites.join("pjdfstest"))
        .arg("-c")
        .arg(configs.join("pjdfstest.toml"))
        .arg("-p")
        .arg(&dir)
        .args(["-s", "/var/tmp"])
        .output()
        .map_err(|e| format!("cannot run pjdfstest: {e}"))?;
    let said = String::from_utf8_lossy(&out.stdout);
    let closing = said.lines().rev().find(|l| l.contains(" passed")).unwrap_or_default();
    let wrong = said.lines().filter(|l| l.contains("FAILED") || l.contains("panicked"));
    outcome.said.extend(wrong.map(str::to_owned));
    outcome.said.push(format!("pjdfstest: {closing}"));
    outcome.passed += before(closing, " passed");
    outcome.failed += before(closing, " failed");
    match before(closing, " passed") {
        0 => Err(format!("pjdfstest ran no case:\n{said}\n{}", String::from_utf8_lossy(&out.stderr))),
        _ => Ok(()),
    }
}

/// Looks at everything below `top` again and again; returns how often, and the errors that no change of the tree explains.
fn look_until(over: &AtomicBool, top: &Path) -> (u64, Vec<String>) {
    let (mut rounds, mut wrong) = (0, Vec::new());
    while !over.load(Ordering::Relaxed) {
        look_at(top, &mut wrong);
        rounds += 1;
        thread::sleep(NEIGHBOUR_PAUSE);
    }
    (rounds, wrong)
}

fn look_at(dir: &Path, wrong: &mut Vec<String>) {
    let mut note = |path: &Path, what: &str, error: &std::io::Error| {
        if !error.raw_os_error().is_some_and(|errno| EXPECTED.contains(&errno)) {
            wrong.push(format!("neighbour: {what} {}: {error}", path.display()));
        }
    };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return note(dir, "list", &error),
    };
    let mut below = Vec::new();
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                note(dir, "list", &error);
                break;
            }
        };
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => below.push(path),
            Ok(meta) if meta.is_file() => {
                if let Err(error) = read_some(&path) {
                    note(&path, "read", &error);
                }
            }
            Ok(_) => {}
            Err(error) => note(&path, "stat", &error),
        }
    }
    below.iter().for_each(|dir| look_at(dir, wrong));
}

fn read_some(path: &Path) -> std::io::Result<u64> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    // The file may have become a fifo.
    let file = std::fs::File::options().read(true).custom_flags(O_NONBLOCK | O_NOFOLLOW).open(path)?;
    std::io::copy(&mut file.take(NEIGHBOUR_BYTES), &mut std::io::sink())
}

/// Errors that the neighbour may meet: names vanish and change their type while it looks (ENOENT, ENOTDIR, EISDIR,
/// ELOOP, ENXIO), and its paths may be longer than those of the suites (ENAMETOOLONG).
const EXPECTED: [i32; 6] = [2, 20, 21, 40, 6, 36];
/// Of Linux, as most machines have them.
const O_NONBLOCK: i32 = 0o4000;
const O_NOFOLLOW: i32 = 0o400000;

fn is_root() -> Result<bool> {
    Ok(captured(Command::new("id").arg("-u"))?.trim() == "0")
}

fn fsx(suites: &Path, config: &Path, seed: &str, file: &Path) -> Result<()> {
    captured(
        Command::new(suites.join("fsx"))
            .args(["-q", "-f"])
            .arg(config)
            .args(["-N", "10000", "-S", seed, "-P"])
            .arg(target())
            .arg(file),
    )
    .map(|_| ())
}

/// Installs both suites below target, unless they are there.
fn install() -> Result<PathBuf> {
    let home = target().join("suites");
    for (name, version) in [("pjdfstest", PJDFSTEST), ("fsx", FSX)] {
        if !home.join("bin").join(name).exists() {
            let home = home.to_string_lossy();
            shown(&mut cargo(&[
                "install",
                "--quiet",
                "--debug",
                "--locked",
                "--root",
                &home,
                "--version",
                version,
                name,
            ]))?;
        }
    }
    Ok(home.join("bin"))
}

/// The second unprivileged user that pjdfstest wants.
fn dummy_user() -> Result<()> {
    if captured(Command::new("id").arg("tests")).is_ok() {
        return Ok(());
    }
    captured(Command::new("useradd").args([
        "--system",
        "--user-group",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        "tests",
    ]))
    .map(|_| ())
}
