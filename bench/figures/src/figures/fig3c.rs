//! Figure 3c: requests over time of one client that creates, alone and while another one creates in the same directory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use chiton_client::Client;
use serde_json::Value;

use crate::interfere::touch;
use crate::setting::now;
use crate::site::{Shape, Site, refused, set_policy};
use crate::{Result, Setting, Table};

/// Number of samples.
const SAMPLES: u32 = 45;

pub(super) fn run(setting: &Setting) -> Result<()> {
    let policy = setting.policy("posix")?;
    let seconds = setting.scale.pick(0.3, 4.0, 60.0);
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        for (what, interferes) in [("alone", false), ("interfered with", true)] {
            watch(setting, &policy, seconds, interferes, run, what, &mut table)?;
            setting.say(format!("fig3c, run {}: {what}", run + 1));
        }
    }
    table.add("interference", "begins", 0, seconds / 3.0, "s");
    setting.write("fig3c", &table)
}

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Files that the client created.
    made: u64,
    /// Lookups that the server answered, of all clients.
    lookups: u64,
    /// The same for creates.
    creates: u64,
}

fn watch(
    setting: &Setting,
    policy: &str,
    seconds: f64,
    interferes: bool,
    run: usize,
    what: &str,
    table: &mut Table,
) -> Result<()> {
    let site = Site::start(setting, Shape::default())?;
    let (client, other, admin) = (site.client()?, site.client()?, site.client()?);
    let dir = client.mkdir_all("/job").map_err(refused)?.ino;
    set_policy(&client, dir, policy)?;
    let (over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let create = |client: &Client, prefix: &str, made: Option<&AtomicU64>| -> Result<()> {
        for n in 0u64.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            touch(client, dir, &format!("{prefix}.{n}")).map_err(refused)?;
            made.inspect(|made| {
                made.fetch_add(1, Ordering::Relaxed);
            });
        }
        Ok(())
    };
    thread::scope(|scope| {
        let victim = scope.spawn(|| create(&client, "file.one", Some(&made)));
        let mut interferer = None;
        let tick = Duration::from_secs_f64(seconds / f64::from(SAMPLES));
        let begun = now();
        let (mut before, mut at) = (Counts::default(), 0.0);
        let mut sample = || -> Result<()> {
            for n in 1..=SAMPLES {
                thread::sleep((begun + tick * n).saturating_sub(now()));
                if interferes && interferer.is_none() && n >= SAMPLES / 3 {
                    interferer = Some(scope.spawn(|| create(&other, "file.two", None)));
                }
                let (counts, time) = (counts(&admin, &made)?, (now() - begun).as_secs_f64());
                let rate = |now: u64, before: u64| (now - before) as f64 / (time - at);
                for (name, now, before) in [
                    ("the client's creates", counts.made, before.made),
                    ("lookups at the server", counts.lookups, before.lookups),
                    ("creates at the server", counts.creates, before.creates),
                ] {
                    table.add(
                        &format!("{name}, {what}"),
                        format!("{time:.3}"),
                        run,
                        rate(now, before),
                        "1/s",
                    );
                }
                (before, at) = (counts, time);
            }
            Ok(())
        };
        let sampled = sample();
        over.store(true, Ordering::Relaxed);
        for thread in std::iter::once(victim).chain(interferer) {
            thread.join().map_err(|_| "a client panicked")??;
        }
        sampled
    })
}

fn counts(admin: &Client, made: &AtomicU64) -> Result<Counts> {
    let metrics: Value = serde_json::from_slice(&admin.admin("metrics").map_err(refused)?)?;
    let count =
        |kind: &str| metrics["operations"][kind].as_u64().ok_or_else(|| format!("no count of {kind}"));
    Ok(Counts { made: made.load(Ordering::Relaxed), lookups: count("lookup")?, creates: count("make_file")? })
}
