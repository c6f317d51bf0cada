//! Figures 5.6, 5.9, 6.7 and 6.9, with the rates of 5.5, 5.8, 6.6 and 6.8: one shared directory, split and unsplit, one by one and by
//! batches of 1,000. Its size grows with the number of servers.

use super::{COMPARED, many, runs};
use crate::huge::directory;
use crate::measure::Files;
use crate::servers::{Servers, counts};
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    let by_server: &[usize] = setting.scale.pick(&[40], &[2_000], &[20_000, 40_000, 80_000]);
    let clients = many(setting);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &count in counts(setting) {
            for huge in COMPARED {
                let servers = Servers::start(setting, count)?;
                for &each in by_server {
                    let dir = directory(setting, &servers, huge, setting.scale.pick(8, 500, 8_000))?;
                    for (batch, suffix) in [(1, ""), (1_000, ", batches")] {
                        let files = Files { files: each * count, dirs: 1, batch, clients };
                        for (operation, measured) in files.measure_in(&servers, &dir)? {
                            let series = format!("{operation}{suffix}, {huge}, {each} files a server");
                            measured.add(&mut table, &series, count, run);
                        }
                    }
                }
            }
            setting.say(format!("fig5_6, run {}: {count} server(s)", run + 1));
        }
    }
    setting.write("fig5_6", &table)
}
