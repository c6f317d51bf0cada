//! Creates by write-behind, beside creates that ask the server; and the cost of another client that creates files there.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use chiton_bench::report::Row;
use chiton_bench::trivial_mount::TrivialMount;
use chiton_client::Client;
use chiton_fuse::{Mount, MountOptions};
use chiton_types::{Ino, Kind, Mode};

use super::subject::{Subject, make_dir, name, timed, unmount};
use super::{Plan, loads};
use crate::failure::{Failure, Outcome};

const FILES: u64 = 100_000;
const MOUNTED: u64 = 20_000;
/// Files of a directory that is unpacked.
const UNPACKED_DIR: u64 = 50;
/// Number of directories that the other client visits.
const VISITS: u64 = 100;
const BOUND: &str = "CPU: the engine's work a create";

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let mut rows = singly(plan)?;
    rows.extend(interference(plan)?);
    rows.extend(mounted(plan)?);
    Ok(rows)
}

/// One at a time, and until the server has all of them.
fn singly(plan: &Plan) -> Outcome<Vec<Row>> {
    let files = FILES / plan.divisor;
    let (mut asking, mut acknowledged, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let subject = Subject::start(plan, &format!("write-behind-data-{round}"))?;
        let client = subject.over_socket()?;
        let dir = directory(&client, "/asked")?;
        asking.push(files as f64 / timed(|| fill(&client, dir, 0..files))?.1);
        drop(client);
        let client = subject.beside(Some(2))?;
        let dir = directory(&client, "/write-behind")?;
        let ((), seconds) = timed(|| fill(&client, dir, 0..files))?;
        // The list waits until the server has all pending operations.
        let ((), rest) = timed(|| client.list("/asked").map(drop).map_err(Failure::failed))?;
        acknowledged.push(files as f64 / seconds);
        settled.push(files as f64 / (seconds + rest));
        drop(client);
        subject.end()?;
    }
    let row = |what: &str, ours: &[f64]| {
        Row::new(
            &format!("{files} creates one at a time, by write-behind{what} / asked"),
            "ops/s",
            &asking,
            ours,
        )
        .with_bound(BOUND)
    };
    Ok(vec![row("", &acknowledged), row(", until the server has them", &settled)])
}

/// A client that fills a directory while another makes files there, too; and how long that one waits for the lease.
fn interference(plan: &Plan) -> Outcome<Vec<Row>> {
    let files = FILES / plan.divisor;
    let (mut alone, mut disturbed, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    let (mut usual, mut waits) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let subject = Subject::start(plan, &format!("interference-data-{round}"))?;
        let other = subject.over_socket()?;
        let client = subject.beside(Some(2))?;
        let dir = directory(&client, "/alone")?;
        alone.push(files as f64 / timed(|| fill(&client, dir, 0..files))?.1);
        let dir = directory(&client, "/disturbed")?;
        disturbed.push(beside(&other, dir, || Ok(files as f64 / timed(|| fill(&client, dir, 0..files))?.1))?);
        let asking = subject.beside(None)?;
        let dir = directory(&asking, "/both-ask")?;
        asked.push(beside(&other, dir, || Ok(files as f64 / timed(|| fill(&asking, dir, 0..files))?.1))?);
        let own = directory(&other, "/own")?;
        fill(&other, own, 0..VISITS)?;
        usual.push(1e6 * timed(|| fill(&other, own, VISITS..2 * VISITS))?.1 / VISITS as f64);
        let mut waited = 0.0;
        for visit in 0..VISITS {
            let dir = directory(&client, &format!("/visited{visit}"))?;
            fill(&client, dir, 0..20)?;
            waited += timed(|| make(&other, dir, u64::MAX))?.1;
        }
        waits.push(1e6 * waited / VISITS as f64);
        drop((asking, client, other));
        subject.end()?;
    }
    Ok(vec![
        Row::new(
            "creates by write-behind while another client creates there / alone",
            "ops/s",
            &alone,
            &disturbed,
        ),
        Row::new("the same / both without write-behind", "ops/s", &asked, &disturbed),
        Row::new("the other client's first create, by recall / in its own directory", "us", &usual, &waits),
    ])
}

/// Runs `work` while `other` makes files in the directory, one after the other.
fn beside<T>(other: &Client, dir: Ino, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let disturb = scope.spawn(|| {
            let mut n = 1 << 40;
            while !over.load(Ordering::Relaxed) {
                make(other, dir, n)?;
                n += 1;
            }
            Ok(())
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        let disturbed: Outcome = disturb.join().expect("the other one does not panic");
        disturbed.and(result)
    })
}

/// Through mounts of a server behind a socket, beside the trivial FUSE file system.
fn mounted(plan: &Plan) -> Outcome<Vec<Row>> {
    let floor_dir = plan.dir.join("write-behind-floor");
    make_dir(&floor_dir)?;
    let floor = TrivialMount::spawn(&floor_dir).map_err(Failure::failed)?;
    let subject = Subject::start(plan, "write-behind-mount-data")?;
    let asking = mount_of(subject.over_socket()?, &plan.dir.join("asking"))?;
    let writing_behind = mount_of(subject.beside(Some(2))?, &plan.dir.join("writing-behind"))?;
    let files = MOUNTED / plan.divisor;
    let mut rates = [Rates::default(), Rates::default(), Rates::default()];
    for round in 0..plan.rounds {
        let dirs = [floor.dir(), asking.dir(), writing_behind.dir()];
        for ((who, dir), rates) in dirs.iter().enumerate().zip(&mut rates) {
            let dir = dir.join(format!("storm-{who}-{round}"));
            make_dir(&dir)?;
            rates.add(&dir, files)?;
        }
    }
    unmount(asking)?;
    unmount(writing_behind)?;
    subject.end()?;
    floor.unmount().map_err(Failure::failed)?;
    let [floor, asked, acknowledged] = rates.map(Rates::phases);
    let mut rows = Vec::new();
    for ((what, ours), ((_, asked), (_, floor))) in acknowledged.iter().zip(asked.iter().zip(&floor)) {
        let row = |beside: &str, theirs: &[f64]| {
            let name = format!("mounted over a socket, 1 proc: {what}, by write-behind / {beside}");
            Row::new(&name, "ops/s", theirs, ours).with_bound("CPU: FUSE crossings, a thread that sends")
        };
        rows.extend([row("asked", asked), row("trivial FUSE", floor)]);
    }
    Ok(rows)
}

/// The rates of one process in a directory of a mount.
#[derive(Default)]
struct Rates {
    creates: Vec<f64>,
    removes: Vec<f64>,
    storm: Vec<f64>,
    unlinks: Vec<f64>,
}

impl Rates {
    fn add(&mut self, dir: &Path, files: u64) -> Outcome {
        let phases = loads::files(dir, 1, files, 0)?;
        self.creates.push(loads::creates(&phases));
        self.removes.push(loads::removes(&phases));
        let (made, seconds) = timed(|| unpack(dir, files).map_err(Failure::failed))?;
        self.storm.push(made.len() as f64 / seconds);
        let unlink = || made.iter().try_for_each(std::fs::remove_file).map_err(Failure::failed);
        self.unlinks.push(made.len() as f64 / timed(unlink)?.1);
        Ok(())
    }

    fn phases(self) -> [(&'static str, Vec<f64>); 4] {
        [
            ("empty creates, one directory", self.creates),
            ("removes, one directory", self.removes),
            ("unpacking files of 4 KiB with time and mode, 50 a directory", self.storm),
            ("removing these", self.unlinks),
        ]
    }
}

/// Creates directories and files as tar unpacks an archive: written, then time and mode set. Returns the files.
fn unpack(dir: &Path, files: u64) -> std::io::Result<Vec<PathBuf>> {
    let content = [7; 4096];
    let mut made = Vec::new();
    for first in (0..files).step_by(UNPACKED_DIR as usize) {
        let dir = dir.join(format!("dir{first}"));
        std::fs::create_dir(&dir)?;
        for n in first..files.min(first + UNPACKED_DIR) {
            let path = dir.join(format!("file{n}"));
            let mut file = File::create_new(&path)?;
            file.write_all(&content)?;
            file.set_modified(UNIX_EPOCH + Duration::from_secs(n))?;
            file.set_permissions(Permissions::from_mode(0o644))?;
            made.push(path);
        }
    }
    Ok(made)
}

fn mount_of(client: Client, dir: &Path) -> Outcome<Mount> {
    make_dir(dir)?;
    Mount::start(Arc::new(client), dir, MountOptions::default()).map_err(Failure::from)
}

fn directory(client: &Client, dir: &str) -> Outcome<Ino> {
    client.mkdir_all(dir).map(|attr| attr.ino).map_err(|r| Failure::failed(format!("mkdir {dir}: {r}")))
}

fn fill(client: &Client, dir: Ino, files: std::ops::Range<u64>) -> Outcome {
    files.into_iter().try_for_each(|n| make(client, dir, n))
}

fn make(client: &Client, dir: Ino, n: u64) -> Outcome {
    let made = client.mknod(&client.caller(), dir, &name(n), Kind::File, Mode(0o644), 0);
    made.map(drop).map_err(Failure::failed)
}
