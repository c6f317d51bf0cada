//! Calls at every plate, again and again, and how long each took.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chiton_client::{Client, OpenFlags};
use chiton_monitor::Monitor;
use chiton_types::{PlateId, Plates, SHARDS_DEFAULT};

use crate::Result;

/// Between two calls at a plate.
const REST: Duration = Duration::from_millis(2);
/// Directories that are made until each plate has one.
const DIRS_MAX: usize = 4096;

/// A directory on each plate.
pub(crate) struct Probes {
    pub(crate) dirs: BTreeMap<PlateId, String>,
}

/// A call that went well: a file was made, and is durable.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// The calls of each plate, in their order.
pub(crate) type Calls = BTreeMap<PlateId, Vec<Call>>;

impl Probes {
    pub(crate) fn prepare(client: &Client, monitor: &dyn Monitor) -> Result<Probes> {
        let count = monitor.map().map_err(|e| e.to_string())?.plates.len();
        let count = u16::try_from(count).map_err(|e| format!("plates: {e}"))?;
        let plates = Plates::new(SHARDS_DEFAULT, count).ok_or("more plates than shards")?;
        let mut dirs = BTreeMap::new();
        for number in 0..DIRS_MAX {
            if dirs.len() == usize::from(count) {
                return Ok(Probes { dirs });
            }
            let dir = format!("probe-{number}");
            let made = client.mkdir_all(&dir).map_err(|refusal| format!("mkdir {dir}: {refusal}"))?;
            let plate = plates.of(made.ino).ok_or_else(|| format!("{dir} is on no plate"))?;
            dirs.entry(plate).or_insert(dir);
        }
        Err(format!("{DIRS_MAX} directories are on {} of {count} plates", dirs.len()))
    }

    /// Calls at these plates while `during` runs.
    pub(crate) fn watch<T>(
        &self,
        client: &Client,
        plates: &[PlateId],
        during: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Calls)> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = plates
                .iter()
                .map(|plate| {
                    let (dir, is_over) = (&self.dirs[plate], &is_over);
                    (*plate, scope.spawn(move || call_until(client, dir, is_over)))
                })
                .collect();
            let result = during();
            is_over.store(true, Ordering::SeqCst);
            let mut calls = Calls::new();
            for (plate, thread) in threads {
                let made = thread.join().map_err(|_| "a probe panicked".to_owned())?;
                calls.insert(plate, made?);
            }
            Ok((result?, calls))
        })
    }
}

fn call_until(client: &Client, dir: &str, is_over: &AtomicBool) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    let path = format!("{dir}/probe");
    while !is_over.load(Ordering::SeqCst) {
        let began = Instant::now();
        once(client, &path).map_err(|refusal| format!("{path}: {refusal}"))?;
        calls.push(Call { began, ended: Instant::now() });
        std::thread::sleep(REST);
    }
    Ok(calls)
}

fn once(client: &Client, path: &str) -> std::result::Result<(), chiton_types::Refusal> {
    client.create_file(path, b"")?;
    let fh = client.open_path(path, OpenFlags::READ)?;
    let synced = client.fsync(fh, false);
    client.release(fh)?;
    synced?;
    client.remove(path)
}
