//! Tables 5.3 to 5.5 and 6.1: eight directories are used at once, by 1, 16 and 32 clients each, split and unsplit, one by one and by
//! batches of 1,000.

use super::{runs, several};
use crate::huge::{Huge, directory};
use crate::measure::Files;
use crate::servers::Servers;
use crate::{Result, Setting, Table};

const DIRS: usize = 8;
const POLICIES: [Huge; 4] = [Huge::Never, Huge::Threshold, Huge::Always, Huge::Auto];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let files = DIRS * setting.scale.pick(8, 200, 32_000);
    let by_dir: &[usize] = setting.scale.pick(&[1], &[1, 4], &[1, 16, 32]);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &count in several(setting) {
            for huge in POLICIES {
                let servers = Servers::start(setting, count)?;
                let dir = directory(setting, &servers, huge, setting.scale.pick(4, 50, 8_000))?;
                for &clients in by_dir {
                    for (batch, suffix) in [(1, ""), (1_000, ", batches")] {
                        let files = Files { files, dirs: DIRS, batch, clients: DIRS * clients };
                        for (operation, measured) in files.measure_in(&servers, &dir)? {
                            let series = format!("{operation}{suffix}, {huge}, servers {count}");
                            measured.add(&mut table, &series, clients, run);
                        }
                    }
                }
            }
            setting.say(format!("tab5_3, run {}: {count} server(s)", run + 1));
        }
    }
    setting.write("tab5_3", &table)
}
