//! Figures 6.4 and 6.5: creates, stats and unlinks in one shared directory, unsplit and split, by the number of operations in a batch.

use super::{many, runs, several};
use crate::huge::{Huge, directory};
use crate::measure::Files;
use crate::servers::Servers;
use crate::{Result, Setting, Table};

const BATCHES: [usize; 6] = [1, 10, 50, 100, 500, 1_000];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let clients = setting.scale.pick(2, 4, many(setting));
    let batches: &[usize] = setting.scale.pick(&BATCHES, &[1, 10, 100, 1_000], &BATCHES);
    // Each client has a whole batch of the largest.
    let files = setting.scale.pick(100, clients * 1_000, 400_000);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &count in several(setting) {
            for huge in [Huge::Never, Huge::Threshold] {
                let servers = Servers::start(setting, count)?;
                let dir = directory(setting, &servers, huge, setting.scale.pick(8, 1_000, 8_000))?;
                for &batch in batches {
                    for (operation, measured) in
                        (Files { files, dirs: 1, batch, clients }).measure_in(&servers, &dir)?
                    {
                        let series = format!("{operation}, {huge}, servers {count}");
                        measured.add(&mut table, &series, batch, run);
                    }
                }
            }
            setting.say(format!("fig6_4, run {}: {count} server(s)", run + 1));
        }
    }
    setting.write("fig6_4", &table)
}
