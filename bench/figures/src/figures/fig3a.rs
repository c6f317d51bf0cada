//! Figure 3a: the cost of the server's journal, by the number of segments in flight to the object store, and by
//! their length. The latter is the draft's figure 4, with creates a second over time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use chiton_types::Ino;

use crate::load::{at_once, create, names, slowest};
use crate::setting::now;
use crate::site::{Party, Shape, Site, set_policy};
use crate::{Result, Setting, Table};

/// Length of a segment where it is not varied, in bytes.
const SEGMENT: usize = 4 << 20;
/// Segments on their way where that is not varied.
const DISPATCH: usize = 40;

/// Number of samples.
const SAMPLES: u32 = 40;

/// A curve: its name, the policy, how the journal is made of objects, the files of each client.
type Curve<'a> = (&'a str, &'a str, Option<(usize, usize)>, &'a [String]);

pub(super) fn run(setting: &Setting) -> Result<()> {
    let posix = setting.policy("posix")?;
    let ramdisk = setting.policy("ramdisk")?;
    let durable = setting.policy("posix-durable")?;
    let names = names(setting.scale.pick(50, 2_000, 100_000));
    let few = &names[..setting.scale.pick(5, 10, 500)];
    let journal = |dispatch| Some((SEGMENT, dispatch));
    let curves: [Curve<'_>; 6] = [
        ("no journal", &ramdisk, None, &names),
        ("dispatch 1", &posix, journal(1), &names),
        ("dispatch 10", &posix, journal(10), &names),
        ("dispatch 40", &posix, journal(40), &names),
        ("dispatch 1, answered when durable", &durable, journal(1), few),
        ("dispatch 40, answered when durable", &durable, journal(40), few),
    ];
    let most = *setting.scale.clients().last().unwrap_or(&1);
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        for &clients in setting.scale.clients() {
            for (series, policy, objects, names) in curves {
                let seconds = slowest_of(setting, clients, policy, objects, names)?;
                table.add(series, clients, run, seconds / names.len() as f64 * 1e6, "us a create");
            }
            setting.say(format!("fig3a, run {}: {clients} clients", run + 1));
        }
        for kib in setting.scale.pick(&[64, 4096][..], &[64, 512, 4096, 16_384], &[64, 512, 4096, 16_384]) {
            let objects = Some((kib << 10, DISPATCH));
            let seconds = slowest_of(setting, most, &posix, objects, &names)?;
            table.add("segment", kib, run, seconds / names.len() as f64 * 1e6, "us a create");
        }
        for kib in [64, 4096, 16_384] {
            for (time, rate) in over_time(setting, most, &posix, (kib << 10, DISPATCH))? {
                table.add(
                    &format!("creates over time, {kib} KiB"),
                    format!("{time:.3}"),
                    run,
                    rate,
                    "creates/s",
                );
            }
            setting.say(format!("fig3a, run {}: over time, segments of {kib} KiB", run + 1));
        }
    }
    table.add("segment, clients", "all", 0, most as f64, "clients");
    setting.write("fig3a", &table)
}

/// Several clients, each with its own directory.
struct Clients {
    parties: Vec<Party>,
    dirs: Vec<Ino>,
    _site: Site,
}

impl Clients {
    fn start(
        setting: &Setting,
        clients: usize,
        policy: &str,
        objects: Option<(usize, usize)>,
    ) -> Result<Clients> {
        let site = Site::start(setting, Shape { objects, ..Shape::default() })?;
        let parties =
            (0..clients).map(|n| site.party(&format!("state{n}"))).collect::<Result<Vec<Party>>>()?;
        let dir = |n: usize| -> Result<_> {
            let dir = parties[n].mkdir(&format!("/client{n}"))?;
            set_policy(&parties[n].client, dir, policy)?;
            Ok(dir)
        };
        let dirs = (0..clients).map(dir).collect::<Result<Vec<_>>>()?;
        Ok(Clients { parties, dirs, _site: site })
    }
}

/// Seconds of the slowest of several clients.
fn slowest_of(
    setting: &Setting,
    clients: usize,
    policy: &str,
    objects: Option<(usize, usize)>,
    names: &[String],
) -> Result<f64> {
    let Clients { parties, dirs, _site } = Clients::start(setting, clients, policy, objects)?;
    Ok(slowest(&at_once(&parties, |n, party| create(&party.client, dirs[n], names))?))
}

/// Creates a second of all clients together, at times in seconds.
fn over_time(
    setting: &Setting,
    clients: usize,
    policy: &str,
    objects: (usize, usize),
) -> Result<Vec<(f64, f64)>> {
    let seconds = setting.scale.pick(0.2, 0.8, 30.0);
    let Clients { parties, dirs, _site } = Clients::start(setting, clients, policy, Some(objects))?;
    let (over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            at_once(&parties, |n, party| {
                for file in 0u64.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    create(&party.client, dirs[n], &[format!("file.{file}")])?;
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        let tick = Duration::from_secs_f64(seconds / f64::from(SAMPLES));
        let (begun, mut samples) = (now(), Vec::new());
        let (mut before, mut at) = (0, 0.0);
        for n in 1..=SAMPLES {
            thread::sleep((begun + tick * n).saturating_sub(now()));
            let (count, time) = (made.load(Ordering::Relaxed), (now() - begun).as_secs_f64());
            samples.push((time, (count - before) as f64 / (time - at)));
            (before, at) = (count, time);
        }
        over.store(true, Ordering::Relaxed);
        working.join().map_err(|_| "a client panicked")??;
        Ok(samples)
    })
}
