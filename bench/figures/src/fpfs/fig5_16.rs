//! Figures 5.16 and 6.10: a split directory and an unsplit one at the same time, one by one and by batches of 1,000.

use super::{many, runs};
use crate::huge::{Huge, directory};
use crate::measure::Files;
use crate::servers::{Servers, counts};
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    // Of each directory.
    let files = setting.scale.pick(40, 8_000, 128_000);
    let clients = many(setting).div_ceil(2);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &count in counts(setting) {
            let servers = Servers::start(setting, count)?;
            let split = directory(setting, &servers, Huge::Always, 0)?;
            let plain = directory(setting, &servers, Huge::Never, 0)?;
            for (batch, suffix) in [(1, ""), (1_000, ", batches")] {
                let files = Files { files, dirs: 1, batch, clients };
                let [split, plain] = files.measure_twice(&servers, [&split, &plain])?;
                for ((operation, split), (_, plain)) in split.iter().zip(&plain) {
                    let series = format!("{operation}{suffix}");
                    split.add_rate(&mut table, &format!("{series}, split"), count, run);
                    plain.add_rate(&mut table, &format!("{series}, unsplit"), count, run);
                    split.with(plain).add(&mut table, &format!("{series}, both"), count, run);
                }
            }
            setting.say(format!("fig5_16, run {}: {count} server(s)", run + 1));
        }
    }
    setting.write("fig5_16", &table)
}
