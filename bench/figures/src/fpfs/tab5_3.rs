//! Tables 5.3, 5.4 and 6.1, the columns of "never": eight directories are used at once, by 1, 16 and 32 clients each, one by one and by
//! batches of 1,000.

use super::runs;
use crate::measure::Files;
use crate::servers::{Servers, counts};
use crate::{Result, Setting, Table};

const DIRS: usize = 8;

pub(super) fn run(setting: &Setting) -> Result<()> {
    let files = DIRS * setting.scale.pick(8, 400, 40_000);
    let by_dir: &[usize] = setting.scale.pick(&[1], &[1, 4], &[1, 16, 32]);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &count in counts(setting) {
            let servers = Servers::start(setting, count)?;
            for &clients in by_dir {
                for (batch, suffix) in [(1, ""), (1_000, ", batches")] {
                    let files = Files { files, dirs: DIRS, batch, clients: DIRS * clients };
                    for (operation, measured) in files.measure(&servers)? {
                        measured.add(
                            &mut table,
                            &format!("{operation}{suffix}, servers {count}"),
                            clients,
                            run,
                        );
                    }
                }
            }
            setting.say(format!("tab5_3, run {}: {count} server(s)", run + 1));
        }
    }
    setting.write("tab5_3", &table)
}
