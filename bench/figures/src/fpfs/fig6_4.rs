//! Figure 6.4: creates, stats and unlinks in one shared directory, by the number of operations in a batch.

use super::{many, runs};
use crate::measure::Files;
use crate::servers::Servers;
use crate::{Result, Setting, Table};

const BATCHES: [usize; 6] = [1, 10, 50, 100, 500, 1_000];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let clients = many(setting);
    // Each client has a whole batch of the largest.
    let files = setting.scale.pick(100, clients * 1_000, 400_000);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for batch in BATCHES {
            let servers = Servers::start_one(setting)?;
            for (operation, measured) in (Files { files, dirs: 1, batch, clients }).measure(&servers)? {
                measured.add(&mut table, operation, batch, run);
            }
        }
        setting.say(format!("fig6_4, run {}", run + 1));
    }
    setting.write("fig6_4", &table)
}
