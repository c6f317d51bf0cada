//! A log that other processes follow while it is written, under two policies: the cost for the writer.
//!
//! ```text
//!   mount: appends, 1 KiB each ─▶ log ◀─ four followers on another mount, each looks every 50 ms
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use chiton_bench::report::Row;

use super::Plan;
use super::subject::{make_dir, timed};
use super::subtrees::Mounted;
use crate::failure::{Failure, Outcome};

/// Number of appends to one log.
const APPENDS: u64 = 100_000;
/// Bytes of one append.
const APPEND_BYTES: usize = 1024;
const FOLLOWERS: usize = 4;
/// How long a follower waits between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The policies, and the aimed ratio of the rates with and without followers.
const POLICIES: [(&str, Option<f64>); 2] = [("hdfs", Some(0.98)), ("posix", None)];

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let appends = APPENDS / plan.divisor;
    let mut alone = [const { Vec::new() }; POLICIES.len()];
    let mut followed = [const { Vec::new() }; POLICIES.len()];
    for round in 0..plan.rounds {
        let near = Mounted::start(&plan.dir, round)?;
        let far = near.beside(&plan.dir, round)?;
        for (n, (policy, _)) in POLICIES.iter().enumerate() {
            let dir = near.dir.join(policy);
            make_dir(&dir)?;
            near.chiton(&["policy", "set"], &dir, &[policy])?;
            // The first file finds everything cold.
            rate(&dir.join("first"), appends, None)?;
            alone[n].push(rate(&dir.join("alone"), appends, None)?);
            followed[n].push(rate(&dir.join("log"), appends, Some(&far.dir.join(policy).join("log")))?);
        }
        far.end()?;
        near.end()?;
    }
    let rows = POLICIES.iter().enumerate().map(|(n, (policy, target))| {
        let row = Row::new(
            &format!("appends of 1 KiB, {policy}: with 4 followers / without"),
            "ops/s",
            &alone[n],
            &followed[n],
        )
        .with_bound("CPU: FUSE crossings, and the followers on the same processors");
        match target {
            Some(target) => row.with_target(*target),
            None => row,
        }
    });
    Ok(rows.collect())
}

/// Appends a second, while other processes read `followed` (the same file, on another mount).
fn rate(log: &Path, appends: u64, followed: Option<&Path>) -> Outcome<f64> {
    let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", log.display()));
    let mut file = File::create(log).map_err(failed)?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let followers: Vec<_> = followed
            .map_or(0..0, |_| 0..FOLLOWERS)
            .filter_map(|_| followed)
            .map(|path| scope.spawn(|| follow(path, &is_done)))
            .collect();
        let record = [b'x'; APPEND_BYTES];
        let written = timed(|| (0..appends).try_for_each(|_| file.write_all(&record)).map_err(failed));
        is_done.store(true, Ordering::Release);
        for follower in followers {
            let read = follower.join().map_err(|_| Failure::failed("a follower panicked"))?;
            read.map_err(failed)?;
        }
        Ok(appends as f64 / written?.1)
    })
}

fn follow(path: &Path, is_done: &AtomicBool) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut seen = Vec::new();
    while !is_done.load(Ordering::Acquire) {
        seen.clear();
        file.read_to_end(&mut seen)?;
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
