//! Figures 5.5 and 5.8, with one server: creates, stats and unlinks in one shared directory of three sizes, and the same in directories of
//! each client's own.

use super::{many, runs};
use crate::measure::Files;
use crate::servers::Servers;
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    let sizes: &[usize] =
        setting.scale.pick(&[40, 80], &[4_000, 8_000, 16_000], &[200_000, 400_000, 800_000]);
    let clients = many(setting);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &files in sizes {
            for (dirs, name) in [(1, "one directory"), (0, "private directories")] {
                let servers = Servers::start_one(setting)?;
                let files_of = Files { files, dirs, batch: 1, clients };
                for (operation, measured) in files_of.measure(&servers)? {
                    measured.add(&mut table, &format!("{operation}, {name}"), files, run);
                }
            }
            setting.say(format!("fig5_5, run {}: {files} files", run + 1));
        }
    }
    setting.write("fig5_5", &table)
}
