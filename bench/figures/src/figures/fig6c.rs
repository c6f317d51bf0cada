//! Figure 6c: a decoupled client whose updates are merged at intervals while it works.

use std::hint::black_box;

use crate::load::{create, names};
use crate::policies::synced_every;
use crate::setting::{now, processor_time, timed};
use crate::site::{Shape, Site, refused};
use crate::{Result, Setting, Table};

/// Creates a second of the paper's client. One that computes nothing is so much faster here that its job is over before the first
/// interval is; so the job computes between two creates for as long as the paper's client took for one.
const PACE: f64 = 11_000.0;
/// The latest time of the first merge, in seconds.
const MERGE_SECONDS: f64 = 2.0;
/// Files of one directory.
const DIRECTORY_FILES: usize = 10_000;

struct Job {
    updates: usize,
    rounds: u64,
}

/// How long it took, in seconds.
struct Took {
    wall: f64,
    /// Processor time of the job's own thread.
    processor: f64,
}

pub(super) fn run(setting: &Setting) -> Result<()> {
    let scale = setting.scale;
    let seconds = scale.pick(0.02, 5.0, 60.0);
    let intervals: &[f64] =
        scale.pick(&[0.0, 1.0], &[0.0, 1.0, 2.5], &[0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 25.0]);
    let paced = Job { updates: (PACE * seconds) as usize, rounds: rounds_in(1.0 / PACE) };
    let flat_out = Job { updates: scale.pick(500, 1_000_000, 10_000_000), rounds: 0 };
    let flat_out_interval = scale.pick(1.0, 0.1, 1.0);
    let mut table = Table::default();
    for run in 0..scale.runs() {
        for &interval in intervals {
            let took = job(setting, interval, &paced)?;
            table.add("paced", interval, run, took.wall, "s");
            table.add("paced, processor time", interval, run, took.processor, "s");
            setting.say(format!(
                "fig6c, run {}: a sync every {interval} s: {:.2} s for {} updates",
                run + 1,
                took.wall,
                paced.updates
            ));
        }
        for interval in [0.0, flat_out_interval] {
            let took = job(setting, interval, &flat_out)?;
            table.add("flat out", interval, run, took.wall, "s");
        }
    }
    table.add("updates", "paced", 0, paced.updates as f64, "updates");
    table.add("updates", "flat out", 0, flat_out.updates as f64, "updates");
    setting.write("fig6c", &table)
}

fn job(setting: &Setting, interval: f64, job: &Job) -> Result<Took> {
    let policy = setting.show_policy(&format!("sync-{interval}s"), &synced_every(interval))?;
    let site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let realm = party.take("/job", &policy)?;
    let client = realm.client();
    let mut names = names(DIRECTORY_FILES.min(job.updates));
    let processor = processor_time();
    let ((), wall) = timed(|| {
        let mut left = job.updates;
        let mut at = 0;
        while left > 0 {
            names.truncate(left);
            let dir = client.mkdir_all(format!("/part-{at}")).map_err(refused)?.ino;
            for name in names.chunks(1) {
                compute(job.rounds);
                create(client, dir, name)?;
            }
            left -= names.len();
            at += 1;
        }
        client.sync().map_err(refused)
    })?;
    let took = Took { wall, processor: processor_time() - processor };
    if let Some(trouble) = realm.status().trouble {
        return Err(format!("it is not merged: {trouble}").into());
    }
    // On a fast machine the flat out job may be over before its first merge is.
    if interval > 0.0 && wall > 2.0 * interval + MERGE_SECONDS && realm.status().merged == 0 {
        return Err(format!("nothing was merged in {wall:.1} s, with a sync every {interval} s").into());
    }
    realm.abandon();
    Ok(took)
}

/// A job's own work: rounds of a generator of numbers.
fn compute(rounds: u64) {
    let mut state = black_box(1u64);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// The number of rounds that take this many seconds on this machine: the fastest of a few tries, which was
/// disturbed least.
fn rounds_in(seconds: f64) -> u64 {
    const ROUNDS: u64 = 2_000_000;
    let one = |_| {
        let begun = now();
        compute(ROUNDS);
        (now() - begun).as_secs_f64()
    };
    let best = (0..5).map(one).fold(f64::INFINITY, f64::min);
    (seconds / best * ROUNDS as f64) as u64
}
