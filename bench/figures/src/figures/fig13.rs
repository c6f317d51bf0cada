//! Figure 13 of the paper's draft: create, save, persist and apply for a growing number of files of one directory;
//! and the rate of creates when there are many files already.

use crate::compositions::{Grown, Growth, alone, appended, offline, strong};
use crate::load::names;
use crate::site::Shape;
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    let scale = setting.scale;
    let sizes: &[usize] = scale.pick(
        &[20, 50],
        &[1_000, 10_000, 100_000],
        &[1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    );
    let largest = sizes[sizes.len() - 1];
    // Events are appended so fast that a million of them is a small measurement.
    let many = names(scale.pick(50, 1_000_000, 1_000_000));
    let posix = setting.policy("posix")?;
    let in_memory = setting.policy("ramdisk-decoupled")?;
    let local = setting.policy("deltafs")?;
    let nonvolatile = setting.policy("offline")?;
    let mut table = Table::default();
    for run in 0..scale.runs() {
        for &files in sizes {
            let names = &many[..files];
            let mut add = |series: &str, seconds: f64| table.add(series, files, run, seconds, "s");
            let memory = alone(setting, &in_memory, names)?;
            add("create", memory.created);
            add("create + v_apply", memory.created + memory.merged);
            add("create + save", appended(setting, &local, names)?.seconds);
            let applied = offline(setting, &nonvolatile, names)?;
            add("create + persist", applied.created);
            add("create + persist + apply", applied.created + applied.applied);
            let rpcs = strong(setting, &posix, Shape::default(), names)?;
            add("rpcs", rpcs.seconds);
            if files == largest {
                rates(&mut table, "rate of rpcs", run, &rpcs.growth, |grown| grown.seconds);
            }
            setting.say(format!("fig13, run {}: {files} files", run + 1));
        }
        let growth = appended(setting, &in_memory, &many)?.growth;
        rates(&mut table, "rate of create", run, &growth, |grown| grown.seconds);
        rates(&mut table, "rate of create, processor time", run, &growth, |grown| grown.processor);
    }
    setting.write("fig13", &table)
}

/// Creates a second, by the entries that the directory had in the end: each rate is of the time since the entries before.
fn rates(table: &mut Table, series: &str, run: usize, growth: &Growth, time: impl Fn(&Grown) -> f64) {
    let (mut entries, mut seconds) = (0, 0.0);
    for grown in growth {
        let rate = (grown.entries - entries) as f64 / (time(grown) - seconds).max(1e-9);
        table.add(series, grown.entries, run, rate, "creates/s");
        (entries, seconds) = (grown.entries, time(grown));
    }
}
