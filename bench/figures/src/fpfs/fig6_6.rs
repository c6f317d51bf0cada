//! Figures 6.6 and 6.8, with one server: creates, stats and unlinks by batches of 1,000 in one shared directory of three sizes, and one by one.

use super::{many, runs};
use crate::measure::Files;
use crate::servers::Servers;
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    let sizes: &[usize] = setting.scale.pick(&[40, 80], &[8_000, 16_000], &[200_000, 400_000, 800_000]);
    let clients = many(setting);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &files in sizes {
            for (batch, name) in [(1, "one by one"), (1_000, "batches")] {
                let servers = Servers::start_one(setting)?;
                for (operation, measured) in (Files { files, dirs: 1, batch, clients }).measure(&servers)? {
                    measured.add(&mut table, &format!("{operation}, {name}"), files, run);
                }
            }
        }
        setting.say(format!("fig6_6, run {}", run + 1));
    }
    setting.write("fig6_6", &table)
}
